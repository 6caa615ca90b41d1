"""The standing of a session: its status, in the words that lists, the shell and the page show.

A session that waits may have its answer by now: a person answered, a signal came, its time is over.
It is `due` then. It goes on when a process resumes it, and until then it waits for nothing else.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from plait.errors import UnknownRows
from plait.ids import LogId
from plait.runtime.live import Live
from plait.session.inbox import due_roots, due_sessions
from plait.session.life import Status
from plait.session.status import StatusReader
from plait.store import Row, Store


class SessionStanding(NamedTuple):
    """The status of a session, and whether it could go on if it were resumed."""

    status: Status
    is_due: bool = False  # it waits, and its answer is there, or its time is over

    @property
    def text(self) -> str:
        return f"{self.status}, due" if self.is_due else self.status


class StandingReader:
    """Reads how sessions stand from their rows. What is due is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.statuses = StatusReader(store)

    def of_session(self, row: Row) -> SessionStanding:
        """Return how a session stands now, from its row."""
        return self.of_status(LogId(str(row["log"])), self.statuses.of_session(row))

    def of_status(self, log: LogId, status: Status) -> SessionStanding:
        """Return how a session stands that has this status now."""
        return SessionStanding(status, status == "waiting" and log in self._due)

    @cached_property
    def _due(self) -> frozenset[LogId]:
        """The logs that are due, and the sessions that their runs began on."""
        try:
            now = Live().now(LogId(""), 0)
            return frozenset([*due_sessions(self._store, now), *due_now(self._store)])
        except UnknownRows:
            return frozenset()


def due_now(store: Store) -> list[LogId]:
    """Return the sessions to resume now, so that those which have their answer go on."""
    return due_roots(store, Live().now(LogId(""), 0))
