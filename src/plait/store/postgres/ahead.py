"""Events that were read ahead: a verb that reads one log again and again asks the server once.

Events never change, so a window of them stays right however long it is open. It belongs to the code
that opened it, and every thread may read through it. The end of a log is not part of a window: a
read up to the end asks the server.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence

from plait.event import Event
from plait.ids import LogId

_MORE_MAX = 16  # events of later appends that a window takes in: it must not grow with a long run

Snapshot = tuple[LogId, int, bytes]


class EventWindow:
    """The events of the lineage of a log, from one seq to another."""

    def __init__(self, log: LogId, first: int, events: Sequence[Event]) -> None:
        self.log, self._first = log, first
        self._events = list(events)
        self._size_max = len(events) + _MORE_MAX
        # The answer about the nearest snapshot, and the place it was asked for.
        self.snapshot: tuple[int, Snapshot | None] | None = None

    def has(self, first: int, last: int) -> bool:
        return self._first <= first and last < self._first + len(self._events)

    def select(
        self, first: int, last: int, kinds: Collection[str] | None, reverse: bool
    ) -> Iterator[Event]:
        """Return the events of these kinds from one seq to another, all of which it has."""
        events = self._events[first - self._first : last - self._first + 1]
        if reverse:
            events.reverse()
        return iter(events if kinds is None else [each for each in events if each.kind in kinds])

    def extend(self, events: Sequence[Event]) -> None:
        """Take in events that were appended right after those that it has."""
        is_next = events[0].seq == self._first + len(self._events)
        if is_next and len(self._events) + len(events) <= self._size_max:
            self._events += events


class EventWindows:
    """The windows that are open in this process, of one store."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open: tuple[EventWindow, ...] = ()

    def add(self, window: EventWindow) -> None:
        with self._guard:
            self._open = (*self._open, window)

    def remove(self, window: EventWindow) -> None:
        with self._guard:
            self._open = tuple([each for each in self._open if each is not window])

    def of_log(self, log: LogId) -> list[EventWindow]:
        return [window for window in self._open if window.log == log]

    def find(self, log: LogId, first: int, last: int) -> EventWindow | None:
        """Return a window with these events. None: the server has to be asked."""
        found = (window for window in self._open if window.log == log and window.has(first, last))
        return next(found, None)

    def extend(self, log: LogId, events: Sequence[Event]) -> None:
        """Tell the windows of a log what was appended to it."""
        if not self._open:
            return
        with self._guard:
            for window in self._open:
                if window.log == log:
                    window.extend(events)

    def forget_snapshots(self) -> None:
        """Have the next question about a snapshot asked: one was kept, or dropped."""
        for window in self._open:
            window.snapshot = None
