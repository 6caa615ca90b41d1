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
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import psycopg
from psycopg import pq

from plait.errors import PlaitError, RowsBroken
from plait.event import Event
from plait.ids import Digest
from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.core import ORDINAL_BITS
from plait.store.postgres.faults import is_collision, is_lost
from plait.store.postgres.fold_tables import all_names
from plait.store.postgres.pipeline import SqlStatement, ask_together
from plait.store.postgres.row_statements import named_statement, statements_of
from plait.store.postgres.row_writer import RowWriter
from plait.store.postgres.schema import quote_name
from plait.store.postgres.server_facts import IDLE_S, LONG_LIMIT
from plait.store.postgres.wire import pack_int2s, pack_int8, pack_int8s
from plait.store.projection import Projection
from plait.store.records import to_event

PAGE = 4000  # events that are folded before their rows are written
_TRIALS_MAX = 4  # of a page with few events
_TRIED_MAX = 64

_BEGIN = """
SELECT set_config('synchronous_commit', 'off', true),
    set_config('idle_in_transaction_session_timeout', '{idle_ms}', true),
    {long_limit}"""
# names of projections are checked: they have no quotes
_STATE = """
SELECT high, open, pg_current_xact_id()::text::int8 + {offset} FROM {s}.projection
WHERE name = '{name}' AND version = {version} FOR UPDATE"""
_KEEP = """
UPDATE {s}.projection SET high = $1::int8, open = $2::int8[]
WHERE name = '{name}' AND version = {version}"""
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
        self._statements = statements_of(schema, projection)
        self._begin = [
            SqlStatement(b"BEGIN"),
            self._statement(
                _BEGIN.replace("{idle_ms}", str(int(IDLE_S * 1000))).replace(
                    "{long_limit}", LONG_LIMIT
                )
            ),
            self._statement(_STATE.replace("{offset}", str(offset))),
        ]
        self._news = self._statement(_NEWS)
        self._keep = self._statement(_KEEP)

    def run(self, db: ServerConnection, then: SqlStatement | None = None) -> pq.abc.PGresult:
        """Fold what is visible now, and return the answer to the question `then`, which is asked
        after it. Another reader may have folded it meanwhile.
        """
        try:
            *_, told = ask_together(db, self._begin)
            (row,) = _rows_in(db, told)
            state, own = FoldState(row[0], tuple(row[1])), row[2]
            rows = RowWriter(db, self._schema, self._statements)
            if state.high < 0:
                self._clear(db)
                state = FoldState(0, ())
            limit: int | None = PAGE
            writes = list[SqlStatement]()
            while limit is not None:
                if writes:
                    ask_together(db, writes)
                state, limit, writes = self._fold_page(db, rows, state, own, limit)
            kept = self._keep._replace(values=[pack_int8(state.high), pack_int8s(state.open)])
            last = [then] if then is not None else []
            return ask_together(db, [*writes, kept, SqlStatement(b"COMMIT"), *last])[-1]
        except BaseException:
            with suppress(psycopg.Error):
                db.run_script("ROLLBACK")
            raise

    def _statement(self, sql: str) -> SqlStatement:
        """Return a statement of this fold, without its values."""
        projection = self._projection
        sql = sql.replace("{s}", self._schema).replace("{name}", projection.name)
        return named_statement(sql.replace("{version}", str(projection.version)))

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
    ) -> tuple[FoldState, int | None, list[SqlStatement]]:
        """Fold one page. Returns the state after it, the size of the next one, and the statements
        that write its rows. None: that was all.
        """
        first = max(state.high << ORDINAL_BITS, 1)  # the event with number 0 comes with the store
        asked = self._news._replace(
            values=[
                pack_int8(first),
                pack_int8(max(own, state.high) << ORDINAL_BITS),
                pack_int8s(state.open),
                pack_int2s(self._codes()),
                pack_int8(limit),
            ]
        )
        found = _rows_in(db, ask_together(db, [asked])[0])
        seen = SeenTransactions.parse(found[0][0], self._offset)
        page = [row[1:] for row in found if row[6] is not None]
        if sum(row[5] >= first for row in page) < limit:
            return state.after(seen, own), None, self._apply(rows, db, page)
        # Whole transactions, of those that have ended: the others are folded with the last page.
        last = page[-1][5] >> ORDINAL_BITS
        whole = [row for row in page if row[5] >> ORDINAL_BITS < min(last, seen.low)]
        if not whole or whole[-1][5] < first:  # transactions that are long at work
            return state, limit * 16, []
        writes = self._apply(rows, db, whole)
        return FoldState((whole[-1][5] >> ORDINAL_BITS) + 1, ()), PAGE, writes

    def _apply(
        self, rows: RowWriter, db: ServerConnection, page: Sequence[Any]
    ) -> list[SqlStatement]:
        get_blob = partial(_get_blob, self._get_blob, db)
        events = [(row[5], to_event(row, get_blob)) for row in page]
        # Rows that are found may lead to others: a few events are tried again for these.
        for _ in range(_TRIALS_MAX if len(events) <= _TRIED_MAX else 1):
            if not (wanted := self._wanted_keys(rows, events)):
                break
            rows.load(wanted)
        for number, event in events:
            apply_event(self._projection, rows, number, event)
        return rows.flush()

    def _wanted_keys(
        self, rows: RowWriter, events: Sequence[tuple[int, Event]]
    ) -> Mapping[str, set[tuple[Any, ...]]]:
        """Return the keys of rows that the events will probably ask for besides those that are
        loaded, found by a trial.
        """
        trial = _KeyTrial(self._projection, rows)
        for number, event in events:
            try:
                self._projection.apply(trial, number, event)
            except Exception:  # rows that are there may be missing in the trial
                continue
        return trial.asked


class _KeyTrial:
    """`Rows` that notes the keys it is asked for, and has those that are loaded, and new ones."""

    def __init__(self, projection: Projection, loaded: RowWriter) -> None:
        self._loaded = loaded
        self._tables = {table.name: table for table in projection.tables}
        self._rows: dict[tuple[str, tuple[Any, ...]], Any] = {}
        self.asked: dict[str, set[tuple[Any, ...]]] = {}

    def get(self, table: str, *key: Any) -> Any:
        if (table, key) in self._rows:
            row = self._rows[table, key]
        else:
            row = self._get_loaded(table, key)
        return None if row is None else dict(row)

    def _get_loaded(self, table: str, key: tuple[Any, ...]) -> Any:
        if self._loaded.has_loaded(table, key):
            return self._loaded.get(table, *key)
        self.asked.setdefault(table, set()).add(key)
        return None

    def put(self, table: str, row: Any) -> None:
        shape = self._tables[table]
        key = tuple([row[column] for column in shape.key])
        if shape.words is not None:
            self._get_loaded(table, key)
        self._rows[table, key] = dict(row)

    def delete(self, table: str, *key: Any) -> None:
        if self._tables[table].words is not None:
            self._get_loaded(table, key)
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


def _rows_in(db: ServerConnection, result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
    """Return the rows of a result, by the types that it names."""
    return db.load(result, [result.ftype(n) for n in range(result.nfields)], tuple)


def _get_blob(
    get_blob: Callable[[ServerConnection, bytes], bytes], db: ServerConnection, digest: Digest
) -> bytes:
    return get_blob(db, bytes.fromhex(digest))
