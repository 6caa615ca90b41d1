"""The contract of sandboxes: a sandbox runs commands on the files of one session.

A `Backend` makes sandboxes, a `Sandbox` is a live handle on one of them, and a `Placement` (in the
log) names it. The runtime holds the handles, never a session: a process that continues a session
attaches to the sandbox that its placement names, or makes another from the recorded tree and
records that. The tests that every backend has to pass are `plait.testing.SandboxContract`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from plait.event import Json
from plait.event.kinds import File, Placement
from plait.ids import Digest
from plait.store import Store
from plait.workspace import HEAVY, FileAccess, Rules, TreeSnapshot

Network = Literal["off", "on"]
OnOutput = Callable[[bytes], object]

MB = 1 << 20
VIEW_MAX = 16_000  # characters of an output that are shown; all of it is kept


class Limits(msgspec.Struct, frozen=True):
    """The limits of one command. None: unlimited."""

    time_s: float | None = 120.0
    memory_mb: int | None = 4096
    processes: int | None = 512
    open_files: int | None = 1024
    output_mb: int | None = 256
    disk_mb: int | None = 4096


class Wanted(msgspec.Struct, frozen=True):
    """A request for a sandbox: its files, its owner, its isolation and its limits."""

    store: Store
    key: str  # the owner, usually the session's id; a local copy is named by it
    tree: Digest
    isolation: str = ""  # a rung by name; "": the best there is, and none without isolation
    network: Network = "off"
    limits: Limits = Limits()
    env: Mapping[str, str] = {}
    # the tree that these files derive from: unchanged files are shared with other such sandboxes
    base: Digest | None = None
    folder: str | None = (
        None  # the folder of this machine that the files came from; None: no folder
    )
    # folders below it that are not in the tree and are mounted read-only
    heavy: tuple[str, ...] = ()
    heavy_names: tuple[str, ...] = HEAVY  # the names of such folders
    ignore: tuple[str, ...] = ()  # further names that are no part of the tree
    in_place: bool = False  # True: commands work on the folder itself
    clean: bool = False  # True: the sandbox holds the tree and no leftovers
    image: str = ""  # or template, for those that have any
    options: Mapping[str, Json] = {}  # further options of this backend

    @property
    def rules(self) -> Rules:
        """The rules by which paths are left out of its trees."""
        return Rules(heavy=self.heavy_names, ignore=self.ignore)


class Output(Protocol):
    """The output of a command, both streams in the order in which they came.

    It lies on disk, not in memory.
    """

    @property
    def size(self) -> int: ...
    def view(self, characters: int = VIEW_MAX) -> str:
        """Return its beginning and its end, with a note about the part between; all of it if it is
        short.

        Bytes that are not UTF-8 are replaced.
        """
        ...

    def pieces(self, size: int = 1 << 20) -> Iterator[bytes]: ...


class Ran(msgspec.Struct, frozen=True):
    """The result of a command."""

    exit_code: int  # as a shell counts: 128 + n if signal n ended it
    output: Output
    duration_us: int
    # the limit that ended it: time, memory, processes, output, disk; "": it ended by itself
    killed: str = ""


class Sandbox(Protocol):
    """A live handle. Its methods are called by one thread at a time."""

    @property
    def placement(self) -> Placement:
        """The record of it: backend, id, generation, rung, image, network; version, limits and
        mounts in `detail`.
        """
        ...

    @property
    def workdir(self) -> str:
        """The path of the workspace, seen from inside."""
        ...

    @property
    def files(self) -> FileAccess: ...

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
        """Run a command to its end, and end all processes that it started.

        `cwd` is relative to the workspace; `limits` can only be narrower.
        """
        ...

    def keep(self, output: Output, name: str, media_type: str = "text/plain") -> File:
        """Put an output into the store, whole, and return the part that points to it."""
        ...

    def begin(self) -> None:
        """Announce a change of files: until `snapshot` has returned, the files are in doubt."""
        ...

    def snapshot(self) -> TreeSnapshot:
        """Return the files as they are now, as a tree."""
        ...

    def restore(self, tree: Digest) -> None:
        """Make the files those of this tree."""
        ...

    def fork(self, wanted: Wanted) -> Sandbox:
        """Make another sandbox with the same files."""
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def renew(self, seconds: float) -> None: ...
    def destroy(self) -> None: ...

    def close(self) -> None:
        """Close the handle; the sandbox itself stays."""
        ...


class Capability(msgspec.Struct, frozen=True):
    """One ability of a backend; if it is not offered, the reason and the remedy."""

    name: str  # a rung, or: exec, stream, reattach, files, pause, renew, snapshot, fork, network
    offered: bool
    why: str = ""
    fix: str = ""


class Probe(msgspec.Struct, frozen=True):
    """The capabilities of a backend on this machine, now."""

    backend: str
    version: str
    # server-tested, wire-tested, verified-live or untested, with date and version; built-in for our
    # own
    label: str
    capabilities: tuple[Capability, ...]


class SandboxInfo(msgspec.Struct, frozen=True):
    """One sandbox that exists, as `plait sandbox ls` shows it."""

    backend: str
    sandbox: str
    state: str
    key: str = ""  # the session it was made for, if that is known
    detail: str = ""


class Backend(Protocol):
    @property
    def name(self) -> str: ...
    def probe(self) -> Probe: ...

    def check(self, wanted: Wanted) -> Placement:
        """Return the placement of such a sandbox as far as it is known, or raise a SandboxError if
        there can be none. Nothing is made.
        """
        ...

    def create(self, wanted: Wanted) -> Sandbox:
        """Make a sandbox with the files of the wanted tree, or raise a SandboxError that names the
        next step.
        """
        ...

    def attach(self, placement: Placement, wanted: Wanted) -> Sandbox:
        """Attach to the recorded sandbox, with the files it has now; raises SandboxGone."""
        ...

    def list_sandboxes(self, store: Store) -> Sequence[SandboxInfo]:
        """Return the existing sandboxes that are known to belong to this store."""
        ...
