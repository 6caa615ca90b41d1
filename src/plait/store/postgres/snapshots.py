"""Snapshots in a PostgreSQL store. They are a cache: their writes are not waited for."""

from __future__ import annotations

from plait.errors import StoreCorrupt, UnknownLog
from plait.ids import LogId
from plait.store import packing
from plait.store.arguments import check_own, check_place
from plait.store.blobs import check_size
from plait.store.lineage import cut_lineage
from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.core import SEQ_MAX, PostgresCore
from plait.store.records import to_id

_KEEP = """
WITH kept AS (
    INSERT INTO {s}.snapshot (log, seq, data)
    SELECT key, $2::int4, $3::bytea FROM {s}.log
    WHERE key = $1::int8 AND $2::int4 BETWEEN place + 1 AND tip
    ON CONFLICT (log, seq) DO UPDATE SET data = excluded.data
    RETURNING log
)
SELECT set_config('synchronous_commit', 'off', true), place, tip, (SELECT log FROM kept)
FROM {s}.log WHERE key = $1::int8"""
# The last span that has a snapshot, and its last one.
_NEAREST = """
SELECT l.id, s.seq, s.data
FROM unnest($1::int8[], $2::int4[], $3::int4[]) WITH ORDINALITY AS span (log, first, last, n)
    CROSS JOIN LATERAL (
        SELECT seq, data FROM {s}.snapshot
        WHERE log = span.log AND seq BETWEEN span.first AND span.last ORDER BY seq DESC LIMIT 1
    ) AS s JOIN {s}.log l ON l.key = span.log
ORDER BY span.n DESC LIMIT 1"""


class PostgresSnapshots(PostgresCore):
    """Bytes about places of logs."""

    def keep_snapshot(self, log: LogId, seq: int, data: bytes) -> None:
        check_size(data, "data")
        key, frame = self._find(log).key, packing.frame(data)
        asked = seq if type(seq) is int and 0 <= seq < SEQ_MAX else 0
        row = self._run(lambda db: db.row(self._sql(_KEEP), key, asked, frame))
        if row is None:
            raise UnknownLog(log)
        self._windows.forget_snapshots()
        check_own(log, seq, row[1], row[2])

    def nearest_snapshot(self, log: LogId, upto: int) -> tuple[LogId, int, bytes] | None:
        check_place("upto", upto)
        windows = self._windows.of_log(log)
        for window in windows:
            if window.snapshot is not None and window.snapshot[0] <= upto:
                return window.snapshot[1]  # there may be a nearer one by now: it is a cache
        found = self._nearest_snapshot(log, upto)
        for window in windows:
            window.snapshot = upto, found
        return found

    def _nearest_snapshot(self, log: LogId, upto: int) -> tuple[LogId, int, bytes] | None:
        lineage, sql = self._find(log).lineage, self._sql(_NEAREST)
        while upto > 0:
            spans = cut_lineage(lineage, 1, min(upto, SEQ_MAX))
            keys = [self._find(span.log).key for span in spans]
            firsts, lasts = [span.first for span in spans], [span.last for span in spans]
            row = self._run(lambda db, each=(keys, firsts, lasts): db.row(sql, *each))
            if row is None:
                return None
            data = _unpack_frame(row[2])
            if data is not None:
                return to_id(row[0]), row[1], data
            upto = row[1] - 1  # a broken cache is as good as none
        return None

    def snapshots(self, log: LogId) -> list[tuple[int, bytes]]:
        key = self._find(log).key
        sql = self._sql("SELECT seq, data FROM {s}.snapshot WHERE log = $1::int8 ORDER BY seq")
        rows = self._run(lambda db: db.rows(sql, key))
        return [(seq, data) for seq, frame in rows if (data := _unpack_frame(frame)) is not None]

    def drop_snapshots(self, log: LogId | None = None) -> int:
        key = None if log is None else self._find(log).key

        def drop(db: ServerConnection) -> int:
            if key is None:
                return db.run(self._sql("DELETE FROM {s}.snapshot"))
            return db.run(self._sql("DELETE FROM {s}.snapshot WHERE log = $1::int8"), key)

        self._windows.forget_snapshots()
        return self._run(drop)


def _unpack_frame(data: bytes) -> bytes | None:
    try:
        return packing.unpack(packing.ZSTD, data, packing.SNAPSHOT_SIZE_MAX)
    except StoreCorrupt:
        return None
