"""Stores as tests look at them: from inside, from beside, and with files in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from plait.ids import Digest
from plait.store import Store
from plait.store.postgres.address import is_postgres
from plait.workspace.base import TreeEntry
from plait.workspace.tree import encode
from tests.raw import plain_body, plain_header


def tree(store: Store, **files: str) -> Digest:
    """A tree of these files, in the store; a dot in a name is spelled with two underscores."""
    entries: list[TreeEntry] = []
    for name, text in files.items():
        content = text.encode()
        blobs = (store.put_blob(content),) if content else ()
        entries.append(TreeEntry(name.replace("__", "."), "file", 0o644, len(content), blobs))
    return store.put_blob(encode(entries))


def sqlite_writer(store: Store) -> Any:
    """The connection that a SQLite store writes with."""
    connections: Any = vars(store)["_connections"]
    return connections._handles.writer


def unsynced_count(store: Store) -> int:
    """Count the appends that a SQLite store has committed since the last fsync."""
    return sqlite_writer(store).unsynced


def spoil_salts(address: str, *, seq: int) -> None:
    """Edit all events with this seq behind the store's back, so that `verify` finds them."""
    if not is_postgres(address):
        sql = RawSql(Path(address.partition(":")[2]) / "store.db")
        sql("UPDATE event SET salt = zeroblob(16) WHERE seq = ?", (seq,))
        sql.close()
        return
    import psycopg

    address, _, schema = address.partition("?schema=")
    with psycopg.connect(address, autocommit=True) as connection:
        edit = f"""UPDATE "{schema}".event SET salt = '0123456789abcdef' WHERE seq = %s"""
        connection.execute(edit.encode(), [seq])


def postgres_cells(address: str) -> Iterator[bytes]:
    """All values in all tables of a PostgreSQL store, as bytes."""
    import psycopg

    address, _, schema = address.partition("?schema=")
    with psycopg.connect(address, autocommit=True) as connection:
        found = connection.execute(
            b"SELECT format('%%I.%%I', schemaname, tablename) FROM pg_tables WHERE schemaname = %s",
            [schema],
        )
        for (table,) in found.fetchall():
            for row in connection.execute(f"TABLE {table}".encode()):
                for value in row:
                    yield value if isinstance(value, bytes) else str(value).encode()


class RawSql:
    """The database file without us in between: what an attacker, or a person with a database
    browser, has.
    """

    def __init__(self, path: Path) -> None:
        self._db: Any = apsw.Connection(str(path))
        # What whoever reads our code can do, too.
        self._db.create_scalar_function("plain", plain_header)
        self._db.create_scalar_function("plain_body", plain_body)

    def __call__(self, sql: str, values: Any = ()) -> list[Any]:
        return self._db.execute(sql, values).fetchall()

    def close(self) -> None:
        self._db.close()
