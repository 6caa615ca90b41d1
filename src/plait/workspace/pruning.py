"""Removing copies that no process uses. They are caches: the store has their files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from plait.errors import SandboxBusy
from plait.workspace import disk
from plait.workspace.copy_state import is_folder_name
from plait.workspace.locks import Lock


def prune_copy(cache: Path, name: str) -> bool:
    """Remove the copy of this name from this disk. False: it is not there, or in use.

    A copy is in use if a process has opened it, and also if a command that outlived that process
    still works in it.
    """
    home = cache / "copies" / name
    if not is_folder_name(name) or not _is_folder(home):
        return False
    try:
        lock = Lock(home.with_name(f"{name}.lock"), name)
    except (SandboxBusy, OSError):
        return False
    try:
        if not _is_folder(home) or _is_worked_in(home):
            return False
        disk.remove_folder(home)
        return True
    except OSError:  # not ours to remove: it is built anew when it is next opened
        return False
    finally:
        lock.release()


def _is_folder(path: Path) -> bool:
    """True for a folder itself; False for a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _is_worked_in(home: Path) -> bool:
    """True if a process has its folder, an open file or a mount in a copy, as far as the system
    tells.
    """
    inside = f"{os.path.realpath(home)}/"
    return any(_is_at(path, inside) for path in _paths_in_use())


def _is_at(path: str, inside: str) -> bool:
    return f"{path}/".startswith(inside)


def _paths_in_use() -> Iterator[str]:
    """Yield the paths that the processes of this machine use, those of mounts included."""
    try:
        processes = [each for each in os.listdir("/proc") if each.isdigit()]
    except OSError:
        return
    for process in processes:
        folder = f"/proc/{process}"
        for link in ("cwd", "root"):
            with suppress(OSError):
                yield os.readlink(f"{folder}/{link}")
        with suppress(OSError):
            for each in os.listdir(f"{folder}/fd"):
                with suppress(OSError):
                    yield os.readlink(f"{folder}/fd/{each}")
        with suppress(OSError), open(f"{folder}/mountinfo", encoding="utf-8") as mounts:
            for line in mounts:
                yield from _mounted_paths(line)


def _mounted_paths(line: str) -> Iterator[str]:
    """Yield the folders that a line of mountinfo names: what is mounted, where, and the layers."""
    words = line.split()
    yield from words[3:5]
    for word in words[-1].split(","):
        name, _, path = word.partition("=")
        if name in ("upperdir", "workdir", "lowerdir"):
            yield from path.split(":")
