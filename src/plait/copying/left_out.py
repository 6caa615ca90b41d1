"""The logs that a copy leaves out: those with a fault, and all that rest on what they lack.

An event must not arrive before those that it rests on. So with a log that cannot be copied, others
stay behind: those with an event that names one of its events which the target does not have. A
session and its inbox stay together, a branch of a run and the log that it was forked from, and a
house log and the sessions that it decides about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from plait.errors import LogsDiffer, PlaitError
from plait.event import Event
from plait.event.kinds import Merged, RunBranched, SessionOpened
from plait.ids import Digest, LogId, inbox_of
from plait.session.house import Houses
from plait.session.run_branches import is_of_run
from plait.store import Log, Store

_PREFIX = 16  # digits: as much of an id as every store has in its index


def logs_left_out(
    source: Store,
    logs: Mapping[LogId, Log],
    there: Mapping[LogId, int],
    faults: Mapping[LogId, PlaitError],
) -> dict[LogId, PlaitError]:
    """Return the logs that cannot be copied, each with the fault that is the reason.

    `there`: the last seq of each log that the target has.
    """
    return _Spread(source, logs, there).spread(faults) if faults else {}


class _Spread:
    """Follows what rests on events that will not be there."""

    def __init__(
        self, source: Store, logs: Mapping[LogId, Log], there: Mapping[LogId, int]
    ) -> None:
        self._source, self._logs, self._there = source, logs, there
        self._inboxes = {inbox_of(log): log for log in logs}
        self._houses = frozenset(Houses(source)) & logs.keys()
        # the beginnings of the ids of events that the target will not have
        self._lacking = set[str]()
        self.left: dict[LogId, PlaitError] = {}

    def spread(self, faults: Mapping[LogId, PlaitError]) -> dict[LogId, PlaitError]:
        for log, fault in faults.items():
            self._leave(log, fault)
        count = 0
        while count != len(self.left):  # what was left out last may be named by others
            count = len(self.left)
            for log in self._logs:
                if log not in self.left and (fault := self._fault_of(log)) is not None:
                    self._leave(log, fault)
        return self.left

    def _leave(self, log: LogId, fault: PlaitError) -> None:
        """Leave out a log, and those that stay with it."""
        logs = [log]
        while logs:
            log = logs.pop()
            if log in self.left or log not in self._logs:
                continue
            self.left[log] = fault
            last = self._last_there(log, fault)
            for record in self._source.records(log):  # also those that are damaged
                if record.seq > last:
                    self._lacking.add(record.id[:_PREFIX])
            logs += self._together(log)

    def _together(self, log: LogId) -> Iterator[LogId]:
        yield inbox_of(log)
        if log in self._inboxes:
            yield self._inboxes[log]
        parent = self._logs[log].parent
        if parent is not None and is_of_run(self._source, log):
            yield parent
        if log in self._houses:
            for event in self._source.read(log):
                yield from self._logs_of(event.header.causes)

    def _logs_of(self, ids: Iterable[Digest]) -> Iterator[LogId]:
        for id in ids:
            with suppress(PlaitError):  # a cause may stand in another store, or be damaged
                yield self._source.event(id).log

    def _last_there(self, log: LogId, fault: PlaitError) -> int:
        """Return the last seq of a log at which the target has the same event."""
        if isinstance(fault, LogsDiffer) and fault.log == log:
            return fault.seq - 1
        return self._there.get(log, self._logs[log].place)

    def _readable(self, log: LogId, first: int) -> Iterator[Event]:
        """Yield a log's own events from a seq on, up to one that is damaged."""
        try:
            yield from self._source.read(log, max(first, self._logs[log].place + 1))
        except PlaitError:
            return

    def _fault_of(self, log: LogId) -> PlaitError | None:
        """Return the fault of what a log rests on. None: the target has it, or will."""
        for event in self._readable(log, self._there.get(log, 0) + 1):
            for id in _names_of(event):
                if id[:_PREFIX] in self._lacking:
                    owner = next(self._logs_of([id]), None)
                    first = next(iter(self.left.values()))
                    return self.left.get(owner, first) if owner is not None else first
        return None


def _names_of(event: Event) -> Iterator[Digest]:
    """Yield the ids of events that an event rests on."""
    yield from event.header.parents
    yield from event.header.causes
    body = event.body
    if isinstance(body, SessionOpened) and body.continues is not None:
        yield body.continues.head
    elif isinstance(body, RunBranched):
        yield body.source.head
    elif isinstance(body, Merged) and body.base is not None:
        yield body.base.head
