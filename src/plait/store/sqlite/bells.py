"""Bells between the processes of one machine: a named pipe per listener, in the store's folder.

A listener has its pipe open for reading. To ring is to write one byte to each pipe of the topic. A
pipe that has no reader belongs to a process that is gone: it is removed by those who find it, so
that none pile up. A pipe gets its name when it is open: a ring never takes one in the making for a
dead one.

On a disk that knows no named pipes, or that this process may not write to, a bell never rings.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from plait.errors import StoreFailed
from plait.ids import digest
from plait.store.arguments import check_timeout
from plait.store.local_bells import LocalBell, LocalBells
from plait.store.process import STORES

FOLDER = "bells"
_TRIES_MAX = 100  # to make a pipe in a folder that others remove when it is empty
_MAKING_S = 60.0  # a pipe without its name for so long was left behind
_TOO_MANY = frozenset({errno.EMFILE, errno.ENFILE})


def name_of(name: str) -> str:
    """Return a name for files, of any text."""
    return digest(b"plait/name/1", name.encode())[:32]


class PipeBell:
    """A listener with a pipe of its own."""

    def __init__(self, handle: int, path: Path, closed: Callable[[PipeBell], object]) -> None:
        self._handle, self._path, self._closed = handle, path, closed
        self._guard = threading.Lock()
        self._waiting = 0  # threads in `wait`: the last one out closes the pipe
        self._is_closed = False

    def wait(self, timeout_s: float) -> bool:
        check_timeout(timeout_s)
        with self._guard:
            if self._is_closed:
                return False
            self._waiting += 1
        try:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            rang = bool(poll.poll(timeout_s * 1000))
            if rang and not self._is_closed:
                with suppress(BlockingIOError):  # another thread was faster
                    os.read(self._handle, 65536)
            return rang and not self._is_closed
        finally:
            with self._guard:
                self._waiting -= 1
                self._close_handle()

    def close(self) -> None:
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
            with suppress(OSError):
                os.unlink(self._path)
            with suppress(OSError):  # the folder of a topic goes with its last listener
                os.rmdir(self._path.parent)
            self._close_handle()
        self._closed(self)

    def forget(self) -> None:
        """Be closed in a forked child: the pipe is the parent's, and must end with it."""
        self._guard, self._is_closed, self._waiting = threading.Lock(), True, 0
        self._close_handle()

    def _close_handle(self) -> None:
        """Close the pipe of a closed bell, once no thread waits for it."""
        if not self._is_closed or self._handle < 0:
            return
        if self._waiting:
            with suppress(BlockingIOError):  # the pipe is full: that wakes them, too
                os.write(self._handle, b"\0")
            return
        handle, self._handle = self._handle, -1
        os.close(handle)


class PipeBells:
    """The bells of a store in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._guard = threading.Lock()
        self._numbers = count()
        self._bells: set[PipeBell] = set()
        self._silent = LocalBells()
        STORES.add(self)

    def listen(self, topic: str) -> PipeBell | LocalBell:
        folder = self._folder / name_of(topic)
        with self._guard:
            try:
                bell = self._make_bell(folder)
            except OSError as error:
                if error.errno in _TOO_MANY:
                    raise StoreFailed(str(folder), str(error), "raise `ulimit -n`") from error
                return self._silent.listen(topic)
            self._bells.add(bell)
            return bell

    def ring(self, topic: str) -> None:
        folder = self._folder / name_of(topic)
        # With the guard: a child that is forked off has none of the pipes.
        with self._guard, suppress(OSError), os.scandir(folder) as listing:
            for item in listing:
                with suppress(OSError):
                    _ring_pipe(item.path, is_making=item.name.startswith("."))

    def close(self) -> None:
        with self._guard:
            bells = list(self._bells)
        for bell in bells:
            bell.close()
        self._silent.close()

    def _make_bell(self, folder: Path) -> PipeBell:
        for _ in range(_TRIES_MAX):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            making = folder / f".{os.getpid()}-{next(self._numbers)}"
            with suppress(FileExistsError, FileNotFoundError):
                os.mkfifo(making, 0o600)
                return PipeBell(*_open_pipe(making), self._drop)
        raise OSError(errno.EAGAIN, "the folder is removed again and again")

    def _drop(self, bell: PipeBell) -> None:
        with self._guard:
            self._bells.discard(bell)

    # ── forks ────────────────────────────────────────────────────────────────────────────────

    def freeze(self) -> None:
        self._guard.acquire()

    def thaw(self) -> None:
        self._guard.release()

    def start_over(self) -> None:
        self._guard = threading.Lock()
        bells, self._bells = self._bells, set()
        for bell in bells:
            bell.forget()
        self._silent.start_over()

    def sync_at_exit(self) -> None:
        """Remove the pipes of this process."""
        self.close()


def _open_pipe(making: Path) -> tuple[int, Path]:
    """Open a pipe, and give it its name."""
    try:
        handle = os.open(making, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            # Its number on the disk: no other pipe has it, for as long as this one is there.
            path = making.with_name(str(os.fstat(handle).st_ino))
            os.rename(making, path)
        except BaseException:
            os.close(handle)
            raise
    except BaseException:
        with suppress(OSError):
            os.unlink(making)
        raise
    return handle, path


def _ring_pipe(path: str, *, is_making: bool) -> None:
    """Write to a pipe, and remove one that has no reader."""
    flags = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
    found = os.lstat(path)
    if not stat.S_ISFIFO(found.st_mode):
        return
    try:
        handle = os.open(path, os.O_WRONLY | flags)
    except OSError as error:
        age_s = time.clock_gettime(time.CLOCK_REALTIME) - found.st_ctime
        if error.errno == errno.ENXIO and (not is_making or age_s > _MAKING_S):
            os.unlink(path)
            os.rmdir(os.path.dirname(path))  # if it was the last one
        return
    try:
        # A reader of our own: without any, a byte would end a program that takes SIGPIPE.
        reader = os.open(path, os.O_RDONLY | flags)
        try:
            if stat.S_ISFIFO(os.fstat(handle).st_mode):
                os.write(handle, b"\1")
        finally:
            os.close(reader)
    finally:
        os.close(handle)
