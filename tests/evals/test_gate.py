"""The gate: a planted regression trips it, noise does not. The test and the estimators, held
against enumerations.
"""

from __future__ import annotations

import random
from itertools import combinations, product
from math import comb
from pathlib import Path
from typing import Any

import pytest

from plait import Session, Workflow, open_store
from plait.errors import InvalidValue
from plait.evals import compare_evaluations, evaluate, trial_of
from plait.evals.intervals import TrialCounts, pass_power, wilson_interval, worse_chance
from tests.cli.shell import Shell

ROWS = [{"id": f"e{n}", "input": "go"} for n in range(12)]


class Steady(Workflow):
    """Passes nine trials in ten, by the seed of each."""

    limit = 90

    def forward(self, session: Session) -> Session:
        is_good = trial_of(session).seed % 100 < self.limit
        return session.say("good" if is_good else "bad", role="assistant")


class Regressed(Steady):
    limit = 45


def score_good(session: Session) -> bool:
    return session.text == "good"


def run(store: Any, name: str, workflow: type[Workflow], seed: int, k: int = 3) -> None:
    evaluate(ROWS, workflow, scorers=[score_good], name=name, k=k, seed=seed, store=store)


def test_a_planted_regression_trips_the_gate_and_noise_does_not(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    run(store, "main", Steady, 1)
    run(store, "again", Steady, 2)
    run(store, "mine", Regressed, 3)
    noise = compare_evaluations("main", "again", store)
    assert noise.worse or noise.better  # it is not the same twice
    assert not noise.is_worse and noise.chance > 0.05
    planted = compare_evaluations("main", "mine", store)
    assert planted.is_worse and planted.chance <= 0.05
    assert not compare_evaluations("mine", "main", store).is_worse
    change = planted.worse[0].first_change
    assert change is not None and change.a is not None and change.b is not None
    assert (change.common_steps, change.a.text, change.b.text) == (1, "message good", "message bad")
    shell, at = Shell(tmp_path / "store"), ("--store", str(tmp_path / "store"))
    assert "mine is worse beyond noise" in shell("eval", "diff", "main", "mine", *at, code=1)
    assert "again is not worse" in shell("eval", "diff", "main", "again", *at)
    document = shell.json("eval", "diff", "main", "mine", *at, code=1)
    assert document["is_worse"] and document["pairs"] == 12
    assert "no evaluation 'none'" in shell.error(3, "eval", "diff", "main", "none", *at)


def test_equal_programs_trip_the_gate_as_seldom_as_its_level_says() -> None:
    chance, tripped, rounds = random.Random(5), 0, 400
    for _ in range(rounds):
        rates = [chance.random() for _ in range(20)]
        sides = [
            [TrialCounts(sum(chance.random() < rate for _ in range(3)), 3) for rate in rates]
            for _ in range(2)
        ]
        tripped += worse_chance(list(zip(*sides, strict=True))) <= 0.05
    assert 0 < tripped <= rounds * 0.05 + 3 * (rounds * 0.05 * 0.95) ** 0.5


def test_examples_of_other_rows_are_not_paired(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    for name, rows in (("a", ROWS[:3]), ("b", [ROWS[0], {"id": "e1", "input": "other"}])):
        evaluate(rows, Steady, scorers=[score_good], name=name, store=store)
    found = compare_evaluations("a", "b", store)
    assert (found.pairs, found.only_a, found.only_b) == (1, ("e1", "e2"), ("e1",))
    evaluate([{"input": "x"}], Steady, scorers=[score_good], name="c", store=store)
    with pytest.raises(InvalidValue, match="no example in common"):
        compare_evaluations("a", "c", store)


def test_the_chance_is_that_of_all_exchanges_of_trials() -> None:
    cases = [((1, 1), (0, 1)), ((2, 3), (1, 3)), ((3, 3), (1, 2))]
    pairs = [(TrialCounts(*one), TrialCounts(*other)) for one, other in cases]
    observed = sum(other.passed for _, other in pairs)
    ways = list[list[int]]()
    for one, other in pairs:
        passed = one.passed + other.passed
        trials = [1] * passed + [0] * (one.count + other.count - passed)
        ways.append([sum(chosen) for chosen in combinations(trials, other.count)])
    sums = [sum(each) for each in product(*ways)]
    expected = sum(each <= observed for each in sums) / len(sums)
    assert worse_chance(pairs) == pytest.approx(expected)
    # one trial of each: McNemar's exact test on 8 discordant pairs, 7 of them worse
    ones = [(TrialCounts(1, 1), TrialCounts(0, 1))] * 7 + [(TrialCounts(0, 1), TrialCounts(1, 1))]
    assert worse_chance(ones) == pytest.approx((comb(8, 0) + comb(8, 1)) / 2**8)


def test_the_estimators_are_those_of_the_books() -> None:
    counts = [TrialCounts(3, 4), TrialCounts(4, 4), TrialCounts(1, 4)]
    for power in (1, 2, 3, 4):
        shares = list[float]()
        for each in counts:
            trials = [True] * each.passed + [False] * (each.count - each.passed)
            chosen = list(combinations(trials, power))
            shares.append(sum(all(some) for some in chosen) / len(chosen))
        assert pass_power(counts, power) == pytest.approx(sum(shares) / 3)
    low, high = wilson_interval(0.5, 10)  # roots of (p - 1/2)² = z² p(1-p)/10
    for root in (low, high):
        assert (root - 0.5) ** 2 == pytest.approx(1.959963984540054**2 * root * (1 - root) / 10)
    assert wilson_interval(0.0, 5)[0] == 0.0 and wilson_interval(1.0, 5)[1] == 1.0
