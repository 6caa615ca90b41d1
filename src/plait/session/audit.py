"""The audit: everything that is kept about sessions, compared with the events it was made from.

`plait.store.verify_store` recomputes ids, links, commitments and index columns. Here the rows by which sessions are
listed are folded again and compared; asked for the state too, so are the graph's rows, every snapshot, and the digests
that closed sessions and finished runs carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from plait.errors import PlaitError, UnknownRows
from plait.event import Event
from plait.event.kinds import Merged, RunFinished, SessionClosed, SessionOpened
from plait.ids import LogId, inbox_of, short
from plait.session.fold import Folds
from plait.session.graph import GraphRows
from plait.session.rows import InboxRows, SessionRows
from plait.session.state import FOLD, from_snapshot, state_digest
from plait.store import Durability, Fault, Projection, Row, Scalar, Store, ancestry, verify_log, verify_store

_ALL = 2**31


def verify(store: Store, logs: Sequence[LogId] | None = None, *, state: bool = False) -> Iterator[Fault]:
    """What is wrong in a store, or in what some of its logs are made of; nothing, if all is well. `state` folds everything again."""
    found = False
    behind = None if logs is None else logs_behind(store, logs)
    for fault in verify_store(store) if behind is None else _verify_logs(store, behind):
        found = True
        yield fault
    if found and _is_damaged(store):
        return  # that was said, and its rows mean nothing
    try:
        yield from _settled(store, lambda: _verify_rows(store, SessionRows(), behind))
        if behind is None:
            yield from _settled(store, lambda: _verify_inbox_rows(store))
        yield from _verify_durability(store, behind)
        if state and not found:  # folding what is broken only tells the same again
            if behind is None:
                yield from _settled(store, lambda: _verify_rows(store, GraphRows(), None))
            yield from _verify_states(store, behind)
    except PlaitError as error:
        yield Fault(None, 0, str(error))


def _is_damaged(store: Store) -> bool:
    try:
        store.check()
        return False
    except PlaitError:
        return True


def logs_behind(store: Store, logs: Sequence[LogId]) -> list[LogId]:
    """These logs, their inboxes, and all that what they show comes from: ancestors, merged branches, and what they continue."""
    seen: dict[LogId, None] = {}
    queue = list(logs)
    while queue:
        log = queue.pop()
        if log in seen:
            continue
        seen[log] = None
        try:
            info = store.log(log)
            queue += [info.parent] if info.parent is not None else []
            queue += store.heads([inbox_of(log)])
            for event in store.read(log, info.place + 1, info.tip, kinds={Merged.__name__, SessionOpened.__name__}):
                body = event.body
                if isinstance(body, Merged):
                    queue += [place.log for place in body.branches] + ([body.base.log] if body.base else [])
                elif isinstance(body, SessionOpened) and body.continues is not None:
                    queue.append(body.continues.log)
        except PlaitError:
            continue  # whatever is wrong with it is found when it is checked
    return list(seen)


def _verify_logs(store: Store, logs: Sequence[LogId]) -> Iterator[Fault]:
    for log in logs:
        try:
            fault = verify_log(store, log)
        except PlaitError as error:
            fault = Fault(log, 0, str(error))
        if fault is not None:
            yield fault


def _settled(store: Store, check: Callable[[], Iterator[Fault]]) -> list[Fault]:
    """What a check finds though others write meanwhile: only what it finds again, once nothing moved or each time."""
    before = store.number
    found = list(check())
    for _ in range(5):
        now = store.number
        if not found or now == before:
            break
        before, again = now, list(check())
        found = [fault for fault in found if fault in again]
    return found


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


def _verify_inbox_rows(store: Store) -> Iterator[Fault]:
    """What people are told that waits for them. A store that was opened without these rows has none that could be wrong."""
    try:
        yield from _verify_rows(store, InboxRows(), None)
    except UnknownRows:
        return


def _rows(store: Store, projection: str, table: str, logs: Sequence[LogId] | None) -> list[Row]:
    if logs is None:
        return store.rows(projection, table, limit=_ALL)
    return [row for log in logs for row in store.rows(projection, table, {"log": log}, limit=_ALL)]


def _events_of(store: Store, logs: Sequence[LogId], kinds: frozenset[str]) -> Iterator[tuple[int, Event]]:
    """The events of some logs and of those they were forked from, with commit numbers, parents first."""
    line: dict[LogId, None] = {}
    for log in logs:
        ancestors: list[LogId] = []
        for info in ancestry(store, log):
            if info.id in line:
                break
            ancestors.append(info.id)
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


def _verify_durability(store: Store, logs: Sequence[LogId] | None) -> Iterator[Fault]:
    """A log is written as its root says. Whoever edits the log's row could make commits less durable than they are said to be."""
    if store.durability == "memory":
        return
    said: dict[LogId, Durability] = {}
    for log in logs if logs is not None else [LogId(str(row["log"])) for row in store.rows("session", "session", limit=_ALL)]:
        try:
            info = store.log(log)
            said[log] = said[info.parent] if info.parent and info.parent in said else _said_durability(store, log)
        except PlaitError:
            continue  # found already
        if said[log] != info.durability:
            yield Fault(log, info.place + 1, f"its row says it is written {info.durability}, its first event says {said[log]}")


def _said_durability(store: Store, log: LogId) -> Durability:
    first = next(store.read(log, 1, 1, kinds={SessionOpened.__name__}), None)
    opened = first and first.body
    return (opened.durability if isinstance(opened, SessionOpened) else None) or "full"


# ── states ───────────────────────────────────────────────────────────────────────────────────


def _verify_states(store: Store, logs: Sequence[LogId] | None) -> Iterator[Fault]:
    folds = Folds(store, cached=False)  # one for all: what branches share is folded once
    for log in logs if logs is not None else [LogId(str(row["log"])) for row in store.rows("session", "session", limit=_ALL)]:
        try:
            yield from _verify_log_states(store, log, folds)
        except PlaitError as error:
            yield Fault(log, store.log(log).place + 1, f"it cannot be folded: {error}")


def _verify_log_states(store: Store, log: LogId, folds: Folds) -> Iterator[Fault]:
    info = store.log(log)
    due: list[tuple[int, str, str | None]] = []  # place, what it is, the digest it should have
    for seq, data in store.all_kept(log):
        kept = from_snapshot(data)
        if kept is None:
            continue  # of another fold, or damaged: not used either
        head, state = kept
        event = next(store.read(log, seq, seq), None)
        same = event is not None and event.id == head and (state.log, state.place) == (log, seq)
        due.append((seq, "the snapshot kept there", state_digest(state).digest if same else None))
    for event in store.read(log, info.place + 1, info.tip, kinds={SessionClosed.__name__, RunFinished.__name__}):
        body = event.body
        assert isinstance(body, (SessionClosed, RunFinished))
        if body.state is not None and body.state.fold == FOLD:
            due.append((event.seq - 1, f"the state that event {event.seq} carries", body.state.digest))
    for place, what, digest in sorted(due):
        if state_digest(folds.state(log, place)).digest != digest:
            yield Fault(log, place, f"{what} is not the one its events give ({short(log)}@{place})")
            return
    folds.state(log, info.tip)  # it must fold at all
