"""Rows of projections in a PostgreSQL store: as new as the question.

A question first looks, in the same statement, if events of the projection's kinds were committed
that are not folded yet. If so they are folded (`fold.py`), and the question is asked again. A user
that may only read, and a standby, fold them in memory for their own answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from itertools import count
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
    table_name,
)
from plait.store.postgres.pipeline import SqlStatement
from plait.store.postgres.row_query import (
    LOOK,
    LOOK_FAR,
    RowQuery,
    WantedRows,
    row_query,
    stale_sql,
)
from plait.store.postgres.row_reader import ReadOnlyFold
from plait.store.postgres.schema import quote_name
from plait.store.postgres.wire import pack_int8
from plait.store.postgres.words import PostgresWords
from plait.store.projection import Projection, Row, Scalar, Table, Wanted
from plait.store.rows import check_columns, check_names, check_where, order_of
from plait.store.search import Found, Query, Region, checked_query
from plait.store.word_search import search_words

T = TypeVar("T")

_QUERIES_MAX = 1000  # forms of questions that are kept


class PostgresRows(PostgresBlobs):
    """Rows of the projections that this process keeps."""

    folds_inside = False

    def _prepare_rows(self) -> None:
        self._projections: dict[str, Projection] = {}
        self._folds: dict[str, Fold] = {}
        self._readers: dict[str, ReadOnlyFold] = {}
        self._queries: dict[Hashable, RowQuery] = {}  # by their forms
        self._query_numbers = count()

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
        kinds: Collection[str] | None = None,
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
        asked = WantedRows(shape, wanted, order, descending, before)
        if not asked.is_possible:
            return []
        query = self._query_of(kept, shape, asked.forms, (order, descending), kinds)
        return self._read_page(kept, query, [*asked.values, pack_int8(limit)])

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
        wanted: list[Projection] = []
        for projection in projections:
            check_names(projection)
            kept = self._projections.get(projection.name)
            if kept is None or kept.version < projection.version:
                wanted.append(projection)
        there = self._run(partial(self._tables_there, wanted)) if wanted else {}
        for projection in wanted:
            can_fold = there.get((projection.name, projection.version))
            if can_fold is None:
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

    def _query_of(
        self,
        kept: Projection,
        shape: Table,
        forms: Sequence[str],
        order: tuple[str, bool],
        kinds: Collection[str] | None,
    ) -> RowQuery:
        """Return the statements of a form of question, made when it is asked first."""
        codes = self._fold_codes(kept) if kinds is None else self._codes_of(kinds) or []
        form = kept.name, kept.version, shape.name, *forms, order, kinds is None, *codes
        found = self._queries.get(form)
        if found is None:
            stale = stale_sql(kept, codes, LOOK if kinds is None else LOOK_FAR)
            name = f"rows{next(self._query_numbers)}".encode()
            found = row_query(name, kept, shape, forms, order, stale)
            found = found._replace(
                plain=self._sql(found.plain.decode()).encode(),
                fresh=self._sql(found.fresh.decode()).encode(),
            )
            if len(self._queries) >= _QUERIES_MAX:
                self._queries.clear()
            self._queries[form] = found
        return found

    def _read_page(
        self, kept: Projection, query: RowQuery, values: list[bytes | None]
    ) -> list[Row]:
        """Read rows in one statement that first looks if they are up to date."""
        columns, there, stale = query.columns, len(query.columns), len(query.columns) + 1

        def make_row(values: Sequence[Any]) -> Row:
            return dict(zip(columns, values, strict=False))

        def read(db: ServerConnection) -> list[Row] | None:
            result = db.run_prepared(query.name, query.fresh, values)
            if result.get_value(0, stale) == b"\1":
                return None
            if result.get_value(0, there) is None:
                return []
            return db.load(result, query.oids, make_row)

        rows = self._run(read)
        if rows is not None:
            return rows
        fold = self._folds[kept.name]

        def fold_and_read(db: ServerConnection) -> list[Row]:
            # Without a second look, so as not to run after other writers. On one connection: a
            # server that crashes may lose a fold, and then both are done again.
            result = fold.run(db, SqlStatement(query.plain, values, query.name + b"p"))
            return db.load(result, query.oids[:-2], make_row)

        return self._run(fold_and_read)

    def _read_fresh(self, kept: Projection, read: Callable[[ServerConnection], T]) -> T:
        """Read in one transaction in which the rows are up to date, folding them before if need
        be.
        """
        look = self._sql(stale_sql(kept, self._fold_codes(kept)))

        def attempt(db: ServerConnection, is_folded: bool) -> tuple[bool, T | None]:
            with db.transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"):
                if not is_folded and db.get(look):
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

    # ── tables ───────────────────────────────────────────────────────────────────────────────

    def _tables_there(
        self, projections: Sequence[Projection], db: ServerConnection
    ) -> dict[tuple[str, int], bool]:
        """Return the projections whose tables are there, and if this user can fold them."""
        if db.facts.is_read_only:
            return {(each.name, each.version): False for each in projections}
        made = set(db.rows(f"SELECT name, version FROM {self._schema}.projection"))
        there = [each for each in projections if (each.name, each.version) in made]
        names = [
            (number, f"{self._schema}.{quote_name(name)}")
            for number, each in enumerate(there)
            for name in ("projection", *all_names(each))
        ]
        rows = db.rows(
            "SELECT asked.n, bool_and(has_table_privilege(asked.name, each))"
            " FROM unnest($1::int4[], $2::text[]) AS asked (n, name),"
            " unnest('{INSERT,UPDATE,DELETE}'::text[]) AS each GROUP BY asked.n",
            [number for number, _ in names],
            [name for _, name in names],
        )
        found: dict[int, bool] = dict(rows)
        return {(there[n].name, there[n].version): can_fold for n, can_fold in found.items()}

    def _make_tables(self, projection: Projection, db: ServerConnection) -> bool:
        """Make the tables of a projection. Returns if this user can fold."""
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
