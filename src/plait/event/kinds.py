"""The vocabulary: one frozen struct per kind of fact.

A body is plain data in the past tense. What every fact shares (who, when, after what, because of
what) stands in the header and is not repeated here. Bytes are decided by value alone, so that the
same fact has the same bytes in every process: fields are encoded in the order below, map keys
sorted, and a field that has its default is left out. msgspec compares a default by identity, hence
the rule, kept by a test, that defaults are None, a boolean, a small integer, "" or an empty
container: values that exist once.

To change a kind: give it `tag=2` and register an upcaster from version 1 in `codec.VOCABULARY`. A
default never changes within a version, because old bytes rely on it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from plait.event.strict import Json
from plait.ids import Digest, LogId, Micros

# A measured value differs between two runs of the same history; comparing histories leaves it out.
Measured = msgspec.Meta(extra={"measured": True})
DurationMicros = Annotated[int, Measured]
MeasuredTime = Annotated[Micros, Measured]

Purpose = Literal["plan", "act", "validate", "reflect", "route"]
EffectClass = Literal[
    "pure", "workspace", "idempotent", "probeable", "compensatable", "at_most_once"
]
Scope = Literal["session", "agent", "workflow", "project", "user"]


def _first_version(_: str) -> int:
    return 1


class Body(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="v",
    tag=_first_version,
):
    """What one kind of event says. The tag `v` is the body version of its kind."""

    def refs(self) -> tuple[Digest, ...]:
        """The blobs this body points to, in order."""
        return ()


# ── values that bodies share ─────────────────────────────────────────────────────────────────


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A piece of a body."""


class Place(Value, frozen=True):
    """A position in a log, and the event that stands there."""

    log: LogId
    seq: int
    head: Digest


class Part(Value, frozen=True, tag_field="type"):
    """A piece of a message. Content beyond a few KB is in `blob`, and the inline field is empty."""


class Text(Part, frozen=True, tag="text"):
    text: str = ""
    blob: Digest | None = None


class Reasoning(Part, frozen=True, tag="reasoning"):
    """Kept verbatim, with whatever the provider wants back (signature, encrypted form)."""

    text: str = ""
    raw: Json = None
    blob: Digest | None = None


class Image(Part, frozen=True, tag="image"):
    media_type: str
    blob: Digest
    alt: str = ""


class File(Part, frozen=True, tag="file"):
    name: str
    media_type: str
    blob: Digest
    rest: tuple[Digest, ...] = ()  # what follows, if it is longer than one blob may be


class Data(Part, frozen=True, tag="data"):
    value: Json = None
    blob: Digest | None = None


Parts = tuple[Text | Reasoning | Image | File | Data, ...]


def _refs(parts: Parts) -> tuple[Digest, ...]:
    return tuple(
        [
            blob
            for part in parts
            if part.blob
            for blob in (part.blob, *(part.rest if isinstance(part, File) else ()))
        ]
    )


def _roots(trees: Trees | None) -> tuple[Digest, ...]:
    return (trees.before, trees.after) if trees else ()


class Action(Value, frozen=True):
    """One tool call that a reply asks for.

    `call` names its bracket: every event of the effect carries it in the header.
    """

    call: str
    tool: str
    arguments: Json  # an object; a text if the model's own text was no JSON object, kept as it came
    reason: str = ""
    ref: str = ""  # what the provider calls it


