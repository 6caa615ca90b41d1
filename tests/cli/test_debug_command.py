"""`plait debug`: pdb, and other debuggers, in the program of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plait.session import Session
from tests.cli.shell import COMMAND, Shell, shell
from tests.support import run_forked

__all__ = ["shell"]

PROGRAM = """
from pathlib import Path

from plait import Workflow, tool


@tool
def count(word: str) -> int:
    \"\"\"Count the letters of a word.\"\"\"
    with Path("ran.txt").open("a") as file:
        file.write("x")
    return len(word)


class Child(Workflow):
    def forward(self, session):
        inside = "the child"
        return session.fact("inside", inside)


class Counts(Workflow):
    def __init__(self):
        self.child = Child()

    def forward(self, session):
        total = 0
        for word in ("one", "three", "eleven"):
            session = session.use(count, word=word)
            total += session.result
        session = self.child(session)
        return session.ask(f"Is it {total}?")
"""

DEBUGGER = """
import pdb
import sys


def set_trace():
    pdb.Pdb(nosigint=True).set_trace(sys._getframe().f_back)
"""


@pytest.fixture
def counted(shell: Shell, tmp_path: Path) -> Session:
    (tmp_path / "counts.py").write_text(PROGRAM)
    (tmp_path / "own_debugger.py").write_text(DEBUGGER)
    told = run_plait(tmp_path, "", "run", "counts.py:Counts", "-i", "Count.", "-q", code=4)
    assert "Is it 14?" in told
    return shell.open("@")


def run_plait(folder: Path, typed: str, *words: str, code: int = 0, **more: str) -> str:
    """Return all that `plait` writes in a process of its own, with lines typed into it."""
    path = os.pathsep.join([*sys.path, str(folder)])
    ran = run_forked(
        [*COMMAND, *words],
        input=typed,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **more},
    )
    assert ran.returncode == code, ran.stdout
    return ran.stdout


def test_pdb_stops_at_the_step_and_steps_through_the_program(
    counted: Session, tmp_path: Path
) -> None:
    before = counted.head, (tmp_path / "ran.txt").read_text()
    second = counted.events.where("ToolReturned")[1]
    typed = "p total, word\nn\nn\np total\nb 30\nc\ns\nn\nn\nw\np inside\nc\n"
    told = run_plait(tmp_path, typed, "debug", f"{counted.short}@{second.seq}")
    first, *answers = told.split("(Pdb) ")
    assert first.startswith(f"{counted.short}@{second.seq}  returned 5\n")
    assert "counts.py(28)forward()\n-> session = session.use(count, word=word)" in first
    assert answers[0] == "(3, 'three')\n" and "counts.py(29)" in answers[1]
    assert answers[3] == "8\n"
    assert "counts.py(30)forward()" in answers[5] and "--Call--" in answers[6]
    assert "'the child'\n" in answers
    stack = next(answer for answer in answers if answer.count("->") == 2)
    assert "plait" not in stack.replace(str(tmp_path), "")  # neither our frames nor click's
    assert f"{counted.short}@{counted.seq}  the record ends here" in told
    assert "nothing was executed, nothing was written" in told
    assert (counted.reload().head, (tmp_path / "ran.txt").read_text()) == before


def test_another_debugger_stops_in_the_program_too(counted: Session, tmp_path: Path) -> None:
    second = counted.events.where("ToolRequested")[1]
    told = run_plait(
        tmp_path,
        "p total, word\nn\np total\nq\n",
        "debug",
        f"{counted.short}@{second.seq}",
        PYTHONBREAKPOINT="own_debugger.set_trace",
    )
    _, *answers = told.split("(Pdb) ")
    assert "counts.py(29)forward()\n-> total += session.result" in told
    assert (answers[0], answers[2]) == ("(3, 'three')\n", "8\n")
    assert "the replay ended here; nothing was executed, nothing was written" in answers[-1]
    assert "(Pdb)" not in run_plait(tmp_path, "", "debug", counted.short, PYTHONBREAKPOINT="0")


def test_a_run_without_a_program_is_refused(counted: Session, tmp_path: Path) -> None:
    (tmp_path / "counts.py").rename(tmp_path / "renamed.py")
    told = run_plait(tmp_path, "", "debug", counted.short, code=1)
    assert "Name it: plait debug" in told and "--workflow FILE.py:Counts" in told
    (tmp_path / "renamed.py").write_text(PROGRAM.replace('"eleven"', '"twelve", "ten"'))
    command = ("debug", counted.short, "--workflow", "renamed.py:Counts")
    assert "goes another way" in run_plait(tmp_path, "", *command, code=7)
    told = run_plait(tmp_path, "", "debug", f"{counted.short}@1", code=1)
    assert "no run was going on there" in told and "name a step of a run: 3 to" in told


def test_a_result_of_several_lines_stands_apart_from_its_place(
    shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "pages.py").write_text(
        "from plait import Workflow, tool\n@tool\ndef page() -> str:\n    '''Read a page.'''\n"
        "    return '---\\ntitle: x'\nclass Reads(Workflow):\n    def forward(self, session):\n"
        "        return session.use(page).ask('Good?')\n"
    )
    run_plait(tmp_path, "", "run", "pages.py:Reads", "-i", "Read.", "-q", code=4)
    session = shell.open("@")
    place = f"{session.short}@{session.events.where('ToolReturned')[0].seq}"
    assert run_plait(tmp_path, "q\n", "debug", place).startswith(f"{place}  returned ---")
