"""Checking a store against itself: its files, then every record against its hash, its neighbours
and its log.

Nothing here trusts the database. Each record is taken as stored (`Store.records`), its id and its
body's commitment are computed again from the bytes, and every column the store searches by is
compared with the header it came from. Every blob is hashed, with or without an event that points to
it. Commit numbers must follow from the order in which events name each other; if they are dense,
none may be missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from operator import attrgetter

import msgspec

from plait.errors import NotCanonical, PlaitError, UnknownBlob, UnknownEvent
from plait.event import Body, Header, check_content
from plait.event.codec import EVENT_TAG, check_header, decode_header
from plait.event.kinds import ForkedFrom, HouseOpened, SessionOpened
from plait.ids import SALT_SIZE, Digest, LogId, house_of, inbox_of
from plait.store.base import Log, Store, StoredRecord
from plait.store.epochs import EPOCH_KINDS
from plait.store.visible import visible_count

_encode = msgspec.json.Encoder(order="deterministic").encode

# Fields that an event mostly shares with the one before it: while they stay the same, they are
# not checked again.
_names = attrgetter("version", "log", "actor", "behalf", "origin", "run", "call", "causes")

_NUMBERS_MAX = 100_000  # events of a log with a remembered commit number


class StoreFault(msgspec.Struct, frozen=True):
    """The first thing wrong in a log, and the place where it is."""

    log: LogId | None  # None: in the store as a whole
    seq: int
    what: str

    def __str__(self) -> str:
        return f"{self.log}@{self.seq}: {self.what}" if self.log else self.what


class _Broken(Exception):
    pass


def verify_store(store: Store) -> Iterator[StoreFault]:
    """Yield the first fault of every log that has one, then records of no log and wrong counts.

    Others may write meanwhile. All records that were settled at the beginning are checked; counts
    across logs are compared as of then, and if they moved, as far as possible.
    """
    try:
        loose = store.check()
    # its rows are damaged: nothing else in them means anything
    except PlaitError as error:
        yield StoreFault(None, 0, str(error))
        return
    census = _Census(store.number)
    seen = {house_of(store.id)}
    yield from _verify_house(store, census)
    before, begun = None, 2**63
    begins: dict[LogId, int] = {}
    while page := store.logs(before=before, limit=500):
        for ordinal, log in page:
            before = ordinal
            if log.id in seen:
                yield StoreFault(log.id, log.tip, "two logs have this id")
                continue
            seen.add(log.id)
            yield from _verify(store, log, census)
            if store.dense and census.begun > begun:
                yield StoreFault(
                    log.id, log.place + 1, "it was begun after a log that is listed as newer"
                )
            begun = census.begun or begun
            if census.begun:
                begins[log.id] = census.begun
    for log, number in begins.items():
        inbox = inbox_of(log)
        if begins.get(inbox, number) < number:
            yield StoreFault(
                inbox,
                1,
                f"it has the commit number {begins[inbox]}, but its session begins with {number}",
            )
    there = store.event_count(census.upto)
    quiet = visible_count(store) == there
    if there != census.events:
        yield StoreFault(
            None,
            0,
            f"the store holds {there} events, but its logs {census.events}: some belong to no log",
        )
    elif store.dense and there != census.upto:
        yield StoreFault(
            None,
            0,
            f"commit numbers run to {census.upto}, but {census.events} events have one: some were"
            " moved or removed",
        )
    for blob, count in census.refs.items():
        try:
            counted = store.blob_info(blob).refs
        except PlaitError as error:
            yield StoreFault(None, 0, str(error))
            continue
        if counted != count and (quiet or counted < count):
            yield StoreFault(
                None, 0, f"blob {blob} is counted {counted} times, but {count} events point to it"
            )
    for blob in store.blobs():
        if blob in census.blobs:
            continue
        try:
            store.get_blob(blob)
        except UnknownBlob:
            continue  # it was swept meanwhile
        except PlaitError as error:
            yield StoreFault(None, 0, _blob_text(blob, error))
    for what in loose:
        yield StoreFault(None, 0, what)


def verify_log(store: Store, log: LogId) -> StoreFault | None:
    """The first fault of one log.

    The logs it was forked from are checked up to the fork point's own hash.
    """
    return next(_verify(store, store.log(log), _Census(0)), None)


def _blob_text(blob: Digest, error: PlaitError) -> str:
    text, name = str(error), f"blob {blob}"
    return text if name in text else f"{name}: {text}"


class _Census:
    """Counts of all that was read, to be compared with the counts of the whole store."""

    def __init__(self, upto: int) -> None:
        self.upto = upto  # the last commit that is counted
        self.events = 0
        self.refs = Counter[Digest]()
        # those that events point to, with the fault of each
        self.blobs: dict[Digest, str | None] = {}
        # the commit number of the first event of the log that was walked last; 0: not known
        self.begun = 0
        self._numbers: dict[Digest, int] = {}

    def count(self, record: StoredRecord) -> None:
        if not 0 < record.number <= self.upto:
            return
        self.events += 1
        if record.refs:
            self.refs.update(record.refs)

    def blob_fault(self, store: Store, blob: Digest) -> str | None:
        """Return the fault of a blob that an event points to. Each blob is read once."""
        if blob not in self.blobs:
            try:
                store.get_blob(blob)
                self.blobs[blob] = None
            except PlaitError as error:
                self.blobs[blob] = _blob_text(blob, error)
        return self.blobs[blob]

    def number(self, id: Digest, number: int) -> None:
        """Remember the commit number of an event: most events rest on a recent one of their own
        log.
        """
        if len(self._numbers) > _NUMBERS_MAX:
            self._numbers.clear()
        self._numbers[id] = number

    def number_of(self, store: Store, id: Digest) -> int | None:
        found = self._numbers.get(id)
        return store.number_of(id) if found is None else found


def _verify_house(store: Store, census: _Census) -> Iterator[StoreFault]:
    """Check that the house log names the store: an edited id of the store has to be edited there,
    too.
    """
    id = house_of(store.id)
    house = store.heads([id]).get(id)
    if house is None:
        yield StoreFault(
            None,
            0,
            f"the store says its id is {store.id}, but the house log of that id, {id}, is not"
            " there",
        )
        return
    yield from _verify(store, house, census)
    first = next(store.records(house.id), None)
    if first is not None and (first.kind, first.number) != (HouseOpened.__name__, 0):
        yield StoreFault(
            house.id, 1, f"the house log begins with a {first.kind}, as commit {first.number}"
        )


def _verify(store: Store, log: Log, census: _Census) -> Iterator[StoreFault]:
    seq, familiar, head, epoch = log.place + 1, None, None, 0
    is_house = log.id == house_of(store.id)
    number, census.begun = -1 if is_house else 0, 0
    records = store.records(log.id)
    try:
        previous = _fork_point(store, log)
        for record in records:
            census.count(record)
            if not record.raw:
                raise _Broken("its header cannot be read")
            header = decode_header(record.raw)
            names = _names(header)
            _check_header(record, header, seq, previous, familiar=names == familiar)
            id, body = _check_bytes(record, header)
            if record.number <= number:
                raise _Broken(f"commit number {record.number} comes after {number}")
            if seq == log.place + 1:
                census.begun = record.number
                _check_first(store, log, header, body)
                if isinstance(body, SessionOpened) and body.continues is not None:
                    _check_after(store, body.continues.head, record, census)
            elif header.kind in _FIRST:
                raise _Broken(f"a {header.kind} can only be the first event of a log")
            _check_references(store, record, body, census)
            _check_order(store, record, header, census)
            census.number(id, record.number)
            head = id if seq == log.tip else head
            epoch += header.kind in EPOCH_KINDS and seq <= log.tip
            seq, previous, number, familiar = seq + 1, id, record.number, names
        if seq == log.place + 1:
            raise _Broken("the log has no events")
        # events beyond the row as it was read may be news
        if head != log.head or seq - 1 > max(log.tip, store.log(log.id).tip):
            seq = min(seq, log.tip)
            raise _Broken(
                f"the log's row ends at {log.tip} with head {log.head[:12]}…, its events do not"
            )
        if epoch != log.epoch:
            seq = log.tip
            raise _Broken(f"the log's row is at epoch {log.epoch}, its events at {epoch}")
    except (_Broken, PlaitError) as error:
        yield StoreFault(log.id, seq, str(error))
        for record in records:  # the census goes on
            census.count(record)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        yield StoreFault(log.id, seq, f"a record holds something else than it should: {error}")


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


def _check_header(
    record: StoredRecord, header: Header, seq: int, previous: Digest | None, *, familiar: bool
) -> None:
    """The header is well-formed, stands where it belongs, and agrees with the store's columns.

    `familiar`: its names are known to be.
    """
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


def _check_bytes(record: StoredRecord, header: Header) -> tuple[Digest, Body]:
    """Check that header and body have the hashes they are filed under and committed to."""
    id = Digest(sha256(EVENT_TAG + record.raw).hexdigest())
    if not id.startswith(record.id):
        raise _Broken(f"it is filed under the id {record.id}…, which is not its own")
    if record.content is None:
        raise _Broken("its body cannot be read")
    if len(record.salt) != SALT_SIZE:
        raise _Broken(f"its salt has {len(record.salt)} bytes")
    return id, check_content(header, record.salt, record.content)


_FIRST = frozenset({ForkedFrom.__name__, HouseOpened.__name__})


def _check_first(store: Store, log: Log, header: Header, body: Body) -> None:
    """Check the log's row against its first event: parent, fork place and durability."""
    if isinstance(body, ForkedFrom):
        if (body.parent, body.place) != (log.parent, log.place):
            raise _Broken(
                f"it says it was forked from {body.parent}@{body.place}, the log's row says"
                f" {log.parent}@{log.place}"
            )
    elif log.parent is not None:
        raise _Broken(
            f"the log's row says it was forked from {log.parent}@{log.place}, but it begins with a"
            f" {header.kind}"
        )
    # that of another store came with sessions that were copied from there
    if isinstance(body, HouseOpened) and log.id != house_of(body.store):
        raise _Broken(f"it is not the house log of store {body.store}, which it names")
    if log.durability == "memory":
        return
    if log.parent is not None:
        root = next(store.read(log.id, 1, 1), None)  # a fork is written as its root is
        if root is None:
            raise _Broken("the first event of its root cannot be read")
        body = root.body
    said = (body.durability if isinstance(body, SessionOpened) else None) or "full"
    if log.durability != said:
        raise _Broken(f"its row says it is written {log.durability}, its first event says {said}")


