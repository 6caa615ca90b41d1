"""The common part of the backends on other machines.

An adapter knows its vendor's SDK: how to make a sandbox, find it again, run a line of shell in it
and move a file whole. The rest is the same for all and stands here: commands with limits and output
as it comes, files that cannot be reached outside the workspace, trees, forks. The environment of
this machine is not passed on: a command has the variables of the image and those that the caller
names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any, ClassVar

import msgspec

from plait import secrets
from plait.errors import (
    IsolationMissing,
    MissingExtra,
    MissingKey,
    NotSupported,
    SandboxFailed,
    SandboxGone,
)
from plait.event import Json
from plait.event.kinds import File, Placement
from plait.ids import Digest
from plait.sandbox.base import Capability, Limits, OnOutput, Output, Probe, Ran, SandboxInfo, Wanted
from plait.sandbox.limits import narrow_limits
from plait.sandbox.output import keep_output
from plait.sandbox.remote_files import RemoteFiles
from plait.sandbox.remote_shell import CommandFollower, CommandSpec, Guest, Shell, raise_for_code
from plait.sandbox.remote_workspace import RemoteWorkspace
from plait.store import Store
from plait.workspace import EMPTY, Rules, TreeSnapshot

LIFETIME_S = 3600.0  # the life of a sandbox that is not renewed
# the marks of a sandbox, if the vendor keeps such marks
STORE, SESSION = "plait-store", "plait-session"
ENFORCED = ("time_s", "output_mb", "open_files")  # the rest is up to the image or template


class RemoteSandbox:
    """A `Sandbox` on another machine."""

    def __init__(
        self,
        backend: RemoteBackend,
        guest: Guest,
        wanted: Wanted,
        placement: Placement,
        workspace: RemoteWorkspace,
    ) -> None:
        self._backend, self._guest, self._wanted = backend, guest, wanted
        self.placement, self.workdir = placement, backend.workdir
        self._shell, self._workspace = workspace.shell, workspace
        self._files = RemoteFiles(self._shell, self.workdir)
        self._stale: tuple[str, ...] = ()  # folders of commands that have ended

    @property
    def files(self) -> RemoteFiles:
        return self._files

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
        allowed = narrow_limits(self._wanted.limits, limits)
        following = CommandFollower(self._shell, allowed, on_output)
        exported = {**self._wanted.env, **(env or {})}
        ran = following.result(
            CommandSpec(
                command, stdin, self._files.enter(cwd), exported, allowed.open_files, self._stale
            )
        )
        self._stale = following.traces
        if isinstance(ran, int):
            raise_for_code(ran, cwd)
            raise SandboxFailed(
                self._backend.name, "start a command", f"its script ended with {ran}"
            )
        return ran

    def keep(self, output: Output, name: str, media_type: str = "text/plain") -> File:
        return keep_output(self._wanted.store, output, name, media_type)

    def begin(self) -> None:
        """Do nothing: every snapshot compares the whole listing with the one before."""

    def snapshot(self) -> TreeSnapshot:
        return self._workspace.snapshot()

    def restore(self, tree: Digest) -> None:
        self._workspace.restore(tree)

    def fork(self, wanted: Wanted) -> RemoteSandbox:
        return self._backend.fork_sandbox(self, self._guest, self._workspace, wanted)

    def pause(self) -> None:
        self._guest.pause()

    def resume(self) -> None:
        self._guest.resume()

    def renew(self, seconds: float) -> None:
        self._guest.renew(seconds)

    def destroy(self) -> None:
        self._guest.kill()

    def close(self) -> None:
        self._guest.close()


class RemoteBackend:
    """A `Backend` on other machines; adapters fill in the class variables and a few methods."""

    name: ClassVar[str]
    package: ClassVar[str]  # its name on PyPI, and for import
    key: ClassVar[str]  # the variable with the credential; "": none is needed
    rung: ClassVar[str]
    workdir: ClassVar[str]
    tested: ClassVar[str]  # with which version of the SDK, and how
    copies: ClassVar[bool]  # True: the vendor can copy a sandbox
    pauses: ClassVar[bool] = True

    # for adapters

    def make(self, wanted: Wanted) -> Guest:
        raise NotImplementedError

    def find(self, sandbox: str) -> Guest:
        raise NotImplementedError

    def all(self) -> Sequence[tuple[str, str, Mapping[str, str]]]:
        """Return the id, state and marks of every sandbox of this account."""
        raise NotImplementedError

    def sdk(self) -> Any:
        """Return the vendor's package; raises MissingExtra or MissingKey."""
        try:
            module = import_module(self.package)
        except ImportError as error:
            raise MissingExtra(
                f"the sandbox backend {self.name!r}", self.name, str(error)
            ) from error
        if self.key:
            value = os.environ.get(self.key, "").strip()
            if not value:
                raise MissingKey(
                    f"the sandbox backend {self.name!r}",
                    self.key,
                    "use another backend, as in session.to('local')",
                )
            secrets.learn_key(value, self.key)
        return module

    # for callers
    def probe(self) -> Probe:
        version = self.version()
        missing = self._why_unavailable()
        offered = [
            "exec",
            "stream",
            "reattach",
            "files",
            "renew",
            "snapshot",
            "fork",
            "network",
            self.rung,
            *(["pause"] if self.pauses else []),
        ]
        capabilities = tuple(Capability(name, not missing, *missing) for name in sorted(offered))
        label = (
            self.tested
            if version and self.tested.endswith(f" {version}")
            else f"untested with {self.package} {version or '(none)'}; {self.tested}"
        )
        return Probe(self.name, version, label, capabilities)

    def version(self) -> str:
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return ""

    def _why_unavailable(self) -> tuple[str, ...]:
        """Return the reason why it cannot be used here, and the remedy; (): it can."""
        if not self.version():
            return (
                f"the package {self.package} is not installed",
                f"pip install 'plait[{self.name}]'",
            )
        if self.key and not os.environ.get(self.key, "").strip():
            return f"{self.key} is not set", f"set the environment variable {self.key}"
        return ()

    def check(self, wanted: Wanted) -> Placement:
        self._check_wanted(wanted)
        self.sdk()
        known: dict[str, Json] = {"version": f"{self.package} {self.version()}"}
        return Placement(
            self.name, rung=self.rung, image=wanted.image, network=wanted.network, detail=known
        )

    def create(self, wanted: Wanted) -> RemoteSandbox:
        self._check_wanted(wanted)
        guest = self.make(wanted)
        try:
            workspace = self._workspace(guest, wanted, EMPTY)
            workspace.fill(wanted.tree)
        except BaseException:
            guest.kill()  # it is not recorded yet, so it would not be found again
            raise
        return RemoteSandbox(self, guest, wanted, self._placement(guest, wanted), workspace)

    def attach(self, placement: Placement, wanted: Wanted) -> RemoteSandbox:
        self._check_wanted(wanted)
        guest = self.find(placement.sandbox)
        return RemoteSandbox(
            self, guest, wanted, placement, self._workspace(guest, wanted, wanted.tree)
        )

    def fork_sandbox(
        self, source: RemoteSandbox, guest: Guest, workspace: RemoteWorkspace, wanted: Wanted
    ) -> RemoteSandbox:
        """Copy a sandbox by the vendor's means if network and image stay the same; otherwise make
        one from its files.
        """
        self._check_wanted(wanted)
        placement = source.placement
        if (
            self.copies
            and wanted.network == placement.network
            and wanted.image in ("", placement.image)
            and not wanted.clean
        ):
            other = guest.copy(wanted)
            return RemoteSandbox(
                self,
                other,
                wanted,
                self._placement(other, wanted, placement.image),
                workspace.copy(Shell(self.name, other)),
            )
        taken = workspace.snapshot()
        wanted.store.put_blobs(taken.blobs)
        return self.create(
            msgspec.structs.replace(wanted, tree=taken.tree, image=wanted.image or placement.image)
        )

    def list_sandboxes(self, store: Store) -> Sequence[SandboxInfo]:
        mine = [found for found in self.all() if found[2].get(STORE) == store.id]
        return [
            SandboxInfo(self.name, sandbox, state, marks.get(SESSION, ""))
            for sandbox, state, marks in mine
        ]

    def _workspace(self, guest: Guest, wanted: Wanted, tree: Digest) -> RemoteWorkspace:
        return RemoteWorkspace(
            Shell(self.name, guest), self.workdir, wanted.store, Rules(ignore=wanted.ignore), tree
        )

    def _check_wanted(self, wanted: Wanted) -> None:
        if wanted.in_place:
            raise NotSupported(
                self.name,
                "work on a folder of this machine in place",
                "leave in_place out, and publish with apply()",
            )
        if wanted.isolation not in ("", self.rung):
            why = f"the backend {self.name!r} offers {self.rung} and nothing else"
            raise IsolationMissing(
                wanted.isolation, why, f"Leave isolation out, or say {self.rung!r}"
            )

    def _placement(self, guest: Guest, wanted: Wanted, image: str = "") -> Placement:
        limits: Json = msgspec.to_builtins(wanted.limits)
        detail: Json = {
            "version": self.version(),
            "workdir": self.workdir,
            "limits": limits,
            "enforced": list(ENFORCED),
        }
        return Placement(
            self.name,
            guest.id,
            1,
            self.rung,
            image or wanted.image or self.default_image(),
            wanted.network,
            detail,
        )

    def default_image(self) -> str:
        """Return the image of a sandbox for which none was named."""
        return ""


def lifetime(wanted: Wanted) -> int:
    """Return the seconds that a sandbox lives: the `timeout_s` option, or the default."""
    given = wanted.options.get("timeout_s")
    return round(given) if isinstance(given, (int, float)) else round(LIFETIME_S)


def marks(wanted: Wanted) -> dict[str, str]:
    return {STORE: wanted.store.id, SESSION: wanted.key}


@contextmanager
def translate_errors(
    backend: str, what: str, sandbox: str, gone: Callable[[Exception], bool], step: str = ""
) -> Generator[None]:
    """Raise the vendor's errors as ours. `gone(error)`: True if the sandbox does not exist."""
    try:
        yield
    except (SandboxGone, SandboxFailed, NotSupported):
        raise
    except Exception as error:
        if sandbox and gone(error):
            raise SandboxGone(backend, sandbox) from error
        why = f"{type(error).__name__}: {secrets.hide_text(str(error))[:500]}"
        raise (
            SandboxFailed(backend, what, why, step) if step else SandboxFailed(backend, what, why)
        ) from error
