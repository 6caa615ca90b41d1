"""Where things come from and what became of them.

`why` walks back and `influence` walks forward. Strong steps are on record: declared causes,
branches that were merged, what was asked before it was answered. A model that is asked is shown
more than it decides by: what stood in its prompt is a step of its own sort, "having seen". Where
nobody declared a cause, the message before it on its path is shown as what it came *after*, and
called that. Walking forward needs an index, which is a projection: causes by what they caused, and
merges by what they took in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from plait.errors import PlaitError
from plait.event import KINDS, Event, Json
from plait.event.kinds import (
    ApprovalGranted,
    FactRecorded,
    ForkedFrom,
    Merged,
    MessageSaid,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    Placement,
    PlacementChanged,
    Rewound,
    RunBranched,
    RunStarted,
    SessionOpened,
    ToolFailed,
    ToolRequested,
    ToolResolved,
    ToolReturned,
    Trees,
    ValidationRecorded,
)
from plait.ids import Digest, LogId, Micros, short
from plait.session.listing import session_row
from plait.session.saying import place_text, saying
from plait.session.state import Stretch
from plait.store import Rows, Store, Table, ancestry

_KEY = 32  # hex digits of an id that are kept in the index


class GraphRows:
    """A `Projection`: who caused whom, and which merge took in which log up to where."""

    name = "graph"
    version = 1
    kinds = frozenset(kind.__name__ for kind in KINDS)
    tables = (
        Table(
            "cause",
            key=("cause", "log", "seq"),
            columns={"cause": "text", "log": "text", "seq": "integer"},
        ),
        Table(
            "merge",
            key=("log", "into", "seq"),
            columns={"log": "text", "into": "text", "seq": "integer", "place": "integer"},
        ),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        header = event.header
        for cause in header.causes:
            rows.put("cause", {"cause": cause[:_KEY], "log": header.log, "seq": header.seq})
        if header.kind == Merged.__name__:
            body = event.body
            assert isinstance(body, Merged)
            for log, place in {
                **{each.log: each.seq for each in body.branches},
                **body.covers,
            }.items():
                rows.put(
                    "merge", {"log": log, "into": header.log, "seq": header.seq, "place": place}
                )


# How a step relates to the one it is shown under: it decided it, it was only in the context of what
# decided, or it came before.
Relation = Literal["subject", "decision", "context", "order"]
_RELATIONS: dict[str, Relation] = {
    "is": "subject",
    "having seen": "context",
    "seen by": "context",
    "ran in": "context",
    "after": "order",
    "followed by": "order",
    "came by": "order",
    "carried into": "order",
    "merged into": "order",
}


class Step(msgspec.Struct, frozen=True):
    """One event of a trace, and how it hangs together with the one it is shown under."""

    depth: int
    how: str
    log: LogId
    seq: int
    id: Digest
    kind: str
    branch: str
    actor: str
    time: Micros
    says: str
    relation: Relation = "decision"
    reason: str = ""  # in the words of who decided; "": none was stated
    placement: str = ""  # of an effect: where it ran; "": in the program itself
    files: tuple[str, ...] = ()  # of an effect: the paths that it changed
    prompt: Json = None  # of an ask: what the model was sent; None: nobody wanted to know


class Trace(msgspec.Struct, frozen=True):
    """The answer of `why` or `influence`: steps, each under the one it belongs to."""

    about: str
    steps: tuple[Step, ...]
    complete: bool = True  # False: there was more than was asked for

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __str__(self) -> str:
        lines = [line for step in self.steps for line in _step_lines(step)]
        return "\n".join([self.about, *lines, *([] if self.complete else ["… and more"])])


def _step_lines(step: Step) -> Iterator[str]:
    margin = "  " * step.depth
    where = f", in {step.placement}" if step.placement else ""
    yield f"{margin}{step.how}: {step.says}  [{step.branch}@{step.seq}, {step.actor}{where}]"
    for line in prompt_lines(step.prompt):
        yield f"{margin}    | {line}"


def prompt_lines(prompt: Json) -> list[str]:
    """A prompt for people: the instruction, the names of the tools, and the turns."""
    if not isinstance(prompt, dict):
        return []
    tools: Any = prompt.get("tools") or ()
    turns: Any = prompt.get("turns") or ()
    lines = str(prompt.get("instruction", "")).splitlines()
    lines += [f"tools: {', '.join(tool['name'] for tool in tools)}"] if tools else []
    for turn in turns:
        lines += f"{turn['type']}: {turn['text']}".splitlines()
    return (
        lines
        if prompt.get("as_sent")
        else [*lines, "(this is not what was sent: see plait verify)"]
    )


_MESSAGES = frozenset({MessageSaid.__name__, ModelReplied.__name__, Merged.__name__})
_BACK = _MESSAGES | {Rewound.__name__}
_OUTCOMES = {
    ModelReplied.__name__: ModelAsked.__name__,
    ModelFailed.__name__: ModelAsked.__name__,
    ToolReturned.__name__: ToolRequested.__name__,
    ToolFailed.__name__: ToolRequested.__name__,
    ToolResolved.__name__: ToolRequested.__name__,
}
# What a tool writes to the session that it is handed stands in the call of the tool.
_WRITTEN = frozenset(
    {
        "FactRecorded",
        "FactRetracted",
        "PendingAdded",
        "PendingSettled",
        "ValidationRecorded",
        "EvidenceAttached",
    }
)
_RESULTS = (ToolReturned, ToolFailed, ToolResolved)
_OUTCOME_AHEAD = 4096  # events after a request among which its outcome is looked for
_FRAMES = frozenset({SessionOpened.__name__})
_FOLLOWERS = _MESSAGES | {
    name
    for name in (
        "FactRecorded",
        "FactRetracted",
        "PendingAdded",
        "PendingSettled",
        "ValidationRecorded",
        "EvidenceAttached",
        "RouteSelected",
    )
}


class _Walk:
    """A breadth-first walk that shows every event once, near the question."""

    def __init__(
        self, store: Store, about: str, limit: int, prompt: Prompted | None = None
    ) -> None:
        self._store, self._about, self._limit, self._prompt = store, about, limit, prompt
        self._placements: dict[LogId, list[Event]] = {}
        self._branches: dict[LogId, str] = {}
        self._seen: set[Digest] = set()
        self._children: dict[Digest | None, list[tuple[str, Event]]] = {}
        self._queue: deque[Event] = deque()
        self.full = False

    def add(self, under: Event | None, how: str, event: Event, *, follow: bool = True) -> None:
        if event.id in self._seen:
            return
        if len(self._seen) >= self._limit:
            self.full = True
            return
        self._seen.add(event.id)
        self._children.setdefault(under.id if under else None, []).append((how, event))
        if follow:
            self._queue.append(event)

    def __iter__(self) -> Iterator[Event]:
        while self._queue:
            yield self._queue.popleft()

    def trace(self) -> Trace:
        steps: list[Step] = []
        stack = [(0, how, event) for how, event in reversed(self._children.get(None, []))]
        while stack:
            depth, how, event = stack.pop()
            header = event.header
            steps.append(
                Step(
                    depth,
                    how,
                    header.log,
                    header.seq,
                    event.id,
                    header.kind,
                    self.branch(header.log),
                    header.actor,
                    header.time,
                    saying(event),
                    _RELATIONS.get(how, "decision"),
                    *_details(event),
                    (
                        self._prompt(event)
                        if self._prompt is not None and event.kind == _ASKED
                        else None
                    ),
                )
            )
            # What only came before it stands on the same level: a long conversation is a list, not
            # a staircase.
            for child_how, child in reversed(self._children.get(event.id, [])):
                stack.append(
                    (depth if child_how == "after" and depth else depth + 1, child_how, child)
                )
        return Trace(self._about, tuple(steps), not self.full)

    def placed(self, event: Event) -> Event | None:
        """The event that put an effect where it ran."""
        if event.log not in self._placements:
            tip = self._store.log(event.log).tip
            found = self._store.read(event.log, 1, tip, kinds={PlacementChanged.__name__})
            self._placements[event.log] = list(found)
        before = [each for each in self._placements[event.log] if each.seq < event.seq]
        return before[-1] if before else None

    def branch(self, log: LogId) -> str:
        if log not in self._branches:
            row = session_row(self._store, log)
            self._branches[log] = str(row.get("label") or short(log))  # as it can be typed
        return self._branches[log]


# ── back ─────────────────────────────────────────────────────────────────────────────────────


Prompted = Callable[[Event], Json]  # what a model was sent, by the event that asked it
_ASKED = ModelAsked.__name__


def why(
    store: Store,
    path: tuple[Stretch, ...],
    log: LogId,
    events: list[Event],
    about: str,
    limit: int,
    prompt: Prompted | None = None,
) -> Trace:
    """Back from these events, as seen from a session with this path in this log; with the prompts,
    if they are wanted.
    """
    walk = _Walk(store, about, limit, prompt)
    first, *between = events
    # a choice at a merge: what it was between says more than its parents
    walk.add(None, "is", first, follow=not between)
    for event in events:
        walk.add(first, "between", event)
        came = next(
            (
                stretch
                for stretch in path
                if stretch.via
                and not stretch.apart
                and stretch.log == event.log
                and stretch.first <= event.seq <= stretch.last
            ),
            None,
        )
        if came is not None:
            walk.add(event, "came by", next(store.read(log, came.via, came.via)), follow=False)
    for event in walk:
        header = event.header
        for cause in _causes(event):
            walk.add(
                event, "having seen" if event.kind == _ASKED else "because of", store.event(cause)
            )
        for parent in header.parents[1:]:
            walk.add(event, "merged from", store.event(parent))
        in_call = event.kind in _OUTCOMES or event.kind in _WRITTEN
        asked = list(_bracket(store, event)) if header.call is not None and in_call else []
        for how, earlier in asked:
            walk.add(event, how, earlier)
        if _details(event)[1] and (placed := walk.placed(event)) is not None:
            walk.add(event, "ran in", placed, follow=False)
        if (
            not header.causes
            and not asked
            and event.kind not in _FRAMES
            and (before := _before(store, event)) is not None
        ):
            walk.add(event, "after", before)
    return walk.trace()


def _causes(event: Event) -> tuple[Digest, ...]:
    """The causes of an event.

    In older records the evidence of a verdict stands in its body only.
    """
    causes = event.header.causes
    body = event.body if event.kind == ValidationRecorded.__name__ else None
    return (
        tuple(dict.fromkeys((*causes, *body.evidence)))
        if isinstance(body, ValidationRecorded)
        else causes
    )


def _details(event: Event) -> tuple[str, str, tuple[str, ...]]:
    """The reason that an event states, where it took place, and the files that it changed."""
    if event.kind not in _DETAILED:
        return "", "", ()
    try:
        body = event.body
    except PlaitError:  # erased, or not readable: `saying` says so
        return "", "", ()
    placement, trees = getattr(body, "placement", None), getattr(body, "trees", None)
    where = place_text(placement) if isinstance(placement, Placement) else ""
    changed = trees.changed if isinstance(trees, Trees) else ()
    return getattr(body, "reason", ""), where, changed


_DETAILED = frozenset(
    kind.__name__ for kind in KINDS if {"reason", "placement", "trees"} & {*kind.__struct_fields__}
)


def _before(store: Store, event: Event) -> Event | None:
    """The message before an event on its path: rewinds are followed."""
    seq = event.seq - 1
    if isinstance(body := event.body, Rewound):
        seq = body.to
    span = 16
    while seq >= 1:
        first = max(1, seq - span + 1)
        for found in store.read(event.log, first, seq, kinds=_BACK, reverse=True):
            if found.kind != Rewound.__name__:
                return found
            body = found.body
            assert isinstance(body, Rewound)
            seq = min(body.to, found.seq - 1)
            break
        else:
            seq, span = first - 1, span * 4
    return None


def _bracket(store: Store, event: Event) -> Iterator[tuple[str, Event]]:
    """What was asked, and who allowed it, before this outcome of the same call."""
    asks = {_OUTCOMES.get(event.kind, ToolRequested.__name__), ApprovalGranted.__name__}
    for found in store.read(event.log, 1, event.seq - 1, kinds=asks, reverse=True):
        if found.header.call == event.header.call:
            if found.kind != ApprovalGranted.__name__:
                yield "asked by", found
                return
            yield "approved by", found


# ── forward ──────────────────────────────────────────────────────────────────────────────────


def influence(store: Store, event: Event, about: str, limit: int) -> Trace:
    """Forward from an event, in the store as it is now: what it caused, what followed, which
    branches took it along.
    """
    walk = _Walk(store, about, limit)
    walk.add(None, "is", event)
    for found in walk:
        for row in store.rows("graph", "cause", {"cause": found.id[:_KEY]}, limit=limit + 1):
            effect = _at(store, row["log"], row["seq"])
            if effect is not None and found.id in effect.header.causes:
                walk.add(found, "seen by" if effect.kind == _ASKED else "caused", effect)
        if (outcome := _outcome(store, found)) is not None:
            walk.add(found, "came of it", outcome)
        for carrier in _carriers(store, found, limit):
            walk.add(
                found,
                "carried into" if carrier.kind == ForkedFrom.__name__ else "merged into",
                carrier,
                follow=False,
            )
            if carrier.kind == ForkedFrom.__name__:
                for follower in _followers(store, found, carrier.log):
                    walk.add(found, "followed by", follower, follow=False)
        for follower in _followers(store, found, found.log):
            walk.add(found, "followed by", follower, follow=False)
    return walk.trace()


def _outcome(store: Store, request: Event) -> Event | None:
    """What came of a tool call, by its request."""
    call = request.header.call
    if request.kind != ToolRequested.__name__ or call is None:
        return None
    kinds = {kind.__name__ for kind in _RESULTS}
    last = min(store.log(request.log).tip, request.seq + _OUTCOME_AHEAD)
    found = store.read(request.log, request.seq + 1, last, kinds=kinds)
    return next((event for event in found if event.header.call == call), None)


def _carriers(store: Store, event: Event, limit: int) -> Iterator[Event]:
    """The forks that took an event along and the merges that took it in, directly or through one
    another.
    """
    queue, seen = deque([(event.log, event.seq)]), {event.log}
    while queue:
        log, seq = queue.popleft()
        for row in store.rows("session", "session", {"parent": log}, limit=limit + 1):
            place, child = row["place"], LogId(str(row["log"]))
            if isinstance(place, int) and place >= seq and child not in seen:
                seen.add(child)
                # inherited: it goes along with branches of the branch from any place at or after it
                queue.append((child, seq))
                if (first := _at(store, child, place + 1)) is not None:
                    yield first
        for row in store.rows("graph", "merge", {"log": log}, limit=limit + 1):
            place, into = row["place"], LogId(str(row["into"]))
            if (
                isinstance(place, int)
                and place >= seq
                and (merge := _at(store, into, row["seq"])) is not None
            ):
                yield merge
                if into not in seen:
                    seen.add(into)
                    queue.append((into, merge.seq))


def _followers(store: Store, event: Event, log: LogId) -> Iterator[Event]:
    """What came right after a message on a log, up to the next message, as far as nobody declared
    another cause for it.
    """
    if event.kind not in _MESSAGES:
        return
    first, span, tip = event.seq + 1, 16, store.log(log).tip
    while first <= tip:
        for found in store.read(
            log, first, min(tip, first + span - 1), kinds=_FOLLOWERS | {Rewound.__name__}
        ):
            if found.kind == Rewound.__name__:
                return
            if not found.header.causes:
                yield found
            if found.kind in _MESSAGES:
                return
        first, span = first + span, span * 4


def _at(store: Store, log: object, seq: object) -> Event | None:
    if not isinstance(log, str) or not isinstance(seq, int):
        return None
    return next(store.read(LogId(log), seq, seq), None)


# ── the whole ────────────────────────────────────────────────────────────────────────────────


Detail = dict[str, str | int | bool | None]


class Node(msgspec.Struct, frozen=True):
    id: str
    # session, run, message, fact, decision, finding, effect, result, file, call, approval,
    # validation, placement, memory, evidence, link
    type: str
    name: str
    session: LogId
    place: int
    detail: Detail = {}


class Edge(msgspec.Struct, frozen=True):
    type: str  # parent, merged, causes, settles, of-run, wrote, decided, read, ran-in
    source: str
    target: str
    place: int = 0


class Graph(msgspec.Struct, frozen=True):
    """A session's family as it stands now: sessions and what they did, and how that
    hangs together.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def __str__(self) -> str:
        sessions = [node for node in self.nodes if node.type == "session"]
        return (
            f"{len(sessions)} sessions, {len(self.nodes) - len(sessions)} things they did,"
            f" {len(self.edges)} edges"
        )


