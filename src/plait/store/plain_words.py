"""Words of rows in memory: which rows have a word, and how often."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from typing import cast

from plait.store.projection import Row, Scalar, Table
from plait.store.search import (
    Found,
    FoundRow,
    Query,
    best_places,
    choosing_words,
    has_common_words,
    places_within,
    ranked_by_all,
    walk_index,
    weight_of,
)


class WordIndex:
    """The rows of one table by their words, group by group, and in the order of the table by the
    columns that neighbours share.
    """

    def __init__(self, table: Table) -> None:
        self._order, self._words, self._group = table.order or "", table.words or "", table.group
        self._rows: dict[int, Row] = {}  # by the order column
        self._groups: dict[str | None, _GroupWords] = {}
        walked = [index[0] for index in table.indexes if index == walk_index(table, index[0])]
        # places of the rows with each value, in order
        self._walks: dict[str, dict[tuple[Scalar, ...], list[int]]] = {each: {} for each in walked}

    def change(self, old: Row | None, new: Row | None) -> None:
        """Replace a row that was there by the one that is there now."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._add(new)

    def search(self, query: Query) -> Found:
        groups = self._groups if query.groups is None else query.groups
        searched = [
            (self._groups[group], query.ranges_of(group))
            for group in groups
            if group in self._groups
        ]
        total = sum(len(places_within(words.places, ranges)) for words, ranges in searched)
        counts: dict[str, dict[int, int]] = {word: {} for word in query.words}
        for words, ranges in searched:
            for word, found in counts.items():
                having = words.having.get(word, {})
                found.update((at, having[at]) for at in places_within(sorted(having), ranges))
        having = {word: len(places) for word, places in counts.items()}
        weights = {word: weight_of(count, total) for word, count in having.items()}
        chosen = {word: counts[word] for word in choosing_words(having, total)}
        texts = {at: str(self._rows[at][self._words]) for each in chosen.values() for at in each}
        lengths = {at: text.count(" ") + 1 for at, text in texts.items()}
        mean = sum(lengths.values()) / len(lengths) if lengths else 0.0
        best = best_places(chosen, lengths, weights, mean, query.limit)
        if has_common_words(having, chosen):
            best = ranked_by_all(best, texts, weights, mean)
        rows = [
            FoundRow(dict(self._rows[at]), score, *self._neighbours(at, query))
            for score, at in best
        ]
        return Found(tuple(rows), weights, total, mean)

    def _neighbours(self, place: int, query: Query) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
        row = self._rows[place]
        if query.near is None or row[query.near] in (None, ""):
            return (), ()
        walk = self._walks[query.near][self._walk_key(query.near, row)]
        ranges = query.ranges_of(self._group_of(row))
        first, last = next(each for each in ranges if each[0] <= place <= each[1])
        before = walk[bisect_left(walk, first) : bisect_left(walk, place)]
        after = walk[bisect_right(walk, place) : bisect_right(walk, last)]
        return (
            self._rows_at(before[::-1][: query.distance]),
            self._rows_at(after[: query.distance]),
        )

    def _rows_at(self, places: Sequence[int]) -> tuple[Row, ...]:
        return tuple([dict(self._rows[place]) for place in places])

    def _group_of(self, row: Row) -> str | None:
        return cast("str | None", row[self._group]) if self._group else None

    def _walk_key(self, column: str, row: Row) -> tuple[Scalar, ...]:
        return row[column], self._group_of(row)

    def _add(self, row: Row) -> None:
        place, words = cast("int", row[self._order]), _split(row[self._words])
        self._rows[place] = row
        if words:
            self._groups.setdefault(self._group_of(row), _GroupWords()).add(place, words)
        for column, walks in self._walks.items():
            insort(walks.setdefault(self._walk_key(column, row), []), place)

    def _remove(self, row: Row) -> None:
        place, words = cast("int", row[self._order]), _split(row[self._words])
        del self._rows[place]
        if words:
            group = self._groups[self._group_of(row)]
            group.remove(place, words)
            if not group.places:
                del self._groups[self._group_of(row)]
        for column, walks in self._walks.items():
            walk = walks[self._walk_key(column, row)]
            del walk[bisect_left(walk, place)]
            if not walk:
                del walks[self._walk_key(column, row)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WordIndex) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  it changes


class _GroupWords:
    """The rows of one group that have words, and how often each has a word."""

    def __init__(self) -> None:
        self.places: list[int] = []  # in order
        self.having: dict[str, dict[int, int]] = {}

    def add(self, place: int, words: list[str]) -> None:
        insort(self.places, place)
        for word, count in Counter(words).items():
            self.having.setdefault(word, {})[place] = count

    def remove(self, place: int, words: list[str]) -> None:
        del self.places[bisect_left(self.places, place)]
        for word in set(words):
            rows = self.having[word]
            del rows[place]
            if not rows:
                del self.having[word]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _GroupWords) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  it changes


def _split(words: Scalar) -> list[str]:
    return str(words).split(" ") if words else []
