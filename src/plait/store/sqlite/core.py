"""The part of a SQLite store that its subjects share: connections, and facts about logs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from plait.errors import (
    StoreCorrupt,
    UnknownLog,
)
from plait.ids import LogId, parse_log_id
from plait.store.lineage import Lineage, extend_lineage
from plait.store.records import to_id
from plait.store.sqlite.columns import BY_ID, by_id
from plait.store.sqlite.connections import Connections
from plait.store.sqlite.database import (
    Database,
)
from plait.store.sqlite.transact import Transact

_CACHE_MAX = 10_000  # logs with their flat lineage in memory


class KnownLog(NamedTuple):
    """The facts about a log that never change, kept in memory once they were read."""

    key: int
    lineage: Lineage
    lazy: bool  # its commits need no fsync of their own


class SqliteCore:
    """Connections to the file, and the keys of logs and kinds."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._work = Transact()
        self._known: dict[LogId, KnownLog] = {}
        self._names: dict[int, str] = {}  # of kinds, by their code

    def flush(self) -> None:
        self._connections.sync()

    def _find(self, log: LogId) -> KnownLog:
        """Return the log's key and flat lineage. Neither ever changes, so both are cached."""
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
                check_types(id, row[:2], (int, int))
                trail[id] = row[0], row[1], bool(row[2])
                id = None if row[3] is None else to_id(row[3])
        for id, (key, place, lazy) in reversed(trail.items()):
            lineage = extend_lineage(lineage, place, id)
            known = self._remember(id, KnownLog(key, lineage, lazy))
        assert known is not None
        return known

    def _remember(self, log: LogId, known: KnownLog) -> KnownLog:
        if len(self._known) > _CACHE_MAX:
            self._known.clear()
        self._known[log] = known
        return known

    def _reload_kinds(self) -> dict[int, str]:
        with self._reader() as db:
            self._names = dict(db.rows("SELECT code, name FROM kind"))
        self._work.codes = {name: code for code, name in self._names.items()}
        return self._names

    def _reader(self) -> AbstractContextManager[Database]:
        return self._connections.reading()


def check_types(log: LogId, values: Sequence[object], types: Sequence[type]) -> None:
    """The tables allow nothing else, but a damaged page can give anything."""
    if len(values) != len(types) or not all(map(isinstance, values, types)):
        raise StoreCorrupt(f"log {log}", "its row holds something else than it should")
