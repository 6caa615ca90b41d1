"""Kinds about memories."""

from __future__ import annotations

from plait.event.kinds.base import Body, Purpose, Scope
from plait.event.kinds.values import Failure, Parts, Score, blobs_of
from plait.ids import Digest


class MemoryProposed(Body, frozen=True):
    memory: str
    scope: Scope
    parts: Parts
    evidence: tuple[Digest, ...]
    trust: float | None = None
    supersedes: tuple[str, ...] = ()

    def refs(self) -> tuple[Digest, ...]:
        return blobs_of(self.parts)


class MemoryCommitted(Body, frozen=True):
    memory: str


class MemoryQuarantined(Body, frozen=True):
    memory: str
    reason: str


class MemoryRejected(Body, frozen=True):
    memory: str
    reason: str


class MemorySuperseded(Body, frozen=True):
    memory: str
    by: str


class MemoryRetracted(Body, frozen=True):
    memory: str
    reason: str = ""


class MemoryRestored(Body, frozen=True):
    memory: str
    reason: str = ""


class MemoryExpired(Body, frozen=True):
    memory: str


class MemoryRecalled(Body, frozen=True):
    query: str
    scopes: tuple[Scope, ...]
    hits: tuple[Score, ...]
    as_of: int  # the store's commit number that was read


class RecallFailed(Body, frozen=True):
    query: str
    failure: Failure


class MemoryUsed(Body, frozen=True):
    memories: tuple[str, ...]
    purpose: Purpose | None = None
