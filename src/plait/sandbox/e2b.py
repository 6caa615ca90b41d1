"""Sandboxes of E2B, or of a service with its protocol, on the official SDK `e2b`.

A sandbox is a small virtual machine that is made from a template, lives for a while, and can be
paused and copied with all that runs in it. E2B_API_KEY is the key; the SDK's own variables
(E2B_DOMAIN and the like) name the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from plait.errors import SandboxFailed
from plait.sandbox.base import Wanted
from plait.sandbox.remote import LIFETIME_S, RemoteBackend, lifetime, marks, translate_errors
from plait.sandbox.remote_shell import Guest

if TYPE_CHECKING:
    import e2b

_PAGES = 100


class E2B(RemoteBackend):
    """`session.to("e2b", template="base")`; options: `timeout_s`, `on_timeout`
    ("kill" or "pause").
    """

    name = "e2b"
    package = "e2b"
    key = "E2B_API_KEY"
    rung = "microvm"
    workdir = "/home/user/workspace"
    tested = "wire-tested 2026-11-16 e2b 2.63.0"
    copies = True

    def default_image(self) -> str:
        return "base"

    def make(self, wanted: Wanted) -> Guest:
        sdk = self.sdk()
        given = (
            {"on_timeout": wanted.options["on_timeout"]} if "on_timeout" in wanted.options else None
        )
        with _translate_errors("make a sandbox"):
            box: e2b.Sandbox = sdk.Sandbox.create(
                template=wanted.image or self.default_image(),
                timeout=lifetime(wanted),
                metadata=marks(wanted),
                allow_internet_access=wanted.network == "on",
                lifecycle=given,
            )
        return E2BGuest(box)

    def find(self, sandbox: str) -> Guest:
        sdk = self.sdk()
        with _translate_errors("attach", sandbox):
            return E2BGuest(sdk.Sandbox.connect(sandbox, timeout=round(LIFETIME_S)))

    def all(self) -> Sequence[tuple[str, str, Mapping[str, str]]]:
        found: list[tuple[str, str, Mapping[str, str]]] = []
        with _translate_errors("list sandboxes"):
            pages = self.sdk().Sandbox.list()
            for _ in range(_PAGES):
                found += [
                    (info.sandbox_id, str(info.state.value), info.metadata)
                    for info in pages.next_items()
                ]
                if not pages.has_next:
                    break
        return found


class E2BGuest:
    def __init__(self, box: e2b.Sandbox) -> None:
        self._box, self.id = box, box.sandbox_id

    def shell(self, script: str, wait_s: float) -> str:
        with _translate_errors("run a command", self.id):
            return self._box.commands.run(script, timeout=wait_s).stdout

    def write_file(self, path: str, content: bytes) -> None:
        with _translate_errors("take a file", self.id):
            self._box.files.write(path, content, request_timeout=600)  # pyright: ignore[reportUnknownMemberType]

    def read_file(self, path: str) -> bytes:
        with _translate_errors("give a file", self.id):
            return bytes(self._box.files.read(path, format="bytes", request_timeout=600))

    def pause(self) -> None:
        with _translate_errors("pause", self.id):
            self._box.pause()

    def resume(self) -> None:
        with _translate_errors("resume", self.id):
            self._box.connect(timeout=round(LIFETIME_S))

    def renew(self, seconds: float) -> None:
        with _translate_errors("renew", self.id):
            self._box.set_timeout(round(seconds))

    def kill(self) -> None:
        with _translate_errors("destroy", self.id):
            self._box.kill()

    def copy(self, wanted: Wanted) -> Guest:
        with _translate_errors("fork", self.id):
            (made,) = self._box.fork(timeout=round(LIFETIME_S))
            if isinstance(made, Exception):
                raise SandboxFailed("e2b", "fork", str(made))
            return E2BGuest(made)

    def close(self) -> None:
        """Do nothing: the SDK keeps connections for the whole process, not for a sandbox."""


def _translate_errors(what: str, sandbox: str = "") -> AbstractContextManager[None]:
    return translate_errors(
        "e2b", what, sandbox, _means_gone, "check E2B_API_KEY and the template, or try again"
    )


def _means_gone(error: Exception) -> bool:
    import e2b

    return isinstance(error, (e2b.SandboxNotFoundException, e2b.SandboxNotRunningException))
