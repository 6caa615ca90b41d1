"""Screens, for the browser and the desktop: a resident in the sandbox that holds one, and lines of
JSON to and from it.

A screen is not part of the workspace: it does not fork with the files, ends when the files become
those of another tree, and ends with the handle on its sandbox. A call that finds none asks to open
it anew; no act is ever repeated to get back to an earlier state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from plait.errors import NotSupported, SandboxFailed
from plait.event import Json
from plait.sandbox import Sandbox
from plait.sandbox.resident import Resident, ResidentHost

START_S, ANSWER_S = 60.0, 60.0
Serve = Callable[[str], Json]  # answers a resident that needs a file of the workspace


class Screen:
    """One resident, and requests to it."""

    def __init__(self, kind: str, resident: Resident) -> None:
        self.kind, self._resident = kind, resident

    @property
    def pid(self) -> int:
        return self._resident.pid

    def ask(
        self, what: str, request: Mapping[str, Json], serve: Serve | None = None
    ) -> Mapping[str, Any]:
        """Return the answer to a request; raises SandboxFailed if it refused, failed, or is
        gone.
        """
        self._resident.send(msgspec.json.encode(request))
        answer = self.receive(what, ANSWER_S, serve)
        if why := answer.get("refused"):
            raise SandboxFailed(self.kind, what, why, "nothing was done")
        if why := answer.get("failed"):
            raise SandboxFailed(
                self.kind, what, why, "it may have happened in part: look before trying again"
            )
        return answer

    def receive(
        self, what: str, patience_s: float, serve: Serve | None = None
    ) -> Mapping[str, Any]:
        until = monotonic() + patience_s
        while line := self._resident.receive(max(0.0, until - monotonic())):
            answer: Mapping[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
            if "need" not in answer:
                return answer
            self._resident.send(
                msgspec.json.encode({"content": serve(answer["need"]) if serve else None})
            )
        raise self._lost_error(what)

    def _lost_error(self, what: str) -> SandboxFailed:
        """End a screen that does not answer, and return the error: one that hangs is of no more use
        than one that is gone.
        """
        gone = not self._resident.is_alive
        self._resident.end()
        words = self._resident.complaint().rpartition("\n")[2]
        why = (
            f"it ended{f' ({words})' if words else ''}"
            if gone
            else "it did not answer and was ended"
        )
        return SandboxFailed(
            self.kind, what, why, f"start the {self.kind} again; what was on it is lost"
        )


def start_screen(sandbox: Sandbox, kind: str, program: str, *arguments: str) -> Screen:
    """Return the screen of that kind, started if there is none.

    `program` names the file beside this one that runs inside.
    """
    if (screen := find_screen(sandbox, kind)) is not None:
        return screen
    if not isinstance(sandbox, ResidentHost):
        raise NotSupported(
            sandbox.placement.backend,
            f"keep a {kind} open between calls",
            "place the session with .to('local', …)",
        )
    if sandbox.placement.rung == "landlock":
        raise NotSupported(
            "the landlock rung",
            f"hold a {kind}, which needs sockets of its own",
            "use a rung with bubblewrap",
        )
    source = (Path(__file__).parent / f"{program}.py").read_text()
    screen = Screen(kind, sandbox.start(kind, [_python(sandbox), "-c", source, *arguments]))
    screen.receive("start", START_S)
    return screen


def find_screen(sandbox: Sandbox, kind: str) -> Screen | None:
    """Return the screen of that kind, if it is still there."""
    resident = sandbox.resident(kind) if isinstance(sandbox, ResidentHost) else None
    return Screen(kind, resident) if resident is not None else None


def _python(sandbox: Sandbox) -> str:
    return sys.executable if sandbox.placement.backend == "local" else "python3"
