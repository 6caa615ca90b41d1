"""Rows for those who may only read: a standby, or a user without the right to write.

Nothing can be folded in the database, so the rows that stand there are read into memory, once, and
events that are not folded yet are folded over them, for the answers of this process alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from plait.ids import Digest
from plait.store.plain_rows import RowsInMemory
from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.core import ORDINAL_BITS
from plait.store.postgres.fold import FoldState, SeenTransactions, apply_event
from plait.store.postgres.fold_tables import quote_names, table_name, to_rows
from plait.store.postgres.schema import quote_name
from plait.store.projection import Projection
from plait.store.records import to_event

_PAGE = 4000

_SINCE = """
SELECT e.seq, e.codec, e.salt, e.header, e.body, e.number FROM {s}.event e
WHERE (e.number >= $1::int8 OR e.number >> 16 = ANY($2::int8[])) AND e.kind = ANY($3::int2[])
ORDER BY e.number"""


class ReadOnlyFold:
    """The rows of one projection in memory, folded up to the moment of each question."""

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
        self._rows: RowsInMemory | None = None
        self._state = FoldState(0, ())

    def clear(self) -> None:
        self._rows = None

    def rows(self, db: ServerConnection) -> RowsInMemory:
        """Return rows in which all events that are visible now are folded."""
        with db.transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"):
            snapshot = SeenTransactions.parse(
                db.get("SELECT pg_current_snapshot()::text"), self._offset
            )
            if self._rows is None:
                self._rows, self._state = self._load(db)
            rows = self._rows
            first = max(self._state.high << ORDINAL_BITS, 1)
            get_blob = partial(self._read_blob, db)
            asked = [first, list(self._state.open), self._codes()]
            for page in db.stream(_SINCE.replace("{s}", self._schema), asked, _PAGE):
                for row in page:
                    apply_event(self._projection, rows, row[5], to_event(row, get_blob))
            unseen = tuple(sorted(snapshot.open))
            self._state = FoldState(snapshot.high, unseen)
            return rows

    def _load(self, db: ServerConnection) -> tuple[RowsInMemory, FoldState]:
        """Read the rows that stand in the database, if there are any."""
        rows = RowsInMemory(self._projection)
        state = db.row(
            f"SELECT high, open FROM {self._schema}.projection WHERE name = $1::text AND"
            " version = $2::int4",
            self._projection.name,
            self._projection.version,
        )
        if state is None or state[0] < 0:
            return rows, FoldState(0, ())
        for table in self._projection.tables:
            name = f"{self._schema}.{quote_name(table_name(self._projection, table.name))}"
            sql = f"SELECT {quote_names(table.columns)} FROM {name}"
            for page in db.stream(sql, (), _PAGE):
                for row in to_rows(table, page):
                    rows.put(table.name, row)
        return rows, FoldState(state[0], tuple(state[1]))

    def _read_blob(self, db: ServerConnection, digest: Digest) -> bytes:
        return self._get_blob(db, bytes.fromhex(digest))
