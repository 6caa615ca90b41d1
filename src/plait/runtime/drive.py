"""Drivers: the same generator, run by somebody who blocks, by an event loop, or by a simulation (`plait.testing.Simulation`)."""

from __future__ import annotations

import asyncio
import inspect
import queue
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar, cast

from plait.model.base import Fault, Reply
from plait.runtime import loop
from plait.runtime.answer import CallModel, Done, Job, Launch, Next, Pause, Wait, run_async_tool, run_tool
from plait.runtime.run import run_of

T = TypeVar("T")
_SLICE_S = 0.2  # how long a pause goes without looking whether it was stopped


class Waiter(Protocol):
    """Who waits for things on behalf of a blocking driver."""

    def wait(self, op: Wait) -> Any: ...
    def clock(self) -> int:
        """Microseconds, for durations."""
        ...


def drive(steps: Generator[Wait, Any, T], waiter: Waiter) -> T:
    """Run to the end, blocking."""
    answer: Any = None
    while True:
        try:
            op = steps.send(answer)
        except StopIteration as done:
            return done.value
        try:
            answer = waiter.wait(op)
        except BaseException:
            steps.close()
            raise


async def adrive(steps: Generator[Wait, Any, T], waiter: AsyncWaiter) -> T:
    """Run to the end on the caller's loop. Steps write to disk, so each one is taken in a worker thread."""
    answer: Any = None
    while True:
        op, finished = await waiter.step(steps, answer)
        if op is None:
            return cast("T", finished)
        try:
            answer = await waiter.wait(op)
        except BaseException:
            await waiter.aside(steps.close)
            raise


def clock() -> int:
    return time.perf_counter_ns() // 1000


def ask_model(op: CallModel, answer: Callable[[], Any]) -> Reply | Fault:
    """What a model answered; whatever it raised, as a fault."""
    try:
        return _checked(answer())
    except Fault as fault:
        return fault
    except Exception as error:
        return _unexpected(error)


def _checked(reply: Any) -> Reply | Fault:
    if isinstance(reply, Reply):
        return reply
    return Fault("BadModel", f"the model answered with a {type(reply).__name__}, not a Reply")


def _unexpected(error: BaseException) -> Fault:
    fault = Fault(type(error).__name__, str(error) or type(error).__name__)
    fault.__cause__ = error
    return fault


# ── blocking ─────────────────────────────────────────────────────────────────────────────────


class Blocking:
    """Waits in the caller's thread: a lone plain tool runs right there, where a debugger finds it."""

    def clock(self) -> int:
        return clock()

    def wait(self, op: Wait) -> Any:
        if isinstance(op, CallModel):
            started = self.clock()
            return self.ask(op), self.clock() - started
        if isinstance(op, Launch):
            return Batch(op.lanes, self.run)
        if isinstance(op, Next):
            return op.batch.next()
        return self.pause(op)

    def ask(self, op: CallModel) -> Reply | Fault:
        return ask_model(op, lambda: self._settled(op))

    def _settled(self, op: CallModel) -> Any:
        answer: Any = op.model.ask(op.request, op.on_delta)
        if not inspect.isawaitable(answer):
            return answer
        run, log = run_of(op.request.session), op.request.session.id
        return loop.wait(loop.start(_awaited(answer)), None if run is None else lambda: run.check(log))

    def run(self, job: Job) -> Done:
        if job.tool.is_async:
            return loop.wait(loop.start(run_async_tool(job, self.clock)))
        return run_tool(job, self.clock)

    def pause(self, op: Pause) -> None:
        until, run = time.monotonic() + op.seconds, run_of(op.session)
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_S))
            if run is not None:
                run.check(op.session.id)


async def _awaited(answer: Awaitable[T]) -> T:
    return await answer


