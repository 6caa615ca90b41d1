"""Stops: branches of a run in which nothing more is to happen."""

from __future__ import annotations

from itertools import count
from threading import Lock, current_thread, main_thread

from plait.ids import LogId
from plait.journal.journal import Journal
from plait.journal.stops import Cancelled


class StopList:
    """The stops that apply to the branches of a run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = Lock()
        self._stopped: dict[int, LogId] = {}
        self._numbers = count()
        self.is_interrupted = False  # True: by Ctrl-C

    def interrupt(self) -> None:
        """Stop all branches for good. A signal handler calls this, so it takes no lock."""
        self.is_interrupted = True

    def check_interrupt(self) -> None:
        """Raise if Ctrl-C has stopped the run: KeyboardInterrupt where Python raises it, too."""
        if self.is_interrupted:
            if current_thread() is main_thread():
                raise KeyboardInterrupt
            raise Cancelled("Ctrl-C stopped the run")

    def stop(self, log: LogId) -> int:
        """Stop a branch, and those forked from it; return the number that undoes it."""
        with self._lock:
            number = next(self._numbers)
            self._stopped = {**self._stopped, number: log}
            return number

    def undo(self, number: int) -> None:
        """Undo one `stop()`. The branch runs again when no other stop applies."""
        with self._lock:
            self._stopped = {other: log for other, log in self._stopped.items() if other != number}

    def is_stopped(self, log: LogId) -> bool:
        if self.is_interrupted:
            return True
        if not self._stopped:
            return False
        stopped = self._stopped.values()
        return any(each in stopped for each in self._journal.branches.lineage(log))

    def check(self, log: LogId) -> None:
        """Raise Cancelled before an effect in a branch that was stopped."""
        journal = self._journal
        journal.fence.check_going()
        if journal.has_more(log):
            return  # it went on so far, whenever it was stopped
        self.check_interrupt()
        if self.is_stopped(log) or journal.was_left_behind(log):
            raise Cancelled(f"branch {log[-12:-4]} was stopped")
