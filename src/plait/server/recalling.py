"""Answers about memories in a session: recalled, proposed, decided about."""

from __future__ import annotations

from plait.errors import PlaitError
from plait.event import Event
from plait.event.kinds import (
    MemoryCommitted,
    MemoryProposed,
    MemoryQuarantined,
    MemoryRecalled,
    MemoryRejected,
    MemoryRestored,
    MemoryRetracted,
    MemorySuperseded,
)
from plait.ids import Digest, LogId
from plait.memory.provenance import Use, uses_of
from plait.memory.scopes import Overseer
from plait.outline.shapes import SeqRef
from plait.server.desk import Desk
from plait.server.params import SessionParams
from plait.server.shapes import MemoryPage, MemoryRow, RecalledMemory, RecallRow
from plait.session.content import text_of
from plait.session.event_text import event_text

_DECISIONS = frozenset(
    kind.__name__
    for kind in (
        MemoryCommitted,
        MemoryQuarantined,
        MemoryRejected,
        MemorySuperseded,
        MemoryRetracted,
        MemoryRestored,
    )
)
_RECALLED, _PROPOSED = MemoryRecalled.__name__, MemoryProposed.__name__


def read_memory(desk: Desk, params: SessionParams) -> MemoryPage:
    """Return the memories that a session was given, those it proposed, and decisions in it."""
    session = desk.open(params.session)
    uses = dict[tuple[LogId, int], list[Use]]()
    for use in uses_of(session):
        uses.setdefault((use.log, use.seq), []).append(use)
    events = list(
        desk.store.read(session.id, 1, session.seq, kinds=_DECISIONS | {_RECALLED, _PROPOSED})
    )
    states = _States(desk)
    recalls = [
        _recall_row(event, uses.get((event.log, event.seq), []), states)
        for event in events
        if event.kind == _RECALLED
    ]
    proposed = [states.row(event, event.id) for event in events if event.kind == _PROPOSED]
    decided = [
        states.row(event, event.header.causes[0])
        for event in events
        if event.kind in _DECISIONS and event.header.causes
    ]
    return MemoryPage(tuple(recalls), tuple(proposed), tuple(decided))


def _recall_row(event: Event, uses: list[Use], states: _States) -> RecallRow:
    body = event.body
    query = body.query if isinstance(body, MemoryRecalled) else ""
    memories = [
        RecalledMemory(
            use.memory,
            use.text,
            use.score,
            use.taken_back or states.of(use.memory),
            tuple([SeqRef(log, seq) for log, seq in use.cited]),
        )
        for use in uses
    ]
    return RecallRow(event.log, event.seq, event.actor, event.time, query, tuple(memories))


class _States:
    """The states of memories as they are now."""

    def __init__(self, desk: Desk) -> None:
        self._store, self._viewer = desk.store, Overseer(desk.store)

    def of(self, memory: Digest) -> str:
        """Return the state of a memory; "": its row is not there."""
        rows = self._store.rows("memory", "item", {"id": memory}, limit=1)
        return self._viewer.standing(rows[0]).state if rows else ""

    def row(self, event: Event, memory: Digest) -> MemoryRow:
        try:
            body = self._store.event(memory).body
            text = text_of(body.parts) if isinstance(body, MemoryProposed) else ""
        except PlaitError:  # erased since
            text = ""
        return MemoryRow(
            memory,
            event.log,
            event.seq,
            event.kind,
            event.actor,
            event.time,
            text,
            self.of(memory),
            event_text(event),
        )
