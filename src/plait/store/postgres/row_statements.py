"""Statements on the rows of a projection's tables, by keys: made once for each table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg import pq

from plait.ids import digest
from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.fold_tables import (
    CODE_COLUMN,
    SIZE_COLUMN,
    TYPES,
    quote_names,
    table_name,
)
from plait.store.postgres.pipeline import SqlStatement
from plait.store.postgres.schema import quote_name
from plait.store.postgres.wire import pack_column
from plait.store.projection import Projection, Row, Scalar, Table

Key = tuple[Scalar, ...]

_OIDS = {"text": 25, "integer": 20, "real": 701, "blob": 17}  # by which a column is read


class TableStatements:
    """The statements that load, remove and put rows of one table."""

    def __init__(self, schema: str, projection: Projection, table: Table) -> None:
        self.shape = table
        self.name = table_name(projection, table.name)
        kinds = dict(table.columns)
        if table.words is not None:
            kinds |= {SIZE_COLUMN: "integer", CODE_COLUMN: "integer"}
        self._kinds = tuple(kinds.values())
        self._key_kinds = tuple([table.columns[each] for each in table.key])
        self._columns = tuple(table.columns)
        self._oids = tuple([_OIDS[kind] for kind in table.columns.values()])
        where = f"{schema}.{quote_name(self.name)}"
        names = ", ".join(f"c{number}" for number in range(len(table.key)))
        asked = f"{_unnest(self._key_kinds)} AS k ({names})"
        joined = " AND ".join(
            f"t.{quote_name(each)} = k.c{number}" for number, each in enumerate(table.key)
        )
        listed = ", ".join(f"t.{quote_name(each)}" for each in table.columns)
        settable = [each for each in kinds if each not in table.key]
        update = ", ".join(f"{quote_name(each)} = excluded.{quote_name(each)}" for each in settable)
        act = f"UPDATE SET {update}" if settable else "NOTHING"
        self._load = named_statement(f"SELECT {listed} FROM {asked} JOIN {where} t ON {joined}")
        self._remove = named_statement(f"DELETE FROM {where} t USING {asked} WHERE {joined}")
        self._put = named_statement(
            f"INSERT INTO {where} ({quote_names(kinds)}) SELECT * FROM {_unnest(self._kinds)}"
            f" ON CONFLICT ({quote_names(table.key)}) DO {act}"
        )

    def load(self, keys: Sequence[Key]) -> SqlStatement:
        return self._load._replace(values=self._key_columns(keys))

    def remove(self, keys: Sequence[Key]) -> SqlStatement:
        return self._remove._replace(values=self._key_columns(keys))

    def put(self, rows: Sequence[Row], more: Sequence[Sequence[Scalar]] = ()) -> SqlStatement:
        """Return the statement that puts rows. `more`: the columns for words, if it has some."""
        columns = [[row[column] for row in rows] for column in self._columns]
        values = [
            pack_column(kind, column)
            for kind, column in zip(self._kinds, [*columns, *more], strict=True)
        ]
        return self._put._replace(values=values)

    def rows_in(self, db: ServerConnection, result: pq.abc.PGresult) -> list[Row]:
        """Return the rows that a load found."""

        def make_row(values: Sequence[Any]) -> Row:
            return dict(zip(self._columns, values, strict=True))

        return db.load(result, self._oids, make_row)

    def _key_columns(self, keys: Sequence[Key]) -> list[bytes]:
        return [
            pack_column(kind, [key[number] for key in keys])
            for number, kind in enumerate(self._key_kinds)
        ]


def named_statement(sql: str) -> SqlStatement:
    """Return a statement without values, with a name that no other has: the server cuts long ones
    off.
    """
    named = digest(b"plait/statement/1", sql.encode())[:32]
    return SqlStatement(sql.encode(), (), named.encode())


def statements_of(schema: str, projection: Projection) -> Mapping[str, TableStatements]:
    """Return the statements for each table of a projection."""
    return {table.name: TableStatements(schema, projection, table) for table in projection.tables}


def _unnest(kinds: Iterable[str]) -> str:
    arrays = [f"${number}::{TYPES[kind]}[]" for number, kind in enumerate(kinds, 1)]
    return f"unnest({', '.join(arrays)})"
