"""Arrival: the rules for memories that a branch or a run proposed beyond its own session.

A branch, or a run that has not finished, only proposes to wider scopes. The rules are asked when
the branch is merged into its root, or when the run ends, and their decisions stand in the same
append as the merge or the end. Wider scopes follow commit order: the memory that arrives later
supersedes.

A verdict on a memory of a wider scope is decided about in the same way: at once if the session is
at home, else when it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from plait.errors import UnknownRows
from plait.event import Body, Event
from plait.event.kinds import (
    MemoryCommitted,
    MemoryProposed,
    MemoryQuarantined,
    MemoryRestored,
    MemorySuperseded,
    MemorySupported,
    ValidationRecorded,
)
from plait.ids import Digest, LogId, inbox_of
from plait.memory.evidence import EvidencePiece, piece_of
from plait.memory.remember import (
    SECOND_RUN,
    active_with_key,
    echoed_memory,
    is_confirmed_by,
    is_home,
    replaced_by,
    rows_with,
    were_retracted,
)
from plait.memory.rows import ARRIVING, ITEM, decode_ids
from plait.memory.rules import Detector, Proposal, Ruling, decide
from plait.memory.scopes import Overseer, Viewer, owners_of
from plait.memory.standing import (
    CHECK,
    KEY,
    change_text,
    is_by_verdict,
    is_liftable,
    is_own_verdict,
)
from plait.session.content import text_of
from plait.session.gates import is_judge
from plait.session.ports import Act, Draft
from plait.session.state import Known, Span
from plait.session.value import SessionValue, core_of, state_of
from plait.store import Row, Store

SERVICE = "service:memory"
_ALL = 2**31


class ArrivalRules:
    """The `MemoryRules` of the process: asked at merges."""

    def __init__(self, detectors: Sequence[Detector] = ()) -> None:
        self.detectors = tuple(detectors)

    def decisions_at_merge(
        self, session: SessionValue, branches: Sequence[SessionValue]
    ) -> list[Draft]:
        """Return the decisions to append with a merge; none, if the session itself is a branch or
        in the hands of a run: they are made when that arrives.
        """
        if not is_home(session):
            return []
        known = Known(core_of(session).state.story.path)
        spans = [
            piece
            for branch in branches
            for span in state_of(branch).story.path
            for piece in known.unknown_pieces(span)
        ]
        return _Arrival(session, spans, self.detectors).drafts()

    def decisions_at_verdict(
        self, session: SessionValue, body: ValidationRecorded, act: Act
    ) -> list[Draft]:
        """Return the decisions to append with a verdict that stands first in its append."""
        if not is_home(session):
            return []
        arrival = _Arrival(session, (), self.detectors)
        try:
            for memory in act.causes:
                arrival.judge(Digest(str(memory)), MemoryVerdict(body, act.actor, 0))
        except UnknownRows:
            return []
        return arrival.decided

    def change_since(self, store: Store, memory: Event) -> str:
        """Tell in words why a memory does not hold any more; "": it does."""
        rows = store.rows("memory", ITEM, {"id": memory.id}, limit=1)
        return change_text(Overseer(store).standing(rows[0])) if rows else ""


def decisions_at_end(session: SessionValue, since: int) -> list[Draft]:
    """Return the decisions to append with the end of a run that began after this seq.

    `session` is the last value of the run, in the log that it began on. A run on a branch decides
    nothing: its proposals arrive with the branch.
    """
    core = core_of(session)
    if core.store.log(session.id).parent is not None:
        return []
    spans = [span for span in core.state.story.path if _is_after(span, session.id, since)]
    spans = [
        span if span.via else msgspec.structs.replace(span, first=max(span.first, since + 1))
        for span in spans
    ]
    return _Arrival(session, spans, ()).drafts()


def _is_after(span: Span, log: LogId, since: int) -> bool:
    """True if some of a span came after this seq of a log: written there, or merged into it."""
    return span.via > since or (not span.via and span.log == log and span.last > since)


class MemoryVerdict(NamedTuple):
    """A verdict on memories, on record or about to be."""

    body: ValidationRecorded
    actor: str
    cause: Digest | int  # its event, or its place in the append


class _Arrival:
    """The proposals, supports and verdicts of some spans, as they arrive at their root."""

    def __init__(
        self, session: SessionValue, spans: Sequence[Span], detectors: Sequence[Detector]
    ) -> None:
        self._session, self._detectors = session, detectors
        self._store: Store = core_of(session).store
        self._spans = spans
        self._decided: dict[Digest, str] = {}
        self.decided: list[Draft] = []

    def drafts(self) -> list[Draft]:
        try:
            events = self._arriving()
        except UnknownRows:  # a store that was opened without memories decides about none
            return []
        judged = self._last_verdicts(events)
        for event in events:
            body = event.body
            if isinstance(body, MemoryProposed):
                self._arrive(event, body, judged.get(event.id))
            elif isinstance(body, MemorySupported):
                pieces = [self._piece(ground.event) for ground in body.grounds]
                self._confirm(event.header.causes[0], MemoryCommitted(SECOND_RUN), pieces)
        for memory, verdict in judged.items():
            self.judge(memory, verdict)
        return self.decided

    def judge(self, memory: Digest, verdict: MemoryVerdict) -> None:
        """Decide about a memory of a wider scope after a verdict on it: one that passes confirms
        it, one that fails takes such a confirmation back.
        """
        row = self._row(memory)
        if row is None or not self._may_decide(row) or not self._is_counted(row, verdict):
            return
        if verdict.body.passed:
            self._confirm(memory, MemoryCommitted(CHECK), (), verdict.cause)
            return
        standing = self._viewer(row).standing(row)
        if standing.state == "active" and is_by_verdict(standing.by):
            why = f"the check {verdict.body.name} failed"
            self._decided[memory] = "quarantined"
            self._add(MemoryQuarantined(CHECK, why), memory, verdict.cause)
            for each in self._replaced_before(row):  # one that is not active replaces nothing
                self._add(MemoryRestored(CHECK, why), each, memory)

    def _last_verdicts(self, events: Sequence[Event]) -> dict[Digest, MemoryVerdict]:
        """Return the last verdict on each memory that counts."""
        found: dict[Digest, MemoryVerdict] = {}
        for event in events:
            body = event.body
            if not isinstance(body, ValidationRecorded):
                continue
            verdict = MemoryVerdict(body, event.actor, event.id)
            for memory in self._named_by(event):
                row = self._row(memory)
                if row is not None and self._is_counted(row, verdict):
                    found[memory] = verdict
        return found

    def _named_by(self, verdict: Event) -> Sequence[Digest]:
        """Return the causes of a verdict; of one that came through the inbox, those that it had
        there.
        """
        causes = verdict.header.causes
        inbox = inbox_of(verdict.log)
        for cause in causes if len(causes) == 1 else ():
            posted = self._store.event(cause)
            if posted.log == inbox:
                return posted.header.causes
        return causes

    def _is_counted(self, row: Row, verdict: MemoryVerdict) -> bool:
        """True if the judge may judge: it did not write the memory, and is the judge that a gate of
        that name requires, if there is one.
        """
        body, actor = verdict.body, verdict.actor
        gate = core_of(self._session).state.gates.get(body.name)
        is_judge_of_gate = gate is None or is_judge(gate.by, actor, body.by)
        return is_judge_of_gate and not is_own_verdict(str(row["actor"]), actor, body.by)

    def _replaced_before(self, row: Row) -> list[Digest]:
        """Return the memories that one has superseded."""
        memory, viewer = Digest(str(row["id"])), self._viewer(row)
        named = [self._row(each) for each in decode_ids(str(row["supersedes"]))]
        keyed = rows_with(viewer, "key", str(row["key"])) if row["key"] else ()
        every = {str(each["id"]): each for each in (*named, *keyed) if each is not None}
        return [
            Digest(id)
            for id, each in every.items()
            if memory in viewer.standing(each).superseded_by
        ]

    def _arriving(self) -> list[Event]:
        """Return the proposals, supports and verdicts of the spans. Most have none, and cost one
        question.
        """
        found: list[Event] = []
        for span in self._spans:
            for row in self._store.rows(
                "memory", ARRIVING, {"log": span.log}, order="seq", limit=_ALL
            ):
                seq = int(str(row["seq"]))
                if span.first <= seq <= span.last:
                    found += self._store.read(span.log, seq, seq)
        return found

    def _arrive(self, event: Event, body: MemoryProposed, verdict: MemoryVerdict | None) -> None:
        row = self._waiting_row(event.id)
        if row is None or row["scope"] == "session":
            return
        ruling = self._ruling(event, body, verdict, row)
        self._add(ruling.body(), event.id)
        self._decided[event.id] = ruling.state
        if ruling.state != "active":
            return
        for each in self._replaced(row, body):
            self._add(MemorySuperseded(KEY if body.key else "writer"), each, event.id)

    def _ruling(
        self, event: Event, body: MemoryProposed, verdict: MemoryVerdict | None, row: Row
    ) -> Ruling:
        text = text_of(body.parts)
        pieces = [self._piece(ground.event) for ground in body.grounds]
        if verdict is not None and verdict.body.passed and isinstance(verdict.cause, str):
            pieces.append(self._piece(verdict.cause))
        before = event.seq - 1
        proposal = Proposal(
            text,
            body.kind,
            body.scope,
            pieces,
            is_person=body.by_person,
            origin=event.header.origin,
            was_retracted=were_retracted(self._viewer(row), text, event.id),
            echo=echoed_memory(self._session, text, upto=(event.log, before)),
        )
        return decide(proposal, self._detectors)

    def _piece(self, id: Digest) -> EvidencePiece:
        return piece_of(self._store, self._store.event(id))

    def _replaced(self, row: Row, body: MemoryProposed) -> Iterable[Digest]:
        """Return the memories that an arriving one replaces: named by it, or active by its key."""
        found = dict.fromkeys(body.supersedes)
        if body.key:
            viewer = self._viewer(row)
            for other in active_with_key(viewer, body.key):
                found.setdefault(Digest(str(other["id"])))
            # earlier ones of the same arrival
            for draft in self.decided:
                memory = draft.act.causes[0]
                if isinstance(draft.body, MemoryCommitted) and isinstance(memory, str):
                    other_row = self._row(Digest(memory))
                    if other_row is not None and _is_same_place(other_row, row):
                        found.setdefault(Digest(memory))
        found.pop(Digest(str(row["id"])), None)
        return found

    def _confirm(
        self,
        memory: Digest,
        ruling: MemoryCommitted,
        pieces: Sequence[EvidencePiece],
        *causes: Digest | int,
    ) -> None:
        """Commit a quarantined memory of a wider scope that a verdict or a second run confirms."""
        row = self._row(memory)
        if row is None or not self._may_decide(row):
            return
        viewer = self._viewer(row)
        standing = viewer.standing(row)
        if standing.state != "quarantined":
            return
        is_confirmed = (
            is_confirmed_by(viewer, row, self._session, pieces)
            if ruling.rule == SECOND_RUN
            else is_liftable(standing.by)
        )
        if is_confirmed:
            self._decided[memory] = "active"
            self._add(ruling, memory, *causes)
            for each in replaced_by(viewer, row):
                self._add(MemorySuperseded(KEY), each, memory)

    def _may_decide(self, row: Row) -> bool:
        """True if a memory is not decided about here yet, and the session sees it. Names of agents
        and workflows are anybody's.
        """
        if row["scope"] == "session" or row["id"] in self._decided:
            return False
        owners = {f"{scope}:{name}" for scope, name in owners_of(self._session).items()}
        return row["scope"] in ("agent", "workflow") or row["owner"] in owners

    def _waiting_row(self, memory: Digest) -> Row | None:
        row = self._row(memory)
        is_waiting = row is not None and self._viewer(row).standing(row).state == "proposed"
        return row if is_waiting and memory not in self._decided else None

    def _row(self, memory: Digest) -> Row | None:
        return next(iter(self._store.rows("memory", ITEM, {"id": memory}, limit=1)), None)

    def _viewer(self, row: Row) -> Viewer:
        return Viewer(self._store, (str(row["owner"]),), ())

    def _add(self, body: Body, *memories: Digest | int) -> None:
        self.decided.append(Draft(body, Act(SERVICE, "program", causes=memories)))


def _is_same_place(one: Row, other: Row) -> bool:
    return (one["owner"], one["key"]) == (other["owner"], other["key"])
