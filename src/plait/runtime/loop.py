"""Private event loops on threads of their own, for SDKs and async tools: the caller's loop is not
touched, so a workflow can be called from a script, a notebook or a thread alike.

Code on such a loop may call a workflow in turn, and block the loop. That work then runs on a second
loop, and so on: code that blocks a loop waits only for loops above it, so there is no circle. Loops
are kept, since connections belong to the loop they were opened on.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from threading import Thread, current_thread
from typing import Any, TypeVar

from plait.inside import marked_work, start_thread
from plait.runtime.process import THIS_PROCESS
from plait.runtime.workers import start_work

T = TypeVar("T")

_SLICE_S = 0.2  # seconds between two looks for a stop

_floor = ContextVar("plait_loop", default=0)  # the first loop that does not wait for us


def _level() -> int:
    """Return the index of the loop to use: on the thread of a loop, the one above it."""
    here, loops = current_thread(), tuple(THIS_PROCESS.loops)
    return max([_floor.get(), *[at + 1 for at, (_, thread) in enumerate(loops) if thread is here]])


def _loop_at(level: int) -> asyncio.AbstractEventLoop:
    with THIS_PROCESS.loops_lock:
        loops = THIS_PROCESS.loops
        while len(loops) <= level:
            loop = asyncio.new_event_loop()
            thread = Thread(target=loop.run_forever, name="plait-loop", daemon=True)
            start_thread(thread)
            loops.append((loop, thread))
        return loops[level][0]


def start(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on a private loop."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop_at(_level()))


def wait(future: Future[T], check: Callable[[], None] | None = None) -> T:
    """Return the result. If the wait is interrupted, or `check` raises, cancel the work, which
    closes the connections it has open.
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
    return getattr(THIS_PROCESS.works_for, "thread", None) or current_thread()


def spawn(work: Callable[[], T], name: str = "plait-worker", *, apart: bool = False) -> Future[T]:
    """Run a function in a thread that does nothing else meanwhile.

    `apart`: it is code in its own right, a tool or a branch, and not work that the caller would do
    itself if it could block. It has a new thread, with nothing in it of other code.
    """
    future: Future[T] = Future()
    context = copy_context()
    context.run(_floor.set, _level())
    waits = None if apart else code_thread()

    def target() -> None:
        # from here on it cannot be cancelled: running work is waited for
        if not future.set_running_or_notify_cancel():
            return
        THIS_PROCESS.works_for.thread = waits
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    if apart:
        start_thread(Thread(target=marked_work(target), name=name, daemon=True))
    else:
        start_work(name, marked_work(target))
    return future


def start_all(
    works: Mapping[str, Callable[[], T]],
) -> tuple[dict[str, Future[T]], Callable[[], str]]:
    """Run functions side by side. Return their futures, and a function that waits for the next one
    to be done and returns its name.
    """
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    futures = {name: spawn(work, f"plait-{name}", apart=True) for name, work in works.items()}
    for name, future in futures.items():
        future.add_done_callback(lambda _, name=name: done.put(name))
    return futures, done.get
