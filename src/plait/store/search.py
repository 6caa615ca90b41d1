"""Search by words: the rows of a table by BM25, the same in every store.

A table with a column of words (`Table.words`) can be searched. Upper rooms make the words; a store
only splits them at blanks. A store gives the places and lengths of the rows that have a word; the
functions here compute weights and scores from them, so that all stores give the same rows in the
same order.

All figures are taken over the rows that a search may find, and over no others. So the score of a
row says nothing about rows of other groups, and does not change by rows that come later than
`upto`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Container, Mapping, Sequence
from heapq import nsmallest
from math import log
from typing import NamedTuple

from plait.errors import InvalidValue, UnknownRows
from plait.store.projection import Row, Table
from plait.store.rows import check_columns, check_where, order_of

# Constants of BM25: how fast a repeated word stops to count, and how much a long row is held back.
K1, B = 1.2, 0.75

# So many rows at most are scored in a search. Words choose them, the rarest first. A word that
# would bring more rows does not choose: it says little about any of them, and scoring them would
# cost more than the whole rest of the search. It still counts when the chosen rows are ranked.
CHOOSING_MAX = 2000

WORD_SIZE_MAX = 30_000  # letters; FTS5 cuts off longer words
PLACE_MIN, PLACE_MAX = -(2**63), 2**63 - 1  # of the order column

_WORD = re.compile(rf"[a-z0-9]{{1,{WORD_SIZE_MAX}}}\Z")

Range = tuple[int, int]  # of places, both included
WHOLE: Range = PLACE_MIN, PLACE_MAX


class Region(NamedTuple):
    """Rows of one group (`Table.group`), from one place of the table's order to another, both
    included.
    """

    group: str
    first: int = PLACE_MIN
    last: int = PLACE_MAX


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
    total: int  # rows with words where it was searched
    mean: float  # words of a row that has a choosing word; 0.0: there is none


class Query(NamedTuple):
    """The arguments of a search, checked."""

    words: tuple[str, ...]  # without repetitions
    groups: Mapping[str, Sequence[Range]] | None  # None: all rows, also those of no group
    upto: int
    near: str | None  # the column that neighbours share
    distance: int  # how many neighbours on each side
    limit: int

    def ranges_of(self, group: str | None) -> Sequence[Range]:
        """Return the ranges of places of a group, in order, without overlaps."""
        if self.groups is None:
            return ((PLACE_MIN, self.upto),)
        return self.groups.get(group, ()) if group is not None else ()


def checked_query(
    projection: str,
    table: Table,
    words: Sequence[str],
    within: Sequence[Region] | None,
    upto: int | None,
    near: tuple[str, int] | None,
    limit: int,
) -> Query:
    name = f"{projection}.{table.name}"
    if table.words is None:
        raise UnknownRows(name, "it has no words", "Give the table a column of words")
    if within is not None and table.group is None:
        raise UnknownRows(name, "it has no groups", "Give the table a column of groups")
    column, distance = (None, 0) if near is None else near
    check_columns(projection, table, (column,) if column else ())
    _check_counts(upto, distance, limit)
    if column is not None and walk_index(table, column) not in table.indexes:
        raise InvalidValue(
            "near",
            f"the rows of {table.name} cannot be walked by {column}",
            f"give the table the index {walk_index(table, column)}",
        )
    last = PLACE_MAX if upto is None else upto
    groups = None if within is None else _checked_groups(within, last)
    return Query(_checked_words(words), groups, last, column, distance, limit)


def walk_index(table: Table, column: str) -> tuple[str, ...]:
    """Return the index by which neighbours with the same value in a column are found."""
    shared = [table.group] if table.group not in (None, column) else []
    return column, *shared, order_of(table)


def _checked_groups(within: Sequence[Region], upto: int) -> dict[str, Sequence[Range]]:
    found: dict[str, list[Range]] = {}
    for region in within:
        if not isinstance(region, Region) or not isinstance(region.group, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue("within", f"{region!r:.100} is no region", "pass Region(group)")
        check_where({"group": region.group})
        _check_place("within", region.first)
        _check_place("within", region.last)
        found.setdefault(region.group, []).append((region.first, min(region.last, upto)))
    return {group: _merged_ranges(ranges) for group, ranges in found.items()}


def _merged_ranges(ranges: list[Range]) -> list[Range]:
    """Return ranges in order, without overlaps: a row must not count twice."""
    if len(ranges) == 1:
        return ranges
    merged: list[Range] = []
    for first, last in sorted(each for each in ranges if each[0] <= each[1]):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def _check_place(name: str, place: int) -> None:
    if type(place) is not int or not PLACE_MIN <= place <= PLACE_MAX:
        raise InvalidValue(name, f"{place!r} is not a value of the order column")


def _check_counts(upto: int | None, distance: int, limit: int) -> None:
    if upto is not None:
        _check_place("upto", upto)
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


def places_within(places: Sequence[int], ranges: Sequence[Range]) -> Sequence[int]:
    """Return those of some places, which are in order, that are in one of the ranges."""
    found: list[int] = []
    for first, last in ranges:
        if places and first <= places[0] and places[-1] <= last:
            return places
        found += places[bisect_left(places, first) : bisect_right(places, last)]
    return found


def choosing_words(having: Mapping[str, int], total: int) -> list[str]:
    """Return the words that choose rows: the rarest one, and further ones as long as no more than
    CHOOSING_MAX rows come together. `having` says how many of all rows have each word.
    """
    if total <= CHOOSING_MAX:
        return [word for word, count in having.items() if count]
    found: set[str] = set()
    rows = 0
    for word in sorted(having, key=having.__getitem__):
        rows += having[word]
        if found and rows > CHOOSING_MAX:
            break
        if having[word]:
            found.add(word)
    return [word for word in having if word in found]


def has_common_words(having: Mapping[str, int], chosen: Container[str]) -> bool:
    """True if some rows have a word that does not choose."""
    return any(count and word not in chosen for word, count in having.items())


def weight_of(having: int, total: int) -> float:
    """Return the weight of a word that so many of all rows have. It is above 0 for every word:
    most groups have few rows, and then a word that matters is soon in half of them.
    """
    return log(1 + (total - having + 0.5) / (having + 0.5))


def best_places(
    counts: Mapping[str, Mapping[int, int]],
    lengths: Mapping[int, int],
    weights: Mapping[str, float],
    mean: float,
    limit: int,
) -> list[tuple[float, int]]:
    """Return the best rows by BM25, best first: a score, and the place; equal ones by place.

    `counts` says how often the row at each place has each word.
    """
    held_back = {size: K1 * (1 - B + B * size / mean) for size in {*lengths.values()}}
    held = {place: held_back[size] for place, size in lengths.items()}
    scores = dict.fromkeys(lengths, 0.0)
    for word, places in counts.items():
        weight = weights[word] * (K1 + 1)
        for place, count in places.items():
            scores[place] += weight * count / (count + held[place])
    best = nsmallest(limit, [(-score, place) for place, score in scores.items()])
    return [(-score, place) for score, place in best]


def ranked_by_all(
    chosen: Sequence[tuple[float, int]],
    texts: Mapping[int, str],
    weights: Mapping[str, float],
    mean: float,
) -> list[tuple[float, int]]:
    """Rank chosen rows by all words that were asked for, also those that do not choose."""
    rows = {place: texts[place].split(" ") for _, place in chosen}
    counts = {
        word: {place: count for place, row in rows.items() if (count := row.count(word))}
        for word in weights
    }
    lengths = {place: len(row) for place, row in rows.items()}
    return best_places(counts, lengths, weights, mean, len(chosen))
