"""The part of a PostgreSQL store that its subjects share: connections, and facts about logs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeVar

from plait.errors import (
    NotMigrated,
    SchemaTooNew,
    StoreCorrupt,
    StoreDenied,
    StoreRestored,
    UnknownLog,
)
from plait.errors.store_servers import migrate_command
from plait.event import KINDS
from plait.ids import LogId, parse_log_id
from plait.store.lineage import Lineage, extend_lineage
from plait.store.postgres.ahead import EventWindows
from plait.store.postgres.connections import ServerConnection, ServerConnections
from plait.store.postgres.schema import SCHEMA_VERSION, quote_name
from plait.store.records import to_bytes, to_id

T = TypeVar("T")

_CACHE_MAX = 10_000  # logs with their flat lineage in memory
ORDINAL_BITS = 16  # of a commit number; the others are those of the transaction
SEQ_MAX = 2**31 - 1
EVENTS_MAX = 1 << ORDINAL_BITS  # of one transaction


class LogFacts(NamedTuple):
    """The facts about a log that never change, kept in memory once they were read."""

    key: int
    lineage: Lineage
    lazy: bool  # its commits need not be on disk when they return


class PostgresCore:
    """ServerConnections to the database, and the keys of logs and kinds."""

    def __init__(self, connections: ServerConnections, schema: str, bucket: str = "") -> None:
        self._connections = connections
        self._schema = quote_name(schema)
        self._known: dict[LogId, LogFacts] = {}
        self._names: dict[int, str] = {}  # of kinds, by their code
        self._codes: dict[str, int] = {}
        self._windows = EventWindows()
        self._hot: dict[bytes, bytes] = {}  # statements of the hot path, by name
        self._bucket_asked = bucket
        try:
            self._id, self._offset, self._bucket_address = connections.run(self._look)
        except BaseException:
            connections.close()
            raise

    def _run(self, work: Callable[[ServerConnection], T]) -> T:
        return self._connections.run(work)

    def _sql(self, text: str) -> str:
        """Fill in the schema, and the transaction part of commit numbers."""
        return (
            text.replace("{s}", self._schema)
            .replace("{xid}", f"(pg_current_xact_id()::text::int8 + {self._offset})")
            .replace(
                "{settled}",
                f"((pg_snapshot_xmin(pg_current_snapshot())::text::int8 + "
                f"{self._offset}) << {ORDINAL_BITS})",
            )
        )

    def _look(self, db: ServerConnection) -> tuple[LogId, int, str]:
        """Read the store's own row, and raise unless this Plait can use the store."""
        address = self._connections.address
        table = f"{self._schema}.store"
        if db.get("SELECT to_regclass($1)", table) is None:
            raise NotMigrated(address, 0, SCHEMA_VERSION)
        row = db.row(
            f'SELECT id, migration, "offset", (SELECT max(number) FROM {self._schema}.event),'
            f" pg_snapshot_xmax(pg_current_snapshot())::text::int8, bucket FROM {table}"
        )
        if row is None:
            raise NotMigrated(address, 0, SCHEMA_VERSION)
        id, migration, offset, last, next_xid, bucket = row
        if migration < SCHEMA_VERSION:
            raise NotMigrated(address, migration, SCHEMA_VERSION)
        if migration > SCHEMA_VERSION:
            raise SchemaTooNew(address, migration, SCHEMA_VERSION)
        if not isinstance(id, bytes) or len(id) != 16:
            raise StoreCorrupt(f"the store's own id in {address}", "it must have 16 bytes")
        if last is not None and last >> ORDINAL_BITS >= next_xid + offset:
            raise StoreRestored(address)
        self._check_bucket(bucket or "")
        return to_id(id), offset, bucket or ""

    def _check_bucket(self, found: str) -> None:
        """Raise if the address names another bucket than the one that was found."""
        asked, address = self._bucket_asked, self._connections.address
        if asked and not found:
            why = f"it keeps no blobs in {asked} so far"
            raise StoreDenied(address, why, f"run `{migrate_command(address)}` first")
        if asked and asked != found:
            raise StoreDenied(address, f"its large blobs are in {found}", f"say blobs={found}")

    def _load_kinds(self) -> dict[int, str]:
        """Read the codes of kinds, and give one to each kind that has none."""

        def load(db: ServerConnection) -> dict[int, str]:
            sql = f"SELECT code, name FROM {self._schema}.kind"
            names = dict(db.rows(sql))
            missing = [kind.__name__ for kind in KINDS if kind.__name__ not in names.values()]
            if missing and self._may_write(db):
                with db.transaction():
                    add_kinds(db, self._schema)
                names = dict(db.rows(sql))
            return names

        self._names = self._run(load)
        self._codes = {name: code for code, name in self._names.items()}
        return self._names

    def _may_write(self, db: ServerConnection) -> bool:
        """True if this user may append events, and this server takes them."""
        if db.facts.is_read_only:
            return False
        return bool(db.get("SELECT has_table_privilege($1, 'INSERT')", f"{self._schema}.event"))

    def _know_kinds(self, kinds: Collection[str]) -> None:
        """Read the codes of kinds anew if one is not known: a writer may have brought it."""
        if not all(kind in self._codes for kind in kinds):
            self._load_kinds()

    def _codes_of(self, kinds: Collection[str] | None) -> list[int] | None:
        if kinds is None:
            return None
        return [code for name, code in self._codes.items() if name in kinds]

    def _find(self, log: LogId) -> LogFacts:
        """Return the log's key and flat lineage, by one question. Neither ever changes."""
        known = self._known.get(log)
        if known is not None:
            return known
        raw = to_bytes(parse_log_id(log))
        rows = self._run(lambda db: db.rows(self._sql(_LINEAGE), raw))
        if not rows:
            raise UnknownLog(log)
        if rows[0][5]:
            raise StoreCorrupt(f"log {log}", "its lineage runs in a circle")
        lineage: Lineage = ()
        for id, key, place, lazy, _, _ in rows:
            lineage = extend_lineage(lineage, place, to_id(id))
            known = self._remember(to_id(id), LogFacts(key, lineage, lazy))
        assert known is not None
        return known

    def _remember(self, log: LogId, known: LogFacts) -> LogFacts:
        if len(self._known) > _CACHE_MAX:
            self._known.clear()
        self._known[log] = known
        return known


def add_kinds(db: ServerConnection, schema: str) -> None:
    """Give a code to each kind of event that has none, inside a transaction."""
    db.run(f"SELECT 1 FROM {schema}.store FOR UPDATE")
    db.run(
        f"INSERT INTO {schema}.kind (code, name) SELECT (SELECT coalesce(max(code), 0) FROM"
        f" {schema}.kind) + row_number() OVER (ORDER BY n), name"
        " FROM unnest($1::text[]) WITH ORDINALITY AS new (name, n)"
        f" WHERE name NOT IN (SELECT name FROM {schema}.kind)",
        [kind.__name__ for kind in KINDS],
    )


# A log and those that it was forked from, the root first. A circle ends the walk, and is told.
_LINEAGE = """
WITH RECURSIVE line AS (
    SELECT id, key, parent, place, lazy, 0 AS depth, false AS circle, ARRAY[key] AS seen
    FROM {s}.log WHERE id = $1
  UNION ALL
    SELECT up.id, up.key, up.parent, up.place, up.lazy, line.depth + 1, up.key = ANY(line.seen),
        line.seen || up.key
    FROM line JOIN {s}.log up ON up.key = line.parent WHERE NOT line.circle
)
SELECT id, key, place, lazy, depth, circle FROM line ORDER BY depth DESC
"""
