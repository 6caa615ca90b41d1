"""An event in one line of plain words, for people: a log, a trace, a graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from plait.errors import PlaitError
from plait.event import Event, Json
from plait.event import kinds as k
from plait.ids import LogId, short
from plait.session.content import text_of


def saying(event: Event) -> str:
    """What the event says.

    Text in it comes from wherever the event came from: clean it before it meets a terminal.
    """
    try:
        body = event.body
    except PlaitError as error:
        return f"(unreadable: {error})"
    say = _SAYINGS.get(event.kind)
    return say(body) if say is not None else _plain(event.kind, body)


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _because(text: str) -> str:
    return f": {text}" if text else ""


def _said(body: k.MessageSaid) -> str:
    return f"{body.name or body.role}: {_text(body.parts)}"


def _text(parts: k.Parts) -> str:
    said = text_of(
        tuple(
            part
            for part in parts
            if not isinstance(part, (k.Text, k.Data)) or not part.blob or getattr(part, "text", "")
        )
    )
    return said or ("(long text)" if any(part.blob for part in parts) else "")


_VERBS = {"fact": "fact", "decision": "decided", "finding": "found"}


def _fact(body: k.FactRecorded) -> str:
    if body.kind == "finding" and isinstance(body.value, str):
        return f"found: {body.value}"
    return f"{_VERBS[body.kind]} {body.key} = {_json(body.value)}{_because(body.reason)}"


def _forked(body: k.ForkedFrom) -> str:
    return f"forked from {short(body.parent)}@{body.place}" + (
        f" as {body.label}" if body.label else ""
    )


def _merged(body: k.Merged) -> str:
    chosen = f", chose {', '.join(body.resolved)}" if body.resolved else ""
    return (
        "merged " + ", ".join(f"{short(place.log)}@{place.seq}" for place in body.branches) + chosen
    )


def _rewound(body: k.Rewound) -> str:
    count = len(body.not_undone)
    left = f", {count:,} effect{'' if count == 1 else 's'} not undone" if count else ""
    return f"rewound to {body.to}{_because(body.reason)}{left}"


def _changed(trees: k.Trees | None) -> str:
    if trees is None or trees.before == trees.after:
        return ""
    count = len(trees.changed)
    return f" ({count:,} path{'' if count == 1 else 's'} changed)" if count else " (files changed)"


def place_text(placement: k.Placement) -> str:
    """Where tools run, in words."""
    network = f"network {placement.network}" if placement.network else ""
    sandbox = f"sandbox {short_sandbox(placement.sandbox)}" if placement.sandbox else ""
    return ", ".join(filter(None, [placement.backend, placement.rung, network, sandbox]))


def _placed(body: k.PlacementChanged) -> str:
    return f"placed in {place_text(body.placement)}" + (
        f", in the place of {short_sandbox(body.replaced)}" if body.replaced else ""
    )


def short_sandbox(id: str) -> str:
    """A sandbox that is called by its session's id is told as sessions are; names that backends
    give stay as they are.
    """
    return short(LogId(id[:36])) + id[36:] if _BY_SESSION.match(id) else id


_BY_SESSION = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-|\Z)")


def _opened(body: k.SessionOpened) -> str:
    how = "opened" if not body.continues else "detached from" if body.detached else "succeeds"
    after = f" {short(body.continues.log)}@{body.continues.seq}" if body.continues else ""
    return f"{how}{after}{_because(body.title)}"


_SAYINGS: dict[str, Callable[[Any], str]] = {
    "SessionOpened": _opened,
    "ForkedFrom": _forked,
    "Rewound": _rewound,
    "Merged": _merged,
    "MessageSaid": _said,
    "ModelReplied": lambda b: " → ".join(
        filter(None, [f"reply: {_text(b.parts)}".strip(), ", ".join(c.tool for c in b.calls)])
    ),
    "ModelAsked": lambda b: (
        f"asked {b.model}" + (f", attempt {b.attempt}" if b.attempt > 1 else "")
    ),
    "ModelFailed": lambda b: f"no answer: {b.failure.kind}: {b.failure.message}",
    "RunStarted": lambda b: f"run started: {b.workflow.rpartition(':')[2]}",
    "RunFinished": lambda b: "run finished",
    "RunFailed": lambda b: f"run failed: {b.failure.kind}: {b.failure.message}",
    "RunCancelled": lambda b: f"run cancelled{_because(b.reason)}",
    "CallStarted": lambda b: (
        f"{b.path} started" + (f" to {b.purpose}" if b.purpose not in (None, "act") else "")
    ),
    "CallFinished": lambda b: "failed: " + b.failure.message if b.failure else "finished",
    "HandedOff": lambda b: f"handed off to {b.to}{_because(b.reason)}",
    "RouteSelected": lambda b: f"chose {b.choice} of {', '.join(b.candidates)}{_because(b.reason)}",
    "FactRecorded": _fact,
    "FactRetracted": lambda b: f"retracted {b.key}{_because(b.reason)}",
    "PendingAdded": lambda b: f"{'to do' if b.kind == 'step' else b.kind}: {b.what}",
    "PendingSettled": lambda b: f"settled {b.key}{_because(b.outcome)}",
    "ScratchSet": lambda b: f"scratch {b.key}",
    "EvidenceAttached": lambda b: f"attached {b.name}: {_text(b.parts)}",
    "ValidationRecorded": lambda b: f"{b.name} {'passed' if b.passed else 'failed'}",
    "GateRequired": lambda b: f"required {b.name}" + (f" by {b.by}" if b.by else ""),
    "Linked": lambda b: f"linked {b.system} {b.ref}{_because(b.note)}",
    "SessionPaused": lambda b: f"paused{_because(b.reason)}",
    "SessionResumed": lambda b: f"unpaused{_because(b.reason)}",
    "SessionClosed": lambda b: f"closed{_because(b.reason)}",
    "SessionArchived": lambda b: f"archived{_because(b.reason)}",
    "ToolRequested": lambda b: f"{b.tool} {_json(b.arguments)}{_because(b.reason)}",
    "ToolReturned": lambda b: f"returned {_text(b.parts)}{_changed(b.trees)}",
    "ToolFailed": lambda b: f"failed: {b.failure.message}{_changed(b.trees)}",
    "PlacementChanged": _placed,
    "ToolUnknown": lambda b: f"nobody knows whether it happened{_because(b.why)}",
    "ToolResolved": lambda b: f"{b.verdict.replace('_', ' ')}{_because(b.note)}",
    "RunResumed": lambda b: "run resumed",
    "RunBranched": lambda b: f"run branched off {short(b.source.log)}@{b.source.seq}",
    "ApprovalRequested": lambda b: f"needs consent{', asked again' if b.asked > 1 else ''}",
    "ApprovalGranted": lambda b: (
        f"allowed{'' if b.edited is None else ', with other arguments ' + _json(b.edited)}"
        f"{_because(b.note)}"
    ),
    "ApprovalDenied": lambda b: f"not allowed{_because(b.reason)}",
    "ApprovalExpired": lambda b: "nobody allowed it in time",
    "QuestionAsked": lambda b: (
        f"asked: {b.question}" + (f" ({', '.join(b.choices)})" if b.choices else "")
    ),
    "QuestionAnswered": lambda b: f"answered: {_json(b.answer)}",
    "Delivered": lambda b: f"heard what stood in its inbox up to {b.upto}",
    "CancelRequested": lambda b: f"wants it cancelled{_because(b.reason)}",
    "TimerSet": lambda b: f"waits for {b.event}" if b.event else "waits for a time",
    "TimerFired": lambda b: (
        "the time is over" if b.by == "time" else "what it waited for has happened"
    ),
    "VerdictAwaited": lambda b: f"waits for the verdict {b.name}" + (f" of {b.by}" if b.by else ""),
    "VerdictHeard": lambda b: "does not wait for the verdict any more",
    "Signalled": lambda b: (
        f"signalled {b.name}" + (f" = {_json(b.value)}" if b.value is not None else "")
    ),
    "ContextCompacted": lambda b: (
        f"put events {b.left[0]} to {b.left[1]} in short: {_text(b.summary)}"
    ),
    "BudgetRefused": lambda b: (
        f"the budget does not allow it: {b.why or f'{b.limit}, {b.left:g} left'}"
    ),
    "Bypassed": lambda b: f"around the session: {b.what} {_json(b.detail)}",
    "BudgetSet": lambda b: f"budget {_json(msgspec.to_builtins(b.budget))}",
}


def _plain(kind: str, body: object) -> str:
    """For kinds without words of their own: the name and the first fields that are short."""
    fields = {name: getattr(body, name) for name in getattr(body, "__struct_fields__", ())}
    brief = [
        f"{name}={value}"
        for name, value in fields.items()
        if isinstance(value, (str, int)) and value not in ("", 0, False)
    ]
    return " ".join([kind, *brief[:3]])
