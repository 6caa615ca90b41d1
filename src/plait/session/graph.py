"""The graph of a session's family: its sessions, the things they did, and the edges between."""

from __future__ import annotations

from collections import deque

import msgspec

from plait.event import Event
from plait.event.kinds import (
    FactRecorded,
    Merged,
    Placement,
    PlacementChanged,
    RunBranched,
    RunStarted,
    ToolFailed,
    ToolRequested,
    ToolResolved,
    ToolReturned,
)
from plait.ids import Digest, LogId, short
from plait.session.event_text import event_text, place_text
from plait.session.listing import session_row
from plait.session.ports import notebook_html
from plait.session.status import StatusReader
from plait.session.trace import event_causes
from plait.store import Store

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
    """A session's family as it stands now: sessions, the things they did, and the edges between."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

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


def draw_graph(store: Store, log: LogId) -> Graph:
    """Draw all that hangs together with a log by forks and merges."""
    drawing = _Drawing(store)
    for member in family(store, log):
        drawing.add_session(member)
    return drawing.graph()


class _Drawing:
    """A graph that is being drawn, session by session, ancestors first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reader = StatusReader(store)
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._caused: list[Edge] = []  # their targets may be drawn later, or not at all
        self._requests: dict[str, Digest] = {}  # by call
        self._runs: dict[str, Digest] = {}
        self._placements: dict[LogId, list[tuple[int, Digest]]] = {}

    def add_session(self, member: LogId) -> None:
        info, row = self._store.log(member), session_row(self._store, member)
        fields = ("title", "label", "user", "project")
        detail = {name: _plain(row.get(name)) for name in fields}
        detail["status"] = self._reader.of_session(row) if row else None
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
        self._nodes[event.id] = Node(
            event.id, type, event_text(event), event.log, event.seq, detail
        )
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
        elif isinstance(body, (ToolReturned, ToolFailed, ToolResolved)):
            self._add_outcome(event, body)
        run = self._runs.get((header.run or "").partition("/")[0])
        if run is not None and run != event.id:
            self._edges.append(Edge("of-run", event.id, run, event.seq))
        causes = [Edge("causes", event.id, cause, event.seq) for cause in event_causes(event)]
        self._caused.extend(causes)

    def _add_outcome(self, event: Event, body: ToolReturned | ToolFailed | ToolResolved) -> None:
        """Link an outcome with its effect, and the effect with its placement and its files."""
        effect = self._requests.get(event.header.call or "")
        if effect is None:
            return
        self._edges.append(Edge("settles", event.id, effect, event.seq))
        if isinstance(body, ToolResolved):
            return
        if body.placement is not None:
            self._edges.append(
                Edge("ran-in", effect, self._placement_node(event, body.placement), event.seq)
            )
        for path in body.trees.changed if body.trees is not None else ():
            id = f"file:{path}"
            node = Node(id, "file", path, event.log, event.seq)
            self._nodes.setdefault(id, node)
            self._edges.append(Edge("wrote", effect, id, event.seq))

    def _placement_node(self, event: Event, placement: Placement) -> str:
        """Return the node of the placement that an effect ran in: the last one before it, in its
        log or in an ancestor of it.
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
                    edge.target, type, event_text(cause), cause.log, cause.seq, detail
                )
        return Graph(tuple(self._nodes.values()), (*self._edges, *self._caused))


def family(store: Store, log: LogId) -> list[LogId]:
    """Return all logs that hang together with this one by forks and merges, the root first."""
    seen: dict[LogId, None] = {}
    queue = deque([_root_of(store, log)])
    while queue:
        member = queue.popleft()
        if member in seen:
            continue
        seen[member] = None
        for row in store.rows("session", "session", {"parent": member}, limit=2**31):
            queue.append(LogId(str(row["log"])))
        for row in store.rows("graph", "merge", {"log": member}, limit=2**31):
            queue.append(_root_of(store, LogId(str(row["into"]))))
        info = store.log(member)
        for event in store.read(member, info.place + 1, info.tip, kinds={Merged.__name__}):
            body = event.body
            assert isinstance(body, Merged)
            queue.extend(_root_of(store, place.log) for place in body.branches)
    return list(seen)


def _root_of(store: Store, log: LogId) -> LogId:
    return store.lineage(log)[0].log


def _plain(value: object) -> str | int | None:
    return value if isinstance(value, (str, int)) else None
