"""Executing one tool: its function, its sandbox, and the change that is observed."""

from __future__ import annotations

import inspect
from typing import Any

from plait import inside
from plait.calls.tool_call import STOPPED
from plait.errors import InvalidInput
from plait.event import Json
from plait.event import kinds as k
from plait.event.codec import VOCABULARY
from plait.event.kinds import Failure
from plait.runtime.failures import bounded_text, failure_of, text_of_error
from plait.runtime.heartbeats import beating
from plait.runtime.reads import doing, tool_act
from plait.runtime.sandboxes import SandboxCall, SandboxOutcome
from plait.runtime.waits import Done, ToolJob
from plait.sandbox.going import going_check
from plait.tool import SANDBOX, Result, difference

DELTA_MAX = 1_000_000


def run_tool(job: ToolJob, clock: Any) -> Done:
    """Run a plain function. An error of any class is its outcome."""
    if job.check is not None:
        job.check()
    if job.is_stopped is not None and job.is_stopped():
        return stopped_outcome(job)
    mine, handed, outer = (
        doing.set((*doing.get(), job.call)),
        tool_act.set(job.handed),
        inside.enter_code(),
    )
    going = going_check.set(job.going)
    try:
        started, before = clock(), observe_before(job)
        sandbox = before if isinstance(before, Failure) else enter_sandbox(job)
        if isinstance(sandbox, Failure):
            return Done(job.number, failure=sandbox, duration_us=clock() - started)
        more = {SANDBOX: sandbox.sandbox} if sandbox is not None else {}
        if (heart := beating.get()) is not None:
            heart.begin()
        try:
            value, failure = job.tool.function(**job.arguments, **more), None
        except BaseException as error:  # of any class: the call failed, and nothing else did
            if inside.ends_run(error):
                raise
            value, failure = None, failure_of(error)
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            why = "it returned something to be awaited: write it as async def"
            value, failure = None, Failure("BadResult", why)
        return conclude(job, value, failure, before, started, clock, sandbox)
    finally:
        going_check.reset(going)
        inside.leave_code(outer)
        doing.reset(mine)
        tool_act.reset(handed)


def stopped_outcome(job: ToolJob) -> Done:
    """Return the outcome of a job that was stopped before it began."""
    failure = Failure(STOPPED, "not run: it was stopped before")
    return Done(job.number, failure=failure, was_stopped=True)


def enter_sandbox(job: ToolJob) -> SandboxCall | Failure | None:
    """Return the sandbox of a tool that takes one.

    If there is none to be had, return the failure: then the tool is not run.
    """
    if job.site is None:
        return None
    try:
        return job.site.enter()
    except Exception as error:
        failed = failure_of(error)
        return Failure(failed.kind, f"not run: {failed.message}", failed.traceback)


class _Nothing:
    """Nothing was observed."""


def observe_before(job: ToolJob) -> Any:
    """Return the state that the tool observes, before the call.

    If it cannot be observed, return the failure: the tool is not run, since its delta would not be
    known.
    """
    if job.tool.observe is None:
        return _Nothing
    try:
        return job.tool.observe_state(job.arguments)
    except BaseException as error:
        if inside.ends_run(error):
            raise
        failed = failure_of(error)
        return Failure(
            failed.kind,
            f"not run: what is to be observed cannot be: {failed.message}",
            failed.traceback,
        )


def conclude(
    job: ToolJob,
    value: Any,
    failure: Failure | None,
    before: Any,
    started: int,
    clock: Any,
    sandbox: SandboxCall | None = None,
) -> Done:
    """Leave the sandbox, observe the state again, and return the outcome."""
    duration_us, delta, exit_code = clock() - started, None, None
    if isinstance(value, Result):
        exit_code, delta = (
            value.exit_code,
            _recordable_delta(value.delta) if value.delta is not None else None,
        )
    worked = SandboxOutcome()
    if sandbox is not None:
        worked, failure = _leave_sandbox(sandbox, failure)
    if before is not _Nothing:
        try:
            after = job.tool.observe_state(job.arguments)
            delta = _recordable_delta(
                {"before": before, "after": after, "changed": difference(before, after)}
            )
        except BaseException as error:
            if inside.ends_run(error):
                raise
            delta = {"unobserved": text_of_error(error)}
    return Done(job.number, value, failure, duration_us, delta, exit_code, worked)


def _leave_sandbox(
    sandbox: SandboxCall, failure: Failure | None
) -> tuple[SandboxOutcome, Failure | None]:
    """Return the changed files; if they cannot be recorded, the call has failed, too."""
    try:
        return sandbox.leave(), failure
    except Exception as error:
        failed = failure_of(error)
        said = (
            f"; it had failed before: {failure.kind}: {failure.message}"
            if failure is not None
            else ""
        )
        return SandboxOutcome(), Failure(
            failed.kind,
            f"its files cannot be recorded, so they are as before: {failed.message}{said}",
            failed.traceback,
        )


def _recordable_delta(delta: Json) -> Json:
    """Return the delta, or a note that it cannot be recorded: that is not the tool's fault."""
    try:
        if len(VOCABULARY.encode(k.ScratchSet("delta", delta))) > DELTA_MAX:
            return {"unobserved": "it is too large to be recorded"}
    except InvalidInput as error:
        return {"unobserved": bounded_text(str(error))}
    return delta
