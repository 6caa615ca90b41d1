"""The shapes that the shell, the server and the page share: plain data, one struct per shape.

Keys are snake_case, ids are whole, times are microseconds since 1970 (UTC). Texts are as recorded,
neither cleaned nor cut: each face makes them harmless in its own way. Only the line of a step, and
the last words of a session, are short. A field that ends in `_text` is made for people.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plait.event import Json
from plait.ids import Digest, LogId, Micros
from plait.session.life import Status

# ── places and sessions ──────────────────────────────────────────────────────────────────────


class Shape(msgspec.Struct, frozen=True):
    """The base class of all shapes."""


class SeqRef(Shape, frozen=True):
    """A place: an event of a log, by its seq."""

    log: LogId
    seq: int


class SpentShape(Shape, frozen=True):
    """The amounts spent, as `plait cost --json` has them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated_tokens: int = 0
    cost_usd: float | None = 0.0  # None: no price is known
    unpriced: int = 0  # replies without a known price
    model_calls: int = 0
    tool_calls: int = 0


class SessionSummary(Shape, frozen=True):
    """One session in a list for people."""

    log: LogId
    short: str
    name: str  # its label, else its title, else its first words, else its short id
    title: str
    label: str | None
    status: Status
    standing: str  # the status for people: `waiting, due` if it has its answer
    is_due: bool  # it waits, and goes on if it is resumed
    # of the last run, as `module:Class`; "": none began
    workflow: str
    user: str | None
    project: str | None
    tags: dict[str, str]
    parent: SeqRef | None  # None: a root
    is_branch_of_run: bool  # forked by a run, not by a person
    branch_count: int  # sessions below it
    opened: Micros
    updated: Micros  # of its last event
    tip: int
    event_count: int  # its own events
    spent: SpentShape  # with its branches
    spent_unmerged: SpentShape  # of that: in branches that are not merged into it
    waiting: int  # asks that wait for a person, gates too, in it and the branches of its run
    queued: int  # turns that wait for a run
    last_text: str  # the last message or reply, at most 200 characters


class SummaryPage(Shape, frozen=True):
    sessions: tuple[SessionSummary, ...]
    next: str | None  # pass it as `before` for the next page; None: this is the last one
    number: int  # the commit number up to which the page is new


# ── a family: branches, stretches and lanes ──────────────────────────────────────────────────

StretchEnd = Literal["fork", "merge", "tip"]


class BranchShape(Shape, frozen=True):
    """One log of a family."""

    log: LogId
    short: str
    name: str
    status: Status
    standing: str  # the status for people: `waiting, due` if it has its answer
    is_due: bool  # it waits, and goes on if it is resumed
    parent: SeqRef | None
    place: int  # the last seq inherited; its own events begin after it
    tip: int
    color: int  # kept for its life: 0 is the root's, branches count from 1
    step_count: int
    merged_into: tuple[SeqRef, ...]  # the events that merged it
    spent: SpentShape  # of its own events


class StretchShape(Shape, frozen=True):
    """A piece of one log between forks and merges: it is drawn as one line in one lane."""

    branch: int  # index into `branches`
    lane: int  # column of the picture, 0 is the leftmost
    first: int  # seq of its first and last event
    last: int
    first_step: int  # indexes of its steps among the steps of the log
    step_count: int
    # indexes of the stretches that its line comes from: the one before it in its log, or the one
    # it was forked from, first; merged ones after it
    parents: tuple[int, ...]


class FamilyShape(Shape, frozen=True):
    """All sessions connected with one by forks and merges. Stretches stand in the order of their
    first commits; the rows of a picture are the steps of the stretches, one after another.
    """

    root: LogId
    title: str
    branches: tuple[BranchShape, ...]  # the root first
    spent: SpentShape  # of the root, as its summary has it: with the branches of its runs
    spent_unmerged: SpentShape  # of that: in branches that are not merged into it
    stretches: tuple[StretchShape, ...]
    lane_count: int
    number: int  # the commit number up to which it is new


# ── steps ────────────────────────────────────────────────────────────────────────────────────

