"""The connections of one process to one database: a shared writer, a few readers, and os.fork.

SQLite must not be carried across a fork. Not even a new connection in the child is safe while the
old ones exist: the library remembers, per process, which locks it holds on a file, and the child
inherits that memory but not the locks. So before a fork every use of a
connection comes to its end, all are closed, and both sides open new ones when they need them.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TypeVar

import apsw

from plait.errors import DiskFull, PlaitError, StoreClosed, StoreCorrupt, StoreFailed
from plait.store.process import STORES
from plait.store.sqlite.commit import GroupCommit
from plait.store.sqlite.database import UNSYNCED_S, Database

T = TypeVar("T")

_READERS_MAX = 8  # kept open for reading
_CHECK_EVERY_S = 0.02
_CLOSE_WAIT_S = 10.0
_FORK_WAIT_S = 10.0  # a fork waits this long for uses of a connection to end


class _Handles:
    def __init__(self, writer: Database) -> None:
        self.writer = writer
        self.group = GroupCommit(writer)
        self.readers: list[Database] = []

    def close(self) -> None:
        """Bring unsynced commits to the disk, then close everything, even if the disk refused."""
        try:
            if self.writer.unsynced:
                self.writer.sync()
        except apsw.Error as error:
            raise self.writer.translate(error) from error
        finally:
            for db in (self.writer, *self.readers):
                db.close()


class Connections:
    """`write(work)` runs work on the writer inside a group commit; `reading()` lends a reader.

    Rows are decoded while the reader is lent, so that a value that cannot be decoded is an error
    of the store's.
    """

    def __init__(self, address: str, path: str, connect: Callable[[], Database]) -> None:
        self._address = address
        self._path = path
        self._connect = connect
        self._file = _identity(path)
        self._check_at = 0.0
        self._handles: _Handles | None = None
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        self._users = 0
        self._timer: threading.Timer | None = None  # for commits without an fsync
        self._owed = 0  # pieces that a closed connection could not bring to the disk
        self._will_end = False  # whether the end of this process is known to bring us to the disk
        self._frozen = False
        # forked while in use: the library's memory of locks is wrong in this process
        self._spoiled = False
        self.is_closed = False
        STORES.add(self)

    def write(self, work: Callable[[Database], T], durable: bool = True) -> T:
        handles = self._enter()
        try:
            self._check_file()
            result = handles.group.submit(lambda: work(handles.writer), durable)
            if not durable and self._timer is None:
                self._sync_soon()
            return result
        finally:
            self._leave()

    def sync(self) -> None:
        """On return all that any process committed is on disk."""
        try:
            self.write(Database.touch)
        except DiskFull:  # not even that has room; the log that is there needs none
            if self._handles is not None and self._handles.writer.doubtful:
                raise  # an fsync has failed before: another one would say nothing
            _sync_file(f"{self._path}-wal")

    def _sync_soon(self) -> None:
        if not self._will_end:
            self._sync_at_the_end_of_a_child()
        with self._lock:
            if self._timer is None and not self.is_closed:
                timer = threading.Timer(UNSYNCED_S, self._sync_late)
                timer.daemon = True
                # Noted before it starts: it takes itself off the note, and may be done before this
                # thread goes on.
                self._timer = timer
                try:
                    timer.start()
                # no more threads, or the program is ending: then boundaries come by count, and at
                # the end
                except RuntimeError:
                    self._timer = None

    def _sync_at_the_end_of_a_child(self) -> None:
        """A process of `multiprocessing` ends without `atexit`, but it has something like it of its
        own.
        """
        self._will_end = True
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, _sync_at_exit, args=(weakref.ref(self),), exitpriority=10)

    def _sync_late(self) -> None:
        """Sync after a pause without writes.

        If the disk refuses, the next write raises; until then it is tried again.
        """
        self._timer = None
        try:
            self.sync_if_needed()
        except PlaitError:
            self._sync_soon()

    def sync_if_needed(self) -> None:
        """As `sync`, for the commits of this process."""
        handles = self._handles
        owed = handles.writer.unsynced if handles is not None else self._owed
        if owed and not self.is_closed:
            self.sync()

    def sync_at_exit(self) -> None:
        with suppress(PlaitError):
            self.sync_if_needed()

    @contextmanager
    def reading(self) -> Generator[Database]:
        handles = self._enter()
        try:
            db = handles.readers.pop() if handles.readers else self._connect()
            try:
                yield db
            except (apsw.Error, UnicodeDecodeError) as error:
                raise db.translate(error) from error
            except PlaitError:
                raise
            # a damaged page can give any value anywhere
            except (AttributeError, TypeError, ValueError, OverflowError) as error:
                raise StoreCorrupt(
                    self._path, f"a row holds something else than it should: {error}"
                ) from error
            finally:
                if handles is self._handles and len(handles.readers) < _READERS_MAX:
                    handles.readers.append(db)
                else:
                    db.close()
        finally:
            self._leave()

    def _check_file(self) -> None:
        """A file that was removed or replaced can still be written to, and all of that is lost when
        it is closed.
        """
        if self.is_gone_lately():
            raise StoreFailed(self._path, "it was removed or replaced while the store was open")

    def is_gone_lately(self) -> bool:
        """As `gone`, a fiftieth of a second late: asking the system costs some 10 µs with cold
        caches, and every append asks.
        """
        now = time.monotonic()
        if now < self._check_at:
            return False
        if self.is_gone():
            return True
        self._check_at = now + _CHECK_EVERY_S
        return False

    def is_gone(self) -> bool:
        """True if the file was removed or replaced under the open store."""
        return _identity(self._path) != self._file

    def close(self) -> None:
        """Refuse new users, wait for those inside, and close everything."""
        with self._lock:
            self.is_closed = True
            self._change.wait_for(lambda: self._users == 0, _CLOSE_WAIT_S)
            handles, self._handles = self._handles, None
            if self._timer is not None:
                self._timer.cancel()
            if handles is not None:
                handles.close()

    def _enter(self) -> _Handles:
        with self._lock:
            while self._frozen and not self.is_closed:
                self._change.wait()
            if self.is_closed:
                raise StoreClosed(self._address)
            if self._spoiled:
                raise StoreFailed(
                    self._address,
                    "this process was forked in the middle of a write; open stores after forking",
                )
            if self._handles is None:
                self._handles = _Handles(self._connect())
                if self._owed:
                    self._handles.writer.count_unsynced(self._owed)
                    self._handles.writer.doubt()
                    self._owed = 0
            self._users += 1
            return self._handles

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._frozen or self.is_closed:
                self._change.notify_all()

    # around os.fork

    def freeze(self) -> None:
        """Wait for all users to leave, let no new one in, and close everything."""
        with self._lock:
            self._frozen = True
            self._spoiled = not self._change.wait_for(lambda: self._users == 0, _FORK_WAIT_S)
            if not self._spoiled and self._handles is not None:
                owed = self._handles.writer.unsynced
                try:
                    self._handles.close()
                except PlaitError:  # the bytes are with the system; the next connection tries again
                    self._owed = owed
                self._handles = None

    def thaw(self) -> None:
        with self._lock:
            self._frozen = self._spoiled = False
            self._change.notify_all()
            if self._owed:
                self._sync_soon()

    def start_over(self) -> None:
        """Reset in the child: other threads are gone, and the locks they held."""
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        self._frozen, self._users, self._timer = False, 0, None
        self._owed, self._will_end = 0, False  # that is the parent's
        if self._spoiled and self._handles is not None:
            # Not even the end of the child may close these: that could delete the write-ahead log
            # under the parent.
            for db in (self._handles.writer, *self._handles.readers):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(db.connection))
            self._handles = None


def _sync_at_exit(reference: weakref.ref[Connections]) -> None:
    connections = reference()
    if connections is not None:
        connections.sync_at_exit()


def _sync_file(path: str) -> None:
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return  # all of it is in the database, and synced
    try:
        os.fsync(handle)
    except OSError as error:
        raise StoreFailed(path, str(error)) from error
    finally:
        os.close(handle)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
