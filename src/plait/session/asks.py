"""The asks that a session waits for, and the events that end the wait.

An ask is an event in the session's own log: an approval or an answer is requested, the outcome of
an effect is not known, a timer is set. It ends there, too, or with its run. Others answer in the
inbox, and an answer counts only if it comes in time, and neither from an agent nor from the one
that asks. The value, the rows of the store and the run share these rules; the run applies them once
more when an answer is delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from plait.event import Event
from plait.event.kinds import (
    ApprovalDenied,
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRequested,
    Body,
    ChangeAccepted,
    QuestionAnswered,
    QuestionAsked,
    RunCancelled,
    RunFailed,
    RunFinished,
    SessionArchived,
    SessionClosed,
    Signalled,
    TimerFired,
    TimerSet,
    ToolResolved,
    ToolUnknown,
    ValidationRecorded,
    VerdictAwaited,
    VerdictHeard,
)
from plait.ids import Digest, LogId, Micros, inbox_of
from plait.session.gates import is_judge
from plait.session.views import Waiting


def _names(*kinds: type[Body]) -> frozenset[str]:
    return frozenset(kind.__name__ for kind in kinds)


ASKS = _names(ApprovalRequested, QuestionAsked, ToolUnknown, TimerSet, VerdictAwaited)
ANSWERS = _names(ApprovalGranted, ApprovalDenied, QuestionAnswered, ToolResolved)
SETTLES = ANSWERS | _names(ApprovalExpired, TimerFired, VerdictHeard)  # in the session's own log
RUN_ENDS = _names(RunFinished, RunFailed, RunCancelled)
ENDS = RUN_ENDS | _names(SessionClosed, SessionArchived)  # nothing waits after these
LIFE_OF_ASKS = ASKS | SETTLES | ENDS | _names(ChangeAccepted)


def ask_of(event: Event) -> Waiting | None:
    """Return the ask that an event makes. None: it makes none.

    The tool and arguments of an unknown outcome stand in its request.
    """
    if event.kind not in ASKS:
        return None
    body, header = event.body, event.header
    known: dict[str, Any] = {
        "event": event.id,
        "log": event.log,
        "seq": event.seq,
        "since": header.time,
        "actor": header.actor,
        "behalf": header.behalf,
        "run": header.run,
        "call": header.call or "",
    }
    if isinstance(body, ApprovalRequested):
        return Waiting(
            "approval", binding=body.binding, shown=body.shown, expires=body.expires, **known
        )
    if isinstance(body, QuestionAsked):
        return Waiting("question", question=body.question, choices=body.choices, **known)
    if isinstance(body, ToolUnknown):
        return Waiting("unknown", request=body.request, why=body.why, returns=body.returns, **known)
    if isinstance(body, VerdictAwaited):
        about = body.session or event.log
        return Waiting(
            "verdict", name=body.name, by=body.by, why=body.why, of=about, heard=body.heard, **known
        )
    assert isinstance(body, TimerSet)
    return Waiting("timer", until=body.until, name=body.event, **known)


def is_about(ask: Waiting, event: Event) -> bool:
    """Return True if an event, in the session's own log or in its inbox, names this ask."""
    if event.kind not in SETTLES:
        return False
    if event.log == ask.log and (event.header.call or "", event.header.run) != (ask.call, ask.run):
        # a delivery that does not count, or an event of another writer: the run ignores both
        return False
    body = event.body
    # The same call may be asked for again under the same name: an answer to the first ask is none
    # to the second.
    asked = event.header.causes
    this = event.log == ask.log or not asked or ask.event in asked
    if isinstance(body, (ApprovalGranted, ApprovalDenied, ApprovalExpired)):
        return ask.kind == "approval" and body.binding == ask.binding and this
    if isinstance(body, QuestionAnswered):
        return ask.kind == "question" and body.question == ask.event
    if isinstance(body, ToolResolved):
        return ask.kind == "unknown" and body.request == ask.request and this
    if isinstance(body, VerdictHeard):
        return body.awaited == ask.event
    return ask.kind == "timer" and ask.call == (event.header.call or "")


def is_answer(ask: Waiting, event: Event) -> bool:
    """Return True if an event of the inbox is a valid answer to this ask."""
    if ask.kind == "verdict":
        return is_awaited_verdict(ask, event)
    return (
        event.kind in ANSWERS
        and is_about(ask, event)
        and refusal_reason(ask, event.actor) is None
        and not is_late(ask, event.header.time)
    )


def is_awaited_verdict(ask: Waiting, event: Event) -> bool:
    """Return True if an event is the verdict that a gate waits for: new, passed, and by the judge
    that the gate names.
    """
    body = event.body if event.kind == ValidationRecorded.__name__ else None
    if not isinstance(body, ValidationRecorded) or body.name != ask.name or not body.passed:
        return False
    return is_verdict_for(ask, event.log, event.seq, event.actor, body.by)


def is_verdict_for(ask: Waiting, log: LogId, seq: int, actor: str, by: Sequence[str]) -> bool:
    """Return True if a passing verdict at this place is new to a gate, and by its judge."""
    about = ask.of or ask.log
    if log == inbox_of(about):
        is_new = seq > ask.heard
    else:
        is_new = log == about and (about != ask.log or seq > ask.seq)
    return is_new and is_judge(ask.by, actor, by)


def ends_wait(ask: Waiting, event: Event) -> bool:
    """Return True if an event of the inbox ends this wait: an answer, or the signal that a timer
    waits for.
    """
    body = event.body if event.kind == Signalled.__name__ else None
    if isinstance(body, Signalled):
        return ask.kind == "timer" and ask.name != "" and body.name == ask.name
    return is_answer(ask, event)


def is_abandoned(ask: Waiting, change: ChangeAccepted) -> bool:
    """Return True if an ask of the same log belongs to steps that a changed program left behind."""
    return ask.seq >= change.at and (ask.run or "").partition("/")[0] == change.run


def _change_in(event: Event) -> Body | None:
    return event.body if event.kind == ChangeAccepted.__name__ else None


def refusal_reason(ask: Waiting, actor: str) -> str | None:
    """Return the reason why this principal may not answer. None: it may."""
    if actor.partition(":")[0] == "agent":
        return "an agent does not decide for people"
    return (
        "whoever asks does not answer"
        if actor.partition(":")[2] == ask.actor.partition(":")[2]
        else None
    )


def is_late(ask: Waiting, time: Micros) -> bool:
    return ask.expires is not None and time > ask.expires


def open_asks(events: Iterable[Event]) -> dict[Digest, Waiting]:
    """Return the asks that events of one log, in their order, leave open, by the asking event."""
    found: dict[Digest, Waiting] = {}
    for event in events:
        if event.kind in ENDS:
            found.clear()
        elif isinstance(body := _change_in(event), ChangeAccepted):
            found = {id: ask for id, ask in found.items() if not is_abandoned(ask, body)}
        elif (ask := ask_of(event)) is not None:
            found[ask.event] = ask
        elif event.kind in SETTLES:
            found = {id: ask for id, ask in found.items() if not is_about(ask, event)}
    return found
