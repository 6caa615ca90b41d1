"""Snapshots in a SQLite store."""

from __future__ import annotations

from plait.errors import (
    StoreCorrupt,
)
from plait.ids import LogId
from plait.store import packing
from plait.store.arguments import (
    check_place,
)
from plait.store.blobs import check_size
from plait.store.lineage import LineageSpan, cut_lineage
from plait.store.sqlite.core import SqliteCore


class SqliteSnapshots(SqliteCore):
    """Bytes about places of logs."""

    def keep_snapshot(self, log: LogId, seq: int, data: bytes) -> None:
        check_size(data, "data")
        known, frame = self._find(log), packing.frame(data)
        self._connections.write(
            lambda db: self._work.keep(db, log, known.key, seq, frame), not known.lazy
        )

    def nearest_snapshot(self, log: LogId, upto: int) -> tuple[LogId, int, bytes] | None:
        check_place("upto", upto)
        for span in reversed(cut_lineage(self._find(log).lineage, 1, upto)):
            found = self._last_readable(span)
            if found is not None:
                return span.log, *found
        return None

    def snapshots(self, log: LogId) -> list[tuple[int, bytes]]:
        key = self._find(log).key
        with self._reader() as db:
            rows = db.rows("SELECT seq, data FROM snapshot WHERE log = ? ORDER BY seq", (key,))
        return [(seq, data) for seq, frame in rows if (data := _unpack_frame(frame)) is not None]

    def drop_snapshots(self, log: LogId | None = None) -> int:
        key = None if log is None else self._find(log).key
        return self._connections.write(lambda db: self._work.forget_kept(db, key))

    def _last_readable(self, span: LineageSpan) -> tuple[int, bytes] | None:
        """The last bytes kept in this span that can be read: a broken cache is
        as good as none.
        """
        key, last = self._find(span.log).key, span.last
        sql = (
            "SELECT seq, data FROM snapshot WHERE log = ? AND seq BETWEEN ? AND ? ORDER BY seq DESC"
            " LIMIT 1"
        )
        with self._reader() as db:
            while (row := db.row(sql, (key, span.first, last))) is not None:
                if (data := _unpack_frame(row[1])) is not None:
                    return row[0], data
                last = row[0] - 1
        return None


def _unpack_frame(data: bytes) -> bytes | None:
    try:
        return packing.unpack(packing.ZSTD, data, packing.SNAPSHOT_SIZE_MAX)
    except StoreCorrupt:
        return None
