"""The words: one name per idea, and sentences that name their subject.

The figures come from `tools/figures.py`, which also lists the places they count. Their limits are
in `ratchets.json`; `python tools/figures.py --tighten` lowers them to what was reached.
"""

from __future__ import annotations

import re

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


def test_the_limits_are_those_of_the_figures() -> None:
    assert set(figures.read_ratchets()["figures"]) == set(figures.FIGURES)


def test_a_word_has_one_sentence_and_stands_once() -> None:
    words = vocabulary()
    assert len(words) <= WORDS_MAX
    assert len({word for word, _, _ in words}) == len(words)
    for word, sentence, _ in words:
        assert sentence.endswith(".") and sentence.count(". ") == 0, word


def test_names_and_figures_stay_within_their_limits() -> None:
    """One test, since every process that measures has to parse the whole source first."""
    ratchets = figures.read_ratchets()
    allowed = BOTH_AN_ERROR_AND_AN_EVENT | set(ratchets["shared_class_names"])
    shared = {name for name in figures.shared_class_names() if name not in allowed}
    assert shared == set(), "Give one of them a name that says which room it is from."
    given_up = {name for _, _, old in vocabulary() for name in re.findall(r"`(\w+)`(?! \()", old)}
    assert given_up & figures.class_names() <= set(ratchets["old_class_names"])
    for name, figure in figures.FIGURES.items():
        limit = ratchets["figures"][name]
        step = "See the places with `.venv/bin/python tools/figures.py --list …`."
        assert figure() <= limit, f"{name}: the limit is {limit}. {step}"
