"""SQLite through apsw: opening it safely, its errors as ours, its schema in numbered steps.

apsw brings its own SQLite. Many systems still have one in which a reset of the write-ahead log can
corrupt the file (fixed in 3.51.3). Every setting that durability rests on is set *and read back*: a
pragma that did not take is refused.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import apsw

from plait.errors import (
    DiskFull,
    NotAStore,
    OutcomeUnknown,
    SchemaAltered,
    SchemaTooNew,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreUnsafe,
)

SQLITE_MIN = (3, 51, 3)
APPLICATION_ID = 0x506C6169  # "Plai": marks the file as ours
BUSY_S = 60.0
PAGE_SIZE = 4096
_SMALLEST_PAGE = 512  # bytes; SQLite takes a shorter file for an empty one

# How far commits without an fsync of their own may run ahead of the disk: whichever comes first.
UNSYNCED_MAX = 256
UNSYNCED_S = 1.0

_FULL, _NORMAL = 2, 1  # of synchronous

# Set on every connection, and asserted. synchronous=FULL: an acknowledged commit has been fsynced.
PRAGMAS: dict[str, int | str] = {
    "synchronous": _FULL,
    # references are checked by verify, against the hashes; the write path does not pay for them
    "foreign_keys": 0,
    "trusted_schema": 0,  # a hostile file's schema calls no function with effects
    "cell_size_check": 1,
    "fullfsync": 1,  # macOS: really reach the disk
    "checkpoint_fullfsync": 1,
    "cache_size": -16384,
    "wal_autocheckpoint": 2000,  # pages
}

Values = Sequence[str | int | float | bytes | None]


class ReadTransaction:
    """A transaction that reads. It is entered once."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.run("BEGIN")

    def __exit__(self, *_: object) -> None:
        self._db.end_snapshot()


