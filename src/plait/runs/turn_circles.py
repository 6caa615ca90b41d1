"""Circles of turns: runs of this process that wait for turns of each other's sessions.

A run whose own thread waits for a turn of another session does not end before that turn does, and
turns of a session are answered one after another. So a turn that would close a circle is refused
before it is posted. Turns in threads that the code of a run started, on event loops, as streams and
in other processes are not looked at: there it is not certain that the run waits for them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from plait.errors import TurnCircle
from plait.ids import Digest, LogId, short
from plait.journal.fence import RunFence
from plait.runtime.interrupts import held_interrupts
from plait.runtime.process import THIS_PROCESS
from plait.runtime.run import Run, running
from plait.session import Session
from plait.session.ports import store_at
from plait.session.turn_rows import turn_row

Place = tuple[str, LogId]  # the store of a session, and its id


class TurnWait:
    """Runs of this process, by their sessions, that wait for a turn of another session."""

    def __init__(self, run: Run | None, target: Place) -> None:
        self._run, self.target = run, target
        self.waiting = tuple(_places_of(run))  # the innermost run first; (): no run waits
        self.turn: Digest | None = None  # None: it is being posted

    @property
    def edges(self) -> Iterator[tuple[Place, Place]]:
        """Yield each session that waits, with the one that it waits for."""
        line = (*reversed(self.waiting), self.target)
        return zip(line, line[1:], strict=False)

    @property
    def is_over(self) -> bool:
        """True if the run, or the turn, has its end, though the caller may not have seen it yet."""
        if self._run is None or self._run.closed:
            return True
        if self.turn is None:
            return False
        return turn_row(store_at(self.target[0]), self.turn)["end"] is not None


@contextmanager
def waiting_for_turn(session: Session) -> Generator[TurnWait]:
    """Note that the run at work in this thread waits for a turn of a session, or raise TurnCircle
    if that session waits for the run.
    """
    wait = TurnWait(running.get(), (session.store, session.id))
    if not wait.waiting:  # the caller is no code of a run
        yield wait
        return
    with held_interrupts(), THIS_PROCESS.turn_waits_lock:
        if wait.target not in wait.waiting:  # a post refuses one of its own
            _check_no_circle(wait)
        THIS_PROCESS.turn_waits.add(wait)
    try:
        yield wait
    finally:
        with held_interrupts(), THIS_PROCESS.turn_waits_lock:
            THIS_PROCESS.turn_waits.discard(wait)


def _places_of(run: Run | None) -> Iterator[Place]:
    """Yield the session of a run, and those of the runs that called it."""
    fence: RunFence | None = run.journal.fence if run is not None and not run.closed else None
    while fence is not None:
        yield fence.home, fence.root
        fence = fence.outer


def _check_no_circle(wait: TurnWait) -> None:
    """Raise if the session whose turn is wanted waits, over others, for the run that wants it."""
    own = wait.waiting[0]
    paths: list[tuple[Place, ...]] = [(wait.target,)]
    seen = {wait.target}
    edges = [edge for other in THIS_PROCESS.turn_waits if not other.is_over for edge in other.edges]
    while paths and own not in seen:
        path = paths.pop(0)
        for waiting, target in edges:
            if waiting == path[-1] and target not in seen:
                seen.add(target)
                paths.append((*path, target))
    for path in paths:
        if path[-1] == own:
            raise TurnCircle(tuple(short(log) for _, log in (own, *path)))
