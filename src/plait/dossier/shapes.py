"""The shapes of a dossier. `dossier.json` is one `Dossier`, and its schema is made from here.

Shapes that the shell and the server have are used as they are. A claim names the event that it
rests on: `at` is a place in the log of the claim.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from plait.event import Json
from plait.ids import Digest, LogId, Micros
from plait.outline.shapes import (
    ApprovalShape,
    FamilyShape,
    FilesDiff,
    PartShape,
    SeqRef,
    Shape,
    SpentShape,
    StepDetail,
    StepShape,
    StepState,
)
from plait.server.shapes import CostRow, SessionShape, VerifyShape

FORMAT = 1

# ── at the top ───────────────────────────────────────────────────────────────────────────────

NoticeKind = Literal[
    "tampered", "erased", "partial", "running", "waiting", "killed", "failed", "cancelled", "open",
    "past", "long",
]  # fmt: skip


class DossierNotice(Shape, frozen=True):
    """One sentence about what this dossier is of: the first thing that a reader sees."""

    kind: NoticeKind
    text: str
    at: SeqRef | None = None


class AskedMessage(Shape, frozen=True):
    """A message to the session, by a person or a program."""

    at: SeqRef
    actor: str
    time: Micros
    text: str


# ── who worked, with what ────────────────────────────────────────────────────────────────────


class TakenUp(Shape, frozen=True):
    """A moment at which another process took a run up again."""

    at: SeqRef
    time: Micros
    actor: str
    is_after_kill: bool
    says: str = ""


class DossierRun(Shape, frozen=True):
    """One run: its program, and the environment that was recorded when it began."""

    at: SeqRef
    id: str
    workflow: str
    version: str  # of the workflow, as its author counts; "": none is on record
    revision: str  # of its source; "": none is on record
    arguments: Json
    environment: Json
    status: str
    why: str
    began: Micros
    ended: Micros | None  # None: it has not ended
    taken_up: tuple[TakenUp, ...] = ()


class UsedTool(Shape, frozen=True):
    tool: str
    version: str
    effect: str
    source: str  # "": the program itself
    calls: int
    failed: int
    placements: tuple[str, ...]  # "": in the program itself
    first: SeqRef


class UsedModel(Shape, frozen=True):
    model: str
    spent: SpentShape
    prices: tuple[str, ...]  # the price lists that costs were computed by; (): no price is known
    first: SeqRef


class CallPath(Shape, frozen=True):
    """One part of the workflow: all calls at one path, with what they used by themselves."""

    path: str
    depth: int
    name: str
    workflow: str
    version: str
    purpose: str
    agent: str
    calls: int
    spent: SpentShape
    first: SeqRef


# ── what came of it ──────────────────────────────────────────────────────────────────────────


class DossierRejection(Shape, frozen=True):
    """Something that was tried or asked for, and not taken."""

    at: SeqRef
    sort: Literal["branch", "verdict", "consent", "policy", "rewind"]
    what: str
    why: str  # "": no reason is on record
    by: str


class AcceptedPatch(Shape, frozen=True):
    """The files of the session against those that it began with."""

    base: Digest | None
    tree: Digest | None
    added: int
    removed: int
    files: FilesDiff
    writers: dict[str, SeqRef]  # by path: the last step on record that changed it
    patch: str  # for `git apply`; "": it is too long, or there is none
    is_cut: bool = False


class EvidenceLine(Shape, frozen=True):
    """An event that a claim rests on."""

    event: Digest
    log: LogId | None  # None: the store does not have it
    seq: int
    says: str


class DossierVerdict(Shape, frozen=True):
    at: SeqRef
    name: str
    passed: bool
    actor: str
    by: tuple[str, ...]
    time: Micros
    detail: Json
    tree: Digest | None
    evidence: tuple[EvidenceLine, ...]
    # True: it is the last of its name on the path of the session
    stands: bool
    call_before: SeqRef | None = None  # the last call of a tool before it, in its branch
    call_says: str = ""  # that call, and how it ended
    # of one that stands: the paths at which its tree is not that of the session
    changed_since: tuple[str, ...] = ()


class KnownFact(Shape, frozen=True):
    """A fact, a decision or a finding that holds at the place of the session."""

    at: SeqRef
    key: str
    kind: str
    value: Json
    reason: str
    actor: str


class OpenWork(Shape, frozen=True):
    at: SeqRef
    key: str
    kind: str
    what: str


class StepDiff(Shape, frozen=True):
    """The files that one step changed, line by line."""

    at: SeqRef
    files: FilesDiff


class MemoryOrigin(Shape, frozen=True):
    """Where a memory comes from."""

    log: LogId
    seq: int
    actor: str
    time: Micros
    scope: str
    owner: str
    kind: str
    trust: str
    evidence: tuple[EvidenceLine, ...]


class GivenMemory(Shape, frozen=True):
    """A memory that a recall returned."""

    memory: Digest
    text: str
    score: float | None
    state: str  # as it stands now
    used: tuple[SeqRef, ...]  # the replies that cite it
    origin: MemoryOrigin | None  # None: it was erased


class MemoryRead(Shape, frozen=True):
    at: SeqRef
    actor: str
    time: Micros
    query: str
    memories: tuple[GivenMemory, ...]


class MemoryWritten(Shape, frozen=True):
    """A memory that was proposed here, or a decision about one."""

    at: SeqRef
    memory: Digest
    kind: str  # of the event
    actor: str
    time: Micros
    text: str
    state: str
    why: str
    origin: MemoryOrigin | None


class Consent(Shape, frozen=True):
    """A call or a question that a person was asked about, with every word on record."""

    at: SeqRef
    sort: Literal["approval", "question", "resolution"]
    asked_by: str
    time: Micros
    tool: str
    arguments: Json  # of the call as it was made
    shown: Json  # to the person
    question: str
    choices: tuple[str, ...]
    words: tuple[ApprovalShape, ...]
    answer: str
    answered_by: str
    state: StepState


class DossierFailure(Shape, frozen=True):
    """Something that failed, and what was done about it."""

    at: SeqRef
    sort: Literal["tool", "model", "run", "kill", "budget"]
    what: str
    error: str
    then: str
    then_at: SeqRef | None = None


class WorldEffect(Shape, frozen=True):
    """An effect beyond the files: leaving a branch, or a rewind, does not take it back."""

    at: SeqRef
    tool: str
    arguments: Json
    effect: str
    state: Literal["happened", "may have happened", "compensated", "failed"]
    standing: Literal["in the story", "rewound", "in a branch that was not merged"]
    says: str


class UsageShape(Shape, frozen=True):
    """The amounts spent. A cost of None says that no price is known."""

    total: SpentShape  # with all branches of its runs
    unmerged: SpentShape  # of that: in branches that were not merged
    by_model: tuple[CostRow, ...]
    by_agent: tuple[CostRow, ...]
    by_session: tuple[CostRow, ...]
    budget: Json  # limits by name; None: there is none
    left: Json


# ── checking ─────────────────────────────────────────────────────────────────────────────────


class RecordHead(Shape, frozen=True):
    log: LogId
    place: int  # events up to here are those of the log that it was forked from
    tip: int
    head: Digest


class RecordShape(Shape, frozen=True):
    """The events themselves. `data` is base85 of zlib of lines of JSON: header, salt as hex, body;
    the header and the body are the texts that were hashed, but that `^` in a header stands for the
    id of the line before. A body that is null was erased.
    """

    heads: tuple[RecordHead, ...]
    events: int
    bodies: int  # of these, in `data`
    data: str  # "": the record is too long for a file; the store has it
    is_whole: bool  # False: headers alone, or nothing


class CheckShape(Shape, frozen=True):
    head: Digest  # of the session, at its place
    verify: VerifyShape | None  # None: the store could not be checked
    record: RecordShape
    program: str  # Python without any package: it checks `record` against the heads


# ── all of it ────────────────────────────────────────────────────────────────────────────────


class LeanPart(PartShape, frozen=True, omit_defaults=True):
    """A piece of a step, without the fields that say nothing."""


class LeanStep(StepShape, frozen=True, omit_defaults=True):
    """A step, without the fields that say nothing."""


class LeanSpent(SpentShape, frozen=True, omit_defaults=True):
    """Amounts, without those that are zero."""


class LeanDetail(StepDetail, frozen=True, omit_defaults=True):
    """A step in full, without the fields that say nothing: trees that did not change, a single
    attempt, the key of a call that reaches nothing beyond the files. Its placement is told in
    words; `Dossier.placements` has the rest.
    """

    step: LeanStep
    usage: LeanSpent | None = None
    parts: tuple[LeanPart, ...] = ()
    asked_parts: tuple[LeanPart, ...] = ()
    kept: tuple[LeanPart, ...] = ()


class Dossier(Shape, frozen=True):
    """Everything that a dossier says."""

    format: int
    plait: str  # the version that made it
    made: Micros
    store: str  # the id of the store
    place: SeqRef  # the value that it is about
    title: str
    status: str
    notices: tuple[DossierNotice, ...]
    session: SessionShape | None  # as `plait show --json`; None: it cannot be read
    asked: tuple[AskedMessage, ...]
    answer: str  # the last words of the session
    runs: tuple[DossierRun, ...]
    tools: tuple[UsedTool, ...]
    models: tuple[UsedModel, ...]
    workflow: tuple[CallPath, ...]
    family: FamilyShape | None
    rejected: tuple[DossierRejection, ...]
    patch: AcceptedPatch | None  # None: the session has no files
    verdicts: tuple[DossierVerdict, ...]
    facts: tuple[KnownFact, ...]
    open_work: tuple[OpenWork, ...]
    memory_read: tuple[MemoryRead, ...]
    memory_written: tuple[MemoryWritten, ...]
    consents: tuple[Consent, ...]
    usage: UsageShape | None
    failures: tuple[DossierFailure, ...]
    effects: tuple[WorldEffect, ...]
    steps: tuple[LeanDetail, ...]
    placements: dict[str, Json]  # by their words, as steps have them
    diffs: tuple[StepDiff, ...]  # of steps that changed files; the first ones, if there are many
    check: CheckShape
    missing: tuple[str, ...]  # parts that could not be read, and why
    texts_cut_at: int  # characters; 0: no text of a step is cut but those that say so
    # True: there are so many steps that those which left nothing behind have no texts here;
    # `check.record` and run.html have them
    is_brief: bool
    # branches that tried something else, and were never to be merged: steps, `workflow`, `models`
    # and `tools` have theirs, `usage` does not
    what_ifs: tuple[LogId, ...] = ()


def dossier_schema() -> dict[str, Any]:
    """Return the JSON schema of `dossier.json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "plait dossier",
        **msgspec.json.schema(Dossier),
    }
