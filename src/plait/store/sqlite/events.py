"""Logs and events in a SQLite store.

Reads take a connection of their own, in pages, so that no reader holds the write-ahead log open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from itertools import zip_longest
from typing import Any

import msgspec

from plait.errors import (
    PlaitError,
    StoreCorrupt,
    UnknownEvent,
    UnknownLog,
)
from plait.event import Event
from plait.event.codec import EVENT_TAG
from plait.ids import Digest, LogId, parse_digest, parse_log_id
from plait.store import packing
from plait.store.arguments import (
    check_kinds,
    check_limit,
    check_number,
    check_prefix,
    check_read,
)
from plait.store.base import HeadsQuestion, Log, LogAppend, StoredRecord
from plait.store.chain import check_chain, check_fork, check_parts, first_parent, is_async
from plait.store.epochs import Fence, ReadMark, TipsMark
from plait.store.lineage import Lineage, cut_lineage, extend_lineage
from plait.store.prepare import prepare
from plait.store.records import COLUMNS, content_of, short_of, to_event, to_id
from plait.store.sqlite.blobs import SqliteBlobs
from plait.store.sqlite.columns import BY_ID, by_id, only_kinds
from plait.store.sqlite.conditions import KeyedFence, KeyedPart, KeyedTip
from plait.store.sqlite.core import KnownLog, check_types
from plait.store.sqlite.database import (
    Database,
)
from plait.store.sqlite.transact import Fork

_SEQ_MAX = 2**62
_PAGE = 512  # events fetched at a time
_AT_PLACE = (
    f"SELECT {COLUMNS}, kind FROM event INDEXED BY event_place WHERE log = ?1 AND seq = ?2 AND ?2"
    " <= (SELECT tip FROM log WHERE key = ?1) LIMIT 2"
)
# The ids come as one JSON text, so that the statement is the same for any number of them.
_HEADS = (
    "SELECT asked.value, p.id, l.place, l.head, l.tip, l.lazy, l.epoch "
    "FROM json_each(?) asked CROSS JOIN log l LEFT JOIN log p ON p.key = l.parent "
    "WHERE substr(l.id, 11) = unhex(substr(asked.value, 25)) AND l.id = unhex(asked.value, '-')"
)


class SqliteEvents(SqliteBlobs):
    """Logs and their events. A long body is a blob."""

    def begin(
        self,
        log: LogId,
        events: Sequence[Event],
        *,
        parent: LogId | None = None,
        blobs: Mapping[Digest, bytes] | None = None,
        fences: Sequence[Fence] = (),
    ) -> Digest:
        parse_log_id(log)
        check_chain(log, events, first_parent(events), begins=True)
        fork, lineage = self._fork(events[0], parent)
        lazy = self._find(parent).lazy if parent else is_async(events[0])
        prepared = prepare(events, blobs)
        keyed = [KeyedFence(fence, self._find(fence.log).key) for fence in fences]
        key = self._connections.write(
            lambda db: self._work.begin(db, log, fork, prepared, lazy, keyed), not lazy
        )
        if key is not None:
            self._remember(
                log, KnownLog(key, extend_lineage(lineage, events[0].seq - 1, log), lazy)
            )
        return events[-1].id

    def append(
        self,
        log: LogId,
        events: Sequence[Event],
        *,
        after: Digest,
        blobs: Mapping[Digest, bytes] | None = None,
        flush: bool = False,
        fences: Sequence[Fence] = (),
        question: HeadsQuestion | None = None,
    ) -> Digest:
        check_chain(log, events, after)
        known, prepared = self._find(log), prepare(events, blobs)
        keyed = [KeyedFence(fence, self._find(fence.log).key) for fence in fences] if fences else ()
        return self._connections.write(
            lambda db: self._work.append(db, log, known.key, after, prepared, keyed),
            flush or not known.lazy,
        )

    def append_all(
        self,
        parts: Sequence[LogAppend],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        fences: Sequence[Fence] = (),
        reading: ReadMark | TipsMark | None = None,
    ) -> list[Digest]:
        check_parts(parts)
        keyed: list[KeyedPart] = []
        new: dict[LogId, bool] = {}  # if they are written lazily
        for number, part in enumerate(parts):
            # all blobs are written with the first part: the others find them there
            prepared = prepare(part.events, None if number else blobs)
            if part.after is None:
                new[part.log] = is_async(part.events[0])
            if part.log in new:
                after = part.after or Digest("")
                keyed.append(KeyedPart(part.log, None, after, prepared, new[part.log]))
            else:
                assert part.after is not None
                known = self._find(part.log)
                keyed.append(KeyedPart(part.log, known.key, part.after, prepared, known.lazy))
        held = [KeyedFence(fence, self._find(fence.log).key) for fence in fences]
        tips = self._keyed_tips(reading) if isinstance(reading, TipsMark) else ()
        begun = self._connections.write(
            lambda db: self._work.append_all(db, keyed, held, reading, tips),
            not all(part.lazy for part in keyed),
        )
        for part, key in zip(keyed, begun, strict=True):
            if key is not None:
                self._remember(part.log, KnownLog(key, extend_lineage((), 0, part.log), part.lazy))
        return [part.events[-1].id for part in parts]

    def _keyed_tips(self, reading: TipsMark) -> Sequence[KeyedTip]:
        """Return the tips of a reading, if all of its logs are there."""
        if not all(reading.tips.values()):
            return ()
        return [KeyedTip(self._find(log).key, tip) for log, tip in reading.tips.items()]

    def log(self, log: LogId) -> Log:
        with self._reader() as db:
            return self._log(db, log)

    def heads(self, logs: Sequence[LogId]) -> dict[LogId, Log]:
        asked = msgspec.json.encode([parse_log_id(log) for log in logs]).decode()
        with self._reader() as db:
            return {row[0]: _to_log(*row) for row in db.rows(_HEADS, (asked,))}

    def lineage(self, log: LogId) -> Lineage:
        return self._find(log).lineage

    def logs(self, *, before: int | None = None, limit: int = 100) -> list[tuple[int, Log]]:
        check_limit(limit)
        check_number("before", 0 if before is None else before)
        with self._reader() as db:
            rows = db.rows(
                "SELECT l.key, l.id, p.id, l.place, l.head, l.tip, l.lazy, l.epoch FROM log l LEFT"
                " JOIN log p ON p.key = l.parent WHERE l.key < ? AND l.key != 0 ORDER BY l.key DESC"
                " LIMIT ?",
                (2**62 if before is None else before, limit),
            )
            return [(row[0], _to_log(to_id(row[1]), *row[2:])) for row in rows]

    def match(self, text: str, limit: int = 20) -> list[LogId]:
        check_prefix(text)
        check_limit(limit)
        digits = text.replace("-", "").lower()
        if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
            return []
        with self._reader() as db:
            found = db.rows(
                "SELECT id FROM log WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
                (*_span(digits, 16), limit),
            )
            if len(digits) <= 12:
                sql = (
                    "SELECT id FROM log WHERE substr(id, 11) BETWEEN ? AND ? ORDER BY substr(id,"
                    " 11) LIMIT ?"
                )
                found += db.rows(sql, (*_span(digits, 6), limit))
            return list(dict.fromkeys(to_id(id) for (id,) in found))[:limit]

    def read(
        self,
        log: LogId,
        first: int = 1,
        last: int | None = None,
        *,
        kinds: Collection[str] | None = None,
        reverse: bool = False,
    ) -> Iterator[Event]:
        check_read(first, last, kinds, self._work.codes)
        known = self._find(log)
        if first == last and kinds is None and (event := self._single_event(known, first)):
            return iter((event,))
        # who looks for kinds finds none after the tip; who asks for every event must know the tip
        if last is None or kinds is None:
            with self._reader() as db:
                tip = self._log(db, log).tip
            end = tip if last is None else min(last, tip)
        else:
            end = min(last, _SEQ_MAX)
        spans = cut_lineage(known.lineage, max(first, 1), end)
        return self._read_spans(list(reversed(spans)) if reverse else spans, kinds, reverse)

    def read_ahead(self, log: LogId, first: int, last: int) -> AbstractContextManager[None]:
        return nullcontext()  # a read asks no server

    def look_ahead(
        self, logs: Sequence[LogId], limit: int
    ) -> AbstractContextManager[Mapping[LogId, Log]]:
        return nullcontext(self.heads(logs))

    def events_at(self, places: Sequence[tuple[LogId, int]]) -> list[Event]:
        logs = self.heads([log for log, _ in places])
        own = [(log, seq) for log, seq in places if log in logs and logs[log].place < seq]
        return [event for log, seq in own for event in self.read(log, seq, seq)]

    def event(self, id: Digest) -> Event:
        with self._reader() as db:
            for row in db.rows(
                f"SELECT {COLUMNS} FROM event WHERE short = ?", (short_of(parse_digest(id)),)
            ):
                if (event := to_event(row, self.get_blob)).id == id:
                    return event
        raise UnknownEvent(id)

    def number_of(self, id: Digest) -> int | None:
        wanted = bytes.fromhex(parse_digest(id))
        with self._reader() as db:
            for number, codec, header in db.rows(
                "SELECT number, codec, header FROM event WHERE short = ?", (short_of(id),)
            ):
                if sha256(EVENT_TAG + packing.unpack_header(codec, header)).digest() == wanted:
                    return number
        return None

    def feed(
        self,
        after: int = 0,
        *,
        kinds: Collection[str] | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[int, Event]]:
        check_limit(limit)
        check_number("after", after)
        check_kinds(kinds, self._work.codes)
        only, codes = only_kinds(kinds, self._work.codes)
        order = "DESC" if reverse else "ASC"
        sql = (
            f"SELECT {COLUMNS}, number FROM event WHERE number > ? AND number < ? {only} ORDER BY"
            f" number {order} LIMIT ?"
        )
        before, left = 2**63 - 1, 2**62 if limit is None else limit
        while left > 0:
            with self._reader() as db:
                rows = db.rows(sql, (after, before, *codes, min(left, _PAGE)))
                events = [(row[5], to_event(row, self.get_blob)) for row in rows]
            yield from events
            if len(rows) < min(left, _PAGE):
                return
            after, before = (after, rows[-1][5]) if reverse else (rows[-1][5], before)
            left -= len(rows)

    @property
    def number(self) -> int:
        with self._reader() as db:
            return db.get("SELECT max(number) FROM event") or 0

    def event_count(self, upto: int) -> int:
        check_number("upto", upto)
        with self._reader() as db:
            return db.get("SELECT count(*) FROM event WHERE number != 0 AND number <= ?", (upto,))

    def records(self, log: LogId) -> Iterator[StoredRecord]:
        with self._reader() as db:
            # its lineage may be broken
            key = db.get(f"SELECT key FROM log l WHERE {BY_ID}", by_id(log))
        if key is None:
            raise UnknownLog(log)
        after = (-(2**62), 0, 0)
        sql = (
            f"SELECT {COLUMNS}, number, kind, short FROM event INDEXED BY event_place "
            "WHERE log = ? AND (seq, kind, number) > (?, ?, ?) ORDER BY seq, kind, number LIMIT ?"
        )
        while True:
            with self._reader() as db:
                rows = db.rows(sql, (key, *after, _PAGE))
                refs = self._counted_blobs(db, [row[5] for row in rows])
                records = [self._to_record(log, row, refs.get(row[5], ())) for row in rows]
            yield from records
            if len(rows) < _PAGE:
                return
            after = rows[-1][0], rows[-1][6], rows[-1][5]

    def _fork(self, first: Event, parent: LogId | None) -> tuple[Fork | None, Lineage]:
        if parent is None:
            check_fork(first, None, None)
            return None, ()
        known = self._find(parent)
        at = next(
            (
                self._find(span.log).key
                for span in cut_lineage(known.lineage, first.seq - 1, first.seq - 1)
            ),
            known.key,
        )
        return Fork(parent, known.key, at), known.lineage

    def _single_event(self, known: KnownLog, seq: int) -> Event | None:
        """Return the event at a place without a look at the log itself, which costs as much. None:
        it is not there, or not alone.
        """
        for span in cut_lineage(known.lineage, seq, seq):
            with self._reader() as db:
                rows = db.rows(_AT_PLACE, (self._find(span.log).key, seq))
                if len(rows) == 1:
                    return to_event(rows[0], self.get_blob, self._names.get(rows[0][5]))
        return None

    def _read_spans(
        self, spans: Sequence[Any], kinds: Collection[str] | None, reverse: bool
    ) -> Iterator[Event]:
        only, codes = only_kinds(kinds, self._work.codes)
        order = "DESC" if reverse else "ASC"
        sql = (
            f"SELECT {COLUMNS}, kind FROM event INDEXED BY event_place "
            f"WHERE log = ? AND seq BETWEEN ? AND ? {only} ORDER BY seq {order} LIMIT ?"
        )
        for span in spans:
            key, first, last = self._find(span.log).key, span.first, span.last
            while first <= last:
                with self._reader() as db:
                    rows = db.rows(sql, (key, first, last, *codes, _PAGE))
                    if kinds is None:
                        _check_gapless(span.log, [row[0] for row in rows], first, last, reverse)
                    events = [to_event(row, self.get_blob, self._names.get(row[5])) for row in rows]
                yield from events
                if len(rows) < _PAGE:
                    break
                first, last = (first, rows[-1][0] - 1) if reverse else (rows[-1][0] + 1, last)

    def _counted_blobs(self, db: Database, numbers: list[int]) -> dict[int, tuple[Digest, ...]]:
        """The blobs counted for these events."""
        found: dict[int, tuple[Digest, ...]] = {}
        marks = ", ".join("?" * len(numbers))
        sql = (
            "SELECT a.event, b.digest FROM attachment a JOIN blob b ON b.key = a.blob WHERE"
            f" a.event IN ({marks})"
        )
        for number, digest in db.rows(sql, numbers):
            found[number] = (*found.get(number, ()), Digest(digest.hex()))
        return found

    def _to_record(self, log: LogId, row: Any, refs: tuple[Digest, ...]) -> StoredRecord:
        seq, codec, salt, header, body, number, kind, short = row
        salt = salt if isinstance(salt, bytes) else b""
        try:
            raw = packing.unpack_header(codec, header)
        except PlaitError:
            raw = b""  # for verify to find
        try:
            content = content_of(codec, body, self.get_blob)
        except PlaitError:
            content = None
        apart = (
            Digest(body.hex())
            if codec & ~packing.HEADER_1 == packing.IN_BLOB and body is not None
            else None
        )
        name = self._names.get(kind) or self._reload_kinds().get(kind, f"#{kind}")
        return StoredRecord(
            number,
            log,
            seq,
            name,
            short.to_bytes(8, "big", signed=True).hex(),
            raw,
            salt,
            content,
            refs,
            apart,
        )

    def _log(self, db: Database, log: LogId) -> Log:
        row = db.row(
            "SELECT p.id, l.place, l.head, l.tip, l.lazy, l.epoch FROM log l LEFT JOIN log p ON"
            f" p.key = l.parent WHERE {BY_ID}",
            by_id(log),
        )
        if row is None:
            raise UnknownLog(log)
        return _to_log(log, *row)


def _check_gapless(log: LogId, seqs: list[int], first: int, last: int, reverse: bool) -> None:
    count = min(_PAGE, last - first + 1)
    due = list(range(last, last - count, -1) if reverse else range(first, first + count))
    if seqs != due:
        missing = next((seq for seq, found in zip_longest(due, seqs) if seq != found), None)
        raise StoreCorrupt(f"log {log}", f"event {missing} is missing, or stands twice")


def _span(digits: str, size: int) -> tuple[bytes, bytes]:
    """The lowest and the highest value of `size` bytes that starts with these hex digits."""
    return bytes.fromhex(digits.ljust(size * 2, "0")[: size * 2]), bytes.fromhex(
        digits.ljust(size * 2, "f")[: size * 2]
    )


def _to_log(
    id: LogId, parent: bytes | None, place: int, head: bytes, tip: int, lazy: int, epoch: int
) -> Log:
    check_types(id, (place, head, tip, epoch), (int, bytes, int, int))
    return Log(
        id,
        None if parent is None else to_id(parent),
        place,
        Digest(head.hex()),
        tip,
        "async" if lazy else "full",
        epoch,
    )
