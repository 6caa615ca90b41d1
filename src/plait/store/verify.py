"""Checking a store against itself: its files, then every record against its hash, its neighbours and its log.

Nothing here trusts the database. Each record is taken as stored (`Store.records`), its id and its body's commitment
are computed again from the bytes, and every column the store searches by is compared with the header it came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from operator import attrgetter

import msgspec

from plait.errors import NotCanonical, PlaitError
from plait.event import Body, Header, check_content
from plait.event.codec import EVENT_TAG, check_header, decode_header
from plait.event.kinds import ForkedFrom
from plait.ids import Digest, LogId
from plait.store.base import TURNS, Log, Record, Store

_encode = msgspec.json.Encoder(order="deterministic").encode

# What an event mostly shares with the one before it: while it stays the same, it need not be checked again.
_names = attrgetter("version", "log", "actor", "behalf", "origin", "run", "call", "causes")


class Fault(msgspec.Struct, frozen=True):
    """The first thing wrong in a log, and the place where it is."""

    log: LogId | None  # None: in the store as a whole
    seq: int
    what: str

    def __str__(self) -> str:
        return f"{self.log}@{self.seq}: {self.what}" if self.log else self.what


class _Broken(Exception):
    pass


def verify_store(store: Store) -> Iterator[Fault]:
    """The first fault of every log that has one, then what belongs to no log and what is counted wrongly.

    Others may write meanwhile. What stood when it began is checked in any case; what is counted across logs is compared as
    of then, and if it moved, as far as it can be.
    """
    try:
        loose = store.check()
    except PlaitError as error:  # its rows are not what they seem: whatever else they say means nothing
        yield Fault(None, 0, str(error))
        return
    census = _Census(store.number)
    before, seen = None, set[LogId]()
    while page := store.logs(before=before, limit=500):
        for ordinal, log in page:
            before = ordinal
            if log.id in seen:
                yield Fault(log.id, log.tip, "two logs have this id")
                continue
            seen.add(log.id)
            yield from _verify(store, log, census)
    there = store.describe()["events"]
    quiet = store.number == census.upto
    if quiet and there != census.events:
        yield Fault(None, 0, f"the store holds {there} events, but its logs {census.events}: some belong to no log")
    elif census.events != census.upto:
        yield Fault(None, 0, f"commit numbers run to {census.upto}, but {census.events} events have one: some were moved or removed")
    for blob, count in census.refs.items():
        try:
            counted = store.blob_info(blob).refs
        except PlaitError as error:
            yield Fault(None, 0, str(error))
            continue
        if counted != count and (quiet or counted < count):
            yield Fault(None, 0, f"blob {blob} is counted {counted} times, but {count} events point to it")
    for what in loose:
        yield Fault(None, 0, what)


def verify_log(store: Store, log: LogId) -> Fault | None:
    """The first fault of one log. The logs it was forked from are checked up to the fork point's own hash."""
    return next(_verify(store, store.log(log), _Census(0)), None)


class _Census:
    """What was met on the way, to be compared with what the store as a whole says it holds."""

    def __init__(self, upto: int) -> None:
        self.upto = upto  # the last commit that is counted
        self.events = 0
        self.refs = Counter[Digest]()

    def count(self, record: Record) -> None:
        if record.number > self.upto:
            return
        self.events += 1
        if record.refs:
            self.refs.update(record.refs)


def _verify(store: Store, log: Log, census: _Census) -> Iterator[Fault]:
    seq, number, familiar, head, epoch = log.place + 1, 0, None, None, 0
    records = store.records(log.id)
    try:
        previous = _fork_point(store, log)
        for record in records:
            census.count(record)
            header = decode_header(record.raw)
            names = _names(header)
            _check_header(record, header, seq, previous, familiar=names == familiar)
            id, body = _check_bytes(record, header)
            if record.number <= number:
                raise _Broken(f"commit number {record.number} comes after {number}")
            _check_references(store, log, record, header, body)
            head = id if seq == log.tip else head
            epoch += header.kind in TURNS and seq <= log.tip
            seq, previous, number, familiar = seq + 1, id, record.number, names
        if number == 0:
            raise _Broken("the log has no events")
        if head != log.head or seq - 1 > max(log.tip, store.log(log.id).tip):  # events beyond the row as it was read may be news
            seq = min(seq, log.tip)
            raise _Broken(f"the log's row ends at {log.tip} with head {log.head[:12]}…, its events do not")
        if epoch != log.epoch:
            seq = log.tip
            raise _Broken(f"the log's row is at epoch {log.epoch}, its events at {epoch}")
    except (_Broken, PlaitError) as error:
        yield Fault(log.id, seq, str(error))
        for record in records:  # the census goes on
            census.count(record)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        yield Fault(log.id, seq, f"a record holds something else than it should: {error}")


def _fork_point(store: Store, log: Log) -> Digest | None:
    if log.parent is None:
        if log.place:
            raise _Broken(f"it begins at {log.place + 1} but names no parent")
        return None
    try:
        point = next(store.read(log.parent, log.place, log.place), None)
    except PlaitError as error:
        raise _Broken(f"its fork point cannot be read: {error}") from error
    if point is None:
        raise _Broken(f"its fork point {log.place} is beyond the end of {log.parent}")
    return point.id


def _check_header(record: Record, header: Header, seq: int, previous: Digest | None, *, familiar: bool) -> None:
    """The header is well-formed, stands where it belongs, and is what the store's columns say. `familiar`: its names are known to be."""
    if _encode(header) != record.raw:
        raise NotCanonical("header")
    # Its place, its parent and its body's digest are compared with ones of our own in any case.
    if not (familiar and header.parents == (previous,) and 0 <= header.time < 2**63):
        check_header(header)
    if header.log != record.log:
        raise _Broken(f"the event here was written for log {header.log}")
    if header.seq != seq:
        raise _Broken(f"event {seq} is missing: {header.seq} stands in its place")
    if record.seq != header.seq:
        raise _Broken(f"it is filed at {record.seq}")
    if record.kind != header.kind:
        raise _Broken(f"it is filed as {record.kind}, but is a {header.kind}")
    if (header.parents[0] if header.parents else None) != previous:
        raise _Broken("it does not follow the event before it")


def _check_bytes(record: Record, header: Header) -> tuple[Digest, Body]:
    """Header and body hash to what they are filed under and committed to."""
    id = Digest(sha256(EVENT_TAG + record.raw).hexdigest())
    if not id.startswith(record.id):
        raise _Broken(f"it is filed under the id {record.id}…, which is not its own")
    if record.content is None:
        raise _Broken("its body cannot be read")
    return id, check_content(header, record.salt, record.content)


def _check_references(store: Store, log: Log, record: Record, header: Header, body: Body) -> None:
    """What the event points to is there: the fork point it names, merged branches, blobs."""
    if isinstance(body, ForkedFrom) and header.seq == log.place + 1 and (body.parent, body.place) != (log.parent, log.place):
        raise _Broken(f"it says it was forked from {body.parent}@{body.place}, the log's row says {log.parent}@{log.place}")
    for parent in header.parents[1:]:
        store.event(parent)
    refs = body.refs()
    if not refs and not record.refs and not record.apart:  # as with most events
        return
    if set(record.refs) != {*refs, *([record.apart] if record.apart else [])}:
        raise _Broken("the store counts other blobs than the event points to")
    for ref in refs:
        store.get_blob(ref)
