"""Ranking: own words, those of the neighbours, and further parts of a score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.memory.ranking import BEFORE_WEIGHTS, LENGTH_SHARE, SATURATION, Part, rank_rows

NEAR = 3


class OneFound(NamedTuple):
    row: dict[str, Any]
    before: tuple[dict[str, Any], ...]
    after: tuple[dict[str, Any], ...]


class AllFound(NamedTuple):
    rows: tuple[OneFound, ...]
    weights: dict[str, float]
    mean: float


def search(sources: Sequence[Sequence[str]], words: Sequence[str], limit: int = 20) -> AllFound:
    """Find rows that have one of the words, as a store does; more words come first."""
    numbers = iter(range(10**6))
    lines: list[list[dict[str, Any]]] = [
        [{"number": next(numbers), "words": text} for text in texts] for texts in sources
    ]
    found: list[OneFound] = []
    for line in lines:
        for place, row in enumerate(line):
            if set(row["words"].split()) & set(words):
                before = tuple(line[max(0, place - NEAR) : place][::-1])
                found.append(OneFound(row, before, tuple(line[place + 1 : place + 1 + NEAR])))
    rows = [row for line in lines for row in line]
    mean = sum(len(row["words"].split()) for row in rows) / max(len(rows), 1)
    weights = {word: 2.0 for word in words}
    found.sort(key=lambda each: -len(set(each.row["words"].split()) & set(words)))
    return AllFound(tuple(found[:limit]), weights, mean)


def texts_of(sources: Sequence[Sequence[str]], words: Sequence[str]) -> list[str]:
    return [ranked.row["words"] for ranked in rank_rows(search(sources, words), words)]


def test_an_answer_is_found_by_the_question_before_it() -> None:
    talk = ["where did you paint", "in rome last summer", "how nice", "yes"]
    other = ["i bought a car", "it is red"]
    assert texts_of([talk, other], ["paint"])[:2] == ["where did you paint", "in rome last summer"]


def test_no_window_reaches_into_another_source() -> None:
    assert texts_of([["hello", "paint"], ["hi there"]], ["paint"]) == ["paint", "hello"]


def test_a_row_with_none_of_the_words_is_left_out() -> None:
    far = ["paint", "a", "b", "c", "d"]
    assert texts_of([far], ["paint"]) == ["paint", "a", "b", "c"]
    assert rank_rows(search([far], ["paint"]), []) == ()
    assert rank_rows(search([[]], ["paint"]), ["paint"]) == ()


def test_a_word_inside_another_one_does_not_count() -> None:
    found = search([["art", "party party"]], ["art"])
    parts = {ranked.row["words"]: ranked.parts for ranked in rank_rows(found, ["art"])}
    assert parts["party party"]["own"] == 0 and parts["art"]["own"] > 0


def test_neighbours_that_repeat_a_word_count_once() -> None:
    """A row between two rows by one speaker is not by that speaker."""
    once = rank_rows(search([["ann", "x", "y"]], ["ann"]), ["ann"])
    twice = rank_rows(search([["ann", "x", "ann"]], ["ann"]), ["ann"])
    scores = [next(each for each in ranked if each.row["words"] == "x") for ranked in (once, twice)]
    assert scores[0].parts["window"] == pytest.approx(scores[1].parts["window"])


def test_the_score_is_bm25_over_the_window() -> None:
    found = search([["paint paint sky", "rome"]], ["paint"])
    first, second = rank_rows(found, ["paint"])
    full = found.mean * (1 + 1.3 + 0.7)
    norms = [
        SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * length / full)
        for length in (3 + 0.4 * 1, 1 + 0.7 * 3)
    ]
    assert first.score == pytest.approx(2.0 * 2 * (SATURATION + 1) / (2 + norms[0]))
    count = BEFORE_WEIGHTS[0] * 2
    assert second.score == pytest.approx(2.0 * count * (SATURATION + 1) / (count + norms[1]))
    assert (first.parts["window"], second.parts["own"]) == (0, 0)


def test_a_further_part_counts_by_its_weight_and_else_nothing() -> None:
    found = search([["paint rome"], ["paint oslo"]], ["paint"])
    plain = rank_rows(found, ["paint"])
    newest: dict[str, Part] = {"recency": lambda row: float(row["number"])}
    assert rank_rows(found, ["paint"], parts=newest) == plain
    weighed = rank_rows(found, ["paint"], parts=newest, weights={"recency": 0.5})
    assert [ranked.row["number"] for ranked in weighed] == [1, 0]
    assert weighed[0].parts["recency"] == pytest.approx(0.5 * plain[0].score)


WORDS = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=6).map(" ".join)


@given(st.lists(st.lists(WORDS, max_size=9), max_size=4), st.sets(st.sampled_from("abc")))
def test_rankings_are_whole_and_in_order(sources: list[list[str]], asked: set[str]) -> None:
    words = sorted(asked)
    found = search(sources, words, limit=5)
    ranked = rank_rows(found, words)
    assert list(ranked) == sorted(ranked, key=lambda each: (-each.score, each.row["number"]))
    assert all(math.isclose(each.score, sum(each.parts.values())) for each in ranked)
    assert all(each.score > 0 for each in ranked)
    numbers = [each.row["number"] for each in ranked]
    assert len(set(numbers)) == len(numbers)
    reach = {row["number"] for each in found.rows for row in (each.row, *each.before, *each.after)}
    assert {each.row["number"] for each in found.rows} <= set(numbers) <= reach
    assert rank_rows(found._replace(rows=found.rows[::-1]), words) == ranked
