"""Files that processes hold open although no folder counts them.

A memfd, a file in a tmpfs and a file that was removed while it is open take memory or disk that
neither a walk through folders nor the resident memory of a process shows. They are found by the
descriptors of the processes, and by their mappings of removed files. A file that is on its way from
one process to another is seen when it has arrived: /proc does not show the content of sockets. The
kernel lets a user have no more files under way than one process may have open.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

_SHM = "dev/shm"
_WRITABLE = os.O_WRONLY | os.O_RDWR
_MEMORY_SYSTEMS = ("tmpfs", "ramfs")

Key = tuple[int, int]  # device and inode: a file that several processes hold is counted once


class HeldFile(NamedTuple):
    """One file, and whether some folder still lists it."""

    size: int
    linked: bool


@functools.cache
def memory_device() -> int:
    """Return the device of all memfds, and of memory that processes share without a name."""
    handle = os.memfd_create("plait")
    try:
        return os.fstat(handle).st_dev
    finally:
        os.close(handle)


def memory_devices() -> frozenset[int]:
    """Return the devices on which a file is memory, as this process sees them mounted."""
    found = {memory_device()}
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            before, _, after = line.partition(" - ")
            if after.split(" ", 1)[0] in _MEMORY_SYSTEMS:
                major, _, minor = before.split()[2].partition(":")
                found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)


class PrivateMemory(NamedTuple):
    """The /dev/shm of a sandbox: a file system of its own, which says itself how full it is."""

    device: int
    size: int


def private_memory(pids: Collection[int]) -> PrivateMemory | None:
    """Return the /dev/shm of the sandbox; None: the processes have that of the host."""
    own = _device("/" + _SHM)
    for pid in reversed([*pids]):  # the first ones stand outside
        path = f"/proc/{pid}/root/{_SHM}"
        if (device := _device(path)) not in (None, own):
            with suppress(OSError):
                found = os.statvfs(path)
                return PrivateMemory(device, (found.f_blocks - found.f_bfree) * found.f_frsize)
    return None


def _device(path: str) -> int | None:
    try:
        return os.stat(path).st_dev
    except OSError:
        return None


def held_files(pids: Collection[int], memory: Collection[int] = ()) -> dict[Key, HeldFile]:
    """Return the regular files that the processes hold and that are unlinked, or that lie on a
    device of `memory` and are open for writing.
    """
    found: dict[Key, HeldFile] = {}
    for pid in pids:
        with suppress(OSError):  # it ended, or is not ours to look at
            for name in os.listdir(f"/proc/{pid}/fd"):
                _note(found, f"/proc/{pid}/fd/{name}", memory, f"/proc/{pid}/fdinfo/{name}")
            for path, key, size in _unlinked_mappings(pid):
                if not _note(found, path, memory):
                    found.setdefault(key, HeldFile(size, linked=False))
    return found


def _note(found: dict[Key, HeldFile], path: str, memory: Collection[int], about: str = "") -> bool:
    """Add the file to `found` if it counts; return False if it could not be looked at."""
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):
            return True
        linked = info.st_nlink > 0
        if not linked or (info.st_dev in memory and about and _is_writable(about)):
            found[info.st_dev, info.st_ino] = HeldFile(info.st_blocks * 512, linked)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _is_writable(about: str) -> bool:
    with open(about) as file:
        flags = next((line.split()[1] for line in file if line.startswith("flags:")), "0")
    return bool(int(flags, 8) & _WRITABLE)


def _unlinked_mappings(pid: int) -> Iterator[tuple[str, Key, int]]:
    """Return the path by which each mapping can be looked at, its key, and its mapped size.

    Only root may look. The size of a mapped memfd is 0 here: its used part is resident memory of
    the process.
    """
    with open(f"/proc/{pid}/maps", errors="replace") as file:
        for line in file:
            if line.endswith("(deleted)\n") and (key := _key_of(line)) is not None:
                span = line.split(" ", 1)[0]
                first, _, last = span.partition("-")
                size = 0 if key[0] == memory_device() else int(last, 16) - int(first, 16)
                yield f"/proc/{pid}/map_files/{span}", key, size


def _key_of(line: str) -> Key | None:
    """Return the file of a mapping; None: the line is not the first one about a mapping."""
    words = line.split(maxsplit=5)
    if len(words) < 5 or ":" not in words[3]:
        return None
    major, _, minor = words[3].partition(":")
    return os.makedev(int(major, 16), int(minor, 16)), int(words[4])


def shared_memory_beside(
    pids: Collection[int], known: Collection[Key], memory: Collection[int]
) -> int:
    """Return the resident bytes of mapped memory files that are not among the known ones.

    Raises OSError if the mappings cannot be read.
    """
    total = 0
    for pid in pids:
        with (
            suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{pid}/smaps", errors="replace") as file,
        ):
            counts = False
            for line in file:
                if (key := _key_of(line)) is not None:
                    counts = key[0] in memory and key not in known
                elif counts and line.startswith("Rss:"):
                    total += int(line.split()[1]) * 1024
    return total
