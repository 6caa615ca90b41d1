"""The blocking driver: waits in the caller's thread."""

from __future__ import annotations

import inspect
import queue
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from plait.model.base import Fault, Reply
from plait.runtime import loop
from plait.runtime.bypass import owned
from plait.runtime.drivers.models import await_answer, reply_or_fault
from plait.runtime.drivers.tools import (
    SIDE_BY_SIDE,
    given_up,
    heart_of,
    needs_another_try,
    run_async_tool,
)
from plait.runtime.execute import run_tool
from plait.runtime.failures import failure_of
from plait.runtime.heartbeats import beating
from plait.runtime.interrupts import next_item
from plait.runtime.registry import run_of
from plait.runtime.stops import Cancelled
from plait.runtime.waits import (
    CallModel,
    Done,
    Launch,
    Next,
    Pause,
    Search,
    ToolJob,
    Wait,
    WaitForPlace,
)
from plait.session import Session

T = TypeVar("T")
_SLICE_S = 0.2  # seconds of a pause between two looks for a stop


class Waiter(Protocol):
    """Waits for things on behalf of a blocking driver."""

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


def clock() -> int:
    return time.perf_counter_ns() // 1000


class Blocking:
    """Waits in the caller's thread: a lone plain tool runs right there, where a
    debugger finds it.
    """

    clock = staticmethod(clock)

    def wait(self, op: Wait) -> Any:
        if isinstance(op, CallModel):
            started = self.clock()
            return self.ask(op), self.clock() - started
        if isinstance(op, Launch):
            return ThreadBatch(op.lanes, self.run_job)
        if isinstance(op, Next):
            return op.batch.next()
        if isinstance(op, Search):
            return op.ask()
        if isinstance(op, WaitForPlace):
            return loop.wait(op.place.is_free, stop_check(op.session))
        return self.pause(op)

    def ask(self, op: CallModel) -> Reply | Fault:
        return reply_or_fault(lambda: self._model_answer(op))

    def _model_answer(self, op: CallModel) -> Any:
        answer: Any = op.model.ask(op.request, op.on_delta)
        if not inspect.isawaitable(answer):
            return answer
        return loop.wait(loop.start(await_answer(answer)), stop_check(op.request.session))

    def run_job(self, job: ToolJob) -> Done:
        if job.delay is not None:
            self.pause(job.delay)
        if job.tool.is_async:
            return loop.wait(loop.start(run_async_tool(job, self.clock)))
        heart = heart_of(job, self.clock)
        before = beating.set(heart)
        try:
            if heart.left_s() is None:
                return run_tool(job, self.clock)
            work = loop.spawn(lambda: run_tool(job, self.clock), "plait-tool", apart=True)
        finally:
            beating.reset(before)
        while (left_s := heart.left_s() or 0.0) > 0:
            # its own errors are outcomes, so a timeout is ours
            with suppress(TimeoutError):
                return work.result(left_s)
        return work.result() if work.done() else given_up(job, heart)  # its thread is left behind

    def pause(self, op: Pause) -> None:
        until, run = time.monotonic() + op.seconds, run_of(op.session)
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_S))
            if run is not None:
                run.stops.check(op.session.id)


def stop_check(session: Session) -> Callable[[], None] | None:
    """Return a function that raises if the session's branch was stopped. None: it has no run."""
    run, log = run_of(session), session.id
    return None if run is None else lambda: run.stops.check(log)


class ThreadBatch:
    """Jobs that were started, each lane in a thread.

    One lane alone runs when it is waited for, in the thread that waits.
    """

    def __init__(
        self, lanes: Sequence[Sequence[ToolJob]], run_job: Callable[[ToolJob], Done]
    ) -> None:
        self._run_job = run_job
        self._done: queue.SimpleQueue[Done | BaseException] = queue.SimpleQueue()
        self._lone = list(lanes[0]) if len(lanes) == 1 else list[ToolJob]()
        self._lanes: queue.SimpleQueue[Sequence[ToolJob]] = queue.SimpleQueue()
        # the jobs that follow in the lane of a job that is tried again, by its number
        self._rest: dict[int, Sequence[ToolJob]] = {}
        for lane in lanes if len(lanes) > 1 else ():
            self._lanes.put(lane)
        for _ in range(min(SIDE_BY_SIDE, len(lanes)) if len(lanes) > 1 else 0):
            loop.spawn(self._work, "plait-tool", apart=True)

    def next(self) -> Done:
        if self._lone:
            job = self._lone.pop(0)
            try:
                return self._run_job(job)
            # a stop of a call that the tool made: told as the tool's failure, and raised before
            # the next effect
            except Cancelled as error:
                return Done(job.number, failure=failure_of(error))
        done = next_item(self._done)
        if isinstance(done, BaseException):
            raise done
        return done

    def add(self, job: ToolJob) -> None:
        """Try a job again; the jobs after it in its lane wait for it."""
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
                if not self._finish_job(job, lane[place + 1 :]):
                    break

    def _finish_job(self, job: ToolJob, rest: Sequence[ToolJob]) -> bool:
        """Run a job and hand its outcome over. Return True if the lane goes on."""
        try:
            done = self._run_job(job)
        except BaseException as error:  # its siblings' outcomes are still to be told
            done = Done(job.number, failure=failure_of(error))
        again = needs_another_try(job, done)
        if again:
            self._rest[job.number] = rest
        self._done.put(done)
        return not again
