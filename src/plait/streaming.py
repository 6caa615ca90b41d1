"""Streams: a call of a workflow that yields the deltas of its models as they come."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from plait.event import Event
from plait.ids import LogId
from plait.model.base import Delta
from plait.runtime import loop
from plait.runtime.attendants import Watch
from plait.runtime.collecting import is_collecting_here
from plait.runtime.drivers.on_loop import await_to_end
from plait.runtime.interrupts import next_item
from plait.runtime.invoke import EnteredCall, Invocation, ainvoke, invoke
from plait.runtime.run import Run
from plait.session import Session

_END: Any = object()
_CLOSE_S = 10.0  # of silence, until a stream that is closed waits no more
Put = Callable[[Event | Delta], object]


def stream(call: Invocation, *, events: bool = False) -> Iterator[Delta | Event | Session]:
    """Make a call in a thread; yield its deltas, with `events` also its events, in their order, and
    last the new session.

    If the caller stops reading, the call is stopped before its next effect, and waited for, unless
    it is the garbage collector that closes the stream.
    """
    entered: list[EnteredCall] = []

    def work(put: Put) -> Session:
        return invoke(msgspec.structs.replace(_telling_also(call, put), on_start=entered.append))

    return stream_work(work, lambda: [(each.run, each.frame.log) for each in entered], events)


def stream_work(
    work: Callable[[Put], Session], going: Callable[[], Sequence[tuple[Run, LogId]]], events: bool
) -> Iterator[Delta | Event | Session]:
    """Do some work in a thread, and yield what it puts, and last its session.

    `going` are the logs to stop in their runs if the caller stops reading.
    """
    items: queue.SimpleQueue[Any] = queue.SimpleQueue()
    put = items.put if events else _put_deltas(items.put)
    future = loop.spawn(lambda: work(put), "plait-stream")
    future.add_done_callback(lambda _: items.put(_END))
    try:
        while (item := next_item(items)) is not _END:
            yield item
        yield future.result()
    finally:
        if not future.done():
            stops = [(run, run.stops.stop(log)) for run, log in going()]
            future.add_done_callback(lambda _: [run.stops.undo(stop) for run, stop in stops])
            # A stream that is left unread in a circle is closed by the garbage collector, in any
            # thread: that one may hold a lock which the work needs. Nor for ever otherwise: such a
            # thread may also drop the last reference.
            with suppress(queue.Empty):
                while not is_collecting_here() and items.get(timeout=_CLOSE_S) is not _END:
                    pass


def astream(call: Invocation, *, events: bool = False) -> AsyncIterator[Delta | Event | Session]:
    """Do the same on this event loop."""
    return astream_work(lambda put: ainvoke(_telling_also(call, put)), events)


async def astream_work(
    work: Callable[[Put], Awaitable[Session]], events: bool
) -> AsyncIterator[Delta | Event | Session]:
    """Do some work on this event loop, and yield what it puts, and last its session."""
    items: asyncio.Queue[Any] = asyncio.Queue()
    here = asyncio.get_running_loop()

    def put_item(item: Event | Delta) -> None:
        here.call_soon_threadsafe(items.put_nowait, item)

    task = asyncio.ensure_future(work(put_item if events else _put_deltas(put_item)))
    task.add_done_callback(lambda _: here.call_soon(items.put_nowait, _END))
    try:
        while (item := await items.get()) is not _END:
            yield item
        yield await task
    finally:
        if not task.done():
            task.cancel()
            with suppress(BaseException):
                await await_to_end(task)


def _put_deltas(put: Put) -> Put:
    """Return a function that puts all but events: one that is not asked for wakes no reader."""

    def put_delta(item: Event | Delta) -> None:
        if not isinstance(item, Event):
            put(item)

    return put_delta


def hear_also(watch: Watch, put: Put) -> Watch:
    """Return attendants that hear everything first through `put`."""
    on_event = watch.on_event
    if on_event is None:
        return watch._replace(on_event=put)

    def put_and_tell(item: Event | Delta) -> None:
        put(item)
        on_event(item)

    return watch._replace(on_event=put_and_tell)


def _telling_also(call: Invocation, put: Put) -> Invocation:
    """Return the call with one more listener, before its own."""
    return msgspec.structs.replace(call, watch=hear_also(call.watch, put))
