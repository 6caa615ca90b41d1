"""The end of each log of a run, and how far its inbox was delivered, as this process knows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from threading import Lock

from plait.event import Event
from plait.ids import LogId
from plait.session import Session
from plait.session.ports import Position
from plait.session.value import delivered_seq

REMEMBERED = 64  # events of a log, so that a prompt need not read them back


class Tips:
    """The last position of each log, and its last events."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._positions: dict[LogId, Position] = {}
        self._events: dict[LogId, deque[Event]] = {}

    def __contains__(self, log: LogId) -> bool:
        return log in self._positions

    def __getitem__(self, log: LogId) -> Position:
        return self._positions[log]

    def get(self, log: LogId) -> Position | None:
        return self._positions.get(log)

    def is_tip(self, position: Position) -> bool:
        """True for the last position of its log that the run has made."""
        at = self._positions.get(position.id)
        return at is not None and (at.seq, at.head) == (position.seq, position.head)

    def move(self, position: Position, events: Sequence[Event] = ()) -> None:
        """Move the tip of a log, past these events."""
        with self._lock:
            self._positions[position.id] = position
            if events:
                known = self._events.get(position.id)
                if known is None:
                    known = self._events[position.id] = deque(maxlen=REMEMBERED)
                known.extend(events)

    def events_between(self, log: LogId, first: int, last: int) -> list[Event] | None:
        """Return the events of a log from first to last; None unless all of them are remembered."""
        wanted = last - first + 1
        with self._lock:
            known = self._events.get(log)
            if not known or wanted < 1 or known[-1].seq < last:
                return [] if wanted < 1 else None
            found = list(islice(reversed(known), known[-1].seq - last, known[-1].seq - first + 1))
        # A seq only grows, so as many events as there are between these two are all of them.
        is_whole = len(found) == wanted and (found[0].seq, found[-1].seq) == (last, first)
        return found[::-1] if is_whole else None


class Deliveries:
    """The seq up to which the inbox of each log was delivered."""

    def __init__(self) -> None:
        self._seqs: dict[LogId, int] = {}

    def seq(self, session: Session) -> int:
        if session.id not in self._seqs:
            self._seqs[session.id] = delivered_seq(session)
        return self._seqs[session.id]

    def advance(self, log: LogId, seq: int) -> None:
        self._seqs[log] = max(seq, self._seqs.get(log, 0))
