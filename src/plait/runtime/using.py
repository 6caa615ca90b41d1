"""Using tools: requests are on record before anything runs, and whatever comes of a call is
recorded, whatever it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import msgspec

from plait import inside
from plait.errors import BudgetExceeded, InvalidInput, InvalidValue, ToolFailed, UnknownBlob
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.codec import VOCABULARY
from plait.event.kinds import Failure
from plait.ids import Digest
from plait.model.base import OutputDelta
from plait.runtime.bracket import Bracket
from plait.runtime.effects import UseTools
from plait.runtime.failures import failure_of, line, text_of_error
from plait.runtime.mail import safe_point
from plait.runtime.override import overridden_tools
from plait.runtime.people import (
    APPROVER_FAILED,
    EFFECT_UNKNOWN,
    ask_people,
    ask_question,
    hear,
    is_as_consented,
    is_open,
    judged_again,
    park,
    recalled,
    refused,
    requested,
    took,
    was_tried,
)
from plait.runtime.places import Site, Visit, Worked
from plait.runtime.reads import NOTHING_READ, doing, tool_act
from plait.runtime.run import (
    Run,
    append_events,
    append_events_at_tip,
    call_id,
    check_held,
    check_running,
    run_of,
    scoped,
)
from plait.runtime.spend import afford_tool
from plait.runtime.stops import Cancelled
from plait.runtime.waits import Done, Job, Launch, Next, Wait
from plait.secrets import is_whole
from plait.session import Session
from plait.session.content import Loose, contents, pack, unpack, value_of
from plait.session.origins import ORDINARY
from plait.session.ports import Act, Draft, store_at, writer_of
from plait.session.typed import takes_bytes, to_json
from plait.session.value import position_of
from plait.tool import KEY, SANDBOX, SESSION, Happened, Result, Tool, WrongArguments, difference
from plait.workspace import EMPTY

DELTA_MAX = 1_000_000


class Unwritten(NamedTuple):
    """The last outcome of a turn's calls.

    It is written with the ask that follows, or by itself if none does.
    """

    session: Session  # before it
    drafts: Sequence[Draft]


class User(NamedTuple):
    """Who uses a tool."""

    actor: str
    path: str


def use(effect: UseTools) -> Generator[Wait, Any, tuple[Session, Unwritten | None]]:
    run = run_of(effect.session)
    tools = overridden_tools(run, effect.session, effect.path, effect.tools)
    brackets: dict[int, Bracket] = {}
    for number, action in enumerate(effect.calls):
        tool, request = tools.get(action.tool), effect.requests.get(action.call)
        if tool is not None and request is not None:
            own = (
                tool.arguments(effect.spoken[action.call]) if action.call in effect.spoken else None
            )
            recalled = run is not None and run.was_on_record(request)
            brackets[number] = Bracket(number, tool, action.call, request, own, recalled=recalled)
    return (
        yield from _settled(effect.session, brackets, User(effect.actor, effect.path), spare=True)
    )


def use_tool(
    session: Session, tool: Tool[..., Any], given: Mapping[str, Any], user: User, reason: str = ""
) -> Generator[Wait, Any, Session]:
    """A call by the program itself."""
    arguments, plain = _program_arguments(tool, given)
    check_running(session)
    session = safe_point(session)
    run = run_of(session)
    if run is None or not run.follows(session):
        _check_no_stand_ins(tool, plain)
    name, log = run.names(session) if run is not None else (None, session.id)
    call = call_id(name, log, session.seq + 1, "use")
    known = writer_of(session.run).acting(session.store, position_of(session))
    origin = known.origin if known.origin and known.origin not in ORDINARY else "program"
    act = Act(user.actor, origin, call=call, causes=known.causes)
    body, refusal = requested(session, tool, plain, user, reason, because=act)
    session, (request, *rest) = append_events(
        session, [Draft(body, act), *refused(session, refusal, act, of_request=True)]
    )
    bracket = Bracket(0, tool, request.header.call or call, request, arguments)
    for event in rest:
        bracket.take(event)
    try:
        session, _ = yield from _settled(session, {0: bracket}, user)
    # interrupted. In a run it can be taken up again; outside of any nobody else would ever settle
    # it
    except GeneratorExit:
        if run is None:
            failure = Failure(
                "Interrupted", "it was interrupted while it ran; it may have happened"
            )
            append_events_at_tip(
                session, [Draft(k.ToolFailed(failure), Act(user.actor, "program", call=call))]
            )
        raise
    settled = bracket.outcome.body if bracket.outcome is not None else None
    if isinstance(settled, k.ToolFailed) and bracket.refusal is not None:
        raise BudgetExceeded(
            bracket.refusal.limit,
            bracket.refusal.asked,
            bracket.refusal.left,
            session,
            bracket.refusal.why,
        )
    if isinstance(settled, k.ToolFailed):
        raise ToolFailed(tool.name, settled.failure.kind, settled.failure.message, session)
    if isinstance(settled, k.ToolResolved) and settled.verdict != "happened":
        why = f"{settled.verdict.replace('_', ' ')}{': ' + settled.note if settled.note else ''}"
        raise ToolFailed(tool.name, "Resolved", why, session)
    return session


def _program_arguments(
    tool: Tool[..., Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], Json]:
    """What to call it with, and what to record; refused before anything is written."""
    try:
        plain = to_json(dict(given))
        return tool.arguments(plain), plain
    except WrongArguments as error:
        raise InvalidValue(tool.name, str(error), "pass what its signature asks for") from error
    except (TypeError, ValueError) as error:
        raise InvalidValue(tool.name, str(error), "pass plain data") from error


def _check_no_stand_ins(tool: Tool[..., Any], arguments: Json) -> None:
    """Refuse an argument that is nothing but what stands in a record for a secret: the tool would
    take it for the secret.
    """
    for name, value in arguments.items() if isinstance(arguments, Mapping) else ():
        if isinstance(value, str) and is_whole(value):
            why = f"{name!r} is {value}, which stands on record for a secret and is not the secret"
            raise InvalidValue(tool.name, why, "pass the value itself: Secret(name).value")


def _fail_for_secrets(session: Session, bracket: Bracket, user: User) -> Session:
    """A call that cannot be made from the record, because arguments of it were secrets."""
    why = (
        f"an argument was a secret, which is not on record: {', '.join(bracket.lacks)}. It was not"
        " run again; call it anew, with the value"
    )
    return took(
        session,
        bracket,
        [
            Draft(
                k.ToolFailed(Failure("SecretArgument", why)),
                Act(user.actor, "program", call=bracket.call),
            )
        ],
    )


# ── settling brackets ────────────────────────────────────────────────────────────────────────


def _settled(
    session: Session, brackets: dict[int, Bracket], user: User, *, spare: bool = False
) -> Generator[Wait, Any, tuple[Session, Unwritten | None]]:
    """Bring every bracket to its end: from the record, by running it, by asking people; parks if
    somebody has to decide first.

    With `spare` the last outcome is handed back unwritten, for the caller to write with what it
    writes next anyway.
    """
    session = recalled(session, brackets)
    run = run_of(session)
    open_ = [
        each
        for each in brackets.values()
        if each.outcome is None or _is_reopened(run, session, each)
    ]
    for bracket in brackets.values():
        if bracket not in open_ and _was_stopped(bracket):
            raise Cancelled("it was stopped before it ran")
    if not open_:
        return session, None
    if run is not None and run.recording is not None and run.recording.strict:
        raise run.ended(session)  # only the record may be followed, and it ends here
    unsettled = [each for each in open_ if each.outcome is None]
    if (
        run is not None
        and unsettled
        and (
            run.was_on_record(unsettled[0].since)
            or any(each.waits or each.tool.asks for each in unsettled)
        )
    ):
        session = hear(session, brackets)  # what has arrived may settle some of them
        for bracket in unsettled:
            session = _with_fitting_result(session, bracket)
    for bracket in open_:
        if _is_reopened(run, session, bracket):
            session = yield from _try_again(session, bracket, user)
        elif bracket.outcome is None and bracket.tool.asks and not bracket.waits:
            session = ask_question(session, bracket, user)
        elif bracket.outcome is None and run is not None:
            session = yield from _in_doubt(run, session, bracket, user)
    session = ask_people(
        session, [each for each in open_ if each.outcome is None and each.unknown is None], user
    )
    for bracket in open_:
        if _is_ready(bracket) and bracket.lacks:
            session = _fail_for_secrets(session, bracket, user)
    ready = {each.number: each for each in open_ if _is_ready(each)}
    session, unwritten = yield from _run(
        session, ready, user, spare=spare and len(ready) == len(open_)
    )
    park(session, [each for each in open_ if each.outcome is None and each.number not in ready])
    return session, unwritten


def _is_ready(bracket: Bracket) -> bool:
    return (
        bracket.outcome is None
        and bracket.unknown is None
        and not bracket.waits
        and not bracket.tool.asks
    )


def _is_reopened(run: Run | None, session: Session, bracket: Bracket) -> bool:
    """Whether its failure ended the run, or it was stopped with it; now it is taken up again to try
    once more.
    """
    if run is None or run.recording is None or bracket.outcome is None or run.on_record(session):
        return False
    if not isinstance(bracket.outcome.body, k.ToolFailed):
        return False  # a person has said what became of it
    if _was_stopped(bracket) and run.was_on_record(bracket.outcome):
        return not run.went_on_without(session.id)
    return bracket.outcome.id in run.recording.reopened


def _was_stopped(bracket: Bracket) -> bool:
    """Whether Plait itself says that it was not run; a tool may raise what it likes, under whatever
    name.
    """
    body = bracket.outcome.body if bracket.outcome is not None else None
    return (
        isinstance(body, k.ToolFailed)
        and body.failure.kind == STOPPED
        and _is_ours(bracket.outcome)
    )


def _is_ours(outcome: Event | None) -> bool:
    return outcome is not None and outcome.header.origin in ("program", "human")


# What a call that failed so certainly did not do.
_NOT_RUN = frozenset(
    {
        "Stopped",
        "Refused",
        "Denied",
        "ApprovalExpired",
        "BudgetExceeded",
        "WrongArguments",
        EFFECT_UNKNOWN,
        APPROVER_FAILED,
    }
)


def _try_again(session: Session, bracket: Bracket, user: User) -> Generator[Wait, Any, Session]:
    """A call that failed, once more: what raised may have happened all the same, so it depends on
    its class.
    """
    body = bracket.outcome.body if bracket.outcome is not None else None
    failure = body.failure if isinstance(body, k.ToolFailed) else Failure("Failed", "it failed")
    if (failure.kind in _NOT_RUN and _is_ours(bracket.outcome)) or bracket.tool.effect in (
        "pure",
        "workspace",
        "idempotent",
    ):
        return _request_again(session, bracket, user)
    return (
        yield from _by_class(
            session,
            bracket,
            user,
            f"it failed, and may have happened all the same: {failure.kind}: {failure.message}",
        )
    )


def _in_doubt(
    run: Run, session: Session, bracket: Bracket, user: User
) -> Generator[Wait, Any, Session]:
    """What to do about a call that may have happened, because the process that made it is gone: it
    depends on its class.
    """
    tried = was_tried(run, session, bracket)
    if bracket.again and not tried:
        return _request_again(session, bracket, user)
    if bracket.unknown is not None:
        return (
            session
            if run.on_record(session) or is_open(session, bracket.unknown)
            else _unknown(session, bracket, LOST)
        )
    if not tried and (bracket.waits or not run.was_on_record(bracket.since)):
        return session
    # branched off here: what was asked for there is asked for anew, under a key of its own
    if run.is_inherited(bracket.since):
        return _request_again(session, bracket, user)
    # it is run again, with the same key
    if bracket.tool.effect in ("pure", "workspace", "idempotent"):
        return (
            session
            if is_as_consented(run, session, bracket)
            else judged_again(session, bracket, user)
        )
    return (yield from _by_class(session, bracket, user, LOST))


def _by_class(
    session: Session, bracket: Bracket, user: User, why: str
) -> Generator[Wait, Any, Session]:
    """Find out, undo, or let a person look."""
    tool = bracket.tool
    if bracket.lacks:
        why = (
            f"{why}; and an argument was a secret, which is not on record:"
            f" {', '.join(bracket.lacks)}"
        )
    elif tool.probe is not None:
        done = yield from _asked(session, bracket, tool.probe, "probe")
        if done.failure is None and (done.value is None or isinstance(done.value, Happened)):
            return _probed(session, bracket, user, done.value)
        why = (
            "the probe says nothing:"
            f" {done.failure.message if done.failure else 'it returned neither Happened nor None'}"
        )
    elif tool.compensate is not None:
        done = yield from _asked(session, bracket, tool.compensate, "compensate")
        if done.failure is None:
            return _resolved(session, bracket, user, "compensated", ())
        why = f"it could not be undone: {done.failure.message}"
    return _unknown(session, bracket, why)


def _unknown(session: Session, bracket: Bracket, why: str) -> Session:
    body = k.ToolUnknown(bracket.request.id, why, bracket.tool.result_schema)
    return took(session, bracket, [Draft(body, Act(SERVICE, "program", call=bracket.call))])


def _with_fitting_result(session: Session, bracket: Bracket) -> Session:
    """A call that a person resolved just now.

    What does not have the type of its result is asked for once more.
    """
    settled = bracket.outcome.body if bracket.outcome is not None else None
    if (
        not isinstance(settled, k.ToolResolved)
        or settled.verdict != "happened"
        or bracket.outcome is None
    ):
        return session
    schema, get_blob = bracket.tool.result_schema, store_at(session.store).get_blob
    value = value_of(unpack(settled.parts, get_blob))
    if schema is None:
        return session
    if not isinstance(value, (k.File, k.Image)):
        why = bracket.tool.result_misfit(value)
    else:  # what bytes are recorded as
        why = (
            bracket.tool.result_misfit(to_json(get_blob(value.blob)))
            if takes_bytes(schema)
            else "it is a file"
        )
    if why is not None:
        return _unknown(
            session, bracket, f"what {bracket.outcome.actor} says it returned does not fit: {why}"
        )
    return session


LOST = "the process ended while it was being made"
SERVICE = "service:plait"


def _asked(
    session: Session, bracket: Bracket, function: Callable[..., Any], what: str
) -> Generator[Wait, Any, Done]:
    """Run what a tool brings along to find out about, or undo, a call of it."""
    wanted = inspect.signature(function).parameters
    given = {**bracket.arguments(), KEY: bracket.key, SESSION: session}
    arguments = {name: given[name] for name in wanted if name in given}
    check = partial(check_held, session)
    job = Job(
        bracket.number,
        bracket.tool.about(function),
        arguments,
        f"{bracket.call}/{what}",
        check=check,
    )
    batch = yield Launch([[job]])
    return (yield Next(batch))


def _probed(session: Session, bracket: Bracket, user: User, found: Happened | None) -> Session:
    if found is None:
        return _resolved(session, bracket, user, "did_not_happen", ())
    parts, blobs = pack(contents(found.value), "result")
    return _resolved(session, bracket, user, "happened", parts, blobs)


def _resolved(
    session: Session,
    bracket: Bracket,
    user: User,
    verdict: Literal["happened", "did_not_happen", "compensated"],
    parts: k.Parts,
    blobs: Mapping[Digest, bytes] | None = None,
) -> Session:
    act = Act(SERVICE, "program", call=bracket.call)
    came = act._replace(
        origin=bracket.tool.taints if verdict == "happened" else "program", causes=(0,)
    )
    doubt, settled = (
        k.ToolUnknown(bracket.request.id, LOST),
        k.ToolResolved(bracket.request.id, verdict, parts, "by the tool itself"),
    )
    session = took(session, bracket, [Draft(doubt, act), Draft(settled, came)], blobs)
    return session if verdict == "happened" else _request_again(session, bracket, user)


def _again(bracket: Bracket, user: User) -> k.ToolRequested:
    body = bracket.request.body
    assert isinstance(body, k.ToolRequested)
    decision = "allow" if bracket.grant is not None else body.decision
    return msgspec.structs.replace(
        body,
        attempt=bracket.attempt + 1,
        version=bracket.tool.version,
        path=user.path,
        decision=decision,
    )


def _request_again(session: Session, bracket: Bracket, user: User) -> Session:
    """Ask for a call once more.

    It is judged once more, too; only what did not happen needs no second consent.
    """
    run = run_of(session)
    if run is None or not (
        bracket.again and bracket.grant is not None and is_as_consented(run, session, bracket)
    ):
        return judged_again(session, bracket, user)
    cause = bracket.outcome or bracket.request
    return took(
        session,
        bracket,
        [
            Draft(
                _again(bracket, user),
                Act(user.actor, "program", call=bracket.call, causes=(cause.id,)),
            )
        ],
    )


# ── running ──────────────────────────────────────────────────────────────────────────────────


def _job(session: Session, bracket: Bracket, site: Site) -> Job:
    tool, arguments = bracket.tool, bracket.arguments()
    if tool.takes_session:
        arguments[SESSION] = scoped(session, bracket.call, bracket.attempt, _tool_act(bracket))
    if tool.takes_key:
        arguments[KEY] = bracket.key
    handed = (session.id, _tool_act(bracket)) if tool.takes_session else None
    # Requests are on record, under the fence, before any of them runs; how long ago that was is
    # another matter.
    check, where = partial(check_held, session), site if tool.takes_sandbox else None
    return Job(
        bracket.number,
        tool,
        arguments,
        bracket.call,
        bracket.given,
        bracket.attempt,
        where,
        handed,
        check,
    )


def _tool_act(bracket: Bracket) -> Act:
    """How a tool acts on the session it is handed: as who asked for the call, because of the reply
    or the request.
    """
    asked = bracket.first.header
    origin = "model" if asked.actor.startswith("agent:") else asked.origin
    if bracket.tool.taints not in ORDINARY:
        origin = bracket.tool.taints
    causes = [*(asked.causes or [bracket.first.id])]
    # a person wrote what it is called with
    if bracket.grant is not None and bracket.request.header.origin == "human":
        causes.append(bracket.request.id)
    return Act(asked.actor, origin, call=bracket.call, causes=tuple(causes))


def _check_stopped(run: Run, session: Session, brackets: Mapping[int, Bracket], user: User) -> None:
    """Whoever was stopped runs nothing more, and says so of what it was about to run: nobody has to
    wonder.
    """
    try:
        run.check(session.id)
    except Cancelled:
        for bracket in brackets.values():
            act = Act(user.actor, "program", call=bracket.call)
            session = took(
                session,
                bracket,
                [Draft(k.ToolFailed(Failure(STOPPED, "not run: it was stopped before")), act)],
            )
        raise


STOPPED = "Stopped"


def _run(
    session: Session, brackets: Mapping[int, Bracket], user: User, *, spare: bool
) -> Generator[Wait, Any, tuple[Session, Unwritten | None]]:
    """Run them, and record each outcome as it comes."""
    if not brackets:
        return session, None
    run = run_of(session)
    if run is not None and run.on_record(session):
        # strictly by the record: there is nobody here who could run anything
        raise run.ended(session)
    if run is not None:
        _check_stopped(run, session, brackets, user)
    site, jobs = Site(session, _listener(run, user)), list[Job]()
    for bracket in brackets.values():
        try:
            jobs.append(_job(session, bracket, site))
        except WrongArguments as error:  # a type of the program's own, which took them before
            failure = Failure("WrongArguments", f"{error}. It was not run")
            session = took(
                session,
                bracket,
                [Draft(k.ToolFailed(failure), Act(user.actor, "program", call=bracket.call))],
            )
    lanes = _lanes(jobs)
    # the request was written just now, under the fence: the store need not be asked again
    if run is None or run.recording is None:
        lanes = [[first._replace(check=None), *later] for first, *later in lanes]
    batch = yield Launch(lanes)
    left, scopes = len(jobs), {job.number: _scope_of(job) for job in jobs}
    while left:
        done: Done = yield Next(batch)
        bracket = brackets[done.number]
        if run is not None:
            run.end_scope(scopes.pop(done.number, None))
        drafts, blobs = _outcome(bracket, done, user.actor)
        drafts = _with_sources(run, session, bracket, drafts)
        again = done.failure is not None and bracket.attempt < bracket.tool.attempts
        if again and bracket.tool.effect != "workspace" and afford_tool(session) is not None:
            again = False
        if again:
            drafts.append(
                Draft(
                    _again(bracket, user),
                    Act(user.actor, "program", call=bracket.call, causes=(len(drafts) - 1,)),
                )
            )
        # what points to a blob is for the store to judge
        elif spare and left == 1 and not any([draft.body.refs() for draft in drafts]):
            return session, Unwritten(session, drafts)
        try:
            # It happened, so it is recorded, also when somebody wrote meanwhile: the tool itself,
            # to the session it was handed, say.
            session = took(session, bracket, _current(drafts, bracket, done, user.actor), blobs)
        except (InvalidInput, UnknownBlob) as error:  # it was refused before anything was written
            if done.failure is not None:
                raise
            session = took(
                session,
                bracket,
                *_with_place(bracket, done, _unfit(bracket, done, user.actor, error), {}),
            )
        if again:
            again_job = _job(session, bracket, site)
            scopes[bracket.number] = _scope_of(again_job)
            batch.add(again_job)
        else:
            left -= 1
    return session, None


def _scope_of(job: Job) -> str | None:
    """The scope of the session that a tool is handed. None: it is handed none."""
    return job.arguments[SESSION].run if job.handed is not None else None


def _with_sources(
    run: Run | None, session: Session, bracket: Bracket, drafts: list[Draft]
) -> list[Draft]:
    """An outcome with what the tool's own code has read elsewhere as its causes: what it returns
    may come from there.
    """
    if run is None or not run.reads.places:
        return drafts
    calls = (*run.calls(session.id), bracket.call)
    read = run.reads.sources(calls, session.store, position_of(session), below=True)
    if read == NOTHING_READ:
        return drafts
    *before, (body, act) = drafts
    origin = read.origin if read.origin and act.origin in ORDINARY else act.origin
    return [*before, Draft(body, act._replace(origin=origin, causes=(*act.causes, *read.causes)))]


def _listener(run: Run | None, user: User) -> Callable[[str], object] | None:
    """Who hears what commands write while they run. None: nobody."""
    if run is None or not run.heard:
        return None

    def hear(text: str) -> None:
        run.tell(OutputDelta(text, user.path))

    return hear


def _current(
    drafts: list[Draft], bracket: Bracket, done: Done, actor: str
) -> Callable[[Session], Sequence[Draft]]:
    """An outcome for the files that the call began with.

    If somebody else changed them meanwhile, one wins and the other is told.
    """
    there = done.worked

    def chosen(session: Session) -> Sequence[Draft]:
        if (
            there.trees is None
            or there.trees.before == there.trees.after
            or (session.files.tree or EMPTY) == there.since
        ):
            return drafts
        return [
            _failed(bracket, done._replace(worked=Worked()), _STALE, actor),
            *drafts[len(there.before) + 1 :],
        ]

    return chosen


_STALE = Failure(
    "StaleFiles",
    "somebody else changed the session's files meanwhile, so what it did to them is not on record;"
    " run it again",
)


def _lanes(jobs: Sequence[Job]) -> list[list[Job]]:
    """What may write the workspace, or read it meanwhile, runs one after another; the rest side by
    side.
    """
    there = [job for job in jobs if is_there(job)]
    return [*([there] if there else []), *([job] for job in jobs if not is_there(job))]


def is_there(job: Job) -> bool:
    return job.site is not None or job.tool.effect == "workspace"


def _outcome(job: Bracket, done: Done, actor: str) -> tuple[list[Draft], dict[Digest, bytes]]:
    if done.failure is not None:
        return _with_place(job, done, _failed(job, done, done.failure, actor), {})
    try:
        said, apart = (
            _apart(done.value) if isinstance(done.value, Result) else (contents(done.value), [])
        )
        parts, blobs = pack(said, "result")
        kept, more = pack(apart, "result")
    except BaseException as error:  # it may be anything, and do anything when it is looked at
        if inside.ends_run(error):
            raise
        return _with_place(job, done, _unfit(job, done, actor, error), {})
    there, blobs = done.worked, {**blobs, **more}
    body = k.ToolReturned(
        parts,
        done.exit_code,
        there.trees,
        there.placement,
        done.delta,
        job.attempt,
        done.duration_us,
        cast("tuple[k.File, ...]", kept),
    )
    return _with_place(job, done, Draft(body, Act(actor, job.tool.taints, call=job.call)), blobs)


def _apart(result: Result) -> tuple[list[Any], list[Any]]:
    """What is said to whoever called, and the files that are kept as evidence and told of by name
    only: they may be of any length.
    """
    files = [
        part
        for part in result.parts
        if isinstance(part, k.File) or (isinstance(part, Loose) and part.name is not None)
    ]
    return [part for given in result.parts if given not in files for part in contents(given)], files


def _with_place(
    job: Bracket, done: Done, draft: Draft, blobs: dict[Digest, bytes]
) -> tuple[list[Draft], dict[Digest, bytes]]:
    """An outcome, after what is recorded of its sandbox, with the files that it wrote."""
    about = [Draft(body, Act(SERVICE, "program", call=job.call)) for body in done.worked.before]
    return [*about, draft], {**done.worked.blobs, **blobs}


def _unfit(job: Bracket, done: Done, actor: str, error: BaseException) -> Draft:
    """It ran, and no log can hold what it returned."""
    failure = Failure(
        "BadResult", f"it ran, but what it returned cannot be recorded: {text_of_error(error)}"
    )
    return _failed(job, done._replace(delta=None), failure, actor)


def _failed(job: Bracket, done: Done, failure: Failure, actor: str) -> Draft:
    there = done.worked
    body = k.ToolFailed(
        failure,
        done.exit_code,
        there.trees,
        there.placement,
        done.delta,
        job.attempt,
        done.duration_us,
    )
    return Draft(body, Act(actor, job.tool.taints, call=job.call))


def run_tool(job: Job, clock: Any) -> Done:
    """Run a plain function, whatever it does."""
    if job.check is not None:
        job.check()
    mine, handed, outer = (
        doing.set((*doing.get(), job.call)),
        tool_act.set(job.handed),
        inside.enter_code(),
    )
    try:
        return _ran(job, clock)
    finally:
        inside.leave_code(outer)
        doing.reset(mine)
        tool_act.reset(handed)


def _ran(job: Job, clock: Any) -> Done:
    started, before = clock(), observed_before(job)
    visit = before if isinstance(before, Failure) else entered(job)
    if isinstance(visit, Failure):
        return Done(job.number, failure=visit, duration_us=clock() - started)
    try:
        value, failure = job.tool.function(**job.arguments, **lent(visit)), None
    except BaseException as error:  # whatever class it has: the call failed, and nothing else did
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
    return concluded(job, value, failure, before, started, clock, visit)


def entered(job: Job) -> Visit | Failure | None:
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


def lent(visit: Visit | None) -> dict[str, Any]:
    return {SANDBOX: visit.sandbox} if visit is not None else {}


class _Nothing:
    """Nothing was observed."""


def observed_before(job: Job) -> Any:
    """What is observed before the call; a failure if that cannot be had: then the tool is not run,
    since its delta could not be told.
    """
    if job.tool.observe is None:
        return _Nothing
    try:
        return job.tool.observed(job.arguments)
    except BaseException as error:
        if inside.ends_run(error):
            raise
        failed = failure_of(error)
        return Failure(
            failed.kind,
            f"not run: what is to be observed cannot be: {failed.message}",
            failed.traceback,
        )


def concluded(
    job: Job,
    value: Any,
    failure: Failure | None,
    before: Any,
    started: int,
    clock: Any,
    visit: Visit | None = None,
) -> Done:
    duration_us, delta, exit_code = clock() - started, None, None
    if isinstance(value, Result):
        exit_code, delta = (
            value.exit_code,
            _recordable(value.delta) if value.delta is not None else None,
        )
    worked, failure = _left(visit, failure)
    if before is not _Nothing:
        try:
            after = job.tool.observed(job.arguments)
            delta = _recordable(
                {"before": before, "after": after, "changed": difference(before, after)}
            )
        except BaseException as error:
            if inside.ends_run(error):
                raise
            delta = {"unobserved": text_of_error(error)}
    return Done(job.number, value, failure, duration_us, delta, exit_code, worked)


def _left(visit: Visit | None, failure: Failure | None) -> tuple[Worked, Failure | None]:
    """What is recorded of the files; if that cannot be had, the call has failed, whatever it
    returned.
    """
    if visit is None:
        return Worked(), failure
    try:
        return visit.leave(), failure
    except Exception as error:
        failed = failure_of(error)
        said = (
            f"; it had failed before: {failure.kind}: {failure.message}"
            if failure is not None
            else ""
        )
        return Worked(), Failure(
            failed.kind,
            f"its files cannot be recorded, so they are as before: {failed.message}{said}",
            failed.traceback,
        )


def _recordable(delta: Json) -> Json:
    """An observation that cannot be recorded says so; it is not the tool's fault."""
    try:
        if len(VOCABULARY.encode(k.ScratchSet("delta", delta))) > DELTA_MAX:
            return {"unobserved": "it is too large to be recorded"}
    except InvalidInput as error:
        return {"unobserved": line(str(error))}
    return delta
