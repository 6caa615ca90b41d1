"""The audit: everything that is kept about sessions, compared with the events it was made from.

`plait.store.verify_store` recomputes ids, links, commitments, index columns and blobs. Here the
rows by which sessions are listed are folded again and compared, and every recorded tree is
followed; asked for the state too, so are the rows of every other projection that this process has
attached, every snapshot, and the digests that closed sessions and finished runs carry.
`Audit.unchecked_parts` names the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from plait.errors import PlaitError, RowsTooNew, UnknownRows
from plait.event import Event
from plait.event.kinds import Merged, RunFinished, SessionClosed, SessionOpened
from plait.ids import LogId, inbox_of, short
from plait.session.ask_rows import InboxRows
from plait.session.fold import Folds
from plait.session.graph_rows import GraphRows
from plait.session.rows import SessionRows
from plait.session.state import FOLD, from_snapshot, state_digest, to_snapshot
from plait.store import (
    Projection,
    Row,
    Scalar,
    Store,
    StoreFault,
    Table,
    Unchecked,
    ancestry,
    verify_log,
    verify_store,
    visible_count,
    visible_events,
)
from plait.workspace.check import TreeCheck
from plait.workspace.gc import TREE_KINDS, trees_in

_ALL = 2**31
_PAGE = 1000  # logs that are read at once
_SAID_MAX = 100  # letters of a value in the text of a fault

# Parts that no store can check by itself, and parts that may differ without being an edit.
_ALWAYS = (
    Unchecked(
        "a lost tail, a lost session, an old copy put back, a rewrite with all its hashes, "
        "and the order of sessions that do not know each other",
        "only a head kept elsewhere shows these",
    ),
    Unchecked(
        "which snapshots and unused blobs there are",
        "caches come and go, and gc removes what nothing leads to",
    ),
    Unchecked("how equal content is compressed", "hashes are over the content"),
)
_STATE = Unchecked(
    "snapshots, rows other than those of sessions and inboxes, words of rows, and state digests in"
    " events",
    "only --state folds everything again",
)
_AFTER_A_FAULT = Unchecked(
    "states, and what follows the first fault of a session", "they rest on what is broken"
)
_OTHERS = Unchecked(
    "other sessions, rows other than those of sessions, the schema, counts, and blobs that only"
    " others point to",
    "only one session was asked for",
)


def verify(
    store: Store, logs: Sequence[LogId] | None = None, *, state: bool = False
) -> Iterator[StoreFault]:
    """Yield the faults of a store, or of some of its logs and of the logs behind them.

    `state` folds everything again.
    """
    return Audit(store, logs, state=state).faults()


class LogCounts(NamedTuple):
    """How much is checked."""

    sessions: int
    other_logs: int  # inboxes of sessions, and the log of the house
    events: int


def count_logs(store: Store, logs: Sequence[LogId] | None = None) -> LogCounts:
    """Count the sessions, other logs and events of a store, or of these logs."""
    if logs is None:
        there, ids = store.describe(), set[LogId]()
        total, events = int(str(there["logs"])), int(str(there["events"]))
        before: int | None = None
        while page := store.logs(before=before, limit=_PAGE):
            ids |= {log.id for _, log in page}
            before = page[-1][0]
    else:
        ids, total = set(logs), len(logs)
        events = sum(log.tip - log.place for log in map(store.log, logs))
    inboxes = ids & {inbox_of(id) for id in ids}
    sessions = len(ids) - len(inboxes)
    return LogCounts(sessions, max(total - sessions, 0), events)


class Audit:
    """One audit: the faults, and after them the parts that were not checked."""

    def __init__(
        self, store: Store, logs: Sequence[LogId] | None = None, *, state: bool = False
    ) -> None:
        self._store, self._state = store, state
        self._logs = None if logs is None else logs_behind(store, logs)
        self._unchecked: list[Unchecked] = []
        self._old = Counter[str]()  # snapshots and digests of other versions of the fold

    def faults(self) -> Iterator[StoreFault]:
        store, logs = self._store, self._logs
        found = False
        for fault in verify_store(store) if logs is None else _verify_logs(store, logs):
            found = True
            yield fault
        if found:
            self._unchecked.append(_AFTER_A_FAULT)
        if found and _is_damaged(store):
            self._unchecked.append(
                Unchecked("rows, trees and states", "the file is damaged: they mean nothing")
            )
            return
        yield from self._row_faults(SessionRows(), logs)
        if logs is None:
            yield from self._row_faults(InboxRows(), None)
            others = {each.name: each for each in (GraphRows(), *store.attached())}
            for each in others.values():
                if each.name not in (SessionRows.name, InboxRows.name):
                    compare = self._state and not found
                    yield from self._row_faults(each, None, compare=compare)
        try:
            if self._state and logs is None:
                yield from [StoreFault(None, 0, fault) for fault in store.check_words()]
            yield from _verify_trees(store, logs)
            if self._state and not found:  # folding a broken log only tells the same again
                yield from _verify_states(store, logs, self._old)
        except PlaitError as error:
            yield StoreFault(None, 0, str(error))

    def unchecked_parts(self) -> list[Unchecked]:
        """Return the parts that were not compared, and why. Call it after `faults` has ended."""
        parts = [*self._unchecked, *([] if self._state else [_STATE])]
        parts += [
            Unchecked(
                f"{count} {what}",
                "this version of the fold did not make them, and does not use them",
            )
            for what, count in self._old.items()
        ]
        if self._logs is not None:
            return [*parts, _OTHERS, *_ALWAYS]
        try:
            return [*parts, *self._store.unchecked_parts(), *_ALWAYS]
        except PlaitError as error:
            return [*parts, Unchecked("the rest of the store", str(error)), *_ALWAYS]

    def _row_faults(
        self, projection: Projection, logs: Sequence[LogId] | None, *, compare: bool = True
    ) -> list[StoreFault]:
        """Compare the rows of a projection, if they are of its version."""
        store, name = self._store, projection.name
        try:
            store.rows(name, projection.tables[0].name, limit=0)
            return (
                _stable_faults(store, lambda: _verify_rows(store, projection, logs))
                if compare
                else []
            )
        except RowsTooNew as error:
            what = (
                f"the rows of projection {name} are marked with version {error.found}, which hides"
                " them"
            )
            return [StoreFault(None, 0, f"{what}: this Plait keeps version {error.known}")]
        except UnknownRows:
            self._unchecked.append(
                Unchecked(f"the rows of projection {name}", "the store was opened without it")
            )
            return []
        except PlaitError as error:
            return [StoreFault(None, 0, str(error))]


def _is_damaged(store: Store) -> bool:
    try:
        store.check()
        return False
    except PlaitError:
        return True


def logs_behind(store: Store, logs: Sequence[LogId]) -> list[LogId]:
    """Return these logs, their inboxes, and all logs that their content comes from: ancestors,
    merged branches, and the sessions they continue.
    """
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
            for event in store.read(
                log, info.place + 1, info.tip, kinds={Merged.__name__, SessionOpened.__name__}
            ):
                body = event.body
                if isinstance(body, Merged):
                    queue += [place.log for place in body.branches] + (
                        [body.base.log] if body.base else []
                    )
                elif isinstance(body, SessionOpened) and body.continues is not None:
                    queue.append(body.continues.log)
        except PlaitError:
            continue  # its faults are found when it is checked
    return list(seen)


def _verify_logs(store: Store, logs: Sequence[LogId]) -> Iterator[StoreFault]:
    for log in logs:
        try:
            fault = verify_log(store, log)
        except PlaitError as error:
            fault = StoreFault(log, 0, str(error))
        if fault is not None:
            yield fault


def _stable_faults(store: Store, check: Callable[[], Iterator[StoreFault]]) -> list[StoreFault]:
    """Return the faults of a check while others may write: it is repeated until no write came in
    between, five times at most, and only faults that are found each time count.
    """
    before = visible_count(store)
    found = list(check())
    for _ in range(5):
        now = visible_count(store)
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
        self.tables: dict[str, dict[tuple[Scalar, ...], Row]] = {
            table.name: {} for table in projection.tables
        }

    def get(self, table: str, *key: Scalar) -> Row | None:
        return self.tables[table].get(key)

    def put(self, table: str, row: Row) -> None:
        self.tables[table][tuple([row[column] for column in self._keys[table]])] = row

    def delete(self, table: str, *key: Scalar) -> None:
        self.tables[table].pop(key, None)


def _verify_rows(
    store: Store, projection: Projection, logs: Sequence[LogId] | None
) -> Iterator[StoreFault]:
    fresh = _Refolded(projection)
    for number, event in (
        visible_events(store, kinds=projection.kinds)
        if logs is None
        else _events_of(store, logs, projection.kinds)
    ):
        projection.apply(fresh, number, event)
    for table in projection.tables:
        due = {
            key: row
            for key, row in fresh.tables[table.name].items()
            if logs is None or row[_log_column(table)] in logs
        }
        for row in _rows(store, projection.name, table, logs):
            wanted = due.pop(tuple([row[column] for column in table.key]), None)
            if wanted != row:
                yield _row_fault(table, row, wanted)
        for row in due.values():
            yield _fault_at(table, row, "is missing")


def _log_column(table: Table) -> str:
    """Return the column that names the log of a row: its own, or the inbox that it is about."""
    return "log" if "log" in table.columns else table.key[0]


def _rows(store: Store, projection: str, table: Table, logs: Sequence[LogId] | None) -> list[Row]:
    if logs is None:
        return store.rows(projection, table.name, limit=_ALL)
    column = _log_column(table)
    return [
        row for log in logs for row in store.rows(projection, table.name, {column: log}, limit=_ALL)
    ]


def _events_of(
    store: Store, logs: Sequence[LogId], kinds: frozenset[str]
) -> Iterator[tuple[int, Event]]:
    """Yield the events of some logs and of their ancestors, with commit numbers, parents first."""
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


def _row_fault(table: Table, row: Row, wanted: Row | None) -> StoreFault:
    if wanted is None:
        return _fault_at(table, row, "stands there, and no event made it")
    column = next(column for column in row if row[column] != wanted[column])
    says, due = f"{row[column]!r:.{_SAID_MAX}}", f"{wanted[column]!r:.{_SAID_MAX}}"
    if says == due:
        says = "another"  # they differ further on
    return _fault_at(table, wanted, f"says {column} is {says}, its events say {due}")


def _fault_at(table: Table, row: Row, what: str) -> StoreFault:
    """Return a fault of a row, at the place of the session that it is about, if it names one."""
    log = row.get("log")
    if not isinstance(log, str):
        key = ", ".join([f"{row[column]!r:.{_SAID_MAX}}" for column in table.key])
        return StoreFault(None, 0, f"the {table.name} row of {key} {what}")
    place, seq = row.get("place"), row.get("seq")
    if isinstance(place, int):
        seq = place + 1
    return StoreFault(
        LogId(log), seq if isinstance(seq, int) else 1, f"its {table.name} row {what}"
    )


# ── trees ────────────────────────────────────────────────────────────────────────────────────


def _verify_trees(store: Store, logs: Sequence[LogId] | None) -> Iterator[StoreFault]:
    """Follow every recorded tree. A fault names the first event that leads to it."""
    check = TreeCheck(store, hashed=logs is None)
    for _, event in (
        visible_events(store, kinds=TREE_KINDS)
        if logs is None
        else _events_of(store, logs, TREE_KINDS)
    ):
        try:
            faults = [check.first_fault(tree) for tree in trees_in(event)]
            yield from [
                StoreFault(event.log, event.seq, fault) for fault in faults if fault is not None
            ]
        except PlaitError:
            continue  # the event itself cannot be read: that fault is known


# ── states ───────────────────────────────────────────────────────────────────────────────────


class _SnapshotFold(msgspec.Struct):
    fold: int


_snapshot_fold = msgspec.json.Decoder(_SnapshotFold).decode


def _is_of_other_fold(data: bytes) -> bool:
    try:
        return _snapshot_fold(data).fold != FOLD
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True  # no fold at all: a store keeps any bytes


def _verify_states(
    store: Store, logs: Sequence[LogId] | None, old: Counter[str]
) -> Iterator[StoreFault]:
    folds = Folds(store, cached=False)  # one for all: spans that branches share are folded once
    for log in (
        logs
        if logs is not None
        else [LogId(str(row["log"])) for row in store.rows("session", "session", limit=_ALL)]
    ):
        try:
            yield from _verify_log_states(store, log, folds, old)
        except PlaitError as error:
            yield StoreFault(log, store.log(log).place + 1, f"it cannot be folded: {error}")


def _verify_log_states(
    store: Store, log: LogId, folds: Folds, old: Counter[str]
) -> Iterator[StoreFault]:
    info = store.log(log)
    due: list[tuple[int, str, str | None]] = []  # place, a name for it, the digest it should have
    for seq, data in store.snapshots(log):
        kept = from_snapshot(data)
        if kept is None:  # it is not used either
            if _is_of_other_fold(data):
                old["snapshots"] += 1
            else:
                due.append((seq, "the snapshot kept there", None))
            continue
        head, state = kept
        event = next(store.read(log, seq, seq), None)
        same = event is not None and event.id == head and (state.log, state.place) == (log, seq)
        # a reader passes over fields that it does not know
        same = same and to_snapshot(state, head) == data
        due.append((seq, "the snapshot kept there", state_digest(state).digest if same else None))
    for event in store.read(
        log, info.place + 1, info.tip, kinds={SessionClosed.__name__, RunFinished.__name__}
    ):
        body = event.body
        assert isinstance(body, (SessionClosed, RunFinished))
        if body.state is not None and body.state.fold == FOLD:
            due.append(
                (event.seq - 1, f"the state that event {event.seq} carries", body.state.digest)
            )
        elif body.state is not None:
            old["state digests in events"] += 1
    for place, what, digest in sorted(due):
        if state_digest(folds.state(log, place)).digest != digest:
            yield StoreFault(
                log, place, f"{what} is not the one its events give ({short(log)}@{place})"
            )
            return
    folds.state(log, info.tip)  # it must fold at all
