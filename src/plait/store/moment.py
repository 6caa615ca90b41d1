"""The ports for the present moment, beside the logs: locks of runs, bells, notices and the clock.

None of them is on record. A lock ends with its process, a bell may be lost, and a notice may be
dropped at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from plait.ids import Micros


class RunLock(Protocol):
    """A run that this process has taken: no other process, and no second lock of this one, can.

    It is let go when it is released or the process dies, however that happens. A process that is
    forked off does not have it.
    """

    def release(self) -> None:
        """Let the run go. A second time changes nothing, and a closed store does not matter."""
        ...


class LockStore(Protocol):
    """Locks of runs: one process at a time has a run."""

    def lock(self, run: str, session: str) -> RunLock:
        """Take a run for this process, and return its lock. `session` is for the error's text.

        Raises `RunHeld`, which names the holder, if another process has the run, or this one.
        """
        ...

    def is_locked(self, run: str) -> bool:
        """True if a process has the run, be it this one.

        Asking takes nothing: no holder notices it, and a process that takes the run meanwhile gets
        it. The answer may be out of date when it is returned.
        """
        ...

    def lock_first(self, runs: Sequence[str]) -> tuple[str, RunLock] | None:
        """Take the first of these runs that no process has, and return it with its lock. None:
        each of them is taken, or being taken.

        Callers at the same moment get different runs, and none waits for another longer than for
        a commit.
        """
        ...

    def free_runs(self, runs: Collection[str]) -> set[str]:
        """Return those of these runs that no process has, in one question. Asking takes nothing."""
        ...


class ClockStore(Protocol):
    """The clock of a store whose processes may be on many machines."""

    def shared_time(self) -> Micros | None:
        """The time by the clock that all processes of the store share: asking costs nothing. None:
        they are on one machine, and have its clock.
        """
        ...


class Bell(Protocol):
    """A listener for one topic. A process that is forked off does not have it."""

    def wait(self, timeout_s: float) -> bool:
        """Wait until it rings. True: it rang since the last `wait`, or since `listen`. False: the
        time is over, or the bell was closed.
        """
        ...

    def close(self) -> None:
        """Listen no more, and end a `wait` of another thread. A second time changes nothing."""
        ...


class BellStore(Protocol):
    """Bells: hints between the processes of a store that there is something new.

    A bell may be lost, and may ring for nothing: a listener looks by itself from time to time.
    """

    def ring(self, topic: str) -> None:
        """Ring the bells of a topic, in all processes. It never waits, and never raises because a
        bell was lost; it costs little if no process listens.
        """
        ...

    def listen(self, topic: str) -> Bell:
        """Listen for a topic from now on. The bell is closed with the store, if not before."""
        ...


class Notice(msgspec.Struct, frozen=True):
    """The bytes of a notice, and how long ago they were put, by the store's own clock."""

    data: bytes
    age_s: float


class NoticeStore(Protocol):
    """Notices: small facts about the present moment, beside the logs.

    They may be dropped at any time; nothing that counts rests on them.
    """

    def put_notice(self, board: str, key: str, data: bytes) -> None:
        """Put a notice on a board, instead of the one with this key. It is not synced to disk."""
        ...

    def drop_notice(self, board: str, key: str) -> None:
        """Take a notice off a board. One that is not there is no error."""
        ...

    def notices(self, board: str) -> dict[str, Notice]:
        """Return the notices of a board, by key, in the order of their keys."""
        ...
