"""The examples that stand beside other frameworks: they print what they say they print, and are as
short as they claim.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from examples import round_robin, supervisor

from tests.support import run_forked

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES_MAX = 10
NAMES = [
    "round_robin",
    "supervisor",
    "approval",
    "payment",
    "memory_paging",
    "memory_reflexion",
    "memory_experiences",
]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_its_docstring_shows(name: str, tmp_path: Path) -> None:
    file = EXAMPLES / f"{name}.py"
    shown = dedent(
        (ast.get_docstring(ast.parse(file.read_text()), clean=True) or "").partition("prints:\n\n")[
            2
        ]
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}  # no key, no setting
    done = run_forked([sys.executable, str(file)], cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    told, shown = (re.sub(r"\b[0-9a-f]{8}@", "S@", text) for text in (done.stdout, shown))
    assert told.strip() == shown.strip() != ""  # but for the id of the session
    assert list(tmp_path.iterdir()) == []  # it leaves nothing behind


@pytest.mark.parametrize("twin", [round_robin.RoundRobin, supervisor.Supervisor])
def test_a_twin_is_short(twin: type) -> None:
    lines = [
        line
        for line in inspect.getsource(twin).splitlines()
        if line.strip() and not line.strip().startswith("#")
    ]
    assert len(lines) <= LINES_MAX, lines
