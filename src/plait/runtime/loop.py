"""A private event loop on a thread of its own, for SDKs and async tools: nobody's loop is touched,
so a workflow can be called from a script, a notebook or a thread alike.

What runs on that loop may call a workflow in turn, and block it. Its work then runs on a second
loop, and so on: whoever blocks a loop waits only for loops above it, so nobody waits in a circle.
They are kept, since connections belong to the loop they were opened on.
"""

from __future__ import annotations

import asyncio
import os
import queue
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from threading import Lock, Thread, current_thread, local
from typing import Any, TypeVar

from plait.inside import marked_work, start_thread

T = TypeVar("T")

_SLICE_S = 0.2  # how long a wait goes without looking whether it was stopped

_lock = Lock()
_loops: list[tuple[asyncio.AbstractEventLoop, Thread]] = []
_works_for = local()  # `thread`: the one on whose behalf a thread of ours works
_floor = ContextVar("plait_loop", default=0)  # the first loop that does not wait for us


def _forget() -> None:
    """In a forked child the threads are gone."""
    global _loops, _lock
    _loops, _lock = [], Lock()


os.register_at_fork(after_in_child=_forget)


def _level() -> int:
    """Which loop to use here: the one above ours, if this is the thread of one."""
    here = current_thread()
    return max(
        [
            _floor.get(),
            *[place + 1 for place, (_, thread) in enumerate(tuple(_loops)) if thread is here],
        ]
    )


def _private(level: int) -> asyncio.AbstractEventLoop:
    with _lock:
        while len(_loops) <= level:
            loop = asyncio.new_event_loop()
            thread = Thread(target=loop.run_forever, name="plait-loop", daemon=True)
            start_thread(thread)
            _loops.append((loop, thread))
        return _loops[level][0]


def start(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on a private loop."""
    return asyncio.run_coroutine_threadsafe(coroutine, _private(_level()))


def wait(future: Future[T], check: Callable[[], None] | None = None) -> T:
    """Its result; if the wait is interrupted, or `check` raises, it is cancelled, which closes what
    it has open.
    """
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


def code_thread() -> Thread:
    """Return the thread whose code this is: threads that Plait starts to wait in work for the one
    that waits.
    """
    return getattr(_works_for, "thread", None) or current_thread()


def spawn(work: Callable[[], T], name: str = "plait-worker", *, apart: bool = False) -> Future[T]:
    """Run a function in a thread of its own. A pool with a bound would deadlock: work may wait for
    work.

    `apart`: it is code in its own right, a tool or a branch, and not what the caller would do
    itself if it could block.
    """
    future: Future[T] = Future()
    context = copy_context()
    context.run(_floor.set, _level())
    waits = None if apart else code_thread()

    def target() -> None:
        # from here on nobody can cancel it: what runs is waited for
        if not future.set_running_or_notify_cancel():
            return
        _works_for.thread = waits
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    start_thread(Thread(target=marked_work(target), name=name, daemon=True))
    return future


def start_all(
    works: Mapping[str, Callable[[], T]],
) -> tuple[dict[str, Future[T]], Callable[[], str]]:
    """Run functions side by side; returns also who waits for the next that is done, and says its
    name.
    """
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    futures = {name: spawn(work, f"plait-{name}", apart=True) for name, work in works.items()}
    for name, future in futures.items():
        future.add_done_callback(lambda _, name=name: done.put(name))
    return futures, done.get
