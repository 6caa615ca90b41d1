"""A projection's rows as SQL tables.

Table and column names come from code, never from data; they are checked all the same, because they
are pasted into SQL, where values never are. Columns are quoted: a word such as `into` or `order` is
a fair name for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import NamedTuple

from plait.errors import InvalidValue, UnknownRows
from plait.event.strict import check_text
from plait.store.database import Database
from plait.store.projection import Projection, Row, Scalar, Table

# no double underscore: it divides projection and table
_NAME = re.compile(r"[a-z](_?[a-z0-9]){0,40}\Z")


class SqlRows:
    """`Rows` over the writer's connection, inside its transaction."""

    def __init__(self, db: Database, projection: Projection) -> None:
        self._db = db
        self._tables = {table.name: table for table in projection.tables}
        self._name = projection.name
        self._statements: dict[str, _Statements] = {}

    def get(self, table: str, *key: Scalar) -> Row | None:
        row = self._db.row(self._sql(table).get, key)
        return None if row is None else dict(zip(self._tables[table].columns, row, strict=True))

    def put(self, table: str, row: Row) -> None:
        self._db.execute(self._sql(table).put, [*checked_row(self._tables[table], row).values()])

    def delete(self, table: str, *key: Scalar) -> None:
        self._db.execute(self._sql(table).delete, key)

    def _sql(self, table: str) -> _Statements:
        found = self._statements.get(table)
        if found is None:
            found = self._statements[table] = _statements_of(self._name, self._tables[table])
        return found


class _Statements(NamedTuple):
    """SQL of one table, made once: rows are written in every transaction."""

    get: str
    put: str
    delete: str


def _statements_of(projection: str, table: Table) -> _Statements:
    name, columns = table_name(projection, table.name), _quoted(table.columns)
    return _Statements(
        f"SELECT {columns} FROM {name} WHERE {_by_key(table)}",
        f"INSERT OR REPLACE INTO {name} ({columns}) VALUES ({', '.join('?' * len(table.columns))})",
        f"DELETE FROM {name} WHERE {_by_key(table)}",
    )


def recreate(db: Database, projection: Projection) -> None:
    """Drop the projection's tables, whatever shape an earlier version gave them, and make them
    anew.
    """
    prefix = table_name(projection.name, "")
    for (name,) in db.rows(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, ?) = ?",
        (len(prefix), prefix),
    ):
        quoted = name.replace('"', '""')  # this one name comes from the file, which may be hostile
        db.execute(f'DROP TABLE "{quoted}"')
    for table in projection.tables:
        for statement in _create(table_name(projection.name, table.name), table):
            db.execute(statement)


def _create(name: str, table: Table) -> list[str]:
    columns = [
        f"{_quoted([column])} {type.upper()}{' PRIMARY KEY' * (column == table.order)}"
        for column, type in table.columns.items()
    ]
    key, kind = _quoted(table.key), "STRICT" if table.order else "STRICT, WITHOUT ROWID"
    statements = [
        f"CREATE TABLE {name} ({', '.join(columns)}, {'UNIQUE' if table.order else 'PRIMARY KEY'}"
        f" ({key})) {kind}"
    ]
    for i, index in enumerate(table.indexes):
        # Who filters by a column asks for a value: rows without one need no entry.
        only = f" WHERE {_quoted(index[:1])} IS NOT NULL" if len(index) > 1 else ""
        statements.append(f"CREATE INDEX {name}_{i} ON {name} ({_quoted(index)}){only}")
    return statements


def scan(
    projection: str,
    table: Table,
    where: Mapping[str, Scalar],
    order: str | None,
    descending: bool,
    before: Scalar,
) -> tuple[str, list[Scalar]]:
    """The query for a page of rows, less its limit."""
    order = order or order_of(table)
    check_columns(projection, table, (*where, order))
    check_where({**where, order: before})
    conditions = [
        f"{_quoted([column])} {'IS NULL' if value is None else '= ?'}"
        for column, value in where.items()
    ]
    values = [value for value in where.values() if value is not None]
    if before is not None:
        conditions.append(f"{_quoted([order])} {'<' if descending else '>'} ?")
        values.append(before)
    return (
        (
            f"SELECT {_quoted(table.columns)} FROM {table_name(projection, table.name)} WHERE"
            f" {' AND '.join(conditions) or 'true'} ORDER BY {_quoted([order])}"
            f" {'DESC' if descending else 'ASC'} LIMIT ?"
        ),
        [*values],
    )


def order_of(table: Table) -> str:
    return table.order or table.key[0]


def check_columns(projection: str, table: Table, columns: tuple[str, ...]) -> None:
    for column in columns:
        if column not in table.columns:
            raise UnknownRows(
                f"{projection}.{table.name}.{column}", f"the columns are {', '.join(table.columns)}"
            )


def checked_row(table: Table, row: Mapping[str, Scalar]) -> Row:
    """Copy a row, its columns in the order of the table's, or raise if it has others."""
    kept = {column: row[column] for column in table.columns if column in row}
    if not len(kept) == len(row) == len(table.columns):
        raise InvalidValue(
            f"row of {table.name}",
            f"it has {', '.join(row)}",
            f"put exactly {', '.join(table.columns)}",
        )
    return kept


def check_where(where: Mapping[str, Scalar]) -> None:
    for column, value in where.items():
        if not isinstance(value, (str, int, float, bytes, NoneType)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(
                column,
                f"a {type(value).__name__} cannot be searched for",
                "pass one text, number or None per column",
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidValue(column, f"{value} is beyond 64 bits")
        if isinstance(value, str) and not value.isascii():
            check_text(value, column)


def check_names(projection: Projection) -> None:
    for table in projection.tables:
        for name in (
            projection.name,
            table.name,
            *table.columns,
            *table.key,
            *(column for index in table.indexes for column in index),
        ):
            if not _NAME.match(name):
                raise InvalidValue(
                    "projection", f"{name!r} is not a lowercase name", "use letters, digits and _"
                )


def table_name(projection: str, table: str) -> str:
    return f"p_{projection}__{table}"


def _by_key(shape: Table) -> str:
    return " AND ".join(f"{_quoted([column])} = ?" for column in shape.key)


def _quoted(columns: Iterable[str]) -> str:
    # in double quotes SQLite would take an unknown name for a text
    return ", ".join(f"[{column}]" for column in columns)
