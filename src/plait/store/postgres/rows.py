"""Rows of projections in a PostgreSQL store: as new as the question.

A question first looks, in the same statement, if events of the projection's kinds were committed
that are not folded yet. If so they are folded (`fold.py`), and the question is asked again. A user
that may only read, and a standby, fold them in memory for their own answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from plait.errors import StoreDenied, UnknownRows
from plait.errors.store_servers import migrate_command
from plait.store.arguments import check_limit
from plait.store.postgres.blobs import PostgresBlobs
from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.fold import Fold
from plait.store.postgres.fold_tables import (
    all_names,
    create_tables,
    order_sql,
    quote_names,
    table_name,
    to_column,
    to_rows,
)
from plait.store.postgres.row_reader import ReadOnlyFold
from plait.store.postgres.schema import quote_name
from plait.store.postgres.words import PostgresWords
from plait.store.projection import Projection, Row, Scalar, Table, Wanted
from plait.store.rows import check_columns, check_names, check_where, order_of
from plait.store.search import Found, Query, Region, checked_query
from plait.store.word_search import search_words

T = TypeVar("T")

_LOOK = 200  # events that a question passes over, before the state of the fold is moved on

# The number of events that no fold has passed, and if one is of the kinds of the projection.
_STALE = """
SELECT count(*) >= {look} OR coalesce(bool_or(news.kind = ANY($3::int2[])), false)
    OR (SELECT high FROM fold) < 0
