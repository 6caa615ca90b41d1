"""What a sandbox is: a place where commands run on the files of one session.

A `Backend` makes sandboxes, a `Sandbox` is a live handle on one of them, and a `Placement` (in the
log) says which it was. The runtime holds the handles, never a session: whoever takes a session up
again attaches to the sandbox that its placement names, or makes another from the recorded tree and
says so. The contract that every backend has to keep is `plait.testing.SandboxContract`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from plait.event import Json
from plait.event.kinds import File, Placement
from plait.ids import Digest
from plait.store import Store
from plait.workspace import HEAVY, Files, Rules, Snapshot

Network = Literal["off", "on"]
OnOutput = Callable[[bytes], object]

MB = 1 << 20
VIEW_MAX = 16_000  # characters of an output that are shown; all of it is kept


class Limits(msgspec.Struct, frozen=True):
    """What one command may take. None: unlimited."""

    time_s: float | None = 120.0
    memory_mb: int | None = 4096
    processes: int | None = 512
    open_files: int | None = 1024
    output_mb: int | None = 256
    disk_mb: int | None = 4096


class Wanted(msgspec.Struct, frozen=True):
    """What to make: which files, for whom, and how much may go on there."""

    store: Store
    key: str  # whose it is: the session's id; what a local copy is called by
    tree: Digest
    isolation: str = ""  # a rung by name; "": the best there is, and none without isolation
    network: Network = "off"
    limits: Limits = Limits()
    env: Mapping[str, str] = {}
    # the tree that these files come from: what is the same is shared with others that do, too
    base: Digest | None = None
    folder: str | None = None  # where the files came from on this machine; None: from nowhere
    # folders below it that are not in the tree and are mounted read-only
    heavy: tuple[str, ...] = ()
    heavy_names: tuple[str, ...] = HEAVY  # what such folders are called
    ignore: tuple[str, ...] = ()  # further names that are no part of the tree
    in_place: bool = False  # whether the folder itself is worked on
    clean: bool = False  # whether nothing may be there but the tree
    image: str = ""  # or template, for those that have any
    options: Mapping[str, Json] = {}  # whatever else a backend understands

    @property
    def rules(self) -> Rules:
        """What is no part of its trees."""
        return Rules(heavy=self.heavy_names, ignore=self.ignore)


class Output(Protocol):
    """What a command wrote, both streams in the order in which they came.

    It lies on disk, not in memory.
    """

    @property
    def size(self) -> int: ...
    def view(self, characters: int = VIEW_MAX) -> str:
        """Its beginning and its end, with a word about what was left out; the whole if it is short.

        Odd bytes are replaced.
        """
        ...

    def pieces(self, size: int = 1 << 20) -> Iterator[bytes]: ...


class Ran(msgspec.Struct, frozen=True):
    """What came of a command."""

    exit_code: int  # as a shell counts: 128 + n if signal n ended it
    output: Output
    duration_us: int
    # why it was ended: time, memory, processes, output, disk; "": it ended by itself
    killed: str = ""


class Sandbox(Protocol):
    """A live handle. Its methods are called by one thread at a time."""

    @property
    def placement(self) -> Placement:
        """What is recorded of it: backend, id, generation, rung, image, network; version, limits
        and mounts in `detail`.
        """
        ...

    @property
    def workdir(self) -> str:
        """Where the workspace is, seen from inside."""
        ...

    @property
    def files(self) -> Files: ...

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
        """Run a command to its end, and with it whatever it started.

        `cwd` is relative to the workspace; `limits` can only be narrower.
        """
        ...

    def keep(self, output: Output, name: str, media_type: str = "text/plain") -> File:
        """Put an output into the store, whole, and return the part that points to it."""
        ...

    def begin(self) -> None:
        """Something is about to change files: until `snapshot` has returned, what is there is in
        doubt.
        """
        ...

    def snapshot(self) -> Snapshot:
        """What the files are now, as a tree."""
        ...

    def restore(self, tree: Digest) -> None:
        """Make the files those of this tree."""
        ...

    def fork(self, wanted: Wanted) -> Sandbox:
        """Another one with the same files."""
        ...

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def renew(self, seconds: float) -> None: ...
    def destroy(self) -> None: ...

    def close(self) -> None:
        """Let go of the handle; the sandbox itself stays."""
        ...


class Capability(msgspec.Struct, frozen=True):
    """One thing that a backend offers, or why it does not, and what would help."""

    name: str  # a rung, or: exec, stream, reattach, files, pause, renew, snapshot, fork, network
    offered: bool
    why: str = ""
    fix: str = ""


class Probe(msgspec.Struct, frozen=True):
    """What a backend offers here and now."""

    backend: str
    version: str
    # server-tested, wire-tested, verified-live or untested, with date and version; built-in for our
    # own
    label: str
    capabilities: tuple[Capability, ...]


class Held(msgspec.Struct, frozen=True):
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
        """Raise a SandboxError if such a sandbox is not to be had; otherwise say what is known of
        it already. Nothing is made.
        """
        ...

    def create(self, wanted: Wanted) -> Sandbox:
        """Make a sandbox whose files are the wanted tree, or raise a SandboxError that names the
        next step.
        """
        ...

    def attach(self, placement: Placement, wanted: Wanted) -> Sandbox:
        """Take up the one that was recorded, whatever its files are now; raises SandboxGone."""
        ...

    def held(self, store: Store) -> Sequence[Held]:
        """Those that exist and belong to this store, as far as can be told."""
        ...
