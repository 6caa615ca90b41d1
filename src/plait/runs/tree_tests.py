"""A command run on recorded trees, each in a sandbox of its own that is thrown away afterwards.

Only the files differ between two tests: the backend, its options, its limits and the folders that
are mounted are those of one placement. No command finds leftovers of the one before it. Nothing is
recorded, no blob is written, and the folder that the files came from is never worked on.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import NamedTuple

import msgspec

from plait.errors import InvalidValue, NotPlaced, SandboxBusy, SandboxGone
from plait.event.kinds import Placement
from plait.ids import Digest
from plait.runtime.placement import wanted_of
from plait.sandbox import Sandbox, Wanted, backend
from plait.session import Session
from plait.session.ports import store_at

OUTPUT_MAX = 4_000  # characters of an output that are kept


class CommandEnd(NamedTuple):
    """The end of a command on a tree."""

    exit_code: int
    output: str  # its beginning and its end
    duration_us: int
    killed: str = ""  # the limit that ended it; "": it ended by itself


class TreeCommand:
    """A command that can be run on any tree of a session."""

    def __init__(self, session: Session, command: Sequence[str], timeout_s: float | None) -> None:
        self._command = _check_command(command)
        tree = session.files.tree
        if tree is None:
            raise NotPlaced(session.short)
        if timeout_s is not None and not 0 < timeout_s < float("inf"):
            raise InvalidValue("timeout", f"{timeout_s!r} is no time", "pass seconds, above 0")
        placement = session.files.placement or Placement("local")
        self._backend = backend(placement.backend)
        self._log = session.id
        wanted = wanted_of(store_at(session.store), session.id, tree, placement)
        limits = wanted.limits
        if timeout_s is not None:
            limits = msgspec.structs.replace(limits, time_s=timeout_s)
        # in place, a command would work on the folder itself, which has one tree only
        self._wanted = msgspec.structs.replace(
            wanted, limits=limits, in_place=False, clean=False, base=wanted.base or tree
        )

    def run(self, tree: Digest) -> CommandEnd:
        """Run the command on a tree. The files are gone when this returns."""
        sandbox = self._make_sandbox(msgspec.structs.replace(self._wanted, tree=tree))
        try:
            sandbox.begin()
            ran = sandbox.exec(self._command)
            return CommandEnd(
                ran.exit_code, ran.output.view(OUTPUT_MAX), ran.duration_us, ran.killed
            )
        finally:
            with suppress(SandboxGone):
                sandbox.destroy()

    def _make_sandbox(self, wanted: Wanted) -> Sandbox:
        """Make a sandbox beside the session's own; under another name while one is in use."""
        for number in count():
            with suppress(SandboxBusy):
                key = f"{self._log}.bisect-{number}"
                return self._backend.create(msgspec.structs.replace(wanted, key=key))
        raise AssertionError("count() does not end")


def _check_command(command: Sequence[str]) -> list[str]:
    if isinstance(command, (str, bytes)):
        why, step = "it is one text, not a list of words", "pass ['sh', '-c', 'make test']"
        raise InvalidValue("command", why, step)
    words = list(command)
    if not words or not all(isinstance(word, str) for word in words):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue("command", "it is no list of words", "pass ['pytest', '-q']")
    return words
