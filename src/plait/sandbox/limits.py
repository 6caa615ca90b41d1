"""How much a command may take, and who watches it.

Memory and processes are counted by a control group of the command's own, of version 2 or 1, below
the group that this process is in. Where none can be made, whoever waits for the command adds up
what its processes take, a few times a second. Going beyond a limit ends the command, and the whole
of it: half a program that was refused a process says less than one that was stopped.

Disk is counted by looking in any case: the folders that a command may write to, and files that it
holds open after it removed them.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import resource
import stat
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, Protocol

from plait.sandbox.base import Limits
from plait.sandbox.held import (
    held_files,
    memory_device,
    memory_devices,
    private_memory,
    shared_memory_beside,
)

MB = 1 << 20
_NAME = "plait"
_AROUND = 3  # processes of bubblewrap itself, or the launcher
# so many more processes are refused at once: whoever watches should see the limit passed
_SLACK = 16
_numbers = itertools.count(1)


def narrowed(limits: Limits, asked: Limits | None) -> Limits:
    """Both together: of each two the smaller one."""
    if asked is None:
        return limits
    pairs = {
        name: (getattr(limits, name), getattr(asked, name)) for name in limits.__struct_fields__
    }
    return Limits(
        **{
            name: min((v for v in pair if v is not None), default=None)
            for name, pair in pairs.items()
        }
    )


def confine(pid: int, limits: Limits, *, own_users: bool) -> None:
    """What the kernel limits by process.

    `own_users`: in a user namespace, where processes are counted apart from all others.
    """
    if limits.open_files is not None:
        _limit(pid, resource.RLIMIT_NOFILE, limits.open_files)
    if limits.disk_mb is not None:
        _limit(pid, resource.RLIMIT_FSIZE, limits.disk_mb * MB)
    if limits.processes is not None and own_users and os.geteuid():  # it does nothing for root
        _limit(pid, resource.RLIMIT_NPROC, limits.processes + _SLACK)
    _limit(pid, resource.RLIMIT_CORE, 0)


def _limit(pid: int, what: int, value: int) -> None:
    hard = resource.prlimit(pid, what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.prlimit(pid, what, (value, value))


class Watch(Protocol):
    """What counts memory and processes."""

    @property
    def name(self) -> str: ...
    def join(self, pid: int) -> None: ...
    def has(self, pid: int) -> bool: ...
    def pids(self) -> list[int]:
        """The processes that are counted."""
        ...

    def exceeded(self) -> str:
        """`memory`, `processes`, or nothing."""
        ...

    def kill(self) -> None:
        """End whatever is in it."""
        ...

    def close(self) -> None: ...


# ── control groups ───────────────────────────────────────────────────────────────────────────


class _Part(NamedTuple):
    """One folder of a group, and what to read there: a file, the word in it that is a count, and
    what it means if it is not 0.
    """

    folder: str
    settings: tuple[tuple[str, str], ...]
    signs: tuple[tuple[str, str, str], ...]


class Group:
    """A control group for one command."""

    def __init__(self, name: str, parts: Iterable[_Part]) -> None:
        self.name, self._parts = name, tuple(parts)
        for part in self._parts:
            os.mkdir(part.folder)
            for file, value in part.settings:
                _set(part.folder, file, value)

    def join(self, pid: int) -> None:
        for part in self._parts:
            _write(part.folder, "cgroup.procs", str(pid))

    def has(self, pid: int) -> bool:
        return all(str(pid) in _read(part.folder, "cgroup.procs").split() for part in self._parts)

    def pids(self) -> list[int]:
        return [int(pid) for pid in _read(self._parts[0].folder, "cgroup.procs").split()]

    def exceeded(self) -> str:
        for part in self._parts:
            for file, word, meaning in part.signs:
                if _count(part.folder, file, word):
                    return meaning
        return ""

    def kill(self) -> None:
        for part in self._parts[:1]:
            for pid in _read(part.folder, "cgroup.procs").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)

    def close(self) -> None:
        for part in self._parts:
            _remove(part.folder)


def _remove(folder: str) -> None:
    """Those that were killed may take a moment to leave it.

    What cannot be removed now is removed as stale later.
    """
    for _ in range(50):
        try:
            return os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
            time.sleep(0.002)


def _set(folder: str, file: str, value: str) -> None:
    """A limit; that of swap is not there on every machine."""
    try:
        _write(folder, file, value)
    except OSError:
        if "sw" not in file and "oom" not in file:
            raise


def _write(folder: str, file: str, value: str) -> None:
    fd = os.open(f"{folder}/{file}", os.O_WRONLY)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def _read(folder: str, file: str) -> str:
    try:
        with open(f"{folder}/{file}") as opened:
            return opened.read()
    except OSError:
        return ""


def _count(folder: str, file: str, word: str) -> int:
    return next(
        (
            int(line.split()[1])
            for line in _read(folder, file).splitlines()
            if line.split()[0] == word
        ),
        0,
    )


def open_group(limits: Limits) -> Group | None:
    """A group with these limits; None: none can be made here, or nothing is to be counted."""
    if limits.memory_mb is None and limits.processes is None:
        return None
    name = f"{_NAME}-{os.getpid()}-{next(_numbers)}"
    for kind, parents in homes():
        parts = (
            _second(f"{parents[0]}/{name}", limits)
            if kind == "cgroup2"
            else _first(parents, name, limits)
        )
        group = Group.__new__(Group)
        try:
            group.__init__(kind, parts)
            return group
        except OSError:
            group.close()
    return None


def _second(folder: str, limits: Limits) -> list[_Part]:
    settings = [("memory.oom.group", "1")]
    if limits.memory_mb is not None:
        settings += [("memory.max", str(limits.memory_mb * MB)), ("memory.swap.max", "0")]
    if limits.processes is not None:
        settings += [("pids.max", str(limits.processes + _AROUND))]
    return [
        _Part(
            folder,
            tuple(settings),
            (("memory.events", "oom_kill", "memory"), ("pids.events", "max", "processes")),
        )
    ]


def _first(parents: tuple[str, ...], name: str, limits: Limits) -> list[_Part]:
    memory, pids = parents
    parts: list[_Part] = []
    if limits.memory_mb is not None:
        most = str(limits.memory_mb * MB)
        settings = (("memory.limit_in_bytes", most), ("memory.memsw.limit_in_bytes", most))
        parts.append(
            _Part(f"{memory}/{name}", settings, (("memory.oom_control", "oom_kill", "memory"),))
        )
    if limits.processes is not None:
        parts.append(
            _Part(
                f"{pids}/{name}",
                (("pids.max", str(limits.processes + _AROUND)),),
                (("pids.events", "max", "processes"),),
            )
        )
    return parts


class _Found:
    homes: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    lock = threading.Lock()


def homes() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Where groups can be made: the kind, and a folder per controller.

    Found once; what dead processes left there is removed.
    """
    with _Found.lock:
        if _Found.homes is None:
            _Found.homes = tuple(
                _find(_read("/proc/self", "mounts"), _read("/proc/self", "cgroup"))
            )
            for _, folders in _Found.homes:
                remove_stale(folders)
        return _Found.homes


