"""Allowances as small files in the store's folder, one per allowance.

A process locks the file, reads the level, and writes what it leaves. The lock ends with the
process. A file that cannot be read is an allowance that is full.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from plait.errors import DiskFull, StoreFailed
from plait.store.allowances import Level, as_allowance, close_for, draw_from
from plait.store.arguments import NAME_SIZE_MAX
from plait.store.moment import Allowance, Drawn
from plait.store.sqlite.bells import name_of

FOLDER = "allowances"
_TRIES_MAX = 100  # to lock a file that others remove
_FILE_SIZE_MAX = NAME_SIZE_MAX + 64


class _AllowanceFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The content of a file: it names its allowance, since the file's own name is a digest."""

    name: str
    level: Level


class AllowanceFiles:
    """The allowances of a store in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def draw(
        self, name: str, amount: float, per_s: float, size: float, most: float, reserves: bool
    ) -> Drawn:
        with self._locked(name) as handle:
            found = _level_in(handle, name)
            level, drawn = draw_from(found, _now_s(), amount, per_s, size, most, reserves)
            _write_level(handle, name, level)
            return drawn

    def close(self, name: str, seconds: float) -> None:
        with self._locked(name) as handle:
            _write_level(handle, name, close_for(_level_in(handle, name), _now_s(), seconds))

    def read(self) -> dict[str, Allowance]:
        found: dict[str, Allowance] = {}
        try:
            paths = [entry.path for entry in os.scandir(self._folder)]
        except FileNotFoundError:
            return found
        except OSError as error:
            raise StoreFailed(str(self._folder), str(error)) from error
        for path in paths:
            with suppress(OSError, msgspec.MsgspecError, UnicodeError):
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
                with open(os.open(path, flags), "rb") as file:
                    content = file.read(_FILE_SIZE_MAX)
                kept = msgspec.msgpack.decode(content, type=_AllowanceFile)
                if name_of(kept.name) == os.path.basename(path):
                    found[kept.name] = as_allowance(kept.level, _now_s())
        return dict(sorted(found.items()))

    def drop(self, name: str) -> None:
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._folder / name_of(name))
        except OSError as error:
            raise StoreFailed(str(self._folder), str(error)) from error

    @contextmanager
    def _locked(self, name: str) -> Generator[int]:
        """Open the file of an allowance, for this thread alone."""
        path = self._folder / name_of(name)
        try:
            handle = self._open_locked(path)
            try:
                yield handle
            finally:
                os.close(handle)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(str(path)) from error
            raise StoreFailed(str(path), str(error)) from error

    def _open_locked(self, path: Path) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        for _ in range(_TRIES_MAX):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with suppress(FileNotFoundError):
                handle = os.open(path, flags, 0o600)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX)
                    if os.fstat(handle).st_nlink:
                        return handle
                except BaseException:
                    os.close(handle)
                    raise
                os.close(handle)  # it was removed before it was locked
        raise OSError(errno.EAGAIN, "the file is removed again and again")


def _level_in(handle: int, name: str) -> Level | None:
    """Return the level in a file. None: there is none, or it cannot be read."""
    with suppress(msgspec.MsgspecError, UnicodeError):
        content = os.pread(handle, _FILE_SIZE_MAX, 0)
        kept = msgspec.msgpack.decode(content, type=_AllowanceFile)
        return kept.level if kept.name == name else None
    return None


def _write_level(handle: int, name: str, level: Level) -> None:
    content = msgspec.msgpack.encode(_AllowanceFile(name, level))
    os.pwrite(handle, content, 0)
    os.ftruncate(handle, len(content))


def _now_s() -> float:
    return time.clock_gettime(time.CLOCK_REALTIME)
