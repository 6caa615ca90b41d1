"""A store in memory: for tests, for trying things out, and as the plainest statement of what a
store does.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

from plait.errors import (
    InvalidValue,
    LogExists,
    PlaitError,
    StaleHead,
    StoreClosed,
    StoreCorrupt,
    UnknownBlob,
    UnknownEvent,
    UnknownLog,
    UnknownRows,
)
from plait.event import VOCABULARY, Event
from plait.ids import Digest, LogId, Source, parse_digest, parse_log_id
from plait.store.arguments import (
    check_kinds,
    check_limit,
    check_number,
    check_own,
    check_place,
    check_prefix,
    check_span,
)
from plait.store.base import BlobInfo, Durability, Log, Record, Unchecked
from plait.store.blobs import check_size, checked, digest_of
from plait.store.chain import check_chain, check_fork, first_parent, house_event
from plait.store.epochs import TURNS, Fence, check_epoch, turns_in
from plait.store.lineage import Lineage, cut_lineage, extend_lineage
from plait.store.locks import MemoryLock
from plait.store.projection import Projection, Row, Scalar, Table
from plait.store.rows import check_columns, check_names, check_where, checked_row, order_of

_PAGE = 512  # events of the feed taken at a time


class _MemoryLog:
    """The events of one log and how it hangs together with the others."""

    def __init__(self, ordinal: int, parent: LogId | None, place: int, lineage: Lineage) -> None:
        self.ordinal, self.parent, self.place, self.lineage = ordinal, parent, place, lineage
        self.events: list[Event] = []
        self.numbers: list[int] = []
        self.head, self.tip, self.epoch = Digest(""), place, 0
        self.kept: dict[int, bytes] = {}

    def add(self, event: Event, number: int) -> None:
        self.events.append(event)
        self.numbers.append(number)
        self.head, self.tip = event.id, event.seq
        self.epoch += event.kind in TURNS


class _MemoryBlob:
    def __init__(self, content: bytes, born: int) -> None:
        self.content, self.born, self.refs = content, born, 0


class MemoryStore:
    """A store that ends with its process.

    After os.fork the child goes on with a copy of its own.
    """

    def __init__(
        self, name: str = "", *, source: Source, projections: Sequence[Projection] = ()
    ) -> None:
        self.address = f"memory:{name}"
        self.durability: Durability = "memory"
        self.id = source.fresh("store")
        self.folder: Path | None = None
        self._guard = threading.RLock()
        self._locked: set[str] = set()  # runs
        self.closed = False
        first = house_event(self.id, source)
        house = _MemoryLog(0, None, 0, extend_lineage((), 0, first.log))
        house.add(first, 0)
        # the house comes first, and has no ordinal
        self._logs: dict[LogId, _MemoryLog] = {first.log: house}
        self._feed: list[Event] = []
        self._by_id: dict[Digest, Event] = {first.id: first}
        self._blobs: dict[Digest, _MemoryBlob] = {}
        self._projections: dict[str, Projection] = {}
        self._interested: dict[str, list[Projection]] = {}  # by kind of event
        self._rows: dict[str, _MemoryRows] = {}
        self.attach(projections)
        _instances.add(self)

    # ── logs ─────────────────────────────────────────────────────────────────────────────────

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
        first = events[0]
        place = first.seq - 1
        check_fork(
            first, parent, next(self.read(parent, place, place), None) if parent and place else None
        )
        with self._open():
            for fence in fences:
                check_epoch(fence, self._find(fence.log).epoch)
            known = self._logs.get(log)
            if known is not None:
                if self._stands(known, events[-1]):
                    return events[-1].id
                raise LogExists(log)
            inherited = self._logs[parent].lineage if parent else ()
            known = _MemoryLog(
                len(self._logs), parent, place, extend_lineage(inherited, place, log)
            )
            self._write(known, events, blobs)
            self._logs[log] = known
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
    ) -> Digest:
        check_chain(log, events, after)
        with self._open():
            known = self._find(log)
            stands = known.head != after and self._stands(known, events[-1])
            for fence in fences:
                check_epoch(
                    fence,
                    self._find(fence.log).epoch,
                    turns_in(events) if stands and fence.log == log else 0,
                )
            if known.head != after:
                if stands:
                    return events[-1].id
                raise StaleHead(log, after, known.head, known.tip)
            if events[0].seq != known.tip + 1:
                raise InvalidValue(
                    "seq",
                    f"event {events[0].seq} does not follow place {known.tip}",
                    "seal it at the next place",
                )
            self._write(known, events, blobs)
            return events[-1].id

    def flush(self) -> None:
        with self._open():
            pass  # there is no disk

    def log(self, log: LogId) -> Log:
        with self._open():
            return _to_log(log, self._find(log))

    def heads(self, logs: Sequence[LogId]) -> dict[LogId, Log]:
        with self._open():
            return {
                log: _to_log(log, self._logs[log])
                for log in logs
                if parse_log_id(log) in self._logs
            }

    def logs(self, *, before: int | None = None, limit: int = 100) -> list[tuple[int, Log]]:
        check_limit(limit)
        check_number("before", 0 if before is None else before)
        with self._open():
            ids = list(self._logs)
            last = len(ids) - 1 if before is None else min(before, len(ids)) - 1
            return [
                (i, _to_log(ids[i], self._logs[ids[i]]))
                for i in range(last, max(last - limit, 0), -1)
            ]

    def match(self, text: str, limit: int = 20) -> list[LogId]:
        check_prefix(text)
        check_limit(limit)
        digits = text.replace("-", "").lower()
        if not digits:
            return []
        with self._open():
            plain = {log: log.replace("-", "") for log in self._logs}
        front = sorted(log for log, hex in plain.items() if hex.startswith(digits))
        tail = [log for log, hex in plain.items() if hex[20:].startswith(digits)]
        return list(dict.fromkeys(front + tail))[:limit]

    # ── events ───────────────────────────────────────────────────────────────────────────────

    def read(
        self,
        log: LogId,
        first: int = 1,
        last: int | None = None,
        *,
        kinds: Collection[str] | None = None,
        reverse: bool = False,
    ) -> Iterator[Event]:
        check_span(first, last)
        check_kinds(kinds, VOCABULARY)
        with self._open():
            known = self._find(log)
            tip = known.tip
            found: list[Event] = []
            for span in cut_lineage(
                known.lineage, max(first, 1), tip if last is None else min(last, tip)
            ):
                own = self._find(span.log)
                start = own.place + 1
                stretch = own.events[span.first - start : span.last - start + 1]
                size = max(span.last - span.first + 1, 0)
                if len(stretch) != size or (
                    size and (stretch[0].seq, stretch[-1].seq) != (span.first, span.last)
                ):
                    raise StoreCorrupt(f"log {span.log}", "an event is missing, or stands twice")
                found = found + stretch if found else stretch
        if kinds is not None:
            found = [event for event in found if event.kind in kinds]
        return iter(found[::-1] if reverse else found)

    def event(self, id: Digest) -> Event:
        with self._open():
            if parse_digest(id) not in self._by_id:
                raise UnknownEvent(id)
            return self._by_id[id]

    def number_of(self, id: Digest) -> int | None:
        with self._open():
            event = self._by_id.get(parse_digest(id))
            if event is None:
                return None
            known = self._find(event.log)
            return known.numbers[event.seq - known.place - 1]

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
        check_kinds(kinds, VOCABULARY)
        found = self._feed_down(after) if reverse else self._feed_up(after)
        yield from islice(
            ((number, event) for number, event in found if kinds is None or event.kind in kinds),
            limit,
        )

    @property
    def number(self) -> int:
        return len(self._feed)

    def records(self, log: LogId) -> Iterator[Record]:
        with self._open():
            known = self._find(log)
            rows = list(zip(known.numbers, known.events, strict=True))
        for number, event in rows:
            try:
                seq, kind, refs = event.seq, event.kind, event.refs
            except PlaitError:  # somebody edited it; whoever verifies will say what is wrong
                seq, kind, refs = 0, "", ()
            yield Record(
                number, log, seq, kind, event.id, event.raw, event.salt, event.content, refs
            )

    # ── blobs ────────────────────────────────────────────────────────────────────────────────

    def put_blob(self, content: bytes) -> Digest:
        check_size(content)
        digest = digest_of(content)
        with self._open():
            self._keep_blobs({digest: content})
        return digest

    def put_blobs(self, contents: Mapping[Digest, bytes]) -> None:
        content = checked(contents)
        with self._open():
            self._keep_blobs(content)

    def missing_blobs(self, digests: Collection[Digest]) -> set[Digest]:
        with self._open():
            there = [
                self._blobs[digest] for digest in digests if parse_digest(digest) in self._blobs
            ]
            for blob in there:
                blob.born = max(blob.born, self.number)
            return {digest for digest in digests if digest not in self._blobs}

    def get_blob(self, digest: Digest) -> bytes:
        return self._blob(digest).content

    def blob_info(self, digest: Digest) -> BlobInfo:
        blob = self._blob(digest)
        return BlobInfo(len(blob.content), len(blob.content), blob.refs)

    def blobs(self) -> Iterator[Digest]:
        with self._open():
            return iter(list(self._blobs))

    def sweep_blobs(self, *, before: int, keep: Container[Digest] = frozenset()) -> int:
        check_number("before", before)
        with self._open():
            unused = [
                digest
                for digest, blob in self._blobs.items()
                if not blob.refs and blob.born < before and digest not in keep
            ]
            for digest in unused:
                del self._blobs[digest]
        return len(unused)

    # ── snapshots ────────────────────────────────────────────────────────────────────────────

    def keep(self, log: LogId, seq: int, data: bytes) -> None:
        check_size(data, "data")
        with self._open():
            known = self._find(log)
            check_own(log, seq, known.place, known.tip)
            known.kept[seq] = data

    def kept(self, log: LogId, upto: int) -> tuple[LogId, int, bytes] | None:
        check_place("upto", upto)
        with self._open():
            for span in reversed(cut_lineage(self._find(log).lineage, 1, upto)):
                kept = self._find(span.log).kept
                seq = max((seq for seq in kept if seq <= span.last), default=None)
                if seq is not None:
                    return span.log, seq, kept[seq]
        return None

    def all_kept(self, log: LogId) -> list[tuple[int, bytes]]:
        with self._open():
            return sorted(self._find(log).kept.items())

    def forget_kept(self, log: LogId | None = None) -> int:
        with self._open():
            logs = self._logs.values() if log is None else [self._find(log)]
            dropped = sum(len(known.kept) for known in logs)
            for known in logs:
                known.kept.clear()
        return dropped

    # ── rows ─────────────────────────────────────────────────────────────────────────────────

    def rows(
        self,
        projection: str,
        table: str,
        where: Mapping[str, Scalar] | None = None,
        *,
        order: str | None = None,
        descending: bool = False,
        before: Scalar = None,
        limit: int = 100,
    ) -> list[Row]:
        check_limit(limit)
        if projection not in self._rows:
            raise UnknownRows(projection)
        with self._open():
            return self._rows[projection].scan(table, where or {}, order, descending, before, limit)

    def attach(self, projections: Sequence[Projection]) -> None:
        for projection in projections:
            check_names(projection)
            with self._open():
                kept = self._projections.get(projection.name)
                if kept is None or kept.version < projection.version:
                    self._projections[projection.name] = projection
                    self.rebuild(projection.name)
                    every = self._projections.values()
                    self._interested = {
                        kind: [each for each in every if kind in each.kinds]
                        for kind in {kind for each in every for kind in each.kinds}
                    }

    def rebuild(self, projection: str) -> None:
        if projection not in self._projections:
            raise UnknownRows(projection)
        with self._open():
            fresh = _MemoryRows(self._projections[projection])
            for number, event in enumerate(self._feed, 1):
                if event.kind in self._projections[projection].kinds:
                    self._projections[projection].apply(fresh, number, event)
            self._rows[projection] = fresh

    # ── locks ────────────────────────────────────────────────────────────────────────────────

    def lock(self, run: str, session: str) -> MemoryLock:
        with self._open():
            return MemoryLock(self._locked, run, session)

    def forget_locks(self) -> None:
        """Drop all locks, in a forked child: they are the parent's."""
        self._locked.clear()

    # ── the store as a whole ─────────────────────────────────────────────────────────────────

    def freeze(self) -> None:
        """Let no write begin until `thaw`."""
        self._guard.acquire()

    def thaw(self) -> None:
        self._guard.release()

    def check(self) -> list[str]:
        return []  # it has no files, and counts nothing twice

    def unchecked(self) -> list[Unchecked]:
        return []

    def describe(self) -> dict[str, object]:
        return {
            "address": self.address,
            "id": self.id,
            "logs": len(self._logs) - 1,
            "events": len(self._feed),
            "blobs": len(self._blobs),
        }

    def close(self) -> None:
        self.closed = True

    def __repr__(self) -> str:
        return f"<MemoryStore {self.address}>"

    # ── helpers ──────────────────────────────────────────────────────────────────────────────

    def _open(self) -> threading.RLock:
        if self.closed:
            raise StoreClosed(self.address)
        return self._guard

    def _find(self, log: LogId) -> _MemoryLog:
        known = self._logs.get(log) if type(log) is str else None
        if known is None:
            raise UnknownLog(parse_log_id(log))
        return known

    def _feed_up(self, after: int) -> Iterator[tuple[int, Event]]:
        while events := self._slice(after, after + _PAGE):
            yield from enumerate(events, after + 1)
            after += len(events)

    def _feed_down(self, after: int) -> Iterator[tuple[int, Event]]:
        last = self.number
        while events := self._slice(max(after, last - _PAGE), last):
            yield from zip(count(last, -1), reversed(events))
            last -= len(events)

    def _slice(self, first: int, last: int) -> list[Event]:
        with self._open():
            return self._feed[first:last]

    def _blob(self, digest: Digest) -> _MemoryBlob:
        with self._open():
            if parse_digest(digest) not in self._blobs:
                raise UnknownBlob(digest)
            return self._blobs[digest]

    def _stands(self, known: _MemoryLog, event: Event) -> bool:
        place = event.seq - known.place - 1
        return 0 <= place < len(known.events) and known.events[place].id == event.id

    def _write(
        self, known: _MemoryLog, events: Sequence[Event], blobs: Mapping[Digest, bytes] | None
    ) -> None:
        """All or nothing: rows are folded into copies first, and nothing below the
        fold can fail.
        """
        content = checked(blobs)
        for parent in (parent for event in events for parent in event.header.parents[1:]):
            if parent not in self._by_id:
                raise UnknownEvent(parent)
        for ref in (ref for event in events for ref in event.refs):
            if ref not in content and ref not in self._blobs:
                raise UnknownBlob(ref)
        folded = self._fold(events)
        self._rows.update(folded)
        self._keep_blobs(content)
        for event in events:
            self._feed.append(event)
            self._by_id[event.id] = event
            known.add(event, len(self._feed))
            for ref in set(event.refs):
                self._blobs[ref].refs += 1

    def _fold(self, events: Sequence[Event]) -> dict[str, _MemoryRows]:
        folded: dict[str, _MemoryRows] = {}
        for number, event in enumerate(events, len(self._feed) + 1):
            for projection in self._interested.get(event.kind, ()):
                rows = folded.get(projection.name)
                if rows is None:
                    rows = folded[projection.name] = self._rows[projection.name].draft()
                projection.apply(rows, number, event)
        return {name: rows.settled() for name, rows in folded.items()}

    def _keep_blobs(self, content: Mapping[Digest, bytes]) -> None:
        for digest, data in content.items():
            blob = self._blobs.setdefault(digest, _MemoryBlob(data, len(self._feed)))
            blob.born = len(self._feed)


