"""The embedded store: one SQLite file in a folder.

The path of an append is short on purpose. The event is packed in the caller's thread; the
transaction is one compare-and-set of the log's head and one insert; the fsync is shared with
whoever writes at the same moment (`commit.py`). Reads take a connection of their own, in pages, so
that no reader holds the write-ahead log open.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw
import msgspec

from plait.errors import (
    PlaitError,
    RowsTooNew,
    StoreCorrupt,
    UnknownBlob,
    UnknownEvent,
    UnknownLog,
    UnknownRows,
)
from plait.event import Event
from plait.event.codec import EVENT_TAG
from plait.ids import Digest, LogId, Source, parse_digest, parse_log_id
from plait.store import packing
from plait.store.arguments import (
    check_durability,
    check_kinds,
    check_limit,
    check_number,
    check_place,
    check_prefix,
    check_span,
)
from plait.store.base import BlobInfo, Durability, Log, Record, Unchecked
from plait.store.blobs import check_size, checked, digest_of
from plait.store.chain import check_chain, check_fork, first_parent, is_async
from plait.store.checks import file_faults, kind_faults, row_faults, schema_faults, unchecked_parts
from plait.store.connections import Connections, opening
from plait.store.database import (
    BUSY_S,
    PRAGMAS,
    Database,
    Migration,
    check_tables,
    connect,
    migrate,
)
from plait.store.epochs import Fence
from plait.store.folder import make_folder
from plait.store.lineage import Lineage, LineageSpan, cut_lineage, extend_lineage
from plait.store.locks import FileLock
from plait.store.projection import Projection, Row, Scalar, Table
from plait.store.rows import check_names, scan
from plait.store.schema import MIGRATIONS
from plait.store.transact import (
    BY_ID,
    COLUMNS,
    Fork,
    KeyedFence,
    Transact,
    by_id,
    content_of,
    get_blob,
    holds_blob,
    only_kinds,
    pack_blob,
    prepare,
    short_of,
    to_event,
    to_id,
)

FILE = "store.db"
_PAGE = 512  # events fetched at a time
# The ids come as one JSON text, so that the statement is the same for any number of them.
_HEADS = (
    "SELECT asked.value, p.id, l.place, l.head, l.tip, l.lazy, l.epoch "
    "FROM json_each(?) asked CROSS JOIN log l LEFT JOIN log p ON p.key = l.parent "
    "WHERE substr(l.id, 11) = unhex(substr(asked.value, 25)) AND l.id = unhex(asked.value, '-')"
)
_CACHE_MAX = 10_000  # logs whose lineage is kept flat in memory


class _Known(NamedTuple):
    """What never changes about a log."""

    key: int
    lineage: Lineage
    lazy: bool  # its commits need no fsync of their own


class SqliteStore:
    """A store in `folder/store.db`."""

    def __init__(
        self,
        folder: str | Path,
        *,
        source: Source,
        projections: Sequence[Projection] = (),
        migrations: Sequence[Migration] = MIGRATIONS,
        busy_s: float = BUSY_S,
        durability: Literal["full", "async"] = "full",
    ) -> None:
        check_durability(durability)
        self.durability: Durability = durability
        self._folder = Path(os.path.realpath(folder))
        self.address = f"sqlite:{self._folder}"
        self.path = str(self._folder / FILE)
        make_folder(self._folder, FILE)
        with opening:
            first = connect(self.path, create=True, busy_s=busy_s)
            try:
                migrate(first, migrations)
                check_tables(first, tuple(migrations))
            except (apsw.Error, UnicodeDecodeError) as error:
                raise first.translate(error) from error
            finally:
                first.close()
            # Still inside: whoever is past this point is known to a fork.
            self._connections = Connections(
                self.address, self.path, partial(connect, self.path, busy_s=busy_s)
            )
        self._work = Transact()
        self._known: dict[LogId, _Known] = {}
        self._names: dict[int, str] = {}
        self._projections: dict[str, Projection] = {}
        self._newer: dict[str, tuple[int, int]] = {}  # the version in the file, and ours
        self._migrations = tuple(migrations)
        self.id: LogId = self._connections.write(lambda db: self._work.settle_in(db, source))
        self.attach(projections)

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
        fork, lineage = self._fork(events[0], parent)
        lazy = self._find(parent).lazy if parent else is_async(events[0])
        prepared = prepare(events, blobs)
        keyed = [KeyedFence(fence, self._find(fence.log).key) for fence in fences]
        key = self._connections.write(
            lambda db: self._work.begin(db, log, fork, prepared, lazy, keyed), not lazy
        )
        if key is not None:
            self._remember(log, _Known(key, extend_lineage(lineage, events[0].seq - 1, log), lazy))
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
        known, prepared = self._find(log), prepare(events, blobs)
        keyed = [KeyedFence(fence, self._find(fence.log).key) for fence in fences] if fences else ()
        return self._connections.write(
            lambda db: self._work.append(db, log, known.key, after, prepared, keyed),
            flush or not known.lazy,
        )

    def flush(self) -> None:
        self._connections.sync()

    def log(self, log: LogId) -> Log:
        with self._reader() as db:
            return self._log(db, log)

    def heads(self, logs: Sequence[LogId]) -> dict[LogId, Log]:
        asked = msgspec.json.encode([parse_log_id(log) for log in logs]).decode()
        with self._reader() as db:
            return {row[0]: _to_log(*row) for row in db.rows(_HEADS, (asked,))}

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
        check_kinds(kinds, self._work.codes)
        known = self._find(log)
        with self._reader() as db:
            tip = self._log(db, log).tip
        spans = cut_lineage(known.lineage, max(first, 1), tip if last is None else min(last, tip))
        return self._read(list(reversed(spans)) if reverse else spans, kinds, reverse)

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

    def records(self, log: LogId) -> Iterator[Record]:
        with self._reader() as db:
            # its lineage may be what is broken
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
                refs = self._attached(db, [row[5] for row in rows])
                records = [self._to_record(log, row, refs.get(row[5], ())) for row in rows]
            yield from records
            if len(rows) < _PAGE:
                return
            after = rows[-1][0], rows[-1][6], rows[-1][5]

    # ── blobs ────────────────────────────────────────────────────────────────────────────────

    def put_blob(self, content: bytes) -> Digest:
        check_size(content)
        digest = digest_of(content)
        with self._reader() as db:
            there = holds_blob(db, digest, content)
            any_async = db.get("SELECT 1 FROM log WHERE lazy = 1 LIMIT 1")
        if there:
            if any_async:
                # an event of an async log may have brought it, a moment ago, in whichever process
                self.flush()
            return digest
        packed = {digest: pack_blob(content)}
        self._connections.write(lambda db: self._work.put_blobs(db, packed))
        return digest

    def put_blobs(self, contents: Mapping[Digest, bytes]) -> None:
        content = checked(contents)
        # Those of another length were planted. To read the others, too, would cost as much again:
        # `verify` does.
        missing = self.missing_blobs(content) | self._blobs_of_other_sizes(content)
        packed = {digest: pack_blob(content[digest]) for digest in missing}
        if packed:
            self._connections.write(lambda db: self._work.put_blobs(db, packed))
        if len(missing) < len(content):
            with self._reader() as db:
                any_async = db.get("SELECT 1 FROM log WHERE lazy = 1 LIMIT 1")
            if any_async:
                self.flush()  # as in put_blob

    def missing_blobs(self, digests: Collection[Digest]) -> set[Digest]:
        names = [parse_digest(digest) for digest in digests]
        with self._reader() as db:
            born = db.get("SELECT max(number) FROM event") or 0
            sql = (
                "SELECT j.value, b.refs = 0 AND b.born < ? FROM json_each(?) j JOIN blob b ON"
                " b.digest = unhex(j.value)"
            )
            there = dict(db.rows(sql, (born, msgspec.json.encode(names).decode())))
        old = [digest for digest, is_old in there.items() if is_old]
        gone = (
            self._connections.write(lambda db: self._work.renew_blobs(db, old))
            if old
            else set[Digest]()
        )
        return (set(names) - there.keys()) | gone

    def get_blob(self, digest: Digest) -> bytes:
        with self._reader() as db:
            return get_blob(db, digest)

    def blob_info(self, digest: Digest) -> BlobInfo:
        with self._reader() as db:
            row = db.row(
                "SELECT size, length(data), refs FROM blob WHERE digest = ?",
                (bytes.fromhex(parse_digest(digest)),),
            )
        if row is None:
            raise UnknownBlob(digest)
        return BlobInfo(*row)

    def blobs(self) -> Iterator[Digest]:
        after = -(2**63)
        while True:
            with self._reader() as db:
                rows = db.rows(
                    "SELECT key, digest FROM blob WHERE key > ? ORDER BY key LIMIT ?",
                    (after, _PAGE),
                )
                digests = [Digest(digest.hex()) for _, digest in rows]
            yield from digests
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def sweep_blobs(self, *, before: int, keep: Container[Digest] = frozenset()) -> int:
        check_number("before", before)
        return self._connections.write(lambda db: self._work.sweep_blobs(db, before, keep))

    # ── snapshots ────────────────────────────────────────────────────────────────────────────

    def keep(self, log: LogId, seq: int, data: bytes) -> None:
        check_size(data, "data")
        known, frame = self._find(log), packing.frame(data)
        self._connections.write(
            lambda db: self._work.keep(db, log, known.key, seq, frame), not known.lazy
        )

    def kept(self, log: LogId, upto: int) -> tuple[LogId, int, bytes] | None:
        check_place("upto", upto)
        for span in reversed(cut_lineage(self._find(log).lineage, 1, upto)):
            found = self._kept(span)
            if found is not None:
                return span.log, *found
        return None

    def all_kept(self, log: LogId) -> list[tuple[int, bytes]]:
        key = self._find(log).key
        with self._reader() as db:
            rows = db.rows("SELECT seq, data FROM snapshot WHERE log = ? ORDER BY seq", (key,))
        return [(seq, data) for seq, frame in rows if (data := _unframed(frame)) is not None]

    def forget_kept(self, log: LogId | None = None) -> int:
        key = None if log is None else self._find(log).key
        return self._connections.write(lambda db: self._work.forget_kept(db, key))

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
        sql, values = scan(
            projection, self._shape(projection, table), where or {}, order, descending, before
        )
        with self._reader() as db:
            version, stale = db.row(
                "SELECT version, stale FROM projection WHERE name = ?", (projection,)
            ) or (0, 1)
            version = int(version)
        if version > self._projections[projection].version:
            raise RowsTooNew(projection, version, self._projections[projection].version)
        if stale:
            self.rebuild(projection)
        columns = self._shape(projection, table).columns
        with self._reader() as db:
            return [dict(zip(columns, row, strict=True)) for row in db.rows(sql, (*values, limit))]

    def attach(self, projections: Sequence[Projection]) -> None:
        self._reload_kinds()
        with self._reader() as db:
            there = {
                name: (int(version), stale)
                for name, version, stale in db.rows("SELECT name, version, stale FROM projection")
            }
        for projection in projections:
            check_names(projection)
            version, stale = there.get(projection.name, (0, 1))
            if version > projection.version:
                # kept by a newer program: foreign to us
                self._newer[projection.name] = version, projection.version
                continue
            self._projections[projection.name] = projection
            if stale or version < projection.version:
                self.rebuild(projection.name)
        self._work.take_up(self._projections.values())

    def rebuild(self, projection: str) -> None:
        kept = self._projections.get(projection)
        if kept is None:
            raise UnknownRows(projection)
        self._connections.write(lambda db: self._work.rebuild(db, kept))

    # ── locks ────────────────────────────────────────────────────────────────────────────────

    def lock(self, run: str, session: str) -> FileLock:
        return FileLock(self._folder, run, session)

    # ── the store as a whole ─────────────────────────────────────────────────────────────────

    @property
    def folder(self) -> Path:
        return self._folder

    def check(self) -> list[str]:
        """SQLite's own look at every page and index: a search by a damaged index finds nothing, and
        nobody would know.
        """
        with self._reader() as db:
            whole: str = db.get("PRAGMA integrity_check(1)")
            if whole != "ok":
                raise StoreCorrupt(self.path, whole)
            return [
                *file_faults(db, self.id, len(self._migrations)),
                *schema_faults(db, self._migrations, self._projections.values()),
                *kind_faults(db, self._names),
                *row_faults(db),
            ]

    def unchecked(self) -> list[Unchecked]:
        with self._reader() as db:
            return unchecked_parts(db, self._projections.values())

    def describe(self) -> dict[str, object]:
        with self._reader() as db:
            pragmas = {
                name: db.get(f"PRAGMA {name}") for name in ("journal_mode", "page_size", *PRAGMAS)
            }
            return {
                "address": self.address,
                "id": self.id,
                "schema": db.get("PRAGMA user_version"),
                "pragmas": pragmas,
                "logs": db.get("SELECT count(*) FROM log WHERE key != 0"),
                "events": db.get("SELECT count(*) FROM event WHERE number != 0"),
                "blobs": db.get("SELECT count(*) FROM blob"),
                "bytes": sum(
                    os.path.getsize(self.path + end)
                    for end in ("", "-wal")
                    if os.path.exists(self.path + end)
                ),
            }

    @property
    def closed(self) -> bool:
        return self._connections.closed or self._connections.gone()

    @property
    def closed_lately(self) -> bool:
        """As `closed`, for whoever asks at every append: a removed file is noticed
        a moment later.
        """
        return self._connections.closed or self._connections.gone_lately()

    def close(self) -> None:
        self._connections.close()

    def __repr__(self) -> str:
        return f"<SqliteStore {self.address}>"

    # ── helpers ──────────────────────────────────────────────────────────────────────────────

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

    def _read(
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

    def _blobs_of_other_sizes(self, contents: Mapping[Digest, bytes]) -> set[Digest]:
        sizes = {digest: len(content) for digest, content in contents.items()}
        sql = (
            "SELECT j.key FROM json_each(?) j JOIN blob b ON b.digest = unhex(j.key) WHERE b.size"
            " != j.value"
        )
        with self._reader() as db:
            return {digest for (digest,) in db.rows(sql, (msgspec.json.encode(sizes).decode(),))}

    def _attached(self, db: Database, numbers: list[int]) -> dict[int, tuple[Digest, ...]]:
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

    def _kept(self, stretch: LineageSpan) -> tuple[int, bytes] | None:
        """The last bytes kept in this stretch that can be read: a broken cache is
        as good as none.
        """
        key, last = self._find(stretch.log).key, stretch.last
        sql = (
            "SELECT seq, data FROM snapshot WHERE log = ? AND seq BETWEEN ? AND ? ORDER BY seq DESC"
            " LIMIT 1"
        )
        with self._reader() as db:
            while (row := db.row(sql, (key, stretch.first, last))) is not None:
                if (data := _unframed(row[1])) is not None:
                    return row[0], data
                last = row[0] - 1
        return None

    def _to_record(self, log: LogId, row: Any, refs: tuple[Digest, ...]) -> Record:
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
        return Record(
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

    def _find(self, log: LogId) -> _Known:
        """The log's key and flat lineage. Neither ever changes, so what is found once is kept."""
        known = self._known.get(log)
        if known is not None:
            return known
        parse_log_id(log)
        trail: dict[LogId, tuple[int, int, bool]] = {}
        lineage: Lineage = ()
        with self._reader() as db:
            id: LogId | None = log
            while id is not None:
                if (known := self._known.get(id)) is not None:
                    lineage = known.lineage
                    break
                row = db.row(
                    "SELECT l.key, l.place, l.lazy, p.id FROM log l LEFT JOIN log p ON p.key ="
                    f" l.parent WHERE {BY_ID}",
                    by_id(id),
                )
                if row is None:
                    raise UnknownLog(log)
                if id in trail:
                    raise StoreCorrupt(f"log {log}", "its lineage runs in a circle")
                _check_types(id, row[:2], (int, int))
                trail[id] = row[0], row[1], bool(row[2])
                id = None if row[3] is None else to_id(row[3])
        for id, (key, place, lazy) in reversed(trail.items()):
            lineage = extend_lineage(lineage, place, id)
            known = self._remember(id, _Known(key, lineage, lazy))
        assert known is not None
        return known

    def _remember(self, log: LogId, known: _Known) -> _Known:
        if len(self._known) > _CACHE_MAX:
            self._known.clear()
        self._known[log] = known
        return known

    def _shape(self, projection: str, table: str) -> Table:
        if projection in self._newer:
            raise RowsTooNew(projection, *self._newer[projection])
        if projection not in self._projections:
            raise UnknownRows(projection)
        for shape in self._projections[projection].tables:
            if shape.name == table:
                return shape
        tables = ", ".join(shape.name for shape in self._projections[projection].tables)
        raise UnknownRows(f"{projection}.{table}", f"the tables are {tables}")

    def _reload_kinds(self) -> dict[int, str]:
        with self._reader() as db:
            self._names = dict(db.rows("SELECT code, name FROM kind"))
        self._work.codes = {name: code for code, name in self._names.items()}
        return self._names

    def _reader(self) -> AbstractContextManager[Database]:
        return self._connections.reading()


# ── small conversions ────────────────────────────────────────────────────────────────────────


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


def _unframed(data: bytes) -> bytes | None:
    try:
        return packing.unpack(packing.ZSTD, data, packing.SNAPSHOT_SIZE_MAX)
    except StoreCorrupt:
        return None


def _to_log(
    id: LogId, parent: bytes | None, place: int, head: bytes, tip: int, lazy: int, epoch: int
) -> Log:
    _check_types(id, (place, head, tip, epoch), (int, bytes, int, int))
    return Log(
        id,
        None if parent is None else to_id(parent),
        place,
        Digest(head.hex()),
        tip,
        "async" if lazy else "full",
        epoch,
    )


def _check_types(log: LogId, values: Sequence[object], types: Sequence[type]) -> None:
    """The tables allow nothing else, but a damaged page can give anything."""
    if not all(isinstance(value, type) for value, type in zip(values, types, strict=True)):
        raise StoreCorrupt(f"log {log}", "its row holds something else than it should")
