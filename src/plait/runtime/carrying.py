"""Calls that a changed program asks for again: the new request stands for the old call.

A call is the same if tool and arguments are; the code of the tool may have changed since, which
does not undo the call. Calls that stay within the
workspace are made anew, since the files were set back; so are calls that were certainly not run.
Of all others the outcome is taken over, except where a call may be repeated and was handed the
session, to which it may have written. One that may have happened is settled by its effect class,
under the key that it had; consent holds if its binding does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from plait.calls.tool_call import EarlierCall, ToolCallState
from plait.event import Event
from plait.event import kinds as k
from plait.event.effect_classes import EFFECTS, NOT_RUN
from plait.event.kinds import Carried
from plait.runtime.consent import consent_change
from plait.runtime.run import Run
from plait.session import Session
from plait.session.asks import ask_of, is_answer
from plait.session.inbox import inbox_events
from plait.session.ports import Act, Draft, store_at
from plait.store import Store
from plait.tool import Tool

_LATE = (k.ToolReturned, k.ToolFailed)


def carry_request(
    run: Run | None, session: Session, tool: Tool[..., Any], body: k.ToolRequested
) -> k.ToolRequested:
    """Return a request that is about to be recorded; it names the call that it stands for."""
    if run is None or not run.journal.abandoned or session.run != run.id:
        return body
    if not run.journal.is_live(session):  # as recorded, which is not decided again
        return body
    found = run.journal.abandoned.take(lambda events: _is_same(tool, body, events))
    if found is None:
        return body
    call = _call_of(tool, found)
    return msgspec.structs.replace(body, carries=Carried(found[0].id, call.key))


def _is_same(tool: Tool[..., Any], body: k.ToolRequested, events: Sequence[Event]) -> bool:
    asked = events[0].body
    if not isinstance(asked, k.ToolRequested) or asked.tool != body.tool:
        return False
    if asked.source != body.source or asked.arguments != body.arguments:
        return False
    if not EFFECTS[asked.effect].is_outward and not tool.asks:
        return False
    call = _call_of(tool, events)
    return not (call.is_undone or _was_not_run(call.outcome))


def _was_not_run(outcome: Event | None) -> bool:
    """True if a call was refused, denied or stopped, or was undone by a person."""
    body = outcome.body if outcome is not None else None
    if isinstance(body, k.ToolFailed) and outcome is not None:
        return body.failure.kind in NOT_RUN and outcome.header.origin in ("program", "human")
    return isinstance(body, k.ToolResolved) and body.verdict == "compensated"


def _call_of(tool: Tool[..., Any], events: Sequence[Event]) -> ToolCallState:
    request = events[0]
    call = ToolCallState(0, tool, request.header.call or "", request)
    call.feed(events[1:])
    return call


def earlier_call(run: Run, session: Session, call: ToolCallState) -> EarlierCall | None:
    """Return the call that this one stands for, with answers to it that came to the inbox."""
    body = call.request.body
    assert isinstance(body, k.ToolRequested) and body.carries is not None
    events = run.journal.abandoned.events_of(body.carries.request)
    if not events:
        return None
    store, found = store_at(session.store), _call_of(call.tool, events)
    may_have_begun = found.outcome is None and not found.waits and not found.tool.asks
    found.feed(_late_answers(store, found))
    decision, change = found.answer, consent_change(run, session, found, of=found.first)
    if found.grant is not None and not change:
        decision = found.grant
    outcome = None if _was_not_run(found.outcome) else found.outcome
    if found.tool.takes_session and EFFECTS[found.tool.effect].is_repeatable:
        # it may have written to its session, so it is run again, under the same key
        outcome, may_have_begun = None, True
    return EarlierCall(outcome, decision, may_have_begun, change)


def _late_answers(store: Store, call: ToolCallState) -> list[Event]:
    """Return the events of the inbox that settle a call: decisions, and outcomes that came late."""
    if call.outcome is not None:
        return []
    asks = [ask_of(event) for event in (call.unknown, call.ask) if event is not None]
    return [
        event
        for event in inbox_events(store, call.first.log)
        if any(ask is not None and is_answer(ask, event) for ask in asks)
        or (isinstance(event.body, _LATE) and event.header.call == call.id)
    ]


def earlier_draft(call: ToolCallState, earlier: Event, session: Session, actor: str) -> Draft:
    """Return a decision or an outcome of the call before the change, as one of the call now."""
    body, header = earlier.body, earlier.header
    act = Act(header.actor, header.origin, header.behalf, call.id, (earlier.id,))
    ask, binding = call.ask, call.approval_ask
    if isinstance(body, k.ApprovalGranted) and ask is not None and binding is not None:
        granted = msgspec.structs.replace(body, binding=binding.binding)
        return Draft(granted, act._replace(causes=(ask.id, earlier.id)))
    if isinstance(body, k.QuestionAnswered) and ask is not None:
        answered = msgspec.structs.replace(body, question=ask.id)
        return Draft(answered, act._replace(causes=(ask.id, earlier.id)))
    if isinstance(body, k.ToolResolved):
        return Draft(msgspec.structs.replace(body, request=call.request.id), act)
    assert isinstance(body, (k.ToolReturned, k.ToolFailed)), earlier
    # files that it changed are those of the session only if they were the same before
    is_same = body.trees is not None and body.trees.before == session.files.tree
    trees = body.trees if is_same else None
    outcome = msgspec.structs.replace(body, trees=trees, attempt=call.attempt)
    return Draft(outcome, act._replace(actor=actor))


def earlier_answer(
    run: Run, session: Session, question: str, choices: tuple[str, ...]
) -> Event | None:
    """Return the answer to the same question of the program before it was changed."""
    if not run.journal.abandoned:
        return None
    store, wanted = store_at(session.store), k.QuestionAsked(question, choices)
    events = run.journal.abandoned.take(
        lambda events: events[0].body == wanted and _answer_in(store, events) is not None
    )
    return _answer_in(store, events) if events is not None else None


def _answer_in(store: Store, events: Sequence[Event]) -> Event | None:
    ask = ask_of(events[0])
    answers = [event for event in events if isinstance(event.body, k.QuestionAnswered)]
    late = [
        event
        for event in inbox_events(store, events[0].log)
        if ask is not None and is_answer(ask, event)
    ]
    return next(iter([*answers, *late]), None)
