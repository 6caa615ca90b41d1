"""One event loop on a thread of its own, for the connections to servers.

It is made when first wanted, ended at exit, and left behind in a child made by `os.fork`, which
makes its own when it wants one.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_STOP_S = 15.0  # the slowest server is killed well before


class _Thread:
    def __init__(self) -> None:
        # ours, so that a forked child can let go of its descriptors
        self.selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self.selector)
        self.thread = threading.Thread(target=self._run_loop, name="plait-mcp", daemon=True)
        self.thread.start()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(1)
        if not self.thread.is_alive():
            self.loop.close()


class _LoopOwner:
    """The loop of this process, made at its first use."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: _Thread | None = None
        # functions to run before the loop ends
        self.closers: set[Callable[[], Coroutine[Any, Any, None]]] = set()
        # objects of the parent of a fork: never collected, since collecting would act on things
        # that the parent still uses
        self.left_behind: list[object] = []


_process = _LoopOwner()


def submit(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run it on the loop."""
    with _process.lock:
        if _process.thread is None:
            _process.thread = _Thread()
        return asyncio.run_coroutine_threadsafe(coroutine, _process.thread.loop)


def wait(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it on the loop and wait; an interrupt here cancels it there."""
    future = submit(coroutine)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def at_end(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Have this run before the loop ends; on the loop only."""
    _process.closers.add(close)


def not_at_end(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    _process.closers.discard(close)


def call_soon(function: Callable[[], None]) -> None:
    """Call a function on the loop, from any thread, without waiting; also from the garbage
    collector.
    """
    thread = _process.thread
    if thread is not None and not thread.loop.is_closed():
        thread.loop.call_soon_threadsafe(function)


@atexit.register
def _end() -> None:
    thread, _process.thread = _process.thread, None
    if thread is None:
        return
    try:
        asyncio.run_coroutine_threadsafe(_end_all(), thread.loop).result(_STOP_S)
    finally:
        thread.end()


async def _end_all() -> None:
    await asyncio.gather(*(close() for close in list(_process.closers)), return_exceptions=True)


def _after_fork() -> None:
    """Let go of the parent's pipes and sockets, so that a server sees the parent hang up; nothing
    of the parent is disturbed.

    The descriptors are covered instead of closed: their objects may close them once more, when the
    number belongs to another file.
    """
    _process.lock = threading.Lock()
    if _process.thread is None:
        return
    thread, _process.thread = _process.thread, None
    _process.left_behind.extend((thread, *_process.closers))
    _process.closers.clear()
    null = os.open(os.devnull, os.O_RDWR)
    for key in list(thread.selector.get_map().values()):
        os.dup2(null, key.fd, inheritable=False)
    # epoll is shared with the parent: removing a descriptor here removes it there
    fileno = getattr(thread.selector, "fileno", None)
    if fileno is not None:
        os.dup2(null, fileno(), inheritable=False)
    os.close(null)


os.register_at_fork(after_in_child=_after_fork)
