"""Stores as tests look at them: from inside, from beside, and with files in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from plait.ids import Digest
from plait.store import Store
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
