"""Errors about the files of a session, and about the sandboxes in which tools run."""

from __future__ import annotations

from plait.errors.base import PlaitError, without_full_stop


class WorkspaceError(PlaitError):
    """Something about the files of a session."""


class NotPlaced(WorkspaceError):
    """The session has no files, because it was never placed."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(
            f"session {session} has no workspace. Place it first: session.to('local', './repo'), or"
            f" `plait to {session} local FOLDER`."
        )


class NoSuchFile(WorkspaceError):
    """Nothing is there."""

    def __init__(
        self,
        path: str,
        step: str = "look what there is with list_files, or session.files.paths()",
    ) -> None:
        self.path, self.step = path, step
        super().__init__(f"there is no {path!r} in the workspace; {step}.")


class NotAFile(WorkspaceError):
    """A folder, a pipe, a device or a link to nowhere, where a file is wanted."""

    def __init__(self, path: str, what: str) -> None:
        self.path, self.what = path or ".", what
        super().__init__(
            f"{self.path!r} is {what}, not a file. Name a file; for what is in a folder use"
            " list_files."
        )


class OutsideWorkspace(WorkspaceError):
    """The path leads out of the workspace, by itself or through a link."""

    def __init__(self, path: str, why: str = "it leads out of it") -> None:
        self.path, self.why = path, why
        super().__init__(
            f"{path!r} is not in the workspace: {why}. Use a path relative to the workspace."
        )


class FileWithheld(WorkspaceError):
    """Its content holds a secret, so it was never written to the store."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path!r} holds a secret and was withheld from the store. Keep secrets out of files,"
            " or read it where it lies."
        )


class EditRefused(WorkspaceError):
    """An edit whose text to replace is missing or ambiguous. The file is as it was."""

    def __init__(self, path: str, why: str, step: str) -> None:
        self.path, self.why, self.step = path, why, step
        super().__init__(f"{path!r} was not edited: {why}. {step}.")


class NotApplied(WorkspaceError):
    """Files could not be published, or checked out. Files not written are as they were."""

    def __init__(self, folder: str, why: str, step: str) -> None:
        self.folder, self.why, self.step = folder, why, step
        super().__init__(
            f"cannot write the files to {folder!r}: {without_full_stop(why)}."
            f" {step[:1].upper()}{without_full_stop(step)[1:]}."
        )


class SandboxError(PlaitError):
    """Something about where tools run."""


class UnknownBackend(SandboxError):
    """No backend is called that."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.name, self.known = name, known
        super().__init__(
            f"no sandbox backend is called {name!r}; there are {', '.join(known)}. Install the"
            " package that brings it."
        )


class IsolationMissing(SandboxError):
    """This machine does not offer the isolation that is wanted, and less is only taken on an
    explicit word.
    """

    def __init__(self, wanted: str, why: str, fix: str) -> None:
        self.wanted, self.why, self.fix = wanted, why, fix
        super().__init__(
            f"{wanted} is not to be had on this machine: {why}. {fix}. `plait doctor` shows what"
            " there is."
        )


class SandboxGone(SandboxError):
    """The sandbox does not exist any more."""

    def __init__(self, backend: str, sandbox: str) -> None:
        self.backend, self.sandbox = backend, sandbox
        super().__init__(
            f"{backend} has no sandbox {sandbox!r} any more. The next tool call makes another, from"
            " the recorded files."
        )


class SandboxBusy(SandboxError):
    """Another process works in it."""

    def __init__(self, backend: str, sandbox: str) -> None:
        self.backend, self.sandbox = backend, sandbox
        step = "Wait until it ends, or fork the session to get files of your own"
        super().__init__(f"another process works in the sandbox {sandbox!r} of {backend}. {step}.")


class SandboxFailed(SandboxError):
    """The backend failed at its task."""

    def __init__(
        self,
        backend: str,
        what: str,
        why: str,
        step: str = "try again, or look at the backend's own log",
    ) -> None:
        self.backend, self.what, self.why, self.step = backend, what, why, step
        super().__init__(f"{backend} could not {what}: {why}; {step}.")


class NotSupported(SandboxError):
    """The backend cannot do that at all."""

    def __init__(self, backend: str, what: str, step: str = "use another backend") -> None:
        self.backend, self.what, self.step = backend, what, step
        super().__init__(f"{backend} cannot {what}; {step}.")


class EgressRefused(SandboxError):
    """Tools may not reach that address. Nothing was sent to it."""

    def __init__(self, url: str, why: str, step: str) -> None:
        self.url, self.why, self.step = url, why, step
        super().__init__(f"{url} was not asked: {why}. {step}.")


class RequestFailed(SandboxError):
    """A server could not be reached, did not answer in time, or gave a senseless answer."""

    def __init__(self, method: str, url: str, why: str, *, sent: bool) -> None:
        self.method, self.url, self.why, self.sent = method, url, why, sent
        known = (
            "It was sent: find out whether it took effect before you repeat it"
            if sent
            else "Nothing was sent; try again later"
        )
        super().__init__(f"{method} {url}: {why}. {known}.")
