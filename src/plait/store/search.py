"""Search by words: the rows of a table by BM25, the same in every store.

A table with a column of words (`Table.words`) can be searched. The formula is the one that SQLite's
FTS5 has, term by term, so that a store without FTS5 gives the same rows in the same order. Upper
rooms make the words; a store only splits them at blanks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from math import log
from types import NoneType
from typing import NamedTuple

from plait.errors import InvalidValue, UnknownRows
from plait.store.projection import Row, Scalar, Table
from plait.store.rows import check_columns, check_where, order_of

# Constants of BM25, as FTS5 has them: how fast a repeated word stops to count, and how much a long
# row is held back.
K1, B = 1.2, 0.75
WEIGHT_MIN = 1e-6  # of a word that more than half of the rows have

# Above so many rows a word that more than one row in COMMON has does not choose: reading all rows
# that have it costs more than the whole rest of a search, and it says little about any of them. It
# still counts when the chosen rows are ranked. Below, a search of all rows is fast enough.
MANY_ROWS = 20_000
COMMON = 50

WORD_SIZE_MAX = 30_000  # letters; FTS5 cuts off longer words

_WORD = re.compile(rf"[a-z0-9]{{1,{WORD_SIZE_MAX}}}\Z")


class FoundRow(NamedTuple):
    """A row that was found, and its neighbours, nearest first."""

    row: Row
    score: float  # larger is better
    before: tuple[Row, ...]
    after: tuple[Row, ...]


class Found(NamedTuple):
    """The answer to a search: rows, best first, and the figures that their scores are made of."""

    rows: tuple[FoundRow, ...]
    weights: dict[str, float]  # of each word that was asked for
    total: int  # rows in the table
    mean: float  # words of a row


class Query(NamedTuple):
    """The arguments of a search, checked."""

    words: tuple[str, ...]  # without repetitions
    among: Mapping[str, Collection[Scalar]]
    upto: int
    near: str | None  # the column that neighbours share
    distance: int  # how many neighbours on each side
    limit: int


def checked_query(
    projection: str,
    table: Table,
    words: Sequence[str],
    among: Mapping[str, Collection[Scalar]] | None,
    upto: int | None,
    near: tuple[str, int] | None,
    limit: int,
) -> Query:
    if table.words is None:
        raise UnknownRows(
            f"{projection}.{table.name}", "it has no words", "Give the table a column of words"
        )
    column, distance = (None, 0) if near is None else near
    check_columns(projection, table, (*(among or ()), *((column,) if column else ())))
    _check_counts(upto, distance, limit)
    if column is not None and (column, order_of(table)) not in table.indexes:
        raise InvalidValue(
            "near",
            f"the rows of {table.name} cannot be walked by {column}",
            f"give the table the index {(column, order_of(table))}",
        )
    for name, values in (among or {}).items():
        if isinstance(values, (str, bytes, int, float, NoneType)):
            raise InvalidValue(name, f"{values!r} is one value, not several", "pass a list")
        for value in values:
            check_where({name: value})
    last = 2**63 - 1 if upto is None else upto
    return Query(_checked_words(words), among or {}, last, column, distance, limit)


def _check_counts(upto: int | None, distance: int, limit: int) -> None:
    if upto is not None and (type(upto) is not int or not -(2**63) <= upto < 2**63):
        raise InvalidValue("upto", f"{upto!r} is not a value of the order column")
    if type(distance) is not int or not 0 <= distance < 2**31:
        raise InvalidValue("near", f"{distance!r} is not a count", "pass a number from 0")
    if type(limit) is not int or not 1 <= limit < 2**31:
        raise InvalidValue("limit", f"{limit!r} is not a count of rows", "pass a number from 1")


def _checked_words(words: Sequence[str]) -> tuple[str, ...]:
    if isinstance(words, str):
        raise InvalidValue("words", f"{words!r} is one text, not several", "pass a list of words")
    for word in words:
        if not isinstance(word, str) or not _WORD.match(word):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue(
                "words", f"{word!r} is not a word", "use lowercase Latin letters and digits"
            )
    if not words:
        raise InvalidValue("words", "there are none to search for", "pass one word at least")
    return tuple(dict.fromkeys(words))


def choosing_words(words: Sequence[str], having: Mapping[str, int], total: int) -> Sequence[str]:
    """Return the words that choose rows. `having` says how many rows have each of them."""
    if total <= MANY_ROWS:
        return words
    rare = [word for word in words if having.get(word, 0) * COMMON <= total]
    return rare or words


def weight_of(having: int, total: int) -> float:
    """Return the weight of a word that so many of all rows have."""
    weight = log((total - having + 0.5) / (having + 0.5))
    return weight if weight > 0.0 else WEIGHT_MIN


def score_of(
    counts: Mapping[str, int], length: int, weights: Mapping[str, float], mean: float
) -> float:
    """Return the score of a row with so many words, and these counts of those asked for.

    The order of the operations is FTS5's: another one can differ in the last bit, and so in the
    order of rows that are all but equal.
    """
    held_back = K1 * (1 - B + B * length / mean)
    score = 0.0
    for word, weight in weights.items():
        count = counts.get(word)
        if count:
            score += weight * ((count * (K1 + 1.0)) / (count + held_back))
    return score
