"""Ctrl-C: stops a run before its next effect, also in threads that its code started.

Python raises KeyboardInterrupt in the main thread alone, and code of the run may take a while to
let it pass: a pool of threads waits for its work. So the run is stopped by the signal itself.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

# The functions that `signal` wraps. Each wrapper looks for an enum of the handler, and learns by an
# error that there is none: that made 1 % of a short run.
_signals: Any = sys.modules.get("_signal", signal)
_SIGINT = int(signal.SIGINT)


class InterruptHandler:
    """Handles SIGINT for as long as the main thread attends to a run."""

    def __init__(self, interrupt: Callable[[], object], before: Any) -> None:
        self._interrupt, self._before = interrupt, before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._interrupt()
        self._before(number, frame)

    def remove(self) -> None:
        """Restore the handler that was there, unless code of the run has put another in place."""
        if threading.current_thread() is not threading.main_thread():
            return  # a stream that another thread closes: no other thread may change handlers
        if _signals.getsignal(_SIGINT) is self:
            _signals.signal(_SIGINT, self._before)


def handle_interrupts(interrupt: Callable[[], object]) -> InterruptHandler | None:
    """Let Ctrl-C stop a run: it calls `interrupt`, which may take no lock.

    None: this is not the main thread, or the program has its own answer to Ctrl-C, as a web server
    has.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    before = _signals.getsignal(_SIGINT)
    if before is not signal.default_int_handler and not isinstance(before, InterruptHandler):
        return None
    handler = InterruptHandler(interrupt, before)
    _signals.signal(_SIGINT, handler)
    return handler
