"""Sandboxes on this machine: a copy of the tree, and a rung of the ladder to run commands on.

Nothing runs between commands, so there is nothing to keep alive: a sandbox is a folder in the
store's cache. It is found again by its name, and made again from the recorded tree if it is gone.
"""

from __future__ import annotations

import os
import platform
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from plait import inside
from plait.errors import NoSuchFile, OutsideWorkspace, SandboxFailed, SandboxGone
from plait.event import Json
from plait.event.kinds import File, Placement
from plait.ids import Digest
from plait.sandbox import bubblewrap, launcher, process, rungs
from plait.sandbox.base import Capability, Limits, OnOutput, Output, Probe, Ran, SandboxInfo, Wanted
from plait.sandbox.bubblewrap import SCRATCH, WORKDIR, Room, RoomCommand
from plait.sandbox.limits import counted_by, narrow_limits
from plait.sandbox.mounts import Overlay, can_mount_by_thread
from plait.sandbox.output import Spool, keep_output
from plait.sandbox.resident import LocalResident
from plait.store import Store
from plait.workspace import FileAccess, TreeSnapshot
from plait.workspace.copies import (
    Copy,
    Layered,
    Plain,
    open_copy,
    open_in_place,
)
from plait.workspace.copy_state import CopyInfo, cache_folder, list_copies
from plait.workspace.folder_walk import Closed
from plait.workspace.masks import secrets_in_heavy
from plait.workspace.rules import STORE, stores_in

T = TypeVar("T")

NAME = "local"
_CLEAN = "-clean"  # the end of the name of a clean copy, which no other sandbox used before
_OFFERED = ("exec", "stream", "reattach", "files", "pause", "renew", "snapshot", "fork", "network")
_PASSED_ON = ("TERM", "TZ")  # of the host's environment; everything else is set here


class LocalBackend:
    """Makes sandboxes on this machine, on the best rung that it offers."""

    name = NAME

    def probe(self) -> Probe:
        found = (
            *rungs.capabilities(tempfile.gettempdir()),
            *(Capability(name, True) for name in _OFFERED),
        )
        return Probe(
            NAME,
            f"{rungs.version() or 'no bubblewrap'}, Linux {platform.release()}",
            "built-in",
            found,
        )

    def check(self, wanted: Wanted) -> Placement:
        rung, passed = rungs.choose(wanted.isolation, _cache_path(wanted.store))
        left = rungs.left_open(rung, wanted.network, in_place=wanted.in_place)
        return Placement(
            NAME,
            rung=rung,
            image=wanted.image,
            network="on" if rung == "host" else wanted.network,
            detail=cast(
                "Json",
                {"host": host_name(), **({"passed over": passed} if passed else {}), "open": left},
            ),
        )

    def create(self, wanted: Wanted) -> LocalSandbox:
        return self._open(wanted, wanted.key + (_CLEAN if wanted.clean else ""), fresh=wanted.clean)

    def attach(self, placement: Placement, wanted: Wanted) -> LocalSandbox:
        """Open the copy as it stands.

        A copy in doubt counts as gone: its files are not known.
        """
        wanted = msgspec.structs.replace(wanted, isolation=wanted.isolation or placement.rung)
        if not wanted.in_place:
            found = {copy.name: copy for copy in list_copies(cache_folder(wanted.store))}.get(
                placement.sandbox
            )
            if found is None or found.in_doubt:
                raise SandboxGone(NAME, placement.sandbox)
            wanted = msgspec.structs.replace(wanted, tree=found.tree)
        return self._open(wanted, placement.sandbox)

    def list_sandboxes(self, store: Store) -> list[SandboxInfo]:
        return [_sandbox_info(copy) for copy in list_copies(cache_folder(store))]

    def _open(self, wanted: Wanted, name: str, *, fresh: bool = False) -> LocalSandbox:
        rung, passed = rungs.choose(wanted.isolation, _cache_path(wanted.store))
        copy = _open_copy(wanted, name, layered=rung == "overlay")
        if fresh:
            copy.discard()
            copy = _open_copy(wanted, name, layered=rung == "overlay")
        return LocalSandbox(wanted, copy, rung, passed)


