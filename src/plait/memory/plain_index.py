"""A plain index: words in a table of SQLite's FTS5, in memory or in a file of its own.

It is the smallest index that keeps the contract, and so an example for others.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from plait.errors import IndexFailed
from plait.memory.words import query_words, words_of

_TABLE = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS item"
    " USING fts5(words, id UNINDEXED, owner UNINDEXED, tokenize='unicode61')"
)
_INSERT = "INSERT INTO item (words, id, owner) VALUES (?, ?, ?)"
_SEARCH = "SELECT id, -rank FROM item WHERE item MATCH ? AND owner IN ({}) ORDER BY rank LIMIT ?"


class PlainIndex:
    """`PlainIndex()` ends with the process; `PlainIndex(path)` is kept in a file."""

    def __init__(self, path: str | Path | None = None, *, name: str = "plain") -> None:
        self.name = name
        self._lock = Lock()
        try:
            self._db = sqlite3.connect(
                ":memory:" if path is None else path, check_same_thread=False, isolation_level=None
            )
            self._db.execute(_TABLE)
        except sqlite3.Error as error:
            raise IndexFailed(name, str(error)) from error

    def put(self, id: str, text: str, owner: str) -> None:
        words = " ".join(words_of(text))
        self._run([("DELETE FROM item WHERE id = ?", (id,)), (_INSERT, (words, id, owner))])

    def search(self, query: str, owners: Sequence[str], limit: int) -> list[tuple[str, float]]:
        words = query_words(query)
        if not words or not owners:
            return []
        statement = _SEARCH.format(", ".join("?" * len(owners)))
        found = self._run([(statement, (" OR ".join(words), *owners, limit))])
        return [(str(id), float(score)) for id, score in found]

    def forget(self, id: str) -> None:
        self._run([("DELETE FROM item WHERE id = ?", (id,))])

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _run(self, statements: Sequence[tuple[str, tuple[str | int, ...]]]) -> list[Any]:
        """Run statements in one transaction, and return the rows of the last."""
        rows: list[Any] = []
        try:
            with self._lock, self._db:
                self._db.execute("BEGIN")
                for statement, values in statements:
                    rows = self._db.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise IndexFailed(self.name, str(error)) from error
        return rows
