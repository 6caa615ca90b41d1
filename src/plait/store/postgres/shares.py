"""An act over several logs, as what it brings to each of them, and where that may stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from plait.errors import (
    EventsLost,
    InvalidValue,
    LogExists,
    PlaitError,
    StaleHead,
    TooLarge,
    UnknownLog,
)
from plait.event import Event
from plait.ids import Digest, LogId
from plait.store.base import LogAppend
from plait.store.postgres.core import EVENTS_MAX
from plait.store.postgres.statements import Places
from plait.store.prepare import Prepared


class LockedLog(NamedTuple):
    """A log as it stands, locked by this transaction."""

    key: int
    head: Digest
    tip: int
    epoch: int


class KeptEvent(NamedTuple):
    """An event that was acknowledged, and how many connections had broken when it was last seen."""

    seq: int
    id: Digest
    losses: int


class LogShare(NamedTuple):
    """The part of an act that goes to one log: the events of all its parts there."""

    log: LogId
    events: Sequence[Event]
    after: Digest | None  # None: they begin a root
    places: Places  # of the events in the act


def shares_of(parts: Sequence[LogAppend]) -> list[LogShare]:
    """Return what the parts of an act bring to each log: one statement writes it."""
    events: dict[LogId, list[Event]] = {}
    places: dict[LogId, list[int]] = {}
    count = 0
    for part in parts:
        events.setdefault(part.log, []).extend(part.events)
        places.setdefault(part.log, []).extend(range(count, count + len(part.events)))
        count += len(part.events)
    afters = {part.log: part.after for part in reversed(parts)}
    return [
        LogShare(log, some, afters[log], at[0] if at[-1] - at[0] < len(at) else at)
        for (log, some), at in zip(events.items(), places.values(), strict=True)
    ]


def check_free(part: LogShare, found: LockedLog | None) -> None:
    """Raise unless a log still ends, or is still missing, where the part of an act says."""
    if part.after is None:
        if found is not None:
            raise LogExists(part.log)
    elif found is None:
        raise UnknownLog(part.log)
    elif found.head != part.after:
        raise _stale_head(part.log, part.after, part.events[0].seq - 1, found.head, found.tip)


def _stale_head(log: LogId, after: Digest, seq: int, head: str, tip: int) -> PlaitError:
    """Return the error for an append after an event that is not the head. `seq` is that event's."""
    return EventsLost(log, seq, tip) if seq > tip else StaleHead(log, after, head, tip)


def check_count(events: int) -> None:
    if events > EVENTS_MAX:
        raise TooLarge("the events of one act", events, EVENTS_MAX)


def check_head(log: LogId, after: Digest, prepared: Prepared, head: bytes, tip: int) -> None:
    """Raise unless the head is the one that events come after, and they follow its seq."""
    if head.hex() != after:
        raise _stale_head(log, after, prepared.first.seq - 1, head.hex(), tip)
    if prepared.first.seq != tip + 1:
        raise InvalidValue(
            "seq",
            f"event {prepared.last.seq} does not follow place {tip}",
            "seal it at the next place",
        )
