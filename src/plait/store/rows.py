"""Rows of projections: checks that every store makes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType

from plait.errors import InvalidValue, UnknownRows
from plait.event.strict import check_text
from plait.store.projection import Projection, Row, Scalar, Table

# no double underscore: it divides projection and table
_NAME = re.compile(r"[a-z](_?[a-z0-9]){0,40}\Z")


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
