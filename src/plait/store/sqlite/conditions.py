"""Conditions of a write to the embedded store, asked inside its transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from plait.errors import (
    InvalidValue,
    LogExists,
    StaleHead,
    StaleReading,
    UnknownBlob,
    UnknownEvent,
    UnknownLog,
)
from plait.event import Event
from plait.ids import Digest, LogId
from plait.store.epochs import Fence, ReadMark, TipsMark, check_epoch
from plait.store.prepare import Prepared
from plait.store.records import COLUMNS, short_of, to_event
from plait.store.sqlite.columns import BY_ID, by_id, get_blob, only_kinds
from plait.store.sqlite.database import Database

_EPOCH = "SELECT epoch FROM log WHERE key = ?"


class KeyedPart(NamedTuple):
    """A part of an act over several logs, and the key of its log."""

    log: LogId
    key: int | None  # None: it begins in this act
    after: Digest  # empty: with this part
    prepared: Prepared
    lazy: bool


class KeyedFence(NamedTuple):
    """A fence, and the key of its log."""

    fence: Fence
    key: int


class KeyedTip(NamedTuple):
    """The tip of a log, and the key of the log."""

    key: int
    tip: int


def check_reading(db: Database, reading: ReadMark | TipsMark, codes: Mapping[str, int]) -> None:
    """Raise if an event bears on an act that its writer has not seen."""
    # by the writer's connection: it knows the events of earlier acts in the same round
    only, wanted = only_kinds(reading.kinds, codes)
    if isinstance(reading, TipsMark):
        place = f"log = (SELECT key FROM log l WHERE {BY_ID}) AND seq > ?"
        sql = f"SELECT 1 FROM event INDEXED BY event_place WHERE {place} {only} LIMIT 1"
        for log, tip in reading.tips.items():
            if db.get(sql, (*by_id(log), tip, *wanted)) is not None:
                raise StaleReading(None, reading.kinds)
        return
    sql = f"SELECT number FROM event WHERE number > ? {only}"
    for (number,) in db.rows(sql, (reading.number, *wanted)):
        if number not in reading.seen:
            raise StaleReading(reading.number, reading.kinds)


def settle_refusal(
    db: Database,
    log: LogId,
    key: int,
    after: Digest,
    prepared: Prepared,
    fences: Sequence[KeyedFence],
) -> Digest:
    """Return the id of the last event if exactly these events stand; raise why not, otherwise."""
    last = prepared.last
    stands = is_appended(db, key, last)
    for fence, at in fences:
        check_epoch(fence, epoch_of(db, fence, at), prepared.raised if stands and at == key else 0)
    if stands:
        db.touch()  # it may have been committed without an fsync
        return last.id
    row = db.row("SELECT head, tip FROM log WHERE key = ?", (key,))
    if row is None:
        raise UnknownLog(log)  # removed by another process
    head, tip = row
    if head.hex() == after:
        raise InvalidValue(
            "seq", f"event {last.seq} does not follow place {tip}", "seal it at the next place"
        )
    raise StaleHead(log, after, head.hex(), tip)


def stored_key(db: Database, part: KeyedPart) -> int | None:
    """Return the key of a part's log; None if no such log is there."""
    if part.key is not None:
        return part.key
    return db.get(f"SELECT key FROM log l WHERE {BY_ID}", by_id(part.log))


def check_free(db: Database, key: int | None, part: KeyedPart) -> None:
    """Raise unless a log still ends, or is still missing, where the part of an act says."""
    if part.key is None:
        if key is not None:
            raise LogExists(part.log)
        return
    row = db.row("SELECT head, tip FROM log WHERE key = ?", (part.key,))
    if row is None:
        raise UnknownLog(part.log)  # removed by another process
    if row[0].hex() != part.after:
        raise StaleHead(part.log, part.after, row[0].hex(), row[1])


def epoch_of(db: Database, fence: Fence, key: int) -> int:
    found = db.get(_EPOCH, (key,))
    if found is None:
        raise UnknownLog(fence.log)  # removed by another process
    return found


def is_appended(db: Database, key: int, event: Event) -> bool:
    """True if exactly this event stands: it was appended, and its acknowledgement was lost."""
    there = event_at(db, key, event.seq)
    return there is not None and there.id == event.id


def event_at(db: Database, key: int, seq: int) -> Event | None:
    row = db.row(f"SELECT {COLUMNS} FROM event WHERE log = ? AND seq = ?", (key, seq))
    return None if row is None else to_event(row, partial(get_blob, db))


def check_refs(db: Database, prepared: Prepared) -> None:
    """Raise unless the merged branches and blobs that the events point to are there."""
    for event in prepared.events:
        for parent in event.event.header.parents[1:]:
            rows = db.rows(f"SELECT {COLUMNS} FROM event WHERE short = ?", (short_of(parent),))
            if not any(to_event(row, partial(get_blob, db)).id == parent for row in rows):
                raise UnknownEvent(parent)
        for ref in event.refs:
            if ref not in prepared.blobs and not db.get(
                "SELECT 1 FROM blob WHERE digest = ?", (bytes.fromhex(ref),)
            ):
                raise UnknownBlob(ref)
