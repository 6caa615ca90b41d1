"""The answers of the server that are not shapes of an outline: the store, a session at a place,
asks, prompts, traces, and costs.

Rules for keys, ids and times are those of `plait.outline.shapes`.
"""

from __future__ import annotations

from typing import Literal

from plait.event import Json
from plait.ids import Digest, LogId, Micros
from plait.outline.shapes import OutlineShape, SeqRef, Shape, SpentShape
from plait.session.life import Status
from plait.session.trace import Relation
from plait.session.views import WaitKind

# ── the store, and errors ────────────────────────────────────────────────────────────────────


class StoreShape(Shape, frozen=True):
    """The store that a server serves, and what may be done with it."""

    id: LogId
    address: str  # without a password
    version: str  # of Plait
    actor: str  # who acts, if something is done here
    read_only: bool
    can_run: bool  # False: no runs are started from here
    folder: str  # in which runs are started
    number: int  # the commit number of the last settled event


class ErrorShape(Shape, frozen=True):
    """An answer that is an error. Some errors have more fields, in `fields`."""

    error: str  # its name in the error tree, or that of an HTTP status
    message: str  # ends with the next step
    next: str = ""  # the next step alone, where the error has it
    near: tuple[str, ...] = ()  # names that may be meant
    fields: dict[str, Json] = {}


# ── a session at a place ─────────────────────────────────────────────────────────────────────


class PlaceShape(Shape, frozen=True):
    """A session at a place, in short."""

    id: LogId
    place: int


class SessionHead(Shape, frozen=True):
    """A session at a place, without its content."""

    id: LogId
    short: str
    place: int
    head: Digest
    title: str
    label: str | None
    status: Status
    standing: str  # the status for people: `waiting, due` if it has its answer
    due: bool  # it waits, and goes on if it is resumed
    user: str | None
    project: str | None
    tags: dict[str, str]
    parent: PlaceShape | None
    updated: Micros
    queued: int
    store: str


class RunRow(Shape, frozen=True):
    """One run of a session, on record."""

    id: str
    workflow: str
    status: str
    why: str
    first: int
    last: int | None


class FactRow(Shape, frozen=True):
    kind: str
    value: Json
    session: LogId
    seq: int
    event: Digest
    review_by: Micros | None


class PendingRow(Shape, frozen=True):
    kind: str
    what: str
    session: LogId
    seq: int
    event: Digest


class GateRow(Shape, frozen=True):
    by: str
    session: LogId
    seq: int
    event: Digest


class VerdictRow(Shape, frozen=True):
    name: str
    passed: bool
    detail: Json
    session: LogId
    seq: int


class ChangedPaths(Shape, frozen=True):
    before: Digest | None
    after: Digest | None
    paths: tuple[str, ...]


class TurnRow(Shape, frozen=True):
    """A turn that waits for a run."""

    id: Digest
    time: Micros
    actor: str
    text: str
    key: str | None
    attended: bool


class SessionShape(SessionHead, frozen=True):
    """A session at a place, and its state, as `plait show --json` has it; without messages, which
    are steps, and without the cost of branches, which `costs` tells.
    """

    opened: Micros
    lineage: tuple[PlaceShape, ...]
    continues: PlaceShape | None
    durability: str
    runs: tuple[RunRow, ...]
    facts: dict[str, FactRow]
    pending: dict[str, PendingRow]
    budget: dict[str, Json] | None
    left: dict[str, Json] | None
    usage: SpentShape  # of its own path
    gates: dict[str, GateRow]
    validation: tuple[VerdictRow, ...]
    placement: dict[str, Json] | None
    tree: Digest | None
    changed: ChangedPaths | None
    queue: tuple[TurnRow, ...]
    is_tip: bool  # False: the session has events after this place
    tip: int


class EventShape(Shape, frozen=True):
    """One event, as `plait log --json` has it."""

    id: Digest
    session: LogId
    seq: int
    kind: str
    time: Micros
    actor: str
    behalf: str | None
    origin: str | None
    run: str | None
    call: str | None
    parents: tuple[Digest, ...]
    causes: tuple[Digest, ...]
    body: Json  # None: see `state`
    state: Literal["whole", "erased", "unreadable"] = "whole"
    why: str = ""  # of a body that is erased or unreadable


class EventPage(Shape, frozen=True):
    log: LogId
    first: int  # seq of the first event here
    tip: int
    events: tuple[EventShape, ...]


class OutlineList(Shape, frozen=True):
    outlines: tuple[OutlineShape, ...]


class SearchHit(Shape, frozen=True):
    """A message or a reply in which all words of a search stand."""

    log: LogId
    seq: int
    kind: str
    name: str  # of the session
    actor: str
    time: Micros
    snippet: str


class SearchPage(Shape, frozen=True):
    hits: tuple[SearchHit, ...]
    is_cut: bool  # there are more, or not all of the store was searched


# ── asks ─────────────────────────────────────────────────────────────────────────────────────


class LapsedMemory(Shape, frozen=True):
    """A memory that was recalled before an ask, and does not hold any more."""

    id: str
    text: str
    change: str


