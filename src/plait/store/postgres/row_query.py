"""Questions for rows of projections: their statements, made once for each form of question.

A question has two statements. `fresh` first looks if the rows are up to date, and has the rows only
if they are; `plain` has the rows. Values are sent, and rows read, in binary form: text is kept as
bytes, and is read as text by the driver, which does not care for NUL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from plait.store.postgres.fold_tables import TYPES, order_sql, quote_names, table_name
from plait.store.postgres.schema import quote_name
from plait.store.postgres.wire import (
    pack_byteas,
    pack_float8,
    pack_float8s,
    pack_int8,
    pack_int8s,
)
from plait.store.projection import Projection, Scalar, Table, Wanted

LOOK = 200  # events that a question passes over, before the state of the fold is moved on
LOOK_FAR = 10_000  # by a question that only events of a few kinds can answer otherwise

# If events of these kinds were committed that no fold has passed, or many of other kinds.
_STALE = """
SELECT count(*) >= {look} OR coalesce(bool_or(news.kind = ANY('{codes}'::int2[])), false)
    OR (SELECT high FROM fold) < 0
FROM (
    SELECT later.kind FROM (
        SELECT e.kind FROM {s}.event e
        WHERE e.number >= greatest((SELECT high FROM fold) << 16, 1)
        ORDER BY e.number LIMIT {look}
    ) AS later
    UNION ALL
    SELECT e.kind FROM fold CROSS JOIN LATERAL unnest(fold.open) AS open (xid)
    CROSS JOIN LATERAL (
        SELECT kind FROM {s}.event
        WHERE number >= open.xid << 16 AND number < (open.xid + 1) << 16
        ORDER BY number LIMIT 65536
    ) AS e
) AS news"""
_STATE = "SELECT high, open FROM {s}.projection WHERE name = '{name}' AND version = {version}"

_OIDS = {"text": 25, "integer": 20, "real": 701, "blob": 17}  # by which a column is read
_BOOL = 16


class RowQuery(NamedTuple):
    """The statements of one form of question."""

    name: bytes
    plain: bytes
    fresh: bytes
    columns: tuple[str, ...]
    oids: tuple[int, ...]
    """The types of the columns of `fresh`: those of rows, then if it has a row, and if rows are not
    up to date.
    """


def stale_sql(kept: Projection, codes: Sequence[int], look: int = LOOK) -> str:
    """Return the question if rows of a projection are not up to date, with {s} for the schema."""
    listed = "{" + ",".join([str(code) for code in codes]) + "}"
    # names of projections are checked: they have no quotes
    state = _STATE.replace("{name}", kept.name).replace("{version}", str(kept.version))
    stale = _STALE.replace("{look}", str(look)).replace("{codes}", listed)
    return f"WITH fold AS ({state}) {stale}"


def row_query(
    name: bytes,
    kept: Projection,
    shape: Table,
    forms: Sequence[str],
    order: tuple[str, bool],
    stale: str,
) -> RowQuery:
    """Return the statements for a page of rows, with {s} for the schema."""
    by, descending = order
    conditions = " AND ".join([f"({form})" for form in forms]) or "true"
    sql = (
        f"SELECT {quote_names(shape.columns)} FROM"
        f" {{s}}.{quote_name(table_name(kept, shape.name))}"
        f" WHERE {_numbered(conditions)} ORDER BY {order_sql(shape, by, descending)}"
        f" LIMIT ${conditions.count('$n') + 1}::int8"
    )
    fresh = (
        f"WITH stale (is_stale) AS ({stale}) SELECT page.*, stale.is_stale FROM"
        f" stale LEFT JOIN LATERAL (SELECT found.*, true AS there FROM ({sql}) AS found)"
        " AS page ON NOT stale.is_stale"
    )
    oids = [_OIDS[kind] for kind in shape.columns.values()]
    columns = tuple(shape.columns)
    return RowQuery(name, sql.encode(), fresh.encode(), columns, (*oids, _BOOL, _BOOL))


def _numbered(conditions: str) -> str:
    """Give the values of conditions their numbers."""
    first, *rest = conditions.split("$n")
    return first + "".join([f"${number}{part}" for number, part in enumerate(rest, 1)])


class WantedRows:
    """The conditions of a question: their forms, which make its statement, and their values."""

    def __init__(
        self,
        shape: Table,
        where: Mapping[str, Wanted],
        order: str,
        descending: bool,
        before: Scalar,
    ) -> None:
        self.forms: list[str] = []
        self.values: list[bytes | None] = []
        self.is_possible = True
        """False: no row can be wanted, since a column does not hold such values."""
        for column, wanted in where.items():
            self._add(quote_name(column), shape.columns[column], wanted)
        if before is not None:
            sign = "<" if descending else ">"
            self._compare(quote_name(order), sign, shape.columns[order], before)

    def _add(self, name: str, kind: str, wanted: Wanted) -> None:
        if wanted is None:
            self.forms.append(f"{name} IS NULL")
        elif isinstance(wanted, frozenset):
            self.forms.append(f"{name} = ANY($n::{TYPES[kind]}[])")
            values = [value for value in wanted if holds_value(kind, value)]
            self.values.append(_pack_array(kind, values))
        else:
            self._compare(name, "=", kind, wanted)

    def _compare(self, name: str, sign: str, kind: str, value: Scalar) -> None:
        if not holds_value(kind, value):
            self.is_possible = False
            return
        self.forms.append(f"{name} {sign} $n::{TYPES[kind]}")
        self.values.append(_pack_value(kind, value))


def holds_value(kind: str, value: object) -> bool:
    """True if a column of this kind can hold the value: else no row has it."""
    if kind == "text":
        return isinstance(value, str)
    if kind == "blob":
        return isinstance(value, bytes)
    if kind == "integer":
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return isinstance(value, (int, float))


def _pack_value(kind: str, value: Scalar) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    assert value is not None
    return pack_float8(value) if kind == "real" else pack_int8(int(value))


def _pack_array(kind: str, values: Sequence[Scalar]) -> bytes:
    if kind == "integer":
        return pack_int8s([int(value) for value in values if isinstance(value, int)])
    if kind == "real":
        return pack_float8s([value for value in values if isinstance(value, (int, float))])
    return pack_byteas([_pack_value(kind, value) for value in values])
