"""Arrival: the rules for memories that a branch or a run proposed beyond its own session.

A branch, or a run that has not finished, only proposes to wider scopes. The rules are asked when
the branch is merged into its root, or when the run ends, and their decisions stand in the same
append as the merge or the end. Wider scopes follow commit order: the memory that arrives later
supersedes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from plait.errors import UnknownRows
from plait.event import Event
from plait.event.kinds import (
    MemoryCommitted,
    MemoryProposed,
    MemorySuperseded,
    MemorySupported,
    ValidationRecorded,
)
from plait.ids import Digest, LogId
from plait.memory.evidence import EvidencePiece, piece_of
from plait.memory.remember import (
    SECOND_RUN,
    active_with_key,
    echoed_memory,
    is_confirmed_by,
    is_home,
    replaced_by,
    were_retracted,
)
from plait.memory.rows import ARRIVING, ITEM
from plait.memory.rules import Detector, Proposal, Ruling, decide
from plait.memory.scopes import Overseer, Viewer, owners_of
from plait.memory.standing import CONFIRMABLE, change_text
from plait.session.content import text_of
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


class _Arrival:
    """The proposals, supports and verdicts of some spans, as they arrive at their root."""

    def __init__(
        self, session: SessionValue, spans: Sequence[Span], detectors: Sequence[Detector]
    ) -> None:
        self._session, self._detectors = session, detectors
        self._store: Store = core_of(session).store
        self._spans = spans
        self._decided: dict[Digest, str] = {}
        self._drafts: list[Draft] = []

    def drafts(self) -> list[Draft]:
        try:
            events = self._arriving()
        except UnknownRows:  # a store that was opened without memories decides about none
            return []
        for event in events:
            body = event.body
            if isinstance(body, MemoryProposed):
                self._arrive(event, body, _verdicts_on(event.id, events))
            elif isinstance(body, MemorySupported):
                pieces = [self._piece(ground.event) for ground in body.grounds]
                self._confirm(event.header.causes[:1], SECOND_RUN, pieces)
            elif isinstance(body, ValidationRecorded) and body.passed:
                self._confirm(event.header.causes, "verdict")
        return self._drafts

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

    def _arrive(self, event: Event, body: MemoryProposed, verdicts: Sequence[Event]) -> None:
        row = self._waiting_row(event.id)
        if row is None or row["scope"] == "session":
            return
        ruling = self._ruling(event, body, verdicts, row)
        self._add(ruling.body(), event.id)
        self._decided[event.id] = ruling.state
        if ruling.state != "active":
            return
        for each in self._replaced(row, body):
            self._add(MemorySuperseded("key" if body.key else "writer"), each, event.id)

    def _ruling(
        self, event: Event, body: MemoryProposed, verdicts: Sequence[Event], row: Row
    ) -> Ruling:
        text = text_of(body.parts)
        pieces = [self._piece(ground.event) for ground in body.grounds]
        pieces += [piece_of(self._store, verdict) for verdict in verdicts]
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
            for draft in self._drafts:
                memory = draft.act.causes[0]
                if isinstance(draft.body, MemoryCommitted) and isinstance(memory, str):
                    other_row = self._row(Digest(memory))
                    if other_row is not None and _is_same_place(other_row, row):
                        found.setdefault(Digest(memory))
        found.pop(Digest(str(row["id"])), None)
        return found

    def _confirm(
        self, memories: Collection[Digest], rule: str, pieces: Sequence[EvidencePiece] = ()
    ) -> None:
        """Commit quarantined memories of wider scopes that a verdict or a second run confirms."""
        for memory in memories:
            row = self._row(memory)
            if row is None or row["scope"] == "session" or memory in self._decided:
                continue
            viewer = self._viewer(row)
            if not self._may_judge(row):
                continue
            standing = viewer.standing(row)
            if standing.state != "quarantined" or standing.by is None:
                continue
            if standing.by.rule not in CONFIRMABLE:
                continue
            if rule == SECOND_RUN and not is_confirmed_by(viewer, row, self._session, pieces):
                continue
            self._decided[memory] = "active"
            self._add(MemoryCommitted(rule), memory)
            for each in replaced_by(viewer, row):
                self._add(MemorySuperseded("key"), each, memory)

    def _may_judge(self, row: Row) -> bool:
        """True if the session sees a memory. Names of agents and workflows are anybody's."""
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

    def _add(self, body: object, *memories: Digest) -> None:
        self._drafts.append(Draft(body, Act(SERVICE, "program", causes=memories)))  # pyright: ignore[reportArgumentType]


def _verdicts_on(memory: Digest, events: Sequence[Event]) -> list[Event]:
    found: list[Event] = []
    for event in events:
        body = event.body
        if isinstance(body, ValidationRecorded) and body.passed and memory in event.header.causes:
            found.append(event)
    return found


def _is_same_place(one: Row, other: Row) -> bool:
    return (one["owner"], one["key"]) == (other["owner"], other["key"])
