"""Running tools: requests are on record before anything runs, and so is every outcome after."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from plait import inside
from plait.calls.tool_call import SERVICE, STOPPED, ToolCallState
from plait.errors import InvalidInput, UnknownBlob
from plait.event import kinds as k
from plait.event.kinds import Failure
from plait.ids import Digest, LogId, Micros
from plait.journal.standing import Standing
from plait.journal.stops import Cancelled, Halted, Parked
from plait.journal.writer import direct_writer
from plait.model.base import OutputDelta
from plait.runtime.appends import append_to_call
from plait.runtime.consent import User
from plait.runtime.delegation import (
    BranchEnd,
    WorkflowTool,
    branch_job,
    record_branch_end,
    record_stop,
)
from plait.runtime.executing import check_held, check_running, stop_check
from plait.runtime.failures import text_of_error
from plait.runtime.reads import NOTHING_READ
from plait.runtime.registry import run_of, scoped_session
from plait.runtime.run import Run
from plait.runtime.sandboxes import BatchSandbox, SandboxOutcome
from plait.runtime.spend import afford_tool
from plait.runtime.unwritten import Unwritten
from plait.runtime.waits import Done, Launch, Next, Pause, ToolJob, Wait
from plait.session import Session
from plait.session.backoff import WAIT_S_MAX, backoff_s
from plait.session.content import Loose, contents, pack
from plait.session.origins import ORDINARY
from plait.session.ports import Act, Draft
from plait.session.value import position_of
from plait.tool import KEY, SESSION, Result, WrongArguments
from plait.workspace import EMPTY


def run_calls(
    session: Session, calls: Mapping[int, ToolCallState], user: User, *, spare: bool
) -> Generator[Wait, Any, tuple[Session, Unwritten | None]]:
    """Run calls, and record each outcome as it comes.

    With `spare` the last outcome is handed back unwritten, if it points to no blob.
    """
    if not calls:
        return session, None
    run = run_of(session)
    if run is not None and run.journal.standing(session) is not Standing.LIVE:
        # the recording ends here, and nothing may be run beyond it
        raise run.journal.end_of_recording(session)
    _check_stopped(session, calls, user)
    site, jobs = BatchSandbox(session, _listener(run, user)), list[ToolJob]()
    for call in calls.values():
        try:
            jobs.append(_job(session, call, site)._replace(on_beat=_listener(run, user, call)))
        except WrongArguments as error:  # a type of the program's own, which took them before
            failure = Failure("WrongArguments", f"{error}. It was not run")
            session = append_to_call(
                session,
                call,
                [Draft(k.ToolFailed(failure), Act(user.actor, "program", call=call.id))],
            )
    lanes = _lanes(jobs)
    # requests that were written just now, under the fence: the store need not be asked again
    standings = [run.journal.standing_of(call.request) for call in calls.values()] if run else []
    if all(standing is Standing.LIVE for standing in standings):
        lanes = [[first._replace(check=None), *later] for first, *later in lanes]
    batch = yield Launch(lanes)
    left, scopes = len(jobs), {job.number: _scope_of(job) for job in jobs}
    parked: Parked | None = None
    was_stopped = False
    while left:
        done: Done = yield Next(batch)
        call = calls[done.number]
        if isinstance(done.value, BranchEnd):
            session, parked = _end_branch(session, call, done, done.value, user, parked)
            left -= 1
            continue
        if run is not None:
            run.stack.end_scope(scopes.pop(done.number, None))
        drafts, blobs = _outcome(call, done, user.actor)
        drafts = _with_sources(run, session, call, drafts)
        was_stopped = was_stopped or done.was_stopped
        is_over = done.failure is None or done.was_stopped
        again = not is_over and call.attempt < call.tool.attempts
        if again and call.tool.effect != "workspace" and afford_tool(session) is not None:
            again = False
        if again:
            drafts.append(
                Draft(
                    _delayed(session, call, request_again_body(call, user)),
                    Act(user.actor, "program", call=call.id, causes=(len(drafts) - 1,)),
                )
            )
        # the store has to check that a blob is there
        elif (
            spare
            and left == 1
            and parked is None
            and not was_stopped
            and not any([draft.body.refs() for draft in drafts])
        ):
            return session, Unwritten(session, drafts)
        try:
            # It happened, so it is recorded, also when others wrote meanwhile: the tool itself, to
            # the session it was handed, say.
            session = append_to_call(
                session, call, _or_stale(drafts, call, done, user.actor), blobs
            )
        except (InvalidInput, UnknownBlob) as error:  # it was refused before anything was written
            if done.failure is not None:
                raise
            session = append_to_call(
                session,
                call,
                *_with_place(call, done, _unfit_draft(call, done, user.actor, error), {}),
            )
        if again:
            again_job = _job(session, call, site)._replace(on_beat=_listener(run, user, call))
            scopes[call.number] = _scope_of(again_job)
            batch.add(again_job)
        else:
            left -= 1
    if parked is not None:
        raise parked
    if was_stopped:
        check_running(session)
    return session, None


def follow_branches(session: Session, calls: Sequence[ToolCallState]) -> None:
    """Follow the recorded branches of calls that workflows carry out: a difference is looked for in
    them, or a debugger waits there.
    """
    for call in calls:
        if not isinstance(call.tool, WorkflowTool) or call.waits:
            continue
        try:
            job = _job(session, call, BatchSandbox(session, None))
        except Parked:  # its branch is not on record
            continue
        deferred = _deferred_logs(session)
        end: object = job.tool.function()
        if isinstance(end, BranchEnd) and isinstance(end.stop, Halted):
            raise end.stop
        _forget_deferred(session, deferred)


def _deferred_logs(session: Session) -> list[tuple[LogId, str]]:
    run = run_of(session)
    return [] if run is None else run.journal.deferred.logs()


def _forget_deferred(session: Session, before: Sequence[tuple[LogId, str]]) -> None:
    """Forget drafts that a branch was left with, which a debugger entered: its record may end
    before them, where its process died.
    """
    run = run_of(session)
    if run is not None and run.entered_calls:
        for log, scope in run.journal.deferred.logs():
            if (log, scope) not in before:
                run.journal.deferred.pop(log, scope)


def _end_branch(
    session: Session,
    call: ToolCallState,
    done: Done,
    end: BranchEnd,
    user: User,
    parked: Parked | None,
) -> tuple[Session, Parked | None]:
    """Record the outcome of a call that a workflow carried out; return also the first stop by which
    a branch is parked: the other calls come to their end before it is raised.
    """
    if isinstance(end.stop, Parked):
        return session, parked or end.stop
    if end.stop is not None:
        if isinstance(end.stop, Cancelled):
            record_stop(session, call, user.actor)
        raise end.stop
    return record_branch_end(session, call, done, end, user.actor), parked


def _check_stopped(session: Session, calls: Mapping[int, ToolCallState], user: User) -> None:
    """Raise if the branch was stopped; record of each call first that it was not run."""
    try:
        check_running(session)
    except (Cancelled, KeyboardInterrupt):
        for call in calls.values():
            act = Act(user.actor, "program", call=call.id)
            session = append_to_call(
                session,
                call,
                [Draft(k.ToolFailed(Failure(STOPPED, "not run: it was stopped before")), act)],
            )
        raise


def _job(session: Session, call: ToolCallState, site: BatchSandbox) -> ToolJob:
    # Requests are recorded under the fence, but that may be long ago when the tool begins.
    check = partial(check_held, session)
    if isinstance(call.tool, WorkflowTool):
        return branch_job(session, call, _tool_act(call), check)
    tool, arguments = call.tool, call.arguments()
    if tool.takes_session:
        arguments[SESSION] = scoped_session(session, call.id, call.attempt, _tool_act(call))
    if tool.takes_key:
        arguments[KEY] = call.key
    handed = (session.id, _tool_act(call)) if tool.takes_session else None
    where = site if tool.takes_sandbox else None
    run = run_of(session)
    return ToolJob(
        call.number,
        tool,
        arguments,
        call.id,
        call.given,
        call.attempt,
        where,
        handed,
        check,
        stop_check(session),
        run.journal.fence.check_going if run is not None else None,
        _delay_of(session, call) if call.attempt > 1 else None,
    )


def _delayed(session: Session, call: ToolCallState, body: k.ToolRequested) -> k.ToolRequested:
    """Return the request of another attempt with the time at which it is due."""
    wait_s = backoff_s(call.tool.wait_s, WAIT_S_MAX, call.id, call.attempt)
    due = _now(session) + int(wait_s * 1e6)
    return msgspec.structs.replace(body, due=due) if wait_s else body


def _delay_of(session: Session, call: ToolCallState) -> Pause | None:
    """Return the rest of the wait before an attempt: another process may have begun it."""
    body = call.request.body
    assert isinstance(body, k.ToolRequested)
    left_s = (body.due - _now(session)) / 1e6 if body.due is not None else 0.0
    return Pause(min(left_s, WAIT_S_MAX), session) if left_s > 0 else None


def _now(session: Session) -> Micros:
    run = run_of(session)
    if run is not None:
        return run.journal.now(session)
    return direct_writer().source(session.store).now(session.id, session.seq + 1)


def _tool_act(call: ToolCallState) -> Act:
    """Return the act of a tool on the session it is handed: that of the actor of the request,
    caused by the reply or the request.
    """
    asked = call.first.header
    origin = "model" if asked.actor.startswith("agent:") else asked.origin
    if call.tool.taints not in ORDINARY:
        origin = call.tool.taints
    causes = [*(asked.causes or [call.first.id])]
    # a person wrote what it is called with
    if call.grant is not None and call.request.header.origin == "human":
        causes.append(call.request.id)
    return Act(asked.actor, origin, call=call.id, causes=tuple(causes))


def _scope_of(job: ToolJob) -> str | None:
    """Return the scope of the session that a tool is handed; None if it is handed none."""
    return job.arguments[SESSION].run if job.handed is not None else None


def _with_sources(
    run: Run | None, session: Session, call: ToolCallState, drafts: list[Draft]
) -> list[Draft]:
    """Return an outcome with the events that the tool's code has read elsewhere as its causes: the
    result may come from there.
    """
    if run is None or not run.reads.places:
        return drafts
    calls = (*run.calls(session.id), call.id)
    read = run.reads.sources(calls, session.store, position_of(session), below=True)
    if read == NOTHING_READ:
        return drafts
    *before, (body, act) = drafts
    origin = read.origin if read.origin and act.origin in ORDINARY else act.origin
    return [*before, Draft(body, act._replace(origin=origin, causes=(*act.causes, *read.causes)))]


def _listener(
    run: Run | None, user: User, beats: ToolCallState | None = None
) -> Callable[[str], object] | None:
    """Return a function that tells listeners the output of commands, or the heartbeats of a call;
    None if none listens.
    """
    if run is None or not run.listeners:
        return None
    name = beats.tool.name if beats is not None else ""

    def hear(text: str) -> None:
        run.listeners.tell(OutputDelta(text, user.path, name))

    return hear


def _or_stale(
    drafts: list[Draft], call: ToolCallState, done: Done, actor: str
) -> Callable[[Session], Sequence[Draft]]:
    """Return a function that decides when the outcome is written: if the session's tree changed
    while the tool ran, it is `StaleFiles` instead.
    """
    there = done.worked

    def outcome_at(session: Session) -> Sequence[Draft]:
        if (
            there.trees is None
            or there.trees.before == there.trees.after
            or (session.files.tree or EMPTY) == there.since
        ):
            return drafts
        return [
            _failed_draft(call, done._replace(worked=SandboxOutcome()), _STALE, actor),
            *drafts[len(there.before) + 1 :],
        ]

    return outcome_at


_STALE = Failure(
    "StaleFiles",
    "somebody else changed the session's files meanwhile, so what it did to them is not on record;"
    " run it again",
)


def _lanes(jobs: Sequence[ToolJob]) -> list[list[ToolJob]]:
    """Return the lanes: jobs on the workspace run one after another, the others side by side."""
    there = [job for job in jobs if is_there(job)]
    return [*([there] if there else []), *([job] for job in jobs if not is_there(job))]


def is_there(job: ToolJob) -> bool:
    """True if a job is done in the session's own files: those of a branch are its own."""
    is_in_branch = isinstance(job.tool, WorkflowTool)
    return job.site is not None or (job.tool.effect == "workspace" and not is_in_branch)


