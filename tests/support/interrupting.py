"""Ctrl-C, and pauses of a thread, between any two lines of a file."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from threading import Event
from types import FrameType
from typing import Any


class InterruptedLines:
    """Counts the lines that this thread comes to in some files, and stops it at one of them as
    Ctrl-C does. The files are named by parts of their paths.
    """

    def __init__(self, stop_at: int, *files: str) -> None:
        self.count, self.where, self.is_stopped = 0, "", False
        self._stop_at, self._files, self._before = stop_at, files, sys.gettrace()

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *error: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not any(part in frame.f_code.co_filename for part in self._files):
            return None
        if event == "line":
            self.count += 1
            if self.count == self._stop_at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self.is_stopped = True
                signal.raise_signal(signal.SIGINT)
        return self._trace


class PausedThread:
    """Counts the lines that a thread comes to in some files, and pauses it at one of them until it
    may go on. Line 0: it is not paused.
    """

    # A thread that has a lock in its hands goes on after this, so that whoever waits for the lock
    # does.
    _LONGEST_S = 0.3

    def __init__(self, pause_at: int, *files: str) -> None:
        self.count, self.where = 0, ""
        self.is_paused, self.may_go_on = Event(), Event()  # is_paused: or has ended
        self._pause_at, self._files = pause_at, files

    def run(self, work: Callable[[], object]) -> None:
        """Do the work in this thread."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            work()
        finally:
            sys.settrace(before)
            self.is_paused.set()

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not any(part in frame.f_code.co_filename for part in self._files):
            return None
        if event == "line":
            self.count += 1
            if self.count == self._pause_at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self.is_paused.set()
                self.may_go_on.wait(self._LONGEST_S)
        return self._trace
