"""The write transaction of the embedded store.

A piece of work refuses by raising before it changes anything: others in the same round are then
unharmed.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

from plait.errors import (
    LogExists,
    StoreCorrupt,
    UnknownLog,
)
from plait.event import KINDS, Event
from plait.event.kinds import HouseOpened
from plait.ids import Digest, LogId, Source
from plait.store import packing
from plait.store.arguments import check_own
from plait.store.chain import check_fork, house_event
from plait.store.epochs import ReadMark, TipsMark, check_epoch
from plait.store.prepare import PackedBlob, Prepared
from plait.store.projection import Projection
from plait.store.records import COLUMNS, short_of, to_bytes, to_event, to_id
from plait.store.sqlite.columns import BY_ID, by_id, get_blob, only_kinds
from plait.store.sqlite.conditions import (
    KeyedFence,
    KeyedPart,
    KeyedTip,
    check_free,
    check_reading,
    check_refs,
    epoch_of,
    event_at,
    is_appended,
    settle_refusal,
    stored_key,
)
from plait.store.sqlite.database import Database
from plait.store.sqlite.tables import SqlRows, recreate

_INSERT = (
    "INSERT INTO event (log, seq, kind, short, codec, salt, header, body) VALUES (?, ?, ?, ?, ?, ?,"
    " ?, ?)"
)
_ADVANCE = "UPDATE log SET head = ?, tip = ? WHERE key = ? AND head = ? AND tip = ?"
# of a log that rests on itself alone, as a run's root does
_ADVANCE_HELD = f"{_ADVANCE} AND epoch = ?"
_FENCED = " AND (SELECT epoch FROM log WHERE key = ?) = ?"
_ENDING = " AND (SELECT tip FROM log WHERE key = ?) = ?"
_RAISE = "UPDATE log SET epoch = epoch + ? WHERE key = ?"
_MUCH = 1 << 20  # bytes of content that are worth making room for
_EVENTS = 256  # that are folded before their rows are written
_REFS = 8  # blobs of one event that are counted before room is made


class Fork(NamedTuple):
    """The parent of a new log, and its fork point."""

    parent: LogId
    key: int
    at: int  # the key of the log on its lineage that holds the fork point


@cache
def _advance(fences: int, tips: int) -> str:
    """The compare-and-set of a log's head under so many conditions, in one statement."""
    return _ADVANCE + _FENCED * fences + _ENDING * tips