class Usage(Value, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated_tokens: int = 0  # of those above: the provider did not count them


class Price(Value, frozen=True):
    """What a call cost, and by which price list."""

    cost_usd_nano: int
    source: str  # the price list and its version


class Budget(Value, frozen=True):
    """Limits on spending. None: unlimited.

    Tokens, dollars, steps (asks of a model) and tool calls are limits over all runs and branches of
    a session, merged or not, from the grant on. `wall_s_max` is a limit on one run: seconds while a
    process holds it, its resumes added up, waits for people left out.
    """

    tokens_max: int | None = None
    cost_usd_max: float | None = None
    wall_s_max: float | None = None
    steps_max: int | None = None
    tool_calls_max: int | None = None


class Placement(Value, frozen=True):
    """Where tools run, and what exactly that was."""

    backend: str
    sandbox: str = ""
    generation: int = 0
    rung: str = ""
    image: str = ""
    network: str = ""
    detail: Json = None


class Trees(Value, frozen=True):
    """The workspace before and after an effect."""

    before: Digest
    after: Digest
    changed: tuple[str, ...] = ()


class Failure(Value, frozen=True):
    """An error as a value: what a program may see of it, live and replayed alike."""

    kind: str
    message: str
    traceback: str = ""
    retryable: bool = False


class Score(Value, frozen=True):
    """One candidate of a recall and why it ranked where it did."""

    memory: str
    score: float
    parts: dict[str, float] = {}


class StateDigest(Value, frozen=True):
    """The folded state at this place. Digests of different fold versions are not comparable."""

    fold: int
    digest: Digest


# ── the session's life ───────────────────────────────────────────────────────────────────────


class SessionOpened(Body, frozen=True):
    title: str = ""
    user: str | None = None
    project: str | None = None
    tags: dict[str, str] = {}
    budget: Budget | None = None
    continues: Place | None = None  # the session this one succeeds or was detached from
    # whether the story up to there is its own too; if not, only what the events below say
    detached: bool = False
    # how its log and all forks of it are written; None: full
    durability: Literal["full", "async"] | None = None
    # whether its budget is what was left of that of the session it continues, and draws on that as
    # well
    draws: bool = False


class ForkedFrom(Body, frozen=True):
    parent: LogId
    place: int
    label: str | None = None
    budget: Budget | None = None  # None: what remained at the fork


class Rewound(Body, frozen=True):
    to: int
    reason: str = ""
    # outcomes of external effects that the rewind leaves in the world
    not_undone: tuple[Digest, ...] = ()


class Resolution(Value, frozen=True):
    """What somebody chose where branches disagreed."""

    value: Json = None
    absent: bool = False  # whether the fact is gone instead


class Merged(Body, frozen=True):
    branches: tuple[Place, ...]
    # log: its last place that is now counted here, for those that went forward
    covers: dict[str, int] = {}
    resolved: dict[str, Resolution] = {}
    base: Place | None = None  # given by the caller, for sessions that share no place
    tree: Digest | None = None

    def refs(self) -> tuple[Digest, ...]:
        return (self.tree,) if self.tree else ()


class HandedOff(Body, frozen=True):
    to: str
    reason: str = ""


class SessionPaused(Body, frozen=True):
    reason: str = ""


class SessionResumed(Body, frozen=True):
    reason: str = ""


class SessionClosed(Body, frozen=True):
    reason: str = ""
    state: StateDigest | None = None


class SessionArchived(Body, frozen=True):
    reason: str = ""


class MessageSaid(Body, frozen=True):
    role: Literal["user", "system", "assistant"]
    parts: Parts
    name: str = ""
    aside: bool = False  # between a selector and its model: not part of the conversation

    def refs(self) -> tuple[Digest, ...]:
        return _refs(self.parts)


# ── runs, calls and effects ──────────────────────────────────────────────────────────────────


class RunStarted(Body, frozen=True):
    workflow: str  # import path, as in package.module:Class
    arguments: Json = None
    revision: str = ""
    environment: Json = None


class RunResumed(Body, frozen=True):
    holder: str
    epoch: int = 0
    branch: bool = False  # said in a branch of the run, to whoever held it before


class RunBranched(Body, frozen=True):
    source: Place
    workflow: str
    overrides: Json = None


class RunFinished(Body, frozen=True):
    state: StateDigest | None = None


class RunFailed(Body, frozen=True):
    failure: Failure


class RunCancelled(Body, frozen=True):
    reason: str = ""
    by: str = ""  # who wished it; "": its process let go of it, and it can be taken up again


class CallStarted(Body, frozen=True):
    workflow: str
    path: str
    purpose: Purpose | None = None
    agent: str | None = None
    # what an agent asks its model with, besides the story: instruction, tools, view, parameters
    setup: Digest | None = None

    def refs(self) -> tuple[Digest, ...]:
        return (self.setup,) if self.setup else ()


class CallFinished(Body, frozen=True):
    failure: Failure | None = None


class ModelAsked(Body, frozen=True):
    model: str
    prompt: Digest  # of the prompt chain: the previous prompt's digest and the parts appended
    parameters: Json = None
    attempt: int = 1
    reserved: Usage | None = None


class ModelReplied(Body, frozen=True):
    parts: Parts
    usage: Usage
    stop: str
    calls: tuple[Action, ...] = ()
    model: str = ""
    price: Price | None = None  # None: no price is known for this model
    latency_us: DurationMicros = 0
    aside: bool = False  # a selector's: not part of the conversation

    def refs(self) -> tuple[Digest, ...]:
        return _refs(self.parts)


class ModelFailed(Body, frozen=True):
    failure: Failure
    attempt: int = 1
    usage: Usage | None = None
    partial: str = ""  # what had come of the answer
    price: Price | None = None
    latency_us: DurationMicros = 0


class ToolRequested(Body, frozen=True):
    tool: str
    arguments: Json
    effect: EffectClass
    version: str = ""
    reason: str = ""
    policy: Digest | None = None
    attempt: int = 1
    path: str = ""  # of the call that asked for it: review/critics/style
    source: str = ""  # where the tool comes from, if not from the program itself: mcp:git
    decision: Literal["", "allow", "ask", "refuse"] = ""  # what the policy says; "": there is none


class ToolReturned(Body, frozen=True):
    parts: Parts
    exit_code: int | None = None
    trees: Trees | None = None
    placement: Placement | None = None
    delta: Json = None
    attempt: int = 1
    duration_us: DurationMicros = 0
    # evidence that no model is shown: a whole output, a page as it came
    kept: tuple[File, ...] = ()

    def refs(self) -> tuple[Digest, ...]:
        return (*_refs(self.parts), *_roots(self.trees), *_refs(self.kept))


class ToolFailed(Body, frozen=True):
    failure: Failure
    exit_code: int | None = None
    trees: Trees | None = None
    placement: Placement | None = None
    delta: Json = None
    attempt: int = 1
    duration_us: DurationMicros = 0

    def refs(self) -> tuple[Digest, ...]:
        return _roots(self.trees)


class ToolUnknown(Body, frozen=True):
    """The request is on record and its outcome is not: it may have happened."""

    request: Digest
    why: str = ""
    returns: Json = None  # the JSON schema of what it returns. None: anything


class ToolResolved(Body, frozen=True):
    request: Digest
    verdict: Literal["happened", "did_not_happen", "compensated"]
    parts: Parts = ()
    note: str = ""

    def refs(self) -> tuple[Digest, ...]:
        return _refs(self.parts)


# ── people ───────────────────────────────────────────────────────────────────────────────────


class ApprovalRequested(Body, frozen=True):
    binding: Digest  # over session, seq, tool and version, arguments, policy
    shown: Json
    expires: MeasuredTime | None = None
    asked: int = 1  # how often this call was asked for


class ApprovalGranted(Body, frozen=True):
    binding: Digest
    # None: as asked; otherwise the corrected arguments, under a binding of their own
    edited: Json = None
    note: str = ""


class ApprovalDenied(Body, frozen=True):
    binding: Digest
    reason: str = ""


class ApprovalExpired(Body, frozen=True):
    binding: Digest


class QuestionAsked(Body, frozen=True):
    question: str
    choices: tuple[str, ...] = ()


class QuestionAnswered(Body, frozen=True):
    question: Digest
    answer: Json


class CancelRequested(Body, frozen=True):
    """Somebody wants the run to end.

    It stands in the inbox; the run hears it before its next effect.
    """

    reason: str = ""


class TimerSet(Body, frozen=True):
    """The run waits: until then, or for somebody to record something of this name in its inbox."""

    until: MeasuredTime | None = None  # None: as long as it takes
    event: str = ""


class Signalled(Body, frozen=True):
    """Something that a run may wait for has happened, and somebody says so."""

    name: str
    value: Json = None


class TimerFired(Body, frozen=True):
    by: Literal["time", "event"]


class Delivered(Body, frozen=True):
    """The inbox was read up to a place; what stood there has now reached the session."""

    inbox: LogId
    upto: int
    copies: int = 0  # how many events after this one repeat what stood there


# ── what is known and what is open ───────────────────────────────────────────────────────────


class ValidationRecorded(Body, frozen=True):
    name: str
    passed: bool
    evidence: tuple[Digest, ...] = ()
    detail: Json = None
    tree: Digest | None = None
    # in a run: the names of the workflows whose verdict it is, as a gate may name them; (): its
    # actor alone
    by: tuple[str, ...] = ()
    # the place it is about, if that is not the one it stands at: it came through the inbox
    at: int | None = None


class GateRequired(Body, frozen=True):
    name: str
    # only this one's verdict counts: a principal, or a workflow by its path or class. "": anybody's
    by: str = ""


class VerdictAwaited(Body, frozen=True):
    """A run waits at a gate for a verdict that counts."""

    name: str
    by: str = ""
    why: str = ""  # what the gate says
    session: LogId | None = None  # whose verdict it is, if not that of the session that waits
    heard: int = 0  # up to where in that one's inbox the run had heard by then


class VerdictHeard(Body, frozen=True):
    """A run does not wait any more for the verdict that this event asked for."""

    awaited: Digest


class PlacementChanged(Body, frozen=True):
    placement: Placement
    tree: Digest | None = None
    replaced: str = ""  # the sandbox that is gone, if this one stands in for it
    fresh: bool = False  # whether its files were read off a folder just then

    def refs(self) -> tuple[Digest, ...]:
        return (self.tree,) if self.tree else ()


class FactRecorded(Body, frozen=True):
    key: str
    value: Json
    kind: Literal["fact", "decision", "finding"]
    review_by: Micros | None = None  # None: never goes stale
    reason: str = ""  # why it was decided so, in the words of who decided


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
        return _refs(self.parts)


class RouteSelected(Body, frozen=True):
    choice: str
    candidates: tuple[str, ...]
    reason: str = ""


class ContextCompacted(Body, frozen=True):
    left: tuple[int, int]  # first and last place that left the context
    summary: Parts
    kept: tuple[str, ...] = ()  # keys of facts

    def refs(self) -> tuple[Digest, ...]:
        return _refs(self.summary)


class BudgetSet(Body, frozen=True):
    budget: Budget


class BudgetRefused(Body, frozen=True):
    limit: str
    asked: float
    left: float
    final: bool = False  # whether there is nothing left for an answer either
    why: str = ""  # if it is not for lack of it: the price is not known


class Linked(Body, frozen=True):
    """A pointer into somebody else's store."""

    system: str
    ref: str
    digest: Digest | None = None
    note: str = ""


# ── memory ───────────────────────────────────────────────────────────────────────────────────


class MemoryProposed(Body, frozen=True):
    memory: str
    scope: Scope
    parts: Parts
    evidence: tuple[Digest, ...]
    trust: float | None = None
    supersedes: tuple[str, ...] = ()

    def refs(self) -> tuple[Digest, ...]:
        return _refs(self.parts)


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


# ── the house, and what went around the session ──────────────────────────────────────────────


class HouseOpened(Body, frozen=True):
    """The first event of the house log.

    It names the store, so that the id in the store's own row can be checked.
    """

    store: LogId


class PrincipalChanged(Body, frozen=True):
    principal: str
    change: Literal["added", "disabled", "removed"]
    detail: Json = None


class RoleChanged(Body, frozen=True):
    role: str
    principal: str
    change: Literal["added", "removed"]


class GrantChanged(Body, frozen=True):
    principal: str
    grant: str
    change: Literal["added", "removed"]


class Bypassed(Body, frozen=True):
    what: Literal["process", "socket", "file", "workspace"]
    detail: Json = None


class BodyRedacted(Body, frozen=True):
    event: Digest
    reason: str = ""


class CheckpointSigned(Body, frozen=True):
    upto: int  # commit number
    heads: Digest
    key: str
    signature: str


KINDS: tuple[type[Body], ...] = tuple(Body.__subclasses__())

# In a log that is written `async`, these reach the disk at once, and all before them: what follows
# is out of our hands.
BOUNDARIES = frozenset[type[Body]](
    {
        ModelAsked,
        ToolRequested,
        QuestionAsked,
        ApprovalRequested,
        ApprovalGranted,
        ApprovalDenied,
        TimerSet,
        VerdictAwaited,
        HandedOff,
        RunFinished,
        RunFailed,
        RunCancelled,
        SessionPaused,
        SessionClosed,
        SessionArchived,
        CheckpointSigned,
    }
)
