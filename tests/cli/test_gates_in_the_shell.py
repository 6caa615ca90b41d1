"""Gates and lost calls in the shell: shown, judged, resolved and taken up again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait import Session
from tests.cli.shell import Shell, program_folder, shell

__all__ = ["shell"]

PROGRAM = """
from pathlib import Path
from plait import Agent, ScriptedModel, Workflow, tool

HERE = Path(__file__).parent


class Gated(Workflow):
    def __init__(self):
        self.worker = Agent("Go on.", model=ScriptedModel(["went on"]))

    def forward(self, session):
        return self.worker(session.checks.require("tests", by="human:ana"))


@tool
def count() -> int:
    if not (HERE / "tried").exists():
        (HERE / "tried").write_text("")
        raise KeyboardInterrupt
    return 1


class Counts(Workflow):
    def forward(self, session):
        session = session.use(count)
        return session.fact("counted", session.result_as(int))
"""


@pytest.fixture
def folder(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with program_folder(tmp_path, "gatedflow", PROGRAM, monkeypatch) as folder:
        yield folder


def only(shell: Shell) -> Session:
    (session,) = Session.list(store=shell.open(shell.json("ls")["sessions"][0]["id"]).store)
    return session


def test_a_run_at_a_gate_is_shown_judged_and_taken_up_again(shell: Shell, folder: Path) -> None:
    shell.error(4, "run", str(folder / "gatedflow.py:Gated"), "-i", "x")
    session = only(shell)
    assert shell.json("ls", "--status", "waiting")["sessions"][0]["id"] == session.id
    text = shell("inbox")
    assert "verdict" in text and "tests" in text and "human:ana" in text
    (ask,) = shell.json("inbox")["waiting"]
    assert (ask["kind"], ask["name"], ask["by"], ask["of"]) == (
        "verdict",
        "tests",
        "human:ana",
        session.id,
    )

    said = shell("validate", session.short, "tests", "passed", "--as", "human:ben")
    assert (
        "in the inbox" in said
        and "it does not count: gate tests asks for the verdict of human:ana" in said
    )
    assert (
        shell.json("resume", "--due") == {"resumed": []}
        and len(shell.json("inbox")["waiting"]) == 1
    )
    shell("validate", session.short, "tests", "passed", "--as", "human:ana")
    assert shell.json("inbox")["waiting"] == []
    (resumed,) = shell.json("resume", "--due")["resumed"]
    assert resumed["status"] == "finished" and session.reload().text == "went on"


def test_a_verdict_that_does_not_count_says_so(shell: Shell) -> None:
    session = shell.new("x")
    shell("require", session, "tests", "--by", "human:ana")
    assert "it does not count" in shell("validate", session, "tests", "passed", "--as", "human:ben")
    assert "does not count: only that of human:ana does" in shell("show", session)
    assert "does not count" not in shell(
        "validate", session, "tests", "passed", "--as", "human:ana"
    )


def test_a_lost_call_is_resolved_with_a_value_of_its_type(shell: Shell, folder: Path) -> None:
    shell.error(130, "run", str(folder / "gatedflow.py:Counts"), "-i", "x")
    session = only(shell)
    shell.error(4, "resume", session.short)
    (ask,) = shell.json("inbox")["waiting"]
    assert ask["returns"] == {"type": "integer"} and '{"type": "integer"}' in shell("inbox")
    assert "not integer" in shell.error(
        2, "resolve", ask["id"][:12], "happened", "--value", "seven"
    )
    assert "--value 3" in shell.error(2, "resolve", ask["id"][:12], "happened")
    shell("resolve", ask["id"][:12], "happened", "--value", "7")
    assert json.loads(shell("resume", "--due", "--json"))["resumed"][0]["status"] == "finished"
    assert session.reload().facts["counted"] == 7