class AskShape(Shape, frozen=True):
    """One ask, with everything that a person decides by."""

    id: Digest
    kind: WaitKind
    session: LogId
    short: str
    name: str  # of the session
    seq: int
    since: Micros
    actor: str
    behalf: str | None
    run: str | None
    call: str
    resume: str  # the session to resume after the answer
    tool: str | None
    version: str | None
    arguments: Json
    request: Digest | None
    request_seq: int | None  # of the call that asks; None: not a call
    effect: str  # effect class of the tool; "": not known
    reason: str  # why the agent wants it, in its words
    binding: Digest | None
    shown: Json
    patch: str  # the change of files that it would make, as a patch; "": none is known
    expires: Micros | None
    is_late: bool
    question: str
    choices: tuple[str, ...]
    why: str
    until: Micros | None
    signal: str  # of a timer: the signal that ends it; of a verdict: its name
    by: str
    of: LogId | None
    returns: Json
    origins: tuple[str, ...]  # what the asking session had read, as in "web"
    lapsed_memories: tuple[LapsedMemory, ...]
    failed: EventShape | None  # of a verdict: one was given that failed
    answered: EventShape | None  # the answer in an inbox that no run has taken yet; None: it waits


class InboxPage(Shape, frozen=True):
    asks: tuple[AskShape, ...]
    number: int


# ── prompts and traces ───────────────────────────────────────────────────────────────────────


class ToolSpecShape(Shape, frozen=True):
    name: str
    description: str
    schema: Json


class LeftOutRow(Shape, frozen=True):
    """An event that a prompt did not show, and the reason."""

    session: LogId
    place: int
    kind: str
    why: str


class PromptShape(Shape, frozen=True):
    """A prompt as it was sent."""

    session: LogId
    place: int
    event: Digest
    agent: str
    model: str
    as_sent: bool  # False: the digest differs from the one on record
    digest: Digest
    recorded: Digest
    instruction: str
    tools: tuple[ToolSpecShape, ...]
    parameters: Json
    output: Json
    view: Json
    turns: tuple[Json, ...]
    left_out: tuple[LeftOutRow, ...]
    new_from: int  # index of the first turn that the agent's prompt before did not have


class TraceStep(Shape, frozen=True):
    """One event of a trace, and its relation to the one it is shown under."""

    depth: int
    how: str
    id: Digest
    session: LogId
    seq: int
    kind: str
    branch: str
    actor: str
    time: Micros
    says: str
    relation: Relation
    reason: str
    placement: str
    files: tuple[str, ...]
    at: SeqRef | None  # where to look: of an event in an inbox, at the session's. None: nowhere


class TraceShape(Shape, frozen=True):
    about: str
    complete: bool
    steps: tuple[TraceStep, ...]


# ── costs ────────────────────────────────────────────────────────────────────────────────────


class CostRow(Shape, frozen=True):
    names: dict[str, str | None]  # by the names in `by`
    spent: SpentShape


class CostsShape(Shape, frozen=True):
    by: tuple[str, ...]
    since: Micros | None
    until: Micros | None
    rows: tuple[CostRow, ...]
    total: SpentShape
    not_merged: SpentShape | None


class FlameNode(Shape, frozen=True):
    """One call of a run, a workflow, an agent, a model or a tool. Its figures include all below."""

    name: str
    kind: Literal["session", "run", "call", "model", "tool"]
    log: LogId
    seq: int  # of its first event
    depth: int
    parent: int  # index of the node above; -1: none
    began: Micros
    took_us: int | None  # None: it has not ended
    spent: SpentShape


class FlameShape(Shape, frozen=True):
    nodes: tuple[FlameNode, ...]  # each after the one above it
    is_cut: bool


# ── memory and verification ──────────────────────────────────────────────────────────────────


class RecalledMemory(Shape, frozen=True):
    memory: Digest
    text: str
    score: float | None  # None: the index gave none
    state: str  # as it stands now
    used: tuple[SeqRef, ...]  # the events that cite it


class RecallRow(Shape, frozen=True):
    """One recall of an agent: what was asked for, and what it was given."""

    log: LogId
    seq: int
    actor: str
    time: Micros
    query: str
    memories: tuple[RecalledMemory, ...]


class MemoryRow(Shape, frozen=True):
    """A memory that the session proposed, decided about or used."""

    memory: Digest
    log: LogId
    seq: int
    kind: str
    actor: str
    time: Micros
    text: str
    state: str
    why: str


class MemoryPage(Shape, frozen=True):
    recalls: tuple[RecallRow, ...]
    proposed: tuple[MemoryRow, ...]
    decided: tuple[MemoryRow, ...]


class FaultRow(Shape, frozen=True):
    session: LogId | None
    seq: int | None
    what: str


class UncheckedRow(Shape, frozen=True):
    what: str
    why: str


class VerifyShape(Shape, frozen=True):
    session: LogId
    seq: int
    ok: bool
    events: int
    faults: tuple[FaultRow, ...]  # the first broken event first
    unchecked: tuple[UncheckedRow, ...]


# ── acts ─────────────────────────────────────────────────────────────────────────────────


class NotUndoneRow(Shape, frozen=True):
    """An effect beyond the files that a rewind leaves as it is."""

    session: LogId
    seq: int
    event: Digest
    tool: str | None
    arguments: Json
    says: str


class ActShape(Shape, frozen=True):
    """The place after an act."""

    log: LogId
    seq: int
    head: Digest
    short: str
    status: Status
    is_new: bool  # False: nothing had to be written
    posted: EventShape | None  # the event in the inbox; None: the act stands in the log
    resume: str  # the session to resume, if a run waits for this; "": none
    not_undone: tuple[NotUndoneRow, ...] = ()
    still_waits: str = ""  # of a verdict: why a gate waits on; "": none does


class HelloShape(Shape, frozen=True):
    actor: str
    read_only: bool