StepType = Literal[
    "message",  # said by a person, a program, or in the name of one
    "reply",  # the words of a model
    "tool",  # a call, with request, approval, attempts, outcome, changed paths
    "question",  # to a person, with its answer
    "verdict",
    "fact",
    "pending",
    "route",
    "fork",  # the first step of a branch
    "merge",
    "rewind",
    "compaction",
    "placement",
    "run",  # started, branched off
    "taken",  # taken up again, by a person or a worker; after a kill it has that mark
    "ended",  # a run finished, failed or was cancelled
    "wait",  # a timer, a signal, a gate
    "memory",  # proposed, decided about, recalled, used
    "life",  # opened, paused, unpaused, closed, archived, moved
    "budget",
    "failure",  # of a model
    "bypass",
    "note",  # evidence, links, and kinds that this version does not know
]
# `open`: not settled yet. `unknown`: it may have happened.
StepState = Literal["done", "open", "waiting", "failed", "denied", "unknown"]
StepMark = Literal[
    "files",
    "passed",
    "failed",
    "approval",
    "kill",
    "merge",
    "compaction",
    "fork",
    "rewind",
    "memory",
]


class StepShape(Shape, frozen=True):
    """One thing that happened, as a person would tell it: some events of one log, as one line."""

    index: int  # among the steps of its log
    log: LogId
    first: int  # seq of its first event
    seq: int  # of its last event so far: the place at which it has happened
    events: tuple[int, ...]  # the seqs of all its events
    type: StepType
    state: StepState
    # the line: an optional tool or verb, its object, and the words that matter most
    verb: str  # "shell", "edit_file", "merged", "tests"; "": the words alone
    subject: str  # the first argument, a path, a name, a key
    says: str  # the last words of an output, the words of a message, a reason
    actor: str
    path: str  # of the call: repair/clamp/coder; "": outside of a run
    time: Micros  # of its first event
    took_us: int | None  # None: it is not settled, or has no duration
    marks: tuple[StepMark, ...] = ()
    files: tuple[str, ...] = ()  # the paths that it changed
    exit_code: int | None = None
    tokens: int = 0
    cost_usd: float | None = None  # None: not a reply, or no price is known
    is_rewound: bool = False  # a later rewind went back behind it
    links: tuple[SeqRef, ...] = ()  # fork: its source; merge: the branches; rewind: the target


class StepPage(Shape, frozen=True):
    log: LogId
    first: int  # index of the first step here
    total: int
    steps: tuple[StepShape, ...]


class OutlineShape(Shape, frozen=True):
    """The steps of one log, in short, for the strip and for scrubbing: parallel lists, a value per
    step. Ask again from the first step that is not `done` to bring it up to date.
    """

    log: LogId
    from_index: int
    total: int
    firsts: tuple[int, ...]
    seqs: tuple[int, ...]
    times_ms: tuple[int, ...]  # since 1970
    types: tuple[StepType, ...]
    states: tuple[StepState, ...]
    marks: dict[int, tuple[StepMark, ...]]  # by index, of those that have any
    # spans of seqs that rewinds went back behind, as first and last; they may overlap
    rewound: tuple[tuple[int, int], ...]
    number: int


# ── a step in full ───────────────────────────────────────────────────────────────────────────


class PartShape(Shape, frozen=True):
    """A piece of a message or an output. A long text is cut; `blob` has all of it."""

    type: Literal["text", "reasoning", "image", "file", "data"]
    text: str = ""  # of text, reasoning; JSON of data; the alternative text of an image
    name: str = ""
    media_type: str = ""
    blob: Digest | None = None
    size: int = 0  # bytes in all
    is_cut: bool = False


class ApprovalShape(Shape, frozen=True):
    """One word of a person about a call."""

    seq: int
    how: Literal["requested", "granted", "corrected", "denied", "expired"]
    actor: str
    time: Micros
    words: str = ""
    edited: Json = None  # the arguments that were granted instead


class AttemptShape(Shape, frozen=True):
    seq: int
    number: int
    state: StepState
    words: str
    time: Micros
    took_us: int | None = None


class StepDetail(Shape, frozen=True):
    """A step with everything that its panel shows."""

    step: StepShape
    branch: str
    arguments: Json = None
    parts: tuple[PartShape, ...] = ()  # of the message, the reply, or the output
    asked_parts: tuple[PartShape, ...] = ()  # a question
    calls: tuple[str, ...] = ()  # of a reply: the tools that it asks for
    failure: str = ""
    traceback: str = ""
    reason: str = ""
    effect: str = ""  # effect class of a tool
    version: str = ""
    idempotency_key: str = ""
    placement: Json = None
    placement_text: str = ""
    model: str = ""
    usage: SpentShape | None = None
    latency_us: int | None = None
    attempts: tuple[AttemptShape, ...] = ()
    approvals: tuple[ApprovalShape, ...] = ()
    tree_before: Digest | None = None
    tree_after: Digest | None = None
    kept: tuple[PartShape, ...] = ()  # evidence that no model was shown
    delta: Json = None  # a change that the tool observed outside of the files
    fields: dict[str, Json] = {}  # what else its events say, by name
    ask: Digest | None = None  # the open ask of this step: answer it in the inbox


