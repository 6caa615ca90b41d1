"""Rows of projections in a SQLite store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plait.errors import (
    RowsTooNew,
    UnknownRows,
)
from plait.store.arguments import (
    check_limit,
)
from plait.store.projection import Projection, Row, Scalar, Table
from plait.store.rows import check_names
from plait.store.sqlite.connections import Connections
from plait.store.sqlite.core import SqliteCore
from plait.store.sqlite.tables import scan


class SqliteRows(SqliteCore):
    """Rows of the projections that this process keeps."""

    def __init__(self, connections: Connections) -> None:
        super().__init__(connections)
        self._projections: dict[str, Projection] = {}
        self._newer: dict[str, tuple[int, int]] = {}  # the version in the file, and ours

    def rows(
        self,
        projection: str,
        table: str,
        where: Mapping[str, Scalar] | None = None,
        *,
        order: str | None = None,
        descending: bool = False,
        before: Scalar = None,
        limit: int = 100,
    ) -> list[Row]:
        check_limit(limit)
        sql, values = scan(
            projection, self._shape(projection, table), where or {}, order, descending, before
        )
        with self._reader() as db:
            version, stale = db.row(
                "SELECT version, stale FROM projection WHERE name = ?", (projection,)
            ) or (0, 1)
            version = int(version)
        if version > self._projections[projection].version:
            raise RowsTooNew(projection, version, self._projections[projection].version)
        if stale:
            self.rebuild(projection)
        columns = self._shape(projection, table).columns
        with self._reader() as db:
            return [dict(zip(columns, row, strict=True)) for row in db.rows(sql, (*values, limit))]

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
                self._newer[projection.name] = version, projection.version
                continue
            self._projections[projection.name] = projection
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
            raise RowsTooNew(projection, *self._newer[projection])
        if projection not in self._projections:
            raise UnknownRows(projection)
        for shape in self._projections[projection].tables:
            if shape.name == table:
                return shape
        tables = ", ".join(shape.name for shape in self._projections[projection].tables)
        raise UnknownRows(f"{projection}.{table}", f"the tables are {tables}")
