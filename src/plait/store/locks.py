"""Locks of runs: one process at a time has a run, by a lock that dies with the process.

A store in a folder has one file of locks; a run is one byte of it, at an offset that follows from
its id. The lock belongs to the open file, which a forked child lets go of at once, so kill -9 frees
it and nothing has to be swept up, and reading the folder in this process (a backup, say) frees
nothing. A second byte tells which process has the run. A store in memory belongs to one process:
there a table of the locked runs is enough.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol, TypeVar

from plait.errors import RunHeld, StoreFailed
from plait.ids import Digest, LogId, digest
from plait.store.base import Log
from plait.store.moment import RunLock, SeenRun
from plait.store.process import STORES

FILE = "runs.lock"
L = TypeVar("L", bound=RunLock)


class _LogEnds(Protocol):
    """The part of a store that tells the last commit of a log."""

    def heads(self, logs: Sequence[LogId]) -> dict[LogId, Log]: ...

    def number_of(self, id: Digest) -> int | None: ...


class _OpenFile(NamedTuple):
    """An open file of locks. Its inode tells whether the handle still is that file."""

    handle: int
    inode: int


class _ProcessLocks:
    """The runs that this process has locked in folders, and the lock files it has open.

    One object for the whole process and all stores opened on a folder: where the system has
    no locks of open files, closing any handle of a file frees every lock of the process on it. So a
    lock file, once opened, stays open.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._locked: set[tuple[Path, str]] = set()
        self._files: dict[Path, _OpenFile] = {}

    def take(self, folder: Path, run: str, session: str) -> None:
        with self._guard:
            if (folder, run) in self._locked:
                raise RunHeld(session, run, _this_process())
            if not self._try_to_take(folder, run):
                raise RunHeld(session, run, _holder(self._handle(folder), run))

    def take_first(self, folder: Path, runs: Sequence[str]) -> str | None:
        """Take the first of these runs that no process has, and return it."""
        with self._guard:
            for run in runs:
                if (folder, run) not in self._locked and self._try_to_take(folder, run):
                    return run
        return None

    def _try_to_take(self, folder: Path, run: str) -> bool:
        """Take a run that this process does not have. False: another process has it."""
        handle, offset = self._handle(folder), _offset(run)
        try:
            _lock_byte(handle, fcntl.F_WRLCK, offset)
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise StoreFailed(str(folder), f"the run cannot be locked: {error}") from error
        with suppress(OSError):  # this byte only tells the holder
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset + 1)
        self._locked.add((folder, run))
        return True

    def release(self, folder: Path, run: str) -> None:
        with self._guard:
            if (folder, run) not in self._locked:
                return
            self._locked.discard((folder, run))
            handle, offset = self._handle(folder), _offset(run)
            with suppress(OSError):
                _lock_byte(handle, fcntl.F_UNLCK, offset)
                fcntl.lockf(handle, fcntl.LOCK_UN, 1, offset + 1)

    def free_runs(self, folder: Path, runs: Collection[str]) -> set[str]:
        """Return those runs that no process has. Nothing is locked to find out."""
        with self._guard:
            free = {run for run in runs if (folder, run) not in self._locked}
            try:
                handle = self._handle(folder, make=False)
                return {run for run in free if _lock_owner(handle, _offset(run)) is None}
            except FileNotFoundError:  # no run was ever locked here
                return free
            except OSError as error:
                raise StoreFailed(str(folder), f"run locks cannot be read: {error}") from error

    def forget(self) -> None:
        """Drop everything in a forked child: the locks are the parent's."""
        for file in self._files.values():
            with suppress(OSError):
                os.close(file.handle)  # the parent has it open, too: its locks stay, and go with it
        self._guard = Lock()
        self._locked.clear()
        self._files.clear()

    def _handle(self, folder: Path, *, make: bool = True) -> int:
        file = self._files.get(folder)
        if file is not None and _is_in_place(file):
            return file.handle
        path = folder / FILE
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0)
        try:
            handle = os.open(path, flags, 0o600)
        except OSError as error:
            if not make and isinstance(error, FileNotFoundError):
                raise
            raise StoreFailed(str(path), str(error)) from error
        self._files[folder] = _OpenFile(handle, os.fstat(handle).st_ino)
        return handle


