"""Bytes on disk that a command has written: below folders, and in files that no folder lists."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable

from plait.sandbox.held_files import held_files, memory_device, private_memory

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def changed_bytes(folders: Iterable[str], since: float) -> int:
    """Return the bytes of files below these folders that changed since then.

    Holes count: a reader of the file gets them as bytes.
    """
    return sum(_bytes_below(folder, since) for folder in folders)


def unlisted_bytes(pids: Collection[int]) -> int:
    """Return the bytes on disk that processes hold in files that no folder lists any more."""
    private = private_memory(pids)
    memory = {memory_device(), *([private.device] if private is not None else [])}
    return sum(file.size for (device, _), file in held_files(pids).items() if device not in memory)


def _bytes_below(folder: str, since: float) -> int:
    try:
        place = _DiskWalk(os.open(folder, _FOLDER))
    except OSError:
        return 0
    with contextlib.closing(place):
        total, names = place.list_folder(since)
        todo = [names]
        while todo:
            if not todo[-1]:
                todo.pop()
                if todo and not place.leave():
                    break
            elif place.enter(todo[-1].pop()):
                size, names = place.list_folder(since)
                total += size
                todo.append(names)
        return total


class _DiskWalk:
    """A walk through a folder by one handle and single names: no path is too long, no tree too
    deep. Links are not followed.
    """

    def __init__(self, handle: int) -> None:
        self._here = handle
        self._above: list[tuple[int, int]] = []

    def enter(self, name: str) -> bool:
        before = _identity(self._here)
        if self._enter_folder(name):
            self._above.append(before)
            return True
        return False

    def leave(self) -> bool:
        """Go up; return False if the folder was moved meanwhile, and its parent is another."""
        return self._enter_folder("..") and _identity(self._here) == self._above.pop()

    def list_folder(self, since: float) -> tuple[int, list[str]]:
        """Return the bytes of its entries, and the names of its folders."""
        total, names = 0, list[str]()
        with contextlib.suppress(OSError), os.scandir(self._here) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    total += _size_on_disk(info) if info.st_ctime >= since else 0
                    names += [entry.name] if stat.S_ISDIR(info.st_mode) else []
        return total, names

    def close(self) -> None:
        os.close(self._here)

    def _enter_folder(self, name: str) -> bool:
        try:
            handle = os.open(name, _FOLDER, dir_fd=self._here)
        except OSError:
            return False
        os.close(self._here)
        self._here = handle
        return True


def _size_on_disk(info: os.stat_result) -> int:
    return max(info.st_blocks * 512, info.st_size if stat.S_ISREG(info.st_mode) else 0)


def _identity(folder: int) -> tuple[int, int]:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino
