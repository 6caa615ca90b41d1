"""The audit: everything that is kept about sessions, compared with the events it was made from.

`plait.store.verify_store` recomputes ids, links, commitments and index columns. Here the rows by which sessions are
listed are folded again and compared; asked for the state too, so are the graph's rows, every snapshot, and the digests
that closed sessions and finished runs carry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plait.errors import PlaitError
from plait.event import Event
from plait.event.kinds import RunFinished, SessionClosed
from plait.ids import LogId, short
from plait.session.fold import state_at
from plait.session.graph import GraphRows
from plait.session.rows import SessionRows
from plait.session.state import FOLD, State, from_snapshot, state_digest
from plait.store import Fault, Projection, Row, Scalar, Store, verify_log, verify_store

_ALL = 2**31


def verify(store: Store, logs: Sequence[LogId] | None = None, *, state: bool = False) -> Iterator[Fault]:
    """What is wrong in a store, or in some of its logs; nothing, if all is well. `state` folds everything again."""
    found = False
    for fault in verify_store(store) if logs is None else _verify_logs(store, logs):
        found = True
        yield fault
    try:
        yield from _verify_rows(store, SessionRows(), logs)
        if state and not found:  # folding what is broken only tells the same again
            if logs is None:
                yield from _verify_rows(store, GraphRows(), None)
            yield from _verify_states(store, logs)
    except PlaitError as error:
        yield Fault(None, 0, str(error))


def _verify_logs(store: Store, logs: Sequence[LogId]) -> Iterator[Fault]:
    for log in logs:
        fault = verify_log(store, log)
        if fault is not None:
            yield fault


# ── rows ─────────────────────────────────────────────────────────────────────────────────────


class _Refolded:
    """Rows in memory, for folding a projection again."""

    def __init__(self, projection: Projection) -> None:
        self._keys = {table.name: table.key for table in projection.tables}
        self.tables: dict[str, dict[tuple[Scalar, ...], Row]] = {table.name: {} for table in projection.tables}

    def get(self, table: str, *key: Scalar) -> Row | None:
        return self.tables[table].get(key)

    def put(self, table: str, row: Row) -> None:
        self.tables[table][tuple([row[column] for column in self._keys[table]])] = row

    def delete(self, table: str, *key: Scalar) -> None:
        self.tables[table].pop(key, None)


def _verify_rows(store: Store, projection: Projection, logs: Sequence[LogId] | None) -> Iterator[Fault]:
    fresh = _Refolded(projection)
    for number, event in store.feed(kinds=projection.kinds) if logs is None else _events_of(store, logs, projection.kinds):
        projection.apply(fresh, number, event)
    for table in projection.tables:
        due = {key: row for key, row in fresh.tables[table.name].items() if logs is None or row["log"] in logs}
        for row in _rows(store, projection.name, table.name, logs):
            wanted = due.pop(tuple([row[column] for column in table.key]), None)
            if wanted != row:
                yield _row_fault(table.name, row, wanted)
        for row in due.values():
            yield Fault(LogId(str(row["log"])), 1, f"its {table.name} row is missing")


def _rows(store: Store, projection: str, table: str, logs: Sequence[LogId] | None) -> list[Row]:
    if logs is None:
        return store.rows(projection, table, limit=_ALL)
    return [row for log in logs for row in store.rows(projection, table, {"log": log}, limit=_ALL)]


def _events_of(store: Store, logs: Sequence[LogId], kinds: frozenset[str]) -> Iterator[tuple[int, Event]]:
    """The events of some logs and of those they were forked from, with commit numbers, parents first."""
    line: dict[LogId, None] = {}
    for log in logs:
        ancestors: list[LogId] = []
        above: LogId | None = log
        while above is not None and above not in line:
            ancestors.append(above)
            above = store.log(above).parent
        line |= dict.fromkeys(reversed(ancestors))
    for log in line:
        for record in store.records(log):
            if record.kind in kinds and record.content is not None:
                yield record.number, Event(record.raw, record.salt, record.content)


def _row_fault(name: str, row: Row, wanted: Row | None) -> Fault:
    log = LogId(str(row["log"]))
    if wanted is None:
        return Fault(log, 1, f"a {name} row stands there that no event made")
    column = next(column for column in row if row[column] != wanted[column])
    place = wanted.get("place")
    return Fault(
        log,
        place + 1 if isinstance(place, int) else 1,
        f"its {name} row says {column} is {row[column]!r}, its events say {wanted[column]!r}",
    )


# ── states ───────────────────────────────────────────────────────────────────────────────────


def _verify_states(store: Store, logs: Sequence[LogId] | None) -> Iterator[Fault]:
    points: dict[tuple[LogId, int], State] = {}  # fork points: the branches of one place share them
    for log in logs if logs is not None else [LogId(str(row["log"])) for row in store.rows("session", "session", limit=_ALL)]:
        info = store.log(log)
        near: State | None = None
        if info.parent is not None:
            place = (info.parent, info.place)
            if place not in points:
                points[place] = state_at(store, *place, cached=False)
            near = points[place]
        yield from _verify_log_states(store, log, info.place + 1, info.tip, near)


def _verify_log_states(store: Store, log: LogId, first: int, tip: int, near: State | None) -> Iterator[Fault]:
    due: list[tuple[int, str, str | None]] = []  # place, what it is, the digest it should have
    for seq, data in store.all_kept(log):
        kept = from_snapshot(data)
        if kept is None:
            continue  # of another fold, or damaged: not used either
        head, state = kept
        event = next(store.read(log, seq, seq), None)
        same = event is not None and event.id == head and (state.log, state.place) == (log, seq)
        due.append((seq, "the snapshot kept there", state_digest(state).digest if same else None))
    for event in store.read(log, first, tip, kinds={SessionClosed.__name__, RunFinished.__name__}):
        body = event.body
        assert isinstance(body, (SessionClosed, RunFinished))
        if body.state is not None and body.state.fold == FOLD:
            due.append((event.seq - 1, f"the state that event {event.seq} carries", body.state.digest))
    for place, what, digest in sorted(due):
        if place < first:  # closed right at the fork: the fork point's own state
            near_here = state_at(store, log, place, cached=False)
        else:
            near = near_here = state_at(store, log, place, near=near, cached=False)
        if state_digest(near_here).digest != digest:
            yield Fault(log, place, f"{what} is not the one its events give ({short(log)}@{place})")
            return
    state_at(store, log, tip, near=near, cached=False)  # it must fold at all
