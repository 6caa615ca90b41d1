"""The logs that go together, and how far the other store has them.

An event is committed after those that it rests on, in every store. So a log is copied with the logs
that its events rest on: its ancestors, merged branches, predecessors, and the logs of causes. Its
inbox and the branches of its runs go with it, since its runs go on from them; so does a house log
with decisions about it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from plait.copying.left_out import logs_left_out
from plait.errors import (
    CommitmentBroken,
    LogsDiffer,
    PlaitError,
    StillArriving,
    StoreCorrupt,
    UnknownEvent,
)
from plait.event import Event
from plait.event.kinds import Merged, RunBranched, SessionOpened
from plait.ids import Digest, LogId, inbox_of, short
from plait.session.copy_rows import arriving_logs
from plait.session.house import Houses
from plait.session.run_branches import is_of_run
from plait.store import Log, Store, verify_log

PAGE = 500  # logs that are looked up at once
_ALL = 2**31


class CopyPlan(NamedTuple):
    """The logs to be copied, each with the seq up to which the other store has it."""

    logs: dict[LogId, Log]  # as they are in the source
    there: dict[LogId, int]  # 0, or the fork place: nothing of its own is there
    left: dict[LogId, PlaitError]  # logs that cannot be copied, each with the reason
    is_whole: bool  # True: these are all logs of the source

    @property
    def new(self) -> list[LogId]:
        """The logs with events that the other store does not have."""
        return [log for log, info in self.logs.items() if self.there[log] < info.tip]

    @property
    def events(self) -> int:
        """The number of events that the other store does not have."""
        return sum(max(0, info.tip - self.there[log]) for log, info in self.logs.items())

    @property
    def events_there(self) -> int:
        return sum(min(self.there[log], info.tip) - info.place for log, info in self.logs.items())


def plan_copy(
    source: Store,
    target: Store | None,
    sessions: Collection[LogId] | None,
    held: Mapping[LogId, PlaitError] = MappingProxyType({}),
) -> CopyPlan:
    """Return the plan of a copy of these sessions; None: of all. `target` None: an empty store.

    Logs with a fault are left out, with all that rests on them: StoreCorrupt for one that is
    damaged, LogsDiffer for one that the target has with other events, StillArriving for one that is
    not whole in the source; and those that are `held`.
    """
    ids = list(_all_logs(source)) if sessions is None else _logs_together(source, sessions)
    every, there = dict(heads_of(source, ids)), dict[LogId, int]()
    faults = {log: fault for log, fault in held.items() if log in every}
    for log, address in arriving_logs(source).items():
        if log in every:
            faults[log] = StillArriving(short(log), address, source.address)
    known = dict(heads_of(target, ids)) if target is not None else {}
    for log, info in every.items():
        other = known.get(log)
        try:
            there[log] = info.place if other is None else _common_end(source, target, info, other)
            if there[log] < info.tip and (fault := verify_log(source, log)) is not None:
                what = f"{source.address}, log {log}@{fault.seq}"
                faults[log] = StoreCorrupt(what, fault.what)
        except (LogsDiffer, StoreCorrupt, CommitmentBroken) as error:
            there[log] = error.seq - 1 if isinstance(error, LogsDiffer) else info.place
            faults[log] = error
    left = logs_left_out(source, every, there, faults)
    logs = {log: info for log, info in every.items() if log not in left}
    return CopyPlan(logs, there, left, sessions is None and not left)


def heads_of(store: Store, logs: Sequence[LogId]) -> Iterator[tuple[LogId, Log]]:
    """Yield many logs as they are now, without those that are unknown."""
    for first in range(0, len(logs), PAGE):
        yield from store.heads(logs[first : first + PAGE]).items()


def _all_logs(store: Store) -> Iterator[LogId]:
    own = store.log(Houses(store).own)
    if own.tip > 1:  # people have acted
        yield own.id
    before = None
    while page := store.logs(before=before, limit=PAGE):
        yield from [log.id for _, log in page]
        before = page[-1][0]


def _common_end(source: Store, target: Store | None, ours: Log, theirs: Log) -> int:
    """Return the last seq of a log that both stores have; raise if they differ up to there."""
    assert target is not None
    last = min(ours.tip, theirs.tip)
    if id_at(source, ours, last) == id_at(target, theirs, last):
        return theirs.tip
    first = min(ours.place, theirs.place) + 1
    while first < last:  # each id commits to all events before it
        middle = (first + last) // 2
        if id_at(source, ours, middle) == id_at(target, theirs, middle):
            first = middle + 1
        else:
            last = middle
    raise LogsDiffer(ours.id, last, source.address, target.address)


def id_at(store: Store, log: Log, seq: int) -> Digest | None:
    """Return the id of an event of a log. None: it is not there."""
    if seq == log.tip:
        return log.head
    event = next(store.read(log.id, seq, seq), None)
    return event.id if event is not None else None


# ── logs that go together ────────────────────────────────────────────────────────────────────


def _logs_together(store: Store, sessions: Iterable[LogId]) -> list[LogId]:
    """Return these logs and all that have to go with them."""
    walk = _Walk(store)
    walk.add(sessions)
    houses = [house for house in Houses(store) if house not in walk.logs]
    # a decision about a session counts, wherever it is read: its house log goes along
    while found := [house for house in houses if walk.is_decided_in(house)]:
        walk.add(found)
        houses = [house for house in houses if house not in walk.logs]
    return list(walk.logs)


class _Walk:
    """Collects logs, and those that their events rest on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.logs: dict[LogId, None] = {}
        self._sessions: dict[LogId, LogId] | None = None  # by inbox

    def add(self, logs: Iterable[LogId]) -> None:
        queue = list(logs)
        while queue:
            log = queue.pop()
            if log not in self.logs:
                self.logs[log] = None
                queue += self._next_to(log)

    def is_decided_in(self, house: LogId) -> bool:
        events = self._store.read(house)
        return any(self._log_of(cause) in self.logs for e in events for cause in e.header.causes)

    def _next_to(self, log: LogId) -> Iterator[LogId]:
        store, info = self._store, self._store.log(log)
        if info.parent is not None:
            yield info.parent
        yield from store.heads([inbox_of(log)])
        if (session := self._session_of(log)) is not None:
            yield session
        for row in store.rows("session", "session", {"parent": log}, limit=_ALL):
            if is_of_run(store, branch := LogId(str(row["log"]))):
                yield branch
        own = set[Digest]()
        for event in store.read(log, info.place + 1, info.tip):
            own.add(event.id)
            yield from _logs_named_in(event)
            for id in (*event.header.parents[1:], *event.header.causes):
                if id not in own and (found := self._log_of(id)) is not None:
                    yield found

    def _log_of(self, id: Digest) -> LogId | None:
        try:
            return self._store.event(id).log
        except UnknownEvent:  # a cause may stand in another store
            return None

    def _session_of(self, inbox: LogId) -> LogId | None:
        """Return the session that a log is the inbox of. None: it is no inbox."""
        if self._sessions is None:
            self._sessions = {inbox_of(log): log for log in _all_logs(self._store)}
        return self._sessions.get(inbox)


def _logs_named_in(event: Event) -> Iterator[LogId]:
    body = event.body
    if isinstance(body, SessionOpened) and body.continues is not None:
        yield body.continues.log
    elif isinstance(body, RunBranched):
        yield body.source.log
    elif isinstance(body, Merged) and body.base is not None:
        yield body.base.log