FROM (
    SELECT later.kind FROM (
        SELECT e.kind FROM {s}.event e
        WHERE e.number >= greatest((SELECT high FROM fold) << 16, 1)
        ORDER BY e.number LIMIT {look}
    ) AS later
    UNION ALL
    SELECT e.kind FROM fold CROSS JOIN LATERAL unnest(fold.open) AS open (xid)
    CROSS JOIN LATERAL (
        SELECT kind FROM {s}.event WHERE number >= open.xid << 16 AND number < (open.xid + 1) << 16
        ORDER BY number LIMIT 65536
    ) AS e
) AS news""".replace("{look}", str(_LOOK))
_FOLD_STATE = "SELECT high, open FROM {s}.projection WHERE name = $1::text AND version = $2::int4"


class PostgresRows(PostgresBlobs):
    """Rows of the projections that this process keeps."""

    folds_inside = False

    def _prepare_rows(self) -> None:
        self._projections: dict[str, Projection] = {}
        self._folds: dict[str, Fold] = {}
        self._readers: dict[str, ReadOnlyFold] = {}

    def rows(
        self,
        projection: str,
        table: str,
        where: Mapping[str, Wanted] | None = None,
        *,
        order: str | None = None,
        descending: bool = False,
        before: Scalar = None,
        limit: int = 100,
    ) -> list[Row]:
        check_limit(limit)
        shape, kept = self._shape(projection, table), self._projections.get(projection)
        assert kept is not None
        self._know_kinds(kept.kinds)
        wanted = where or {}
        order = order or order_of(shape)
        check_columns(projection, shape, (*wanted, order))
        check_where({**wanted, order: before})
        if (reader := self._readers.get(projection)) is not None:
            in_memory = self._run(reader.rows)
            return in_memory.scan(table, wanted, order, descending, before, limit)
        page = self._rows_sql(kept, shape, wanted, order, descending, before)
        if page is None:
            return []
        sql, values = page
        return self._read_page(kept, shape, sql, [*values, limit])

    def search(
        self,
        projection: str,
        table: str,
        words: Sequence[str],
        *,
        within: Sequence[Region] | None = None,
        upto: int | None = None,
        near: tuple[str, int] | None = None,
        limit: int = 20,
    ) -> Found:
        shape, kept = self._shape(projection, table), self._projections.get(projection)
        assert kept is not None
        self._know_kinds(kept.kinds)
        query = checked_query(projection, shape, words, within, upto, near, limit)
        if (reader := self._readers.get(projection)) is not None:
            in_memory = self._run(reader.rows)
            return in_memory.search(table, words, within, upto, near, limit)
        return self._read_fresh(kept, partial(self._search, kept, shape, query))

    def check_words(self) -> list[str]:
        faults: list[str] = []
        for kept in self._projections.values():
            if kept.name in self._readers:
                continue
            for table in kept.tables:
                if table.words is None:
                    continue
                fault = self._read_fresh(kept, partial(self._word_fault, kept, table))
                if fault:
                    name = f"{kept.name}.{table.name}"
                    faults.append(f"the words of {name} are not those of its rows: {fault}")
        return faults

    def attached(self) -> list[Projection]:
        return list(self._projections.values())

    def attach(self, projections: Sequence[Projection]) -> None:
        for projection in projections:
            check_names(projection)
            kept = self._projections.get(projection.name)
            if kept is not None and kept.version >= projection.version:
                continue
            can_fold = self._run(partial(self._make_tables, projection))
            codes = partial(self._fold_codes, projection)
            if can_fold:
                self._folds[projection.name] = Fold(
                    self._schema, self._offset, projection, codes, self._blob
                )
                self._readers.pop(projection.name, None)
            else:
                self._readers[projection.name] = ReadOnlyFold(
                    self._schema, self._offset, projection, codes, self._blob
                )
            self._projections[projection.name] = projection

    def rebuild(self, projection: str) -> None:
        if projection not in self._projections:
            raise UnknownRows(projection)
        if projection in self._readers:
            self._readers[projection].clear()
            return
        fold = self._folds[projection]
        self._run(fold.clear)
        self._run(fold.run)

    def _fold_codes(self, projection: Projection) -> list[int]:
        return self._codes_of(projection.kinds) or []

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def _read_page(
        self, kept: Projection, shape: Table, sql: str, values: Sequence[Any]
    ) -> list[Row]:
        """Read rows in one statement that first looks if they are up to date."""
        fresh = self._sql(
            f"WITH fold AS ({_FOLD_STATE}), stale (is_stale) AS ({_STALE})"
            " SELECT stale.*, page.* FROM"
            f" stale LEFT JOIN LATERAL (SELECT true AS there, found.* FROM ({sql}) AS found)"
            " AS page ON NOT stale.is_stale"
        )
        name = kept.name, kept.version, self._fold_codes(kept)
        rows = self._run(lambda db: db.rows(fresh, *name, *values))
        if not rows[0][0]:
            return to_rows(shape, [row[2:] for row in rows if row[1]])
        fold, plain = self._folds[kept.name], self._sql(_shifted(sql, -3))

        def fold_and_read(db: ServerConnection) -> list[tuple[Any, ...]]:
            # Without a second look, so as not to run after other writers. On one connection: a
            # server that crashes may lose a fold, and then both are done again.
            fold.run(db)
            return db.rows(plain, *values)

        return to_rows(shape, self._run(fold_and_read))

    def _read_fresh(self, kept: Projection, read: Callable[[ServerConnection], T]) -> T:
        """Read in one transaction in which the rows are up to date, folding them before if need
        be.
        """
        look = self._sql(f"WITH fold AS ({_FOLD_STATE}) {_STALE}")
        name = kept.name, kept.version, self._fold_codes(kept)

        def attempt(db: ServerConnection, is_folded: bool) -> tuple[bool, T | None]:
            with db.transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"):
                if not is_folded and db.get(look, *name):
                    return False, None
                return True, read(db)

        is_read, found = self._run(partial(attempt, is_folded=False))
        if not is_read:
            fold = self._folds[kept.name]

            def fold_and_read(db: ServerConnection) -> tuple[bool, T | None]:
                fold.run(db)
                return attempt(db, is_folded=True)

            _, found = self._run(fold_and_read)
        return found  # type: ignore[return-value]

    def _search(self, kept: Projection, shape: Table, query: Query, db: ServerConnection) -> Found:
        name = table_name(kept, shape.name)
        return search_words(name, shape, PostgresWords(db, self._schema, name, shape), query)

    def _word_fault(self, kept: Projection, table: Table, db: ServerConnection) -> str | None:
        name = table_name(kept, table.name)
        return PostgresWords(db, self._schema, name, table).fault()

    def _rows_sql(
        self,
        kept: Projection,
        shape: Table,
        where: Mapping[str, Wanted],
        order: str,
        descending: bool,
        before: Scalar,
    ) -> tuple[str, list[Any]] | None:
        """The query for a page of rows, whose values begin at $4. None: no row can be wanted."""
        conditions: list[str] = []
        values: list[Any] = []
        for column, wanted in where.items():
            kind = shape.columns[column]
            name = quote_name(column)
            if wanted is None:
                conditions.append(f"{name} IS NULL")
            elif isinstance(wanted, frozenset):
                values.append([to_column(kind, each) for each in wanted if _is_of(kind, each)])
                conditions.append(f"{name} = ANY(${len(values) + 3}::{_TYPES[kind]}[])")
            elif _is_of(kind, wanted):
                values.append(to_column(kind, wanted))
                conditions.append(f"{name} = ${len(values) + 3}::{_TYPES[kind]}")
            else:
                return None
        if before is not None:
            kind = shape.columns[order]
            if not _is_of(kind, before):
                return None
            values.append(to_column(kind, before))
            sign = "<" if descending else ">"
            conditions.append(f"{quote_name(order)} {sign} ${len(values) + 3}::{_TYPES[kind]}")
        return (
            f"SELECT {quote_names(shape.columns)} FROM"
            f" {{s}}.{quote_name(table_name(kept, shape.name))}"
            f" WHERE {' AND '.join(conditions) or 'true'}"
            f" ORDER BY {order_sql(shape, order, descending)}"
            f" LIMIT ${len(values) + 4}::int8"
        ), values

    # ── tables ───────────────────────────────────────────────────────────────────────────────

    def _make_tables(self, projection: Projection, db: ServerConnection) -> bool:
        """Make the tables of a projection if they are not there. Returns if this user can fold."""
        if db.facts.is_read_only:
            return False
        there = db.get(
            f"SELECT 1 FROM {self._schema}.projection WHERE name = $1::text AND version = $2::int4",
            projection.name,
            projection.version,
        )
        if there:
            tables = ["projection", *all_names(projection)]
            names = [f"{self._schema}.{quote_name(name)}" for name in tables]
            return bool(
                db.get(
                    "SELECT bool_and(has_table_privilege(name, each)) FROM unnest($1::text[]) AS"
                    " name, unnest('{INSERT,UPDATE,DELETE}'::text[]) AS each",
                    names,
                )
            )
        if not self._may_write(db):
            return False
        if not db.get("SELECT has_schema_privilege($1, 'CREATE')", self._schema.strip('"')):
            raise StoreDenied(
                self._connections.address,
                f"the rows {projection.name!r} (version {projection.version}) have no tables yet,"
                " and this user may not make them",
                f"run `{migrate_command(self._connections.address)}` as a user that may, with"
                " `--projections FILE.py:NAME` if they are rows of your own",
            )
        with db.transaction():
            db.run("SELECT pg_advisory_xact_lock(hashtextextended($1, 7))", self._schema)
            for statement in create_tables(self._schema, projection):
                db.run_script(statement)
        return True

    def _shape(self, projection: str, table: str) -> Table:
        if projection not in self._projections:
            raise UnknownRows(projection)
        for shape in self._projections[projection].tables:
            if shape.name == table:
                return shape
        tables = ", ".join(shape.name for shape in self._projections[projection].tables)
        raise UnknownRows(f"{projection}.{table}", f"the tables are {tables}")


_TYPES = {"text": "bytea", "integer": "int8", "real": "float8", "blob": "bytea"}


def _is_of(kind: str, value: object) -> bool:
    """True if a column of this kind can hold the value: else no row has it."""
    if kind == "text":
        return isinstance(value, str)
    if kind == "blob":
        return isinstance(value, bytes)
    if kind == "integer":
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return isinstance(value, (int, float))


def _shifted(sql: str, by: int) -> str:
    """Return a query with the numbers of its values moved."""
    return re.sub(r"\$(\d+)", lambda found: f"${int(found[1]) + by}", sql)
