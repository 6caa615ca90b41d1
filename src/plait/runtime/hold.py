"""Who holds a run: one process at a time, by a lock that dies with it.

A store's folder has one file of locks; a run is one byte of it, at a place that follows from its
id. The lock belongs to the open file, which a forked child lets go of at once, so kill -9 frees it
and nothing has to be swept up, and whoever else reads the folder in this process (a backup, say)
frees nothing. A second byte tells who it is. A store in memory is one process's own: there the
table of what is held is enough.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from contextlib import suppress
from threading import Lock

from plait.errors import RunHeld, StoreFailed
from plait.ids import digest

FILE = "runs.lock"
_held: set[tuple[str, str]] = set()
_files: dict[str, tuple[int, int]] = {}  # by folder: the process that opened it, and its handle
_lock = Lock()


def hold(address: str, run: str, session: str) -> None:
    """Take a run, or raise RunHeld with who has it."""
    with _lock:
        if (address, run) in _held:
            raise RunHeld(session, run, f"this process, {os.getpid()}")
        handle = _file(address)
        if handle is not None:
            try:
                _lock_byte(handle, fcntl.F_WRLCK, _byte(run))
            except (BlockingIOError, PermissionError) as error:
                raise RunHeld(session, run, _holder(handle, run)) from error
            except OSError as error:
                raise StoreFailed(address, f"the run cannot be locked: {error}") from error
            with suppress(OSError):
                # only to be told by
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(run) + 1)
        _held.add((address, run))


def is_held(address: str, run: str) -> bool:
    """Whether any process holds a run, this one included."""
    try:
        hold(address, run, "")
    except RunHeld:
        return True
    release(address, run)
    return False


def release(address: str, run: str) -> None:
    with _lock:
        if (address, run) not in _held:
            return
        _held.discard((address, run))
        handle = _file(address)
        if handle is not None:
            with suppress(OSError):
                _lock_byte(handle, fcntl.F_UNLCK, _byte(run))
                fcntl.lockf(handle, fcntl.LOCK_UN, 1, _byte(run) + 1)


def _forget() -> None:
    """In a forked child: the locks are the parent's."""
    for handle, _ in _files.values():
        with suppress(OSError):
            os.close(handle)  # the parent has it open, too: its locks stay, and go with it
    _held.clear()
    _files.clear()
    global _lock
    _lock = Lock()


os.register_at_fork(after_in_child=_forget)


def _file(address: str) -> int | None:
    """The open file of locks.

    None: the store has no folder. It stays open as long as the process lives.
    """
    scheme, _, folder = address.partition(":")
    if scheme != "sqlite":
        return None
    path = os.path.join(folder, FILE)
    kept = _files.get(path)
    if kept is not None and _is_there(kept):
        return kept[0]
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreFailed(path, str(error)) from error
    _files[path] = handle, os.fstat(handle).st_ino
    return handle


def _is_there(kept: tuple[int, int]) -> bool:
    with suppress(OSError):
        return os.fstat(kept[0]).st_ino == kept[1] and os.fstat(kept[0]).st_nlink > 0
    return False


def _lock_byte(handle: int, kind: int, at: int) -> None:
    """Lock or unlock a byte for this open file; where the system cannot, for this process."""
    command: int | None = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None or sys.platform != "linux":
        how = fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB
        fcntl.lockf(handle, how, 1, at)
        return
    fcntl.fcntl(handle, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, at, 1, 0))


def _byte(run: str) -> int:
    """Where a run is locked: two bytes of its own."""
    return int(digest(b"plait/hold/1", run.encode())[:14], 16) * 2


def _holder(handle: int, run: str) -> str:
    """Which process has it, where the system tells."""
    if sys.platform == "linux":
        with suppress(OSError, struct.error):
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, _byte(run) + 1, 1, 0)
            kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(handle, fcntl.F_GETLK, asked))
            if kind != fcntl.F_UNLCK:
                return f"process {pid}"
    return "another process"