def _outcome(
    call: ToolCallState, done: Done, actor: str
) -> tuple[list[Draft], dict[Digest, bytes]]:
    if done.failure is not None:
        return _with_place(call, done, _failed_draft(call, done, done.failure, actor), {})
    try:
        said, apart = (
            _apart(done.value) if isinstance(done.value, Result) else (contents(done.value), [])
        )
        parts, blobs = pack(said, "result")
        kept, more = pack(apart, "result")
    except BaseException as error:  # a result of any type may raise when it is looked at
        if inside.ends_run(error):
            raise
        return _with_place(call, done, _unfit_draft(call, done, actor, error), {})
    there, blobs = done.worked, {**blobs, **more}
    body = k.ToolReturned(
        parts,
        done.exit_code,
        there.trees,
        there.placement,
        done.delta,
        call.attempt,
        done.duration_us,
        cast("tuple[k.File, ...]", kept),
    )
    return _with_place(call, done, Draft(body, Act(actor, call.tool.taints, call=call.id)), blobs)


def _apart(result: Result) -> tuple[list[Any], list[Any]]:
    """Return the parts of a result that the caller sees, and the files that are kept as evidence
    and shown by name only: they may be of any length.
    """
    files = [
        part
        for part in result.parts
        if isinstance(part, k.File) or (isinstance(part, Loose) and part.name is not None)
    ]
    return [part for given in result.parts if given not in files for part in contents(given)], files


