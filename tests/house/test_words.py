"""The words: one name per idea, and sentences that name their subject.

The figures come from `tools/figures.py`, which also lists the places they count. Their limits are
in `ratchets.json`; `python tools/figures.py --tighten` lowers them to what was reached.
"""

from __future__ import annotations

import re

import pytest

from tests.support import ROOT
from tools import figures

WORDS_MAX = 30
BOTH_AN_ERROR_AND_AN_EVENT = {"ModelFailed", "ToolFailed"}
"""Class names that may stand in two modules: an error, and the event that records it."""


def vocabulary() -> list[tuple[str, str, str]]:
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/WORDS.md").read_text(), re.MULTILINE
    )
    assert rows[0][0] == "word"
    return rows[1:]


def test_a_class_name_stands_in_one_module() -> None:
    allowed = BOTH_AN_ERROR_AND_AN_EVENT | set(figures.read_ratchets()["shared_class_names"])
    shared = {
        name: modules
        for name, modules in figures.shared_class_names().items()
        if name not in allowed
    }
    assert shared == {}, "Give one of them a name that says which room it is from."


@pytest.mark.parametrize("name", figures.FIGURES)
def test_a_figure_only_gets_better(name: str) -> None:
    limit = figures.read_ratchets()["figures"][name]
    assert figures.FIGURES[name]() <= limit, (
        f"{name}: the limit is {limit}. See the places with `python tools/figures.py --list …`."
    )


def test_the_limits_are_those_of_the_figures() -> None:
    assert set(figures.read_ratchets()["figures"]) == set(figures.FIGURES)


def test_a_word_has_one_sentence_and_stands_once() -> None:
    words = vocabulary()
    assert len(words) <= WORDS_MAX
    assert len({word for word, _, _ in words}) == len(words)
    for word, sentence, _ in words:
        assert sentence.endswith(".") and sentence.count(". ") == 0, word


def test_no_class_has_a_name_that_was_given_up() -> None:
    given_up = {name for _, _, old in vocabulary() for name in re.findall(r"`(\w+)`(?! \()", old)}
    still_named_so = given_up & figures.class_names()
    assert still_named_so <= set(figures.read_ratchets()["old_class_names"])
