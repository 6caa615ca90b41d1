"""Events of a log follow each other: checks that every store makes before it writes."""

from __future__ import annotations

from collections.abc import Sequence

from plait.errors import InvalidValue
from plait.event import Event, parse_event, seal_all
from plait.event.kinds import ForkedFrom, HouseOpened, SessionOpened
from plait.ids import Digest, LogId, Source, house_of, parse_digest, parse_log_id
from plait.store.base import LogAppend


def check_chain(
    log: LogId, events: Sequence[Event], after: Digest | None, *, begins: bool = False
) -> None:
    """Raise unless the events belong to this log and follow each other, the first after `after`."""
    if not isinstance(events, (list, tuple)) or not events:
        raise InvalidValue(
            "events", "there are none, or not in a list", "pass a list of sealed events"
        )
    seq, previous = 0, after
    for event in events:
        if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue(
                "events",
                f"a {type(event).__name__} is not a sealed event",
                "seal it with seal_all first",
            )
        if not event.checked:
            parse_event(event.raw, event.salt, event.content)
        for ref in event.refs:
            parse_digest(ref, "blob")
        header = event.header
        seq = seq or header.seq
        if header.kind == ForkedFrom.__name__ and not (begins and event is events[0]):
            raise InvalidValue(
                "events",
                "ForkedFrom can only be the first event of a fork",
                "begin a new log with it",
            )
        if header.log != log:
            raise InvalidValue(
                "log",
                f"event {header.seq} was sealed for log {header.log}, not {log}",
                "seal it for this log",
            )
        if header.seq != seq:
            raise InvalidValue(
                "seq",
                f"event {header.seq} stands where {seq} is due",
                "seal the events one after another",
            )
        if (header.parents[0] if header.parents else None) != previous:
            if not begins:
                parse_digest(previous, "after")
            raise InvalidValue(
                "parents",
                f"event {header.seq} does not follow {previous}",
                "seal it after the head you append to",
            )
        seq, previous = seq + 1, event.id


def first_parent(events: Sequence[Event]) -> Digest | None:
    """Return the id that a log's first event follows: None in a root, the fork point in a fork."""
    first = next(iter(events), None)
    return first.header.parents[0] if isinstance(first, Event) and first.header.parents else None


def check_fork(first: Event, parent: LogId | None, point: Event | None) -> None:
    """Raise unless a log's first event is at 1 in a root, right after the fork point in a child."""
    if parent is None:
        if first.seq != 1 or first.header.parents:
            raise InvalidValue(
                "seq",
                f"a root begins at 1 without parents, not at {first.seq}",
                "name the parent if it is a fork",
            )
        if first.kind == ForkedFrom.__name__:
            raise InvalidValue(
                "parent",
                "the first event says it is a fork, but no parent is given",
                "name the parent",
            )
        return
    step = (
        "seal ForkedFrom(parent, place) at place + 1, with the id of the event at that place as its"
        " parent"
    )
    if point is None:
        raise InvalidValue("place", f"{parent} has no event {first.seq - 1}", step)
    if first.header.parents[:1] != (point.id,):
        raise InvalidValue(
            "parents",
            f"the first event does not name event {point.seq} of {parent} as its parent",
            step,
        )
    body = first.body
    if not isinstance(body, ForkedFrom) or (body.parent, body.place) != (parent, point.seq):
        raise InvalidValue(
            "events",
            f"the first event does not say that it was forked from {parent}@{point.seq}",
            step,
        )


def is_async(first: Event) -> bool:
    """True if a root that begins with this event is written without an fsync for every append."""
    if first.kind != SessionOpened.__name__:
        return False
    body = first.body
    return isinstance(body, SessionOpened) and body.durability == "async"


def check_parts(parts: Sequence[LogAppend]) -> None:
    """Raise unless these can be the parts of one act: two of one log follow each other."""
    if not parts:
        raise InvalidValue("parts", "there are none", "pass at least one")
    ends: dict[LogId, Event] = {}
    for part in parts:
        parse_log_id(part.log)
        begins, before = part.after is None, ends.get(part.log)
        if before is not None and part.after != before.id:
            raise InvalidValue(
                "parts",
                f"two of log {part.log} do not follow each other",
                "let the second one come after the last event of the first",
            )
        check_chain(
            part.log,
            part.events,
            first_parent(part.events) if begins else part.after,
            begins=begins,
        )
        if begins:
            check_fork(part.events[0], None, None)
        if before is not None and part.events[0].seq != before.seq + 1:
            raise InvalidValue(
                "seq",
                f"event {part.events[0].seq} does not follow place {before.seq}",
                "seal it at the next place",
            )
        ends[part.log] = part.events[-1]


def house_event(store: LogId, source: Source) -> Event:
    """The first event of a store's house log."""
    log = house_of(store)
    (event,) = seal_all(
        [HouseOpened(store)], log=log, seq=1, parents=(), source=source, actor="service:plait"
    )
    return event
