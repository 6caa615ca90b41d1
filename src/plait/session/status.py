"""The status of a session as it is now: its events, the run that it belongs to, and the run's lock.

By its events, a run is open until it ends. At its tip a session tells more. It is `paused` if the
last pause was not lifted, in its log or in its inbox (`pauses.py`). Any other open run is
`running` while a process has its lock. Without a holder it is `waiting` if an ask is open in one of
its sessions, and `interrupted` if none is: its process died, or was stopped. A branch that was
forked in a run has the status of that run, until a run of its own begins on it. A session without
an open run is `interrupted`, too, if messages wait in its queue and no client attends to them.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec

from plait.errors import UnknownRows
from plait.ids import LogId, inbox_of
from plait.session.core import Core
from plait.session.life import STATUSES, Life, Status
from plait.session.listing import list_rows, session_row
from plait.session.pauses import life_with_word, words_in_inboxes
from plait.session.run_rows import INBOX, find_run_row
from plait.session.turn_rows import all_queued_turns
from plait.store import Row, Scalar, Store

# the words by events that stand for a status, besides the status itself
_RECORDED: Mapping[Status, tuple[Status, ...]] = {
    "running": ("open",),
    "interrupted": ("running", "open"),
    "waiting": ("running", "open"),
    "paused": ("running", "open"),
    "moved": ("running", "open", "waiting"),
    "finished": ("open", "waiting"),
    "failed": ("open", "waiting"),
    "cancelled": ("open", "waiting"),
}
_OVER: tuple[Status, ...] = ("closed", "archived", "moved")
_FIRM: tuple[Status, ...] = ("paused", *_OVER)
_AT_REST: tuple[Status, ...] = ("open", "failed", "cancelled", "finished")
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
    if recorded in _OVER or core.store.log(here.id).head != here.head:
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
        return "interrupted" if self.has_left_turns(row) else self._of_session(row)

    def _of_session(self, row: Row) -> Status:
        recorded = self._recorded_status(row)
        run = self._run(row["run"])
        if recorded in _FIRM or run is None:
            return recorded
        if run["log"] == row["log"] and recorded != "running":  # its own events say how it ended
            return recorded
        if recorded == "waiting" and self._has_open_asks(row):
            return recorded
        return self.of_run(run)

    def has_left_turns(self, row: Row) -> bool:
        """True if no run is open in a session, and messages wait in its queue to which no client
        attends.
        """
        turns = self._queues.get(inbox_of(LogId(str(row["log"]))), ()) if self._queues else ()
        if not turns or self._of_session(row) not in _AT_REST:
            return False
        return not any(self._store.is_locked(str(turn["client"])) for turn in turns)

    def queued_count(self, row: Row) -> int:
        """Return how many turns wait in a session for a run, from its row."""
        queues = self._queues
        return len(queues.get(inbox_of(LogId(str(row["log"]))), ())) if queues else 0

    def left_logs(self) -> list[LogId]:
        """Return the sessions in which messages may wait that no client attends to."""
        turns = [turn for queue in self._queues.values() for turn in queue]
        return [LogId(str(log)) for log in dict.fromkeys(turn["log"] for turn in turns) if log]

    def _recorded_status(self, row: Row) -> Status:
        """Return the status of a session by its events and the word in its inbox."""
        log = LogId(str(row["log"]))
        word = self.words.get(inbox_of(log)) if self.words else None
        if word is None:
            return _as_status(row["status"])
        life = msgspec.json.decode(str(row["life"]), type=Life)
        return life_with_word(self._store, log, life, word).status

    @cached_property
    def words(self) -> Mapping[str, Row]:
        """The last words about pauses that stand in inboxes."""
        return words_in_inboxes(self._store)

    @cached_property
    def _queues(self) -> Mapping[str, list[Row]]:
        """The turns that wait, by inbox."""
        found = defaultdict[str, list[Row]](list)
        try:
            for turn in all_queued_turns(self._store):
                found[str(turn["inbox"])].append(turn)
        except UnknownRows:
            pass
        return dict(found)

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
        recorded = self._recorded_status(root[0]) if root else "running"
        if recorded in ("paused", "waiting", "moved"):
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


def rows_with_status(
    store: Store,
    status: Status,
    where: Mapping[str, Scalar],
    tags: Mapping[str, str] | None = None,
    before: LogId | None = None,
) -> Iterator[Row]:
    """Yield the rows of sessions that have this status now, latest opened first."""
    reader = StatusReader(store)
    left = _left_rows(reader, store, where, tags, before) if status == "interrupted" else {}
    # a word in an inbox may pause a session of any status, or lift the pause on record
    recorded = STATUSES if reader.words else (status, *_RECORDED.get(status, ()))
    streams = [
        list_rows(store, {**where, "status": word}, tags, before, _PAGE)
        for word in recorded
        if word not in _NEVER_RECORDED
    ]
    streams.append(iter(sorted(left.values(), key=_number_of, reverse=True)))
    last: object = None
    for row in heapq.merge(*streams, key=_number_of, reverse=True):
        if row["log"] == last:  # it is in two of them
            continue
        last = row["log"]
        # as most open sessions: no run has a part in them
        is_fresh = row["status"] == "open" and row["run"] is None and last not in left
        if (status == "open" or not is_fresh) and reader.of_session(row) == status:
            yield row


def _left_rows(
    reader: StatusReader,
    store: Store,
    where: Mapping[str, Scalar],
    tags: Mapping[str, str] | None,
    before: LogId | None,
) -> dict[object, Row]:
    """Return the rows of sessions in which messages wait, whatever their recorded status is."""
    found = [
        row
        for log in reader.left_logs()
        for row in list_rows(store, {**where, "log": log}, tags, before, 1)
        if row["log"] == log
    ]
    return {row["log"]: row for row in found}


def interrupted_runs(store: Store) -> Iterator[Row]:
    """Yield the rows of runs that are open and held by no process, the oldest first."""
    reader, after = StatusReader(store), None
    while page := store.rows(
        INBOX, "run", {"status": "open"}, order="number", before=after, limit=_PAGE
    ):
        yield from [run for run in page if reader.of_run(run) == "interrupted"]
        after = page[-1]["number"]


def sessions_with_left_turns(store: Store) -> list[LogId]:
    """Return the sessions without an open run in which messages wait that no client attends to."""
    reader = StatusReader(store)
    rows = [session_row(store, log) for log in reader.left_logs()]
    return [LogId(str(row["log"])) for row in rows if row and reader.has_left_turns(row)]


def has_left_turns(store: Store, log: LogId) -> bool:
    """True if no run is open in a session, and messages wait in its queue to which no client
    attends.
    """
    try:
        row = session_row(store, log)
    except UnknownRows:
        return False
    return bool(row) and StatusReader(store).has_left_turns(row)


def _number_of(row: Row) -> int:
    return int(str(row["number"]))


def _as_status(word: object) -> Status:
    return msgspec.convert(word, Status)
