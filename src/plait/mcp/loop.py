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
        # ours, so that a forked child can let go of what is in it
        self.selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self.selector)
        self.thread = threading.Thread(target=self._run, name="plait-mcp", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(1)
        if not self.thread.is_alive():
            self.loop.close()


_lock = threading.Lock()
_thread: _Thread | None = None
# by forks: never collected, since collecting would act on what the parent still uses
_left_behind: list[object] = []
_at_end: set[Callable[[], Coroutine[Any, Any, None]]] = set()


def submit(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run it on the loop."""
    global _thread
    with _lock:
        if _thread is None:
            _thread = _Thread()
        return asyncio.run_coroutine_threadsafe(coroutine, _thread.loop)


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
    _at_end.add(close)


def not_at_end(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    _at_end.discard(close)


def call_soon(function: Callable[[], None]) -> None:
    """From any thread, without waiting, and also from the garbage collector."""
    thread = _thread
    if thread is not None and not thread.loop.is_closed():
        thread.loop.call_soon_threadsafe(function)


@atexit.register
def _end() -> None:
    global _thread
    thread, _thread = _thread, None
    if thread is None:
        return
    try:
        asyncio.run_coroutine_threadsafe(_end_all(), thread.loop).result(_STOP_S)
    finally:
        thread.end()


async def _end_all() -> None:
    await asyncio.gather(*(close() for close in list(_at_end)), return_exceptions=True)


def _after_fork() -> None:
    """The parent's pipes and sockets are let go, so that a server sees the parent hang up; nothing
    of the parent is disturbed.

    The descriptors are covered instead of closed: their objects may close them once more, when the
    number is somebody else's.
    """
    global _thread, _lock
    _lock = threading.Lock()
    if _thread is None:
        return
    thread, _thread = _thread, None
    _left_behind.extend((thread, *_at_end))
    _at_end.clear()
    null = os.open(os.devnull, os.O_RDWR)
    for key in list(thread.selector.get_map().values()):
        os.dup2(null, key.fd, inheritable=False)
    # epoll is shared with the parent: what is removed here is removed there
    fileno = getattr(thread.selector, "fileno", None)
    if fileno is not None:
        os.dup2(null, fileno(), inheritable=False)
    os.close(null)


os.register_at_fork(after_in_child=_after_fork)
