"""Forty-eight agents over twelve sessions, two scopes and two indexes, killed twice."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from plait import Session, Store, open_store, replay
from plait.event.kinds import MemoryProposed, MemoryRecalled, ModelReplied
from plait.memory.plain_index import PlainIndex
from plait.session import verify
from plait.session.value import open_run_of
from tests.memory.crowd import AGENTS, SESSIONS, Desk
from tests.support import ForkedProgram, bodies, child_environment, module_command


def run_until(store: Store, folder: Path, number: int | None) -> None:
    """Let the program work; with a number, kill it once the store has so many events."""
    command = module_command("tests.memory.crowd", str(folder))
    child = ForkedProgram(command, env=child_environment(), stderr=subprocess.PIPE)
    while number is not None and child.poll() is None and store.number < number:
        time.sleep(0.002)
    if number is not None:
        child.kill()
    _, errors = child.communicate(timeout=120)
    assert number is not None or child.returncode == 0, errors.decode()


def refused_search(*given: object, **more: object) -> None:
    raise AssertionError("a replay makes no search")


def test_every_read_and_token_of_a_crowd_is_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / ".plait")
    for number in (60, 190, None):
        run_until(store, tmp_path, number)
    sessions = Session.list(store=store, limit=99)
    assert len(sessions) == SESSIONS
    for session in sessions:
        assert open_run_of(session) is None and session.text.endswith("is done.")
        assert len(bodies(session, MemoryRecalled)) == AGENTS
        assert len(bodies(session, MemoryProposed)) == AGENTS
        replies = bodies(session, ModelReplied)
        assert len(replies) == 2 * AGENTS
        used = session.budget.usage
        assert used.input_tokens == 100 * len(replies) and used.output_tokens == 10 * len(replies)
        desk = Desk(str(tmp_path), int(session.title.removeprefix("desk ")))
        with monkeypatch.context() as patch:
            patch.setattr(type(store), "search", refused_search)
            patch.setattr(PlainIndex, "search", refused_search)
            assert replay(session, desk).head == session.head
    assert list(verify(store, state=True)) == []
    store.close()
    loaded = "import sys, plait; assert 'numpy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", loaded]).returncode == 0
