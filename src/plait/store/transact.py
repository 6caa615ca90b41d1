"""What happens inside the embedded store's write transaction, and what is made ready before it.

Everything that needs no database (hashing, packing, moving a long body to a blob) is done by `prepare` in the caller's
thread. A piece of work refuses by raising before it changes anything: others in the same round are then unharmed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from plait.errors import InvalidValue, LogExists, StaleHead, UnknownBlob
from plait.event import KINDS, Event
from plait.ids import Digest, LogId, Source, parse_log_id
from plait.store import blobs as packing
from plait.store.base import Projection
from plait.store.database import Database
from plait.store.rows import SqlRows, recreate

COLUMNS = "seq, codec, salt, header, body"

_INSERT = "INSERT INTO event (log, seq, kind, short, codec, salt, header, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_ADVANCE = "UPDATE log SET head = ?, tip = ? WHERE key = ? AND head = ? AND tip = ?"


class PreparedEvent(NamedTuple):
    event: Event
    short: int
    codec: int
    body: bytes
    refs: tuple[Digest, ...]


class PackedBlob(NamedTuple):
    size: int
    codec: int
    data: bytes


class Prepared(NamedTuple):
    """Events, and the blobs that come along with them, ready to be inserted."""

    events: list[PreparedEvent]
    blobs: dict[Digest, PackedBlob]

    @property
    def first(self) -> Event:
        return self.events[0].event

    @property
    def last(self) -> Event:
        return self.events[-1].event


def prepare(events: Sequence[Event], blobs: Mapping[Digest, bytes] | None) -> Prepared:
    content = dict(blobs or {})
    packing.check_blobs(content)
    ready: list[PreparedEvent] = []
    for event in events:
        body, refs = event.content, event.refs
        if len(body) > packing.BODY_INLINE_MAX:
            digest = packing.digest_of(body)
            content[digest] = body
            ready.append(PreparedEvent(event, short_of(event.id), packing.IN_BLOB, bytes.fromhex(digest), (*refs, digest)))
        else:
            ready.append(PreparedEvent(event, short_of(event.id), *packing.pack(body), refs))
    return Prepared(ready, {digest: pack_blob(data) for digest, data in content.items()} if content else {})


def pack_blob(content: bytes) -> PackedBlob:
    return PackedBlob(len(content), *packing.pack(content))


class Transact:
    """The pieces of work, each a method that runs inside a transaction which somebody else begins and commits."""

    def __init__(self, db: Database, to_event: Callable[[Any], Event]) -> None:
        self.db = db
        self._to_event = to_event
        self.codes: dict[str, int] = {}
        self.projections: dict[str, Projection] = {}
        self.foreign: tuple[str, ...] = ()  # projections in the file that we do not keep

    def settle_in(self, source: Source) -> LogId:
        """The first work on a file: its id, made once, and a code for every kind."""
        id = self.db.get("SELECT id FROM store")
        if id is None:
            id = to_bytes(source.fresh("store"))
            self.db.execute("INSERT INTO store (id) VALUES (?)", (id,))
        there = {name for (name,) in self.db.rows("SELECT name FROM kind")}
        for kind in KINDS:
            if kind.__name__ not in there:
                self.db.execute("INSERT INTO kind (name) VALUES (?)", (kind.__name__,))
        return to_id(id)

    # ── events ───────────────────────────────────────────────────────────────────────────────

    def begin(self, log: LogId, parent: int | None, prepared: Prepared) -> Digest:
        last = prepared.last
        key = self.db.get("SELECT key FROM log WHERE id = ?", (to_bytes(log),))
        if key is not None:
            if self._stands(key, last):
                return last.id
            raise LogExists(log)
        self._check_refs(prepared)
        self.db.execute(
            "INSERT INTO log (id, parent, place, head, tip) VALUES (?, ?, ?, ?, ?)",
            (to_bytes(log), parent, prepared.first.seq - 1, bytes.fromhex(last.id), last.seq),
        )
        self._insert(self.db.inserted(), prepared)
        return last.id

    def append(self, log: LogId, key: int, after: Digest, prepared: Prepared) -> Digest:
        last = prepared.last
        self._check_refs(prepared)
        self.db.execute(_ADVANCE, (bytes.fromhex(last.id), last.seq, key, bytes.fromhex(after), prepared.first.seq - 1))
        if self.db.changed() != 1:
            return self._not_advanced(log, key, after, last)
        self._insert(key, prepared)
        return last.id

    def _not_advanced(self, log: LogId, key: int, after: Digest, last: Event) -> Digest:
        if self._stands(key, last):
            return last.id
        head, tip = self.db.row("SELECT head, tip FROM log WHERE key = ?", (key,))
        if head.hex() == after:
            raise InvalidValue("seq", f"event {last.seq} does not follow place {tip}")
        raise StaleHead(log, after, head.hex(), tip)

    def _stands(self, key: int, event: Event) -> bool:
        """Whether exactly this event is on record already: then it was appended, and its acknowledgement was lost."""
        rows = self.db.rows(f"SELECT {COLUMNS} FROM event WHERE log = ? AND seq = ?", (key, event.seq))
        return any(self._to_event(row).id == event.id for row in rows)

    def _check_refs(self, prepared: Prepared) -> None:
        for event in prepared.events:
            for ref in event.refs:
                if ref not in prepared.blobs and not self.db.get("SELECT 1 FROM blob WHERE digest = ?", (bytes.fromhex(ref),)):
                    raise UnknownBlob(ref)

    def _insert(self, key: int, prepared: Prepared) -> None:
        db = self.db
        if prepared.blobs:
            self.put_blobs(prepared.blobs)
        for event, short, codec, body, refs in prepared.events:
            header = event.header
            db.execute(_INSERT, (key, header.seq, self.codes[header.kind], short, codec, event.salt, event.raw, body))
            number = db.inserted()
            for ref in refs:
                self._refer(number, ref)
            for projection in self.projections.values():
                if header.kind in projection.kinds:
                    projection.apply(SqlRows(db, projection), number, event)
        for name in self.foreign:  # whoever keeps it folds it again
            db.execute("UPDATE projection SET stale = 1 WHERE name = ? AND stale = 0", (name,))

    # ── blobs ────────────────────────────────────────────────────────────────────────────────

    def put_blobs(self, blobs: Mapping[Digest, PackedBlob]) -> None:
        born = self.db.get("SELECT max(number) FROM event") or 0
        for digest, (size, codec, data) in blobs.items():
            self.db.execute(
                "INSERT INTO blob (digest, size, codec, refs, born, data) VALUES (?, ?, ?, 0, ?, ?) "
                "ON CONFLICT (digest) DO UPDATE SET born = excluded.born WHERE refs = 0 AND born < excluded.born",
                (bytes.fromhex(digest), size, codec, born, data),
            )

    def sweep_blobs(self, before: int) -> int:
        self.db.execute("DELETE FROM blob WHERE refs = 0 AND born < ?", (before,))
        return self.db.changed()

    def _refer(self, number: int, ref: Digest) -> None:
        key = self.db.get("SELECT key FROM blob WHERE digest = ?", (bytes.fromhex(ref),))
        self.db.execute("INSERT OR IGNORE INTO attachment (event, blob) VALUES (?, ?)", (number, key))
        if self.db.changed():
            self.db.execute("UPDATE blob SET refs = refs + 1 WHERE key = ?", (key,))

    # ── projections ──────────────────────────────────────────────────────────────────────────

    def rebuild(self, projection: Projection) -> None:
        rows = SqlRows(self.db, projection)
        recreate(self.db, projection)
        only, codes = only_kinds(projection.kinds, self.codes)
        for row in self.db.execute(f"SELECT {COLUMNS}, number FROM event WHERE true {only} ORDER BY number", codes):
            projection.apply(rows, row[5], self._to_event(row))
        self.db.execute("INSERT OR REPLACE INTO projection (name, version, stale) VALUES (?, ?, 0)", (projection.name, projection.version))


# ── small conversions ────────────────────────────────────────────────────────────────────────


def only_kinds(kinds: Collection[str] | None, codes: Mapping[str, int]) -> tuple[str, list[int]]:
    """A condition that keeps only these kinds; None keeps all."""
    if kinds is None:
        return "", []
    wanted = [code for name, code in codes.items() if name in kinds]
    return f"AND kind IN ({', '.join('?' * len(wanted))})", wanted


def short_of(id: Digest) -> int:
    """The first 8 bytes of an event's id, as the signed integer that is indexed."""
    return int.from_bytes(bytes.fromhex(id[:16]), "big", signed=True)


def to_bytes(log: LogId) -> bytes:
    return bytes.fromhex(parse_log_id(log).replace("-", ""))


def to_id(raw: bytes) -> LogId:
    text = raw.hex()
    return LogId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
