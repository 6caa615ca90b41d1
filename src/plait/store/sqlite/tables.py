"""A projection's rows as SQL tables.

Table and column names come from code, never from data; they are checked all the same, because they
are pasted into SQL, where values never are. Columns are quoted: a word such as `into` or `order` is
a fair name for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from plait.store.projection import Projection, Row, Scalar, Table, Wanted
from plait.store.rows import check_columns, check_where, checked_row, order_columns, order_of
from plait.store.sqlite.database import Database
from plait.store.sqlite.words import (
    NO_GROUP,
    WordStatements,
    create_groups,
    create_index,
    settable_columns,
    terms_of,
    word_columns,
    word_statements,
)


class SqlRows:
    """`Rows` over the writer's connection, inside its transaction.

    Changes are kept until `flush`, so that a row that several events of an append change is written
    once.
    """

    def __init__(self, db: Database, projection: Projection) -> None:
        self._db = db
        self._tables = {table.name: table for table in projection.tables}
        self._name = projection.name
        self._statements: dict[str, _Statements] = {}
        self._changes: dict[tuple[str, tuple[Scalar, ...]], Row | None] = {}

    def flush(self) -> None:
        """Write the changes, in the order in which they were made last."""
        for (table, key), row in self._changes.items():
            if row is None:
                self._delete(table, key)
            else:
                self._put(table, row)
        self._changes.clear()

    def forget(self) -> None:
        """Drop the changes that are not written: the append failed."""
        self._changes.clear()

    def put(self, table: str, row: Row) -> None:
        shape = self._tables[table]
        kept = checked_row(shape, row)
        self._change(table, tuple([kept[column] for column in shape.key]), kept)

    def delete(self, table: str, *key: Scalar) -> None:
        self._change(table, key, None)

    def _change(self, table: str, key: tuple[Scalar, ...], row: Row | None) -> None:
        self._changes.pop((table, key), None)  # a row may take the place of one changed before
        self._changes[table, key] = row

    def get(self, table: str, *key: Scalar) -> Row | None:
        if (table, key) in self._changes:
            changed = self._changes[table, key]
            return None if changed is None else dict(changed)
        row = self._db.row(self._sql(table).get, key)
        return None if row is None else dict(zip(self._tables[table].columns, row, strict=True))

    def _put(self, table: str, row: Row) -> None:
        sql = self._sql(table)
        if sql.words is None:
            self._db.run(sql.put, tuple(row.values()))
        else:
            self._put_words(self._tables[table], sql, sql.words, row)

    def _delete(self, table: str, key: tuple[Scalar, ...]) -> None:
        sql = self._sql(table)
        if sql.words is not None:
            old = self._db.row(sql.words.old, key)
            if old is not None:
                self._remove_words(sql.words, old)
        self._db.run(sql.delete, key)

    def _put_words(self, table: Table, sql: _Statements, words: WordStatements, row: Row) -> None:
        """Put a row of a table with words. The index is told of words that changed, and of no
        others.
        """
        db, key = self._db, [row[column] for column in table.key]
        place, text = row[table.order or ""], row[table.words or ""]
        group = row[table.group] if table.group else None
        old = db.row(words.old, key)
        if old is not None and old[:3] == (place, text, group):
            db.run(words.update, (*[row[each] for each in settable_columns(table)], old[3], place))
            return
        if old is not None:
            self._remove_words(words, old)
        code = self._group_code(words, group, 1 if text else 0)
        if old is not None and old[0] != place:
            db.run(sql.delete, key)
        if old is None or old[0] != place:
            db.run(words.insert, (*row.values(), code))
        else:
            db.run(words.update, (*[row[each] for each in settable_columns(table)], code, place))
        db.run(words.add, (place, terms_of(text, code)))

    def _remove_words(
        self, words: WordStatements, old: tuple[int, str | None, object, int]
    ) -> None:
        place, text, _, code = old
        self._db.run(words.remove, (place, terms_of(text, code)))
        if text:
            self._db.run(words.leave, (-1, code))

    def _group_code(self, words: WordStatements, group: Scalar, more: int) -> int:
        """Count so many rows more in a group; return its code."""
        if group is not None:
            return int(self._db.get(words.join, (group, more)))
        self._db.run(words.leave, (more, NO_GROUP))
        return NO_GROUP

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
    if table.words is not None:
        columns += word_columns(table)
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
        statements += [*create_groups(name), create_index(name, table)]
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
    tests = tuple([(column, _test_of(value)) for column, value in where.items()])
    values: list[Scalar] = [
        msgspec.json.encode(sorted(value)).decode() if isinstance(value, frozenset) else value
        for value in where.values()
        if value is not None
    ]
    if before is not None:
        tests = (*tests, (order, "< ?" if descending else "> ?"))
        values.append(before)
    name, columns = table_name(projection, table.name), tuple(table.columns)
    return _scan_sql(name, columns, tests, order_columns(table, order), descending), values


@lru_cache(256)
def _scan_sql(
    name: str,
    columns: tuple[str, ...],
    tests: tuple[tuple[str, str], ...],
    order: tuple[str, ...],
    descending: bool,
) -> str:
    conditions = " AND ".join([f"{_quoted((column,))} {test}" for column, test in tests])
    way = "DESC" if descending else "ASC"
    by = ", ".join([f"{_quoted((column,))} {way}" for column in order])
    return (
        f"SELECT {_quoted(columns)} FROM {name} WHERE {conditions or 'true'} ORDER BY {by} LIMIT ?"
    )


def _test_of(value: Wanted) -> str:
    if isinstance(value, frozenset):  # one variable: their number is no limit
        return "IN (SELECT value FROM json_each(?))"
    return "IS NULL" if value is None else "= ?"


def table_name(projection: str, table: str) -> str:
    return f"p_{projection}__{table}"


def _by_key(shape: Table) -> str:
    return " AND ".join(f"{_quote_columns([column])} = ?" for column in shape.key)


def _quote_columns(columns: Iterable[str]) -> str:
    return _quoted(tuple(columns))


@lru_cache(256)
def _quoted(columns: tuple[str, ...]) -> str:
    # in double quotes SQLite would take an unknown name for a text
    return ", ".join([f"[{column}]" for column in columns])