class Database:
    """One connection. Not for two threads at the same time; the store sees to that."""

    def __init__(self, path: str, flags: int, busy_s: float) -> None:
        self.path = path
        self.busy_s = busy_s
        uri = path if path.startswith("file:") else f"file://{quote(os.fsencode(path))}"
        try:
            # apsw's stubs need types of Python 3.12: the connection is untyped here, and typed for
            # all callers by this class.
            self._db: Any = apsw.Connection(
                uri, flags=flags | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
            )
        except apsw.Error as error:
            raise _translate(path, error, busy_s, 0) from error
        # The file may be hostile: its triggers and views run nothing, and no statement reaches
        # another file.
        self._db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        self._db.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
        self._db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        self._db.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        self._db.set_busy_handler(self._wait)
        self._waiting_since = 0.0
        self._commits = 0
        self._synchronous = _FULL
        self.unsynced = 0  # pieces of work that were committed since the last fsync
        self._unsynced_since = 0.0
        self._written = 0  # pages, before the transaction
        self.doubtful = False  # an fsync failed while others than its own commit relied on it
        # For statements without rows on the path of an append: one cursor, used again, costs less
        # than one each.
        self.run: Callable[..., Any] = self._db.cursor().execute

    def execute(self, sql: str, values: Values = ()) -> Iterator[Any]:
        return self._db.execute(sql, values)

    def rows(self, sql: str, values: Values = ()) -> list[Any]:
        return self._db.execute(sql, values).fetchall()

    def row(self, sql: str, values: Values = ()) -> Any:
        """The first row, or None."""
        return self._db.execute(sql, values).fetchone()

    def get(self, sql: str, values: Values = ()) -> Any:
        """The first value of the first row, or None."""
        row = self._db.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def snapshot(self) -> ReadTransaction:
        """Have all reads inside see the same state of the file."""
        return ReadTransaction(self)

    def end_snapshot(self) -> None:
        # A commit: a rollback would undo tables of the connection's own that were made inside.
        if self._db.in_transaction:
            self.run("COMMIT")

    def change_count(self) -> int:
        """Return how many rows the last statement changed."""
        return self._db.changes()

    def inserted_key(self) -> int:
        return self._db.last_insert_rowid()

    def shrink(self) -> None:
        """Let go of pages in memory that are on disk as well."""
        self._db.release_memory()

    # a transaction, as GroupCommit wants it

    def begin(self, durable: bool = True) -> None:
        """Begin a transaction. Its commit is fsynced, along with all before it, if `durable`, or if
        an fsync is due anyway.
        """
        if self._db.in_transaction:  # a thread was interrupted even in its rollback
            self._db.execute("ROLLBACK")
        wanted = _FULL if durable or self._sync_is_due() else _NORMAL
        if wanted != self._synchronous:
            self._synchronous = 0  # unknown, should the next line be interrupted
            self.run(f"PRAGMA synchronous = {wanted}")
            self._synchronous = self.get("PRAGMA synchronous")
            if self._synchronous < wanted:
                raise StoreUnsafe(self.path, "synchronous", wanted, self._synchronous)
        if self.unsynced:
            self._written = self._pages_written()
        self.run("BEGIN IMMEDIATE")

    def commit(self, pieces: int = 1) -> None:
        try:
            self.run("COMMIT")
        except apsw.IOError as error:
            self.doubtful |= self.unsynced > 0
            raise OutcomeUnknown(self.path, str(error)) from error
        self._commits += 1
        if self._synchronous != _FULL:
            self.count_unsynced(pieces)
        # SQLite syncs at a commit that wrote pages, and only then
        elif self.unsynced and self._pages_written() != self._written:
            if self.doubtful:
                self._write_anew()
            self.unsynced = 0

    def count_unsynced(self, pieces: int) -> None:
        """Count pieces of work that were committed without an fsync."""
        self._unsynced_since = self._unsynced_since if self.unsynced else time.monotonic()
        self.unsynced += pieces

    def doubt(self) -> None:
        """Note that an fsync has failed: commits without one need more than the next fsync."""
        self.doubtful = True

    def _pages_written(self) -> int:
        return self._db.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]

    def _write_anew(self) -> None:
        """Copy the whole log into the database, and sync that.

        After a failed fsync the system takes the unwritten pages for written, and the next fsync
        says nothing about them. If the copy fails, the outcome is unknown.
        """
        busy, pages, copied = self.row("PRAGMA wal_checkpoint(TRUNCATE)")
        if busy or pages != copied:
            raise OutcomeUnknown(
                self.path,
                "an fsync had failed before, and somebody reads, so it cannot be made good now",
            )
        self.doubtful = False

    def _sync_is_due(self) -> bool:
        return self.unsynced >= UNSYNCED_MAX - 1 or (
            self.unsynced > 0 and time.monotonic() - self._unsynced_since > UNSYNCED_S
        )

    def touch(self) -> None:
        """Write something: SQLite syncs its log, with all that stands in it, at a commit that
        wrote, and only then.

        It has to be a change. SQLite does not write a row that stays the same.
        """
        self.run("UPDATE store SET synced = synced + 1")

    def sync(self) -> None:
        """Bring commits without an fsync to the disk."""
        self.begin()
        try:
            self.touch()
            self.commit()
        except BaseException:
            self.rollback()
            raise

    def others(self) -> int:
        """Return a number that changes when another connection has written, asked inside a
        transaction. Forty times cheaper than the pragma for it.

        SQLite's own number also grows by one with each commit of this connection, which is taken
        off again.
        """
        return self._db.data_version("main") - self._commits

    def rollback(self) -> None:
        # after "disk full" SQLite has rolled back by itself, and ROLLBACK would raise
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def changes(self) -> int:
        return self._db.total_changes()

    def translate(self, error: Exception) -> Exception:
        if isinstance(error, apsw.ConnectionClosedError):
            return StoreClosed(self.path)
        if isinstance(error, UnicodeDecodeError):
            return StoreCorrupt(self.path, f"a text in it is not UTF-8: {error.reason}")
        return (
            _translate(self.path, error, self.busy_s, self._db.system_errno)
            if isinstance(error, apsw.Error)
            else error
        )

    def _wait(self, tries: int) -> bool:
        """Another process has the lock.

        SQLite's own patience sleeps up to 100 ms at a time, long after it was free again.
        """
        if tries == 0:
            self._waiting_since = time.monotonic()
        elif time.monotonic() - self._waiting_since > self.busy_s:
            return False
        time.sleep(min(0.0003 * (tries + 1), 0.003))
        return True

    def journal_mode(self) -> str:
        """As the file's header has it: a connection that reads it as immutable does not say."""
        return (
            "wal"
            if self._db.read("main", 0, 18, 2)[1] == b"\2\2"
            else self.get("PRAGMA journal_mode")
        )

    def keep_log(self) -> None:
        """Leave the write-ahead log as it is when this connection closes."""
        self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def close(self) -> None:
        self._db.close()

    @property
    def connection(self) -> object:
        return self._db


def connect(path: str, *, create: bool = False, busy_s: float = BUSY_S) -> Database:
    """Open a store's file for reading and writing, or refuse it untouched."""
    if (
        apsw.SQLITE_VERSION_NUMBER
        < SQLITE_MIN[0] * 1_000_000 + SQLITE_MIN[1] * 1000 + SQLITE_MIN[2]
    ):
        raise StoreUnsafe(
            path, "SQLite's version", ".".join(map(str, SQLITE_MIN)), apsw.sqlite_lib_version()
        )
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        raise cannot_open(path, "it is not a file")
    # SQLite would take this for a new database and delete the log
    if _size(path) == 0 and _size(f"{path}-wal") > 0:
        raise StoreCorrupt(path, "it is empty or gone, but its write-ahead log is there")
    if 0 < _size(path) < _SMALLEST_PAGE:
        raise StoreCorrupt(path, "it is cut off: SQLite would take it for a new database")
    db = Database(
        path, apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0), busy_s
    )
    try:
        _refuse_foreign(db)
        _configure(db)
    except (apsw.Error, UnicodeDecodeError) as error:
        translated = db.translate(error)
        db.close()
        raise translated from error
    except StoreError:
        db.close()
        raise
    return db