def host_name() -> str:
    """Return the name of this machine, as placements record it."""
    return socket.gethostname()


def _sandbox_info(copy: CopyInfo) -> SandboxInfo:
    state = "in use" if copy.in_use else "in doubt" if copy.in_doubt else "at rest"
    return SandboxInfo(
        NAME,
        copy.name,
        state,
        key=copy.name.removesuffix(_CLEAN),
        detail=f"tree {copy.tree[:12]}, {'layered' if copy.base else 'plain'}",
    )


def _cache_path(store: Store) -> str:
    return str(cache_folder(store))


def _open_copy(wanted: Wanted, name: str, *, layered: bool) -> Copy:
    rules, cache = wanted.rules, cache_folder(wanted.store)
    if not wanted.in_place:
        return open_copy(
            wanted.store, cache, name, wanted.tree, layered=layered, rules=rules, base=wanted.base
        )
    if wanted.folder is None:
        raise SandboxFailed(
            NAME,
            "work in place",
            "no folder is named",
            "name one, as in session.to('local', './repo', in_place=True)",
        )
    return open_in_place(wanted.store, cache, Path(wanted.folder), rules)


class LocalSandbox:
    """A copy of the files, and how commands run on it."""

    def __init__(self, wanted: Wanted, copy: Copy, rung: str, passed: Mapping[str, str]) -> None:
        self._wanted, self._copy, self._rung = wanted, copy, rung
        self._passed = dict(passed)
        self._residents: dict[str, LocalResident] = {}
        self._files = copy.files.with_closed(_closed_paths(wanted, rung))
        if rung == "landlock":
            launcher.check(self._room())

    # ── identity ─────────────────────────────────────────────────────────────────────────────

    @property
    def placement(self) -> Placement:
        wanted = self._wanted
        return Placement(
            NAME,
            self._copy.name,
            self._copy.generation,
            self._rung,
            network="on" if self._rung == "host" else wanted.network,
            detail=self._detail(),
        )

    @property
    def workdir(self) -> str:
        return WORKDIR if self._in_namespaces else self._folder

    @property
    def files(self) -> FileAccess:
        return self._files

    @property
    def _in_namespaces(self) -> bool:
        return self._rung in rungs.DEFAULT

    @property
    def _folder(self) -> str:
        layers = self._copy.layers
        return str(layers.folder if isinstance(layers, Plain) else layers.upper)

    def _detail(self) -> Json:
        room = self._room()
        mounts = {mount.dest: mount.source for mount in bubblewrap.visible(room)}
        named = {
            "host": host_name(),
            "version": (
                f"{rungs.version()}, Linux {platform.release()}"
                if self._in_namespaces
                else f"Linux {platform.release()}"
            ),
            "limits": msgspec.to_builtins(self._wanted.limits),
            "counted by": counted_by(),
            "mounts": {"/usr": "/usr"} | mounts if self._rung != "host" else {},
            "in_place": self._wanted.in_place,
            "passed over": self._passed,
            "open": rungs.left_open(
                self._rung, self._wanted.network, in_place=self._wanted.in_place
            ),
            "also at": bubblewrap.second_path(room) or {} if self._in_namespaces else {},
            "left out": [name for name in room.heavy if f"{WORKDIR}/{name}" not in mounts],
            **secrets_in_heavy(room.folder, room.heavy if self._rung != "host" else ()),
        }
        return cast(
            "Json", {name: value for name, value in named.items() if value not in ({}, [], False)}
        )

    # ── commands ─────────────────────────────────────────────────────────────────────────────

    def exec(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        on_output: OnOutput | None = None,
    ) -> Ran:
        self._check_present()
        room, most = self._room(), narrow_limits(self._wanted.limits, limits)
        invocation = self._invocation(room, command, cwd, env or {}, most)
        spool = Spool(os.path.dirname(room.scratch))
        try:
            return self._begin_beside_residents(
                lambda: process.run_command(
                    self._start(room, invocation), _bounds(room, most), stdin, spool, on_output
                )
            )
        except SandboxFailed as error:
            if cwd and "chdir" in error.why:
                raise NoSuchFile(cwd, "name a folder that is there as the working folder") from None
            raise

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
    ) -> LocalResident:
        """Start a process that stays until a tree is restored, or this handle is closed."""
        self._end_residents(name)
        room, most = (
            self._room()._replace(scratch=self._copy.make_scratch(name)),
            self._wanted.limits,
        )
        invocation = self._invocation(room, command, cwd, env or {}, most)
        self._residents[name] = started = self._begin_beside_residents(
            lambda: LocalResident(self._start(room, invocation, stays=True), most)
        )
        return started

    def _begin_beside_residents(self, begin: Callable[[], T]) -> T:
        """Call `begin`, which joins the mounts of a process that stays.

        If that process ended just now, its mounts cannot be joined: then `begin` is called again,
        without residents.
        """
        try:
            return begin()
        except SandboxFailed as error:
            if not error.why.startswith(rungs.NOT_JOINED):
                raise
            self._end_residents()
            return begin()

    def _invocation(
        self, room: Room, command: Sequence[str], cwd: str, env: Mapping[str, str], most: Limits
    ) -> RoomCommand:
        given = self._environment(room, env)
        _check_words([*command, cwd, *given, *given.values()])
        return RoomCommand(command, self._working_folder(cwd), given, most)

    def resident(self, name: str) -> LocalResident | None:
        found = self._residents.get(name)
        return found if found is not None and found.is_alive else None

    def _end_residents(self, *names: str) -> None:
        for name in names or tuple(self._residents):
            if (found := self._residents.pop(name, None)) is not None:
                found.end()
                self._copy.remove_scratch(name)

    def _room(self) -> Room:
        wanted, copy = self._wanted, self._copy
        around = (
            _cache_path(wanted.store),
            _real_path(wanted.folder),
            wanted.heavy,
            _hidden_paths(wanted),
            wanted.network,
        )
        return Room(
            copy.layers,
            str(copy.scratch),
            *around,
            shared=any(each.is_alive for each in self._residents.values()),
        )

    def _start(self, room: Room, invocation: RoomCommand, *, stays: bool = False) -> process.Start:
        if not self._in_namespaces:
            return launcher.start(room, invocation, isolated=self._rung == "landlock")
        program = rungs.bwrap()
        if program is None:
            raise SandboxFailed(
                NAME, "start bubblewrap", "it is not there any more", "install it again"
            )
        if isinstance(room.layers, Plain):
            return bubblewrap.start(room, invocation, program)
        layers = Overlay(*map(str, room.layers))
        # Two mounts of the same layers would not see each other's changes: where a process stays,
        # its mount is joined.
        there = next((each.pid for each in self._residents.values() if each.is_alive), None)
        if there is not None:
            return bubblewrap.start(room, invocation, program, rungs.joining_prefix(there))
        if can_mount_by_thread() and not stays:
            return bubblewrap.start(room, invocation, program)._replace(overlay=layers)
        return bubblewrap.start(room, invocation, program, rungs.overlay_prefix(layers))

    def _working_folder(self, cwd: str) -> str:
        path = os.path.normpath(cwd or ".")
        if os.path.isabs(path) or path.split("/")[0] == "..":
            raise OutsideWorkspace(cwd)
        found = os.path.normpath(os.path.join(self.workdir, path))
        if not self._in_namespaces:
            real = os.path.realpath(found)
            if os.path.commonpath([real, os.path.realpath(self._folder)]) != os.path.realpath(
                self._folder
            ):
                raise OutsideWorkspace(cwd, "it leads out of it through a link")
            if not os.path.isdir(real):
                raise NoSuchFile(cwd, "name a folder that is there as the working folder")
        return found

    def _check_present(self) -> None:
        folders = (
            [self._folder]
            if isinstance(self._copy.layers, Plain)
            else [str(each) for each in self._copy.layers]
        )
        if not self._wanted.in_place and not all(map(os.path.isdir, folders)):
            raise SandboxGone(NAME, self._copy.name)

    def _environment(self, room: Room, more: Mapping[str, str]) -> dict[str, str]:
        home = SCRATCH if self._in_namespaces else room.scratch
        path = bubblewrap.search_path(room) if self._in_namespaces else launcher.search_path(room)
        own = {
            "PATH": path,
            "HOME": home,
            "TMPDIR": home,
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "TERM": "dumb",
            "USER": "user",
        }
        given = (
            own
            | {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
            | dict(self._wanted.env)
            | dict(more)
        )
        # Without namespaces the store is within reach, and the mark keeps a command from deciding
        # in it for people.
        return given if self._in_namespaces else given | inside.mark()

    def keep(self, output: Output, name: str, media_type: str = "text/plain") -> File:
        return keep_output(self._wanted.store, output, name, media_type)

    # ── files ────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        self._copy.begin()

    def snapshot(self) -> TreeSnapshot:
        return self._copy.snapshot(
            self._mounted_root(), self._wanted.heavy if self._in_namespaces else ()
        )

    def _mounted_root(self) -> str | None:
        """Return the path of the mounted layers, seen through a process that stays."""
        there = next((each.pid for each in self._residents.values() if each.is_alive), None)
        return (
            f"/proc/{there}/root{self._folder}"
            if there is not None and self._rung == "overlay"
            else None
        )

    def restore(self, tree: Digest) -> None:
        self._end_residents()  # their state belongs to the files before
        # A copy switches from the tree that it knows: changes after the last snapshot would stay.
        self._wanted.store.put_blobs(self.snapshot().blobs)
        self._copy.switch(tree)

    def fork(self, wanted: Wanted) -> LocalSandbox:
        now = self.snapshot()
        self._wanted.store.put_blobs(now.blobs)
        return LocalBackend().create(msgspec.structs.replace(wanted, tree=now.tree))

    # ── its life: nothing but residents runs between commands ────────────────────────────────

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def renew(self, seconds: float) -> None: ...

    def destroy(self) -> None:
        self._check_present()
        self._end_residents()
        self._copy.discard()

    def close(self) -> None:
        self._end_residents()
        self._copy.close()


def _check_words(words: Sequence[str]) -> None:
    """A NUL would end one word and begin another, which bubblewrap would take for an option."""
    if any("\0" in word for word in words):
        raise SandboxFailed(
            NAME, "start the command", "there is a NUL in it, or in its environment", "leave it out"
        )


def _real_path(folder: str | None) -> str | None:
    return os.path.realpath(folder) if folder is not None else None


def _hidden_paths(wanted: Wanted) -> tuple[str, ...]:
    """Return the paths of the store, and of folders named like one in the session's folder: at
    any depth if commands work in place, else at its top.
    """
    folder = _real_path(wanted.folder)
    nested = stores_in(folder, wanted.rules) if folder and wanted.in_place else [STORE]
    return tuple([*_store_folder(wanted), *(f"{folder}/{name}" for name in nested if folder)])


def _store_folder(wanted: Wanted) -> list[str]:
    folder = wanted.store.folder
    return [] if folder is None else [os.path.realpath(folder)]


def _closed_paths(wanted: Wanted, rung: str) -> Closed:
    """Return the paths that the tools for files may not change, as commands may not."""
    folder = _real_path(wanted.folder)
    heavy = frozenset(wanted.heavy if rung != "host" and folder else ())
    inside = [
        path
        for path in _store_folder(wanted)
        if wanted.in_place and folder and path.startswith(f"{folder}/")
    ]
    own = frozenset(path[len(folder) + 1 :] for path in inside if folder)
    return Closed(own, heavy, Path(folder) if folder else None)


def _bounds(room: Room, most: Limits) -> process.Bounds:
    if isinstance(room.layers, Layered):
        return process.Bounds(most, grows=(str(room.layers.upper), room.scratch))
    return process.Bounds(most, grows=(room.scratch,), changes=(str(room.layers.folder),))
