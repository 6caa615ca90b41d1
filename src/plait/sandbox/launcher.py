"""The command line of our launcher (confine.py), for the rungs that have no namespaces."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

from plait.errors import NotSupported
from plait.sandbox import bubblewrap, confine, etc, seccomp
from plait.sandbox.bubblewrap import Room, RoomCommand
from plait.sandbox.mounts import readable_parts
from plait.sandbox.process import Start, memory_file
from plait.workspace.copies import Plain

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


def start(room: Room, invocation: RoomCommand, *, isolated: bool) -> Start:
    """Return the command line and pipes for a command in this room.

    `isolated`: confined by landlock and a filter of system calls; else a process like any other.
    """
    status_read, status_write = os.pipe()
    go_read, go_write = os.pipe()
    asked = {
        "status": status_write,
        "go": go_read,
        "command": list(invocation.command),
        "cwd": invocation.cwd,
        "env": dict(invocation.env),
        "isolated": isolated,
        **(_confinement(room) if isolated else {}),
    }
    settings = memory_file(json.dumps(asked).encode())
    argv = [sys.executable, "-I", "-S", confine.__file__, str(settings)]
    return Start(argv, status_read, go_write, (status_write, go_read, settings))


def _confinement(room: Room) -> dict[str, object]:
    here = seccomp.machine()
    assert here is not None, "the rung was chosen without a filter"
    network = room.network == "on"
    return {
        "read": list(readable(room)),
        "write": [*writable(room), *_DEVICES],
        "network": network,
        "filter": seccomp.program(here, seccomp.OUTWARD if network else (), alone=False).hex(),
    }


def readable(room: Room) -> Iterator[str]:
    yield from _SYSTEM
    yield from (
        *(f"/etc/{name}" for name in etc.file_names(room.network)),
        *etc.folder_paths(room.network),
    )
    yield from (mount.source for mount in bubblewrap.interpreters(room))
    for folder in dict.fromkeys(mount.source for mount in bubblewrap.heavies(room)):
        yield from readable_parts(folder)


def writable(room: Room) -> list[str]:
    assert isinstance(room.layers, Plain)
    return [bubblewrap.roots(room)[0], room.scratch]


def check(room: Room) -> None:
    """Raise NotSupported if a hidden path lies in a visible folder: landlock allows a folder as a
    whole.
    """
    for hidden in room.hidden:
        for folder in (*readable(room), *writable(room)):
            if os.path.exists(hidden) and bubblewrap.is_below(hidden, os.path.realpath(folder)):
                step = "put the store elsewhere (PLAIT_STORE), or use a rung with bubblewrap"
                raise NotSupported(
                    "the landlock rung", f"hide {hidden}, which lies in {folder}", step
                )


def search_path(room: Room) -> str:
    """Return the PATH of a bubblewrap sandbox, with the paths of the host."""
    assert isinstance(room.layers, Plain)
    parts = bubblewrap.search_path(room).split(":")
    sources = {mount.dest: mount.source for mount in bubblewrap.heavies(room)}
    return ":".join(_host_path(part, bubblewrap.roots(room)[0], sources) for part in parts)


def _host_path(path: str, folder: str, sources: dict[str, str]) -> str:
    for dest, source in sources.items():
        if bubblewrap.is_below(path, dest):
            return source + path[len(dest) :]
    return (
        folder + path[len(bubblewrap.WORKDIR) :]
        if bubblewrap.is_below(path, bubblewrap.WORKDIR)
        else path
    )
