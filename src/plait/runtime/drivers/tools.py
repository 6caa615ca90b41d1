"""Runs of a tool, as drivers perform them: any error of the tool is an outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from plait.event.kinds import Failure
from plait.runtime.execute import conclude, enter_sandbox, observe_before, stopped_outcome
from plait.runtime.failures import failure_of
from plait.runtime.heartbeats import Heart, beating
from plait.runtime.reads import doing, tool_act
from plait.runtime.sandboxes import SandboxCall
from plait.runtime.waits import Done, ToolJob
from plait.sandbox.going import going_check
from plait.tool import SANDBOX

# tools of one reply that run at the same time: a model decides how many calls there are
SIDE_BY_SIDE = 32


async def run_async_tool(
    job: ToolJob, clock: Callable[[], int], began: asyncio.Event | None = None
) -> Done:
    """Run a coroutine function. An error of any class is its outcome.

    `began` is set right before its code runs: a job that is cancelled before was not run.
    """
    if job.check is not None:
        job.check()
    if job.is_stopped is not None and job.is_stopped():
        return stopped_outcome(job)
    mine, handed = doing.set((*doing.get(), job.call)), tool_act.set(job.handed)
    going = going_check.set(job.going)
    heart = beating.set(heart_of(job, clock))
    try:
        return await _outcome_of(job, clock, began or asyncio.Event())
    finally:
        beating.reset(heart)
        going_check.reset(going)
        doing.reset(mine)
        tool_act.reset(handed)


async def _outcome_of(job: ToolJob, clock: Callable[[], int], began: asyncio.Event) -> Done:
    started, before = clock(), observe_before(job)
    sandbox = (
        before
        if isinstance(before, Failure)
        else await asyncio.to_thread(enter_sandbox, job)
        if job.site is not None
        else None
    )
    if isinstance(sandbox, Failure):
        return Done(job.number, failure=sandbox, duration_us=clock() - started)
    # In a task of its own: a tool that cancels the task it runs in cancels itself, and not the
    # task that waits for it.
    work = asyncio.ensure_future(_value_or_failure(job, sandbox, began))
    heart = beating.get()
    assert heart is not None
    try:
        is_done = await wait_while_beating(work, heart)
        if not is_done:
            work.cancel()
            await asyncio.wait([work])
        value, failure = work.result() if is_done else (None, given_up(job, heart).failure)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            if sandbox is not None:
                sandbox.abandon()
            raise
        value, failure = None, failure_of(error)
    if sandbox is None:
        return conclude(job, value, failure, before, started, clock)
    return await asyncio.to_thread(conclude, job, value, failure, before, started, clock, sandbox)


async def _value_or_failure(
    job: ToolJob, sandbox: SandboxCall | None, began: asyncio.Event
) -> tuple[Any, Failure | None]:
    """Await a coroutine function. An error that would end the loop ends the tool."""
    began.set()
    if (heart := beating.get()) is not None:
        heart.begin()
    more = {SANDBOX: sandbox.sandbox} if sandbox is not None else {}
    try:
        return await job.tool.function(**job.arguments, **more), None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # of any class: the tool failed, and nothing else did
        return None, failure_of(error)


def heart_of(job: ToolJob, clock: Callable[[], int]) -> Heart:
    """Return the heart of a job, which says when to give it up."""
    tool = job.tool
    return Heart(clock, timeout_s=tool.timeout_s, heartbeat_s=tool.heartbeat_s, on_beat=job.on_beat)


async def wait_while_beating(work: asyncio.Future[Any], heart: Heart) -> bool:
    """Wait until work is done, or is to be given up. Return True if it is done."""
    while not work.done():
        left_s = heart.left_s()
        if left_s is not None and left_s <= 0:
            return False
        await asyncio.wait([work], timeout=left_s)
    return True


def given_up(job: ToolJob, heart: Heart) -> Done:
    """Give up a job that takes too long, or is silent, and return its outcome."""
    if job.site is not None:
        job.site.abandon()
    kind, limit_s, what = "TimedOut", job.tool.timeout_s or 0.0, "outcome"
    if heart.is_silent:
        kind, limit_s, what = "FellSilent", job.tool.heartbeat_s or 0.0, "heartbeat"
    why = f"no {what} after {limit_s:g} s; it may have happened, and may still happen"
    if heart.detail:
        why = f"{why}. The last heartbeat: {heart.detail}"
    return Done(job.number, failure=Failure(kind, why), duration_us=int(limit_s * 1e6))


def needs_another_try(job: ToolJob, done: Done) -> bool:
    """Return True if a job failed and has attempts left: the jobs after it in its lane wait."""
    is_over = done.failure is None or done.was_stopped
    return not is_over and job.attempt < job.tool.attempts
