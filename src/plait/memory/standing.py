"""The standing of a memory: a fold over the decisions about it that count for a reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec

from plait.event.kinds import (
    MemoryCommitted,
    MemoryQuarantined,
    MemoryRejected,
    MemoryRestored,
    MemoryRetracted,
    MemorySuperseded,
    ValidationRecorded,
)
from plait.ids import Digest, LogId, Micros
from plait.store import Row

VERDICT = ValidationRecorded.__name__  # the kind of a decision by a check that passed
FAILED_VERDICT = f"{VERDICT}: failed"
VERDICTS = frozenset({VERDICT, FAILED_VERDICT})


DecisionPart = Literal["event", "fold", "repeat"]
"""A decision that an event made; one that the fold made, since a memory became active; one that an
event made and that changed nothing, since it stood already.
"""


class MemoryDecision(NamedTuple):
    """A decision about a memory, and where it stands."""

    number: int  # its commit number
    kind: str
    log: LogId
    seq: int
    other: str  # the second memory of a superseded or restored one; "": none
    rule: str  # "": a person decided
    actor: str
    part: DecisionPart = "event"


State = Literal["proposed", "active", "quarantined", "rejected", "superseded", "retracted"]
STATES: tuple[State, ...] = get_args(State)


class MemoryStanding(msgspec.Struct, frozen=True):
    """The state of a memory for a reader, and the decision that led to it."""

    state: State = "proposed"
    by: MemoryDecision | None = None  # None: no decision was made
    superseded_by: tuple[Digest, ...] = ()


_GATED: dict[str, State] = {
    MemoryCommitted.__name__: "active",
    MemoryQuarantined.__name__: "quarantined",
    MemoryRejected.__name__: "rejected",
}
_RETRACTED, _RESTORED = MemoryRetracted.__name__, MemoryRestored.__name__
SUPERSEDED = MemorySuperseded.__name__
DOCUMENT = "document"  # the rule of pieces that a person ingested, and that a document lost
ROLLBACK = "rollback"  # the rule of retractions and restorations in a rollback
AGAIN = "undone"  # the rule by which a memory is superseded again, once its rollback is undone


KEY = "key"  # the rule by which a memory replaces the active one of its owner and key
SAME = "same"  # the rule by which an equal statement counts as support of the first
CHECK = "verdict"  # the rule of memories that a check made active, or took back
# The rules whose quarantine a passing verdict or a second run lifts. What reads like an
# instruction, what a detector objects to and what was taken back before waits for a person.
CONFIRMABLE = frozenset({"reflection", "origin", "model", "unconfirmed"})


def is_liftable(by: MemoryDecision | None) -> bool:
    """True if a passing verdict lifts the quarantine that this decision led to."""
    return by is not None and (by.kind == FAILED_VERDICT or by.rule in (*CONFIRMABLE, CHECK))


def is_by_verdict(by: MemoryDecision | None) -> bool:
    """True if a passing verdict made a memory active, so that a failing one takes that back."""
    return by is not None and (by.kind == VERDICT or by.rule == CHECK)


def is_own_verdict(writer: str, judge: str, names: Sequence[str]) -> bool:
    """True if the one who wrote a memory judges it: that would be no second opinion.

    `names` are those under which code of a run gives verdicts.
    """
    return writer in (judge, *names) or writer.partition(":")[2] in names


def standing_of(decisions: Iterable[MemoryDecision]) -> MemoryStanding:
    """Fold decisions, in commit order."""
    gated: State = "proposed"
    by: MemoryDecision | None = None
    # A restoration undoes the last retraction: an earlier one, of the reader's branch, stays.
    retractions: list[MemoryDecision] = []
    superseders: dict[str, MemoryDecision] = {}
    lifted: set[str] = set()
    for decision in decisions:
        kind = decision.kind
        if kind in _GATED:
            gated, by = _GATED[kind], decision
        elif kind == VERDICT:
            if gated == "quarantined" and is_liftable(by):
                gated, by = "active", decision
        elif kind == FAILED_VERDICT:
            if gated == "active" and is_by_verdict(by):
                gated, by = "quarantined", decision
        elif kind == _RETRACTED:
            retractions.append(decision)
        elif kind == SUPERSEDED:
            # a reader who never knew the superseder does not learn of it by an undone rollback
            if decision.rule != AGAIN or decision.other in lifted:
                superseders[decision.other] = decision
        elif kind == _RESTORED and decision.other:
            if superseders.pop(decision.other, None) is not None:
                lifted.add(decision.other)
        elif kind == _RESTORED and retractions:
            retractions.pop()
    others = tuple([Digest(other) for other in superseders])
    if gated == "rejected":
        return MemoryStanding("rejected", by, others)
    if retractions:
        return MemoryStanding("retracted", retractions[-1], others)
    if superseders:
        return MemoryStanding("superseded", [*superseders.values()][-1], others)
    return MemoryStanding(gated, by)


def replaced_standing(memory: Digest, by: MemoryDecision) -> MemoryStanding:
    """Return the standing of a memory that another of its key replaced when it became active."""
    replaced = by._replace(kind=SUPERSEDED, other=memory, rule=KEY)
    return MemoryStanding("superseded", replaced, (memory,))


def change_text(standing: MemoryStanding) -> str:
    """Tell in words why a memory that was active does not hold any more; "": it does."""
    by = standing.by
    if standing.state == "superseded":
        return f"superseded by {', '.join(f'm:{each[:8]}' for each in standing.superseded_by)}"
    if standing.state == "retracted" and by is not None:
        return f"taken back by {by.actor}{' in a rollback' if by.rule == ROLLBACK else ''}"
    if standing.state == "rejected" and by is not None:
        return f"rejected by {by.actor}"
    return ""


def reason_out_of_time(row: Row, now: Micros, valid_at: Micros) -> str | None:
    """Return why a memory does not hold at a time. None: it holds."""
    expires, start, end = row["expires"], row["valid_from"], row["valid_until"]
    if isinstance(expires, int) and expires <= now:
        return "expired"
    if isinstance(start, int) and valid_at < start:
        return "not valid yet"
    if isinstance(end, int) and valid_at >= end:
        return "not valid any more"
    return None


def is_stale(row: Row, now: Micros) -> bool:
    """True if its time for a review is past."""
    review_by = row["review_by"]
    return isinstance(review_by, int) and review_by <= now
