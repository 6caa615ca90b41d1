"""The tables of projections in a PostgreSQL store.

Tables belong to one version of a projection: `p_session_7__session`. While programs of two versions
are at work, each reads rows of its own, and neither makes those of the other stale.

Text is kept as UTF-8 bytes: PostgreSQL's own type holds no NUL, which titles may have, and bytes
sort the same in every database. A table with words has three more, as an index of its words:
`…__words` has the rows of each word of a group, `…__counts` how many these are, and `…__groups` the
codes of groups and how many rows with words each has.

The state of a fold stands in `projection`: all transactions below `high` are folded, but for those
in `open`, which were at work then. -1: nothing is folded, and rows that are there are of no use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from plait.store.postgres.schema import quote_name
from plait.store.projection import Projection, Row, Table
from plait.store.rows import order_columns

TYPES = {"text": "bytea", "integer": "int8", "real": "float8", "blob": "bytea"}
NO_GROUP = 0  # the code of rows that are of no group


def table_name(projection: Projection, table: str) -> str:
    """Return the name of a table. A double underscore stands in no name of a projection."""
    return f"p_{projection.name}_{projection.version}__{table}"


def words_name(name: str) -> str:
    return f"{name}__words"


def counts_name(name: str) -> str:
    return f"{name}__counts"


def groups_name(name: str) -> str:
    return f"{name}__groups"


SIZE_COLUMN = "words__size"
CODE_COLUMN = "words__code"


def create_tables(schema: str, projection: Projection) -> list[str]:
    """Return the statements that make the tables of a projection, where they are not there yet."""
    statements: list[str] = []
    for table in projection.tables:
        statements += _create_table(schema, table_name(projection, table.name), table)
    return [
        *statements,
        f"INSERT INTO {schema}.projection (name, version, high, open) VALUES"
        f" ('{projection.name}', {projection.version}, -1, '{{}}') ON CONFLICT DO NOTHING",
    ]


def all_names(projection: Projection) -> list[str]:
    """Return the names of all tables of a projection, those of words included."""
    names: list[str] = []
    for table in projection.tables:
        name = table_name(projection, table.name)
        names.append(name)
        if table.words is not None:
            names += [words_name(name), counts_name(name), groups_name(name)]
    return names


def _create_table(schema: str, name: str, table: Table) -> list[str]:
    columns = [f"{quote_name(each)} {TYPES[kind]}" for each, kind in table.columns.items()]
    if table.words is not None:
        columns += [f"{SIZE_COLUMN} int4", f"{CODE_COLUMN} int4"]
    where = f"{schema}.{quote_name(name)}"
    statements = [
        f"CREATE TABLE IF NOT EXISTS {where} ({', '.join(columns)},"
        f" PRIMARY KEY ({quote_names(table.key)})) WITH (fillfactor = 80)"
    ]
    indexes = [*table.indexes]
    if table.order is not None and (table.order,) not in indexes and table.key != (table.order,):
        indexes.append((table.order,))
    for number, index in enumerate(indexes):
        # Filters ask for a value: rows without one need no entry.
        only = f" WHERE {quote_name(index[0])} IS NOT NULL" if len(index) > 1 else ""
        by = ", ".join(f"{quote_name(each)} NULLS FIRST" for each in index)
        statements.append(
            f"CREATE INDEX IF NOT EXISTS {quote_name(f'{name}_{number}')} ON {where} ({by}){only}"
        )
    if table.words is not None:
        statements += _create_words(schema, name)
    return statements


def _create_words(schema: str, name: str) -> list[str]:
    words, counts, groups = (
        f"{schema}.{quote_name(each)}"
        for each in (words_name(name), counts_name(name), groups_name(name))
    )
    return [
        f"CREATE TABLE IF NOT EXISTS {words} (word bytea, code int4, place int8, times int4 NOT"
        " NULL, PRIMARY KEY (word, code, place) INCLUDE (times))",
        f"CREATE TABLE IF NOT EXISTS {counts} (word bytea, code int4, rows int8 NOT NULL,"
        " PRIMARY KEY (word, code))",
        f"CREATE TABLE IF NOT EXISTS {groups} (code int4 PRIMARY KEY, value bytea UNIQUE,"
        " rows int8 NOT NULL)",
    ]


def quote_names(names: Iterable[str]) -> str:
    return ", ".join(quote_name(name) for name in names)


def to_rows(table: Table, found: Iterable[Sequence[Any]]) -> list[Row]:
    """Return the rows of a table from its columns."""
    columns = tuple(table.columns)
    texts = [column for column, kind in table.columns.items() if kind == "text"]
    rows = [dict(zip(columns, values, strict=True)) for values in found]
    for row in rows:
        for column in texts:
            value = row[column]
            if value is not None:
                row[column] = value.decode()
    return rows


def order_sql(table: Table, order: str, descending: bool) -> str:
    """Return the order of rows: that of a column, equal ones in the table's own order."""
    way, nulls = ("DESC", " NULLS LAST") if descending else ("ASC", " NULLS FIRST")
    return ", ".join(
        # a key has no NULL, and its index would not be used if the order said where they are
        f"{quote_name(each)} {way}{'' if each in table.key else nulls}"
        for each in order_columns(table, order)
    )
