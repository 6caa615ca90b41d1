"""Rows of projections in a SQLite store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from plait.errors import (
    RowsTooNew,
    StoreCorrupt,
    UnknownRows,
)
from plait.store.arguments import (
    check_limit,
)
from plait.store.projection import Projection, Row, Scalar, Table, Wanted
from plait.store.rows import check_names
from plait.store.search import Found, Region, checked_query
from plait.store.sqlite.connections import Connections
from plait.store.sqlite.core import SqliteCore
from plait.store.sqlite.database import Database
from plait.store.sqlite.tables import scan, table_name
from plait.store.sqlite.words import WordSearch, check_index, lookup_fault

T = TypeVar("T")


class SqliteRows(SqliteCore):
    """Rows of the projections that this process keeps."""

    def __init__(self, connections: Connections) -> None:
        super().__init__(connections)
        self._projections: dict[str, Projection] = {}
        self._searches: dict[tuple[str, str], WordSearch] = {}
        self._newer: dict[str, tuple[int, Projection]] = {}  # the version in the file, and ours

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
        shape = self._shape(projection, table)
        sql, values = scan(projection, shape, where or {}, order, descending, before)
        found = self._read_fresh(projection, lambda db: db.rows(sql, (*values, limit)))
        return [dict(zip(shape.columns, row, strict=True)) for row in found]

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
        shape = self._shape(projection, table)
        query = checked_query(projection, shape, words, within, upto, near, limit)
        searches = self._searches.get((projection, table))
        if searches is None:
            searches = WordSearch(table_name(projection, table), shape)
            self._searches[projection, table] = searches
        return self._read_fresh(projection, partial(searches.run, query=query))

    def check_words(self) -> list[str]:
        with self._reader() as db:
            there = dict(db.rows("SELECT name, version FROM projection WHERE stale = 0"))
        return [
            f"the words of {projection.name}.{table.name} are not those of its rows: {fault}"
            for projection in self._projections.values()
            if there.get(projection.name) == projection.version
            for table in projection.tables
            if table.words is not None
            and (fault := self._index_fault(table_name(projection.name, table.name), table))
        ]

    def _index_fault(self, name: str, table: Table) -> str | None:
        try:
            with self._reader() as db, db.snapshot():
                fault = lookup_fault(db, name, table)
            if fault is None:
                self._connections.write(lambda db: check_index(db, name))
            return fault
        except StoreCorrupt as error:
            return error.why

    def _read_fresh(self, projection: str, read: Callable[[Database], T]) -> T:
        """Read in one transaction in which the rows are up to date, folding them before if need
        be.
        """
        known = self._projections[projection].version
        for is_folded in (False, True):
            with self._reader() as db, db.snapshot():
                version, stale = db.row(
                    "SELECT version, stale FROM projection WHERE name = ?", (projection,)
                ) or (0, 1)
                if int(version) > known:
                    raise RowsTooNew(projection, int(version), known)
                if is_folded or not stale:  # folded a moment ago: do not run after other writers
                    return read(db)
            self.rebuild(projection)
        raise AssertionError("rows were folded and not read")

    def attached(self) -> list[Projection]:
        return [*self._projections.values(), *[ours for _, ours in self._newer.values()]]

    def attach(self, projections: Sequence[Projection]) -> None:
        self._reload_kinds()
        with self._reader() as db:
            there = {
                name: (int(version), stale)
                for name, version, stale in db.rows("SELECT name, version, stale FROM projection")
            }
        for projection in projections:
            check_names(projection)
            version, stale = there.get(projection.name, (0, 1))
            if version > projection.version:
                # kept by a newer program: foreign to us
                self._newer[projection.name] = version, projection
                continue
            self._projections[projection.name] = projection
            self._searches.clear()  # they have the shapes of tables
            if stale or version < projection.version:
                self.rebuild(projection.name)
        self._work.take_up(self._projections.values())

    def rebuild(self, projection: str) -> None:
        kept = self._projections.get(projection)
        if kept is None:
            raise UnknownRows(projection)
        self._connections.write(lambda db: self._work.rebuild(db, kept))

    def _shape(self, projection: str, table: str) -> Table:
        if projection in self._newer:
            version, ours = self._newer[projection]
            raise RowsTooNew(projection, version, ours.version)
        if projection not in self._projections:
            raise UnknownRows(projection)
        for shape in self._projections[projection].tables:
            if shape.name == table:
                return shape
        tables = ", ".join(shape.name for shape in self._projections[projection].tables)
        raise UnknownRows(f"{projection}.{table}", f"the tables are {tables}")
