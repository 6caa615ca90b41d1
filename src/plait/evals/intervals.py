"""Rates with intervals, and the test of the gate. All of it is exact or in closed form: no chance
is involved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb, sqrt

import msgspec

_Z = 1.959963984540054  # 95 %


class TrialCounts(msgspec.Struct, frozen=True):
    """The trials of an example that passed, of so many."""

    passed: int
    count: int


def wilson_interval(rate: float, count: int) -> tuple[float, float]:
    """Return Wilson's interval of 95 % for a mean of `count` values between 0 and 1.

    For values other than 0 and 1 it is wider than need be: their variance is smaller.
    """
    if not count:
        return 0.0, 1.0
    square = _Z * _Z
    middle = (rate + square / (2 * count)) / (1 + square / count)
    spread = rate * (1 - rate) / count + square / (4 * count * count)
    half = _Z * sqrt(spread) / (1 + square / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def pass_power(counts: Iterable[TrialCounts], power: int) -> float:
    """Return the unbiased estimate that `power` trials of an example all pass: of each example the
    share of its choices of so many trials in which all have passed.
    """
    shares = [comb(each.passed, power) / comb(each.count, power) for each in counts]
    return sum(shares) / len(shares)


def worse_chance(pairs: Sequence[tuple[TrialCounts, TrialCounts]]) -> float:
    """Return the chance that the second side passes as seldom as it did, or less often, if both
    sides are the same program.

    The trials of an example could then change sides: its passes on the second side are
    hypergeometric, and the examples are independent. The sum is convolved exactly. With one trial
    of each example this is McNemar's exact test, one-sided.
    """
    chances, observed = [1.0], 0
    for first, second in pairs:
        passed, count = first.passed + second.passed, first.count + second.count
        low, high = max(0, passed - first.count), min(passed, second.count)
        if low == high:  # all passed, or none did: it says nothing
            continue
        observed += second.passed - low
        ways = comb(count, second.count)
        own = [
            comb(passed, here) * comb(count - passed, second.count - here) / ways
            for here in range(low, high + 1)
        ]
        chances = _convolved(chances, own)
    return min(1.0, sum(chances[: observed + 1]))


def _convolved(left: list[float], right: list[float]) -> list[float]:
    found = [0.0] * (len(left) + len(right) - 1)
    for at, chance in enumerate(left):
        for more, other in enumerate(right):
            found[at + more] += chance * other
    return found