class Transact:
    """The pieces of work. Each runs inside a transaction on `db` that the group commit begins."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self._projections: dict[str, Projection] = {}
        self._interested: dict[str, list[tuple[Projection, SqlRows]]] = {}
        # projections in the file that we do not keep, or not in that version
        self._foreign: list[str] = []
        self._seen: tuple[Database, int] | None = None  # when that was looked up

    def take_up(self, projections: Collection[Projection]) -> None:
        self._projections = {projection.name: projection for projection in projections}
        self._seen = None

    def _look_around(self, db: Database) -> None:
        """Look up the projections in the file again if other processes have written: they may keep
        others, or newer ones.
        """
        seen = db, db.others()
        if seen == self._seen:
            return
        there = dict(db.rows("SELECT name, version FROM projection"))
        ours = [each for each in self._projections.values() if there.get(each.name) == each.version]
        self._foreign = list(there.keys() - {each.name for each in ours})
        kinds = {kind for each in ours for kind in each.kinds}
        rows = {each.name: SqlRows(db, each) for each in ours}
        self._interested = {
            kind: [(each, rows[each.name]) for each in ours if kind in each.kinds] for kind in kinds
        }
        self._seen = seen

    def settle_in(self, db: Database, source: Source) -> LogId:
        """Do the first work on a file: its id and house log, once, and a code for every kind."""
        ids = [id for (id,) in db.rows("SELECT id FROM store")]
        if not ids and db.get("SELECT 1 FROM log") is None:
            ids = [to_bytes(source.fresh("store"))]
            db.execute("INSERT INTO store (id) VALUES (?)", ids)
        if len(ids) != 1 or type(ids[0]) is not bytes or len(ids[0]) != 16:
            raise StoreCorrupt(
                f"the store's own id in {db.path}", "there must be exactly one, of 16 bytes"
            )
        there = {name for (name,) in db.rows("SELECT name FROM kind")}
        for kind in KINDS:
            if kind.__name__ not in there:
                db.execute("INSERT INTO kind (name) VALUES (?)", (kind.__name__,))
        # A file with this name among its kinds had a house log. If that is gone, `verify` says so:
        # it is not made anew.
        if HouseOpened.__name__ not in there and not db.get("SELECT 1 FROM log WHERE key = 0"):
            _make_house(db, house_event(to_id(ids[0]), source))
        return to_id(ids[0])

    # ── events ───────────────────────────────────────────────────────────────────────────────

    def begin(
        self,
        db: Database,
        log: LogId,
        fork: Fork | None,
        prepared: Prepared,
        lazy: bool,
        fences: Sequence[KeyedFence],
    ) -> int | None:
        """Returns the new log's key; None if exactly this log stands already."""
        first, last = prepared.first, prepared.last
        for fence, key in fences:
            check_epoch(fence, epoch_of(db, fence, key))
        key = db.get(f"SELECT key FROM log l WHERE {BY_ID}", by_id(log))
        if key is not None:
            if is_appended(db, key, last):
                db.touch()  # it may have been committed without an fsync
                return None
            raise LogExists(log)
        if fork is not None:
            check_fork(first, fork.parent, event_at(db, fork.at, first.seq - 1))
        check_refs(db, prepared)
        db.run(
            "INSERT INTO log (id, parent, place, head, tip, lazy, epoch) VALUES (?, ?, ?, ?, ?,"
            " ?, ?)",
            (
                to_bytes(log),
                fork and fork.key,
                first.seq - 1,
                bytes.fromhex(last.id),
                last.seq,
                lazy,
                prepared.raised,
            ),
        )
        new: int = db.inserted_key()
        self._insert(db, new, prepared)
        return new

    def append(
        self,
        db: Database,
        log: LogId,
        key: int,
        after: Digest,
        prepared: Prepared,
        fences: Sequence[KeyedFence],
    ) -> Digest:
        if not self._append_at(db, key, after, prepared, fences):
            return settle_refusal(db, log, key, after, prepared, fences)
        return prepared.last.id

    def _append_at(
        self,
        db: Database,
        key: int,
        after: Digest,
        prepared: Prepared,
        fences: Sequence[KeyedFence],
        tips: Sequence[KeyedTip] = (),
    ) -> bool:
        """Append to a log that ends there, while other logs have these epochs and these tips."""
        last = prepared.last
        check_refs(db, prepared)
        values = (
            bytes.fromhex(last.id),
            last.seq,
            key,
            bytes.fromhex(after),
            prepared.first.seq - 1,
        )
        if not fences and not tips:
            db.run(_ADVANCE, values)
        elif len(fences) == 1 and fences[0].key == key and not tips:
            db.run(_ADVANCE_HELD, (*values, fences[0].fence.epoch))
        else:
            epochs = [value for fence, at in fences for value in (at, fence.epoch)]
            ends = [value for each in tips for value in each]
            db.run(_advance(len(fences), len(tips)), (*values, *epochs, *ends))
        if db.change_count() != 1:
            return False
        if prepared.raised:
            db.run(_RAISE, (prepared.raised, key))
        self._insert(db, key, prepared)
        return True

    def append_all(
        self,
        db: Database,
        parts: Sequence[KeyedPart],
        fences: Sequence[KeyedFence],
        reading: ReadMark | TipsMark | None = None,
        tips: Sequence[KeyedTip] = (),
    ) -> list[int | None]:
        """Returns the keys of logs that began; None for the others.

        All parts are looked at before the first is written: an act that is refused disturbs no
        other in the same round. `tips` are those of a reading: while they are the same, no event
        was committed that bears on the act.
        """
        log, at, after, prepared, _ = parts[0]
        if len(parts) == 1 and at is not None and reading is None:
            self.append(db, log, at, after, prepared, fences)
            return [None]
        if len(parts) == 1 and at is not None and tips:
            if self._append_at(db, at, after, prepared, fences, tips):
                return [None]
        there = [stored_key(db, part) for part in parts]
        stand = [
            key is not None and is_appended(db, key, part.prepared.last)
            for key, part in zip(there, parts, strict=True)
        ]
        for fence, at in fences:
            raised = [
                part.prepared.raised
                for key, part in zip(there, parts, strict=True)
                if key == at and all(stand)
            ]
            check_epoch(fence, epoch_of(db, fence, at), sum(raised))
        if all(stand):
            db.touch()  # it may have been committed without an fsync
            return [None for _ in parts]
        if reading is not None:
            check_reading(db, reading, self.codes)
        keys: dict[LogId, int | None] = {}  # of the logs that were looked at or have begun
        for key, part in zip(there, parts, strict=True):
            if part.log not in keys:
                check_free(db, key, part)
                keys[part.log] = key
        begun: list[int | None] = []
        for log, _, after, prepared, lazy in parts:
            key = keys[log]
            if key is None:
                keys[log] = self.begin(db, log, None, prepared, lazy, ())
                begun.append(keys[log])
            else:
                self.append(db, log, key, after, prepared, ())
                begun.append(None)
        return begun

    def _insert(self, db: Database, key: int, prepared: Prepared) -> None:
        self._look_around(db)
        if prepared.blobs:
            self.put_blobs(db, prepared.blobs)
        changed: set[SqlRows] = set()
        try:
            self._insert_events(db, key, prepared, changed)
            for rows in changed:
                rows.flush()
        finally:
            for rows in changed:
                rows.forget()
        for name in self._foreign:  # a process that keeps it folds it again
            db.execute("UPDATE projection SET stale = 1 WHERE name = ? AND stale = 0", (name,))

    def _insert_events(
        self, db: Database, key: int, prepared: Prepared, changed: set[SqlRows]
    ) -> None:
        for event, short, codec, packed, body, refs in prepared.events:
            header = event.header
            db.run(
                _INSERT,
                (key, header.seq, self.codes[header.kind], short, codec, event.salt, packed, body),
            )
            interested = self._interested.get(header.kind)
            if refs or interested:
                number = db.inserted_key()
                for count, ref in enumerate(refs, 1):
                    _refer(db, number, ref)
                    if count % _REFS == 0:
                        db.shrink()  # to count a blob SQLite reads all of it
                for projection, rows in interested or ():
                    changed.add(rows)
                    projection.apply(rows, number, event)

    # ── blobs ────────────────────────────────────────────────────────────────────────────────

    def put_blobs(self, db: Database, blobs: Mapping[Digest, PackedBlob]) -> None:
        if sum(len(data) for _, _, data in blobs.values()) >= _MUCH:
            db.shrink()  # the pages of earlier content are not read again soon
        born = db.get("SELECT max(number) FROM event") or 0
        for digest, (size, codec, data) in blobs.items():
            db.execute(
                "INSERT INTO blob (digest, size, codec, refs, born, data) VALUES (?, ?, ?, 0, ?, ?)"
                " ON CONFLICT (digest) DO UPDATE SET born = max(born, excluded.born), size ="
                " excluded.size, codec = excluded.codec, data = excluded.data "
                # Something else may have been planted under this digest: the content in hand is the
                # right one.
                "WHERE refs = 0 AND born < excluded.born OR (size, codec, data) IS NOT"
                " (excluded.size, excluded.codec, excluded.data)",
                (bytes.fromhex(digest), size, codec, born, data),
            )

    def renew_blobs(self, db: Database, digests: Collection[Digest]) -> set[Digest]:
        """Count these blobs as put now.

        Returns those that are gone: a sweep may have come since the caller looked.
        """
        born = db.get("SELECT max(number) FROM event") or 0
        gone: set[Digest] = set()
        for digest in digests:
            name = bytes.fromhex(digest)
            db.execute(
                "UPDATE blob SET born = ? WHERE digest = ? AND refs = 0 AND born < ?",
                (born, name, born),
            )
            if not db.get("SELECT 1 FROM blob WHERE digest = ?", (name,)):
                gone.add(digest)
        return gone

    def sweep_blobs(self, db: Database, before: int, keep: Container[Digest]) -> int:
        unused = db.rows("SELECT key, digest FROM blob WHERE refs = 0 AND born < ?", (before,))
        keys = [key for key, digest in unused if Digest(digest.hex()) not in keep]
        for key in keys:
            db.execute("DELETE FROM blob WHERE key = ?", (key,))
        return len(keys)

    # ── snapshots ────────────────────────────────────────────────────────────────────────────

    def keep(self, db: Database, log: LogId, key: int, seq: int, frame: bytes) -> None:
        row = db.row("SELECT place, tip FROM log WHERE key = ?", (key,))
        if row is None:
            raise UnknownLog(log)  # removed by another process
        check_own(log, seq, *row)
        db.execute(
            "INSERT INTO snapshot (log, seq, data) VALUES (?, ?, ?) ON CONFLICT (log, seq) DO"
            " UPDATE SET data = excluded.data",
            (key, seq, frame),
        )

    def forget_kept(self, db: Database, key: int | None) -> int:
        if key is None:
            db.execute("DELETE FROM snapshot")
        else:
            db.execute("DELETE FROM snapshot WHERE log = ?", (key,))
        return db.change_count()

    # ── projections ──────────────────────────────────────────────────────────────────────────

    def rebuild(self, db: Database, projection: Projection) -> None:
        # first of all: if this fails, a look in an undone round may not be believed
        self._seen = None
        rows = SqlRows(db, projection)
        recreate(db, projection)
        only, codes = only_kinds(projection.kinds, self.codes)
        for count, row in enumerate(
            db.execute(
                f"SELECT {COLUMNS}, number FROM event WHERE number > 0 {only} ORDER BY number",
                codes,
            )
        ):
            projection.apply(rows, row[5], to_event(row, partial(get_blob, db)))
            if count % _EVENTS == 0:
                rows.flush()
        rows.flush()
        db.execute(
            "INSERT OR REPLACE INTO projection (name, version, stale) VALUES (?, ?, 0)",
            (projection.name, projection.version),
        )


def _make_house(db: Database, first: Event) -> None:
    """Insert the house log with the key 0, and its first event with the number 0: later logs and
    events count from 1.
    """
    code = db.get("SELECT code FROM kind WHERE name = ?", (first.kind,))
    packed = packing.pack_event(first.raw, first.content)
    db.execute(
        "INSERT INTO log (key, id, parent, place, head, tip) VALUES (0, ?, NULL, 0, ?, 1)",
        (to_bytes(first.log), bytes.fromhex(first.id)),
    )
    db.execute(
        "INSERT INTO event (number, log, seq, kind, short, codec, salt, header, body) VALUES (0, 0,"
        " 1, ?, ?, ?, ?, ?, ?)",
        (code, short_of(first.id), packed[0], first.salt, *packed[1:]),
    )


def _refer(db: Database, number: int, ref: Digest) -> None:
    key = db.get("SELECT key FROM blob WHERE digest = ?", (bytes.fromhex(ref),))
    db.execute("INSERT OR IGNORE INTO attachment (event, blob) VALUES (?, ?)", (number, key))
    if db.change_count():
        db.execute("UPDATE blob SET refs = refs + 1 WHERE key = ?", (key,))
