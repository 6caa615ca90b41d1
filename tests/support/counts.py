"""The amount of work of a test, its findings, and the number of calls of an act."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Callable

EXAMPLES: Counter[str] = Counter()
"""How many examples each law was tried on; printed at the end of the run."""


def count(law: str, store: object) -> None:
    """Count one example of a law."""
    EXAMPLES[f"{law} on {type(store).__name__}"] += 1


FINDINGS: list[str] = []
"""What each part of the faults was tried on and what came of it, with its seed; printed at the
end of the run.
"""


def dose(name: str, short: int, long: int, ci: int | None = None) -> int:
    """Return an amount: the one in the environment under this name, else `long` in `make torture`,
    `ci` in CI, `short` elsewhere.
    """
    asked = os.environ.get(name)
    assert not asked or asked.isdecimal(), f"{name}={asked} is not a number"
    if asked:
        return int(asked)
    if os.environ.get("TORTURE"):
        return long
    return ci if ci is not None and os.environ.get("LONG") else short


def seed() -> int:
    """Return the seed of chance: SEED reproduces a run."""
    asked = os.environ.get("SEED")
    assert not asked or asked.isdecimal(), f"SEED={asked} is not a number"
    return int(asked) if asked else random.randrange(10**6)


def report(part: str, counts: str, seed: int | None = None) -> None:
    """A line of the table at the end: `report("kill at random", "1,000 kills, 0 lost", seed)`."""
    FINDINGS.append(f"{part}: {counts}" + (f" (SEED={seed})" if seed is not None else ""))


def count_calls(act: Callable[[], object]) -> int:
    """Count the function calls, in Python and in C, that an act takes: the same on a busy machine
    as on a quiet one.
    """
    calls = 0

    def count_call(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        act()
    finally:
        sys.setprofile(before)
    return calls


def growth(act: Callable[[int], object], small: int, times: int = 2) -> float:
    """Return the calls of `act(small * times)` over those of `act(small)`, divided by `times`:
    1.0 is linear.
    """
    return count_calls(lambda: act(small * times)) / count_calls(lambda: act(small)) / times
