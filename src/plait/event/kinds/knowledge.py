"""Kinds about results: verdicts, facts, open work, placements, budgets."""

from __future__ import annotations

from typing import Literal

from plait.event.kinds.base import Body
from plait.event.kinds.values import Budget, Parts, Placement, blobs_of
from plait.event.strict import Json
from plait.ids import Digest, LogId, Micros


class ValidationRecorded(Body, frozen=True):
    name: str
    passed: bool
    evidence: tuple[Digest, ...] = ()
    detail: Json = None
    tree: Digest | None = None
    # in a run: the names of the workflows that gave it, as a gate may name them; (): its
    # actor alone
    by: tuple[str, ...] = ()
    # the place it is about, if that is not the one it stands at: it came through the inbox
    at: int | None = None


class GateRequired(Body, frozen=True):
    name: str
    # only a verdict by this one counts: a principal, or a workflow by its path or class. "": by any
    by: str = ""


class VerdictAwaited(Body, frozen=True):
    """A run waits at a gate for a verdict that counts."""

    name: str
    by: str = ""
    why: str = ""  # the gate's own explanation
    session: LogId | None = None  # the session to be judged, if it is not the one that waits
    heard: int = 0  # the last place in its inbox that the run had read by then


class VerdictHeard(Body, frozen=True):
    """A run does not wait any more for the verdict that this event asked for."""

    awaited: Digest


class PlacementChanged(Body, frozen=True):
    placement: Placement
    tree: Digest | None = None
    replaced: str = ""  # the sandbox that is gone, if this one stands in for it
    fresh: bool = False  # True: its files were read from a folder just then

    def refs(self) -> tuple[Digest, ...]:
        return (self.tree,) if self.tree else ()


class FactRecorded(Body, frozen=True):
    key: str
    value: Json
    kind: Literal["fact", "decision", "finding"]
    review_by: Micros | None = None  # None: never goes stale
    reason: str = ""  # for the decision, in the words of its author


class FactRetracted(Body, frozen=True):
    key: str
    reason: str = ""


class PendingAdded(Body, frozen=True):
    key: str
    what: str
    kind: Literal["step", "question", "hypothesis"]


class PendingSettled(Body, frozen=True):
    key: str
    outcome: str = ""


class ScratchSet(Body, frozen=True):
    key: str
    value: Json = None  # None: cleared


class EvidenceAttached(Body, frozen=True):
    name: str
    parts: Parts

    def refs(self) -> tuple[Digest, ...]:
        return blobs_of(self.parts)


class RouteSelected(Body, frozen=True):
    choice: str
    candidates: tuple[str, ...]
    reason: str = ""


class ContextCompacted(Body, frozen=True):
    left: tuple[int, int]  # first and last place that left the context
    summary: Parts
    kept: tuple[str, ...] = ()  # keys of facts

    def refs(self) -> tuple[Digest, ...]:
        return blobs_of(self.summary)


class BudgetSet(Body, frozen=True):
    budget: Budget


class BudgetRefused(Body, frozen=True):
    limit: str
    asked: float
    left: float
    final: bool = False  # True: nothing is left for an answer either
    why: str = ""  # who asked for how much, and where the limit has gone; or no price is known


class Linked(Body, frozen=True):
    """A pointer into a store of another system."""

    system: str
    ref: str
    digest: Digest | None = None
    note: str = ""
