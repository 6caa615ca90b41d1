"""The command line of bubblewrap: the root is empty, and each visible path is listed here.

The system's programs, the interpreter that runs Plait and the heavy folders of the workspace are
bound read-only; the workspace and a scratch folder can be written. No home, no store, no
environment and no process of the host is there.

The workspace is bound a second time at the path of the folder that the files came from: installed
programs often name that path. It is the same files: the folder of the host is never mounted.

Mount points lie below folders that earlier commands wrote to. Each is looked at first, link by
link: where a link stands in the way, nothing is mounted, since bubblewrap would follow it out of
the sandbox.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from plait.sandbox import confine, etc, seccomp
from plait.sandbox.base import MB, Limits, Network
from plait.sandbox.etc import USER
from plait.sandbox.limits import ProcessFamily, counted_by
from plait.sandbox.mounts import secret_masks
from plait.sandbox.process import Start, memory_file
from plait.workspace.copies import Layered, Plain

WORKDIR = "/workspace"
SCRATCH = "/tmp"

_HARDENED = (
    *("--unshare-user", "--disable-userns", "--unshare-all", "--cap-drop", "ALL"),
    *("--uid", str(USER), "--gid", str(USER), "--hostname", "sandbox"),
    *("--die-with-parent", "--new-session", "--clearenv"),
)
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/proc",
    "/dev",
    "/sys",
)
_DEVICES_MB = 1024  # of /dev/shm, where memory is not limited


class Room(NamedTuple):
    """One sandbox: its files and its surroundings."""

    layers: Plain | Layered
    scratch: str
    cache: str  # the folder of files that all sandboxes share
    folder: str | None = None  # the folder of the host that the files came from
    heavy: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()  # paths of the host that must not be seen, wherever they lie
    network: Network = "off"
    # True: a process that stays works on the files, and could put a link at a mount point during
    # the mount
    shared: bool = False


class Mount(NamedTuple):
    """Something of the host that is visible read-only."""

    source: str
    dest: str


# ── the binds ────────────────────────────────────────────────────────────────────────────────


def system_options() -> Iterator[str]:
    """Bind the programs of the host."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = f"/{name}"
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)


def interpreters(room: Room) -> list[Mount]:
    """Return the mounts of the Python that runs Plait, unless it is in /usr or in a hidden path."""
    found = dict.fromkeys(os.path.realpath(path) for path in (sys.base_prefix, sys.prefix))
    kept = [
        path
        for path in found
        if not is_below(path, "/usr") and not any(is_below(path, hidden) for hidden in room.hidden)
    ]
    return [Mount(path, path) for path in kept if path != "/" and reachable(room, path)]


def heavies(room: Room) -> list[Mount]:
    """Return the mounts of heavy folders: in the workspace, and at their path on the host, since
    programs installed in them often name it.
    """
    found: list[Mount] = []
    for name in room.heavy if room.folder is not None else ():
        source = _source(room, name)
        if source is not None and _is_free(room, name):
            found += [] if room.shared else [Mount(source, f"{WORKDIR}/{name}")]
            found += [Mount(source, source)] if reachable(room, source) else []
    return found


def second_path(room: Room) -> str | None:
    """Return the second path of the workspace: the folder that the files came from. None if a bind
    there is not possible, or would cover something that is needed.
    """
    folder = room.folder
    if folder is None or room.shared or is_below(SCRATCH, folder) or not _no_links_to(room, folder):
        return None
    pythons = {os.path.realpath(path) for path in (sys.base_prefix, sys.prefix)}
    # mounted again on top of it
    covered = [f"{folder}/{name}" for name in room.heavy if _is_free(room, name)]
    needed = [
        *_SYSTEM,
        WORKDIR,
        *(path for path in pythons if not any(is_below(path, each) for each in covered)),
    ]
    return (
        None if any(is_below(folder, path) or is_below(path, folder) for path in needed) else folder
    )


def _no_links_to(room: Room, dest: str) -> bool:
    return not is_below(dest, SCRATCH) or _no_links(
        [room.scratch], dest[len(SCRATCH) + 1 :].split("/")
    )