def _configure(db: Database) -> None:
    if not db.get("SELECT count(*) FROM sqlite_schema"):
        db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    _use_wal(db)
    for name, wanted in PRAGMAS.items():
        db.execute(f"PRAGMA {name} = {wanted}")
        found = db.get(f"PRAGMA {name}")
        if found != wanted:
            raise StoreUnsafe(db.path, name, wanted, found)


def _use_wal(db: Database) -> None:
    """Switch to the write-ahead log. Two processes that open a new file at once collide here, and
    SQLite does not wait by itself for this one.
    """
    deadline = time.monotonic() + db.busy_s
    while True:
        try:
            found = db.get("PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)
            continue
        if found != "wal":
            raise StoreUnsafe(db.path, "journal_mode", "wal", found)
        return


def _refuse_foreign(db: Database) -> None:
    # The mark is read last: another process may be making the store at this moment, and it sets all
    # three at once.
    used = db.get("PRAGMA user_version") or db.get("SELECT count(*) FROM sqlite_schema")
    mark = db.get("PRAGMA application_id")
    if mark != APPLICATION_ID and (mark or used):
        raise NotAStore(db.path, "it is the database of another program")
    if mark == APPLICATION_ID and db.get("PRAGMA user_version") < 1:
        raise NotAStore(db.path, "its schema has no number")


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return 0


def _translate(path: str, error: Exception, busy_s: float, system_errno: int) -> StoreError:
    why = str(error)
    if isinstance(error, apsw.BusyError):
        return StoreBusy(path, busy_s)
    if isinstance(error, apsw.FullError) or system_errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(path)
    if isinstance(error, apsw.NotADBError):
        return NotAStore(path, why)
    if isinstance(error, apsw.CorruptError):
        return StoreCorrupt(path, why)
    if isinstance(error, apsw.CantOpenError):
        return cannot_open(path, why)
    return StoreFailed(path, why)


def cannot_open(path: str, why: str) -> StoreError:
    if os.path.islink(path):
        return NotAStore(path, "it is a symbolic link")
    if os.path.exists(path) and not os.path.isfile(path):
        return NotAStore(path, "it is not a regular file")
    try:
        space = os.statvfs(os.path.dirname(path) or ".")
    except OSError as error:
        return StoreFailed(path, str(error))
    # some file systems do not count them at all
    no_inodes = space.f_files > 0 and space.f_favail == 0
    return DiskFull(path) if space.f_bavail == 0 or no_inodes else StoreFailed(path, why)


# ── schema ───────────────────────────────────────────────────────────────────────────────────

Migration = Callable[[Database], None]


def migrate(db: Database, migrations: Sequence[Migration]) -> None:
    """Bring the schema up to date, one numbered step per transaction: a crash leaves the old schema
    or the new one.
    """
    known = len(migrations)
    while check_schema(db, known) < known:
        db.begin()
        try:
            found = check_schema(db, known)  # another process may have been faster
            if found < known:
                check_tables(db, tuple(migrations[:found]))  # its number may have been edited
                migrations[found](db)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {found + 1}")
            db.commit()
        except BaseException:
            db.rollback()
            raise


def check_schema(db: Database, known: int) -> int:
    """The schema's number; 0 for an empty file.

    Refuses a file of something else and one from the future.
    """
    _refuse_foreign(db)
    found = db.get("PRAGMA user_version")
    if found > known:
        raise SchemaTooNew(db.path, found, known)
    return found


SchemaRow = tuple[str, str, str, str | None]  # type, name, table, statement

_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema"


@lru_cache
def made_schema(migrations: tuple[Migration, ...]) -> frozenset[SchemaRow]:
    """The schema as the migrations make it, in an empty database."""
    return frozenset(schema_rows(blank_database(migrations)))


def blank_database(migrations: Sequence[Migration]) -> Database:
    """An empty database in memory, after these migrations."""
    blank = Database("file::memory:", apsw.SQLITE_OPEN_READWRITE, BUSY_S)
    for migration in migrations:
        migration(blank)
    return blank


def schema_rows(db: Database) -> list[SchemaRow]:
    return db.rows(_SCHEMA)


def check_tables(db: Database, migrations: tuple[Migration, ...]) -> None:
    """Raise unless the tables are the ones we make: a loosened one could hold any value."""
    missing = made_schema(migrations).difference(schema_rows(db))
    if missing:
        raise SchemaAltered(db.path, tuple(sorted({name for _, name, _, _ in missing})))
