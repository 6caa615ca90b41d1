"""A projection's rows as SQL tables.

Table and column names come from code, never from data; they are checked all the same, because they
are pasted into SQL, where values never are. Columns are quoted: a word such as `into` or `order` is
a fair name for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from plait.store.projection import Projection, Row, Scalar, Table, Wanted
from plait.store.rows import check_columns, check_where, checked_row, order_of
from plait.store.sqlite.database import Database
from plait.store.sqlite.words import (
    WordStatements,
    create_index,
    settable_columns,
    word_statements,
)


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
        sql, kept = self._sql(table), checked_row(self._tables[table], row)
        if sql.words is None:
            self._db.execute(sql.put, [*kept.values()])
        else:
            self._put_words(self._tables[table], sql, sql.words, kept)

    def delete(self, table: str, *key: Scalar) -> None:
        sql = self._sql(table)
        if sql.words is not None:
            old = self._db.row(sql.words.old, key)
            if old is not None:
                self._db.execute(sql.words.remove, old)
        self._db.execute(sql.delete, key)

    def _put_words(self, table: Table, sql: _Statements, words: WordStatements, row: Row) -> None:
        """Put a row of a table with words. The index is told of words that changed, and of no
        others.
        """
        db, key = self._db, [row[column] for column in table.key]
        new = row[table.order or ""], row[table.words or ""]
        old = db.row(words.old, key)
        if old is not None and old != new:
            db.execute(words.remove, old)
        if old is not None and old[0] != new[0]:
            db.execute(sql.delete, key)
        if old is None or old[0] != new[0]:
            db.execute(words.insert, [*row.values()])
        elif words.update is not None:
            db.execute(words.update, [*[row[each] for each in settable_columns(table)], old[0]])
        if old != new:
            db.execute(words.add, new)

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
    words: WordStatements | None


def _statements_of(projection: str, table: Table) -> _Statements:
    name, columns = table_name(projection, table.name), _quote_columns(table.columns)
    return _Statements(
        f"SELECT {columns} FROM {name} WHERE {_by_key(table)}",
        f"INSERT OR REPLACE INTO {name} ({columns}) VALUES ({', '.join('?' * len(table.columns))})",
        f"DELETE FROM {name} WHERE {_by_key(table)}",
        None if table.words is None else word_statements(name, table),
    )


def recreate(db: Database, projection: Projection) -> None:
    """Drop the projection's tables, in the shape of any earlier version, and make them anew."""
    prefix = table_name(projection.name, "")
    # Virtual tables first: tables of their own go with them, and cannot be dropped before.
    for (name,) in db.rows(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, ?) = ?"
        " ORDER BY sql NOT LIKE 'CREATE VIRTUAL%'",
        (len(prefix), prefix),
    ):
        quoted = name.replace('"', '""')  # this one name comes from the file, which may be hostile
        db.execute(f'DROP TABLE IF EXISTS "{quoted}"')
    for table in projection.tables:
        for statement in _create(table_name(projection.name, table.name), table):
            db.execute(statement)


def _create(name: str, table: Table) -> list[str]:
    columns = [
        f"{_quote_columns([column])} {type.upper()}{' PRIMARY KEY' * (column == table.order)}"
        for column, type in table.columns.items()
    ]
    key, kind = _quote_columns(table.key), "STRICT" if table.order else "STRICT, WITHOUT ROWID"
    statements = [
        f"CREATE TABLE {name} ({', '.join(columns)}, {'UNIQUE' if table.order else 'PRIMARY KEY'}"
        f" ({key})) {kind}"
    ]
    for i, index in enumerate(table.indexes):
        # Filters ask for a value: rows without one need no entry.
        only = f" WHERE {_quote_columns(index[:1])} IS NOT NULL" if len(index) > 1 else ""
        statements.append(f"CREATE INDEX {name}_{i} ON {name} ({_quote_columns(index)}){only}")
    if table.words is not None:
        statements.append(create_index(name, table))
    return statements


def scan(
    projection: str,
    table: Table,
    where: Mapping[str, Wanted],
    order: str | None,
    descending: bool,
    before: Scalar,
) -> tuple[str, list[Scalar]]:
    """The query for a page of rows, less its limit."""
    order = order or order_of(table)
    check_columns(projection, table, (*where, order))
    check_where({**where, order: before})
    conditions = [
        f"{_quote_columns([column])} {_test_of(value)}" for column, value in where.items()
    ]
    values: list[Scalar] = [
        msgspec.json.encode(sorted(value)).decode() if isinstance(value, frozenset) else value
        for value in where.values()
        if value is not None
    ]
    if before is not None:
        conditions.append(f"{_quote_columns([order])} {'<' if descending else '>'} ?")
        values.append(before)
    sql = (
        f"SELECT {_quote_columns(table.columns)} FROM {table_name(projection, table.name)}"
        f" WHERE {' AND '.join(conditions) or 'true'} ORDER BY {_quote_columns([order])}"
        f" {'DESC' if descending else 'ASC'} LIMIT ?"
    )
    return sql, [*values]


def _test_of(value: Wanted) -> str:
    if isinstance(value, frozenset):  # one variable: their number is no limit
        return "IN (SELECT value FROM json_each(?))"
    return "IS NULL" if value is None else "= ?"


def table_name(projection: str, table: str) -> str:
    return f"p_{projection}__{table}"


def _by_key(shape: Table) -> str:
    return " AND ".join(f"{_quote_columns([column])} = ?" for column in shape.key)


def _quote_columns(columns: Iterable[str]) -> str:
    # in double quotes SQLite would take an unknown name for a text
    return ", ".join(f"[{column}]" for column in columns)
