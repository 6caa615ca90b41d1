"""People in the loop: what needs consent, what is asked, what waits.

A request is on record before anybody is asked about it, and the ask is bound by a digest to exactly
that request: another tool, version, argument or policy is another ask. A run that waits holds no
process: it is parked, the ask is a row, the answer comes through the inbox and is delivered when
the run is taken up again. With an `approver` at hand the answer comes at once, and is recorded
likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from plait.errors import InvalidValue
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.kinds import Failure
from plait.ids import Digest
from plait.inside import deciding, ends_run
from plait.runtime import policy
from plait.runtime.bracket import Bracket
from plait.runtime.failures import text_of_error, traceback_of
from plait.runtime.mail import arrivals
from plait.runtime.policy import Approval, Granted
from plait.runtime.run import Run, append_events_at_tip, policies_here, run_of
from plait.runtime.spend import afford_tool, refusal_of
from plait.runtime.stops import Parked
from plait.secrets import stand_ins
from plait.session import Session
from plait.session.inbox import asks_in
from plait.session.origins import origins_before
from plait.session.ports import Act, Draft, store_at
from plait.tool import Tool, WrongArguments

SERVICE = "service:plait"


# ── what a policy says ───────────────────────────────────────────────────────────────────────


def requested(
    session: Session,
    tool: Tool[..., Any],
    arguments: Json,
    user: Any,
    reason: str = "",
    because: Act | None = None,
) -> tuple[k.ToolRequested, Failure | None]:
    """The request as it is recorded, with what the policies say of it; and why it is not run, if it
    is not.

    `because` is the act by which the program asks: what its causes bring is in the context of who
    asks, too.
    """
    run = run_of(session)
    tool, unclassed = _classed(session, tool, arguments)
    body = k.ToolRequested(
        tool.name,
        arguments,
        tool.effect,
        tool.noted_version,
        reason,
        path=user.path,
        source=tool.origin,
    )
    policies = policies_here(run, session)
    # a decision that is on record is not made again
    if not policies or (run is not None and run.follows(session)):
        return body, unclassed
    if unclassed is not None:  # the rules go by the class
        return body, unclassed
    decided = policy.decide(policies, _call(run, session, tool, arguments, user, reason, because))
    body = k.ToolRequested(
        tool.name,
        arguments,
        tool.effect,
        tool.version if decided.verdict == "ask" else tool.noted_version,
        reason,
        policy.digest_of(policies),
        path=user.path,
        source=tool.origin,
        decision=decided.verdict,
    )
    refused = (
        Failure("Refused", f"not allowed: {decided.reason or decided.rule}")
        if decided.verdict == "refuse"
        else None
    )
    return body, refused


def _classed(
    session: Session, tool: Tool[..., Any], arguments: Json
) -> tuple[Tool[..., Any], Failure | None]:
    """Return the tool as of the class of this very call; and why it is not run, if its `effect_of`
    cannot say the class.
    """
    if not tool.varies:
        return tool, None
    try:
        return tool.classed(tool.effect_in(session.files.placement, arguments)), None
    except BaseException as error:  # whatever class it has: it is code of the tool
        if ends_run(error):
            raise
        why = f"not run: effect_of raised {type(error).__name__}: {text_of_error(error)}"
        return tool, Failure(EFFECT_UNKNOWN, why, traceback_of(error))


# Calls that failed so were not run.
EFFECT_UNKNOWN, APPROVER_FAILED = "EffectUnknown", "ApproverFailed"


def refused(
    session: Session, why: Failure | None, act: Act, *, of_request: bool = False
) -> list[Draft]:
    """What is written with a request that is not run, and why: it is not allowed, or the budget
    does not allow it.

    `of_request`: the request is the first of the drafts that these are written with, and their
    cause.
    """
    spent = afford_tool(session) if why is None else None
    if why is None and spent is None:
        return []
    act = act._replace(origin="program", causes=(0,) if of_request else act.causes)
    if spent is not None:
        body, why = refusal_of(spent)
        return [Draft(body, act), Draft(k.ToolFailed(why), act)]
    assert why is not None
    return [Draft(k.ToolFailed(why), act)]


def _call(
    run: Run | None,
    session: Session,
    tool: Tool[..., Any],
    arguments: Json,
    user: Any,
    reason: str,
    because: Act | None = None,
) -> policy.Call:
    seen = session.lineage.origins
    if because is not None:
        causes = [cause for cause in because.causes if isinstance(cause, str)]
        store = store_at(session.store)
        seen = seen.union([because.origin], *(origins_before(store, cause) for cause in causes))
    behalf, version = run.behalf if run is not None else None, tool.noted_version
    return policy.Call(
        tool.name,
        arguments,
        tool.effect,
        version,
        tool.origin,
        reason,
        user.path,
        user.actor,
        behalf,
        seen,
        session,
    )


# ── a bracket and its events ─────────────────────────────────────────────────────────────────


def took(
    session: Session,
    bracket: Bracket,
    drafts: Sequence[Draft] | Callable[[Session], Sequence[Draft]],
    blobs: Mapping[Digest, bytes] | None = None,
) -> Session:
    """Record what happens in a bracket."""
    session, events = append_events_at_tip(session, drafts, blobs)
    for event in events:
        bracket.take(event)
    return session


def recalled(session: Session, brackets: Mapping[int, Bracket]) -> Session:
    """Brackets as far as they are on record."""
    run = run_of(session)
    if run is None or not run.on_record(session):
        return session
    calls = {each.call: each for each in brackets.values()}
    while True:
        step = run.take(session, calls)
        if step is not None:
            session, event = step
            calls[event.header.call or ""].take(event)
        elif all(each.outcome is not None for each in calls.values()):
            return session
        else:
            delivery = run.take_delivery(session)
            if delivery is None or delivery[0] == session:
                return session
            session = delivery[0]
            _take(calls, delivery[1])


def hear(session: Session, brackets: Mapping[int, Bracket]) -> Session:
    """What has arrived, as far as it is about these brackets."""
    session, events = arrivals(session)
    _take({each.call: each for each in brackets.values()}, events)
    return session


def _take(calls: Mapping[str, Bracket], events: Sequence[Event]) -> None:
    for event in events:
        if (bracket := calls.get(event.header.call or "")) is not None:
            bracket.take(event)


# ── consent ──────────────────────────────────────────────────────────────────────────────────


def ask_people(session: Session, brackets: Sequence[Bracket], user: Any) -> Session:
    """See to it that everything that needs consent is asked for, and do what was answered."""
    run = run_of(session)
    if not any(each.needs_consent for each in brackets):
        return session
    if run is None:
        why = (
            "it needs consent, which cannot be waited for on a session outside of the run; use the"
            " run's own session"
        )
        return _not_asked(session, brackets, user, why)
    if session.run != run.id and run.approver is None:
        why = (
            "it needs consent, which cannot be waited for inside a tool; call it from a workflow,"
            " or pass approver="
        )
        return _not_asked(session, brackets, user, why)
    changes = {bracket.call: _change_since(run, session, bracket) for bracket in brackets}
    for bracket in brackets:
        if changes[bracket.call]:
            session = judged_again(session, bracket, user)
    for bracket in brackets:
        if bracket.waits and bracket.denial is None:
            session = _ask(run, session, bracket, user, changes[bracket.call])
    for bracket in brackets:
        if bracket.waits and bracket.denial is None and run.approver is not None:
            session = _consult(run, session, bracket)
    for bracket in brackets:
        session = _answered(run, session, bracket, user)
    return session


def _ask(run: Run, session: Session, bracket: Bracket, user: Any, again: str = "") -> Session:
    """Ask for exactly this call, unless that was asked already and nothing has changed since."""
    body = bracket.asked.body if bracket.asked is not None else None
    bound = _binding(run, session, bracket, bracket.request, max(1, bracket.asks))
    if (
        isinstance(body, k.ApprovalRequested)
        and body.binding == bound
        and not again
        and is_open(session, bracket.asked)
    ):
        return session
    times = bracket.asks + 1
    call = _call(run, session, bracket.tool, bracket.given, user, _reason(bracket))
    call = msgspec.structs.replace(call, version=bracket.tool.version)
    decided = policy.decide(policies_here(run, session), call)
    shown = {
        **cast("dict[str, Any]", policy.shown(call, decided)),
        **bracket.tool.consent_details(bracket.given),
    }
    if unknown := _unknown(run, session, bracket):
        shown["unsure"] = [ONLY_HERE, *unknown]
    if again:
        shown["again"] = again
    expires = (
        run.now(session) + int(decided.expires_s * 1e6) if decided.expires_s is not None else None
    )
    ask = k.ApprovalRequested(
        _binding(run, session, bracket, bracket.request, times), shown, expires, times
    )
    return took(
        session,
        bracket,
        [Draft(ask, Act(user.actor, "program", call=bracket.call, causes=(bracket.request.id,)))],
    )


def was_tried(run: Run, session: Session, bracket: Bracket) -> bool:
    """Whether this call went further before, on a way that was rewound since: it may have been run,
    and must not be run twice.
    """
    log, first = session.id, bracket.last.seq + 1
    if not run.was_on_record(bracket.last) or run.on_record(session) or session.seq < first:
        return False
    later = store_at(session.store).read(log, first, session.seq, kinds=_TRIES)
    return any(event.header.call == bracket.call for event in later)


_TRIES = frozenset({k.ApprovalGranted.__name__, k.ToolRequested.__name__})


def is_open(session: Session, ask: Event | None) -> bool:
    """Whether an ask can still be answered: the answer may have come already, and be rewound."""
    own = store_at(session.store).log(session.id)
    return ask is not None and any(
        each.event == ask.id
        for each in asks_in(store_at(session.store), own.id, own.place + 1, own.tip)
    )


def _not_asked(session: Session, brackets: Sequence[Bracket], user: Any, why: str) -> Session:
    """Refuse calls that need consent where nobody can be waited for: what a tool does cannot be
    taken up again half-way.
    """
    for bracket in brackets:
        if bracket.waits:
            refusal = k.ToolFailed(Failure("Refused", why))
            session = took(
                session, bracket, [Draft(refusal, Act(user.actor, "program", call=bracket.call))]
            )
    return session


ONLY_HERE = (
    "consent counts only in the process that asks, since what would run cannot be read whole. "
    "Resume with an approver at hand, or give the tool a version: @tool(version=…)"
)


def _change_since(run: Run, session: Session, bracket: Bracket) -> str:
    """What is another by now than when consent was asked for: then the call is judged, and asked
    for, anew. "": nothing.
    """
    asked = bracket.asked.body if bracket.asked is not None else None
    if (
        bracket.outcome is not None
        or not isinstance(asked, k.ApprovalRequested)
        or bracket.asked_for is None
    ):
        return ""
    if bracket.grant is None and bracket.asked_for is not bracket.request:
        return ""  # it was judged anew already, and is about to be asked for
    request = bracket.asked_for.body
    assert isinstance(request, k.ToolRequested)
    if policy.digest_of(policies_here(run, session)) != request.policy:
        return "it is judged by another policy than when it was asked for"
    if bracket.tool.version != request.version:
        return f"{bracket.tool.name} has changed since it was asked for"
    if _binding(run, session, bracket, bracket.asked_for, asked.asked) == asked.binding:
        return ""
    unknown = _unknown(run, session, bracket)
    return (
        f"it was asked for in another process, and counts only there: {'; '.join(unknown)}"
        if unknown
        else "it has changed"
    )


def is_as_consented(run: Run, session: Session, bracket: Bracket) -> bool:
    """Whether a call was judged under the policies there are now, and what was consented to is what
    would run now.
    """
    same = policy.digest_of(policies_here(run, session)) == bracket.policy
    return same and (bracket.grant is None or not _change_since(run, session, bracket))


def _unknown(run: Run, session: Session, bracket: Bracket) -> tuple[str, ...]:
    """What the versions of a tool and its policies do not cover."""
    return (*bracket.tool.fingerprint.unknown, *policy.unknown_of(policies_here(run, session)))


def judged_again(session: Session, bracket: Bracket, user: Any) -> Session:
    """The same call as a new request, under the policies there are now."""
    body, why = requested(session, bracket.tool, bracket.given, user, _reason(bracket))
    act = Act(
        user.actor, "program", call=bracket.call, causes=((bracket.outcome or bracket.request).id,)
    )
    run = run_of(session)
    # branched off here: a call of this branch's own, under a key of its own
    first = run is not None and run.is_inherited(bracket.since)
    bracket.grant = bracket.denial = bracket.refusal = None
    body = msgspec.structs.replace(body, attempt=1 if first else bracket.attempt + 1)
    return took(
        session, bracket, [Draft(body, act), *refused(session, why, act._replace(causes=(0,)))]
    )


def _reason(bracket: Bracket) -> str:
    body = bracket.request.body
    return body.reason if isinstance(body, k.ToolRequested) else ""


def _binding(run: Run, session: Session, bracket: Bracket, request: Event, times: int) -> Digest:
    tool, body = bracket.tool, request.body
    assert isinstance(body, k.ToolRequested)
    process = run.process(session) if _unknown(run, session, bracket) else ""
    return policy.binding(
        session.id,
        request.seq,
        tool.name,
        tool.version,
        body.arguments,
        body.policy,
        times,
        process,
    )


def decision_of(person: Callable[..., object], *asked: Any) -> tuple[object, Failure | None]:
    """Ask an approver or answerer.

    What it raises is the run's error; what would end more than the run ends this call alone.
    """
    try:
        with deciding():
            return person(*asked), None
    except Exception:
        raise
    except BaseException as error:
        if ends_run(error):
            raise
        why = f"who was asked raised {type(error).__name__}: {text_of_error(error)}"
        return None, Failure(APPROVER_FAILED, why, traceback_of(error))


def _consult(run: Run, session: Session, bracket: Bracket) -> Session:
    """Ask whoever sits at the terminal."""
    assert run.approver is not None and bracket.asked is not None
    body = bracket.asked.body
    assert isinstance(body, k.ApprovalRequested)
    approval = Approval(session, bracket.request, body.shown, body.binding, body.expires)
    said, failure = decision_of(run.approver, approval)
    if failure is not None:
        return took(
            session,
            bracket,
            [Draft(k.ToolFailed(failure), Act(SERVICE, "program", call=bracket.call))],
        )
    answer = policy.settle_answer(said)
    if body.expires is not None and run.now(session) > body.expires:
        return session  # it came too late: it has expired
    act = Act(run.behalf, "human", call=bracket.call, causes=(bracket.asked.id,))
    if isinstance(answer, Granted):
        return took(
            session,
            bracket,
            [Draft(k.ApprovalGranted(body.binding, answer.edited, answer.note), act)],
        )
    return took(session, bracket, [Draft(k.ApprovalDenied(body.binding, answer.reason), act)])


def _answered(run: Run, session: Session, bracket: Bracket, user: Any) -> Session:
    act = Act(user.actor, "human", call=bracket.call)
    if bracket.denial is not None and bracket.waits:
        body = bracket.denial.body
        assert isinstance(body, k.ApprovalDenied)
        why = Failure("Denied", body.reason or f"{bracket.denial.actor} did not allow it")
        return took(
            session, bracket, [Draft(k.ToolFailed(why), act._replace(causes=(bracket.denial.id,)))]
        )
    asked = bracket.asked.body if bracket.asked is not None else None
    if (
        bracket.waits
        and isinstance(asked, k.ApprovalRequested)
        and asked.expires is not None
        and run.now(session) > asked.expires
    ):
        why = Failure("ApprovalExpired", "nobody allowed it in time; it was not run")
        expired = Draft(
            k.ApprovalExpired(asked.binding), Act(SERVICE, "program", call=bracket.call)
        )
        return took(
            session,
            bracket,
            [expired, Draft(k.ToolFailed(why), act._replace(origin="program", causes=(0,)))],
        )
    if bracket.outcome is None and bracket.grant is not None and bracket.edited is not None:
        return _corrected(run, session, bracket, user)
    return session


def _corrected(run: Run, session: Session, bracket: Bracket, user: Any) -> Session:
    """Run it as the person who consented wrote it: a request of its own, by that person."""
    assert bracket.grant is not None
    edited, who = bracket.edited, bracket.grant.actor
    act = Act(who, "human", call=bracket.call, causes=(bracket.grant.id,))
    if hidden := stand_ins(edited):  # what was edited is on record, and a secret is not
        return _ask(
            run,
            session,
            bracket,
            user,
            f"what {who} put in place holds a secret, which is not kept: {', '.join(hidden)}",
        )
    try:
        bracket.tool.arguments(edited)
    # nobody's consent is used up by a slip: it is asked for once more
    except WrongArguments as error:
        return _ask(run, session, bracket, user, f"what {who} put in place does not fit: {error}")
    tool = bracket.tool
    decided = policy.decide(
        policies_here(run, session), _call(run, session, tool, edited, user, _reason(bracket))
    )
    if decided.verdict == "refuse":
        no = Failure(
            "Refused",
            f"what {who} put in place is not allowed: {decided.reason or decided.rule}. It was"
            " not run",
        )
        return took(session, bracket, [Draft(k.ToolFailed(no), act)])
    why, attempt = f"corrected by {who}", bracket.attempt + 1
    body = k.ToolRequested(
        tool.name,
        edited,
        tool.effect,
        tool.version,
        why,
        bracket.policy,
        attempt,
        user.path,
        tool.origin,
        "allow",
    )
    return took(session, bracket, [Draft(body, act)])


def ask_question(session: Session, bracket: Bracket, user: Any) -> Session:
    """A tool that is a question: asked once, and settled by the answer."""
    run = run_of(session)
    if run is None:
        why = Failure("NoRun", "a person can only be asked in a workflow")
        return took(
            session,
            bracket,
            [Draft(k.ToolFailed(why), Act(user.actor, "program", call=bracket.call))],
        )
    given = bracket.arguments()
    question, choices = str(given["question"]), tuple(given.get("choices", ()))
    if bracket.asked is None:
        act = Act(user.actor, "program", call=bracket.call, causes=(bracket.request.id,))
        session = took(session, bracket, [Draft(k.QuestionAsked(question, choices), act)])
    assert bracket.asked is not None
    if bracket.answer is None and run.answerer is not None:
        act = Act(run.behalf, "human", call=bracket.call, causes=(bracket.asked.id,))
        said, failure = decision_of(run.answerer, question, choices)
        if failure is not None:
            return took(
                session,
                bracket,
                [Draft(k.ToolFailed(failure), Act(SERVICE, "program", call=bracket.call))],
            )
        answer = checked_answer(cast("Json", said), choices)
        session = took(session, bracket, [Draft(k.QuestionAnswered(bracket.asked.id, answer), act)])
    body = bracket.answer.body if bracket.answer is not None else None
    if not isinstance(body, k.QuestionAnswered) or bracket.answer is None:
        return session
    part = (
        k.Text(body.answer) if isinstance(body.answer, str) and body.answer else k.Data(body.answer)
    )
    return took(
        session,
        bracket,
        [
            Draft(
                k.ToolReturned((part,)),
                Act(user.actor, "human", call=bracket.call, causes=(bracket.answer.id,)),
            )
        ],
    )


def checked_answer(answer: Json, choices: Sequence[str]) -> Json:
    """An answer as it can be recorded, and one of those that can be chosen."""
    if choices and answer not in choices:
        raise InvalidValue(
            "answerer",
            f"{str(answer)[:80]!r} is not among the choices",
            f"answer with one of {', '.join(choices)}",
        )
    return policy.plain(answer, "answerer")


def park(session: Session, waiting: Sequence[Bracket]) -> None:
    """Leave the run as it is until somebody has decided."""
    if not waiting:
        return
    run = run_of(session)
    if run is not None and run.recording is not None and run.recording.strict:
        raise run.ended(session)
    raise Parked(session, "; ".join(map(_waits_for, waiting)))


def _waits_for(bracket: Bracket) -> str:
    ask = bracket.unknown or bracket.asked
    name = ask.id[:12] if ask is not None else bracket.call
    if bracket.tool.asks:
        return f"a question waits for an answer: plait answer {name} …"
    if bracket.unknown is not None:
        return (
            f"nobody knows whether {bracket.tool.name} happened: plait resolve {name}"
            " happened|did-not-happen|compensated"
        )
    return f"{bracket.tool.name} needs consent: plait approve {name}"
