"""The sandbox that a tool gets for the time of one call.

It passes everything on to the live sandbox, notices whether files may have changed and whether the
sandbox was lost, and refuses to be used once the call is over.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

from plait.errors import InvalidValue, NotSupported, SandboxFailed, SandboxGone
from plait.event.kinds import File as FilePart
from plait.event.kinds import Placement
from plait.ids import Digest
from plait.sandbox import Limits, OnOutput, Output, Ran, Sandbox, Wanted
from plait.sandbox.resident import Resident, ResidentHost
from plait.secrets import HiddenPieces
from plait.workspace import FileAccess, TreeEntry, TreeSnapshot


class LentSandbox:
    """A `Sandbox` for the time of one call."""

    def __init__(self, sandbox: Sandbox, on_text: Callable[[str], object] | None = None) -> None:
        self._sandbox: Sandbox | None = sandbox
        self._on_text = on_text
        self._begun = False
        self.broken = False  # True once it turned out to be gone
        self.running = 0  # commands
        self._files = _LentFiles(self)

    def revoke(self) -> None:
        self._sandbox = None

    @property
    def has_begun(self) -> bool:
        """True if files may have changed."""
        return self._begun

    def live(self) -> Sandbox:
        """Return the sandbox behind this one; raises SandboxFailed once the call is over."""
        if self._sandbox is None:
            raise SandboxFailed(
                "plait",
                "be used",
                "the call it was lent for is over",
                "use the sandbox only while the tool runs",
            )
        return self._sandbox

    def touch(self) -> Sandbox:
        """Return the sandbox, for something that may change files."""
        sandbox = self.live()
        if not self._begun:
            with self.notice_loss():
                sandbox.begin()
            self._begun = True
        return sandbox

    @contextmanager
    def notice_loss(self) -> Generator[None]:
        """Note if the sandbox or its files are gone, and raise that as SandboxGone.

        Such a sandbox is not lent again: the next call gets another from the recorded tree.
        """
        try:
            yield
        except (OSError, SandboxGone) as error:
            self.broken = True
            if isinstance(error, SandboxGone) or self._sandbox is None:
                raise
            raise SandboxGone(
                self._sandbox.placement.backend, self._sandbox.placement.sandbox
            ) from error

    @property
    def placement(self) -> Placement:
        return self.live().placement

    @property
    def workdir(self) -> str:
        return self.live().workdir

    @property
    def files(self) -> FileAccess:
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
        if isinstance(command, (str, bytes)):
            raise InvalidValue(
                "command", "it is one text, not a list of words", "pass ['sh', '-c', 'ls -R']"
            )
        listener = (
            OutputListener(self._on_text, on_output)
            if self._on_text is not None or on_output is not None
            else None
        )
        self.running += 1
        try:
            with self.notice_loss():
                ran = self.touch().exec(
                    command, stdin=stdin, cwd=cwd, env=env, limits=limits, on_output=listener
                )
            if listener is not None:
                listener.end()
            return ran
        finally:
            self.running -= 1

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Resident:
        sandbox = self.touch()
        if not isinstance(sandbox, ResidentHost):
            raise NotSupported(
                sandbox.placement.backend,
                "keep a process between calls",
                "place the session with .to('local', …)",
            )
        return sandbox.start(name, command, cwd=cwd, env=env)

    def resident(self, name: str) -> Resident | None:
        sandbox = self.live()
        found = sandbox.resident(name) if isinstance(sandbox, ResidentHost) else None
        if found is not None:
            self.touch()  # a process that is talked to may change files
        return found

    def keep(self, output: Output, name: str, media_type: str = "text/plain") -> FilePart:
        return self.live().keep(output, name, media_type)

    def begin(self) -> None:
        self.touch()

    def snapshot(self) -> TreeSnapshot:
        return self.live().snapshot()

    def restore(self, tree: Digest) -> None:
        self.touch().restore(tree)

    def fork(self, wanted: Wanted) -> Sandbox:
        return self.live().fork(wanted)

    def pause(self) -> None:
        self.live().pause()

    def resume(self) -> None:
        self.live().resume()

    def renew(self, seconds: float) -> None:
        self.live().renew(seconds)

    def destroy(self) -> None:
        raise SandboxFailed(
            "plait", "be destroyed", "a tool has it on loan only", "end it with `plait sandbox rm`"
        )

    def close(self) -> None:
        """Do nothing: the runtime closes it after the call."""


class OutputListener:
    """Passes the output of a command to listeners as it comes, without secrets, even where one lies
    across two pieces.

    The listener of a run gets text, the caller of `exec` gets bytes. The bytes of an incomplete
    character are held back until the rest of it has come.
    """

    def __init__(self, on_text: Callable[[str], object] | None, on_output: OnOutput | None) -> None:
        self._on_text, self._on_output = on_text, on_output
        # bytes that are no text come back as they are
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._pieces = HiddenPieces()

    def __call__(self, piece: bytes) -> None:
        self._show(self._pieces.feed(self._decoder.decode(piece)))

    def end(self) -> None:
        """Pass on the rest that was held back; no more output will come."""
        self._show(self._pieces.feed(self._decoder.decode(b"", final=True)) + self._pieces.end())

    def _show(self, text: str) -> None:
        if not text:
            return
        data = text.encode("utf-8", "surrogateescape")
        if self._on_text is not None:
            self._on_text(data.decode("utf-8", "replace"))
        if self._on_output is not None:
            self._on_output(data)


class _LentFiles:
    def __init__(self, lent: LentSandbox) -> None:
        self._lent = lent

    def entry(self, path: str) -> TreeEntry:
        with self._lent.notice_loss():
            return self._lent.live().files.entry(path)

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        with self._lent.notice_loss():
            return self._lent.live().files.read(path, offset=offset, size=size)

    def list(self, path: str = "") -> Sequence[TreeEntry]:
        with self._lent.notice_loss():
            return self._lent.live().files.list(path)

    def write(self, path: str, content: bytes, *, mode: int | None = None) -> None:
        with self._lent.notice_loss():
            self._lent.touch().files.write(path, content, mode=mode)

    def remove(self, path: str) -> None:
        with self._lent.notice_loss():
            self._lent.touch().files.remove(path)

    def make_folder(self, path: str) -> None:
        with self._lent.notice_loss():
            self._lent.touch().files.make_folder(path)

    def link(self, path: str, target: str) -> None:
        with self._lent.notice_loss():
            self._lent.touch().files.link(path, target)

    def chmod(self, path: str, mode: int) -> None:
        with self._lent.notice_loss():
            self._lent.touch().files.chmod(path, mode)
