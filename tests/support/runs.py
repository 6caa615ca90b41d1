"""Runs that wait, that are replayed, and whose clock is moved; and what their tools did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plait import Session, Workflow
from plait.event import kinds as k
from plait.ids import LogId, Micros
from plait.journal.stops import Parked
from plait.journal.writer import direct_writer
from plait.runs.replay import replay
from plait.runtime.live import Live

RAN: list[Any] = []
"""What the tools of a test did, in order; `tests/conftest.py` empties it before each test."""


def said_texts(session: Session) -> list[str]:
    """The texts of all messages of a session."""
    return [message.text for message in session.messages]


def parked_session(act: Callable[[], object]) -> Session:
    """The session of a run that parks when it is started or resumed."""
    with pytest.raises(Parked) as stop:
        act()
    return stop.value.session


def assert_replays(session: Session, workflow: Workflow) -> None:
    """Replay the run: it asks no person or model, runs no tool, and ends at the same head."""
    before = list(RAN)
    assert replay(session, workflow).head == session.head
    assert before == RAN


def ask_preview(ask: Any) -> Any:
    """Return the part of an ask that a person is shown."""
    return ask.shown


class Later(Live):
    """A clock that is so many seconds ahead."""

    def __init__(self, seconds: float) -> None:
        self._ahead = int(seconds * 1e6)

    def now(self, log: LogId, seq: int) -> Micros:
        return super().now(log, seq) + self._ahead


def set_clock_ahead(session: Session, seconds: float) -> None:
    """Let time pass in the session's store."""
    direct_writer().bind_source(session.store, Later(seconds))


def claims_of(session: Session) -> list[k.Claim]:
    """The claims of workers on the runs of a session, in their order."""
    bodies = [event.body for event in session.reload().events]
    return [body.claim for body in bodies if isinstance(body, k.RunResumed) and body.claim]
