"""The line of a step: its verb, its object, and the words that matter most, from its events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from plait.event import Event, Json
from plait.event import kinds as k
from plait.ids import LogId, Micros, short
from plait.outline.records import STATES, TYPES, LogRecord, marks_of
from plait.outline.shapes import SeqRef, StepShape, StepState, StepType
from plait.outline.texts import (
    body_of,
    first_argument,
    first_words,
    is_patch,
    json_text,
    last_words,
    parts_text,
)
from plait.session.event_text import event_text, place_text
from plait.store import Store


class Line(msgspec.Struct):
    """The words of a step in the making."""

    verb: str = ""
    subject: str = ""
    says: str = ""
    path: str = ""
    actor: str = ""
    took_us: int | None = None
    files: tuple[str, ...] = ()
    exit_code: int | None = None
    tokens: int = 0
    cost_usd: float | None = None
    links: tuple[SeqRef, ...] = ()


class StepWords:
    """Makes the lines of the steps of one store. Names of logs are looked up once."""

    def __init__(self, store: Store, name_of: Callable[[LogId], str] = short) -> None:
        self.store = store
        self.name_of = name_of

    def shape(
        self, record: LogRecord, index: int, events: Sequence[Event], is_rewound: bool
    ) -> StepShape:
        """Return a step with its words. `events` are all of its events, in their order."""
        type, state = TYPES[record.types[index]], STATES[record.states[index]]
        line = self._line(type, state, events)
        first = events[0]
        return StepShape(
            index=index,
            log=record.log,
            first=record.firsts[index],
            seq=record.lasts[index],
            events=tuple([event.seq for event in events]),
            type=type,
            state=state,
            verb=line.verb,
            subject=line.subject,
            says=line.says,
            actor=line.actor or first.actor,
            path=line.path or _path_of(line.actor or first.actor),
            time=first.time,
            took_us=line.took_us,
            marks=marks_of(record.marks[index]),
            files=line.files,
            exit_code=line.exit_code,
            tokens=line.tokens,
            cost_usd=line.cost_usd,
            is_rewound=is_rewound,
            links=line.links,
        )

    def _line(self, type: StepType, state: StepState, events: Sequence[Event]) -> Line:
        line = Line()
        read = [(event, body_of(event)) for event in events]
        readable = [(event, body) for event, body in read if body is not None]
        for _, body in readable:
            self._add_cost(line, body)
        if len(readable) < len(read):
            line.says = "(erased or unreadable)"
        if readable:
            _WRITERS.get(type, StepWords.write_note)(self, line, state, readable)
        return line

    def _add_cost(self, line: Line, body: Any) -> None:
        if isinstance(body, (k.ModelReplied, k.ModelFailed)) and body.usage is not None:
            line.tokens += body.usage.input_tokens + body.usage.output_tokens
            if body.price is not None:
                line.cost_usd = (line.cost_usd or 0.0) + body.price.cost_usd_nano / 1e9

    # ── messages, replies, tools ─────────────────────────────────────────────────────────────

    def write_message(self, line: Line, state: StepState, read: _Read) -> None:
        event, body = read[-1]
        if isinstance(body, k.MessageSaid):
            line.actor, line.subject = event.actor, body.name
            line.says = first_words(parts_text(body.parts, self.store))

    def write_reply(self, line: Line, state: StepState, read: _Read) -> None:
        body = read[-1][1]
        if isinstance(body, k.ModelReplied):
            line.says = first_words(parts_text(_spoken(body.parts), self.store))
            line.took_us = body.latency_us or None

    def write_failure(self, line: Line, state: StepState, read: _Read) -> None:
        body = read[-1][1]
        if isinstance(body, k.ModelFailed):
            line.verb, line.subject = "no answer", body.failure.kind
            line.says = first_words(body.failure.message)

    def write_tool(self, line: Line, state: StepState, read: _Read) -> None:
        for event, body in read:
            if isinstance(body, k.ToolRequested):
                line.verb, line.subject = body.tool, first_argument(body.arguments)
                line.path = body.path
                line.actor = line.actor or event.actor
            elif isinstance(body, k.ModelReplied) and body.calls and not line.verb:
                line.verb = body.calls[0].tool
                line.subject = first_argument(body.calls[0].arguments)
            elif isinstance(body, (k.ToolReturned, k.ToolFailed)):
                self._write_outcome(line, body)
            elif isinstance(body, k.ToolUnknown):
                line.says = first_words(f"it may have happened: {body.why}")
            elif isinstance(body, k.ToolResolved):
                self._write_resolution(line, event, body)
            else:
                self._write_word(line, event, body)

    def _write_outcome(self, line: Line, body: k.ToolReturned | k.ToolFailed) -> None:
        line.exit_code, line.took_us = body.exit_code, body.duration_us or None
        line.files = body.trees.changed if body.trees is not None else ()
        if isinstance(body, k.ToolFailed):
            line.says = first_words(body.failure.message)
            return
        text = parts_text(body.parts, self.store)
        line.says = "" if line.files and is_patch(text) else last_words(text)

    def _write_resolution(self, line: Line, event: Event, body: k.ToolResolved) -> None:
        said = parts_text(body.parts, self.store)
        by = f"{body.verdict.replace('_', ' ')}, says {event.actor}"
        line.says = first_words(": ".join(filter(None, [by, body.note or said])))

    def _write_word(self, line: Line, event: Event, body: k.Body) -> None:
        """Write the word of a person about a call; an outcome stands in its place later."""
        if isinstance(body, k.ApprovalRequested):
            line.says = "waits for consent"
        elif isinstance(body, k.ApprovalGranted):
            line.says = f"allowed by {event.actor}"
        elif isinstance(body, k.ApprovalDenied):
            line.says = first_words(f"not allowed by {event.actor}: {body.reason}".rstrip(": "))
        elif isinstance(body, k.ApprovalExpired):
            line.says = "nobody allowed it in time"
        elif isinstance(body, k.QuestionAsked):
            line.says = first_words(body.question)

    # ── people and waits ─────────────────────────────────────────────────────────────────────

    def write_question(self, line: Line, state: StepState, read: _Read) -> None:
        line.verb = "asked"
        for event, body in read:
            if isinstance(body, k.QuestionAsked):
                line.subject = first_words(body.question)
            elif isinstance(body, k.QuestionAnswered):
                line.says = first_words(json_text(body.answer))
                line.took_us = _elapsed(read[0][0], event.time)

    def write_wait(self, line: Line, state: StepState, read: _Read) -> None:
        for event, body in read:
            match body:
                case k.TimerSet():
                    line.verb, line.subject = "waits for", body.event or "a time"
                case k.VerdictAwaited():
                    line.verb, line.subject = "waits for", f"the verdict {body.name}"
                    line.says = first_words(f"of {body.by}" if body.by else body.why)
                case k.TimerFired() | k.VerdictHeard():
                    line.took_us = _elapsed(read[0][0], event.time)
                    line.says = first_words(event_text(event))
                case k.Signalled():
                    line.verb, line.subject = "signalled", body.name
                    line.says = "" if body.value is None else first_words(json_text(body.value))
                case k.GateRequired():
                    line.verb, line.subject = "requires", body.name
                    line.says = f"by {body.by}" if body.by else ""
                case _:
                    pass

    # ── results ──────────────────────────────────────────────────────────────────────────────

    def write_verdict(self, line: Line, state: StepState, read: _Read) -> None:
        body = read[0][1]
        if isinstance(body, k.ValidationRecorded):
            line.verb, line.subject = body.name, "passed" if body.passed else "failed"
            line.says = first_words(_detail_text(body.detail))

    def write_fact(self, line: Line, state: StepState, read: _Read) -> None:
        body = read[0][1]
        if isinstance(body, k.FactRecorded):
            line.verb = {"fact": "fact", "decision": "decided", "finding": "found"}[body.kind]
            line.subject, line.says = body.key, first_words(json_text(body.value))
        elif isinstance(body, k.FactRetracted):
            line.verb, line.subject, line.says = "retracted", body.key, first_words(body.reason)

    def write_pending(self, line: Line, state: StepState, read: _Read) -> None:
        body = read[0][1]
        if isinstance(body, k.PendingAdded):
            line.verb = "to do" if body.kind == "step" else body.kind
            line.subject, line.says = body.key, first_words(body.what)
        elif isinstance(body, k.PendingSettled):
            line.verb, line.subject, line.says = "settled", body.key, first_words(body.outcome)

    def write_route(self, line: Line, state: StepState, read: _Read) -> None:
        line.verb = "chooses"
        body = read[-1][1]
        if isinstance(body, k.RouteSelected):
            line.verb, line.subject, line.says = "chose", body.choice, first_words(body.reason)

    # ── branches ─────────────────────────────────────────────────────────────────────────────

    def write_fork(self, line: Line, state: StepState, read: _Read) -> None:
        body = read[0][1]
        if isinstance(body, k.ForkedFrom):
            line.verb, line.subject = "forked as", body.label or short(read[0][0].log)
            line.says = f"from {self.name_of(body.parent)}@{body.place}"
            line.links = (SeqRef(body.parent, body.place),)

    def write_merge(self, line: Line, state: StepState, read: _Read) -> None:
        body = read[0][1]
        if isinstance(body, k.Merged):
            line.verb = "merged"
            line.subject = ", ".join([self.name_of(place.log) for place in body.branches])
            chosen = ", ".join(body.resolved)
            line.says = first_words(f"chose {chosen}") if chosen else ""
            line.links = tuple([SeqRef(place.log, place.seq) for place in body.branches])

    def write_rewind(self, line: Line, state: StepState, read: _Read) -> None:
        event, body = read[0]
        if isinstance(body, k.Rewound):
            line.verb, line.subject = "rewound to", str(body.to)
            line.says = first_words(body.reason)
            line.links = (SeqRef(event.log, body.to),)

    def write_compaction(self, line: Line, state: StepState, read: _Read) -> None:
        body = read[0][1]
        if isinstance(body, k.ContextCompacted):
            line.verb, line.subject = "put in short", f"events {body.left[0]} to {body.left[1]}"
            line.says = first_words(parts_text(body.summary, self.store))

    def write_placement(self, line: Line, state: StepState, read: _Read) -> None:
        body = read[0][1]
        if isinstance(body, k.PlacementChanged):
            line.verb, line.says = "placed in", place_text(body.placement)

    # ── runs and the rest ────────────────────────────────────────────────────────────────────

    def write_run(self, line: Line, state: StepState, read: _Read) -> None:
        body = read[0][1]
        if isinstance(body, k.RunStarted):
            line.verb, line.subject = "run started", body.workflow.rpartition(":")[2]
        elif isinstance(body, k.RunBranched):
            line.verb, line.subject = "run branched off", body.workflow.rpartition(":")[2]
            line.links = (SeqRef(body.source.log, body.source.seq),)
        else:
            line.verb = first_words(event_text(read[0][0]))

    def write_taken(self, line: Line, state: StepState, read: _Read) -> None:
        body = read[0][1]
        line.verb = "taken up again"
        if isinstance(body, k.RunResumed) and body.claim is not None:
            line.verb, line.subject = "taken by worker", body.claim.worker
            line.says = body.claim.chosen

    def write_end(self, line: Line, state: StepState, read: _Read) -> None:
        for _, body in read:
            match body:
                case k.RunFinished():
                    line.verb = "run finished"
                case k.RunFailed():
                    line.verb, line.subject = "run failed", body.failure.kind
                    line.says = first_words(body.failure.message)
                case k.RunCancelled():
                    line.verb, line.says = "run cancelled", first_words(body.reason)
                case k.CancelRequested():
                    line.verb, line.says = "to be cancelled", first_words(body.reason)
                case _:
                    pass

    def write_memory(self, line: Line, state: StepState, read: _Read) -> None:
        event, body = read[0]
        if isinstance(body, k.MemoryProposed):
            line.verb, line.subject = "memory", f"for the {body.scope}"
            line.says = first_words(parts_text(body.parts, self.store))
        elif isinstance(body, k.MemoryRecalled):
            count = len(body.hits)
            line.verb = "recalled"
            line.subject = f"{count} memor{'y' if count == 1 else 'ies'}"
            line.says = first_words(body.query)
        else:
            line.says = first_words(event_text(event))

    def write_note(self, line: Line, state: StepState, read: _Read) -> None:
        event, body = read[0]
        if isinstance(body, k.EvidenceAttached):
            line.verb, line.subject = "attached", body.name
            line.says = first_words(parts_text(body.parts, self.store))
        elif isinstance(body, k.Linked):
            line.verb, line.subject = "linked", body.system
            line.says = first_words(f"{body.ref} {body.note}")
        else:
            line.says = first_words(event_text(event))


_Read = Sequence[tuple[Event, k.Body]]
_Writer = Callable[[StepWords, Line, StepState, _Read], None]
_WRITERS: dict[StepType, _Writer] = {
    "message": StepWords.write_message,
    "reply": StepWords.write_reply,
    "failure": StepWords.write_failure,
    "tool": StepWords.write_tool,
    "question": StepWords.write_question,
    "wait": StepWords.write_wait,
    "verdict": StepWords.write_verdict,
    "fact": StepWords.write_fact,
    "pending": StepWords.write_pending,
    "route": StepWords.write_route,
    "fork": StepWords.write_fork,
    "merge": StepWords.write_merge,
    "rewind": StepWords.write_rewind,
    "compaction": StepWords.write_compaction,
    "placement": StepWords.write_placement,
    "run": StepWords.write_run,
    "taken": StepWords.write_taken,
    "ended": StepWords.write_end,
    "memory": StepWords.write_memory,
}


def _spoken(parts: k.Parts) -> k.Parts:
    return tuple([part for part in parts if not isinstance(part, k.Reasoning)])


def _path_of(actor: str) -> str:
    """Return the path of the call that an actor is; "": a person, or the program around runs."""
    kind, _, name = actor.partition(":")
    return unquote(name) if kind in ("agent", "service") and name != "plait" else ""


def _elapsed(first: Event, until: Micros) -> int:
    return max(0, until - first.time)


def _detail_text(detail: Json) -> str:
    """Return the words of a verdict's detail: a text, or the reason in it."""
    if isinstance(detail, dict):
        reason: Json = detail.get("reason", "")
        return json_text(reason)
    return "" if detail is None else json_text(detail)