def _find(mounts: str, own: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    rows = [line.split() for line in mounts.splitlines()]
    mine = {
        name: path
        for line in own.splitlines()
        for _, names, path in [line.split(":", 2)]
        for name in names.split(",")
    }
    for row in rows:
        if row[2] == "cgroup2" and "" in mine:
            yield from (
                ("cgroup2", (folder,))
                for folder in _lineage(row[1], mine[""])
                if _delegated(folder)
            )
    first = {
        name: row[1]
        for row in rows
        if row[2] == "cgroup"
        for name in row[3].split(",")
        if name in ("memory", "pids")
    }
    folders = tuple(
        first[name] + mine[name].rstrip("/")
        for name in ("memory", "pids")
        if name in first and name in mine
    )
    if len(folders) == 2 and all(os.access(folder, os.W_OK) for folder in folders):
        yield "cgroup", folders


def _lineage(root: str, path: str) -> list[str]:
    """One's own group, then the one around it: the kernel wants processes in the leaves only, so
    siblings are the rule.
    """
    own = root + path.rstrip("/")
    return [own] if own == root else [own, os.path.dirname(own)]


def _delegated(folder: str) -> bool:
    return {"memory", "pids"} <= set(_read(folder, "cgroup.subtree_control").split()) and os.access(
        folder, os.W_OK
    )


def remove_stale(folders: Iterable[str]) -> None:
    """Groups whose makers are dead.

    Only empty ones can be removed, so nothing that runs is touched.
    """
    for folder in folders:
        for name in os.listdir(folder):
            head, _, rest = name.partition("-")
            pid = rest.partition("-")[0]
            if head == _NAME and pid.isdecimal() and not os.path.exists(f"/proc/{pid}"):
                with contextlib.suppress(OSError):
                    os.rmdir(f"{folder}/{name}")


# ── without control groups ───────────────────────────────────────────────────────────────────


class Family:
    """A process and all that descend from it, counted by looking."""

    name = "watched"

    def __init__(self, limits: Limits, folders: Iterable[str] = ()) -> None:
        """`folders`: those that the processes may write to; where they lie in memory, they count as
        memory.
        """
        self._limits, self._pid = limits, 0
        self._memory = memory_devices()
        self._folders = [folder for folder in folders if os.stat(folder).st_dev in self._memory]

    def join(self, pid: int) -> None:
        self._pid = pid

    def has(self, pid: int) -> bool:
        return pid in descendants(self._pid)

    def pids(self) -> list[int]:
        return descendants(self._pid)

    def exceeded(self) -> str:
        pids = descendants(self._pid)
        if self._limits.processes is not None and len(pids) > self._limits.processes + _AROUND:
            return "processes"
        if self._limits.memory_mb is not None and self._takes_more(
            pids, self._limits.memory_mb * MB
        ):
            return "memory"
        return ""

    def _takes_more(self, pids: list[int], most: int) -> bool:
        anonymous, shared = (
            sum(_resident(pid, word) for pid in pids) for word in ("RssAnon:", "RssShmem:")
        )
        private, inside = private_memory(pids), {os.stat(folder).st_dev for folder in self._folders}
        own = {private.device} if private is not None else set[int]()
        held = {
            key: file.size
            for key, file in held_files(pids, self._memory).items()
            if key[0] in self._memory - own and not (file.linked and key[0] in inside)
        }
        beside = (
            sum(held.values())
            + (private.size if private is not None else 0)
            + taken(self._folders, 0)
        )
        if anonymous + shared + beside <= most:
            return False
        with contextlib.suppress(OSError):  # shared memory that is held as a file was counted twice
            shared = shared_memory_beside(pids, held.keys(), self._memory - own)
        return anonymous + shared + beside > most

    def kill(self) -> None:
        """The first is the launcher, or bubblewrap: it ends when what it waits for has."""
        for pid in descendants(self._pid)[1:]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, 9)

    def close(self) -> None: ...


