"""Turns by processes that code of a run starts: on the session of that run they would wait for it,
and it for them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from plait import Session, Workflow, open_store
from tests.support import said_texts

TURN = """
import sys
from plait import Agent, ScriptedModel, Session
from plait.errors import InvalidValue

chat = Agent("Repeat.", model=ScriptedModel(lambda at: f"ok {at.messages[-1].text}"))
for log in sys.argv[2:]:
    try:
        print(Session.open(log, store=sys.argv[1]).turn("from outside", chat).text)
    except InvalidValue as error:
        print(error)
"""


def take_turns(session: Session, *logs: str) -> str:
    """Take turns in another process, and return what it prints."""
    command = [sys.executable, "-c", TURN, session.store, *logs]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


class Starter(Workflow):
    """Lets a process take turns on its own session and on another one."""

    def __init__(self, other: Session, *, in_thread: bool, outer: Session | None = None) -> None:
        self._other, self._in_thread = other, in_thread
        self._outer = outer  # the session of the run that starts this one; None: no run does
        self.heard: list[str] = []

    def forward(self, session: Session) -> Session:
        logs = [str((self._outer or session).id), str(self._other.id)]
        if not self._in_thread:
            self.heard += take_turns(session, *logs).splitlines()
            return session
        thread = Thread(target=lambda: self.heard.extend(take_turns(session, *logs).splitlines()))
        thread.start()
        thread.join()
        return session


class Outer(Workflow):
    """Runs a workflow on a session of its own."""

    def __init__(self, other: Session) -> None:
        self._other = other
        self.heard: list[str] = []

    def forward(self, session: Session) -> Session:
        inner = Starter(self._other, in_thread=False, outer=session)
        inner(Session("inner", store=open_store(session.store)))
        self.heard = inner.heard
        return session


@pytest.mark.parametrize("way", ["forward", "thread", "inner run"])
def test_a_process_of_a_run_takes_no_turn_on_its_session(tmp_path: Path, way: str) -> None:
    store = open_store(tmp_path / "store")
    session, other = Session("go", store=store), Session("another", store=store)
    made = Outer(other) if way == "inner run" else Starter(other, in_thread=way == "thread")
    after = made(session)
    own, answer = made.heard
    assert "code of its open run started this process" in own and "workflow(session)" in own
    assert answer == "ok from outside", "a session of another run takes turns"
    assert said_texts(after) == ["go"]
    assert take_turns(session, session.id) == "ok from outside\n", "the run is over"
