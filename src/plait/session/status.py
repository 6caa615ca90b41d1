"""The status of a session as it is now: its events, the run that it belongs to, and the run's lock.

By its events, a run is open until it ends. At its tip a session tells more. An open run is
`running` while a process has its lock. Without a holder it is `waiting` if an ask is open in one of
its sessions, and `interrupted` if none is: its process died, or was stopped. A branch that was
forked in a run has the status of that run, until a run of its own begins on it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

import msgspec

from plait.errors import UnknownRows
from plait.ids import LogId
from plait.session.core import Core
from plait.session.life import Status
from plait.session.listing import list_rows, session_row
from plait.session.run_rows import INBOX, find_run_row
from plait.store import Row, Scalar, Store

# the words by events that stand for a status, besides the status itself
_RECORDED: Mapping[Status, tuple[Status, ...]] = {
    "running": ("open",),
    "interrupted": ("running", "open"),
    "waiting": ("running", "open"),
    "paused": ("running", "open"),
    "finished": ("open", "waiting"),
    "failed": ("open", "waiting"),
    "cancelled": ("open", "waiting"),
}
_FIRM: tuple[Status, ...] = ("paused", "closed", "archived")
_NEVER_RECORDED: tuple[Status, ...] = ("interrupted",)
_PAGE = 200


def status_at(core: Core) -> Status:
    """Return the status of a session value.

    A value of a run reads the same when the run is resumed or replayed, so for it, and for every
    value that is not the latest, the events alone decide.
    """
    here, recorded = core.position, core.life.status
    if here.run is not None:
        return "running" if recorded == "open" else recorded
    if recorded in _FIRM or core.store.log(here.id).head != here.head:
        return recorded
    try:
        row = session_row(core.store, here.id)
    except UnknownRows:
        return recorded
    return StatusReader(core.store).of_session(row) if row else recorded


class StatusReader:
    """Reads the status of sessions and runs from their rows. Each run is looked up once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: dict[str, Row | None] = {}
        self._statuses: dict[str, Status] = {}

    def of_session(self, row: Row) -> Status:
        """Return the status of a session, as it is now, from its row."""
        recorded = recorded_status(row)
        run = self._run(row["run"])
        if recorded in _FIRM or run is None:
            return recorded
        if run["log"] == row["log"] and recorded != "running":  # its own events say how it ended
            return recorded
        if recorded == "waiting" and self._has_open_asks(row):
            return recorded
        return self.of_run(run)

    def of_run(self, run: Row) -> Status:
        """Return the status of a run, as it is now, from its row."""
        if run["status"] != "open":
            return _as_status(run["status"])
        id = str(run["run"])
        if id not in self._statuses:
            self._statuses[id] = self._of_open_run(run)
        return self._statuses[id]

    def _of_open_run(self, run: Row) -> Status:
        root = self._store.rows("session", "session", {"log": run["log"]}, limit=1)
        recorded = recorded_status(root[0]) if root else "running"
        if recorded in ("paused", "waiting"):
            return recorded
        if self._store.is_locked(str(run["run"])):
            return "running"
        return "interrupted" if run["asks"] == "[]" else "waiting"

    def _run(self, id: object) -> Row | None:
        if id is None:
            return None
        run = str(id)
        if run not in self._runs:
            self._runs[run] = find_run_row(self._store, run)
        return self._runs[run]

    def _has_open_asks(self, row: Row) -> bool:
        wanted = {"log": row["log"], "over": 0}
        return bool(self._store.rows(INBOX, "ask", wanted, limit=1))


def recorded_status(row: Row) -> Status:
    """Return the status of a session by its events alone, from its row."""
    return _as_status(row["status"])


def rows_with_status(
    store: Store,
    status: Status,
    where: Mapping[str, Scalar],
    tags: Mapping[str, str] | None = None,
    before: LogId | None = None,
) -> Iterator[Row]:
    """Yield the rows of sessions that have this status now, latest opened first."""
    reader = StatusReader(store)
    streams = [
        list_rows(store, {**where, "status": word}, tags, before, _PAGE)
        for word in (status, *_RECORDED.get(status, ()))
        if word not in _NEVER_RECORDED
    ]
    for row in heapq.merge(*streams, key=_number_of, reverse=True):
        # as most open sessions: no run has a part in them
        if row["status"] == "open" and row["run"] is None and status != "open":
            continue
        if reader.of_session(row) == status:
            yield row


def interrupted_runs(store: Store) -> Iterator[Row]:
    """Yield the rows of runs that are open and held by no process, the oldest first."""
    reader, after = StatusReader(store), None
    while page := store.rows(
        INBOX, "run", {"status": "open"}, order="number", before=after, limit=_PAGE
    ):
        yield from [run for run in page if reader.of_run(run) == "interrupted"]
        after = page[-1]["number"]


def _number_of(row: Row) -> int:
    return int(str(row["number"]))


def _as_status(word: object) -> Status:
    return msgspec.convert(word, Status)
