"""Memories as JSON documents for programs, one function per shape, and the parts of one memory
that its row does not have: evidence, decisions with their reasons, support, recalls.

The shapes are a promise, as those of `documents.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from plait.errors import PlaitError
from plait.event import Event
from plait.event.kinds import MemoryRecalled, MemorySuperseded
from plait.ids import Digest, LogId, Micros
from plait.memory.rows import REST, SUPPORT, decode_decisions, decode_grounds, decode_ids
from plait.memory.standing import MemoryDecision
from plait.outline.documents import Document
from plait.store import Row, Store

if TYPE_CHECKING:
    from plait.memory.evidence import EvidencePiece
    from plait.memory.items import MemoryItem
    from plait.memory.provenance import Use
    from plait.memory.rollback import RollbackPlan

_ALL = 2**31


# ── one memory ───────────────────────────────────────────────────────────────────────────────


class Decided(NamedTuple):
    """A decision about a memory, and its event."""

    decision: MemoryDecision
    event: Event


class SupportDetails(NamedTuple):
    """Further evidence for a memory: it was said again from elsewhere."""

    event: Event
    evidence: Sequence[EvidencePiece]


class MemoryDetails(NamedTuple):
    """All about one memory."""

    item: MemoryItem
    evidence: Sequence[EvidencePiece]
    decisions: Sequence[Decided]
    supports: Sequence[SupportDetails]
    supersedes: Sequence[Digest]
    dependents: Sequence[Digest]  # the memories that rest on it
    recalls: Sequence[Event]  # that returned it, the last one last


def details_of(store: Store, item: MemoryItem, row: Row) -> MemoryDetails:
    """Collect all about one memory, from its row and from the events."""
    from plait.memory.falling import effects_of

    effects = effects_of(store, item.id)
    replaced = [
        event.header.causes[0]
        for event in effects
        if event.kind == MemorySuperseded.__name__ and event.header.causes[1:2] == (item.id,)
    ]
    return MemoryDetails(
        item,
        _pieces(store, dict.fromkeys(store.event(item.id).header.causes)),
        [
            Decided(each, event)
            for each in decode_decisions(str(row["decisions"]))
            for event in store.read(each.log, each.seq, each.seq)
        ],
        _supports_of(store, item.id),
        list(dict.fromkeys([*decode_ids(str(row["supersedes"])), *replaced])),
        [
            Digest(str(rest["memory"]))
            for rest in store.rows("memory", REST, {"base": item.id}, limit=_ALL)
        ],
        sorted(
            [event for event in effects if event.kind == MemoryRecalled.__name__],
            key=lambda event: event.time,
        ),
    )


def _pieces(store: Store, ids: Iterable[Digest]) -> list[EvidencePiece]:
    from plait.memory.evidence import piece_of

    found: list[EvidencePiece] = []
    for id in ids:
        try:
            found.append(piece_of(store, store.event(id)))
        except PlaitError:  # erased since
            continue
    return found


def _supports_of(store: Store, memory: Digest) -> list[SupportDetails]:
    found: list[SupportDetails] = []
    for row in store.rows("memory", SUPPORT, {"memory": memory}, order="number", limit=_ALL):
        seq = int(str(row["seq"]))
        for event in store.read(LogId(str(row["log"])), seq, seq):
            grounds = decode_grounds(str(row["grounds"]))
            found.append(SupportDetails(event, _pieces(store, [each.event for each in grounds])))
    return found


def marks_of(item: MemoryItem, now: Micros) -> list[str]:
    """Return the remarks about a memory that its state does not make: out of its time, stale, less
    evidence than it had.
    """
    from plait.memory.standing import is_stale, reason_out_of_time

    times: Row = {name: getattr(item, name) for name in _TIMES}
    out_of_time = reason_out_of_time(times, now, now)
    marks = {
        out_of_time or "": out_of_time is not None,
        "stale": is_stale(times, now),
        "less evidence": item.weakened > 0,
    }
    return [mark for mark, holds in marks.items() if holds]


_TIMES = ("valid_from", "valid_until", "expires", "review_by")


# ── documents ────────────────────────────────────────────────────────────────────────────────


def memory_document(item: MemoryItem, now: Micros) -> Document:
    by = item.standing.by
    return {
        "id": item.id,
        "short": item.short,
        "session": item.log,
        "seq": item.seq,
        "state": item.state,
        "decision": decision_document(by) if by is not None else None,
        "marks": marks_of(item, now),
        "scope": item.scope,
        "owner": item.owner,
        "kind": item.kind,
        "trust": item.trust,
        "text": item.text,
        "time": item.time,
        "actor": item.actor,
        "key": item.key or None,
        "speaker": item.speaker or None,
        "source": item.source,
        "importance": item.importance,
        "valid_from": item.valid_from,
        "valid_until": item.valid_until,
        "expires": item.expires,
        "review_by": item.review_by,
        "superseded_by": list(item.standing.superseded_by),
        "supports": item.supports,
        "weakened": item.weakened,
    }


def decision_document(decision: MemoryDecision) -> Document:
    return {
        "kind": decision.kind,
        "rule": decision.rule or None,
        "actor": decision.actor,
        "session": decision.log,
        "seq": decision.seq,
        "other": decision.other or None,
    }


def details_document(details: MemoryDetails, now: Micros) -> Document:
    recalls = details.recalls
    return {
        **memory_document(details.item, now),
        "evidence": [piece_document(piece) for piece in details.evidence],
        "decisions": [
            {
                **decision_document(each.decision),
                "id": each.event.id,
                "time": each.event.time,
                "reason": reason_of(each.event),
            }
            for each in details.decisions
        ],
        "supported": [
            {
                **_place_document(each.event),
                "evidence": [piece_document(piece) for piece in each.evidence],
            }
            for each in details.supports
        ],
        "supersedes": list(details.supersedes),
        "dependents": list(details.dependents),
        "recalls": {
            "count": len(recalls),
            "last": _place_document(recalls[-1]) if recalls else None,
        },
    }


def piece_document(piece: EvidencePiece) -> Document:
    return {
        **_place_document(piece.event),
        "kind": piece.event.kind,
        "sort": piece.sort,
        "trust": piece.trust,
        "text": piece.text,
        "memories": list(piece.memories),
    }


def _place_document(event: Event) -> Document:
    return {
        "id": event.id,
        "session": event.log,
        "seq": event.seq,
        "time": event.time,
        "actor": event.actor,
    }


def reason_of(event: Event) -> str:
    """Return the reason that an event states; "": it states none."""
    try:
        return str(getattr(event.body, "reason", ""))
    except PlaitError:  # erased, damaged, or of a newer Plait
        return ""


def use_document(use: Use) -> Document:
    return {
        "memory": use.memory,
        "text": use.text,
        "session": use.log,
        "seq": use.seq,
        "rank": use.rank,
        "score": use.score,
        "query": use.query,
        "cited": [{"session": log, "seq": seq} for log, seq in use.cited],
        "ablations": [
            {"purpose": each.purpose, "runs": each.runs, "differs": dict(each.differs)}
            for each in use.ablations
        ],
        "since": use.taken_back or None,
    }


def plan_document(plan: RollbackPlan) -> Document:
    return {
        "about": plan.about,
        "digest": plan.digest,
        "undoes": plan.undoes,
        "retracted": list(plan.retracted),
        "restored": [{"memory": memory, "superseder": by} for memory, by in plan.restored],
        "superseded": [{"memory": memory, "superseder": by} for memory, by in plan.superseded],
        "weakened": list(plan.weakened),
        "conflicts": [{"memory": memory, "why": why} for memory, why in plan.conflicts],
        "readers": [
            {
                "session": reader.log,
                "run": reader.run,
                "state": reader.state,
                "memories": list(reader.memories),
                "recalls": list(reader.recalls),
                "replies": list(reader.replies),
            }
            for reader in plan.readers
        ],
        "texts": dict(plan.texts),
    }
