"""What the shell says where people would otherwise have to guess."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait import Session
from plait.event.kinds import File
from plait.session.ports import store_at
from tests.cli.shell import Shell, shell

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
    assert isinstance(effect.result, File) and store_at(session.store).get_blob(effect.result.blob) == b"hello"


def test_a_date_is_resolved_as_one(shell: Shell, folder: Path) -> None:
    session, ask = lost(shell, folder, "Looks")
    assert "'tomorrow' is not a date" in shell.error(2, "resolve", ask, "happened", "--value", "tomorrow")
    shell("resolve", ask, "happened", "--value", "2026-01-02")
    shell("resume", "--due")
    assert session.reload().effects[0].result == "2026-01-02"
