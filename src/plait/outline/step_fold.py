"""Folding the events of a log into steps: a function for each kind of event.

A step is what a person calls one thing that happened. Calls, asks of models, deliveries and
handoffs are brackets around them, and belong to no step. The events of a tool call share the call
in their headers, so a request, its approval, its attempts and its outcome are one step; so are the
attempts of an ask, and a question and its answer. A reply that says nothing and calls tools belongs
to the step of its first call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from plait.errors import PlaitError
from plait.event import Event
from plait.event import kinds as k
from plait.outline.light import (
    light_message,
)
from plait.outline.records import BRACKET, TYPE_CODES, Merge
from plait.outline.shapes import StepType
from plait.outline.step_calls import (
    SELECTION,
    join_call,
    take_aside,
    take_ask,
    take_decision,
    take_model_failure,
    take_placement,
    take_proposal,
    take_reply,
    take_request,
    take_resolution,
    take_return,
    take_tool_failure,
    take_unknown,
    take_within,
)
from plait.outline.step_rows import (
    APPROVAL,
    COMPACTION,
    DENIED,
    DONE,
    FAIL,
    FAILED,
    FORK,
    KILL,
    LIFE,
    MERGE,
    MESSAGE,
    OPEN,
    PASS,
    REWIND,
    ROUTE,
    TOOL,
    UNKNOWN,
    WAITING,
    StepRows,
)
from plait.session.life import LIFE_KINDS, life_after_event

# keys of open steps that no call names
_OPENING, _CANCEL = "opening", "cancel"


def take_note(rows: StepRows, event: Event) -> None:
    rows.add(event, TYPE_CODES["note"])


# ── the session ──────────────────────────────────────────────────────────────────────────


def take_opening(rows: StepRows, event: Event) -> None:
    rows.record.opened = event.time
    rows.record.open[_OPENING] = rows.add(event, LIFE)


def take_fork(rows: StepRows, event: Event) -> None:
    rows.record.opened = event.time
    rows.record.is_of_run = event.header.run is not None
    rows.add(event, TYPE_CODES["fork"], marks=FORK)


def take_message(rows: StepRows, event: Event) -> None:
    record = rows.record
    if light_message(event).aside:
        take_aside(rows, event)
        return
    record.last_words = record.tip
    opening = record.open.pop(_OPENING, None)
    if opening is not None and record.lasts[opening] == record.tip - 1:
        # a session that is opened with a message: one step
        record.types[opening] = MESSAGE
        rows.join(opening)
    else:
        rows.add(event, MESSAGE)


def take_route(rows: StepRows, event: Event) -> None:
    index = rows.record.open.pop(SELECTION, None)
    if index is None:
        rows.add(event, ROUTE)
    else:
        rows.join(index, DONE)


def take_merge(rows: StepRows, event: Event) -> None:
    body = event.body
    assert isinstance(body, k.Merged)
    branches = tuple([(place.log, place.seq) for place in body.branches])
    covers = {**dict(branches), **body.covers}
    rows.add(event, TYPE_CODES["merge"], marks=MERGE)
    rows.record.merges.append(Merge(rows.record.tip, branches, covers))


def take_rewind(rows: StepRows, event: Event) -> None:
    body = event.body
    assert isinstance(body, k.Rewound)
    rows.add(event, TYPE_CODES["rewind"], marks=REWIND)
    rows.record.rewinds.append((rows.record.tip, body.to))


# ── people, and waits ────────────────────────────────────────────────────────────────────


def take_approval(rows: StepRows, event: Event) -> None:
    join_call(rows, event, _STATES_OF_APPROVALS[event.kind], APPROVAL)


def take_question(rows: StepRows, event: Event) -> None:
    """Take an ask that a later event settles: a question, a timer, a gate."""
    index = rows.open_step(event)
    if index is not None:
        rows.join(index, WAITING)
        return
    type = TYPE_CODES[TYPES_OF_KINDS[event.kind]]
    rows.record.open[event.header.call or event.id] = rows.add(event, type, WAITING)


def take_answer(rows: StepRows, event: Event) -> None:
    body, record = event.body, rows.record
    asked = getattr(body, "question", None) or getattr(body, "awaited", "")
    keys = (event.header.call or "", str(asked))
    key = next((key for key in keys if key in record.open), None)
    if key is None:
        rows.add(event, TYPE_CODES[TYPES_OF_KINDS[event.kind]])
    elif record.types[record.open[key]] == TOOL:
        rows.join(record.open[key], OPEN)
    else:
        rows.join(record.open.pop(key), DONE)


# ── results ──────────────────────────────────────────────────────────────────────────────


def take_plain(rows: StepRows, event: Event) -> None:
    rows.add(event, TYPE_CODES[TYPES_OF_KINDS[event.kind]])


def take_verdict(rows: StepRows, event: Event) -> None:
    body = event.body
    assert isinstance(body, k.ValidationRecorded)
    state, mark = (DONE, PASS) if body.passed else (FAILED, FAIL)
    rows.add(event, TYPE_CODES["verdict"], state, mark)


def take_compaction(rows: StepRows, event: Event) -> None:
    rows.add(event, TYPE_CODES["compaction"], marks=COMPACTION)


def take_refusal(rows: StepRows, event: Event) -> None:
    rows.add(event, TYPE_CODES["budget"], FAILED, FAIL)


# ── runs ─────────────────────────────────────────────────────────────────────────────────


def take_start(rows: StepRows, event: Event) -> None:
    rows.record.workflow = getattr(event.body, "workflow", "") or rows.record.workflow
    rows.add(event, TYPE_CODES["run"])


def take_resume(rows: StepRows, event: Event) -> None:
    body = event.body
    assert isinstance(body, k.RunResumed)
    if body.branch:
        rows.record.owners.append(BRACKET)
        return
    # by its events it was running: so its process had gone
    is_kill = rows.record.life.status == "running"
    rows.add(event, TYPE_CODES["taken"], marks=KILL if is_kill else 0)


def take_change(rows: StepRows, event: Event) -> None:
    body = event.body
    assert isinstance(body, k.ChangeAccepted)
    _give_up(rows, body.at)
    rows.add(event, TYPE_CODES["run"])


def take_cancel(rows: StepRows, event: Event) -> None:
    rows.record.open[_CANCEL] = rows.add(event, TYPE_CODES["ended"], OPEN)


def take_end(rows: StepRows, event: Event) -> None:
    is_failure = event.kind == k.RunFailed.__name__
    state, marks = (FAILED, FAIL) if is_failure else (DONE, 0)
    cancel = rows.record.open.pop(_CANCEL, None)
    if cancel is not None:
        rows.record.states[cancel] = DONE
    _give_up(rows, 0)
    if cancel is not None and event.kind == k.RunCancelled.__name__:
        rows.join(cancel, state)
    else:
        rows.add(event, TYPE_CODES["ended"], state, marks)


def _give_up(rows: StepRows, first: int) -> None:
    """Settle the steps from a place on that are open: their run is over, or goes another way.
    A call may be tried again by a resumed run, so calls stay among the open steps.
    """
    record = rows.record
    for key, index in list(record.open.items()):
        if record.firsts[index] < first:
            continue
        is_tool = record.types[index] == TOOL
        if record.states[index] == WAITING:
            record.states[index] = DENIED if is_tool else FAILED
        elif record.states[index] == OPEN:
            record.states[index] = UNKNOWN if is_tool else FAILED
        else:
            continue
        rows.changed.add(index)
        if not is_tool:
            del record.open[key]


_STATES_OF_APPROVALS = {
    k.ApprovalRequested.__name__: WAITING,
    k.ApprovalGranted.__name__: OPEN,
    k.ApprovalDenied.__name__: DENIED,
    k.ApprovalExpired.__name__: DENIED,
}
_OUTCOMES = frozenset(kind.__name__ for kind in (k.ToolReturned, k.ToolFailed, k.ToolResolved))

_Handler = Callable[[StepRows, Event], None]
_ROWS: tuple[tuple[StepType, _Handler | None, tuple[type[k.Body], ...]], ...] = (
    ("life", take_opening, (k.SessionOpened,)),
    (
        "life",
        take_plain,
        (
            k.SessionPaused,
            k.SessionResumed,
            k.SessionClosed,
            k.SessionArchived,
            k.SessionMoved,
            k.SessionArrived,
        ),
    ),
    ("fork", take_fork, (k.ForkedFrom,)),
    ("merge", take_merge, (k.Merged,)),
    ("rewind", take_rewind, (k.Rewound,)),
    ("message", take_message, (k.MessageSaid,)),
    ("reply", take_reply, (k.ModelReplied,)),
    ("failure", take_model_failure, (k.ModelFailed,)),
    ("tool", take_request, (k.ToolRequested,)),
    ("tool", take_return, (k.ToolReturned,)),
    ("tool", take_tool_failure, (k.ToolFailed,)),
    ("tool", take_unknown, (k.ToolUnknown,)),
    ("tool", take_resolution, (k.ToolResolved,)),
    (
        "tool",
        take_approval,
        (k.ApprovalRequested, k.ApprovalGranted, k.ApprovalDenied, k.ApprovalExpired),
    ),
    ("question", take_question, (k.QuestionAsked,)),
    ("question", take_answer, (k.QuestionAnswered,)),
    ("wait", take_question, (k.TimerSet, k.VerdictAwaited)),
    ("wait", take_answer, (k.TimerFired, k.VerdictHeard)),
    ("wait", take_plain, (k.Signalled, k.GateRequired)),
    ("verdict", take_verdict, (k.ValidationRecorded,)),
    ("fact", take_plain, (k.FactRecorded, k.FactRetracted)),
    ("pending", take_plain, (k.PendingAdded, k.PendingSettled)),
    ("route", take_route, (k.RouteSelected,)),
    ("compaction", take_compaction, (k.ContextCompacted,)),
    ("placement", take_placement, (k.PlacementChanged,)),
    ("run", take_start, (k.RunStarted, k.RunBranched)),
    ("run", take_plain, (k.RunSubmitted,)),
    ("run", take_change, (k.ChangeAccepted,)),
    ("taken", take_resume, (k.RunResumed,)),
    ("ended", take_cancel, (k.CancelRequested,)),
    ("ended", take_end, (k.RunFinished, k.RunFailed, k.RunCancelled)),
    ("budget", take_plain, (k.BudgetSet,)),
    ("budget", take_refusal, (k.BudgetRefused,)),
    ("bypass", take_within, (k.Bypassed,)),
    ("memory", take_proposal, (k.MemoryProposed,)),
    (
        "memory",
        take_decision,
        (
            k.MemoryCommitted,
            k.MemoryQuarantined,
            k.MemoryRejected,
            k.MemorySupported,
            k.MemorySuperseded,
        ),
    ),
    (
        "memory",
        take_within,
        (
            k.MemoryRetracted,
            k.MemoryRestored,
            k.MemoryRolledBack,
            k.MemoryExpired,
            k.MemoryRecalled,
            k.RecallFailed,
            k.MemoryUsed,
        ),
    ),
    ("note", take_ask, (k.ModelAsked,)),
    ("note", None, (k.CallStarted, k.CallFinished, k.HandedOff, k.Delivered, k.PatchMarked)),
)
_HANDLERS = {kind.__name__: handler for _, handler, kinds in _ROWS for kind in kinds}
TYPES_OF_KINDS: dict[str, StepType] = {
    kind.__name__: type for type, _, kinds in _ROWS for kind in kinds
}
BRACKETS = frozenset(
    kind.__name__
    for kind in (
        k.CallStarted,
        k.CallFinished,
        k.ModelAsked,
        k.HandedOff,
        k.Delivered,
        k.PatchMarked,
    )
)


class StepFold(StepRows):
    """Folds the own events of one log, one after another, into its record."""

    def take(self, event: Event) -> None:
        """Fold the next event of the log."""
        record, kind = self.record, event.kind
        handler = _HANDLERS.get(kind, take_note)
        record.tip += 1
        if handler is not None:
            try:
                handler(self, event)
            except PlaitError:  # erased, damaged, or of a newer Plait
                _take_unreadable(self, event)
        else:
            record.owners.append(BRACKET)
        if kind in LIFE_KINDS:
            try:
                record.life = life_after_event(record.life, event)
            except PlaitError:
                pass

    def take_all(self, events: Iterable[Event]) -> None:
        """Fold the next events of the log, and note the last one as its head."""
        last: Event | None = None
        for event in events:
            self.take(event)
            last = event
        if last is not None:
            self.record.head, self.record.updated = last.id, last.time


def _take_unreadable(rows: StepRows, event: Event) -> None:
    """Take an event by its header alone."""
    record = rows.record
    del record.owners[record.tip - record.place - 1 :]
    try:
        index = rows.open_step(event)
    except PlaitError:  # the header is damaged, too
        record.owners.append(BRACKET)
        return
    if index is not None:
        rows.join(index, DONE if event.kind in _OUTCOMES else None)
    else:
        rows.add(event, TYPE_CODES[TYPES_OF_KINDS.get(event.kind, "note")])