_TYPES: dict[str, tuple[str, str]] = {
    # kind: (type of the node, how the session stands to it)
    "FactRecorded": ("fact", "wrote"),
    "ValidationRecorded": ("validation", "decided"),
    "EvidenceAttached": ("evidence", "wrote"),
    "Linked": ("link", "read"),
    "CallStarted": ("call", "wrote"),
    "RunStarted": ("run", "wrote"),
    "RunBranched": ("run", "wrote"),
    "ToolRequested": ("effect", "wrote"),
    "ToolReturned": ("result", "wrote"),
    "ToolFailed": ("result", "wrote"),
    "ToolResolved": ("result", "wrote"),
    "ApprovalRequested": ("approval", "wrote"),
    "ApprovalGranted": ("approval", "decided"),
    "ApprovalDenied": ("approval", "decided"),
    "PlacementChanged": ("placement", "ran-in"),
    "MemoryProposed": ("memory", "wrote"),
    "MemoryRecalled": ("memory", "read"),
    "RouteSelected": ("route", "decided"),
    "GateRequired": ("gate", "wrote"),
    "PendingAdded": ("pending", "wrote"),
    "Merged": ("merge", "wrote"),
    "Rewound": ("rewind", "wrote"),
}


def graph(store: Store, log: LogId) -> Graph:
    """Everything that hangs together with a log by forks and merges."""
    drawing = _Drawing(store)
    for member in family(store, log):
        drawing.add_session(member)
    return drawing.graph()


