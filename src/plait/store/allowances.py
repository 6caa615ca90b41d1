"""The arithmetic of allowances: a level that refills with time, for stores without a server.

`postgres/allowances.py` has the same as one statement; `plait.testing.StoreContract` compares them.
"""

from __future__ import annotations

import math

import msgspec

from plait.store.moment import Allowance, Drawn

CLOSED_S_MAX = 3600.0  # also if the clock was set back meanwhile


class Level(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An allowance as it was left: times are by the clock of its store, in seconds."""

    level: float
    at_s: float
    closed_until_s: float = 0.0


def draw_from(
    found: Level | None,
    now_s: float,
    amount: float,
    per_s: float,
    size: float,
    most: float,
    reserves: bool,
) -> tuple[Level, Drawn]:
    """Draw from an allowance; return it as it is left, and the answer. None: it is full."""
    known = found or Level(math.inf, now_s)
    until_s = min(known.closed_until_s, now_s + CLOSED_S_MAX)
    stock = min(size, known.level + per_s * max(0.0, now_s - max(known.at_s, until_s)))
    wait_s = max(0.0, until_s - now_s)
    if amount > 0:
        wait_s += max(0.0, min(amount, size) - stock) / per_s
    if amount <= 0 or (wait_s and reserves):
        drawn = amount
    else:
        drawn = max(amount, min(most, stock)) if not wait_s else 0.0
    return Level(min(size, stock - drawn), now_s, until_s), Drawn(drawn, wait_s)


def close_for(found: Level | None, now_s: float, seconds: float) -> Level:
    """Return an allowance that is closed for so long."""
    known = found or Level(math.inf, now_s)
    until_s = max(known.closed_until_s, now_s + min(seconds, CLOSED_S_MAX))
    return msgspec.structs.replace(known, closed_until_s=until_s)


def as_allowance(level: Level, now_s: float) -> Allowance:
    closed_s = min(max(0.0, level.closed_until_s - now_s), CLOSED_S_MAX)
    return Allowance(level.level, max(0.0, now_s - level.at_s), closed_s)
