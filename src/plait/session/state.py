"""The state of a session at a place, apart from its transcript: plain data, folded from events.

A rewind sets the *story* back: facts, pending work, scratch, verdicts, placement, tree, and the
spans of logs that are its path. It never sets the *ledger* back: the amounts spent, the logs that
are counted, the life, the gates. The size of a state depends on the number of its keys, not on the
length of the log, so it can be kept as a snapshot.

Values stay in their JSON form and are decoded when asked for: a program that edits a value edits a
copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from plait.event import Json
from plait.event.kinds import Budget, Placement, StateDigest, Usage
from plait.ids import Digest, LogId, Micros, digest
from plait.session.life import Life

FOLD = 5  # the version of the folds: digests and snapshots of others are not comparable
STATE_TAG = b"plait/state/1"

FactKind = Literal["fact", "decision", "finding"]
PendingKind = Literal["step", "question", "hypothesis"]


class EventRef(msgspec.Struct, frozen=True):
    """An event by its place and id."""

    log: LogId
    seq: int
    id: Digest


class Fact(msgspec.Struct, frozen=True):
    """The last word on a key.

    Without a value it is a retraction, which must be known to merge rightly.
    """

    key: str
    at: EventRef
    json: str | None
    kind: FactKind = "fact"
    review_by: Micros | None = None
    # writes of other branches that said the same when they met: it stands for them too
    also: tuple[EventRef, ...] = ()

    @property
    def value(self) -> Json:
        return None if self.json is None else msgspec.json.decode(self.json)


class Pending(msgspec.Struct, frozen=True):
    """Work that is open, or was."""

    key: str
    at: EventRef
    what: str
    kind: PendingKind
    settled: bool = False
    also: tuple[EventRef, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    name: str
    passed: bool
    at: EventRef
    tree: Digest | None = None


class Tree(msgspec.Struct, frozen=True):
    """The workspace's last recorded tree and the event that recorded it."""

    digest: Digest
    at: EventRef
    also: tuple[EventRef, ...] = ()


class Span(msgspec.Struct, frozen=True):
    """Events first to last of one log, as a piece of a path."""

    log: LogId
    first: int
    last: int
    # the name of the merged branch it came with; None: the session's own path
    branch: str | None = None
    via: int = 0  # the place of the merge that brought it
    apart: bool = False  # taken over by a session that was detached: no lineage


