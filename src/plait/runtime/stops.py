"""Stops: branches of a run in which nothing more is to happen.

A stop that parks or cancels the run is an error on its way through the program, which a bare
`except:` can catch. The program would then go on as if the work had failed, and the answer of a
person would find no call. So such a stop is noted for each log that it passes, and raised again
until it leaves the program.
"""

from __future__ import annotations

from itertools import count
from threading import Lock, current_thread, main_thread

from plait.ids import LogId
from plait.inside import Stop
from plait.journal.journal import Journal
from plait.journal.stops import Cancelled, LetGo, Parked


class StopList:
    """The stops that apply to the branches of a run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = Lock()
        self._stopped: dict[int, LogId] = {}
        self._numbers = count()
        self._raised: dict[LogId, Stop] = {}  # by log: the first stop that its code has to let pass
        self.is_interrupted = False  # True: by Ctrl-C
        self.is_let_go = False  # True: another process is to take the run up

    def interrupt(self) -> None:
        """Stop all branches for good. A signal handler calls this, so it takes no lock."""
        self.is_interrupted = True

    def let_go(self) -> None:
        """Stop all branches before their next effects, and leave the run to another process."""
        self.is_let_go = True

    def check_interrupt(self) -> None:
        """Raise if Ctrl-C has stopped the run: KeyboardInterrupt where Python raises it, too. Raise
        if the run is let go of.
        """
        if self.is_let_go:
            raise LetGo("this process lets the run go")
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
        self.check_raised(log)
        if self.is_stopped(log) or journal.was_left_behind(log):
            raise Cancelled(f"branch {log[-12:-4]} was stopped")

    # ── stops that the program has to let pass ───────────────────────────────────────────────

    def note(self, log: LogId, error: BaseException) -> None:
        """Note a stop that the code which has a log in hand is handed as an error.

        A branch that others stopped, or a call that timed out, is not noted: its caller may go on.
        """
        is_for_run = isinstance(error, (Parked, LetGo)) or (
            isinstance(error, Cancelled) and bool(error.by)
        )
        if is_for_run and isinstance(error, Stop) and not self._journal.has_more(log):
            self._raised.setdefault(log, error)

    def raised_in(self, log: LogId) -> Stop | None:
        """Return the stop that was raised in a log, and did not end its code. None: there is none,
        or the recording goes on.
        """
        stop = self._raised.get(log)
        return stop if stop is not None and not self._journal.has_more(log) else None

    def check_raised(self, log: LogId) -> None:
        """Raise a stop again that was raised in this log, and that its code has caught."""
        if self._raised and (stop := self.raised_in(log)) is not None:
            raise stop

    def raised_logs(self) -> list[LogId]:
        """Return the logs in which a stop was raised."""
        return list(self._raised)