def _source(room: Room, name: str) -> str | None:
    """Return the path of a heavy folder on the host; None if it is missing, or a link that leads
    elsewhere, which a repository can bring along.
    """
    assert room.folder is not None
    folder = os.path.realpath(room.folder)
    path = os.path.normpath(os.path.join(folder, name))
    inside = path != folder and is_below(path, folder) and os.path.realpath(path) == path
    return (
        path
        if inside
        and os.path.isdir(path)
        and not any(is_below(path, hidden) for hidden in room.hidden)
        else None
    )


def masks(paths: Iterable[str], mounts: Iterable[Mount]) -> list[str]:
    """Return the paths inside the sandbox at which hidden folders would appear, because a mount
    holds them.
    """
    found = {
        mount.dest + path[len(mount.source) :]: None
        for mount in mounts
        for path in paths
        if is_below(path, mount.source)
        and path != mount.source
        and os.path.isdir(path)
        and not os.path.islink(path)
    }
    return list(found)


def reachable(room: Room, dest: str) -> bool:
    """Return True if a mount at `dest` follows no link that a command may have made."""
    if is_below(dest, WORKDIR):
        return dest == WORKDIR or _is_free(room, dest[len(WORKDIR) + 1 :])
    again = second_path(room)
    if again is not None and is_below(dest, again):
        return _is_free(room, dest[len(again) + 1 :])
    if is_below(dest, SCRATCH):
        return dest != SCRATCH and not room.shared and _no_links_to(room, dest)
    return not any(is_below(dest, taken) for taken in ("/proc", "/dev", "/etc", "/sys"))


def _is_free(room: Room, name: str) -> bool:
    """Return True if the path in the workspace is a folder, or is free in an existing folder."""
    layers, parts = roots(room), name.split("/")
    above = all(_kind(layers, parts[:end]) == "folder" for end in range(1, len(parts)))
    return above and _kind(layers, parts) in ("folder", "nothing") and ".." not in parts


def roots(room: Room) -> list[str]:
    """Return the folders that the files lie in, the writable one first."""
    layers = room.layers
    return (
        [str(layers.folder)]
        if isinstance(layers, Plain)
        else [str(layers.upper), str(layers.lower)]
    )


def _no_links(roots: Sequence[str], parts: Sequence[str]) -> bool:
    return ".." not in parts and all(
        _kind(roots, parts[:end]) in ("folder", "nothing") for end in range(1, len(parts) + 1)
    )


def _kind(roots: Sequence[str], parts: Sequence[str]) -> str:
    """Return "folder", "nothing" or "other" for a path, from the first layer that has it."""
    for root in roots:
        try:
            mode = os.lstat(os.path.join(root, *parts)).st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        # a character device: a deletion
        return "folder" if stat.S_ISDIR(mode) else "nothing" if stat.S_ISCHR(mode) else "other"
    return "nothing"


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# ── the command line ─────────────────────────────────────────────────────────────────────────


def visible(room: Room) -> list[Mount]:
    """Return the paths of this machine that can be seen, besides the system's programs."""
    return [*interpreters(room), *heavies(room)]


def search_path(room: Room) -> str:
    """Return the PATH of a command: the workspace's own programs come first."""
    layers = roots(room)
    mounted = {mount.dest for mount in heavies(room)}
    own = [
        name
        for name in (".venv", "node_modules")
        if f"{WORKDIR}/{name}" in mounted or _kind(layers, [name]) == "folder"
    ]
    below = {".venv": "bin", "node_modules": ".bin"}
    pythons = dict.fromkeys(f"{prefix}/bin" for prefix in (sys.prefix, sys.base_prefix))
    return ":".join(
        [
            *(f"{WORKDIR}/{name}/{below[name]}" for name in own),
            *pythons,
            "/usr/local/bin",
            "/usr/bin",
            "/bin",
        ]
    )


class RoomCommand(NamedTuple):
    """A command with its folder, environment and limits."""

    command: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    limits: Limits


