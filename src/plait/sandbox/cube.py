"""Sandboxes of CubeSandbox, on its SDK `cubesandbox`.

Its API looks like E2B's and differs: commands have neither standard input nor output before the
end, files are read as text, a copy is made by the client out of a snapshot. A temporary snapshot is
marked with the sandbox it was made of, and removed when the copy stands or failed; if this process
dies between the two, the next attach removes it. CUBE_API_URL is the server, CUBE_TEMPLATE_ID the
template; CUBE_API_KEY is only needed if the server asks for it.
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from typing import Any, cast

from plait import secrets
from plait.errors import InvalidValue, SandboxError, SandboxFailed
from plait.sandbox.base import Wanted
from plait.sandbox.remote import LIFETIME_S, RemoteBackend, lifetime, marks, translate_errors
from plait.sandbox.remote_shell import PIECE, Guest, quote_word

_TEMPORARY = "plait-copy-of-"


class Cube(RemoteBackend):
    """`session.to("cube", template="…")`; options: `timeout_s`, `on_timeout`
    ("kill" or "pause").
    """

    name = "cube"
    package = "cubesandbox"
    key = "CUBE_API_URL"  # there is no public service: without an address there is no server
    rung = "microvm"
    workdir = "/workspace"
    tested = "wire-tested 2026-11-16 cubesandbox 0.7.3"
    copies = True

    def sdk(self) -> Any:
        if value := os.environ.get("CUBE_API_KEY", "").strip():
            secrets.learn_key(value, "CUBE_API_KEY")
        return super().sdk()

    def default_image(self) -> str:
        return os.environ.get("CUBE_TEMPLATE_ID", "")

    def make(self, wanted: Wanted) -> Guest:
        sdk = self.sdk()
        template = wanted.image or self.default_image()
        if not template:
            raise InvalidValue(
                "template",
                "Cube has none that everybody has",
                "pass template=, or set CUBE_TEMPLATE_ID",
            )
        given = (
            {"on_timeout": wanted.options["on_timeout"]} if "on_timeout" in wanted.options else None
        )
        with _translate_errors("make a sandbox"):
            box = sdk.Sandbox.create(
                template,
                timeout=lifetime(wanted),
                metadata=marks(wanted),
                allow_internet_access=wanted.network == "on",
                lifecycle=given,
            )
        return CubeGuest(box)

    def find(self, sandbox: str) -> Guest:
        sdk = self.sdk()
        with _translate_errors("attach", sandbox):
            guest = CubeGuest(sdk.Sandbox.connect(sandbox, timeout=round(LIFETIME_S)))
        guest.tidy()
        return guest

    def all(self) -> Sequence[tuple[str, str, Mapping[str, str]]]:
        with _translate_errors("list sandboxes"):
            found = cast("list[dict[str, Any]]", self.sdk().Sandbox.list())
        return [
            (str(info["sandboxID"]), str(info.get("state", "")), info.get("metadata") or {})
            for info in found
        ]


class CubeGuest:
    def __init__(self, box: Any) -> None:
        self._box, self.id = box, str(box.sandbox_id)

    def shell(self, script: str, wait_s: float) -> str:
        with _translate_errors("run a command", self.id):
            return self._box.commands.run(script, timeout=wait_s).stdout

    def write_file(self, path: str, content: bytes) -> None:
        with _translate_errors("take a file", self.id):
            self._box.files.write(path, content)

    def read_file(self, path: str) -> bytes:
        """Read a file through the shell, piece by piece: the SDK reads text only."""
        found = bytearray()
        while True:
            text = self.shell(
                f"tail -c +{len(found) + 1} {quote_word(path)} | head -c {PIECE} | base64", 600
            )
            if not (piece := b64decode("".join(text.split()))):
                return bytes(found)
            found += piece

    def pause(self) -> None:
        with _translate_errors("pause", self.id):
            self._box.pause(interval=0.2)

    def resume(self) -> None:
        with _translate_errors("resume", self.id):
            self._box.resume(timeout=round(LIFETIME_S))

    def renew(self, seconds: float) -> None:
        with _translate_errors("renew", self.id):
            self._box.set_timeout(round(seconds))

    def kill(self) -> None:
        with suppress(SandboxError):
            self.tidy()
        with _translate_errors("destroy", self.id):
            self._box.kill()
        self.close()

    def copy(self, wanted: Wanted) -> Guest:
        sdk = _sdk()
        try:
            with _translate_errors("fork", self.id):
                taken = self._box.create_snapshot(f"{_TEMPORARY}{self.id}")
                # A network that was off stays off: a snapshot does not say.
                online = wanted.network == "on"
                made = sdk.Sandbox.create(
                    template=taken.snapshot_id,
                    timeout=round(LIFETIME_S),
                    allow_internet_access=online,
                )
                return CubeGuest(made)
        finally:
            with suppress(SandboxFailed):  # the next to attach tries again
                self.tidy()

    def tidy(self) -> None:
        """Remove temporary snapshots of this sandbox."""
        sdk = _sdk()
        with _translate_errors("remove a temporary snapshot", self.id):
            token: str | None = None
            while True:
                found, token = sdk.Sandbox.list_snapshots(sandbox_id=self.id, next_token=token)
                for taken in found:
                    if f"{_TEMPORARY}{self.id}" in taken.names:
                        sdk.Sandbox.delete_snapshot(taken.snapshot_id)
                if not token:
                    return

    def close(self) -> None:
        self._box.close()


def _sdk() -> Any:
    return import_module("cubesandbox")  # it has no types


def _translate_errors(what: str, sandbox: str = "") -> AbstractContextManager[None]:
    return translate_errors(
        "cube",
        what,
        sandbox,
        lambda error: _means_gone(error, sandbox),
        "check CUBE_API_URL, CUBE_API_KEY and the template, or try again",
    )


def _means_gone(error: Exception, sandbox: str) -> bool:
    """Return True if the error means that the sandbox is gone.

    Commands and files are reached through a proxy with errors of its own, so the server is asked.
    """
    missing = _sdk().SandboxNotFoundError
    if isinstance(error, missing):
        return True
    try:
        return all(found["sandboxID"] != sandbox for found in _sdk().Sandbox.list())
    except Exception:  # no answer: the first error is reported
        return False