def descendants(pid: int) -> list[int]:
    """The process and what it started, and what those started."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            after = _read(f"/proc/{name}", "stat").rpartition(")")[2].split()
            if after:
                children.setdefault(int(after[1]), []).append(int(name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _resident(pid: int, word: str) -> int:
    """Memory of a kind.

    What several processes share is counted for each of them: rather too much than not at all.
    """
    lines = (line.split() for line in _read(f"/proc/{pid}", "status").splitlines())
    return sum(int(words[1]) * 1024 for words in lines if words and words[0] == word)


def counted_by() -> str:
    """What counts memory and processes here."""
    return next((kind for kind, _ in homes()), Family.name)


# ── disk ─────────────────────────────────────────────────────────────────────────────────────


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def taken(folders: Iterable[str], since: float) -> int:
    """Bytes below these folders of what was changed since then.

    A hole counts: whoever reads the file reads it too.
    """
    return sum(_below(folder, since) for folder in folders)


def taken_unseen(pids: Collection[int]) -> int:
    """Bytes on disk that processes hold in files that no folder lists any more."""
    private = private_memory(pids)
    memory = {memory_device(), *([private.device] if private is not None else [])}
    return sum(file.size for (device, _), file in held_files(pids).items() if device not in memory)


def _below(folder: str, since: float) -> int:
    try:
        place = _Place(os.open(folder, _FOLDER))
    except OSError:
        return 0
    with contextlib.closing(place):
        total, names = place.listed(since)
        todo = [names]
        while todo:
            if not todo[-1]:
                todo.pop()
                if todo and not place.leave():
                    break
            elif place.enter(todo[-1].pop()):
                size, names = place.listed(since)
                total += size
                todo.append(names)
        return total


class _Place:
    """A folder that one walks about in, by one handle and single names: no path is too long, no
    tree too deep. Links are not followed.
    """

    def __init__(self, handle: int) -> None:
        self._here = handle
        self._above: list[tuple[int, int]] = []

    def enter(self, name: str) -> bool:
        before = _identity(self._here)
        if self._go(name):
            self._above.append(before)
            return True
        return False

    def leave(self) -> bool:
        """False: it was moved meanwhile, and what is above it now is somewhere else."""
        return self._go("..") and _identity(self._here) == self._above.pop()

    def listed(self, since: float) -> tuple[int, list[str]]:
        """Bytes of what is in it, and the folders there."""
        total, names = 0, list[str]()
        with contextlib.suppress(OSError), os.scandir(self._here) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    total += _size(info) if info.st_ctime >= since else 0
                    names += [entry.name] if stat.S_ISDIR(info.st_mode) else []
        return total, names

    def close(self) -> None:
        os.close(self._here)

    def _go(self, name: str) -> bool:
        try:
            handle = os.open(name, _FOLDER, dir_fd=self._here)
        except OSError:
            return False
        os.close(self._here)
        self._here = handle
        return True


def _size(info: os.stat_result) -> int:
    return max(info.st_blocks * 512, info.st_size if stat.S_ISREG(info.st_mode) else 0)


def _identity(folder: int) -> tuple[int, int]:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino
