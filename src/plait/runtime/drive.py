"""Drivers: the same generator, run by somebody who blocks, by an event loop, or by a simulation
(`plait.testing.Simulation`).
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar, cast

from plait.event.kinds import Failure
from plait.inside import Stop, ends_run
from plait.journal.stops import Cancelled
from plait.model.base import Fault, Reply
from plait.runtime import loop
from plait.runtime.answer import misfit
from plait.runtime.bypass import owned
from plait.runtime.execute import (
    conclude,
    enter_sandbox,
    observe_before,
    run_tool,
    sandbox_argument,
)
from plait.runtime.failures import failure_of, text_of_error
from plait.runtime.reads import doing, tool_act
from plait.runtime.registry import run_of
from plait.runtime.waits import CallModel, Done, Job, Launch, Next, Pause, Wait

T = TypeVar("T")
# tools of one reply that run at the same time: how many calls there are is a model's word
SIDE_BY_SIDE = 32
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
            with owned():
                answer = waiter.wait(op)
        except BaseException:
            steps.close()
            raise


async def adrive(
    steps: Generator[Wait, Any, T],
    waiter: AsyncWaiter,
    on_cancel: Callable[[], object] = lambda: None,
) -> T:
    """Run to the end on the caller's loop. Steps write to disk, so each one is taken in a worker
    thread.

    Whoever cancels while tools run waits until those are done that cannot be stopped: what happened
    is recorded, and nothing else begins.
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
            (op, finished), hit = await settle(lambda: _step(steps, answer))  # noqa: B023
        except Cancelled:
            raise cancelled or asyncio.CancelledError() from None
        cancel(hit)
        if op is None:
            if cancelled is not None:
                raise cancelled
            return cast("T", finished)
        if cancelled is not None and not isinstance(op, (Launch, Next)):
            await settle(steps.close)
            raise cancelled
        try:
            with owned():
                answer = await waiter.wait(op)
        except asyncio.CancelledError as error:
            cancel(error)
            if not isinstance(op, Next):
                await settle(steps.close)
                raise
            answer = await undisturbed(waiter.wait(op))
        except BaseException:
            await settle(steps.close)
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


async def settle(work: Callable[[], T]) -> tuple[T, BaseException | None]:
    """Do it in a thread, and wait to its end however often somebody cancels: what is being written
    is not left half-known.

    Returns also the cancel, if there was one, for the caller to raise when it is ready to.
    """
    return await _waited(asyncio.ensure_future(asyncio.wrap_future(loop.spawn(work))))


async def _waited(task: asyncio.Future[T]) -> tuple[T, BaseException | None]:
    hit: BaseException | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            hit = error
        except BaseException:
            break
    return task.result(), hit


async def undisturbed(work: Awaitable[T]) -> T:
    """Wait to the end, however often somebody cancels."""
    return (await _waited(asyncio.ensure_future(work)))[0]


async def aside(work: Callable[[], T]) -> T:
    """In a thread, to its end; whoever cancelled meanwhile is heard then."""
    result, hit = await settle(work)
    if hit is not None:
        raise hit
    return result


def clock() -> int:
    return time.perf_counter_ns() // 1000


def ask_model(op: CallModel, answer: Callable[[], Any]) -> Reply | Fault:
    """What a model answered; whatever it raised, as a fault."""
    try:
        return _checked(answer())
    except Fault as fault:
        return fault
    except BaseException as error:  # whatever class it has: the ask failed, and nothing else did
        if ends_run(error):
            raise
        return _unexpected(error)


def _checked(reply: Any) -> Reply | Fault:
    if not isinstance(reply, Reply):
        return Fault("BadModel", f"the model answered with a {type(reply).__name__}, not a Reply")
    why = misfit(reply)
    return (
        reply
        if why is None
        else Fault("MalformedReply", f"the model's reply is not one: {why}", retryable=True)
    )


def _unexpected(error: BaseException) -> Fault:
    fault = Fault(type(error).__name__, text_of_error(error))
    fault.__cause__ = error
    return fault


# ── blocking ─────────────────────────────────────────────────────────────────────────────────


class Blocking:
    """Waits in the caller's thread: a lone plain tool runs right there, where a
    debugger finds it.
    """

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
        return loop.wait(
            loop.start(_awaited(answer)), None if run is None else lambda: run.stops.check(log)
        )

    def run(self, job: Job) -> Done:
        if job.tool.is_async:
            return loop.wait(loop.start(run_async_tool(job, self.clock)))
        if job.tool.timeout_s is None:
            return run_tool(job, self.clock)
        work = loop.spawn(lambda: run_tool(job, self.clock), "plait-tool", apart=True)
        try:
            return work.result(job.tool.timeout_s)
        # its own errors are outcomes, so this is ours: nobody can stop a thread, so it is left
        # behind
        except TimeoutError:
            return _timed_out(job)

    def pause(self, op: Pause) -> None:
        until, run = time.monotonic() + op.seconds, run_of(op.session)
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_S))
            if run is not None:
                run.stops.check(op.session.id)


async def run_async_tool(job: Job, clock: Callable[[], int]) -> Done:
    """Run a coroutine function, whatever it does."""
    if job.check is not None:
        job.check()
    mine, handed = doing.set((*doing.get(), job.call)), tool_act.set(job.handed)
    try:
        return await _ran(job, clock)
    finally:
        doing.reset(mine)
        tool_act.reset(handed)


async def _ran(job: Job, clock: Callable[[], int]) -> Done:
    started, before = clock(), observe_before(job)
    visit = (
        before
        if isinstance(before, Failure)
        else await asyncio.to_thread(enter_sandbox, job)
        if job.site is not None
        else None
    )
    if isinstance(visit, Failure):
        return Done(job.number, failure=visit, duration_us=clock() - started)
    # In a task of its own: a tool that cancels the task it runs in cancels itself, and not who
    # waits for it.
    work = asyncio.ensure_future(_value_or_failure(job, sandbox_argument(visit)))
    try:
        value, failure = await asyncio.wait_for(work, job.tool.timeout_s)
    except TimeoutError:
        value, failure = None, _timed_out(job).failure
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            if visit is not None:
                visit.abandon()
            raise
        value, failure = None, failure_of(error)
    if visit is None:
        return conclude(job, value, failure, before, started, clock)
    return await asyncio.to_thread(conclude, job, value, failure, before, started, clock, visit)


async def _value_or_failure(job: Job, lent_to_it: dict[str, Any]) -> tuple[Any, Failure | None]:
    """Await a coroutine function. What would end the loop ends the tool."""
    try:
        return await job.tool.function(**job.arguments, **lent_to_it), None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, failure_of(error)


def _timed_out(job: Job) -> Done:
    if job.site is not None:
        job.site.abandon()
    why = f"no outcome after {job.tool.timeout_s:g} s; it may have happened, and may still happen"
    return Done(
        job.number,
        failure=Failure("TimedOut", why),
        duration_us=int((job.tool.timeout_s or 0) * 1e6),
    )


async def _awaited(answer: Awaitable[T]) -> T:
    """Await a model's answer in a task of its own: a model that raises a cancel, or cancels its
    task, ends its ask and nothing else.
    """
    work = asyncio.ensure_future(_answer_or_fault(answer))
    try:
        return await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise _unexpected(error) from error


async def _answer_or_fault(answer: Awaitable[T]) -> T:
    try:
        return await answer
    except (Exception, asyncio.CancelledError, Stop):
        raise
    except BaseException as error:  # it would end the loop itself, and all that runs on it
        raise _unexpected(error) from error


