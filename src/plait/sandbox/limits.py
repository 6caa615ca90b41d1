"""The limits of a command, and the counters of its memory and processes.

Memory and processes are counted by a control group of the command's own. If none can be made, the
thread that waits for the command adds up the memory of its processes, a few times a second. Passing
a limit ends the whole command: half a program that was refused a process says less than one that
was stopped.

Disk is counted by looking in any case: the folders that a command may write to, and files that it
holds open after it removed them.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable
from typing import Protocol

from plait.sandbox.base import MB, Limits
from plait.sandbox.control_groups import OWN_PROCESSES, group_kind, open_group, read_file
from plait.sandbox.disk_usage import changed_bytes
from plait.sandbox.held_files import (
    held_files,
    memory_devices,
    private_memory,
    shared_memory_beside,
)

# the kernel refuses processes only so far above the limit, so that the counter sees it passed
_SLACK = 16


def narrow_limits(limits: Limits, asked: Limits | None) -> Limits:
    """Return both limits together: the smaller one of each two."""
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
    """Set the limits that the kernel keeps for each process.

    `own_users`: in a user namespace, where processes are counted apart from all others.
    """
    if limits.open_files is not None:
        _set_rlimit(pid, resource.RLIMIT_NOFILE, limits.open_files)
    if limits.disk_mb is not None:
        _set_rlimit(pid, resource.RLIMIT_FSIZE, limits.disk_mb * MB)
    if limits.processes is not None and own_users and os.geteuid():  # it does nothing for root
        _set_rlimit(pid, resource.RLIMIT_NPROC, limits.processes + _SLACK)
    _set_rlimit(pid, resource.RLIMIT_CORE, 0)


def _set_rlimit(pid: int, what: int, value: int) -> None:
    hard = resource.prlimit(pid, what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.prlimit(pid, what, (value, value))


class ResourceCounter(Protocol):
    """Counts the memory and the processes of a command."""

    @property
    def name(self) -> str: ...
    def join(self, pid: int) -> None: ...
    def has(self, pid: int) -> bool: ...
    def pids(self) -> list[int]:
        """Return the processes that are counted."""
        ...

    def exceeded_limit(self) -> str:
        """Return the limit that was passed: "memory", "processes", or ""."""
        ...

    def kill(self) -> None:
        """End all processes that are counted."""
        ...

    def close(self) -> None: ...


class ProcessFamily:
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

    def exceeded_limit(self) -> str:
        pids = descendants(self._pid)
        if (
            self._limits.processes is not None
            and len(pids) > self._limits.processes + OWN_PROCESSES
        ):
            return "processes"
        if self._limits.memory_mb is not None and self._takes_more(
            pids, self._limits.memory_mb * MB
        ):
            return "memory"
        return ""

    def _takes_more(self, pids: list[int], most: int) -> bool:
        anonymous, shared = (
            sum(_resident_bytes(pid, word) for pid in pids) for word in ("RssAnon:", "RssShmem:")
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
            + changed_bytes(self._folders, 0)
        )
        if anonymous + shared + beside <= most:
            return False
        with contextlib.suppress(OSError):  # shared memory that is held as a file was counted twice
            shared = shared_memory_beside(pids, held.keys(), self._memory - own)
        return anonymous + shared + beside > most

    def kill(self) -> None:
        """Kill all but the first: the launcher, or bubblewrap, which ends after its children."""
        for pid in descendants(self._pid)[1:]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, 9)

    def close(self) -> None: ...


def descendants(pid: int) -> list[int]:
    """Return the process and all processes that descend from it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            after = read_file(f"/proc/{name}", "stat").rpartition(")")[2].split()
            if after:
                children.setdefault(int(after[1]), []).append(int(name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _resident_bytes(pid: int, word: str) -> int:
    """Return the resident bytes of one kind.

    Shared memory is counted for each process that has it: rather too much than not at all.
    """
    lines = (line.split() for line in read_file(f"/proc/{pid}", "status").splitlines())
    return sum(int(words[1]) * 1024 for words in lines if words and words[0] == word)


def counted_by() -> str:
    """Return the kind of counter of memory and processes on this machine."""
    return group_kind() or ProcessFamily.name


def open_counter(
    pid: int, limits: Limits, root: int, folders: tuple[str, ...] = ()
) -> ResourceCounter:
    """Put a process into a control group, or else count the descendants of `root`, which inherits
    the orphans.
    """
    found = open_group(limits)
    try:
        if found is not None:
            found.join(pid)
            return found
    except OSError:
        assert found is not None
        found.close()
    family = ProcessFamily(limits, folders)
    family.join(root)
    return family
