"""The ports for the present moment, beside the logs: locks of runs, bells, notices, allowances and
the clock.

None of them is on record. A lock ends with its process, a bell may be lost, and notices and
allowances may be dropped at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from plait.ids import LogId, Micros


class SeenRun(NamedTuple):
    """A run as a caller has seen it: its log, and the last commit about it."""

    log: LogId
    number: int


class RunLock(Protocol):
    """A run that this process has taken: no other process, and no second lock of this one, can.

    It is let go when it is released or the process dies, however that happens. A process that is
    forked off does not have it.
    """

    def release(self) -> None:
        """Let the run go. A second time changes nothing, and a closed store does not matter."""
        ...

    @property
    def was_taken(self) -> bool:
        """True if this process knows that another one has taken the run from it. Asking costs
        nothing. Where locks end with their process alone, it is never True.
        """
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

    def lock_first(
        self, runs: Sequence[str], seen: Mapping[str, SeenRun] | None = None
    ) -> tuple[str, RunLock] | None:
        """Take the first of these runs that no process has, and return it with its lock. None:
        each of them is taken, or being taken.

        A run in `seen` is passed over if its log has gone on since then. Callers at the same moment
        get different runs, and none waits for another longer than for a commit.
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


class OneMachine:
    """A store whose processes are all on one machine."""

    def shared_time(self) -> None:
        """None: they have the clock of the machine."""


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


class Drawn(msgspec.Struct, frozen=True):
    """The answer of an allowance."""

    amount: float  # that belongs to the caller now; 0: there was not enough
    wait_s: float  # until the caller may use it, or may ask again; 0: at once


class Allowance(msgspec.Struct, frozen=True):
    """An allowance as it stands, by the store's own clock."""

    level: float  # when it was last drawn from; below 0: parts of it are set aside in advance
    age_s: float  # since then
    closed_s: float  # for so long nothing may be used; 0: it is open


class AllowanceStore(Protocol):
    """Allowances: amounts that refill with time, and that all processes of a store share.

    An allowance holds at most `size`, and refills by `per_s` in each second; one that is not known
    is full. They may be dropped at any time: then they are full again.
    """

    def draw(
        self,
        allowance: str,
        amount: float,
        *,
        per_s: float,
        size: float,
        most: float = 0.0,
        reserves: bool = False,
    ) -> Drawn:
        """Take an amount, or up to `most` if there is more. Callers at the same moment never get
        more, together, than there is.

        If there is not enough, or the allowance is closed, nothing is taken, and `wait_s` says
        when there will be; with `reserves` the amount is set aside now, and may be used after
        `wait_s`. An amount above `size` is given when the allowance is full. An amount below 0 is
        put back. With 0, `wait_s` says how long the allowance is closed.
        """
        ...

    def close_allowance(self, allowance: str, seconds: float) -> None:
        """Let no process use it for so long, at most an hour. It does not refill meanwhile, so that
        those who wait come one after another when it opens. A time that ends before the one that
        was said before changes nothing.
        """
        ...

    def allowances(self) -> dict[str, Allowance]:
        """Return the allowances that are known, by name, in the order of their names."""
        ...

    def drop_allowance(self, allowance: str) -> None:
        """Forget an allowance: it is full, and open. One that is not there is no error."""
        ...
