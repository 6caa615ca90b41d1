"""Ranking: the rows that a search found, and their neighbours, in the order of a recall.

A sentence is often about words that were said before it: "Yes, last summer in Rome." answers the
question above it. So a row is ranked by its own words and by those of its neighbours in the same
source, at lower weights. The formula is BM25 over that window. A word of the question that several
neighbours have counts once, for the one with the highest weight: else a row between two rows by one
speaker would have the name of the speaker as if it were its own.

The shape is tilted, since words lean on what came before more than on what follows. It is written
for texts of a few sentences. `benchmarks/locomo.py` measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

BEFORE_WEIGHTS = (0.7, 0.4, 0.2)  # of the neighbours before a row, nearest first
AFTER_WEIGHTS = (0.4, 0.2, 0.1)
SATURATION = 1.2  # k1 of BM25: the second mention of a word adds less than the first
LENGTH_SHARE = 0.4  # b of BM25: lower than in the index, since a window evens lengths out

_WINDOW_WEIGHT = 1 + sum(BEFORE_WEIGHTS) + sum(AFTER_WEIGHTS)
_GAP = (None,) * max(len(BEFORE_WEIGHTS), len(AFTER_WEIGHTS))
_NORM = SATURATION * (1 - LENGTH_SHARE)
# The distances to which the words of a row spread: those before a row count for it, so they spread
# forward, by BEFORE_WEIGHTS.
_SPREAD = (
    *enumerate(BEFORE_WEIGHTS, start=1),
    *((-distance, weight) for distance, weight in enumerate(AFTER_WEIGHTS, start=1)),
)

Row = Mapping[str, Any]
# A further part of the score, such as recency or importance: from 0 to 1.
Part = Callable[[Row], float]


class FoundRowLike(Protocol):
    """A row that a search found, with its neighbours in the same source, nearest first."""

    @property
    def row(self) -> Row: ...
    @property
    def before(self) -> Sequence[Row]: ...
    @property
    def after(self) -> Sequence[Row]: ...


class FoundLike(Protocol):
    """The answer of `Store.search`, as far as a ranking needs it."""

    @property
    def rows(self) -> Sequence[FoundRowLike]: ...
    @property
    def weights(self) -> Mapping[str, float]: ...
    @property
    def mean(self) -> float: ...


class RankedRow(NamedTuple):
    """A row in its place, with its score and the named parts that the score is the sum of."""

    row: Row
    score: float
    parts: Mapping[str, float]


def rank_rows(
    found: FoundLike,
    words: Iterable[str],
    *,
    parts: Mapping[str, Part] | None = None,
    weights: Mapping[str, float] | None = None,
) -> tuple[RankedRow, ...]:
    """Rank the rows found and their neighbours by the words of a question, best first.

    The part "own" is a row's own words, "window" those of its neighbours. A row with none of the
    words is left out. Each further part has a weight: at 1 it counts as much as the best match of
    words does, and without one it counts nothing. Equal scores go by number.
    """
    idf = {word: found.weights[word] for word in words if found.weights.get(word, 0) > 0}
    if not idf or not found.rows:
        return ()
    scored = _window_scores(_line_of(found.rows), idf, found.mean)
    ranked = [
        RankedRow(row, own + window, {"own": own, "window": window}) for row, own, window in scored
    ]
    return with_parts(ranked, parts, weights)


def with_parts(
    ranked: Sequence[RankedRow],
    parts: Mapping[str, Part] | None,
    weights: Mapping[str, float] | None,
) -> tuple[RankedRow, ...]:
    """Add further parts to scores, and put the rows in order, best first."""
    top = max([each.score for each in ranked], default=0.0)
    extras = {
        name: (part, weight * top)
        for name, part in (parts or {}).items()
        if (weight := (weights or {}).get(name, 0.0))
    }
    if extras:
        ranked = [_with_extras(each, extras) for each in ranked]
    return tuple(sorted(ranked, key=lambda each: (-each.score, each.row["number"])))


def _with_extras(ranked: RankedRow, extras: Mapping[str, tuple[Part, float]]) -> RankedRow:
    more = {name: weight * part(ranked.row) for name, (part, weight) in extras.items()}
    return RankedRow(ranked.row, ranked.score + sum(more.values()), {**ranked.parts, **more})


def _line_of(found: Iterable[FoundRowLike]) -> list[Row | None]:
    """Lay out the rows found and their neighbours, in order, with a gap where one does not follow.

    A gap is as wide as a window, so that no window reaches over it.
    """
    rows: dict[int, Row] = {}
    following: dict[int, int] = {}
    for each in found:
        stretch = [*reversed(each.before), each.row, *each.after]
        numbers = [row["number"] for row in stretch]
        rows.update(zip(numbers, stretch, strict=True))
        following.update(zip(numbers, numbers[1:], strict=False))
    line: list[Row | None] = [*_GAP]
    for first in sorted(rows.keys() - following.values()):
        number: int | None = first
        while number is not None:
            line.append(rows[number])
            number = following.get(number)
        line += _GAP
    return line


def _window_scores(
    line: Sequence[Row | None], idf: Mapping[str, float], mean: float
) -> list[tuple[Row, float, float]]:
    """Score each row of a line: its own words, and all that its window adds."""
    lengths: list[int] = []
    counts: list[dict[str, int]] = []
    for row in line:
        if row is None:
            lengths.append(0)
            counts.append({})
            continue
        text: str = row["words"]
        lengths.append(text.count(" ") + 1 if text else 0)
        counts.append(_word_counts(text, idf))
    per_word = SATURATION * LENGTH_SHARE / (mean * _WINDOW_WEIGHT)
    columns = zip(line, counts, _counts_around(counts), _window_lengths(lengths), strict=True)
    scores: list[tuple[Row, float, float]] = []
    for row, own_counts, around, length in columns:
        if row is None or not (own_counts or around):
            continue
        norm = _NORM + per_word * length
        own = window = 0.0
        for word, count in own_counts.items():
            score = idf[word] * count / (count + norm)
            own += score
            if word in around:
                count += around[word]
                window += idf[word] * count / (count + norm) - score
        for word, count in around.items():
            if word not in own_counts:
                window += idf[word] * count / (count + norm)
        scores.append((row, (SATURATION + 1) * own, (SATURATION + 1) * window))
    return scores


def _word_counts(text: str, idf: Mapping[str, float]) -> dict[str, int]:
    """Count the words of the question in a row."""
    # Most rows have few of them, and a look at the text is faster than its division into words.
    present = [word for word in idf if word in text]
    if not present:
        return {}
    words = text.split(" ")
    return {word: count for word in present if (count := words.count(word))}


def _counts_around(counts: Sequence[Mapping[str, int]]) -> list[dict[str, float]]:
    """Spread the words of each row to its neighbours. The highest weight of a word decides."""
    around: list[dict[str, float]] = [{} for _ in counts]
    for place, words in enumerate(counts):
        for word, count in words.items():
            for distance, weight in _SPREAD:
                target = around[place + distance]
                if weight * count > target.get(word, 0.0):
                    target[word] = weight * count
    return around


def _window_lengths(lengths: Sequence[int]) -> list[float]:
    """Return the words in each window, by weight. The gaps at both ends have no words."""
    totals: list[float] = list(lengths)
    for distance, weight in _SPREAD:
        shifted = [*lengths[-distance:], *lengths[:-distance]]
        totals = [total + weight * length for total, length in zip(totals, shifted, strict=True)]
    return totals
