"""Performing the actions of a tool call: one function for each, which writes its events."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Literal, cast

import msgspec

from plait.calls.actions import (
    Action,
    AskAnswerer,
    AskApprover,
    AskPerson,
    AskQuestion,
    Compensate,
    Fail,
    ProbeCall,
    RequestAgain,
    Review,
    TakeAnswer,
    TakeEarlier,
    UseEdited,
)
from plait.calls.tool_call import SERVICE, ToolCallState
from plait.event import Json
from plait.event import kinds as k
from plait.event.kinds import Failure
from plait.runtime import policy
from plait.runtime.appends import Blobs, append_to_call
from plait.runtime.carrying import earlier_draft
from plait.runtime.consent import (
    ONLY_HERE,
    User,
    consent_binding,
    decision_of,
    policy_call,
    refusal_drafts,
    tool_request,
    unknown_parts,
    valid_answer,
)
from plait.runtime.executing import check_held, policies_here
from plait.runtime.policy import Approval, Granted
from plait.runtime.registry import run_of
from plait.runtime.run import Run
from plait.runtime.run_tools import request_again_body
from plait.runtime.waits import Done, Launch, Next, ToolJob, Wait
from plait.secrets import stand_ins
from plait.session import Session
from plait.session.content import contents, pack
from plait.session.ports import Act, Draft
from plait.tool import KEY, SESSION, Happened, WrongArguments


def perform(
    action: Action, call: ToolCallState, session: Session, user: User
) -> Generator[Wait, Any, Session]:
    """Perform one action; the call has been fed with the events that came of it."""
    if isinstance(action, ProbeCall):
        return (yield from _probe(action, call, session))
    if isinstance(action, Compensate):
        return (yield from _compensate(action, call, session))
    if isinstance(action, Review):
        return _review(call, session, action.why)
    if isinstance(action, RequestAgain):
        return _request_again(action, call, session, user)
    if isinstance(action, Fail):
        return _fail(action, call, session, user)
    if isinstance(action, TakeEarlier):
        draft = earlier_draft(call, action.event, session, user.actor)
        return append_to_call(session, call, [draft])
    run = run_of(session)
    assert run is not None, "a person is asked in runs only"
    if isinstance(action, AskPerson):
        return _ask_person(run, call, session, user, action.again)
    if isinstance(action, AskApprover):
        return _ask_approver(run, call, session)
    if isinstance(action, UseEdited):
        return _use_edited(run, call, session, user)
    if isinstance(action, AskQuestion):
        return _ask_question(call, session, user)
    if isinstance(action, AskAnswerer):
        return _ask_answerer(run, call, session)
    assert isinstance(action, TakeAnswer), action
    return _take_answer(call, session, user)


def _fail(action: Fail, call: ToolCallState, session: Session, user: User) -> Session:
    act = Act(user.actor, "program", call=call.id)
    if action.cause is not None:
        act = act._replace(origin="human", causes=(action.cause.id,))
    drafts = [Draft(k.ToolFailed(action.failure), act)]
    ask = call.approval_ask
    if action.expires and ask is not None:
        drafts = [
            Draft(k.ApprovalExpired(ask.binding), Act(SERVICE, "program", call=call.id)),
            Draft(k.ToolFailed(action.failure), act._replace(causes=(0,))),
        ]
    return append_to_call(session, call, drafts)


# ── calls in doubt ───────────────────────────────────────────────────────────────────────────


def _review(call: ToolCallState, session: Session, why: str) -> Session:
    body = k.ToolUnknown(call.request.id, why, call.tool.result_schema)
    return append_to_call(session, call, [Draft(body, Act(SERVICE, "program", call=call.id))])


def _probe(
    action: ProbeCall, call: ToolCallState, session: Session
) -> Generator[Wait, Any, Session]:
    assert call.tool.probe is not None
    done = yield from _run_companion(session, call, call.tool.probe, "probe")
    if done.failure is not None:
        return _review(call, session, f"the probe says nothing: {done.failure.message}")
    if done.value is None:
        return _resolve(session, call, action.why, "did_not_happen", "its probe found nothing", ())
    if not isinstance(done.value, Happened):
        why = "it returned neither Happened nor None"
        return _review(call, session, f"the probe says nothing: {why}")
    parts, blobs = pack(contents(done.value.value), "result")
    return _resolve(session, call, action.why, "happened", "its probe found it", parts, blobs)


def _compensate(
    action: Compensate, call: ToolCallState, session: Session
) -> Generator[Wait, Any, Session]:
    assert call.tool.compensate is not None
    done = yield from _run_companion(session, call, call.tool.compensate, "compensate")
    if done.failure is not None:
        return _review(call, session, f"it could not be undone: {done.failure.message}")
    return _resolve(session, call, action.why, "compensated", "the tool undid it", ())


def _run_companion(
    session: Session, call: ToolCallState, function: Callable[..., Any], name: str
) -> Generator[Wait, Any, Done]:
    """Run the function by which a tool looks for, or undoes, a call of it.

    It gets those arguments that it names, also those that the call left at their defaults.
    """
    wanted = inspect.signature(function).parameters
    own = inspect.signature(call.tool.function).parameters.values()
    defaults = {each.name: each.default for each in own if each.default is not each.empty}
    given = {**defaults, **call.arguments(), KEY: call.key, SESSION: session}
    arguments = {name: given[name] for name in wanted if name in given}
    check = partial(check_held, session)
    tool, id = call.tool.with_function(function), f"{call.id}/{name}"
    batch = yield Launch([[ToolJob(call.number, tool, arguments, id, check=check)]])
    return (yield Next(batch))


def _resolve(
    session: Session,
    call: ToolCallState,
    why: str,
    verdict: Literal["happened", "did_not_happen", "compensated"],
    note: str,
    parts: k.Parts,
    blobs: Blobs | None = None,
) -> Session:
    act = Act(SERVICE, "program", call=call.id)
    origin = call.tool.taints if verdict == "happened" else "program"
    doubt = k.ToolUnknown(call.request.id, why)
    resolved = k.ToolResolved(call.request.id, verdict, parts, note)
    drafts = [Draft(doubt, act), Draft(resolved, act._replace(origin=origin, causes=(0,)))]
    return append_to_call(session, call, drafts, blobs)


def _request_again(
    action: RequestAgain, call: ToolCallState, session: Session, user: User
) -> Session:
    cause = (call.outcome or call.request).id
    act = Act(user.actor, "program", call=call.id, causes=(cause,))
    if action.keeps_consent:
        return append_to_call(session, call, [Draft(request_again_body(call, user), act)])
    body, why = tool_request(session, call.tool, call.given, user, call.reason)
    call.grant = call.denial = call.refusal = None
    body = msgspec.structs.replace(body, attempt=1 if action.is_new else call.attempt + 1)
    refusal = refusal_drafts(session, why, act._replace(causes=(0,)))
    return append_to_call(session, call, [Draft(body, act), *refusal])


# ── consent ──────────────────────────────────────────────────────────────────────────────────


def _ask_person(run: Run, call: ToolCallState, session: Session, user: User, again: str) -> Session:
    """Put the ask on record: it is a row, and its answer comes through the inbox."""
    times = call.times_asked + 1
    asked = policy_call(run, session, call.tool, call.given, user, call.reason)
    asked = msgspec.structs.replace(asked, version=call.tool.version)
    decided = policy.decide(policies_here(run, session), asked)
    shown = cast("dict[str, Any]", policy.shown_call(asked, decided))
    shown = {**shown, **call.tool.consent_details(call.given)}
    if unknown := unknown_parts(run, session, call):
        shown["unsure"] = [ONLY_HERE, *unknown]
    if again:
        shown["again"] = again
    expires = None
    if decided.expires_s is not None:
        expires = run.journal.now(session) + int(decided.expires_s * 1e6)
    binding = consent_binding(run, session, call, call.request, times)
    ask = k.ApprovalRequested(binding, shown, expires, times)
    act = Act(user.actor, "program", call=call.id, causes=(call.request.id,))
    return append_to_call(session, call, [Draft(ask, act)])


def _ask_approver(run: Run, call: ToolCallState, session: Session) -> Session:
    ask = call.approval_ask
    assert run.settings.approver is not None and call.ask is not None and ask is not None
    approval = Approval(session, call.request, ask.shown, ask.binding, ask.expires)
    said, failure = decision_of(run.settings.approver, approval)
    if failure is not None:
        return _fail_for_person(call, session, failure)
    answer = policy.settle_answer(said)
    if ask.expires is not None and run.journal.now(session) > ask.expires:
        return session  # it came too late: it has expired
    act = Act(run.settings.behalf, "human", call=call.id, causes=(call.ask.id,))
    if isinstance(answer, Granted):
        body = k.ApprovalGranted(ask.binding, answer.edited, answer.note)
        return append_to_call(session, call, [Draft(body, act)])
    return append_to_call(session, call, [Draft(k.ApprovalDenied(ask.binding, answer.reason), act)])


def _fail_for_person(call: ToolCallState, session: Session, failure: Failure) -> Session:
    act = Act(SERVICE, "program", call=call.id)
    return append_to_call(session, call, [Draft(k.ToolFailed(failure), act)])


def _use_edited(run: Run, call: ToolCallState, session: Session, user: User) -> Session:
    """Request the call as the person who consented wrote it: that person's own request."""
    assert call.grant is not None
    edited, person, tool = call.edited, call.grant.actor, call.tool
    act = Act(person, "human", call=call.id, causes=(call.grant.id,))
    if hidden := stand_ins(edited):  # the edit is on record, and a secret is not
        why = f"what {person} put in place holds a secret, which is not kept: {', '.join(hidden)}"
        return _ask_person(run, call, session, user, why)
    try:
        tool.arguments(edited)
    except WrongArguments as error:  # no consent is used up by a slip: it is asked for once more
        why = f"what {person} put in place does not fit: {error}"
        return _ask_person(run, call, session, user, why)
    asked = policy_call(run, session, tool, edited, user, call.reason)
    decided = policy.decide(policies_here(run, session), asked)
    if decided.verdict == "refuse":
        because = decided.reason or decided.rule
        why = f"what {person} put in place is not allowed: {because}. It was not run"
        return append_to_call(session, call, [Draft(k.ToolFailed(Failure("Refused", why)), act)])
    body = k.ToolRequested(
        tool.name,
        edited,
        tool.effect,
        tool.version,
        f"corrected by {person}",
        call.policy,
        call.attempt + 1,
        user.path,
        tool.origin,
        "allow",
    )
    return append_to_call(session, call, [Draft(body, act)])


