"""A run of many steps whose server goes away in the middle.

`python -m tests.faults.outage_story` is the process that has the run; it prints how it ended.
"""

from __future__ import annotations

import os
from pathlib import Path

from plait import Session, Workflow, tool
from plait.errors import PlaitError
from tests.support import wait_until

folder = Path(os.environ.get("STORY_FOLDER", "."))
STEPS = 12
HALF = STEPS // 2


@tool(effect="idempotent")
def step(number: int) -> int:
    with open(folder / "steps", "a") as out:
        print(number, file=out)
    if number == HALF and not (folder / "half").exists():
        (folder / "half").touch()
        wait_until((folder / "go").exists)
        (folder / "gone").touch()
    return number


class Steps(Workflow):
    """Makes one step after another."""

    def forward(self, session: Session) -> Session:
        for number in range(STEPS):
            session = session.use(step, number=number)
        return session


def steps(folder: Path) -> list[int]:
    """Return the steps that were made, each as often as it was."""
    return [int(line) for line in (folder / "steps").read_text().splitlines()]


def is_stuck(folder: Path) -> bool:
    """True when the step in the middle is done, and its outcome cannot be written."""
    return (folder / "gone").exists()


def main() -> None:
    session = Session("go", store=os.environ["STORY_STORE"])
    try:
        Steps()(session)
        print("done", flush=True)
    except PlaitError as error:
        print(type(error).__name__, flush=True)


if __name__ == "__main__":
    main()
