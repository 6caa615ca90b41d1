"""Writing to logs in a PostgreSQL store: an append, a beginning, and acts over several logs.

A statement that changes nothing was refused by one of its conditions. Which one is asked
afterwards: the answer is a typed error, or that the very same events stand already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import psycopg

from plait.errors import (
    EventsLost,
    LogExists,
    StaleReading,
    UnknownBlob,
    UnknownEvent,
    UnknownLog,
)
from plait.event import Event
from plait.ids import Digest, LogId, parse_log_id
from plait.store.base import HeadsQuestion, LogAppend
from plait.store.chain import check_chain, check_fork, check_parts, first_parent, is_async
from plait.store.epochs import Fence, ReadMark, TipsMark, check_epoch
from plait.store.lineage import Lineage, cut_lineage, extend_lineage
from plait.store.postgres.blobs import PostgresBlobs
from plait.store.postgres.connections import ServerConnection, ServerConnections
from plait.store.postgres.core import LogFacts
from plait.store.postgres.faults import is_collision, is_lost, unknown_outcome
from plait.store.postgres.heads import heads_in
from plait.store.postgres.large import ERA_PASSED, EraPassed, large_of
from plait.store.postgres.shares import (
    KeptEvent,
    LockedLog,
    LogShare,
    check_count,
    check_free,
    check_head,
    shares_of,
)
from plait.store.postgres.statements import LogFence, Write, append_write, begin_write
from plait.store.postgres.wire import unpack_int8
from plait.store.prepare import PackedBlob, Prepared, prepare
from plait.store.records import COLUMNS, short_of, to_bytes, to_event

T = TypeVar("T")

KEPT_MAX = 10_000  # logs whose last event of this process is in memory

_AT = f"SELECT {COLUMNS} FROM {{s}}.event WHERE log = $1::int8 AND seq = $2::int4"
_LOCKED = """
SELECT l.id, l.key, l.head, l.tip, l.epoch FROM {s}.log l WHERE id = ANY($1::bytea[])
ORDER BY key FOR UPDATE"""
# Waits for all appends that are on their way, and lets none begin until the act is over. Appends
# queue behind it meanwhile, so it lets them pass after a second, and is tried again.
_ALONE = "SET LOCAL lock_timeout = '1s'; LOCK TABLE {s}.event IN SHARE ROW EXCLUSIVE MODE"
_AFTER = """
SELECT 1 FROM {s}.event WHERE number > $1::int8 AND kind = ANY($2::int2[])
    AND NOT number = ANY($3::int8[]) LIMIT 1"""
_AFTER_TIPS = """
SELECT 1 FROM unnest($1::bytea[], $2::int4[]) AS read (id, tip) JOIN {s}.log l ON l.id = read.id
JOIN {s}.event e ON e.log = l.key AND e.seq > read.tip AND e.kind = ANY($3::int2[]) LIMIT 1"""


class PostgresWriting(PostgresBlobs):
    """Logs and their ends."""

    def __init__(self, connections: ServerConnections, schema: str, bucket: str = "") -> None:
        super().__init__(connections, schema, bucket)
        self._kept: dict[int, KeptEvent] = {}

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
        check_count(len(events))
        key, lineage, lazy = self._check_fork(events[0], parent)
        self._check_merged([events])
        codes, prepared = self._codes_for(events), prepare(events, blobs)
        keyed, name = self._keyed(fences), to_bytes(log)

        def write_in(era: int | None) -> int | None:
            write = begin_write(prepared, codes, name, key, keyed, is_lazy_log=lazy, era=era)
            return self._run(
                partial(self._begin, log=log, write=write, prepared=prepared, fences=fences)
            )

        new = self._with_uploads(prepared.blobs, write_in)
        if new is not None:
            self._remember(
                log, LogFacts(new, extend_lineage(lineage, events[0].seq - 1, log), lazy)
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
        check_count(len(events))
        known = self._find(log)
        self._check_merged([events])
        codes, prepared = self._codes_for(events), prepare(events, blobs)
        keyed, lazy = self._keyed(fences), known.lazy and not flush
        asked = [to_bytes(each) for each in question.logs] if question is not None else ()

        def write_in(era: int | None) -> Digest:
            write = append_write(
                prepared, codes, known.key, after, keyed, lazy=lazy, era=era, asked=asked
            )
            return self._run(
                partial(
                    self._append,
                    log=log,
                    key=known.key,
                    after=after,
                    write=write,
                    prepared=prepared,
                    fences=keyed,
                    question=question,
                )
            )

        head = self._with_uploads(prepared.blobs, write_in)
        self._windows.extend(log, events)
        self._note_kept(known.key, events[-1])
        return head

    def append_all(
        self,
        parts: Sequence[LogAppend],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        fences: Sequence[Fence] = (),
        reading: ReadMark | TipsMark | None = None,
    ) -> list[Digest]:
        check_parts(parts)
        if len(parts) == 1 and reading is None:
            return [self._append_part(parts[0], blobs, fences)]
        check_count(sum(len(part.events) for part in parts))
        self._check_merged([part.events for part in parts])
        shares = shares_of(parts)
        for share in shares:
            self._codes_for(share.events)  # a question, perhaps: not in the middle of the act
        prepared = [
            prepare(share.events, None if number else blobs) for number, share in enumerate(shares)
        ]
        lazy = [
            is_async(share.events[0]) if share.after is None else self._find(share.log).lazy
            for share in shares
        ]
        for fence in fences:
            self._find(fence.log)
        act = partial(
            self._act, shares=shares, prepared=prepared, lazy=lazy, fences=fences, reading=reading
        )
        uploads = {digest: blob for each in prepared for digest, blob in each.blobs.items()}
        begun = self._with_uploads(uploads, lambda era: self._run(partial(act, era=era)))
        for share, key, is_lazy in zip(shares, begun, lazy, strict=True):
            if key is not None:
                self._remember(share.log, LogFacts(key, extend_lineage((), 0, share.log), is_lazy))
            else:
                self._note_kept(self._find(share.log).key, share.events[-1])
        return [part.events[-1].id for part in parts]

    def _append_part(
        self, part: LogAppend, blobs: Mapping[Digest, bytes] | None, fences: Sequence[Fence]
    ) -> Digest:
        """Write an act that is one append, or one beginning: by one statement."""
        if part.after is None:
            return self.begin(part.log, part.events, blobs=blobs, fences=fences)
        return self.append(part.log, part.events, after=part.after, blobs=blobs, fences=fences)

    def flush(self) -> None:
        """Commit something that has to reach the disk: all that was committed before does, too."""
        self._run(self._sync)

    def _sync(self, db: ServerConnection) -> None:
        """Commit something that waits for the disk, and for standbys."""
        db.run(self._sql("UPDATE {s}.store SET synced = synced + 1"))

    def _sync_standing(self, db: ServerConnection) -> None:
        """Make events safe that were found to stand, before they are acknowledged: the commit that
        wrote them may have been cut off while it waited, and then it is visible without being safe.
        """
        try:
            self._sync(db)
        except psycopg.Error as error:
            if is_lost(error) or is_collision(error):
                raise
            raise unknown_outcome(self._connections.address, error) from error

    # ── before the statement ─────────────────────────────────────────────────────────────────

    def _check_merged(self, parts: Sequence[Sequence[Event]]) -> None:
        """Raise unless the merged branches are there, or were written earlier in the same act. An
        event that is there stays there.
        """
        new = set[Digest]()
        for events in parts:
            for event in events:
                for id in event.header.parents[1:]:
                    if id not in new:
                        self._check_event(id)
            new.update([event.id for event in events] if len(parts) > 1 else ())

    def _codes_for(self, events: Sequence[Event]) -> list[int]:
        try:
            return [self._codes[event.kind] for event in events]
        except KeyError:
            self._load_kinds()
            return [self._codes[event.kind] for event in events]

    def _keyed(self, fences: Sequence[Fence]) -> list[LogFence]:
        return [LogFence(fence, self._find(fence.log).key) for fence in dict.fromkeys(fences)]

    def _check_event(self, id: Digest) -> None:
        sql = self._sql(f"SELECT {COLUMNS} FROM {{s}}.event WHERE short = $1::int8")
        rows = self._run(lambda db: db.rows(sql, short_of(id)))
        if not any(to_event(row, self.get_blob).id == id for row in rows):
            raise UnknownEvent(id)

    def _check_fork(self, first: Event, parent: LogId | None) -> tuple[int | None, Lineage, bool]:
        """Return the parent's key, its lineage, and if the new log is written lazily."""
        if parent is None:
            check_fork(first, None, None)
            return None, (), is_async(first)
        known, place = self._find(parent), first.seq - 1
        at = [self._find(span.log).key for span in cut_lineage(known.lineage, place, place)]
        point = self._run(lambda db: self._event_at(db, at[0], place)) if at else None
        check_fork(first, parent, point)
        return known.key, known.lineage, known.lazy

    def _with_uploads(
        self, blobs: Mapping[Digest, PackedBlob], write_in: Callable[[int | None], T]
    ) -> T:
        """Upload the large ones of these blobs, and write what names them. `write_in` is given
        their era; None: none of them is large.
        """
        if not blobs:
            return write_in(None)
        while True:
            try:
                return write_in(self._upload(blobs))
            except EraPassed:
                continue

    # ── the statement ────────────────────────────────────────────────────────────────────────

    def _write(
        self,
        db: ServerConnection,
        write: Write,
        prepared: Prepared,
        question: HeadsQuestion | None = None,
    ) -> int | None:
        """Run a statement that writes. Returns the key of the log; None: a condition refused it."""
        name, sql, values, era = write
        try:
            result = db.run_prepared(name, self._bytes_of(name, sql), values)
        except psycopg.errors.ForeignKeyViolation as error:
            raise UnknownBlob(_missing_ref(error, prepared)) from error
        if result.ntuples:
            if question is not None and question.logs:
                question.answer = heads_in(result, 2)
            return unpack_int8(result.get_value(0, 0))
        if era is not None and db.get(self._sql(ERA_PASSED), era):
            raise EraPassed
        return None

    def _bytes_of(self, name: bytes, sql: str) -> bytes:
        found = self._hot.get(name)
        if found is None:
            found = self._hot[name] = self._sql(sql).encode()
        return found

    def _begin(
        self,
        db: ServerConnection,
        log: LogId,
        write: Write,
        prepared: Prepared,
        fences: Sequence[Fence],
    ) -> int | None:
        """Returns the new log's key; None if exactly this log stands already."""
        key = self._write(db, write, prepared)
        if key is not None:
            return key
        for fence in fences:
            check_epoch(fence, self._epoch_of(db, fence))
        key = db.get(self._sql("SELECT key FROM {s}.log WHERE id = $1::bytea"), to_bytes(log))
        if key is None:  # refused by a fence that is right again
            return self._begin(db, log, write, prepared, fences)
        if self._is_appended(db, key, prepared.last):
            self._sync_standing(db)
            return None
        raise LogExists(log)

    def _append(
        self,
        db: ServerConnection,
        log: LogId,
        key: int,
        after: Digest,
        write: Write,
        prepared: Prepared,
        fences: Sequence[LogFence],
        question: HeadsQuestion | None,
    ) -> Digest:
        self._check_kept(db, log, key)
        while self._write(db, write, prepared, question) is None:
            last = prepared.last
            stands = self._is_appended(db, key, last)
            for fence, at in fences:
                raised = prepared.raised if stands and at == key else 0
                check_epoch(fence, self._epoch_of(db, fence), raised)
            if stands:
                self._sync_standing(db)
                return last.id
            row = db.row(self._sql("SELECT head, tip FROM {s}.log WHERE key = $1::int8"), key)
            if row is None:
                raise UnknownLog(log)
            check_head(log, after, prepared, *row)
        return prepared.last.id

    def _note_kept(self, key: int, last: Event) -> None:
        """Remember the last event of a log that this process got acknowledged."""
        if len(self._kept) > KEPT_MAX:
            self._kept.clear()
        self._kept[key] = KeptEvent(last.seq, last.id, self._connections.losses)

    def _check_kept(self, db: ServerConnection, log: LogId, key: int) -> None:
        """Raise if the connection broke, and what this process wrote before is gone: the server has
        crashed, or another one has taken over. A thread whose value is older would go on as if it
        had never been there.
        """
        kept, losses = self._kept.get(key), self._connections.losses
        if kept is None or kept.losses == losses:
            return
        there = self._event_at(db, key, kept.seq)
        if there is None or there.id != kept.id:
            self._kept.pop(key, None)
            tip = db.get(self._sql("SELECT tip FROM {s}.log WHERE key = $1::int8"), key)
            raise EventsLost(log, kept.seq, tip or 0)
        self._kept[key] = kept._replace(losses=losses)

    def _act(
        self,
        db: ServerConnection,
        shares: Sequence[LogShare],
        prepared: Sequence[Prepared],
        lazy: Sequence[bool],
        fences: Sequence[Fence],
        reading: ReadMark | TipsMark | None,
        era: int | None,
    ) -> list[int | None]:
        """Returns the keys of logs that began; None for the others."""
        with db.transaction():
            if isinstance(reading, ReadMark):
                db.run_script(self._sql(_ALONE))
            read = reading.tips if isinstance(reading, TipsMark) else ()
            logs = self._locked_logs(
                db, [*[share.log for share in shares], *[f.log for f in fences], *read]
            )
            stands = all(
                share.log in logs
                and logs[share.log].tip >= ready.last.seq
                and self._is_appended(db, logs[share.log].key, ready.last)
                for share, ready in zip(shares, prepared, strict=True)
            )
            for fence in fences:
                if fence.log not in logs:
                    raise UnknownLog(fence.log)
                raised = [
                    ready.raised
                    for share, ready in zip(shares, prepared, strict=True)
                    if stands and share.log == fence.log
                ]
                check_epoch(fence, logs[fence.log].epoch, sum(raised))
            if stands:
                self._sync_standing(db)
                return [None for _ in shares]
            if isinstance(reading, ReadMark):
                self._check_reading(db, reading)
            elif reading is not None:
                self._check_tips(db, reading, logs)
            for share in shares:
                check_free(share, logs.get(share.log))
            return self._write_shares(db, shares, prepared, lazy, logs, era)

    def _write_shares(
        self,
        db: ServerConnection,
        shares: Sequence[LogShare],
        prepared: Sequence[Prepared],
        lazy: Sequence[bool],
        logs: Mapping[LogId, LockedLog],
        era: int | None,
    ) -> list[int | None]:
        begun: list[int | None] = []
        need_not_sync = all(lazy) and all(share.after is not None for share in shares)
        for share, ready, is_lazy in zip(shares, prepared, lazy, strict=True):
            codes, at = self._codes_for(share.events), share.places
            named = era if large_of(ready.blobs) else None
            if share.after is None:
                write = begin_write(
                    ready,
                    codes,
                    to_bytes(share.log),
                    None,
                    (),
                    is_lazy_log=is_lazy,
                    places=at,
                    era=named,
                )
            else:
                key, after = logs[share.log].key, share.after
                write = append_write(
                    ready, codes, key, after, (), lazy=need_not_sync, places=at, era=named
                )
            key = self._write(db, write, ready)
            if key is None:  # the log began meanwhile, or the first event does not follow its tip
                found = self._locked_logs(db, [share.log])[share.log]
                check_free(share, found)
                check_head(share.log, found.head, ready, bytes.fromhex(found.head), found.tip)
            begun.append(key if share.after is None else None)
        return begun

    # ── what stands ──────────────────────────────────────────────────────────────────────────

    def _locked_logs(self, db: ServerConnection, logs: Sequence[LogId]) -> dict[LogId, LockedLog]:
        names = {to_bytes(log): log for log in logs}
        rows = db.rows(self._sql(_LOCKED), list(names))
        return {
            names[id]: LockedLog(key, Digest(head.hex()), tip, epoch)
            for id, key, head, tip, epoch in rows
        }

    def _check_reading(self, db: ServerConnection, reading: ReadMark) -> None:
        """Raise if an event bears on the act that its writer has not seen. No other act is on its
        way.
        """
        asked = reading.number, self._codes_of(reading.kinds), list(reading.seen)
        if db.get(self._sql(_AFTER), *asked) is not None:
            raise StaleReading(reading.number, reading.kinds)

    def _check_tips(
        self, db: ServerConnection, reading: TipsMark, logs: Mapping[LogId, LockedLog]
    ) -> None:
        """Do the same for a reading of some logs, which are locked: it asks nothing while they end
        where its writer has read up to.
        """
        # A log that is not among them may have begun while this act waited for its locks.
        if all(log in logs and logs[log].tip == tip for log, tip in reading.tips.items()):
            return
        names = [to_bytes(log) for log in reading.tips]
        asked = names, [*reading.tips.values()], self._codes_of(reading.kinds)
        if db.get(self._sql(_AFTER_TIPS), *asked) is not None:
            raise StaleReading(None, reading.kinds)

    def _epoch_of(self, db: ServerConnection, fence: Fence) -> int:
        sql = self._sql("SELECT epoch FROM {s}.log WHERE id = $1::bytea")
        found = db.get(sql, to_bytes(fence.log))
        if found is None:
            raise UnknownLog(fence.log)
        return found

    def _is_appended(self, db: ServerConnection, key: int, event: Event) -> bool:
        """True if exactly this event stands: it was appended, and its acknowledgement was lost."""
        there = self._event_at(db, key, event.seq)
        return there is not None and there.id == event.id

    def _event_at(self, db: ServerConnection, key: int, seq: int) -> Event | None:
        row = db.row(self._sql(_AT), key, seq)
        return None if row is None else to_event(row, self.get_blob)


def _missing_ref(error: psycopg.Error, prepared: Prepared) -> Digest:
    """Return the blob that an event refers to and that is not there."""
    named = re.search(r"\\x([0-9a-f]{64})", error.diag.message_detail or "")
    refs = [ref for event in prepared.events for ref in event.refs]
    return Digest(named[1]) if named else refs[0]
