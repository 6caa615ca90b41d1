"""Executing one tool: its function, its sandbox, and the change that is observed."""

from __future__ import annotations

import inspect
from typing import Any

from plait import inside
from plait.errors import InvalidInput
from plait.event import Json
from plait.event import kinds as k
from plait.event.codec import VOCABULARY
from plait.event.kinds import Failure
from plait.runtime.failures import bounded_text, failure_of, text_of_error
from plait.runtime.reads import doing, tool_act
from plait.runtime.sandboxes import SandboxCall, SandboxOutcome
from plait.runtime.waits import Done, Job
from plait.tool import SANDBOX, Result, difference

DELTA_MAX = 1_000_000


def run_tool(job: Job, clock: Any) -> Done:
    """Run a plain function. An error of any class is its outcome."""
    if job.check is not None:
        job.check()
    mine, handed, outer = (
        doing.set((*doing.get(), job.call)),
        tool_act.set(job.handed),
        inside.enter_code(),
    )
    try:
        return _execute(job, clock)
    finally:
        inside.leave_code(outer)
        doing.reset(mine)
        tool_act.reset(handed)


def _execute(job: Job, clock: Any) -> Done:
    started, before = clock(), observe_before(job)
    visit = before if isinstance(before, Failure) else enter_sandbox(job)
    if isinstance(visit, Failure):
        return Done(job.number, failure=visit, duration_us=clock() - started)
    try:
        value, failure = job.tool.function(**job.arguments, **sandbox_argument(visit)), None
    except BaseException as error:  # of any class: the call failed, and nothing else did
        if inside.ends_run(error):
            raise
        value, failure = None, failure_of(error)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        value, failure = (
            None,
            Failure("BadResult", "it returned something to be awaited: write it as async def"),
        )
    return conclude(job, value, failure, before, started, clock, visit)


def enter_sandbox(job: Job) -> SandboxCall | Failure | None:
    """The sandbox of a tool that takes one; a failure if it cannot be had: then the tool is not
    run.
    """
    if job.site is None:
        return None
    try:
        return job.site.enter()
    except Exception as error:
        failed = failure_of(error)
        return Failure(failed.kind, f"not run: {failed.message}", failed.traceback)


def sandbox_argument(visit: SandboxCall | None) -> dict[str, Any]:
    return {SANDBOX: visit.sandbox} if visit is not None else {}


class _Nothing:
    """Nothing was observed."""


def observe_before(job: Job) -> Any:
    """Return the state before the call. A failure: it cannot be observed, and the tool is not run,
    since its delta could not be told.
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
    job: Job,
    value: Any,
    failure: Failure | None,
    before: Any,
    started: int,
    clock: Any,
    visit: SandboxCall | None = None,
) -> Done:
    duration_us, delta, exit_code = clock() - started, None, None
    if isinstance(value, Result):
        exit_code, delta = (
            value.exit_code,
            _recordable_delta(value.delta) if value.delta is not None else None,
        )
    worked, failure = _leave_sandbox(visit, failure)
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
    visit: SandboxCall | None, failure: Failure | None
) -> tuple[SandboxOutcome, Failure | None]:
    """Return the record of the files. If there is none, the call has failed, even if the tool
    returned a value.
    """
    if visit is None:
        return SandboxOutcome(), failure
    try:
        return visit.leave(), failure
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
    """An observation that cannot be recorded says so; it is not the tool's fault."""
    try:
        if len(VOCABULARY.encode(k.ScratchSet("delta", delta))) > DELTA_MAX:
            return {"unobserved": "it is too large to be recorded"}
    except InvalidInput as error:
        return {"unobserved": bounded_text(str(error))}
    return delta
