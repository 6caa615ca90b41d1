"""Projections: rows that a store keeps of its events, to search by.

Upper layers hand in a `Projection` (a session's title and status, a memory index). The store
applies it to each event once, in the transaction of the append or when the rows are asked for, and
can drop its rows and fold them again from the events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from plait.event import Event

Scalar = str | int | float | bytes | None
Row = dict[str, Scalar]
Wanted = Scalar | frozenset[str] | frozenset[int]
"""The value that a column must have, or several of which it must have one."""


class Table(msgspec.Struct, frozen=True):
    """The shape of a projection's rows.

    `order` is an integer column that differs from row to row, usually a commit number: rows are
    laid out by it, so that listing in that order costs nothing extra. An index is (the columns
    filtered by …, the column ordered by).

    `words` is a text column that `search` finds rows by: words of lowercase Latin letters and
    digits, divided by single blanks. It needs `order`. `group` is a text column: a search may ask
    for some groups, and its figures are then of their rows alone. A row with None there is of no
    group.
    """

    name: str
    key: tuple[str, ...]
    columns: Mapping[str, Literal["text", "integer", "real", "blob"]]
    order: str | None = None
    indexes: tuple[tuple[str, ...], ...] = ()
    words: str | None = None
    group: str | None = None


class Rows(Protocol):
    """The tables of one projection, inside the transaction that folds an event."""

    def get(self, table: str, *key: Scalar) -> Row | None: ...
    def put(self, table: str, row: Row) -> None: ...
    def delete(self, table: str, *key: Scalar) -> None: ...


class Projection(Protocol):
    """A fold with rows that the store keeps.

    It must come out the same for every order of events that respects logs and causes. An event is
    applied after those before it in its log, and after those that it names: parents, causes and
    others in its body, the log that it was forked from, the start of its run. Between logs nothing
    else is certain: a rule that needs an order there goes by the commit numbers, and a list is
    sorted by something else than arrival.

    `version` grows whenever `apply` or the tables change: the store then rebuilds.
    """

    @property
    def name(self) -> str:
        """Lowercase, unique in the store."""
        ...

    @property
    def version(self) -> int: ...

    @property
    def kinds(self) -> frozenset[str]:
        """The names of the kinds of event it folds; it sees no others."""
        ...

    @property
    def tables(self) -> tuple[Table, ...]: ...

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        """Fold one event, with its commit number, into the rows.

        They must follow from nothing else.
        """
        ...
