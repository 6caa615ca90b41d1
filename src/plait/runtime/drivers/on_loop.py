"""The asynchronous driver: waits on the caller's event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from plait.event.kinds import Failure
from plait.model.base import Fault, Reply
from plait.runtime import loop
from plait.runtime.bypass import owned
from plait.runtime.drivers.blocking import Blocking, Waiter, clock
from plait.runtime.drivers.models import await_answer, check_reply, fault_of
from plait.runtime.drivers.tools import (
    SIDE_BY_SIDE,
    given_up,
    heart_of,
    needs_another_try,
    run_async_tool,
    wait_while_beating,
)
from plait.runtime.execute import run_tool
from plait.runtime.failures import failure_of
from plait.runtime.heartbeats import beating
from plait.runtime.stops import Cancelled
from plait.runtime.waits import CallModel, Done, Launch, Next, Search, ToolJob, Wait, WaitForPlace

T = TypeVar("T")

# True: writes are made on the loop itself. A debugger looks for the program's frames in the thread
# that takes a step.
writes_on_loop: ContextVar[bool] = ContextVar("plait_writes_on_loop", default=False)


async def adrive(
    steps: Generator[Wait, Any, T],
    waiter: AsyncWaiter,
    on_cancel: Callable[[], object] = lambda: None,
) -> T:
    """Run to the end on the caller's loop. Steps write to disk, so each one is taken in a worker
    thread.

    A cancel while tools run waits for the tools that cannot be stopped: their outcomes are
    recorded, and nothing else begins.
    """
    answer: Any = None
    cancelled: BaseException | None = None
    batch: Any = None

    def cancel(hit: BaseException | None) -> None:
        nonlocal cancelled
        if hit is not None and cancelled is None:
            cancelled = hit
            on_cancel()
            if batch is not None:
                batch.cancel()

    while True:
        try:
            (op, finished), hit = await finish_in_thread(lambda: _step(steps, answer))  # noqa: B023
        except Cancelled:
            raise cancelled or asyncio.CancelledError() from None
        cancel(hit)
        if op is None:
            if cancelled is not None:
                raise cancelled
            return cast("T", finished)
        if cancelled is not None and not isinstance(op, (Launch, Next)):
            await finish_in_thread(steps.close)
            raise cancelled
        try:
            with owned():
                answer = await waiter.wait(op)
        except asyncio.CancelledError as error:
            cancel(error)
            if not isinstance(op, Next):
                await finish_in_thread(steps.close)
                raise
            answer = await await_to_end(waiter.wait(op))
        except BaseException:
            await finish_in_thread(steps.close)
            raise
        cancel(waiter.hit)
        if isinstance(op, Launch):
            batch = answer
            if cancelled is not None:
                batch.cancel()  # none of them has begun: each is told as not run


def _step(steps: Generator[Wait, Any, T], answer: Any) -> tuple[Wait | None, T | None]:
    try:
        return steps.send(answer), None
    except StopIteration as done:
        return None, done.value


# ── to the end, in spite of cancels ──────────────────────────────────────────────────────────


async def finish_in_thread(work: Callable[[], T]) -> tuple[T, BaseException | None]:
    """Do it in a thread, and wait to its end in spite of cancels: a write is not left half-known.

    Returns also the last cancel, if there was one, for the caller to raise when it is ready to.
    """
    if writes_on_loop.get():
        return work(), None
    return await _result_and_cancel(asyncio.ensure_future(asyncio.wrap_future(loop.spawn(work))))


async def _result_and_cancel(task: asyncio.Future[T]) -> tuple[T, BaseException | None]:
    hit: BaseException | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            hit = error
        except BaseException:  # the task's own: `result` raises it
            break
    return task.result(), hit


async def await_to_end(work: Awaitable[T]) -> T:
    """Wait to the end in spite of cancels, and drop them."""
    return (await _result_and_cancel(asyncio.ensure_future(work)))[0]


async def run_in_thread(work: Callable[[], T]) -> T:
    """Do it in a thread to its end, and raise a cancel that came meanwhile only then."""
    result, hit = await finish_in_thread(work)
    if hit is not None:
        raise hit
    return result


# ── waits ────────────────────────────────────────────────────────────────────────────────────


class AsyncWaiter:
    """Waits on the caller's loop.

    Async tools run on it, plain ones in threads, models on Plait's own loop.
    """

    def __init__(self, blocking: Waiter) -> None:
        self._blocking = blocking
        # a cancel that came during a wait that cannot be interrupted
        self.hit: BaseException | None = None

    async def wait(self, op: Wait) -> Any:
        # a simulation: it decides the order itself
        if type(self._blocking) is not Blocking:
            answer, self.hit = await finish_in_thread(lambda: self._blocking.wait(op))
            return answer
        if isinstance(op, CallModel):
            return await self._ask(op)
        if isinstance(op, Launch):
            return AsyncBatch(op.lanes, self._run_job)
        if isinstance(op, Next):
            return await op.batch.next()
        if isinstance(op, Search):
            return await asyncio.wrap_future(loop.spawn(op.ask))
        if isinstance(op, WaitForPlace):
            return await asyncio.wrap_future(op.place.is_free)
        return await asyncio.sleep(op.seconds)

    async def _ask(self, op: CallModel) -> tuple[Reply | Fault, int]:
        if not inspect.iscoroutinefunction(op.model.ask):
            return await asyncio.wrap_future(loop.spawn(lambda: self._blocking.wait(op)))
        started = clock()
        future: Future[Any] = loop.start(
            await_answer(cast("Awaitable[Any]", op.model.ask(op.request, op.on_delta)))
        )
        try:
            outcome: Reply | Fault = check_reply(await asyncio.wrap_future(future))
        except Fault as fault:
            outcome = fault
        except Exception as error:
            outcome = fault_of(error)
        return outcome, clock() - started

    async def _run_job(self, job: ToolJob, began: asyncio.Event) -> Done:
        if job.delay is not None:
            await asyncio.sleep(job.delay.seconds)
        if job.tool.is_async:
            return await run_async_tool(job, clock, began)
        began.set()
        heart = heart_of(job, clock)
        before = beating.set(heart)
        try:
            work = asyncio.wrap_future(
                loop.spawn(lambda: run_tool(job, clock), "plait-tool", apart=True)
            )
        finally:
            beating.reset(before)
        if heart.left_s() is None:
            return await work
        return work.result() if await wait_while_beating(work, heart) else given_up(job, heart)


class AsyncBatch:
    """Jobs on the caller's loop.

    A cancel ends the async ones; plain ones run on to their end. Each has an outcome either way.
    """

    def __init__(
        self,
        lanes: Sequence[Sequence[ToolJob]],
        run_job: Callable[[ToolJob, asyncio.Event], Awaitable[Done]],
    ) -> None:
        self._run_job = run_job
        self._done: asyncio.Queue[Done] = asyncio.Queue()
        self._rest: dict[int, Sequence[ToolJob]] = {}
        self._over = False
        self._limit = asyncio.Semaphore(SIDE_BY_SIDE)
        self._loop = asyncio.get_running_loop()
        self._tasks = [asyncio.ensure_future(self._work(lane)) for lane in lanes]
        self._stoppable: set[asyncio.Future[Done]] = set()

    async def next(self) -> Done:
        return await self._done.get()

    def cancel(self) -> None:
        self._over = True
        for task in self._stoppable:
            task.cancel()

    def add(self, job: ToolJob) -> None:
        rest = self._rest.pop(job.number, ())
        self._loop.call_soon_threadsafe(
            lambda: self._tasks.append(
                asyncio.ensure_future(self._work([job, *rest]), loop=self._loop)
            )
        )

    async def _work(self, lane: Sequence[ToolJob]) -> None:
        async with self._limit:
            for place, job in enumerate(lane):
                done = await self._outcome(job)
                again = needs_another_try(job, done)
                if again:
                    self._rest[job.number] = lane[place + 1 :]
                self._done.put_nowait(done)
                if again:
                    return

    async def _outcome(self, job: ToolJob) -> Done:
        not_run = Failure("Cancelled", "not run: the call of its agent was cancelled")
        if self._over:
            return Done(job.number, failure=not_run)
        began = asyncio.Event()
        task = asyncio.ensure_future(self._run_job(job, began))
        if job.tool.is_async:
            self._stoppable.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            in_doubt = Failure("Cancelled", "it was cancelled while it ran; it may have happened")
            return Done(job.number, failure=in_doubt if began.is_set() else not_run)
        except BaseException as error:  # the outcomes of other jobs are still to come
            return Done(job.number, failure=failure_of(error))
        finally:
            self._stoppable.discard(task)
