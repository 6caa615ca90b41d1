"""A step in full: what its panel shows, from the events of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from plait.errors import InvalidValue, PlaitError
from plait.event import Event
from plait.event import kinds as k
from plait.ids import Digest, LogId
from plait.outline.outlines import Outlines
from plait.outline.shapes import (
    ApprovalShape,
    AttemptShape,
    PartShape,
    StepDetail,
    StepShape,
    StepState,
)
from plait.outline.spent import SpentCount
from plait.outline.steps import read_events, step_shapes
from plait.outline.texts import body_of
from plait.session.asks import ASKS
from plait.session.event_text import place_text
from plait.store import Store

TEXT_MAX = 64 * 1024  # characters of one part; its blob has the rest


def step_detail(outlines: Outlines, log: LogId, seq: int) -> StepDetail:
    """Return the step that holds an event of a log; of a bracket, the step before it."""
    record = outlines.record(log)
    index = record.step_of(seq)
    if not record.place < seq <= record.tip or index < 0:
        raise InvalidValue(
            "seq",
            f"event {seq} is none of this log's own",
            f"ask for one from {record.place + 1} to {record.tip}",
        )
    return step_details(outlines, log, [index])[0]


def step_details(outlines: Outlines, log: LogId, indexes: Sequence[int]) -> list[StepDetail]:
    """Return these steps of a log in full."""
    record = outlines.record(log)
    steps = step_shapes(outlines, record, indexes)
    events = read_events(outlines, record, [seq for step in steps for seq in step.events])
    found = list[StepDetail]()
    for step in steps:
        detail = _DetailFold(outlines.store, step)
        for seq in step.events:
            if (body := body_of(events[seq])) is not None:
                detail.take(events[seq], body)
        found.append(detail.shape(outlines.name_of(log)))
    return found


class _DetailFold:
    """The details of a step in the making."""

    def __init__(self, store: Store, step: StepShape) -> None:
        self._store, self._step = store, step
        self._known: dict[str, Any] = {"fields": {}}
        self._attempts: list[AttemptShape] = []
        self._approvals: list[ApprovalShape] = []
        self._usage: SpentCount | None = None
        self._request: Event | None = None  # of the attempt under way
        self._key: Digest | None = None

    def shape(self, branch: str) -> StepDetail:
        attempts = self._attempts
        if self._request is not None:
            attempts.append(self._attempt(self._request, _open_state(self._step.state), ""))
        return StepDetail(
            step=self._step,
            branch=branch,
            idempotency_key=self._key or "",
            attempts=tuple(attempts),
            approvals=tuple(self._approvals),
            usage=self._usage.shape() if self._usage is not None else None,
            **self._known,
        )

    def take(self, event: Event, body: k.Body) -> None:
        if event.kind in ASKS:
            waits = self._step.state in ("waiting", "unknown")
            self._known["ask"] = event.id if waits else None
        match body:
            case k.ToolRequested():
                self._take_request(event, body)
            case k.ToolReturned() | k.ToolFailed():
                self._take_outcome(event, body)
            case k.ToolUnknown():
                self._known["reason"] = body.why
                self._end_attempt(event, "unknown", body.why)
            case k.ToolResolved():
                self._known["parts"] = self.parts(body.parts)
                self._known["reason"] = body.note
                self._end_attempt(event, "done", body.verdict.replace("_", " "))
            case k.ModelReplied() | k.ModelFailed():
                self._take_reply(event, body)
            case (
                k.ApprovalRequested()
                | k.ApprovalGranted()
                | k.ApprovalDenied()
                | k.ApprovalExpired()
            ):
                self._take_approval(event, body)
            case k.QuestionAsked():
                self._known["asked_parts"] = (_text_part(body.question),)
                self._known["fields"]["choices"] = list(body.choices)
            case k.QuestionAnswered():
                self._known["parts"] = (_data_part(body.answer),)
            case k.MessageSaid() | k.EvidenceAttached() | k.MemoryProposed():
                self._known["parts"] = self.parts(body.parts)
                self._take_fields(body)
            case k.ContextCompacted():
                self._known["parts"] = self.parts(body.summary)
                self._take_fields(body)
            case k.PlacementChanged():
                self._take_placement(body.placement)
                self._known["tree_after"] = body.tree
            case _:
                self._take_fields(body)

    # ── tools ────────────────────────────────────────────────────────────────────────────────

    def _take_request(self, event: Event, body: k.ToolRequested) -> None:
        if self._key is None:
            self._key = body.carries.key if body.carries is not None else event.id
        # a request that a person corrected was never an attempt
        is_corrected = bool(self._approvals) and self._approvals[-1].how == "corrected"
        if self._request is not None and body.attempt > 1 and not is_corrected:
            self._end_attempt(event, "failed", "")
        self._request = event
        self._known.update(
            arguments=body.arguments,
            effect=body.effect,
            version=body.version,
            reason=body.reason,
        )
        extra = {"source": body.source, "decision": body.decision}
        self._known["fields"].update({name: value for name, value in extra.items() if value})

    def _take_outcome(self, event: Event, body: k.ToolReturned | k.ToolFailed) -> None:
        if body.placement is not None:
            self._take_placement(body.placement)
        if body.trees is not None:
            self._known.update(tree_before=body.trees.before, tree_after=body.trees.after)
        self._known["delta"] = body.delta
        if isinstance(body, k.ToolFailed):
            self._take_failure(body.failure)
            self._end_attempt(event, "failed", body.failure.message, body.duration_us)
        else:
            self._known["parts"] = self.parts(body.parts)
            self._known["kept"] = self.parts(body.kept)
            self._known.update(failure="", traceback="")
            is_bad = body.exit_code not in (None, 0)
            words = f"exit code {body.exit_code}" if is_bad else ""
            self._end_attempt(event, "failed" if is_bad else "done", words, body.duration_us)

    def _end_attempt(
        self, event: Event, state: StepState, words: str, took_us: int | None = None
    ) -> None:
        if self._request is not None:
            self._attempts.append(self._attempt(self._request, state, words, took_us))
        self._request = None

    def _attempt(
        self, request: Event, state: StepState, words: str, took_us: int | None = None
    ) -> AttemptShape:
        number = len(self._attempts) + 1
        return AttemptShape(request.seq, number, state, words, request.time, took_us)

    def _take_failure(self, failure: k.Failure) -> None:
        self._known["failure"] = f"{failure.kind}: {failure.message}"
        self._known["traceback"] = failure.traceback

    def _take_placement(self, placement: k.Placement) -> None:
        self._known["placement"] = msgspec.to_builtins(placement)
        self._known["placement_text"] = place_text(placement)

    # ── models and people ────────────────────────────────────────────────────────────────────

    def _take_reply(self, event: Event, body: k.ModelReplied | k.ModelFailed) -> None:
        if body.usage is not None:
            self._usage = self._usage or SpentCount()
            nano = body.price.cost_usd_nano if body.price is not None else None
            self._usage.add_usage(body.usage, nano)
            self._usage.model_calls += 1
        self._known["latency_us"] = body.latency_us or None
        if isinstance(body, k.ModelFailed):
            self._take_failure(body.failure)
            words = f"{body.failure.kind}: {body.failure.message}"
            took = body.latency_us or None
            self._attempts.append(
                AttemptShape(event.seq, body.attempt, "failed", words, event.time, took)
            )
            return
        self._known.update(
            model=body.model,
            parts=self.parts(body.parts),
            calls=tuple([call.tool for call in body.calls]),
            failure="",
            traceback="",
        )
        if self._step.type == "tool" and body.calls:
            self._known["arguments"] = body.calls[0].arguments
        elif self._attempts:
            number = len(self._attempts) + 1
            took = body.latency_us or None
            self._attempts.append(AttemptShape(event.seq, number, "done", "", event.time, took))

    def _take_approval(self, event: Event, body: k.Body) -> None:
        known: dict[str, Any] = {"seq": event.seq, "actor": event.actor, "time": event.time}
        match body:
            case k.ApprovalRequested():
                self._approvals.append(ApprovalShape(how="requested", **known))
                shown = {"shown": body.shown, "expires": body.expires, "asked": body.asked}
                self._known["fields"].update(shown)
            case k.ApprovalGranted():
                how = "granted" if body.edited is None else "corrected"
                self._approvals.append(
                    ApprovalShape(how=how, words=body.note, edited=body.edited, **known)
                )
            case k.ApprovalDenied():
                self._approvals.append(ApprovalShape(how="denied", words=body.reason, **known))
            case _:
                self._approvals.append(ApprovalShape(how="expired", **known))

    def _take_fields(self, body: k.Body) -> None:
        fields: dict[str, Any] = msgspec.to_builtins(body)
        skipped = ("v", "parts", "summary")
        self._known["fields"].update({n: v for n, v in fields.items() if n not in skipped})

    # ── parts ────────────────────────────────────────────────────────────────────────────────

    def parts(self, parts: k.Parts) -> tuple[PartShape, ...]:
        return tuple([self._part(part) for part in parts])

    def _part(self, part: k.Part) -> PartShape:
        match part:
            case k.Text():
                return self._long_part(_text_part(part.text), part.blob)
            case k.Reasoning():
                shape = msgspec.structs.replace(_text_part(part.text), type="reasoning")
                return self._long_part(shape, part.blob)
            case k.Data():
                return self._long_part(_data_part(part.value), part.blob)
            case k.Image():
                return PartShape(
                    "image", part.alt, "", part.media_type, part.blob, self._size(part.blob)
                )
            case k.File():
                size = sum([self._size(blob) for blob in (part.blob, *part.rest)])
                return PartShape("file", "", part.name, part.media_type, part.blob, size)
            case _:
                raise TypeError(type(part))

    def _long_part(self, shape: PartShape, blob: Digest | None) -> PartShape:
        """Return a part with the beginning of the text in its blob."""
        if blob is None:
            return shape
        try:
            content = self._store.get_blob(blob)
        except PlaitError:  # erased
            return msgspec.structs.replace(shape, text="(erased)", blob=blob)
        text = content[: TEXT_MAX * 4].decode("utf-8", "replace")
        is_cut = len(content) > TEXT_MAX * 4 or len(text) > TEXT_MAX
        return msgspec.structs.replace(
            shape, text=text[:TEXT_MAX], blob=blob, size=len(content), is_cut=is_cut
        )

    def _size(self, blob: Digest) -> int:
        try:
            return self._store.blob_info(blob).size
        except PlaitError:
            return 0


def _text_part(text: str) -> PartShape:
    return PartShape("text", text, size=len(text.encode("utf-8", "replace")))


def _data_part(value: Any) -> PartShape:
    text = msgspec.json.encode(value).decode()
    return PartShape("data", text, media_type="application/json", size=len(text))


def _open_state(state: StepState) -> StepState:
    return state if state in ("waiting", "denied", "unknown", "open") else "open"


def steps_of(outlines: Outlines, log: LogId, seqs: Sequence[int]) -> list[StepShape]:
    """Return the steps that hold these events, each once, in their order."""
    record = outlines.record(log)
    indexes = dict.fromkeys([record.step_of(seq) for seq in seqs])
    return step_shapes(outlines, record, sorted(index for index in indexes if index >= 0))
