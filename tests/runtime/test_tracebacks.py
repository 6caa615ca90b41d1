"""Tracebacks of uncaught errors: they end in the line of the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import python

PROGRAM = """
import sys, threading
from plait import Agent, Session, Workflow, tool

@tool
def fails(a: int) -> int:
    return 1 // a

class Inner(Workflow):
    def forward(self, session):
        return session.use(fails, a=0)  # line of the tool

class Outer(Workflow):
    def __init__(self):
        self.inner = Inner()
    def forward(self, session):
        if sys.argv[1] == "own":
            raise LookupError("no stock")  # line of the program
        return self.inner(session)

def act():
    session = Session("x", store="memory:")
    if sys.argv[1] == "model":
        return Agent("x", model="gpt-5")(session)  # line of the model
    if sys.argv[1] == "stream":
        for item in Agent("x", model="gpt-5").stream(session):  # line of the stream
            print(item)
    return Outer()(session)

if sys.argv[1] == "thread":
    threading.Thread(target=act).start()
else:
    act()
"""


@pytest.mark.parametrize(
    ("case", "last", "error"),
    [
        ("tool", "return session.use(fails, a=0)", "plait.errors.ToolFailed: fails failed"),
        ("own", 'raise LookupError("no stock")', "LookupError: no stock"),
        ("model", 'return Agent("x", model="gpt-5")(session)', "plait.errors.NoModel: "),
        (
            "stream",
            'for item in Agent("x", model="gpt-5").stream(session):',
            "plait.errors.NoModel: ",
        ),
        ("thread", "return session.use(fails, a=0)", "plait.errors.ToolFailed: fails failed"),
    ],
)
def test_they_end_in_the_line_of_the_program(
    case: str, last: str, error: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    code = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
    said = python(code, program, case, check=False).stderr
    head, _, tail = said.partition(error)
    assert tail, said
    lines = [line for line in head.splitlines() if set(line.strip()) - set("^~")]
    assert lines[-1].strip().startswith(last), said
    assert "plait/runtime" not in said and "plait/workflow.py" not in said


def test_all_of_it_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_TRACEBACK", "full")
    code = (
        "from plait import Agent, Session\nAgent('x', model='gpt-5')(Session('y', store='memory:'))"
    )
    assert "plait/runtime/invoke.py" in python(code, check=False).stderr


def test_an_error_that_never_was_in_plait_is_printed_as_ever() -> None:
    said = python("import plait\n1 / 0", check=False).stderr
    assert said.splitlines()[0] == "Traceback (most recent call last):"
    assert said.splitlines()[-1] == "ZeroDivisionError: division by zero"
