"""Words of rows in memory: which rows have a word, and how often."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterator
from heapq import nsmallest
from itertools import islice
from typing import cast

from plait.store.projection import Row, Scalar, Table
from plait.store.search import Found, FoundRow, Query, choosing_words, score_of, weight_of


class WordIndex:
    """The rows of one table by their words, and in the order of the table by their columns."""

    def __init__(self, table: Table) -> None:
        self._order, self._words = table.order or "", table.words or ""
        self._rows: dict[int, Row] = {}  # by the order column
        self._lengths: dict[int, int] = {}
        self._total = 0  # words of all rows
        self._having: dict[str, dict[int, int]] = {}  # how often each row has a word
        walked = [index[0] for index in table.indexes if index[1:] == (self._order,)]
        # places of the rows with each value, in order
        self._walks: dict[str, dict[Scalar, list[int]]] = {column: {} for column in walked}

    def change(self, old: Row | None, new: Row | None) -> None:
        """Replace a row that was there by the one that is there now."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._add(new)

    def search(self, query: Query) -> Found:
        total = len(self._rows)
        mean = self._total / total if total else 0.0
        having = {word: len(self._having.get(word, ())) for word in query.words}
        weights = {word: weight_of(count, total) for word, count in having.items()}
        choosing = choosing_words(query.words, having, total)
        chosen = {word: weights[word] for word in choosing}
        places = {
            place
            for word in choosing
            for place in self._having.get(word, ())
            if place <= query.upto and _is_among(self._rows[place], query)
        }
        best = self._best(places, chosen, mean, query.limit)
        if len(choosing) < len(query.words):
            best = self._best([place for _, place in best], weights, mean, query.limit)
        rows = [
            FoundRow(dict(self._rows[place]), -score, *self._neighbours(place, query))
            for score, place in best
        ]
        return Found(tuple(rows), weights, total, mean)

    def _best(
        self, places: Collection[int], weights: dict[str, float], mean: float, limit: int
    ) -> list[tuple[float, int]]:
        """Return the best of these rows by these words: a score below 0, and the place."""
        scored = [(-self._score(place, weights, mean), place) for place in places]
        return nsmallest(limit, scored)

    def _score(self, place: int, weights: dict[str, float], mean: float) -> float:
        counts = {word: self._having.get(word, {}).get(place, 0) for word in weights}
        return score_of(counts, self._lengths[place], weights, mean)

    def _neighbours(self, place: int, query: Query) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
        value = self._rows[place][query.near] if query.near is not None else None
        if query.near is None or value in (None, ""):
            return (), ()
        walk = self._walks[query.near][value]
        before = reversed(walk[: bisect_left(walk, place)])
        after = walk[bisect_right(walk, place) : bisect_right(walk, query.upto)]
        return (
            tuple(islice(self._rows_among(before, query), query.distance)),
            tuple(islice(self._rows_among(iter(after), query), query.distance)),
        )

    def _rows_among(self, places: Iterator[int], query: Query) -> Iterator[Row]:
        for place in places:
            if _is_among(self._rows[place], query):
                yield dict(self._rows[place])

    def _add(self, row: Row) -> None:
        place, words = cast("int", row[self._order]), _split(row[self._words])
        self._rows[place] = row
        self._lengths[place] = len(words)
        self._total += len(words)
        for word, count in Counter(words).items():
            self._having.setdefault(word, {})[place] = count
        for column, walks in self._walks.items():
            insort(walks.setdefault(row[column], []), place)

    def _remove(self, row: Row) -> None:
        place = cast("int", row[self._order])
        self._total -= self._lengths.pop(place)
        del self._rows[place]
        for word in set(_split(row[self._words])):
            rows = self._having[word]
            del rows[place]
            if not rows:
                del self._having[word]
        for column, walks in self._walks.items():
            walk = walks[row[column]]
            del walk[bisect_left(walk, place)]
            if not walk:
                del walks[row[column]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WordIndex) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  it changes


def _split(words: Scalar) -> list[str]:
    return str(words).split(" ") if words else []


def _is_among(row: Row, query: Query) -> bool:
    return all(row[column] in values for column, values in query.among.items())