def _check_order(store: Store, record: StoredRecord, header: Header, census: _Census) -> None:
    """An event is committed after those it rests on.

    A cause may stand in another store, and then says nothing here.
    """
    if (
        len(header.parents) < 2
        and not header.causes
        and record.seq != 1
        and header.kind != ForkedFrom.__name__
    ):
        return  # as with most events: the one before it was compared
    for id in header.parents:
        found = census.number_of(store, id)
        if found is None:
            raise UnknownEvent(id)
        _check_before(found, record.number, id)
    for id in header.causes:
        _check_after(store, id, record, census)


def _check_after(store: Store, id: Digest, record: StoredRecord, census: _Census) -> None:
    found = census.number_of(store, id)
    if found is not None:
        _check_before(found, record.number, id)


def _check_before(earlier: int, number: int, id: Digest) -> None:
    if earlier >= number:
        raise _Broken(
            f"it has the commit number {number}, but rests on event {id[:12]}… with {earlier}"
        )


def _check_references(store: Store, record: StoredRecord, body: Body, census: _Census) -> None:
    """Check that the event's blobs are there, have their digests, and alone are counted for it."""
    refs = body.refs()
    if not refs and not record.refs and not record.apart:  # as with most events
        return
    if set(record.refs) != {*refs, *([record.apart] if record.apart else [])}:
        raise _Broken("the store counts other blobs than the event points to")
    if record.apart:
        # its content was compared with the commitment of the header
        census.blobs[record.apart] = None
    for ref in refs:
        fault = census.blob_fault(store, ref)
        if fault is not None:
            raise _Broken(fault)
