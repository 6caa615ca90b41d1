"""Ctrl-C: stops a run before its next effect, also in threads that its code started.

Python raises KeyboardInterrupt in the main thread alone, and code of the run may take a while to
let it pass: a pool of threads waits for its work. So the run is stopped by the signal itself.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, TypeVar

# The functions that `signal` wraps. Each wrapper looks for an enum of the handler, and learns by an
# error that there is none: that made 1 % of a short run.
_signals: Any = sys.modules.get("_signal", signal)
_SIGINT = int(signal.SIGINT)


_LISTEN_S = 0.5  # at the longest, until a thread that waits hears Ctrl-C
T = TypeVar("T")


def next_item(items: SimpleQueue[T]) -> T:
    """Wait for the next item of a queue, and let Ctrl-C be heard.

    A signal that comes right before a thread begins to wait does not end the wait, and Python calls
    its handler only after it. So each wait is short.
    """
    while True:
        try:
            return items.get(timeout=_LISTEN_S)
        except Empty:
            continue


class _SignalHandler:
    """Handles SIGINT as long as the main thread attends to runs: stops them all, and then does as
    the handler before it.

    Runs on one event loop end in any order, so they share one.
    """

    def __init__(self, before: Any) -> None:
        self._before = before
        self.interrupts: list[Callable[[], object]] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        for interrupt in [*self.interrupts]:
            interrupt()
        self._before(number, frame)

    def remove(self) -> None:
        """Restore the handler that was there, unless code of a run has put another in place."""
        if self.interrupts or threading.current_thread() is not threading.main_thread():
            return  # a stream that another thread closes: no other thread may change handlers
        if _signals.getsignal(_SIGINT) is self:
            task = _main_task(self._before)
            is_over = task is not None and task.done()
            _signals.signal(_SIGINT, signal.default_int_handler if is_over else self._before)


class InterruptHandler:
    """Stops one run at Ctrl-C, until it is removed."""

    def __init__(self, interrupt: Callable[[], object], handler: _SignalHandler) -> None:
        self._interrupt, self._handler = interrupt, handler
        handler.interrupts.append(interrupt)

    def remove(self) -> None:
        self._handler.interrupts.remove(self._interrupt)
        self._handler.remove()


def handle_interrupts(interrupt: Callable[[], object]) -> InterruptHandler | None:
    """Let Ctrl-C stop a run: it calls `interrupt`, which may take no lock.

    None: this is not the main thread, or the program has its own answer to Ctrl-C, as a web server
    has. That of `asyncio.run` cancels the main task, which may not be the run's.
    """
    before = _replaceable_handler()
    if before is None:
        return None
    if isinstance(before, _SignalHandler):
        return InterruptHandler(interrupt, before)
    handler = _SignalHandler(before)
    handled = InterruptHandler(interrupt, handler)
    _signals.signal(_SIGINT, handler)
    return handled


class _HeldInterrupt:
    """Handles SIGINT by a note of it. A second one is not held back: the first takes too long."""

    def __init__(self, before: Any) -> None:
        self._before = before
        self._is_noted = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._is_noted:
            self._before(number, frame)
        self._is_noted = True

    def remove(self) -> None:
        """Restore the handler that was there, and let it answer what was noted."""
        if _signals.getsignal(_SIGINT) is self:
            _signals.signal(_SIGINT, self._before)
        if self._is_noted:
            self._before(_SIGINT, None)


@contextmanager
def held_interrupts() -> Generator[None]:
    """Hold Ctrl-C back until the end of a block that must not end halfway.

    It does so where `handle_interrupts` would answer Ctrl-C.
    """
    before = _replaceable_handler()
    if before is None or isinstance(before, _HeldInterrupt):
        yield
        return
    held = _HeldInterrupt(before)
    _signals.signal(_SIGINT, held)
    try:
        yield
    finally:
        held.remove()


def _replaceable_handler() -> Any:
    """Return the handler of SIGINT. None: no other may take its place here."""
    if threading.current_thread() is not threading.main_thread():
        return None
    before = _signals.getsignal(_SIGINT)
    is_ours = isinstance(before, (_SignalHandler, _HeldInterrupt))
    if is_ours or before is signal.default_int_handler or _main_task(before) is not None:
        return before
    return None


def _main_task(handler: Any) -> asyncio.Task[Any] | None:
    """Return the task that a handler of `asyncio.run` cancels. None: it is not such a handler."""
    if not isinstance(handler, partial):
        return None
    is_of_runner = isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
    return handler.keywords.get("main_task") if is_of_runner else None
