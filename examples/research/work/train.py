# pyright: basic, reportMissingImports=false
"""Train a classifier of handwritten digits with the parameters of a folder, and measure it.

`python3 train.py runs/NAME` writes the accuracy on the validation set to runs/NAME/validation.json;
with `--held-out` that on the digits that no experiment has seen, to runs/NAME/held-out.json.
"""

import json
import sys
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

MODELS = {"logistic": LogisticRegression, "neighbors": KNeighborsClassifier, "svc": SVC}

folder = Path(sys.argv[1])
parameters = json.loads((folder / "parameters.json").read_text())
images, digits = load_digits(return_X_y=True)
known_x, held_x, known_y, held_y = train_test_split(
    images, digits, test_size=0.3, random_state=parameters["seed"], stratify=digits
)
train_x, valid_x, train_y, valid_y = train_test_split(
    known_x, known_y, test_size=0.3, random_state=parameters["seed"], stratify=known_y
)
model = MODELS[parameters["model"]](**parameters["settings"])
if "--held-out" in sys.argv:
    name, score = "held-out", model.fit(known_x, known_y).score(held_x, held_y)
else:
    name, score = "validation", model.fit(train_x, train_y).score(valid_x, valid_y)
(folder / f"{name}.json").write_text(json.dumps(round(score, 4)) + "\n")