# ── questions ────────────────────────────────────────────────────────────────────────────────


def _question_of(call: ToolCallState) -> tuple[str, tuple[str, ...]]:
    given = call.arguments()
    return str(given["question"]), tuple(given.get("choices", ()))


def _ask_question(call: ToolCallState, session: Session, user: User) -> Session:
    act = Act(user.actor, "program", call=call.id, causes=(call.request.id,))
    return append_to_call(session, call, [Draft(k.QuestionAsked(*_question_of(call)), act)])


def _ask_answerer(run: Run, call: ToolCallState, session: Session) -> Session:
    assert run.settings.answerer is not None and call.ask is not None
    question, choices = _question_of(call)
    act = Act(run.settings.behalf, "human", call=call.id, causes=(call.ask.id,))
    said, failure = decision_of(run.settings.answerer, question, choices)
    if failure is not None:
        return _fail_for_person(call, session, failure)
    answer = valid_answer(cast("Json", said), choices)
    return append_to_call(session, call, [Draft(k.QuestionAnswered(call.ask.id, answer), act)])


def _take_answer(call: ToolCallState, session: Session, user: User) -> Session:
    assert call.answer is not None
    body = call.answer.body
    assert isinstance(body, k.QuestionAnswered)
    answer = body.answer
    part = k.Text(answer) if isinstance(answer, str) and answer else k.Data(answer)
    act = Act(user.actor, "human", call=call.id, causes=(call.answer.id,))
    return append_to_call(session, call, [Draft(k.ToolReturned((part,)), act)])
