"""Consent to tool calls: the decision of the policies, the digest that an ask is bound to, and the
differences that void it.

Whether a call still needs consent is decided in `calls/tool_call.py`; approvals come in at safe
points (`safe_points.py`). A request is on record before a person is asked about it, and the ask is
bound by a digest to exactly that request: another tool, version, argument or policy is another ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from plait.calls.tool_call import APPROVER_FAILED, EFFECT_UNKNOWN, ToolCallState
from plait.errors import InvalidValue
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.kinds import Failure
from plait.ids import Digest, LogId
from plait.inside import allow_decisions, ends_run
from plait.runtime import policy
from plait.runtime.executing import policies_here
from plait.runtime.failures import text_of_error, traceback_of
from plait.runtime.policy_values import plain_json
from plait.runtime.registry import run_of
from plait.runtime.run import Run
from plait.runtime.spend import afford_tool, refusal_of
from plait.session import Session
from plait.session.origins import origins_before
from plait.session.ports import Act, Draft, store_at
from plait.tool import Tool


class User(NamedTuple):
    """The principal that uses a tool, and the path of the call that does."""

    actor: str
    path: str


# ── what the policies say ────────────────────────────────────────────────────────────────────


def tool_request(
    session: Session,
    tool: Tool[..., Any],
    arguments: Json,
    user: User,
    reason: str = "",
    because: Act | None = None,
) -> tuple[k.ToolRequested, Failure | None]:
    """Return the request as it is recorded, with the decision of the policies; and why it is not
    run, if it is not.

    `because` is the act of a program that asks: the origins of its causes count as seen, too.
    """
    run = run_of(session)
    tool, unclassed = _classed_tool(session, tool, arguments)
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
    if not policies or (run is not None and not run.journal.is_live(session)):
        return body, unclassed
    if unclassed is not None:  # the rules go by the class
        return body, unclassed
    decided = policy.decide(
        policies, policy_call(run, session, tool, arguments, user, reason, because)
    )
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


def _classed_tool(
    session: Session, tool: Tool[..., Any], arguments: Json
) -> tuple[Tool[..., Any], Failure | None]:
    """Return the tool as of the class of this very call; and why it is not run, if its `effect_of`
    cannot say the class.
    """
    if not tool.varies_by_call:
        return tool, None
    try:
        return tool.with_effect(tool.effect_in(session.files.placement, arguments)), None
    except BaseException as error:  # of any class: it is code of the tool
        if ends_run(error):
            raise
        why = f"not run: effect_of raised {type(error).__name__}: {text_of_error(error)}"
        return tool, Failure(EFFECT_UNKNOWN, why, traceback_of(error))


def refusal_drafts(
    session: Session, why: Failure | None, act: Act, *, of_request: bool = False
) -> list[Draft]:
    """Return the drafts that say why a request is not run: it fails, or the budget does not allow
    it. Return [] if it is run.

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


def policy_call(
    run: Run | None,
    session: Session,
    tool: Tool[..., Any],
    arguments: Json,
    user: User,
    reason: str,
    because: Act | None = None,
) -> policy.Call:
    seen = session.lineage.origins
    if because is not None:
        causes = [cause for cause in because.causes if isinstance(cause, str)]
        store = store_at(session.store)
        seen = seen.union([because.origin], *(origins_before(store, cause) for cause in causes))
    behalf, version = run.settings.behalf if run is not None else None, tool.noted_version
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


# ── when consent counts ──────────────────────────────────────────────────────────────────────

ONLY_HERE = (
    "consent counts only in the process that asks, since what would run cannot be read whole. "
    "Resume with an approver at hand, or give the tool a version: @tool(version=…)"
)


def consent_change(
    run: Run, session: Session, call: ToolCallState, *, of: Event | None = None
) -> str:
    """Return the change of tool or policy since consent was asked for; "" if there is none.

    After a change the call is judged, and asked for, anew. `of`: a request in the log that consent
    was asked for in, if it is another one than the session's.
    """
    asked = call.ask.body if call.ask is not None else None
    if (
        call.outcome is not None
        or not isinstance(asked, k.ApprovalRequested)
        or call.asked_for is None
    ):
        return ""
    request = call.asked_for.body
    assert isinstance(request, k.ToolRequested)
    if policy.digest_of(policies_here(run, session)) != request.policy:
        return "it is judged by another policy than when it was asked for"
    if call.tool.version != request.version:
        return f"{call.tool.name} has changed since it was asked for"
    log = of.log if of is not None else session.id
    if consent_binding(run, session, call, call.asked_for, asked.asked, log) == asked.binding:
        return ""
    unknown = unknown_parts(run, session, call)
    return (
        f"it was asked for in another process, and counts only there: {'; '.join(unknown)}"
        if unknown
        else "it has changed"
    )


def unknown_parts(run: Run, session: Session, call: ToolCallState) -> tuple[str, ...]:
    """Return the parts of a tool and its policies that their versions do not cover."""
    return (*call.tool.fingerprint.unknown, *policy.unknown_of(policies_here(run, session)))


def consent_binding(
    run: Run,
    session: Session,
    call: ToolCallState,
    request: Event,
    times: int,
    log: LogId | None = None,
) -> Digest:
    tool, body = call.tool, request.body
    assert isinstance(body, k.ToolRequested)
    process = run.journal.writer.process(session.store) if unknown_parts(run, session, call) else ""
    return policy.binding(
        log or session.id,
        request.seq,
        tool.name,
        tool.version,
        body.arguments,
        body.policy,
        times,
        process,
    )


# ── people ───────────────────────────────────────────────────────────────────────────────────


def decision_of(person: Callable[..., object], *asked: Any) -> tuple[object, Failure | None]:
    """Ask an approver or answerer.

    An `Exception` that it raises is the run's error; a BaseException fails this call alone.
    """
    try:
        with allow_decisions():
            return person(*asked), None
    except Exception:
        raise
    except BaseException as error:
        if ends_run(error):
            raise
        why = f"who was asked raised {type(error).__name__}: {text_of_error(error)}"
        return None, Failure(APPROVER_FAILED, why, traceback_of(error))


def valid_answer(answer: Json, choices: Sequence[str]) -> Json:
    """Return an answer as it is recorded; raise if it is not among the choices."""
    if choices and answer not in choices:
        raise InvalidValue(
            "answerer",
            f"{str(answer)[:80]!r} is not among the choices",
            f"answer with one of {', '.join(choices)}",
        )
    return plain_json(answer, "answerer")
