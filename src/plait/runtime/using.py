"""Using tools: requests are on record before anything runs, and whatever comes of a call is recorded, whatever it is."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from plait.errors import InvalidInput, InvalidValue, ToolFailed, UnknownBlob
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.codec import VOCABULARY
from plait.event.kinds import Failure
from plait.ids import Digest
from plait.runtime.effects import UseTools
from plait.runtime.failures import failure_of, line, text_of_error
from plait.runtime.run import call_id, check_running, record, record_at_tip, run_of
from plait.runtime.waits import Done, Job, Launch, Next, Wait
from plait.session import Session
from plait.session.content import Loose, pack
from plait.session.ports import Act, Draft
from plait.session.typed import to_json
from plait.tool import Tool, WrongArguments, difference

DELTA_MAX = 1_000_000


class Unwritten(NamedTuple):
    """The last outcome of a turn's calls. It is written with the ask that follows, or by itself if none does."""

    session: Session  # before it
    drafts: Sequence[Draft]


def use(effect: UseTools) -> Generator[Wait, Any, tuple[Session, Unwritten | None]]:
    jobs = {
        number: Job(number, tool, _bound(tool, tool.arguments(action.arguments), effect.session), action.call, action.arguments)
        for number, action in enumerate(effect.calls)
        if (tool := effect.tools.get(action.tool)) is not None
    }
    session, _, unwritten = yield from _run_jobs(effect.session, jobs, effect.actor, effect.path, spare=True)
    return session, unwritten


def use_tool(session: Session, tool: Tool[..., Any], given: Mapping[str, Any], actor: str, path: str) -> Generator[Wait, Any, Session]:
    """A call by the program itself."""
    arguments, plain = _program_arguments(tool, given)
    check_running(session)
    run = run_of(session)
    call = call_id(session.run if run else None, session.id, session.place + 1, "use")
    body = k.ToolRequested(tool.name, plain, tool.effect, tool.version, path=path, source=tool.origin)
    session, _ = record(session, [Draft(body, Act(actor, "program", call=call))])
    jobs = {0: Job(0, tool, _bound(tool, arguments, session), call, plain)}
    try:
        session, outcomes, _ = yield from _run_jobs(session, jobs, actor, path)
    except GeneratorExit:  # interrupted. In a run it can be taken up again; outside of any nobody else would ever settle it
        if run is None:
            failure = Failure("Interrupted", "it was interrupted while it ran; it may have happened")
            record_at_tip(session, [Draft(k.ToolFailed(failure), Act(actor, "program", call=call))])
        raise
    settled = outcomes[0].body
    if isinstance(settled, k.ToolFailed):
        raise ToolFailed(tool.name, settled.failure.kind, settled.failure.message, session)
    return session


def _program_arguments(tool: Tool[..., Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], Json]:
    """What to call it with, and what to record; refused before anything is written."""
    try:
        plain = to_json(dict(given))
        return tool.arguments(plain), plain
    except WrongArguments as error:
        raise InvalidValue(tool.name, str(error), "pass what its signature asks for") from error
    except (TypeError, ValueError) as error:
        raise InvalidValue(tool.name, str(error), "pass plain data") from error


def _bound(tool: Tool[..., Any], arguments: dict[str, Any], session: Session) -> dict[str, Any]:
    return {**arguments, "session": session} if tool.takes_session else arguments


def _run_jobs(
    session: Session, jobs: dict[int, Job], actor: str, path: str, *, spare: bool = False
) -> Generator[Wait, Any, tuple[Session, dict[int, Event], Unwritten | None]]:
    """Run them, and record each outcome as it comes; returns what was recorded, by job.

    With `spare` the last one is handed back unwritten, for the caller to write with what it writes next anyway.
    """
    outcomes: dict[int, Event] = {}
    if not jobs:
        return session, outcomes, None
    batch = yield Launch(_lanes(list(jobs.values())))
    left = len(jobs)
    while left:
        done: Done = yield Next(batch)
        job = jobs[done.number]
        drafts, blobs = _outcome(job, done, actor)
        again = done.failure is not None and job.attempt < job.tool.attempts
        if again:
            job = jobs[done.number] = job._replace(attempt=job.attempt + 1)
            tool = job.tool
            body = k.ToolRequested(tool.name, job.given, tool.effect, tool.version, attempt=job.attempt, path=path, source=tool.origin)
            drafts.append(Draft(body, Act(actor, "program", call=job.call, causes=(0,))))
        elif spare and left == 1 and not drafts[0].body.refs():  # what points to a blob is for the store to judge
            return session, outcomes, Unwritten(session, drafts)
        try:
            # It happened, so it is recorded, also when somebody wrote meanwhile: the tool itself, to the session it was handed, say.
            session, events = record_at_tip(session, drafts, blobs)
        except (InvalidInput, UnknownBlob) as error:  # it was refused before anything was written
            if done.failure is not None:
                raise
            session, events = record_at_tip(session, [_unfit(job, done, actor, error)])
        outcomes[done.number] = events[0]
        if again:
            batch.add(job)
        else:
            left -= 1
    return session, outcomes, None