class _Drawing:
    """A graph that is being drawn, session by session, ancestors first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._caused: list[Edge] = []  # their targets may be drawn later, or not at all
        self._requests: dict[str, Digest] = {}  # by call
        self._runs: dict[str, Digest] = {}
        self._placements: dict[LogId, list[tuple[int, Digest]]] = {}

    def add_session(self, member: LogId) -> None:
        info, row = self._store.log(member), session_row(self._store, member)
        fields = ("title", "label", "status", "user", "project")
        detail = {name: _plain(row.get(name)) for name in fields}
        name = str(row.get("label") or row.get("title") or short(member))
        detail = {**detail, "head": info.head}
        self._nodes[member] = Node(member, "session", name, member, info.tip, detail)
        if info.parent is not None:
            self._edges.append(Edge("parent", member, info.parent, info.place))
        for event in self._store.read(member, info.place + 1, info.tip, kinds=_TYPES.keys()):
            self._add(event)

    def _add(self, event: Event) -> None:
        type, how = _TYPES[event.kind]
        body, header = event.body, event.header
        if isinstance(body, FactRecorded) and body.kind != "fact":
            type, how = body.kind, "decided" if body.kind == "decision" else how
        detail: Detail = {"kind": event.kind, "actor": header.actor}
        self._nodes[event.id] = Node(event.id, type, saying(event), event.log, event.seq, detail)
        self._edges.append(Edge(how, event.log, event.id, event.seq))
        if isinstance(body, Merged):
            places = [Edge("merged", event.id, place.log, place.seq) for place in body.branches]
            self._edges.extend(places)
        elif isinstance(body, (RunStarted, RunBranched)):
            self._runs[header.run or event.id] = event.id
        elif isinstance(body, PlacementChanged):
            self._placements.setdefault(event.log, []).append((event.seq, event.id))
        elif isinstance(body, ToolRequested):
            self._requests[header.call or ""] = event.id
        elif isinstance(body, _RESULTS):
            self._add_outcome(event, body)
        run = self._runs.get((header.run or "").partition("/")[0])
        if run is not None and run != event.id:
            self._edges.append(Edge("of-run", event.id, run, event.seq))
        causes = [Edge("causes", event.id, cause, event.seq) for cause in _causes(event)]
        self._caused.extend(causes)

    def _add_outcome(self, event: Event, body: ToolReturned | ToolFailed | ToolResolved) -> None:
        """What came of an effect, where it ran and which files it wrote."""
        effect = self._requests.get(event.header.call or "")
        if effect is None:
            return
        self._edges.append(Edge("settles", event.id, effect, event.seq))
        if isinstance(body, ToolResolved):
            return
        if body.placement is not None:
            self._edges.append(
                Edge("ran-in", effect, self._place(event, body.placement), event.seq)
            )
        for path in body.trees.changed if body.trees is not None else ():
            id = f"file:{path}"
            node = Node(id, "file", path, event.log, event.seq)
            self._nodes.setdefault(id, node)
            self._edges.append(Edge("wrote", effect, id, event.seq))

    def _place(self, event: Event, placement: Placement) -> str:
        """The node of the placement that an effect ran in: the last one before it, in its log or
        where that was forked from.
        """
        log, seq = event.log, event.seq
        while True:
            found = [id for at, id in self._placements.get(log, ()) if at < seq]
            if found:
                return found[-1]
            info = self._store.log(log)
            if info.parent is None:
                break
            log, seq = info.parent, min(seq, info.place + 1)
        id = f"placement:{event.id}"
        self._nodes[id] = Node(id, "placement", place_text(placement), event.log, event.seq)
        return id

    def graph(self) -> Graph:
        for edge in self._caused:
            if edge.target not in self._nodes:
                cause = self._store.event(Digest(edge.target))
                type = _TYPES.get(cause.kind, ("message", ""))[0]
                detail: Detail = {"kind": cause.kind}
                self._nodes[edge.target] = Node(
                    edge.target, type, saying(cause), cause.log, cause.seq, detail
                )
        return Graph(tuple(self._nodes.values()), (*self._edges, *self._caused))


def family(store: Store, log: LogId) -> list[LogId]:
    """All logs that hang together with this one by forks and merges, the oldest ancestor first."""
    seen: dict[LogId, None] = {}
    queue = deque([_oldest(store, log)])
    while queue:
        member = queue.popleft()
        if member in seen:
            continue
        seen[member] = None
        for row in store.rows("session", "session", {"parent": member}, limit=2**31):
            queue.append(LogId(str(row["log"])))
        for row in store.rows("graph", "merge", {"log": member}, limit=2**31):
            queue.append(_oldest(store, LogId(str(row["into"]))))
        info = store.log(member)
        for event in store.read(member, info.place + 1, info.tip, kinds={Merged.__name__}):
            body = event.body
            assert isinstance(body, Merged)
            queue.extend(_oldest(store, place.log) for place in body.branches)
    return list(seen)


def _oldest(store: Store, log: LogId) -> LogId:
    *_, root = ancestry(store, log)
    return root.id


def _plain(value: object) -> str | int | None:
    return value if isinstance(value, (str, int)) else None
