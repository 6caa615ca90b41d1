"""Rows of projections: checks that every store makes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType

from plait.errors import InvalidValue, UnknownRows
from plait.event.strict import check_text
from plait.store.projection import Projection, Row, Scalar, Table, Wanted

# no double underscore: it divides projection and table
_NAME = re.compile(r"[a-z](_?[a-z0-9]){0,40}\Z")
_WORDS = re.compile(r"(?:[a-z0-9]{1,30000}(?: [a-z0-9]{1,30000})*)?\Z")


def order_of(table: Table) -> str:
    return table.order or table.key[0]


def order_columns(table: Table, order: str) -> tuple[str, ...]:
    """Return the columns that rows are ordered by: `order`, and for rows that are equal in it those
    of the table's own order.
    """
    if order == table.order:
        return (order,)  # it differs from row to row
    own = table.key if table.order is None else (table.order,)
    return tuple(dict.fromkeys((order, *own)))


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
    if table.words is not None:
        _check_words(table, kept)
    return kept


def _check_words(table: Table, row: Row) -> None:
    """Raise unless every store would split the words in the same way."""
    words = row[table.words or ""]
    if words is not None and not (isinstance(words, str) and _WORDS.match(words)):
        raise InvalidValue(
            f"{table.words} of a row of {table.name}",
            f"{words!r:.100} is not a text of words",
            "use lowercase Latin letters and digits, divided by single blanks",
        )
    if table.group is not None and not isinstance(row[table.group], (str, NoneType)):
        raise InvalidValue(
            f"{table.group} of a row of {table.name}", f"{row[table.group]!r:.100} is no text"
        )
    if type(row[table.order or ""]) is not int:
        raise InvalidValue(
            f"{table.order} of a row of {table.name}", f"{row[table.order or '']!r} is no integer"
        )


def check_where(where: Mapping[str, Wanted]) -> None:
    for column, wanted in where.items():
        if isinstance(wanted, frozenset):
            _check_some(column, wanted)
        else:
            _check_value(column, wanted)


def _check_some(column: str, wanted: frozenset[str] | frozenset[int]) -> None:
    kinds = {type(value) for value in wanted}
    if len(kinds) > 1 or not kinds <= {str, int}:
        names = ", ".join(sorted([kind.__name__ for kind in kinds]))
        step = "pass texts alone, or integers alone"
        raise InvalidValue(column, f"a set of {names} cannot be searched for", step)
    for value in wanted:
        _check_value(column, value)


def _check_value(column: str, value: Scalar) -> None:
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
        if table.words is not None:
            _check_words_column(table)
        if table.group is not None and (
            table.words is None or table.columns.get(table.group) != "text"
        ):
            raise InvalidValue(
                "projection",
                f"{table.group!r} is no column of groups of {table.name}",
                "name a text column, of a table with words",
            )


def _check_words_column(table: Table) -> None:
    if table.columns.get(table.words or "") != "text" or table.words in ("rank", "rowid"):
        raise InvalidValue(
            "projection",
            f"{table.words!r} is no column of words of {table.name}",
            "name a text column, and not rank or rowid, which FTS5 keeps for itself",
        )
    if table.order is None:
        raise InvalidValue(
            "projection", f"{table.name} has words and no order", "name its order column"
        )
