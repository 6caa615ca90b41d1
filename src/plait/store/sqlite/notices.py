"""Notices as small files in the store's folder, one per notice.

A file is written under another name and renamed, so that readers see the old notice or the new
one. It is not synced. A file that is not a whole notice is passed over.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from plait.errors import DiskFull, StoreFailed
from plait.store.arguments import NAME_SIZE_MAX, NOTICE_SIZE_MAX
from plait.store.moment import Notice
from plait.store.sqlite.bells import name_of

FOLDER = "notices"
_MAKING = ".new-"
_TRIES_MAX = 100  # to write into a folder that others remove when it is empty
_LEFT_S = 60.0  # a file without its name for so long was left behind
_FILE_SIZE_MAX = NOTICE_SIZE_MAX + 2 * NAME_SIZE_MAX + 64


class _NoticeFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The content of a file: it names its notice, since the file's own name is a digest."""

    board: str
    key: str
    data: bytes


class NoticeFiles:
    """The notices of a store in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def put(self, board: str, key: str, data: bytes) -> None:
        folder = self._folder / name_of(board)
        content = msgspec.msgpack.encode(_NoticeFile(board, key, data))
        try:
            for _ in range(_TRIES_MAX):
                self._folder.mkdir(mode=0o700, exist_ok=True)
                folder.mkdir(mode=0o700, exist_ok=True)
                with suppress(FileNotFoundError):
                    return _write_file(folder, name_of(key), content)
            raise OSError(errno.EAGAIN, "the folder is removed again and again")
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(str(folder)) from error
            raise StoreFailed(str(folder), str(error)) from error

    def drop(self, board: str, key: str) -> None:
        folder = self._folder / name_of(board)
        try:
            with suppress(FileNotFoundError):
                os.unlink(folder / name_of(key))
        except OSError as error:
            raise StoreFailed(str(folder), str(error)) from error
        with suppress(OSError):  # the folder of a board goes with its last notice
            os.rmdir(folder)

    def read(self, board: str) -> dict[str, Notice]:
        found: dict[str, Notice] = {}
        try:
            with os.scandir(self._folder / name_of(board)) as listing:
                files = [(item.name, item.path) for item in listing]
        except FileNotFoundError:
            return found
        except OSError as error:
            raise StoreFailed(str(self._folder), str(error)) from error
        for name, path in files:
            # gone meanwhile, not a whole notice, or none of ours
            with suppress(OSError, msgspec.MsgspecError, UnicodeError):
                content, age_s = _read_file(path)
                if name.startswith(_MAKING):
                    _remove_left(path, age_s)
                    continue
                notice = msgspec.msgpack.decode(content, type=_NoticeFile)
                if notice.board == board and name_of(notice.key) == name:
                    found[notice.key] = Notice(notice.data, age_s)
        return dict(sorted(found.items()))


def _write_file(folder: Path, name: str, content: bytes) -> None:
    handle, making = tempfile.mkstemp(prefix=_MAKING, dir=folder)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.rename(making, folder / name)
    except BaseException:
        with suppress(OSError):
            os.unlink(making)
        raise


def _read_file(path: str) -> tuple[bytes, float]:
    """Return the content of a plain file, and how long ago it was written."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _FILE_SIZE_MAX:
            raise OSError(errno.EINVAL, "not a notice", path)
        age_s = time.clock_gettime(time.CLOCK_REALTIME) - found.st_mtime
        return file.read(_FILE_SIZE_MAX), max(age_s, 0.0)


def _remove_left(path: str, age_s: float) -> None:
    """Remove a file whose writer died before it could rename it."""
    if age_s > _LEFT_S:
        os.unlink(path)