def _with_place(
    call: ToolCallState, done: Done, draft: Draft, blobs: dict[Digest, bytes]
) -> tuple[list[Draft], dict[Digest, bytes]]:
    """Return an outcome after the events about its sandbox, with the blobs that it wrote."""
    about = [Draft(body, Act(SERVICE, "program", call=call.id)) for body in done.worked.before]
    return [*about, draft], {**done.worked.blobs, **blobs}


def _unfit_draft(call: ToolCallState, done: Done, actor: str, error: BaseException) -> Draft:
    """Return the failure of a call that ran and returned what no log can hold."""
    failure = Failure(
        "BadResult", f"it ran, but what it returned cannot be recorded: {text_of_error(error)}"
    )
    return _failed_draft(call, done._replace(delta=None), failure, actor)


def _failed_draft(call: ToolCallState, done: Done, failure: Failure, actor: str) -> Draft:
    there = done.worked
    body = k.ToolFailed(
        failure,
        done.exit_code,
        there.trees,
        there.placement,
        done.delta,
        call.attempt,
        done.duration_us,
    )
    # of a tool that was not run, it is our own word: a resume tries the call again
    origin = "program" if done.was_stopped else call.tool.taints
    return Draft(body, Act(actor, origin, call=call.id))


def request_again_body(call: ToolCallState, user: User) -> k.ToolRequested:
    body = call.request.body
    assert isinstance(body, k.ToolRequested)
    decision = "allow" if call.grant is not None else body.decision
    return msgspec.structs.replace(
        body,
        attempt=call.attempt + 1,
        version=call.tool.version,
        path=user.path,
        decision=decision,
        carries=None,
        due=None,
    )
