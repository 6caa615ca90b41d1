"""The embedded store: one SQLite file in a folder."""

from plait.store.sqlite.store import FILE, SqliteStore

__all__ = ["FILE", "SqliteStore"]
