"""Driving what a log says: under its lock, step by step, with words before acts.

There is no controller. A driver has the lock of a log, reads it, and writes what follows from it
before it acts. So a driver may die at any moment, and the next one goes on from the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from plait.cluster.parts import ACTOR
from plait.cluster.submitting import now_in
from plait.errors import RunHeld, StaleHead
from plait.event import Body
from plait.ids import LogId, Micros
from plait.journal.writer import direct_writer
from plait.session.ports import Act, Draft, Position
from plait.store import RunLock, Store

_WAIT_S = 1.0  # for another driver of the same log
_LOOK_S = 0.02
_FOLDS_MAX = 256  # logs that a driver remembers
_STEPS_MAX = 1000  # of one log in a row


class LogFold(Protocol):
    """The state of a log, up to an event."""

    is_expired: bool  # True: there is nothing to do any more

    def read(self, store: Store) -> Position:
        """Take the events that the log has by now; return the place of the last one."""
        ...


F = TypeVar("F", bound=LogFold)


class LogDriver(Generic[F]):
    """Drives logs of one kind. Threads of a process share it."""

    def __init__(self, store: Store, new_fold: Callable[[LogId], F]) -> None:
        self._store, self._new_fold = store, new_fold
        self._guard = threading.Lock()
        self._folds: dict[LogId, F] = {}
        self._asked: set[str] = set()  # runs that were asked to end, by this process
        self._has_acted = False  # in this step: another look is worth its while

    def advance(self, log: LogId, wait_s: float = _WAIT_S) -> bool:
        """Do all that can be done now. False: another driver is at it."""
        with self._guard:
            lock = lock_soon(self._store, f"job/{log}", log, wait_s)
            if lock is None:
                return False
            try:
                fold = self._folds.pop(log, None) or self._new_fold(log)
                for _ in range(_STEPS_MAX):
                    if not self._step(fold):
                        break
                if not fold.is_expired:
                    self._folds[log] = fold
                while len(self._folds) > _FOLDS_MAX:
                    self._folds.pop(next(iter(self._folds)))
            finally:
                lock.release()
        return True

    def _step(self, fold: F) -> bool:
        """Take one step. False: there is nothing more to do now."""
        at = fold.read(self._store)
        if fold.is_expired:
            return False
        self._has_acted = False
        words = self._next_words(fold, now_in(self._store))
        if words:
            with suppress(StaleHead):  # another writer was first: the next step reads it
                direct_writer().write(at, [Draft(word, Act(ACTOR)) for word in words])
        return bool(words) or self._has_acted

    def _next_words(self, fold: F, now: Micros) -> Sequence[Body]:
        """Act on what is on record, and return what follows from it."""
        raise NotImplementedError


def lock_soon(store: Store, name: str, shown: str, wait_s: float) -> RunLock | None:
    """Take a lock that another process may have for a moment. None: it still has it."""
    until = time.monotonic() + wait_s
    while True:
        try:
            return store.lock(name, shown)
        except RunHeld:
            if time.monotonic() >= until:
                return None
        time.sleep(_LOOK_S)