def _to_log(id: LogId, log: _MemoryLog) -> Log:
    return Log(id, log.parent, log.place, log.head, log.tip, "memory", log.epoch)


_Tables = dict[str, dict[tuple[Scalar, ...], Row]]


class _MemoryRows:
    """`Rows` in dictionaries. A draft keeps its changes apart until the append is certain."""

    def __init__(self, projection: Projection, base: _MemoryRows | None = None) -> None:
        self._projection, self._base = projection, base
        self._shapes: dict[str, Table] = (
            base._shapes if base else {table.name: table for table in projection.tables}
        )
        self._tables: _Tables = (
            base._tables if base else {table.name: {} for table in projection.tables}
        )
        self._changes: dict[tuple[str, tuple[Scalar, ...]], Row | None] = {}

    def get(self, table: str, *key: Scalar) -> Row | None:
        if (table, key) in self._changes:
            row = self._changes[table, key]
        else:
            row = self._tables[table].get(key)
        return None if row is None else dict(row)

    def put(self, table: str, row: Row) -> None:
        shape = self._shapes[table]
        kept = checked_row(shape, row)
        self._set(table, tuple([kept[column] for column in shape.key]), kept)

    def delete(self, table: str, *key: Scalar) -> None:
        self._set(table, key, None)

    def draft(self) -> _MemoryRows:
        return _MemoryRows(self._projection, self)

    def settled(self) -> _MemoryRows:
        assert self._base is not None
        for (table, key), row in self._changes.items():
            _assign(self._tables[table], key, row)
        return self._base

    def scan(
        self,
        table: str,
        where: Mapping[str, Scalar],
        order: str | None,
        descending: bool,
        before: Scalar,
        limit: int,
    ) -> list[Row]:
        if table not in self._shapes:
            raise UnknownRows(
                f"{self._projection.name}.{table}", f"the tables are {', '.join(self._shapes)}"
            )
        shape: Table = self._shapes[table]
        order = order or order_of(shape)
        check_columns(self._projection.name, shape, (*where, order))
        check_where({**where, order: before})
        rows = [
            row
            for row in self._tables[table].values()
            if all(row[column] == value for column, value in where.items())
        ]
        if before is not None:
            rows = [
                row
                for row in rows
                if row[order] is not None and _is_past(row[order], before, descending)
            ]
        rows.sort(
            key=lambda row: (False, 0) if row[order] is None else (True, row[order]),
            reverse=descending,
        )
        return [dict(row) for row in rows[:limit]]

    def _set(self, table: str, key: tuple[Scalar, ...], row: Row | None) -> None:
        if self._base is None:
            _assign(self._tables[table], key, row)
        else:
            self._changes[table, key] = row


def _assign(table: dict[tuple[Scalar, ...], Row], key: tuple[Scalar, ...], row: Row | None) -> None:
    if row is None:
        table.pop(key, None)
    else:
        table[key] = row


def _is_past(value: Any, mark: Any, descending: bool) -> bool:
    return bool(value < mark if descending else value > mark)


_instances: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


def _freeze() -> None:
    """Wait for writes under way, so that none is half done when the process is copied."""
    for store in _instances:
        store.freeze()


def _thaw() -> None:
    for store in _instances:
        store.thaw()


def _thaw_child() -> None:
    for store in _instances:
        store.forget_locks()
        store.thaw()


os.register_at_fork(before=_freeze, after_in_parent=_thaw, after_in_child=_thaw_child)
