"""Sandboxes of OpenSandbox, on its SDK `opensandbox`.

A sandbox is a container that a server of one's own makes from an image, with a daemon inside that
runs commands and moves files. It can be paused; a copy is made from the files. OPEN_SANDBOX_DOMAIN
is the address of the server, OPEN_SANDBOX_API_KEY its key.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from plait.errors import NotSupported
from plait.sandbox.base import Wanted
from plait.sandbox.remote import RemoteBackend, lifetime, marks, translate_errors
from plait.sandbox.remote_shell import Guest

if TYPE_CHECKING:
    from opensandbox.config.connection_sync import ConnectionConfigSync
    from opensandbox.sync import SandboxSync

_PAGES = 100
_TRANSFER_S = 600
_PAUSED = ("paused", "pausing")


class OpenSandbox(RemoteBackend):
    """`session.to("opensandbox", image="python:3.12")`; options: `timeout_s`.

    OPEN_SANDBOX_PROXY=1 reaches sandboxes through the server.
    """

    name = "opensandbox"
    package = "opensandbox"
    key = "OPEN_SANDBOX_API_KEY"
    rung = "container"
    workdir = "/workspace"
    tested = "wire-tested 2026-11-16 opensandbox 1.1.1"
    copies = False

    def default_image(self) -> str:
        return "ubuntu:24.04"

    def make(self, wanted: Wanted) -> Guest:
        self.sdk()
        from opensandbox.models.sandboxes import NetworkPolicy
        from opensandbox.sync import SandboxSync

        # Without a policy the container has the network, so one that denies it is asked for.
        denied = None if wanted.network == "on" else NetworkPolicy(defaultAction="deny")
        with _translate_errors("make a sandbox"):
            box = SandboxSync.create(
                wanted.image or self.default_image(),
                timeout=timedelta(seconds=lifetime(wanted)),
                metadata=marks(wanted),
                network_policy=denied,
                connection_config=_config(),
            )
        return OpenSandboxGuest(box)

    def find(self, sandbox: str) -> Guest:
        self.sdk()
        from opensandbox.sync import SandboxSync

        with _translate_errors("attach", sandbox):
            # Connecting waits for a missing sandbox to appear, and does not wake a paused one: so
            # the state is looked up first.
            paused = _state(sandbox) in _PAUSED
            connected = SandboxSync.resume if paused else SandboxSync.connect
            return OpenSandboxGuest(connected(sandbox, connection_config=_config()))

    def all(self) -> Sequence[tuple[str, str, Mapping[str, str]]]:
        self.sdk()
        from opensandbox.models.sandboxes import SandboxFilter
        from opensandbox.sync import SandboxManagerSync

        found: list[tuple[str, str, Mapping[str, str]]] = []
        with _translate_errors("list sandboxes"):
            server = SandboxManagerSync.create(connection_config=_config())
            try:
                for page in range(1, _PAGES + 1):
                    listed = server.list_sandbox_infos(SandboxFilter(page=page, page_size=100))
                    found += [
                        (info.id, info.status.state.lower(), info.metadata or {})
                        for info in listed.sandbox_infos
                    ]
                    if not listed.pagination.has_next_page:
                        break
            finally:
                server.close()
        return found


class OpenSandboxGuest:
    def __init__(self, box: SandboxSync) -> None:
        self._box, self.id = box, str(box.id)

    def shell(self, script: str, wait_s: float) -> str:
        from opensandbox.models.execd import RunCommandOpts

        with _translate_errors("run a command", self.id):
            ran = self._box.commands.run(
                script, opts=RunCommandOpts(timeout=timedelta(seconds=wait_s))
            )
            return "\n".join(message.text for message in ran.logs.stdout)

    def write_file(self, path: str, content: bytes) -> None:
        from opensandbox.models.filesystem import WriteEntry

        with _translate_errors("take a file", self.id):
            self._box.files.write_files([WriteEntry(path=path, data=content, mode=600)])

    def read_file(self, path: str) -> bytes:
        with _translate_errors("give a file", self.id):
            return b"".join(self._box.files.read_bytes_stream(path))

    def pause(self) -> None:
        with _translate_errors("pause", self.id):
            self._box.pause()

    def resume(self) -> None:
        from opensandbox.sync import SandboxSync

        with _translate_errors("resume", self.id):
            self._box.close()
            self._box = SandboxSync.resume(self.id, connection_config=_config())

    def renew(self, seconds: float) -> None:
        with _translate_errors("renew", self.id):
            self._box.renew(timedelta(seconds=seconds))

    def kill(self) -> None:
        with _translate_errors("destroy", self.id):
            self._box.kill()
        self.close()

    def copy(self, wanted: Wanted) -> Guest:
        raise NotSupported("opensandbox", "copy a sandbox", "it is made from the files")

    def close(self) -> None:
        self._box.close()


def _config() -> ConnectionConfigSync:
    from opensandbox.config.connection_sync import ConnectionConfigSync

    proxied = os.environ.get("OPEN_SANDBOX_PROXY", "") not in ("", "0")
    return ConnectionConfigSync(
        use_server_proxy=proxied,
        disable_metrics=True,
        request_timeout=timedelta(seconds=_TRANSFER_S),
    )


def _state(sandbox: str) -> str:
    from opensandbox.sync import SandboxManagerSync

    server = SandboxManagerSync.create(connection_config=_config())
    try:
        return server.get_sandbox_info(sandbox).status.state.lower()
    finally:
        server.close()


def _translate_errors(what: str, sandbox: str = "") -> AbstractContextManager[None]:
    step = (
        "check OPEN_SANDBOX_DOMAIN, OPEN_SANDBOX_API_KEY and the image, or look at the server's log"
    )
    return translate_errors(
        "opensandbox", what, sandbox, lambda error: _means_gone(error, sandbox), step
    )


def _means_gone(error: Any, sandbox: str) -> bool:
    """Return True if the error means that the sandbox is gone.

    The daemon in a sandbox goes with it, which looks like a broken connection, so the server is
    asked.
    """
    from opensandbox.exceptions import SandboxApiException

    if isinstance(error, SandboxApiException) and "/sandboxes/" in str(error):
        return error.status_code == 404
    try:
        return _state(sandbox) in ("terminated", "stopping", "failed")
    except SandboxApiException as answer:
        return answer.status_code == 404
    except Exception:  # no answer: the first error is reported
        return False