class Batch:
    """Jobs that were started. One lane alone runs when it is waited for, in the thread that waits."""

    def __init__(self, lanes: Sequence[Sequence[Job]], run: Callable[[Job], Done]) -> None:
        self._run = run
        self._done: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
        self._lone = list(lanes[0]) if len(lanes) == 1 else list[Job]()
        for lane in lanes if len(lanes) > 1 else ():
            loop.spawn(lambda lane=lane: self._work(lane), "plait-tool")

    def next(self) -> Done:
        if self._lone:
            return self._run(self._lone.pop(0))
        done = self._done.get()
        if isinstance(done, BaseException):
            raise done
        return done

    def add(self, lane: list[Job]) -> None:
        """One more: a job that is tried again."""
        self._lone = [*lane, *self._lone]

    def _work(self, lane: Sequence[Job]) -> None:
        for job in lane:
            try:
                self._done.put(self._run(job))
            except BaseException as error:
                self._done.put(error)
                return


# ── async ────────────────────────────────────────────────────────────────────────────────────


class AsyncWaiter:
    """Waits on the caller's loop. Async tools run on it, plain ones in threads, models on Plait's own loop."""

    def __init__(self, blocking: Waiter) -> None:
        self._blocking = blocking

    async def step(self, steps: Generator[Wait, Any, T], answer: Any) -> tuple[Wait | None, T | None]:
        def take() -> tuple[Wait | None, T | None]:
            try:
                return steps.send(answer), None
            except StopIteration as done:
                return None, done.value

        return await self.aside(take)

    async def aside(self, work: Callable[[], T]) -> T:
        """In a thread. Whoever cancels waits until it is done: what is being written is not left half-known."""
        future = asyncio.ensure_future(asyncio.wrap_future(loop.spawn(work)))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])
            raise

    async def wait(self, op: Wait) -> Any:
        if type(self._blocking) is not Blocking:  # a simulation: it decides itself what happens when
            return await self.aside(lambda: self._blocking.wait(op))
        if isinstance(op, CallModel):
            return await self._ask(op)
        if isinstance(op, Launch):
            return AsyncBatch(op.lanes, self._run)
        if isinstance(op, Next):
            return await op.batch.next()
        return await asyncio.sleep(op.seconds)

    async def _ask(self, op: CallModel) -> tuple[Reply | Fault, int]:
        if not inspect.iscoroutinefunction(op.model.ask):
            return await asyncio.wrap_future(loop.spawn(lambda: self._blocking.wait(op)))
        started = clock()
        future: Future[Any] = loop.start(_awaited(cast("Awaitable[Any]", op.model.ask(op.request, op.on_delta))))
        try:
            outcome: Reply | Fault = _checked(await asyncio.wrap_future(future))
        except Fault as fault:
            outcome = fault
        except Exception as error:
            outcome = _unexpected(error)
        return outcome, clock() - started

    async def _run(self, job: Job) -> Done:
        if job.tool.is_async:
            return await run_async_tool(job, clock)
        return await asyncio.wrap_future(loop.spawn(lambda: run_tool(job, clock)))


class AsyncBatch:
    def __init__(self, lanes: Sequence[Sequence[Job]], run: Callable[[Job], Awaitable[Done]]) -> None:
        self._run = run
        self._done: asyncio.Queue[Done | BaseException] = asyncio.Queue()
        self._tasks = [asyncio.ensure_future(self._work(lane)) for lane in lanes]

    async def next(self) -> Done:
        try:
            done = await self._done.get()
        except BaseException:
            for task in self._tasks:
                task.cancel()
            raise
        if isinstance(done, BaseException):
            raise done
        return done

    def add(self, lane: list[Job]) -> None:
        loop_ = self._tasks[0].get_loop()
        loop_.call_soon_threadsafe(lambda: self._tasks.append(asyncio.ensure_future(self._work(lane), loop=loop_)))

    async def _work(self, lane: Sequence[Job]) -> None:
        for job in lane:
            try:
                self._done.put_nowait(await self._run(job))
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                self._done.put_nowait(error)
                return

