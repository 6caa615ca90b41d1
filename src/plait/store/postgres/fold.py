"""Folding behind: the rows of a projection are brought up to date by those who read them.

An append writes no rows. A reader that finds events of a projection's kinds that are not folded yet
takes the lock of the projection, folds them, writes rows and state in one transaction, and answers.
That transaction need not be on disk: rows are a cache.

The order between logs is that of visibility, not of numbers: an event may become visible after one
with a larger number. Within one fold events come by number, so that logs and causes are respected.

Which events are folded is said in transactions: all below `high`, but for those in `open`. The fold
takes for `high` the id of its own transaction. It was given after the question was asked, so every
event that was committed before the question is below it; and it is on record with the state, so no
later transaction has it, nor a lower one, not even after a failover to a standby.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import psycopg

from plait.errors import PlaitError, RowsBroken
from plait.event import Event
from plait.ids import Digest
from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.core import ORDINAL_BITS
from plait.store.postgres.faults import is_collision, is_lost
from plait.store.postgres.fold_tables import all_names
from plait.store.postgres.row_writer import RowWriter
from plait.store.postgres.schema import quote_name
from plait.store.projection import Projection
from plait.store.records import to_event

PAGE = 4000  # events that are folded before their rows are written

_STATE = """
SELECT high, open, pg_current_xact_id()::text::int8 + {offset} FROM {s}.projection
WHERE name = $1::text AND version = $2::int4 FOR UPDATE"""
# Events that no fold has seen, with the snapshot in which they are visible.
_NEWS = """
SELECT at.snapshot, e.* FROM (SELECT pg_current_snapshot()::text AS snapshot) AS at
LEFT JOIN LATERAL (
    SELECT * FROM (
        SELECT e.seq, e.codec, e.salt, e.header, e.body, e.number FROM {s}.event e
        WHERE e.number >= $1::int8 AND e.number < $2::int8 AND e.kind = ANY($4::int2[])
        ORDER BY e.number LIMIT $5::int8
    ) AS later
    UNION ALL
    SELECT e.seq, e.codec, e.salt, e.header, e.body, e.number
    FROM unnest($3::int8[]) AS open (xid) CROSS JOIN LATERAL (
        SELECT * FROM {s}.event e WHERE e.number >= open.xid << 16
            AND e.number < (open.xid + 1) << 16 AND e.kind = ANY($4::int2[])
        ORDER BY e.number LIMIT 65536
    ) AS e
) AS e ON true ORDER BY e.number"""


class SeenTransactions(NamedTuple):
    """The transactions that a statement of the server can see the work of."""

    low: int  # all below have ended
    high: int  # none from here on can be seen
    open: frozenset[int]  # those in between that are still at work

    @classmethod
    def parse(cls, text: str, offset: int) -> SeenTransactions:
        low, high, open = text.split(":")
        running = [int(each) + offset for each in open.split(",") if each]
        return cls(int(low) + offset, int(high) + offset, frozenset(running))


class FoldState(NamedTuple):
    """The transactions whose events are folded."""

    high: int
    open: tuple[int, ...]

    def after(self, seen: SeenTransactions, own: int) -> FoldState:
        """Return the state after all that `seen` shows below `own` was folded, by transaction
        `own`.
        """
        high = max(own, self.high)
        unseen = {*seen.open, *range(seen.high, high)} - {own}
        return FoldState(high, tuple(sorted(each for each in unseen if each < high)))


class Fold:
    """Folds of one projection, in one store."""

    def __init__(
        self,
        schema: str,
        offset: int,
        projection: Projection,
        codes: Callable[[], list[int]],
        get_blob: Callable[[ServerConnection, bytes], bytes],
    ) -> None:
        self._schema, self._offset = schema, offset
        self._projection, self._codes, self._get_blob = projection, codes, get_blob

    def run(self, db: ServerConnection) -> None:
        """Fold what is visible now. Returns when another reader has done it meanwhile, too."""
        with db.transaction("BEGIN; SET LOCAL synchronous_commit = off"):
            row = db.row(
                _STATE.replace("{s}", self._schema).replace("{offset}", str(self._offset)),
                self._projection.name,
                self._projection.version,
            )
            assert row is not None, "the tables of a projection are made with its state"
            state, own = FoldState(row[0], tuple(row[1])), row[2]
            rows = RowWriter(db, self._schema, self._projection)
            if state.high < 0:
                self._clear(db)
                state = FoldState(0, ())
            limit: int | None = PAGE
            while limit is not None:
                state, limit = self._fold_page(db, rows, state, own, limit)
            db.run(
                f"UPDATE {self._schema}.projection SET high = $3::int8, open = $4::int8[]"
                " WHERE name = $1::text AND version = $2::int4",
                self._projection.name,
                self._projection.version,
                state.high,
                list(state.open),
            )

    def clear(self, db: ServerConnection) -> None:
        """Have the rows folded anew by the next fold."""
        db.run(
            f"UPDATE {self._schema}.projection SET high = -1, open = '{{}}'"
            " WHERE name = $1::text AND version = $2::int4",
            self._projection.name,
            self._projection.version,
        )

    def _clear(self, db: ServerConnection) -> None:
        names = [quote_name(name) for name in all_names(self._projection)]
        db.run_script("; ".join([f"DELETE FROM {self._schema}.{name}" for name in names]))

    def _fold_page(
        self, db: ServerConnection, rows: RowWriter, state: FoldState, own: int, limit: int
    ) -> tuple[FoldState, int | None]:
        """Fold one page. Returns the state after it, and the size of the next one; None: that was
        all.
        """
        first = max(state.high << ORDINAL_BITS, 1)  # the event with number 0 comes with the store
        found = db.rows(
            _NEWS.replace("{s}", self._schema),
            first,
            max(own, state.high) << ORDINAL_BITS,
            list(state.open),
            self._codes(),
            limit,
        )
        seen = SeenTransactions.parse(found[0][0], self._offset)
        page = [row[1:] for row in found if row[6] is not None]
        if sum(row[5] >= first for row in page) < limit:
            self._apply(rows, db, page)
            return state.after(seen, own), None
        # Whole transactions, of those that have ended: the others are folded with the last page.
        last = page[-1][5] >> ORDINAL_BITS
        whole = [row for row in page if row[5] >> ORDINAL_BITS < min(last, seen.low)]
        if not whole or whole[-1][5] < first:  # transactions that are long at work
            return state, limit * 16
        self._apply(rows, db, whole)
        return FoldState((whole[-1][5] >> ORDINAL_BITS) + 1, ()), PAGE

    def _apply(self, rows: RowWriter, db: ServerConnection, page: Sequence[Any]) -> None:
        get_blob = partial(_get_blob, self._get_blob, db)
        events = [(row[5], to_event(row, get_blob)) for row in page]
        rows.load(self._wanted_keys(events))
        for number, event in events:
            apply_event(self._projection, rows, number, event)
        rows.flush()

    def _wanted_keys(
        self, events: Sequence[tuple[int, Event]]
    ) -> Mapping[str, set[tuple[Any, ...]]]:
        """Return the keys of rows that the events will probably ask for, found by a trial."""
        trial = _KeyTrial(self._projection)
        for number, event in events:
            try:
                self._projection.apply(trial, number, event)
            except Exception:  # rows that are there may be missing in the trial
                continue
        return trial.asked


class _KeyTrial:
    """`Rows` that notes the keys it is asked for, and has no rows of its own but new ones."""

    def __init__(self, projection: Projection) -> None:
        self._tables = {table.name: table for table in projection.tables}
        self._rows: dict[tuple[str, tuple[Any, ...]], Any] = {}
        self.asked: dict[str, set[tuple[Any, ...]]] = {}

    def get(self, table: str, *key: Any) -> Any:
        if (table, key) not in self._rows:
            self.asked.setdefault(table, set()).add(key)
        row = self._rows.get((table, key))
        return None if row is None else dict(row)

    def put(self, table: str, row: Any) -> None:
        shape = self._tables[table]
        key = tuple([row[column] for column in shape.key])
        if shape.words is not None:
            self.asked.setdefault(table, set()).add(key)
        self._rows[table, key] = dict(row)

    def delete(self, table: str, *key: Any) -> None:
        if self._tables[table].words is not None:
            self.asked.setdefault(table, set()).add(key)
        self._rows[table, key] = None


def apply_event(projection: Projection, rows: Any, number: int, event: Event) -> None:
    """Fold one event; an error names the projection and the event."""
    try:
        projection.apply(rows, number, event)
    except PlaitError as error:
        if type(error).__module__.startswith("plait.errors.store"):
            raise  # the store, and not the fold
        raise RowsBroken(projection.name, event.log, event.seq, str(error)) from error
    except Exception as error:
        if isinstance(error, psycopg.Error) and (is_lost(error) or is_collision(error)):
            raise  # the server, and not the fold: it is tried again
        why = f"{type(error).__name__}: {error}"
        raise RowsBroken(projection.name, event.log, event.seq, why) from error


def _get_blob(
    get_blob: Callable[[ServerConnection, bytes], bytes], db: ServerConnection, digest: Digest
) -> bytes:
    return get_blob(db, bytes.fromhex(digest))
