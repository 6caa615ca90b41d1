"""One private event loop on a thread of its own, for SDKs and async tools: nobody's loop is touched, so a workflow can be called
from a script, a notebook or a thread alike."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from threading import Lock, Thread, current_thread
from typing import Any, TypeVar

T = TypeVar("T")

_SLICE_S = 0.2  # how long a wait goes without looking whether it was stopped

_lock = Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: Thread | None = None


def _forget() -> None:
    """In a forked child the thread is gone."""
    global _loop, _thread, _lock
    _loop, _thread, _lock = None, None, Lock()


os.register_at_fork(after_in_child=_forget)


def _private() -> asyncio.AbstractEventLoop:
    global _loop, _thread
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = Thread(target=_loop.run_forever, name="plait-loop", daemon=True)
            _thread.start()
        return _loop


def start(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on the private loop. From that loop's own thread, which is about to block, on a loop of its own."""
    loop = _private()
    if current_thread() is _thread:
        return spawn(lambda: asyncio.run(coroutine))
    return asyncio.run_coroutine_threadsafe(coroutine, loop)


def wait(future: Future[T], check: Callable[[], None] | None = None) -> T:
    """Its result; if the wait is interrupted, or `check` raises, it is cancelled, which closes what it has open."""
    try:
        while check is not None:
            with suppress(TimeoutError):
                return future.result(_SLICE_S)
            if future.done():
                break
            check()
        return future.result()
    except BaseException:
        future.cancel()
        raise


def spawn(work: Callable[[], T], name: str = "plait-worker") -> Future[T]:
    """Run a function in a thread of its own. A pool with a bound would deadlock: work may wait for work."""
    future: Future[T] = Future()
    context = copy_context()

    def target() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=target, name=name, daemon=True).start()
    return future
