"""Control groups, of version 2 or 1: the kernel counts the memory and the processes of a command.

Each command gets a group of its own, below the group that this process is in.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import threading
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from plait.sandbox.base import MB, Limits

_NAME = "plait"
OWN_PROCESSES = 3  # processes of bubblewrap itself, or the launcher: not counted as the command's


class GroupFolder(NamedTuple):
    """One folder of a group, with its settings and its signs that a limit was passed."""

    folder: str
    settings: tuple[tuple[str, str], ...]  # file and value
    # a file, the word in it before a count, and the limit that was passed if the count is not 0
    signs: tuple[tuple[str, str, str], ...]


class ControlGroup:
    """A control group for one command."""

    def __init__(self, name: str, parts: Iterable[GroupFolder]) -> None:
        self.name, self._parts = name, tuple(parts)
        for part in self._parts:
            os.mkdir(part.folder)
            for file, value in part.settings:
                _apply_setting(part.folder, file, value)

    def join(self, pid: int) -> None:
        for part in self._parts:
            _write_file(part.folder, "cgroup.procs", str(pid))

    def has(self, pid: int) -> bool:
        return all(
            str(pid) in read_file(part.folder, "cgroup.procs").split() for part in self._parts
        )

    def pids(self) -> list[int]:
        return [int(pid) for pid in read_file(self._parts[0].folder, "cgroup.procs").split()]

    def exceeded_limit(self) -> str:
        for part in self._parts:
            for file, word, meaning in part.signs:
                if _count_of(part.folder, file, word):
                    return meaning
        return ""

    def kill(self) -> None:
        for part in self._parts[:1]:
            for pid in read_file(part.folder, "cgroup.procs").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)

    def close(self) -> None:
        for part in self._parts:
            _remove_folder(part.folder)


def _remove_folder(folder: str) -> None:
    """Remove the folder of a group; killed processes may take a moment to leave it.

    A folder that cannot be removed now is removed as stale later.
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


def _apply_setting(folder: str, file: str, value: str) -> None:
    """Write a setting. Those of swap and of the OOM killer may be missing on a machine."""
    try:
        _write_file(folder, file, value)
    except OSError:
        if "sw" not in file and "oom" not in file:
            raise


def _write_file(folder: str, file: str, value: str) -> None:
    fd = os.open(f"{folder}/{file}", os.O_WRONLY)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def read_file(folder: str, file: str) -> str:
    """Return the text of a file of the kernel; "" if it cannot be read."""
    try:
        with open(f"{folder}/{file}") as opened:
            return opened.read()
    except OSError:
        return ""


def _count_of(folder: str, file: str, word: str) -> int:
    return next(
        (
            int(line.split()[1])
            for line in read_file(folder, file).splitlines()
            if line.split()[0] == word
        ),
        0,
    )


def open_group(limits: Limits) -> ControlGroup | None:
    """Make a group with these limits; None: none can be made here, or nothing is to be counted."""
    if limits.memory_mb is None and limits.processes is None:
        return None
    name = f"{_NAME}-{os.getpid()}-{next(_Process.numbers)}"
    for kind, parents in group_homes():
        parts = (
            version_2_folders(f"{parents[0]}/{name}", limits)
            if kind == "cgroup2"
            else version_1_folders(parents, name, limits)
        )
        group = ControlGroup.__new__(ControlGroup)
        try:
            group.__init__(kind, parts)
            return group
        except OSError:
            group.close()
    return None


def version_2_folders(folder: str, limits: Limits) -> list[GroupFolder]:
    settings = [("memory.oom.group", "1")]
    if limits.memory_mb is not None:
        settings += [("memory.max", str(limits.memory_mb * MB)), ("memory.swap.max", "0")]
    if limits.processes is not None:
        settings += [("pids.max", str(limits.processes + OWN_PROCESSES))]
    return [
        GroupFolder(
            folder,
            tuple(settings),
            (("memory.events", "oom_kill", "memory"), ("pids.events", "max", "processes")),
        )
    ]


def version_1_folders(parents: tuple[str, ...], name: str, limits: Limits) -> list[GroupFolder]:
    memory, pids = parents
    parts: list[GroupFolder] = []
    if limits.memory_mb is not None:
        most = str(limits.memory_mb * MB)
        settings = (("memory.limit_in_bytes", most), ("memory.memsw.limit_in_bytes", most))
        parts.append(
            GroupFolder(
                f"{memory}/{name}", settings, (("memory.oom_control", "oom_kill", "memory"),)
            )
        )
    if limits.processes is not None:
        parts.append(
            GroupFolder(
                f"{pids}/{name}",
                (("pids.max", str(limits.processes + OWN_PROCESSES)),),
                (("pids.events", "max", "processes"),),
            )
        )
    return parts


class _Process:
    """State of this process: the homes are looked for once, and the names of groups are counted."""

    homes: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    lock = threading.Lock()
    numbers = itertools.count(1)


def group_homes() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the places for new groups: the kind, and a folder per controller.

    They are looked for once, and groups that dead processes left there are removed.
    """
    with _Process.lock:
        if _Process.homes is None:
            _Process.homes = tuple(
                find_homes(read_file("/proc/self", "mounts"), read_file("/proc/self", "cgroup"))
            )
            for _, folders in _Process.homes:
                remove_stale(folders)
        return _Process.homes


def group_kind() -> str | None:
    """Return the kind of control group that can be made here; None: no kind can."""
    return next((kind for kind, _ in group_homes()), None)


def find_homes(mounts: str, own: str) -> Iterator[tuple[str, tuple[str, ...]]]:
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
                if _is_delegated(folder)
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
    """Return the group of this process, then the one around it.

    The kernel wants processes in leaves only, so a new group usually is a sibling of our own.
    """
    own = root + path.rstrip("/")
    return [own] if own == root else [own, os.path.dirname(own)]


def _is_delegated(folder: str) -> bool:
    return {"memory", "pids"} <= set(
        read_file(folder, "cgroup.subtree_control").split()
    ) and os.access(folder, os.W_OK)


def remove_stale(folders: Iterable[str]) -> None:
    """Remove groups whose makers are dead. The kernel refuses to remove a group with processes."""
    for folder in folders:
        for name in os.listdir(folder):
            head, _, rest = name.partition("-")
            pid = rest.partition("-")[0]
            if head == _NAME and pid.isdecimal() and not os.path.exists(f"/proc/{pid}"):
                with contextlib.suppress(OSError):
                    os.rmdir(f"{folder}/{name}")
