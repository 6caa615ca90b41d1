"""Kinds about memories.

A memory is the event that proposed it, and its id is the id of that event. An event that decides
about a memory has that memory as its first cause, so that `why` and `influence` walk from one to
the other, and a decision can stand in the same append as the proposal.
"""

from __future__ import annotations

from typing import Annotated, Literal

from plait.event.kinds.base import Body, Measured, Purpose, Scope
from plait.event.kinds.values import Failure, Parts, Score, Value, blobs_of
from plait.ids import Digest, Micros

MemoryKind = Literal["fact", "preference", "procedure", "reflection", "failure", "resource"]
Trust = Literal["said", "checked", "observed", "unchecked"]
"""The lowest trust on the chain of evidence: a person said it, a check passed, a tool of the
program observed it, or nothing of that.
"""


class Ground(Value, frozen=True):
    """One piece of evidence, and the memories that it rests on: it counts while they do."""

    event: Digest
    memories: tuple[Digest, ...] = ()


class Omission(Value, frozen=True):
    """A memory that a recall found and did not return, and the reason."""

    memory: Digest
    why: str


class MemoryProposed(Body, frozen=True):
    """A memory. Its evidence stands in the causes of the event; `grounds` says more about it."""

    scope: Scope
    owner: str  # the session's id, or the name of the agent, workflow, project or user
    kind: MemoryKind
    parts: Parts
    # Measured: decided once from the record; a resumed run takes the recorded ones.
    trust: Annotated[str, Measured] = ""  # a `Trust`
    grounds: Annotated[tuple[Ground, ...], Measured] = ()
    supersedes: Annotated[tuple[Digest, ...], Measured] = ()
    by_person: bool = False  # a person wrote it, and not code of a run
    key: str = ""  # a later memory of the same owner and key supersedes this one; "": none
    speaker: str = ""  # the one who said it, if that is not its writer
    source: str = ""  # memories of one source are neighbours, in its order; "": it stands alone
    importance: int | None = None  # from 1 to 10, for rankings that ask for it
    valid_from: Micros | None = None  # None: always was
    valid_until: Micros | None = None  # None: no end is known
    expires: Micros | None = None  # not recalled from then on; None: never
    review_by: Micros | None = None  # shown as stale from then on; None: never

    def refs(self) -> tuple[Digest, ...]:
        return blobs_of(self.parts)


class MemoryCommitted(Body, frozen=True):
    """Its first cause is active: by a rule, or by the person who is its actor."""

    rule: str = ""  # "": a person decided
    reason: str = ""


class MemoryQuarantined(Body, frozen=True):
    """Its first cause is not recalled until a check, a person or a second run confirms it."""

    rule: str = ""
    reason: str = ""


class MemoryRejected(Body, frozen=True):
    """Its first cause is never recalled."""

    rule: str = ""
    reason: str = ""


class MemorySupported(Body, frozen=True):
    """Its first cause was said again, from elsewhere: further evidence, and no second memory."""

    words: str  # the digest of the words
    grounds: Annotated[tuple[Ground, ...], Measured] = ()


class MemorySuperseded(Body, frozen=True):
    """Its first cause is replaced by its second."""

    rule: str = ""


class MemoryRetracted(Body, frozen=True):
    """Its first cause is taken back."""

    rule: str = ""
    reason: str = ""


class MemoryRestored(Body, frozen=True):
    """Its first cause is as it was before it was taken back or superseded."""

    rule: str = ""
    reason: str = ""


class MemoryRolledBack(Body, frozen=True):
    """Memories and all that rests on them were taken back, as the plan with this digest said.

    The retractions and restorations follow it in the same transaction.
    """

    plan: Digest
    about: str  # in words: a memory, a session's, a document's or an author's
    reason: str
    weakened: tuple[Digest, ...] = ()  # these have less evidence now, and stay
    undoes: Digest | None = None  # the rollback that this one takes back


class MemoryExpired(Body, frozen=True):
    """Written by no version: a memory expires by its `expires`. The name stands in every store."""

    memory: str


class MemoryRecalled(Body, frozen=True):
    """A search for memories; its causes are the memories that it returned."""

    query: str
    scopes: tuple[Scope, ...]
    k: int
    workflow: str = ""  # the path of the workflow or agent that asked; "": code outside of runs
    purpose: Purpose | None = None
    as_of: Annotated[int, Measured] = 0  # the commit number of the store that was read
    valid_at: Annotated[Micros | None, Measured] = None  # None: at the time of the recall
    hits: Annotated[tuple[Score, ...], Measured] = ()
    candidates: Annotated[tuple[Score, ...], Measured] = ()  # ranked below the hits
    left_out: Annotated[tuple[Omission, ...], Measured] = ()
    shown: Annotated[Parts, Measured] = ()  # as a prompt shows them; (): the program has them
    index: str = ""  # the index that found them; "": the store's own
    unknown: Annotated[int, Measured] = 0  # names that the index returned and no record has

    def refs(self) -> tuple[Digest, ...]:
        return blobs_of(self.shown)


class RecallFailed(Body, frozen=True):
    query: str
    failure: Failure
    index: str = ""  # "": the store's own


class MemoryUsed(Body, frozen=True):
    """Its causes are the memories, and the reply that cites them or the branch that went without.

    A citation says that a reply names them, an ablation that the run was made again without them.
    """

    by: Literal["citation", "ablation"]
    purpose: Purpose | None = None
    runs: int = 0  # of an ablation: the runs without it
    differs: dict[str, int] = {}  # of an ablation: text, calls, files, verdicts: in so many runs
