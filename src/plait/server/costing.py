"""Answers about costs: sums, and the calls of a session as a flame."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import msgspec

from plait.errors import PlaitError
from plait.event import Body, Event
from plait.event.kinds import (
    CallFinished,
    CallStarted,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    RunBranched,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunStarted,
    ToolFailed,
    ToolRequested,
    ToolReturned,
)
from plait.ids import LogId, short
from plait.outline.documents import spent_document
from plait.outline.shapes import SpentShape
from plait.server.desk import ServerDesk
from plait.server.params import CostsParams, SessionParams
from plait.server.shapes import CostRow, CostsShape, FlameNode, FlameShape
from plait.session import Session
from plait.session.grants import spent_by
from plait.session.ledger import Costs, costs
from plait.session.run_branches import logs_with_branches
from plait.session.state import NOTHING, Spent
from plait.store import Store

NODES = 20_000  # of a flame
_BEGIN = (RunStarted, RunBranched)
_OVER = (RunFinished, RunFailed, RunCancelled)
_KINDS = frozenset(
    kind.__name__
    for kind in (
        *_BEGIN,
        *_OVER,
        CallStarted,
        CallFinished,
        ModelAsked,
        ModelReplied,
        ModelFailed,
        ToolRequested,
        ToolReturned,
        ToolFailed,
    )
)


def spent_shape(spent: Spent) -> SpentShape:
    return msgspec.convert(spent_document(spent), SpentShape)


def read_costs(desk: ServerDesk, params: CostsParams) -> CostsShape:
    """Sum up what models and tools were used, and what that cost."""
    session = desk.open(params.session) if params.session else None
    found = costs(
        desk.store,
        params.by,
        since=params.since or None,
        until=params.until or None,
        session=session,
    )
    rows = [_cost_row(found.by, key, spent) for key, spent in found.rows]
    return CostsShape(
        found.by,
        found.since,
        found.until,
        tuple(rows),
        spent_shape(found.total),
        None if found.not_merged is None else spent_shape(found.not_merged),
    )


def read_costs_by(desk: ServerDesk, session: Session, *forms: str) -> dict[str, CostsShape]:
    """Sum up the same costs in several ways, in one pass: by each of these lists of names."""
    names = tuple(dict.fromkeys([name for form in forms for name in form.split(",") if name]))
    found = costs(desk.store, names, session=session)
    return {form: _regrouped(found, tuple(filter(None, form.split(",")))) for form in forms}


def _regrouped(found: Costs, by: tuple[str, ...]) -> CostsShape:
    """Return sums by fewer names, in the order that `costs` gives them."""
    at = [found.by.index(name) for name in by]
    sums = dict[tuple[str, ...], Spent]()
    for key, spent in found.rows:
        part = tuple([key[index] for index in at])
        sums[part] = sums.get(part, NOTHING) + spent
    rows = sorted(sums.items(), key=lambda row: (-row[1].cost_usd_nano, -row[1].tokens, row[0]))
    return CostsShape(
        by,
        found.since,
        found.until,
        tuple([_cost_row(by, key, spent) for key, spent in rows]),
        spent_shape(found.total),
        None if found.not_merged is None else spent_shape(found.not_merged),
    )


def _cost_row(by: tuple[str, ...], key: tuple[str, ...], spent: Spent) -> CostRow:
    names = {name: value or None for name, value in zip(by, key, strict=True)}
    return CostRow(names, spent_shape(spent))


def read_flame(desk: ServerDesk, params: SessionParams) -> FlameShape:
    """Return the calls of a session and of its runs' branches as a tree, with their figures."""
    session = desk.open(params.session)
    flame = _Flame(session.id)
    for event in _events(desk.store, logs_with_branches(session)):
        if len(flame.nodes) >= NODES:
            return flame.shape(is_cut=True)
        flame.take(event)
    return flame.shape(is_cut=False)


def _events(store: Store, logs: dict[LogId, int]) -> Iterator[Event]:
    """Yield the events about calls, log by log, each log after the one it was forked from."""
    known = sorted(
        [(store.log(log), last) for log, last in logs.items()],
        key=lambda pair: store.number_of(pair[0].head) or 0,
    )
    for log, last in known:
        if last > log.place:
            yield from store.read(log.id, log.place + 1, last, kinds=_KINDS)


