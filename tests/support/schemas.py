"""PostgreSQL stores for tests that need many: schemas that are emptied and used again.

To make the tables of a store takes the server a hundred times as long as to delete the few rows of
a test from them, so a process keeps the schemas that it has made. A test gets one by renaming it.
Each has an id and a house log of its own; copies of those rows, and of the codes of kinds, stand in
a schema beside it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import plait
from plait.runtime.live import Live
from tests.support.postgres import PostgresServer, drop_schema

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow

_KEPT = ("store", "kind", "log", "event", "projection")
_LOCK_WAIT = "2s"
_NUMBERS = count(1)
_MORE_BYTES = 1 << 20  # a schema that grew by more is dropped: emptied tables keep their size
_TABLES = """
SELECT relname::text, pg_total_relation_size(oid) FROM pg_class
WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' ORDER BY relname"""


class SchemaPool:
    """The schemas of this process on one server."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._process = os.getpid()
        self._guard = threading.RLock()
        self._connection: Connection[TupleRow] | None = None
        self._numbers = count(1)
        self._idle: list[int] = []
        self._taken: dict[str, int] = {}
        self._sizes: dict[str, int] = {}  # of the tables of a new store, by name

    def make(self, name: str) -> None:
        """Make a store in the schema of this name, unless it is there."""
        with self._connected() as connection, connection.transaction():
            # another process of the same test may be about to make it
            connection.execute(b"SELECT pg_advisory_xact_lock(hashtextextended(%s, 11))", [name])
            if not schema_exists(connection, name):
                number = self._idle.pop() if self._idle else self._new()
                connection.execute(f'ALTER SCHEMA {self._own(number)} RENAME TO "{name}"'.encode())
                self._taken[name] = number

    @contextmanager
    def _connected(self) -> Generator[Connection[TupleRow]]:
        """Lend the connection of this process, which stays open."""
        with self._guard:
            if self._connection is None or self._connection.closed:
                self._connection = self._server.connect()
                self._connection.execute(
                    b"SELECT set_config('lock_timeout', %s, false)", [_LOCK_WAIT]
                )
            yield self._connection

    def exists(self, name: str) -> bool:
        """True if there is a schema of this name."""
        with self._connected() as connection:
            return schema_exists(connection, name)

    def give_back(self, prefix: str) -> None:
        """Empty all schemas whose names begin so, also those that another process has made."""
        with self._connected() as connection:
            found = connection.execute(
                b"SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname, %s)", [prefix]
            ).fetchall()
            for (name,) in found:
                number = self._taken.pop(name, None)
                if number is None or not self._is_emptied(connection, name, number):
                    drop_schema(self._server, name)

    def _is_emptied(self, connection: Connection[TupleRow], name: str, number: int) -> bool:
        """Empty a schema for the next test; False: a test has changed its tables or holds them."""
        from psycopg import Error

        found = dict(connection.execute(_TABLES, [name]).fetchall())
        if not found.keys() >= self._sizes.keys():
            return False
        if sum(found.values()) > sum(self._sizes.values()) + _MORE_BYTES:
            return False
        own, kept = f'"{name}"', f"{self._own(number)}_kept"
        # by name, so attachments before the blobs that they refer to
        script = [f'DELETE FROM {own}."{table}"' for table in self._sizes]
        script += [f'DROP TABLE {own}."{table}"' for table in found if table not in self._sizes]
        script += [f"INSERT INTO {own}.{table} SELECT * FROM {kept}.{table}" for table in _KEPT]
        script += [f"ALTER SCHEMA {own} RENAME TO {self._own(number)}"]
        with suppress(Error):
            connection.execute(";".join(script).encode())
            self._idle.append(number)
            return True
        return False

    def _new(self) -> int:
        """Make a store, and copies of its rows."""
        number = next(self._numbers)
        own = self._own(number)
        self._migrate(own)
        with self._server.connect() as connection:
            script = [f"CREATE SCHEMA {own}_kept"]
            script += [f"CREATE TABLE {own}_kept.{each} AS TABLE {own}.{each}" for each in _KEPT]
            connection.execute(";".join(script).encode())
            self._sizes = dict(connection.execute(_TABLES, [own]).fetchall())
        return number

    def _migrate(self, schema: str) -> None:
        """Make the tables of a store with all projections of ours, and the codes of kinds."""
        from plait.store.postgres.address import parse_address
        from plait.store.postgres.migrate import migrate
        from plait.store.postgres.store import PostgresStore

        address, projections = self._server.address_for(schema=schema), vars(plait)["_PROJECTIONS"]
        migrate(parse_address(address), source=Live(), projections=projections)
        PostgresStore(address, source=Live()).close()  # which gives every kind its code

    def _own(self, number: int) -> str:
        return f"pool_{self._process}_{number}"


@cache
def _pool_of(process: int, version: int, port: int) -> SchemaPool:
    """The one pool of a process for a server."""
    return SchemaPool(PostgresServer(version, Path(), port))


def schema_pool(server: PostgresServer) -> SchemaPool:
    """The schemas of this process on a shared server."""
    return _pool_of(os.getpid(), server.version, server.port)


@contextmanager
def pooled_store(server: PostgresServer, *, port: int | None = None) -> Generator[str]:
    """The address of a new store on a shared server, or behind a pooler that listens on a port."""
    pool, schema = schema_pool(server), f"s{os.getpid()}_{next(_NUMBERS)}_"
    pool.make(schema)
    address = server.address_for(schema=schema)
    try:
        yield address if port is None else address.replace(f":{server.port}/", f":{port}/")
    finally:
        pool.give_back(schema)


def schema_exists(connection: Connection[TupleRow], schema: str) -> bool:
    """True if there is a schema of this name."""
    found = connection.execute(b"SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema])
    return found.fetchone() is not None