_process = _ProcessLocks()
STORES.call_in_child(_process.forget)


class FileLock:
    """A run locked in a store's folder."""

    def __init__(self, folder: Path, run: str) -> None:
        self._folder, self._run = folder, run

    def release(self) -> None:
        _process.release(self._folder, self._run)

    was_taken = False


class MemoryLock:
    """A run locked in a store in memory; `locked` is the store's table."""

    def __init__(self, locked: set[str], run: str, session: str = "") -> None:
        if run in locked:
            raise RunHeld(session, run, _this_process())
        self._locked, self._run = locked, run
        locked.add(run)

    def release(self) -> None:
        self._locked.discard(self._run)

    was_taken = False


def lock_in(folder: Path, run: str, session: str) -> FileLock:
    """Lock a run of the store in this folder."""
    _process.take(folder, run, session)
    return FileLock(folder, run)


def lock_first_in(folder: Path, runs: Sequence[str]) -> tuple[str, FileLock] | None:
    """Lock the first of these runs that no process has."""
    run = _process.take_first(folder, runs)
    return None if run is None else (run, FileLock(folder, run))


def lock_unmoved(
    store: _LogEnds,
    runs: Sequence[str],
    seen: Mapping[str, SeenRun],
    lock_first: Callable[[Sequence[str]], tuple[str, L] | None],
) -> tuple[str, L] | None:
    """Lock the first of these runs whose log has not gone on since it was seen."""
    left = list(runs)
    while (taken := lock_first(left)) is not None:
        has_moved = True
        try:
            mark = seen.get(taken[0])
            has_moved = mark is not None and _has_moved(store, mark)
        finally:
            if has_moved:
                taken[1].release()
        if not has_moved:
            return taken
        left = left[left.index(taken[0]) + 1 :]
    return None


def _has_moved(store: _LogEnds, mark: SeenRun) -> bool:
    """True if a log has events after those that were seen."""
    end = store.heads([mark.log]).get(mark.log)
    return end is not None and (store.number_of(end.head) or 0) > mark.number


def free_runs_in(folder: Path, runs: Collection[str]) -> set[str]:
    """Return those runs of the store in this folder that no process has."""
    return _process.free_runs(folder, runs)


def _this_process() -> str:
    return f"this process, {os.getpid()}"


def _is_in_place(file: _OpenFile) -> bool:
    """True if the handle still is the file that was opened, and the file was not removed."""
    with suppress(OSError):
        found = os.fstat(file.handle)
        return found.st_ino == file.inode and found.st_nlink > 0
    return False


def _lock_byte(handle: int, kind: int, offset: int) -> None:
    """Lock or unlock a byte for this open file; where the system cannot, for this process."""
    command: int | None = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None or sys.platform != "linux":
        how = fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB
        fcntl.lockf(handle, how, 1, offset)
        return
    fcntl.fcntl(handle, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, offset, 1, 0))


def _offset(run: str) -> int:
    """Return the first of the two bytes that are the run's own."""
    return int(digest(b"plait/hold/1", run.encode())[:14], 16) * 2


def _holder(handle: int, run: str) -> str:
    """Name the process that has the run, where the system tells."""
    with suppress(OSError):
        owner = _lock_owner(handle, _offset(run) + 1, of_process=True)
        if owner is not None:
            return f"process {owner}"
    return "another process"


def _lock_owner(handle: int, offset: int, *, of_process: bool = False) -> int | None:
    """Return the process that has locked a byte, -1 if the lock belongs to an open file. None: no
    other has locked it.

    `of_process`: ask as this process, else as this open file, where the system can.
    """
    if sys.platform == "linux":
        command = fcntl.F_GETLK if of_process else getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
        kind, _, _, _, owner = struct.unpack("hhqqi4x", fcntl.fcntl(handle, command, asked))
    else:  # as BSD and macOS lay it out
        asked = struct.pack("qqihh", offset, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
        _, _, owner, kind, _ = struct.unpack("qqihh", fcntl.fcntl(handle, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else owner
