"""Rows of projections in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plait.errors import (
    UnknownRows,
)
from plait.store.plain_words import WordIndex
from plait.store.projection import Projection, Row, Scalar, Table, Wanted
from plait.store.rows import check_columns, check_where, checked_row, order_columns, order_of
from plait.store.search import Found, Region, checked_query

_Tables = dict[str, dict[tuple[Scalar, ...], Row]]


class RowsInMemory:
    """`Rows` in dictionaries. A draft keeps its changes apart until the append is certain."""

    def __init__(self, projection: Projection, base: RowsInMemory | None = None) -> None:
        self._projection, self._base = projection, base
        self._shapes: dict[str, Table] = (
            base._shapes if base else {table.name: table for table in projection.tables}
        )
        self._tables: _Tables = (
            base._tables if base else {table.name: {} for table in projection.tables}
        )
        self._words: dict[str, WordIndex] = (
            base._words
            if base
            else {table.name: WordIndex(table) for table in projection.tables if table.words}
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
            self._change(table, key, kept)
        else:
            self._changes[table, key] = kept

    def delete(self, table: str, *key: Scalar) -> None:
        if self._base is None:
            self._change(table, key, None)
        else:
            self._changes[table, key] = None

    def draft(self) -> RowsInMemory:
        return RowsInMemory(self._projection, self)

    def apply_draft(self) -> RowsInMemory:
        assert self._base is not None
        # All old rows go first: a new one may have taken the place of another.
        for table, key in self._changes:
            if table in self._words:
                self._change(table, key, None)
        for (table, key), row in self._changes.items():
            self._change(table, key, row)
        return self._base

    def _change(self, table: str, key: tuple[Scalar, ...], row: Row | None) -> None:
        rows, words = self._tables[table], self._words.get(table)
        if words is not None:
            words.change(rows.get(key), row)
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row

    def search(
        self,
        table: str,
        words: Sequence[str],
        within: Sequence[Region] | None,
        upto: int | None,
        near: tuple[str, int] | None,
        limit: int,
    ) -> Found:
        shape = self._shape(table)
        query = checked_query(self._projection.name, shape, words, within, upto, near, limit)
        return self._words[table].search(query)

    def word_faults(self) -> list[str]:
        """Name the tables whose words are not those of their rows."""
        faults: list[str] = []
        for table, words in self._words.items():
            fresh = WordIndex(self._shapes[table])
            for row in self._tables[table].values():
                fresh.change(None, row)
            if words != fresh:
                name = f"{self._projection.name}.{table}"
                faults.append(f"the words of {name} are not those of its rows")
        return faults

    def scan(
        self,
        table: str,
        where: Mapping[str, Wanted],
        order: str | None,
        descending: bool,
        before: Scalar,
        limit: int,
    ) -> list[Row]:
        shape = self._shape(table)
        order = order or order_of(shape)
        check_columns(self._projection.name, shape, (*where, order))
        check_where({**where, order: before})
        rows = [
            row
            for row in self._tables[table].values()
            if all(_is_wanted(row[column], value) for column, value in where.items())
        ]
        if before is not None:
            rows = [
                row
                for row in rows
                if row[order] is not None and _is_past(row[order], before, descending)
            ]
        columns = order_columns(shape, order)
        rows.sort(
            key=lambda row: [_sortable(row[column]) for column in columns], reverse=descending
        )
        return [dict(row) for row in rows[:limit]]

    def _shape(self, table: str) -> Table:
        if table not in self._shapes:
            raise UnknownRows(
                f"{self._projection.name}.{table}", f"the tables are {', '.join(self._shapes)}"
            )
        return self._shapes[table]


def _is_wanted(value: Scalar, wanted: Wanted) -> bool:
    return value in wanted if isinstance(wanted, frozenset) else value == wanted


def _sortable(value: Any) -> tuple[bool, Any]:
    """Return a value that can be compared with those of other rows: None is the least."""
    return (False, 0) if value is None else (True, value)


def _is_past(value: Any, mark: Any, descending: bool) -> bool:
    return bool(value < mark if descending else value > mark)