# ── track ────────────────────────────────────────────────────────────────────────────────────


class FactShape(Shape, frozen=True):
    key: str
    kind: Literal["fact", "decision", "finding"]
    value: Json
    at: SeqRef


class TrackState(Shape, frozen=True):
    """The state of a session at one place, in short."""

    seq: int
    tree: Digest | None
    facts: dict[str, FactShape]
    pending: dict[str, str]  # key: what
    verdicts: dict[str, bool]
    placement_text: str
    status: Status  # by its events alone
    spent: SpentShape
    budget: Json  # limits by name; None: unlimited
    budget_left: Json
    last_message_seq: int


class TrackChange(Shape, frozen=True, omit_defaults=True):
    """The parts of the state that one event changed. A field that is left out did not change; a
    fact or pending work that is None is gone.
    """

    seq: int
    tree: Digest | None | msgspec.UnsetType = msgspec.UNSET
    facts: dict[str, FactShape | None] = {}
    pending: dict[str, str | None] = {}
    verdicts: dict[str, bool | None] = {}
    placement_text: str | msgspec.UnsetType = msgspec.UNSET
    status: Status | msgspec.UnsetType = msgspec.UNSET
    spent: SpentShape | msgspec.UnsetType = msgspec.UNSET
    budget: Json | msgspec.UnsetType = msgspec.UNSET
    budget_left: Json | msgspec.UnsetType = msgspec.UNSET
    last_message_seq: int | msgspec.UnsetType = msgspec.UNSET


class TrackShape(Shape, frozen=True):
    """A piece of the track of a log: the state at `start.seq`, and its changes up to `last`."""

    log: LogId
    start: TrackState
    last: int
    changes: tuple[TrackChange, ...]


# ── files ────────────────────────────────────────────────────────────────────────────────────


class EntryShape(Shape, frozen=True):
    name: str
    path: str  # shown: bytes that are no text stand as \xNN
    kind: Literal["file", "folder", "link"]
    size: int = 0
    is_executable: bool = False
    target: str = ""


class FolderShape(Shape, frozen=True):
    tree: Digest
    path: str
    entries: tuple[EntryShape, ...]  # folders first


class FileShape(Shape, frozen=True):
    """A file of a tree. Text comes by lines, so many at a time."""

    tree: Digest
    path: str
    form: Literal["text", "image", "binary", "link"]
    size: int
    media_type: str
    line_count: int = 0
    first_line: int = 1
    lines: tuple[str, ...] = ()  # a very long line is cut, and ends in an ellipsis
    cut_lines: tuple[int, ...] = ()  # numbers of lines that are cut
    blob: Digest | None = None


class WriterShape(Shape, frozen=True):
    """An event that wrote lines of a file."""

    log: LogId
    seq: int
    event: Digest
    kind: str
    tool: str
    actor: str
    time: Micros
    branch: str


class BlameShape(Shape, frozen=True):
    path: str
    writers: tuple[WriterShape, ...]
    lines: tuple[int, ...]  # index into `writers`, for each line of the file


class DiffLine(Shape, frozen=True, array_like=True):
    mark: Literal["+", "-", " "]
    old: int  # line numbers from 1 on; 0: not on this side
    new: int
    text: str


class FileDiff(Shape, frozen=True):
    status: Literal["added", "removed", "changed", "renamed"]
    path: str
    old_path: str | None
    added: int
    removed: int
    form: Literal["text", "binary", "link", "mode"]
    hunks: tuple[tuple[DiffLine, ...], ...] = ()
    is_cut: bool = False  # more lines differ than are shown


class FilesDiff(Shape, frozen=True):
    left: Digest | None
    right: Digest | None
    files: tuple[FileDiff, ...]


# ── comparing ────────────────────────────────────────────────────────────────────────────────


class AlignedStep(Shape, frozen=True):
    """A row of a comparison: the same call on both sides, or a step of one side."""

    left: StepShape | None
    right: StepShape | None
    is_same: bool


class ValueSides(Shape, frozen=True):
    left: Json
    right: Json


class ComparisonShape(Shape, frozen=True):
    left: SeqRef
    right: SeqRef
    base: SeqRef | None  # the last place that both have; None: they have none
    common_steps: int  # before the first difference
    rows: tuple[AlignedStep, ...]
    is_cut: bool
    files: FilesDiff
    facts: dict[str, ValueSides]
    verdicts: dict[str, ValueSides]
    left_spent: SpentShape
    right_spent: SpentShape
    left_text: str  # the last words of each
    right_text: str