class _CallNode:
    """A call while it is put together."""

    def __init__(self, name: str, kind: str, event: Event | None, above: _CallNode | None) -> None:
        self.name, self.kind, self.above = name, kind, above
        self.log = event.log if event is not None else LogId("")
        self.seq = event.seq if event is not None else 0
        self.began = event.time if event is not None else 0
        self.ended: int | None = None
        self.spent = NOTHING
        self.below = list[_CallNode]()
        if above is not None:
            above.below.append(self)


class _Flame:
    """Puts calls under the calls that made them, by run and path."""

    def __init__(self, log: LogId) -> None:
        self._log = log
        self._top = _CallNode(short(log), "session", None, None)
        self._top.log = log
        self.nodes = [self._top]
        self._runs = dict[str, _CallNode]()
        self._paths = dict[tuple[str, str], _CallNode]()  # the last call of a run at this path
        self._calls = dict[tuple[str, str], _CallNode]()  # by log and call

    def take(self, event: Event) -> None:
        try:
            body = event.body
        except PlaitError:  # erased, damaged, or of a newer Plait
            return
        run = event.header.run or ""
        call = (event.log, event.header.call or event.id)
        match body:
            case RunStarted() | RunBranched():
                node = self._add(body.workflow.rpartition(":")[2], "run", event, self._top)
                self._runs[run] = node
            case RunFinished() | RunFailed() | RunCancelled():
                self._end(self._runs.get(run), event)
            case CallStarted():
                above = self._above(run, body.path.rpartition("/")[0])
                node = self._add(
                    body.path.rpartition("/")[2] or body.workflow, "call", event, above
                )
                self._paths[run, body.path] = self._calls[call] = node
            case ModelAsked():
                path = unquote(event.actor.partition(":")[2])
                self._calls[call] = self._add(body.model, "model", event, self._above(run, path))
                self._spend(self._calls[call], body)
            case ToolRequested():
                if body.attempt == 1 or call not in self._calls:
                    above = self._above(run, body.path)
                    self._calls[call] = self._add(body.tool, "tool", event, above)
                if body.decision != "refuse":
                    self._spend(self._calls[call], body)
            case _:
                self._take_end(event, body, call)

    def _take_end(self, event: Event, body: Body, call: tuple[str, str]) -> None:
        node = self._calls.get(call)
        self._end(node, event)
        if node is not None and isinstance(body, (ModelReplied, ModelFailed)):
            self._spend(node, body)

    def _add(self, name: str, kind: str, event: Event, above: _CallNode) -> _CallNode:
        node = _CallNode(name, kind, event, above)
        self.nodes.append(node)
        return node

    def _above(self, run: str, path: str) -> _CallNode:
        """Return the last call at a path, or at the nearest path above it."""
        while path:
            if (run, path) in self._paths:
                return self._paths[run, path]
            path = path.rpartition("/")[0]
        return self._runs.get(run, self._top)

    def _end(self, node: _CallNode | None, event: Event) -> None:
        if node is not None:
            node.ended = event.time

    def _spend(self, node: _CallNode, body: Body) -> None:
        spent = spent_by(body)
        above: _CallNode | None = node
        while above is not None:
            above.spent += spent
            above = above.above

    def shape(self, *, is_cut: bool) -> FlameShape:
        found = list[FlameNode]()
        rest: list[tuple[_CallNode, int, int]] = [(self._top, 0, -1)]
        while rest:
            node, depth, above = rest.pop()
            at = len(found)
            found.append(
                FlameNode(
                    node.name,
                    node.kind,  # pyright: ignore[reportArgumentType]
                    node.log,
                    node.seq,
                    depth,
                    above,
                    node.began,
                    None if node.ended is None else max(0, node.ended - node.began),
                    spent_shape(node.spent),
                )
            )
            rest += [(each, depth + 1, at) for each in reversed(node.below)]
        return FlameShape(tuple(found), is_cut)