def _lanes(jobs: Sequence[Job]) -> list[list[Job]]:
    """What may write the workspace runs one after another; the rest side by side."""
    writing = [job for job in jobs if job.tool.effect == "workspace"]
    return [*([writing] if writing else []), *([job] for job in jobs if job.tool.effect != "workspace")]


def _outcome(job: Job, done: Done, actor: str) -> tuple[list[Draft], dict[Digest, bytes]]:
    if done.failure is None:
        try:
            parts, blobs = pack(contents(done.value), "result")
        except Exception as error:  # it may be anything, and do anything when it is looked at
            return [_unfit(job, done, actor, error)], {}
        body = k.ToolReturned(parts, delta=done.delta, attempt=job.attempt, duration_us=done.duration_us)
        return [Draft(body, Act(actor, "tool", call=job.call))], blobs
    return [_failed(job, done, done.failure, actor)], {}


def _unfit(job: Job, done: Done, actor: str, error: Exception) -> Draft:
    """It ran, and no log can hold what it returned."""
    failure = Failure("BadResult", f"it ran, but what it returned cannot be recorded: {text_of_error(error)}")
    return _failed(job, done._replace(delta=None), failure, actor)


def _failed(job: Job, done: Done, failure: Failure, actor: str) -> Draft:
    body = k.ToolFailed(failure, delta=done.delta, attempt=job.attempt, duration_us=done.duration_us)
    return Draft(body, Act(actor, "tool", call=job.call))


def contents(value: Any) -> list[Any]:
    """What a tool returned, as parts of a message: texts, images and files as they are, everything else as data."""
    if value is None:
        return []
    if isinstance(value, (str, Loose, k.Text, k.Image, k.File, k.Data)):
        return [value] if value != "" else [k.Data("")]
    if isinstance(value, (bytes, bytearray)):
        return [Loose(bytes(value), "application/octet-stream", "result")]
    items = cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()
    if any(isinstance(item, (Loose, k.Text, k.Image, k.File)) for item in items):
        return [part for item in items for part in contents(item)]
    return [k.Data(to_json(value))]


def run_tool(job: Job, clock: Any) -> Done:
    """Run a plain function, whatever it does."""
    started, before = clock(), observed_before(job)
    if isinstance(before, Failure):
        return Done(job.number, failure=before, duration_us=clock() - started)
    try:
        value, failure = job.tool.function(**job.arguments), None
    except (Exception, SystemExit) as error:
        value, failure = None, failure_of(error)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        value, failure = None, Failure("BadResult", "it returned something to be awaited: write it as async def")
    return concluded(job, value, failure, before, started, clock)


class _Nothing:
    """Nothing was observed."""


def observed_before(job: Job) -> Any:
    """What is observed before the call; a failure if that cannot be had: then the tool is not run, since its delta could not be told."""
    if job.tool.observe is None:
        return _Nothing
    try:
        return job.tool.observed(job.arguments)
    except Exception as error:
        failed = failure_of(error)
        return Failure(failed.kind, f"not run: what is to be observed cannot be: {failed.message}", failed.traceback)


def concluded(job: Job, value: Any, failure: Failure | None, before: Any, started: int, clock: Any) -> Done:
    duration_us, delta = clock() - started, None
    if before is not _Nothing:
        try:
            after = job.tool.observed(job.arguments)
            delta = _recordable({"before": before, "after": after, "changed": difference(before, after)})
        except Exception as error:
            delta = {"unobserved": text_of_error(error)}
    return Done(job.number, value, failure, duration_us, delta)


def _recordable(delta: Json) -> Json:
    """An observation that cannot be recorded says so; it is not the tool's fault."""
    try:
        if len(VOCABULARY.encode(k.ScratchSet("delta", delta))) > DELTA_MAX:
            return {"unobserved": "it is too large to be recorded"}
    except InvalidInput as error:
        return {"unobserved": line(str(error))}
    return delta