class Batch:
    """Jobs that were started.

    One lane alone runs when it is waited for, in the thread that waits.
    """

    def __init__(self, lanes: Sequence[Sequence[Job]], run: Callable[[Job], Done]) -> None:
        self._run = run
        self._done: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
        self._lone = list(lanes[0]) if len(lanes) == 1 else list[Job]()
        self._lanes: queue.SimpleQueue[Sequence[Job]] = queue.SimpleQueue()
        # what follows in the lane of a job that is tried again
        self._rest: dict[int, Sequence[Job]] = {}
        for lane in lanes if len(lanes) > 1 else ():
            self._lanes.put(lane)
        for _ in range(min(SIDE_BY_SIDE, len(lanes)) if len(lanes) > 1 else 0):
            loop.spawn(self._work, "plait-tool", apart=True)

    def next(self) -> Done:
        if self._lone:
            job = self._lone.pop(0)
            try:
                return self._run(job)
            # of what the tool called: told as its failure, and heard before the next effect
            except Cancelled as error:
                return Done(job.number, failure=failure_of(error))
        done = self._done.get()
        if isinstance(done, BaseException):
            raise done
        return done

    def add(self, job: Job) -> None:
        """A job is tried again, and what comes after it in its lane waits for it."""
        rest = self._rest.pop(job.number, None)
        if rest is None:
            self._lone = [job, *self._lone]
        else:
            self._lanes.put([job, *rest])
            loop.spawn(self._work, "plait-tool", apart=True)

    def _work(self) -> None:
        while True:
            try:
                lane = self._lanes.get_nowait()
            except queue.Empty:
                return
            for place, job in enumerate(lane):
                if not self._tell(job, lane[place + 1 :]):
                    break

    def _tell(self, job: Job, rest: Sequence[Job]) -> bool:
        """Whether the lane goes on."""
        try:
            done = self._run(job)
        except BaseException as error:  # its siblings' outcomes are still to be told
            done = Done(job.number, failure=failure_of(error))
        again = done.failure is not None and job.attempt < job.tool.attempts
        if again:
            self._rest[job.number] = rest
        self._done.put(done)
        return not again


# ── async ────────────────────────────────────────────────────────────────────────────────────


class AsyncWaiter:
    """Waits on the caller's loop.

    Async tools run on it, plain ones in threads, models on Plait's own loop.
    """

    def __init__(self, blocking: Waiter) -> None:
        self._blocking = blocking
        # a cancel that came while something was done that is done in one go
        self.hit: BaseException | None = None

    async def wait(self, op: Wait) -> Any:
        # a simulation: it decides itself what happens when
        if type(self._blocking) is not Blocking:
            answer, self.hit = await settle(lambda: self._blocking.wait(op))
            return answer
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
        future: Future[Any] = loop.start(
            _awaited(cast("Awaitable[Any]", op.model.ask(op.request, op.on_delta)))
        )
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
        work = asyncio.wrap_future(
            loop.spawn(lambda: run_tool(job, clock), "plait-tool", apart=True)
        )
        if job.tool.timeout_s is None:
            return await work
        done, _ = await asyncio.wait([work], timeout=job.tool.timeout_s)
        return work.result() if done else _timed_out(job)


class AsyncBatch:
    """Jobs on the caller's loop.

    When they are cancelled, async ones are, plain ones run on to their end; each is told of either
    way.
    """

    def __init__(
        self, lanes: Sequence[Sequence[Job]], run: Callable[[Job], Awaitable[Done]]
    ) -> None:
        self._run = run
        self._done: asyncio.Queue[Done] = asyncio.Queue()
        self._rest: dict[int, Sequence[Job]] = {}
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

    def add(self, job: Job) -> None:
        rest = self._rest.pop(job.number, ())
        self._loop.call_soon_threadsafe(
            lambda: self._tasks.append(
                asyncio.ensure_future(self._work([job, *rest]), loop=self._loop)
            )
        )

    async def _work(self, lane: Sequence[Job]) -> None:
        async with self._limit:
            for place, job in enumerate(lane):
                done = await self._outcome(job)
                again = done.failure is not None and job.attempt < job.tool.attempts
                if again:
                    self._rest[job.number] = lane[place + 1 :]
                self._done.put_nowait(done)
                if again:
                    return

    async def _outcome(self, job: Job) -> Done:
        if self._over:
            return Done(job.number, failure=Failure("Cancelled", "not run: the turn was cancelled"))
        task = asyncio.ensure_future(self._run(job))
        if job.tool.is_async:
            self._stoppable.add(task)
        try:
            return await _settled(task)
        except asyncio.CancelledError:
            return Done(
                job.number,
                failure=Failure("Cancelled", "it was cancelled while it ran; it may have happened"),
            )
        except BaseException as error:
            return Done(job.number, failure=failure_of(error))
        finally:
            self._stoppable.discard(task)


async def _settled(task: asyncio.Future[T]) -> T:
    return await task
