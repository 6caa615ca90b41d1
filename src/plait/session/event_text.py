"""An event in one line of plain words, for people: a log, a trace, a graph."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import msgspec

from plait.errors import PlaitError
from plait.event import Event, Json
from plait.event import kinds as k
from plait.ids import LogId, short
from plait.session.content import text_of


def event_text(event: Event) -> str:
    """Return one line that tells an event.

    It may quote text of any origin: clean it before it meets a terminal.
    """
    try:
        body = event.body
    except PlaitError as error:
        return f"(unreadable: {error})"
    if isinstance(body, k.HandedOff) and _is_call_below(event, body):
        return f"called {body.to}"
    if isinstance(body, k.CallFinished):
        return f"{unquote(event.actor.partition(':')[2])} {TEXTS[event.kind](body)}"
    text_of_kind = TEXTS.get(event.kind)
    text = text_of_kind(body) if text_of_kind is not None else _other_text(event.kind, body)
    if event.kind in _ABOUT_A_MEMORY and event.header.causes:
        return f"m:{event.header.causes[0][:8]} {text}"
    return text


def _is_call_below(event: Event, body: k.HandedOff) -> bool:
    """Return True if an agent called one below it, such as an agent as a tool: the conversation
    stays with the first one. A model hands off, a program calls.
    """
    path = unquote(event.actor.partition(":")[2])
    return event.header.origin == "program" and body.to.startswith(f"{path}/")


# These name their memory by their first cause.
_ABOUT_A_MEMORY = frozenset(
    kind.__name__
    for kind in (
        k.MemoryCommitted,
        k.MemoryQuarantined,
        k.MemoryRejected,
        k.MemorySupported,
        k.MemorySuperseded,
        k.MemoryRetracted,
        k.MemoryRestored,
    )
)


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _reason_text(text: str) -> str:
    return f": {text}" if text else ""


def _message_text(body: k.MessageSaid) -> str:
    return f"{body.name or body.role}: {_parts_text(body.parts)}"


def _parts_text(parts: k.Parts) -> str:
    said = text_of(
        tuple(
            part
            for part in parts
            if not isinstance(part, (k.Text, k.Data)) or not part.blob or getattr(part, "text", "")
        )
    )
    return said or ("(long text)" if any(part.blob for part in parts) else "")


_VERBS = {"fact": "fact", "decision": "decided", "finding": "found"}


def _fact_text(body: k.FactRecorded) -> str:
    if body.kind == "finding" and isinstance(body.value, str):
        return f"found: {body.value}"
    return f"{_VERBS[body.kind]} {body.key} = {_json(body.value)}{_reason_text(body.reason)}"


def _fork_text(body: k.ForkedFrom) -> str:
    return f"forked from {short(body.parent)}@{body.place}" + (
        f" as {body.label}" if body.label else ""
    )


def _merge_text(body: k.Merged) -> str:
    chosen = f", chose {', '.join(body.resolved)}" if body.resolved else ""
    return (
        "merged " + ", ".join(f"{short(place.log)}@{place.seq}" for place in body.branches) + chosen
    )


def _rewind_text(body: k.Rewound) -> str:
    count = len(body.not_undone)
    left = f", {count:,} effect{'' if count == 1 else 's'} not undone" if count else ""
    return f"rewound to {body.to}{_reason_text(body.reason)}{left}"


def _changes_text(trees: k.Trees | None) -> str:
    if trees is None or trees.before == trees.after:
        return ""
    count = len(trees.changed)
    return f" ({count:,} path{'' if count == 1 else 's'} changed)" if count else " (files changed)"


def place_text(placement: k.Placement) -> str:
    """Return a placement in words."""
    network = f"network {placement.network}" if placement.network else ""
    sandbox = f"sandbox {short_sandbox(placement.sandbox)}" if placement.sandbox else ""
    return ", ".join(filter(None, [placement.backend, placement.rung, network, sandbox]))


def _placement_text(body: k.PlacementChanged) -> str:
    left_out = _left_out(body.placement)
    return (
        f"placed in {place_text(body.placement)}"
        + _replacement_text(body)
        + (f", without {', '.join(left_out)}" if left_out else "")
    )


def _replacement_text(body: k.PlacementChanged) -> str:
    if not body.replaced:
        return ""
    if body.replaced == body.placement.sandbox:
        return ", made anew"  # it was gone, or another user has it
    return f", in the place of {short_sandbox(body.replaced)}"


def _left_out(placement: k.Placement) -> list[str]:
    """Return the heavy folders that the machine does not have."""
    detail = placement.detail if isinstance(placement.detail, dict) else {}
    found = detail.get("left out")
    return [str(name) for name in found] if isinstance(found, list) else []


def short_sandbox(id: str) -> str:
    """Return the short name of a sandbox: the session's short id, if it is called by the session's
    id; names that backends give stay as they are.
    """
    return short(LogId(id[:36])) + id[36:] if _BY_SESSION.match(id) else id


_BY_SESSION = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-| on |\Z)")


def _opening_text(body: k.SessionOpened) -> str:
    how = "opened" if not body.continues else "detached from" if body.detached else "succeeds"
    after = f" {short(body.continues.log)}@{body.continues.seq}" if body.continues else ""
    return f"{how}{after}{_reason_text(body.title)}"


def _rule_text(body: Any) -> str:
    """The rule that decided about a memory, and the reason."""
    by = f" by rule {body.rule}" if body.rule else ""
    return f"{by}{_reason_text(getattr(body, 'reason', ''))}"


def _use_text(body: k.MemoryUsed) -> str:
    if body.by == "citation":
        return "used memories"
    differs = ", ".join(f"{what} in {count}" for what, count in body.differs.items())
    return f"went without a memory {body.runs} times: {f'other {differs}' if differs else 'same'}"


TEXTS: dict[str, Callable[[Any], str]] = {
    "CopyBegun": lambda b: f"began to copy {len(b.logs)} logs from {b.address}",
    "CopyFinished": lambda b: f"copied {len(b.logs)} logs from {b.address}",
    "SessionMoved": lambda b: f"moved to {b.address}",
    "SessionArrived": lambda b: f"arrived from {b.address}",
    "HouseOpened": lambda b: f"opened the log of store {b.store}",
    "SessionOpened": _opening_text,
    "ForkedFrom": _fork_text,
    "Rewound": _rewind_text,
    "Merged": _merge_text,
    "MessageSaid": _message_text,
    "ModelReplied": lambda b: " → ".join(
        filter(None, [f"reply: {_parts_text(b.parts)}".strip(), ", ".join(c.tool for c in b.calls)])
    ),
    "ModelAsked": lambda b: (
        f"asked {b.model}" + (f", attempt {b.attempt}" if b.attempt > 1 else "")
    ),
    "ModelFailed": lambda b: f"no answer: {b.failure.kind}: {b.failure.message}",
    "RunStarted": lambda b: f"run started: {b.workflow.rpartition(':')[2]}",
    "ChangeAccepted": lambda b: (
        f"accepted a changed program from {b.at} on{_reason_text(b.reason)}"
    ),
    "PatchMarked": lambda b: f"patched: {b.name}",
    "RunFinished": lambda b: "run finished",
    "RunFailed": lambda b: f"run failed: {b.failure.kind}: {b.failure.message}",
    "RunCancelled": lambda b: f"run cancelled{_reason_text(b.reason)}",
    "CallStarted": lambda b: (
        f"{b.path} started" + (f" to {b.purpose}" if b.purpose not in (None, "act") else "")
    ),
    "CallFinished": lambda b: "failed: " + b.failure.message if b.failure else "finished",
    "HandedOff": lambda b: (
        f"handed off to {b.to}{_reason_text(b.reason)}" if b.reason else f"followed by {b.to}"
    ),
    "RouteSelected": lambda b: (
        f"chose {b.choice} of {', '.join(b.candidates)}{_reason_text(b.reason)}"
    ),
    "FactRecorded": _fact_text,
    "FactRetracted": lambda b: f"retracted {b.key}{_reason_text(b.reason)}",
    "PendingAdded": lambda b: f"{'to do' if b.kind == 'step' else b.kind}: {b.what}",
    "PendingSettled": lambda b: f"settled {b.key}{_reason_text(b.outcome)}",
    "ScratchSet": lambda b: f"scratch {b.key}",
    "EvidenceAttached": lambda b: f"attached {b.name}: {_parts_text(b.parts)}",
    "ValidationRecorded": lambda b: (
        f"{b.name} {'passed' if b.passed else 'failed'}"
        f"{f': {b.detail}' if isinstance(b.detail, str) else ''}"
    ),
    "GateRequired": lambda b: f"required {b.name}" + (f" by {b.by}" if b.by else ""),
    "Linked": lambda b: f"linked {b.system} {b.ref}{_reason_text(b.note)}",
    "SessionPaused": lambda b: f"paused{_reason_text(b.reason)}",
    "SessionResumed": lambda b: f"unpaused{_reason_text(b.reason)}",
    "SessionClosed": lambda b: f"closed{_reason_text(b.reason)}",
    "SessionArchived": lambda b: f"archived{_reason_text(b.reason)}",
    "ToolRequested": lambda b: f"{b.tool} {_json(b.arguments)}{_reason_text(b.reason)}",
    "ToolReturned": lambda b: f"returned {_parts_text(b.parts)}{_changes_text(b.trees)}",
    "ToolFailed": lambda b: f"failed: {b.failure.message}{_changes_text(b.trees)}",
    "PlacementChanged": _placement_text,
    "ToolUnknown": lambda b: f"nobody knows whether it happened{_reason_text(b.why)}",
    "ToolResolved": lambda b: f"{b.verdict.replace('_', ' ')}{_reason_text(b.note)}",
    "RunResumed": lambda b: (
        f"run taken by worker {b.claim.worker}: {b.claim.chosen}" if b.claim else "run resumed"
    ),
    "RunBranched": lambda b: f"run branched off {short(b.source.log)}@{b.source.seq}",
    "ApprovalRequested": lambda b: f"needs consent{', asked again' if b.asked > 1 else ''}",
    "ApprovalGranted": lambda b: (
        f"allowed{'' if b.edited is None else ', with other arguments ' + _json(b.edited)}"
        f"{_reason_text(b.note)}"
    ),
    "ApprovalDenied": lambda b: f"not allowed{_reason_text(b.reason)}",
    "ApprovalExpired": lambda b: "nobody allowed it in time",
    "QuestionAsked": lambda b: (
        f"asked: {b.question}" + (f" ({', '.join(b.choices)})" if b.choices else "")
    ),
    "QuestionAnswered": lambda b: f"answered: {_json(b.answer)}",
    "Delivered": lambda b: f"heard what stood in its inbox up to {b.upto}",
    "TurnPosted": lambda b: f"turn: {_parts_text(b.parts)}",
    "CancelRequested": lambda b: f"wants it cancelled{_reason_text(b.reason)}",
    "TimerSet": lambda b: (
        f"waits for the limits of {b.limit}"
        if b.limit
        else f"waits for {b.event}"
        if b.event
        else "waits for a time"
    ),
    "TimerFired": lambda b: (
        "the time is over" if b.by == "time" else "what it waited for has happened"
    ),
    "VerdictAwaited": lambda b: f"waits for the verdict {b.name}" + (f" of {b.by}" if b.by else ""),
    "VerdictHeard": lambda b: "does not wait for the verdict any more",
    "Signalled": lambda b: (
        f"signalled {b.name}" + (f" = {_json(b.value)}" if b.value is not None else "")
    ),
    "ContextCompacted": lambda b: (
        f"put events {b.left[0]} to {b.left[1]} in short: {_parts_text(b.summary)}"
    ),
    "BudgetRefused": lambda b: (
        f"the budget does not allow it: {b.why or f'{b.limit}, {b.left:g} left'}"
    ),
    "MemoryProposed": lambda b: f"memory for the {b.scope}: {_parts_text(b.parts)}",
    "MemoryCommitted": lambda b: f"remembered{_rule_text(b)}",
    "MemoryQuarantined": lambda b: f"memory quarantined{_rule_text(b)}",
    "MemoryRejected": lambda b: f"memory rejected{_rule_text(b)}",
    "MemorySupported": lambda b: "memory heard again from elsewhere",
    "MemorySuperseded": lambda b: f"memory replaced{_rule_text(b)}",
    "MemoryRetracted": lambda b: f"forgotten{_rule_text(b)}",
    "MemoryRestored": lambda b: f"remembered again{_rule_text(b)}",
    "MemoryRolledBack": lambda b: f"rolled back {b.about}{_reason_text(b.reason)}",
    "MemoryRecalled": lambda b: (
        f"recalled {len(b.hits)} memor{'y' if len(b.hits) == 1 else 'ies'}: {b.query}"
    ),
    "RecallFailed": lambda b: f"could not recall: {b.failure.kind}: {b.failure.message}",
    "MemoryUsed": _use_text,
    "Bypassed": lambda b: f"around the session: {b.what} {_json(b.detail)}",
    "RunSubmitted": lambda b: (
        "left to the workers of the cluster"
        + (f" that have {', '.join(b.wishes.need)}" if b.wishes.need else "")
    ),
    "JobSubmitted": lambda b: (
        f"job of {len(b.sessions)} runs of {b.run.workflow}, {b.parallelism} at a time"
    ),
    "JobIndexStarted": lambda b: f"index {b.index} started",
    "JobIndexFailed": lambda b: (
        f"index {b.index} failed, for the {b.failures}. time: {b.failure.kind}: {b.failure.message}"
    ),
    "JobIndexEnded": lambda b: f"index {b.index} {b.how}{_reason_text(b.why)}",
    "JobSuspended": lambda b: f"job suspended{_reason_text(b.reason)}",
    "JobResumed": lambda b: f"job resumed{_reason_text(b.reason)}",
    "JobEnded": lambda b: f"job {b.condition}{_reason_text(b.message or b.reason)}",
    "JobExpired": lambda b: "job listed no more: its time to live is over",
    "KeeperSet": lambda b: f"keep {b.replicas} sessions of {b.name} at work: {b.run.workflow}",
    "KeptStarted": lambda b: f"ordinal {b.ordinal} started run {b.round} in {short(b.session)}",
    "KeptEnded": lambda b: f"ordinal {b.ordinal} {b.how}{_reason_text(b.why)}",
    "BudgetSet": lambda b: f"budget {_json(msgspec.to_builtins(b.budget))}",
}


def _other_text(kind: str, body: object) -> str:
    """Tell a kind without words of its own: its name and up to three fields."""
    fields = {name: getattr(body, name) for name in getattr(body, "__struct_fields__", ())}
    brief = [
        f"{name}={value}"
        for name, value in fields.items()
        if isinstance(value, (str, int)) and value not in ("", 0, False)
    ]
    return " ".join([kind, *brief[:3]])
