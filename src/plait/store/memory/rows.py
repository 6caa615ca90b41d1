"""Rows of projections in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.errors import (
    UnknownRows,
)
from plait.store.projection import Projection, Row, Scalar, Table
from plait.store.rows import check_columns, check_where, checked_row, order_of

_Tables = dict[str, dict[tuple[Scalar, ...], Row]]


class MemoryRows:
    """`Rows` in dictionaries. A draft keeps its changes apart until the append is certain."""

    def __init__(self, projection: Projection, base: MemoryRows | None = None) -> None:
        self._projection, self._base = projection, base
        self._shapes: dict[str, Table] = (
            base._shapes if base else {table.name: table for table in projection.tables}
        )
        self._tables: _Tables = (
            base._tables if base else {table.name: {} for table in projection.tables}
        )
        self._changes: dict[tuple[str, tuple[Scalar, ...]], Row | None] = {}

    def get(self, table: str, *key: Scalar) -> Row | None:
        if (table, key) in self._changes:
            row = self._changes[table, key]
        else:
            row = self._tables[table].get(key)
        return None if row is None else dict(row)

    def put(self, table: str, row: Row) -> None:
        shape = self._shapes[table]
        kept = checked_row(shape, row)
        key = tuple([kept[column] for column in shape.key])
        if self._base is None:
            self._tables[table][key] = kept
        else:
            self._changes[table, key] = kept

    def delete(self, table: str, *key: Scalar) -> None:
        if self._base is None:
            self._tables[table].pop(key, None)
        else:
            self._changes[table, key] = None

    def draft(self) -> MemoryRows:
        return MemoryRows(self._projection, self)

    def apply_draft(self) -> MemoryRows:
        assert self._base is not None
        for (table, key), row in self._changes.items():
            if row is None:
                self._tables[table].pop(key, None)
            else:
                self._tables[table][key] = row
        return self._base

    def scan(
        self,
        table: str,
        where: Mapping[str, Scalar],
        order: str | None,
        descending: bool,
        before: Scalar,
        limit: int,
    ) -> list[Row]:
        if table not in self._shapes:
            raise UnknownRows(
                f"{self._projection.name}.{table}", f"the tables are {', '.join(self._shapes)}"
            )
        shape: Table = self._shapes[table]
        order = order or order_of(shape)
        check_columns(self._projection.name, shape, (*where, order))
        check_where({**where, order: before})
        rows = [
            row
            for row in self._tables[table].values()
            if all(row[column] == value for column, value in where.items())
        ]
        if before is not None:
            rows = [
                row
                for row in rows
                if row[order] is not None and _is_past(row[order], before, descending)
            ]
        rows.sort(
            key=lambda row: (False, 0) if row[order] is None else (True, row[order]),
            reverse=descending,
        )
        return [dict(row) for row in rows[:limit]]


def _is_past(value: Any, mark: Any, descending: bool) -> bool:
    return bool(value < mark if descending else value > mark)