class _Absent:
    """The one value that means: there is no such fact."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()


class Story(msgspec.Struct, frozen=True):
    facts: dict[str, Fact] = {}
    pending: dict[str, Pending] = {}
    scratch: dict[str, str] = {}
    verdicts: dict[str, Verdict] = {}
    placement: Placement | None = None
    tree: Tree | None = None
    path: tuple[Span, ...] = ()


class Cost(msgspec.Struct, frozen=True):
    """The cost of asking models, in US dollars."""

    dollars: float | None  # of the calls whose price is known; None: no price is known
    unpriced: int = 0  # calls whose price is not known
    # True: some tokens are an estimate, since the provider did not count them
    estimated: bool = False

    def as_dict(self) -> dict[str, float | int | bool | None]:
        """Return it as plain data, for `json.dumps`."""
        return msgspec.structs.asdict(self)

    def __str__(self) -> str:
        if self.dollars is None:
            return "unknown"
        known = f"{'~' if self.estimated else ''}{dollars_text(self.dollars)}"
        return (
            f"{known} and {self.unpriced} call{'s' if self.unpriced > 1 else ''} unpriced"
            if self.unpriced
            else known
        )


def dollars_text(dollars: float) -> str:
    """Write an amount with four decimals, and with more where four would show nothing of it."""
    text = f"{dollars:,.4f}"
    return (
        f"${text}"
        if dollars == 0 or float(text.replace(",", ""))
        else f"${dollars:.9f}".rstrip("0")
    )


def tokens_text(spent: Spent) -> str:
    """Write how many tokens were used, with a mark where some are an estimate."""
    return f"{'~' if spent.usage.estimated_tokens else ''}{spent.tokens:,} tokens"


class Spent(msgspec.Struct, frozen=True):
    usage: Usage = Usage()
    cost_usd_nano: int = 0
    unpriced: int = 0  # replies whose price is not known
    model_calls: int = 0
    tool_calls: int = 0

    def __add__(self, other: Spent) -> Spent:
        mine, theirs = self.usage, other.usage
        return Spent(
            Usage(
                mine.input_tokens + theirs.input_tokens,
                mine.output_tokens + theirs.output_tokens,
                mine.cached_tokens + theirs.cached_tokens,
                mine.reasoning_tokens + theirs.reasoning_tokens,
                mine.estimated_tokens + theirs.estimated_tokens,
            ),
            self.cost_usd_nano + other.cost_usd_nano,
            self.unpriced + other.unpriced,
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
        )

    def __sub__(self, other: Spent) -> Spent:
        usage = Usage(
            *(
                getattr(self.usage, name) - getattr(other.usage, name)
                for name in Usage.__struct_fields__
            )
        )
        fields = ("cost_usd_nano", "unpriced", "model_calls", "tool_calls")
        return Spent(usage, *(getattr(self, name) - getattr(other, name) for name in fields))

    @property
    def tokens(self) -> int:
        return self.usage.input_tokens + self.usage.output_tokens

    @property
    def cost(self) -> Cost:
        dollars = None if self.unpriced and not self.cost_usd_nano else self.cost_usd_nano / 1e9
        return Cost(dollars, self.unpriced, self.usage.estimated_tokens > 0)


NOTHING = Spent()


class Gate(msgspec.Struct, frozen=True):
    name: str
    by: str
    at: EventRef


class State(msgspec.Struct, frozen=True):
    log: LogId
    place: int
    story: Story
    # the ledger
    title: str = ""
    user: str | None = None
    project: str | None = None
    tags: dict[str, str] = {}
    opened: Micros = 0
    label: str | None = None
    life: Life = Life()
    gates: dict[str, Gate] = {}
    spent: Spent = Spent()
    budget: Budget | None = None
    granted_at: Spent = Spent()  # the amounts spent when the budget was granted
    covers: dict[LogId, int] = {}  # every log counted here, with its last place that is
    # the amounts that each of them spent up to there, if any: no event is counted twice
    bills: dict[LogId, Spent] = {}
    run: str | None = None  # the run that is open
    calls: dict[str, int] = {}  # calls that are open, with the place of their first ask
    delivered: int = 0  # the last place of its inbox that has reached it

    @property
    def name(self) -> str:
        """Its label, else its title, else the short id."""
        return self.label or self.title or self.log[-12:-4]

    @property
    def budget_left(self) -> Budget | None:
        """The rest of the budget. None: unlimited."""
        grant = self.budget
        if grant is None:
            return None
        spent, before = self.spent, self.granted_at
        cost = (spent.cost_usd_nano - before.cost_usd_nano) / 1e9
        return Budget(
            tokens_max=None
            if grant.tokens_max is None
            else max(0, grant.tokens_max - (spent.tokens - before.tokens)),
            cost_usd_max=None
            if grant.cost_usd_max is None
            else max(0.0, grant.cost_usd_max - cost),
            wall_s_max=grant.wall_s_max,
            steps_max=None
            if grant.steps_max is None
            else max(0, grant.steps_max - (spent.model_calls - before.model_calls)),
            tool_calls_max=None
            if grant.tool_calls_max is None
            else max(0, grant.tool_calls_max - (spent.tool_calls - before.tool_calls)),
        )


# ── bytes ────────────────────────────────────────────────────────────────────────────────────

_encode = msgspec.json.Encoder(order="deterministic").encode


class _Snapshot(msgspec.Struct, frozen=True):
    fold: int
    head: Digest
    state: State


_decode = msgspec.json.Decoder(_Snapshot).decode


def state_digest(state: State) -> StateDigest:
    return StateDigest(FOLD, digest(STATE_TAG, _encode(state)))


def to_snapshot(state: State, head: Digest) -> bytes:
    return _encode(_Snapshot(FOLD, head, state))


def from_snapshot(data: bytes) -> tuple[Digest, State] | None:
    """Return the event that a snapshot belongs to, and its state. None: it is of another fold, or
    damaged, which does not matter to a cache.
    """
    try:
        kept = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return (kept.head, kept.state) if kept.fold == FOLD else None


# ── spans ────────────────────────────────────────────────────────────────────────────────────


class Known:
    """The events that belong to a story: looked up often in a merge, so indexed by log."""

    def __init__(self, path: Iterable[Span]) -> None:
        self._ranges: dict[LogId, list[tuple[int, int]]] = {}
        self.add(path)

    def __contains__(self, ref: object) -> bool:
        return isinstance(ref, EventRef) and self.has(ref.log, ref.seq)

    def has(self, log: LogId, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self._ranges.get(log, ()))

    def add(self, spans: Iterable[Span]) -> None:
        for span in spans:
            ranges = self._ranges.setdefault(span.log, [])
            # merges cut a path into many pieces; together they are one range
            if ranges and ranges[-1][1] + 1 == span.first:
                ranges[-1] = (ranges[-1][0], span.last)
            else:
                ranges.append((span.first, span.last))

    def ranges(self) -> Iterator[tuple[LogId, int, int]]:
        """Yield the pieces of each log: the log, the first place and the last."""
        for log, ranges in self._ranges.items():
            for first, last in ranges:
                yield log, first, last

    def last_shared(self, span: Span) -> int | None:
        """Return the last place of a span that is known."""
        ranges = self._ranges.get(span.log, ())
        return max(
            [
                min(last, span.last)
                for first, last in ranges
                if first <= span.last and last >= span.first
            ],
            default=None,
        )

    def unknown_pieces(self, span: Span) -> list[Span]:
        """Return the pieces of a span that are not known yet."""
        pieces = [(span.first, span.last)]
        for first, last in self._ranges.get(span.log, ()):
            pieces = (
                [
                    piece
                    for start, end in pieces
                    for piece in ((start, min(end, first - 1)), (max(start, last + 1), end))
                    if piece[0] <= piece[1]
                ]
                if any(start <= last and end >= first for start, end in pieces)
                else pieces
            )
        return [msgspec.structs.replace(span, first=first, last=last) for first, last in pieces]


def share_a_place(one: State, other: State) -> bool:
    """Return True if two sessions count events of one log, by lineage or by a merge: then each
    change can be told from the other side's.
    """
    return not one.covers.keys().isdisjoint(other.covers)