def start(room: Room, invocation: RoomCommand, bwrap: str, overlay: Sequence[str] = ()) -> Start:
    """Return the command line and pipes for a command in this room.

    `overlay`: words before bubblewrap that mount the layers.
    """
    status_read, status_write = os.pipe()
    go_read, go_write = os.pipe()
    filter_ = _filter()
    options = [
        *_HARDENED,
        *(("--share-net",) if room.network == "on" else ()),
        *file_options(room, invocation.limits),
        *("--remount-ro", "/"),
        *(word for name, value in invocation.env.items() for word in ("--setenv", name, value)),
        *("--chdir", invocation.cwd),
        *("--json-status-fd", str(status_write), "--block-fd", str(go_read)),
        *(("--seccomp", str(filter_)) if filter_ is not None else ()),
    ]
    # so that no value is seen in a list of processes
    arguments = memory_file(b"\0".join(map(os.fsencode, options)) + b"\0")
    given = tuple(fd for fd in (status_write, go_read, filter_, arguments) if fd is not None)
    argv = [*overlay, bwrap, "--args", str(arguments), "--", *invocation.command]
    scoped = room.network == "on" and scopes_sockets(bwrap)
    return Start(argv, status_read, go_write, given, own_users=True, scoped=scoped)


@functools.cache
def scopes_sockets(bwrap: str) -> bool:
    """Return True if landlock can keep abstract sockets away from bubblewrap.

    Landlock needs no_new_privs, which disables setuid; a bubblewrap that is setuid could not start.
    """
    needs_power = os.geteuid() != 0 and bool(os.stat(bwrap).st_mode & stat.S_ISUID)
    return confine.landlock_version() >= confine.VERSION_MIN and not needs_power


def _filter() -> int | None:
    program = _program(counted_by() == ProcessFamily.name)
    return memory_file(program) if program else None


@functools.cache
def _program(watched: bool) -> bytes | None:
    """Return the filter of system calls.

    `watched`: memory is counted by looking at processes. Shared memory that is attached to no
    process would not be counted then, so it is refused.
    """
    here = seccomp.machine()
    return seccomp.program(here, refused=seccomp.SHARED_MEMORY if watched else ()) if here else None


def file_options(room: Room, limits: Limits) -> Iterator[str]:
    yield from system_options()
    yield from ("--ro-bind", etc.etc_folder(room.cache, room.network), "/etc")
    yield from (
        word for path in etc.folder_paths(room.network) for word in ("--ro-bind", path, path)
    )
    # To the kernel, root without capabilities is root: it could write to /proc/sys, and change the
    # settings of the host.
    yield from ("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev")
    yield from (
        "--size",
        str((limits.memory_mb or _DEVICES_MB) * MB),
        "--tmpfs",
        "/dev/shm",
        "--remount-ro",
        "/dev",
    )
    yield from ("--bind", room.scratch, SCRATCH)
    again = second_path(room)
    for place in (WORKDIR, *([again] if again is not None else [])):
        yield from ("--bind", roots(room)[0], place)
    yield from _mount_options(room)


def _mount_options(room: Room) -> Iterator[str]:
    """Bind the interpreter, then cover the hidden paths, then bind heavy folders, which may lie
    below a hidden path.
    """
    pythons, heavy = interpreters(room), heavies(room)
    again = second_path(room)
    places = [WORKDIR, *([again] if again is not None else [])]
    own = (
        [Mount(str(room.layers.folder), place) for place in places]
        if isinstance(room.layers, Plain)
        else []
    )
    covered = masks([*room.hidden, *_origin(room)], [Mount("/usr", "/usr"), *pythons, *own])
    yield from (word for mount in pythons for word in ("--ro-bind", *mount))
    yield from (word for path in covered for word in ("--tmpfs", path))
    yield from (word for mount in heavy for word in ("--ro-bind", *mount))
    within = masks(room.hidden, heavy)
    yield from (word for path in within for word in ("--tmpfs", path))
    yield from (
        word
        for mask in secret_masks(heavy, room.cache, room.hidden)
        for word in ("--ro-bind", *mask)
    )
    yield from (word for path in (*covered, *within) for word in ("--remount-ro", path))


def _origin(room: Room) -> list[str]:
    return [os.path.realpath(room.folder)] if room.folder is not None else []
