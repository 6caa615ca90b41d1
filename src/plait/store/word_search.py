"""The search by words that is the same in every database.

A database looks up groups, the rows of a word, and rows by their places; from these the rows that
are found, their order and their scores follow here. `search.py` has the formula.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from plait.errors import StoreCorrupt
from plait.store.projection import Row, Table
from plait.store.search import (
    WHOLE,
    Found,
    FoundRow,
    Query,
    Range,
    best_places,
    choosing_words,
    has_common_words,
    places_within,
    ranked_by_all,
    weight_of,
)

ALL_ROWS = ""  # stands for a word that all rows with words of a group have
# Among so few rows it costs less to read the places of a common word than to count them first.
_FEW_ROWS = 20_000

Beside = dict[int, tuple[tuple[Row, ...], tuple[Row, ...]]]


class SearchedGroup(NamedTuple):
    """A group in which a search looks, or all groups together."""

    code: int | None  # None: all
    rows: int  # with words
    ranges: Sequence[Range]

    @property
    def is_whole(self) -> bool:
        return len(self.ranges) == 1 and self.ranges[0] == WHOLE


GroupWord = tuple[SearchedGroup, str]


class WordTable(Protocol):
    """A table with words, as one state of a database has it."""

    def groups(self, query: Query) -> list[SearchedGroup]:
        """Return the groups with words in which a query looks."""
        ...

    def places(self, pairs: Sequence[GroupWord]) -> Sequence[Sequence[int]]:
        """Return the places of rows that have each word of a group, once for each time."""
        ...

    def counts(self, pairs: Sequence[GroupWord]) -> Sequence[int]:
        """Return how many rows of a whole group have each word."""
        ...

    def lengths(self, places: Sequence[int]) -> Mapping[int, int]:
        """Return the numbers of words of rows."""
        ...

    def rows_at(self, places: Sequence[int]) -> dict[int, Row]: ...

    def neighbours(self, near: str, distance: int, hits: Sequence[tuple[int, int, int]]) -> Beside:
        """Return the rows before and after each hit, nearest first. A hit is a place, and the
        range that neighbours are in.
        """
        ...


def search_words(name: str, shape: Table, table: WordTable, query: Query) -> Found:
    """Search, in one state of the database."""
    groups = table.groups(query)
    if sum(group.rows for group in groups) <= _FEW_ROWS:
        counts, total = _read(table, query.words, groups)
        having = {word: len(places) for word, places in counts.items()}
    else:
        counts, having, total = _read_choosing(table, query, groups)
    weights = {word: weight_of(having[word], total) for word in query.words}
    chosen = {word: counts[word] for word in choosing_words(having, total)}
    places = [*{*chain.from_iterable(chosen.values())}]
    lengths: Mapping[int, int] = table.lengths(places) if places else {}
    if len(lengths) < len(places):
        raise StoreCorrupt(f"the words of {name}", "a row has words and no length")
    mean = sum(lengths.values()) / len(lengths) if lengths else 0.0
    best = best_places(chosen, lengths, weights, mean, query.limit)
    rows = table.rows_at([place for _, place in best]) if best else {}
    if len(rows) < len(best):
        raise StoreCorrupt(f"the words of {name}", "a row is found that is not there")
    if has_common_words(having, chosen):
        texts = {place: str(row[shape.words or ""]) for place, row in rows.items()}
        best = ranked_by_all(best, texts, weights, mean)
    beside = _neighbours(table, shape, query, rows)
    found = [FoundRow(rows[at], score, *beside.get(at, ((), ()))) for score, at in best]
    return Found(tuple(found), weights, total, mean)


def _read(
    table: WordTable, words: Sequence[str], groups: Sequence[SearchedGroup]
) -> tuple[dict[str, Counter[int]], int]:
    """Return how often the rows at their places have each word, and how many rows there are."""
    cut = [group for group in groups if not group.is_whole]
    pairs = [(group, word) for group in groups for word in words]
    pairs += [(group, ALL_ROWS) for group in cut]
    counts: dict[str, Counter[int]] = {word: Counter() for word in (*words, ALL_ROWS)}
    for (group, word), found in zip(pairs, table.places(pairs), strict=True):
        places = found
        if not group.is_whole:
            places = places_within(sorted(places), group.ranges)
        counts[word].update(places)
    total = sum(group.rows for group in groups if group.is_whole) + len(counts.pop(ALL_ROWS))
    return counts, total


def _read_choosing(
    table: WordTable, query: Query, groups: Sequence[SearchedGroup]
) -> tuple[dict[str, Counter[int]], dict[str, int], int]:
    """As `_read`, but common words of whole groups are only counted: the second value says how
    many rows have each word.
    """
    whole = [group for group in groups if group.is_whole]
    counts, total = _read(table, query.words, [each for each in groups if not each.is_whole])
    total += sum(group.rows for group in whole)
    pairs = [(group, word) for word in query.words for group in whole]
    having = {word: len(places) for word, places in counts.items()}
    for (_, word), rows in zip(pairs, table.counts(pairs), strict=True):
        having[word] += rows
    read, _ = _read(table, choosing_words(having, total), whole)
    return {word: counts[word] + places for word, places in read.items()}, having, total


def _neighbours(table: WordTable, shape: Table, query: Query, rows: Mapping[int, Row]) -> Beside:
    near = query.near
    if near is None or not query.distance:
        return {}
    hits = [
        (at, *_range_of(shape, query, at, row))
        for at, row in rows.items()
        if row[near] not in (None, "")
    ]
    return table.neighbours(near, query.distance, hits) if hits else {}


def _range_of(shape: Table, query: Query, place: int, row: Row) -> Range:
    group = row[shape.group] if shape.group else None
    ranges = query.ranges_of(group if isinstance(group, str) else None)
    return next(each for each in ranges if each[0] <= place <= each[1])


def sides_of(hits: Sequence[tuple[int, int, int]], found: Sequence[tuple[int, int, Row]]) -> Beside:
    """Lay rows out beside their hits. Each is found with its own place and that of the hit."""
    before: dict[int, list[Row]] = {at: [] for at, _, _ in hits}
    after: dict[int, list[Row]] = {at: [] for at, _, _ in hits}
    for place, at, row in sorted(found, key=lambda each: each[0]):
        (before if place < at else after)[at].append(row)
    return {at: (tuple(before[at][::-1]), tuple(after[at])) for at in before}
