"""Hints of the shell where people would otherwise have to guess."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait import Agent, Session, Workflow
from plait.event.kinds import File, Price, Text, Usage
from plait.model.base import OnDelta, Reply, Request
from plait.session.ports import store_at
from tests.cli.shell import Shell, on_a_terminal, shell

__all__ = ["shell"]

PROGRAM = """
from datetime import date
from pathlib import Path
from plait import Agent, ScriptedModel, Workflow, tool

HERE = Path(__file__).parent


def stop_once():
    if not (HERE / "tried").exists():
        (HERE / "tried").write_text("")
        raise KeyboardInterrupt


@tool
def content() -> bytes:
    stop_once()
    return b"?"


@tool
def day() -> date:
    stop_once()
    return date(2026, 1, 1)


class Reads(Workflow):
    def forward(self, session):
        return session.use(content)


class Looks(Workflow):
    def forward(self, session):
        return session.use(day)


class Gated(Workflow):
    def __init__(self):
        self.worker = Agent("Go on.", model=ScriptedModel(["went on"]))

    def forward(self, session):
        return self.worker(session.checks.require("tests", by="human:ana"))
"""


@pytest.fixture
def folder(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "wordflow.py").write_text(PROGRAM)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("wordflow", None)


def lost(shell: Shell, folder: Path, name: str) -> tuple[Session, str]:
    shell.error(130, "run", str(folder / f"wordflow.py:{name}"), "-i", "x")
    session = shell.open(shell.json("ls")["sessions"][0]["id"])
    shell.error(4, "resume", session.short)
    (ask,) = shell.json("inbox")["waiting"]
    return session, ask["id"][:12]


def test_bytes_are_resolved_as_base64(shell: Shell, folder: Path) -> None:
    session, ask = lost(shell, folder, "Reads")
    for wrong in ("not base64!", "7", '{"a": 1}', "null"):
        assert "Nothing was written" in shell.error(2, "resolve", ask, "happened", "--value", wrong)
    shell("resolve", ask, "happened", "--value", "aGVsbG8=")
    shell("resume", "--due")
    (effect,) = session.reload().effects
    assert (
        isinstance(effect.result, File)
        and store_at(session.store).get_blob(effect.result.blob) == b"hello"
    )


def test_a_date_is_resolved_as_one(shell: Shell, folder: Path) -> None:
    session, ask = lost(shell, folder, "Looks")
    assert "'tomorrow' is not a date" in shell.error(
        2, "resolve", ask, "happened", "--value", "tomorrow"
    )
    shell("resolve", ask, "happened", "--value", "2026-01-02")
    shell("resume", "--due")
    assert session.reload().effects[0].result == "2026-01-02"


def test_a_failed_verdict_is_shown_where_the_run_waits(shell: Shell, folder: Path) -> None:
    shell.error(4, "run", str(folder / "wordflow.py:Gated"), "-i", "x")
    session = shell.open(shell.json("ls")["sessions"][0]["id"])
    assert "failed" not in shell("inbox")
    shell("validate", session.short, "tests", "failed", "--as", "human:ben")
    assert "failed" not in shell("inbox")  # it does not count
    shell("validate", session.short, "tests", "failed", "--as", "human:ana")
    assert "by human:ana: tests failed" in shell("inbox")
    assert shell.json("inbox")["waiting"][0]["failed"]["actor"] == "human:ana"
    assert "it failed, by human:ana" in shell.error(4, "resume", session.short)
    assert "by human:ana: tests failed" in shell("inbox")


def test_resume_due_says_that_nothing_is(shell: Shell) -> None:
    shell.new("x")
    assert shell("resume", "--due") == "nothing is due\n"


class Priced:
    """Says what it costs in every second ask."""

    name = "half-priced"

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        self.asked += 1
        price = Price(1_000_000, "here") if self.asked % 2 else None
        return Reply((Text("x"),), usage=Usage(1_234_567, 234_567), price=price)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_costs_by_run_say_what_has_no_price(shell: Shell, width: int) -> None:
    agent = Agent("x", model=Priced())

    class Twice(Workflow):
        def forward(self, session: Session) -> Session:
            agent(agent(session.fork("lost")))
            return agent(agent(session))

    Twice()(Session("go", store=shell.address))
    said = on_a_terminal(
        "cost", "--by", "run", "--store", shell.address, width=width, NO_COLOR="1"
    ).splitlines()
    assert [line for line in said if "not merged" in line] and all(
        "unpriced" in line for line in said[1:] if line.strip()
    )
    assert max(map(len, said)) <= width
