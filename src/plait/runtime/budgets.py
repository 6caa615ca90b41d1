"""Budgets, enforced before the spend.

A spend is reserved before it is made; the real spend replaces the reservation. A reservation that
is never settled stays, because it may have been spent. All branches of a run draw on one budget; a
fork with a grant of its own has a budget that draws on the run's as well, in one step. A share of
each limit is kept back for a final answer, so that an agent can end well.

A budget is made from the logs when a run starts or is resumed, and runs that go on at the same time
in one process share it: `count` adds the spends on record. Nothing but `release`, of a spend that
certainly did not happen, gives anything back; going back in a session does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from plait.errors import InvalidValue
from plait.event import Json
from plait.event.kinds import Budget, Price, Usage
from plait.model import prices
from plait.runtime.process import THIS_PROCESS
from plait.session.state import NOTHING, Spent

RESERVE = 0.1  # of tokens, cost and wall time: kept for a final answer
CHARACTERS_PER_TOKEN = 4

_NANO = 1_000_000_000
_PRICED = ("openai", "anthropic")  # as the price list calls them
_FREE = ("local", "scripted")


class Amount(NamedTuple):
    """An amount that is spent or set aside.

    The units are those in which it is counted, not those in which limits are given.
    """

    tokens: int = 0
    cost_usd_nano: int = 0
    steps: int = 0
    tool_calls: int = 0

    def plus(self, other: Amount) -> Amount:
        return Amount(*(one + two for one, two in zip(self, other, strict=True)))

    def minus(self, other: Amount) -> Amount:
        return Amount(*(one - two for one, two in zip(self, other, strict=True)))

    @classmethod
    def of(cls, spent: Spent) -> Amount:
        return cls(spent.tokens, spent.cost_usd_nano, spent.model_calls, spent.tool_calls)


class Reservation:
    """A share that is set aside, until it is settled or released, once.

    Known by identity: two of the same size are two.
    """

    __slots__ = ("amount",)

    def __init__(self, amount: Amount) -> None:
        self.amount = amount

    def __repr__(self) -> str:
        return f"<reservation {self.amount}>"


class Refusal(NamedTuple):
    """A reservation that was refused: the limit that does not allow it, in its own unit (tokens,
    cost_usd, wall_s, steps, tool_calls).
    """

    limit: str
    asked: float
    left: float  # without the share that is kept for a final answer, unless this is one
    reason: str  # the account of the limit: left, used, set aside and kept
    is_unpriced: bool = False  # True: no price is known, and more would not help


class _Limit(NamedTuple):
    """One limit in the unit it is counted in."""

    name: str
    most: int
    kept: int  # for a final answer
    unit: int = 1  # how much of it is one of the unit the limit is given in


class SharedBudget:
    """One budget that many runs and branches draw on."""

    def __init__(
        self,
        limits: Budget | None,  # None: unlimited, only counted
        *,
        spent: Spent = NOTHING,  # of these limits, before
        wall_s: float = 0.0,  # time used before
        above: SharedBudget | tuple[SharedBudget, ...] | None = None,  # drawn on as well
        clock: Callable[[], float],  # seconds, from any start
    ) -> None:
        self.limits = limits or Budget()
        self._limits = _limits_of(self.limits)
        self._above = above if isinstance(above, tuple) else (above,) if above else ()
        self._clock = clock
        self._spent, self._reserved = Amount.of(spent), Amount()
        self._open: set[Reservation] = set()
        self._wall_s, self._since = wall_s, clock()

    # ── drawing on it ────────────────────────────────────────────────────────────────────────

    def reserve(
        self,
        *,
        tokens: int = 0,
        cost_usd_nano: int | None = 0,  # None: no price is known
        steps: int = 0,
        tool_calls: int = 0,
        reserve: bool = False,  # for the final answer: may use the share that is kept for it
    ) -> Reservation | Refusal:
        """Set aside before the spend, or say which limit does not allow it."""
        asked = Amount(tokens, cost_usd_nano or 0, steps, tool_calls)
        _check(asked)
        with THIS_PROCESS.budgets_lock:
            for level in self._levels():
                if refusal := level._refuses(asked, reserve, priced=cost_usd_nano is not None):
                    return refusal
            for level in self._levels():
                level._reserved = level._reserved.plus(asked)
            reservation = Reservation(asked)
            self._open.add(reservation)
            return reservation

    def settle(
        self,
        reservation: Reservation,
        *,
        tokens: int | None = None,
        cost_usd_nano: int | None = None,
        steps: int | None = None,
        tool_calls: int | None = None,
    ) -> None:
        """Replace a reservation by the real spend, more or less.

        None: not known, so as it was reserved.
        """
        given = (tokens, cost_usd_nano, steps, tool_calls)
        real = Amount(
            *(
                set_aside if known is None else known
                for known, set_aside in zip(given, reservation.amount, strict=True)
            )
        )
        _check(real)
        self._close(reservation, real)

    def release(self, reservation: Reservation) -> None:
        """Give a reservation back. Only for a spend that certainly did not happen."""
        self._close(reservation, Amount())

    def count(self, spent: Spent) -> None:
        """Add a recorded spend on all levels, even beyond the limits."""
        amount = Amount.of(spent)
        with THIS_PROCESS.budgets_lock:
            for level in self._levels():
                level._spent = level._spent.plus(amount)

    def _close(self, reservation: Reservation, real: Amount) -> None:
        with THIS_PROCESS.budgets_lock:
            if reservation not in self._open:
                step = "settle or release each reservation once, with the pool that made it"
                raise InvalidValue("reservation", "it is not open in this pool", step)
            self._open.remove(reservation)
            for level in self._levels():
                level._reserved = level._reserved.minus(reservation.amount)
                level._spent = level._spent.plus(real)

    # ── looking at it ────────────────────────────────────────────────────────────────────────

    @property
    def amount_spent(self) -> Amount:
        """The spends that are settled or on record."""
        return self._spent

    @property
    def amount_reserved(self) -> Amount:
        """The reservations that are not settled. They count as spent."""
        return self._reserved

    @property
    def wall_s(self) -> float:
        """The time used, with the time used before."""
        return self._wall_s + max(0.0, self._clock() - self._since)

    def limits_left(self) -> Budget:
        """Return the limits that remain on the tightest level, with the share for a final answer.

        None: unlimited.
        """
        with THIS_PROCESS.budgets_lock:
            least: dict[str, int] = {}
            for level in self._levels():
                for limit in level._limits:
                    remains = max(0, limit.most - level._amount_drawn(limit))
                    least[limit.name] = min(remains, least.get(limit.name, remains))
            walls = [
                max(0.0, level.limits.wall_s_max - level.wall_s)
                for level in self._levels()
                if level.limits.wall_s_max is not None
            ]
        cost = least.get("cost_usd")
        return Budget(
            tokens_max=least.get("tokens"),
            cost_usd_max=None if cost is None else cost / _NANO,
            wall_s_max=min(walls, default=None),
            steps_max=least.get("steps"),
            tool_calls_max=least.get("tool_calls"),
        )

    def nearly_used(self) -> str | None:
        """Return the first limit of which only the share for a final answer is left.

        None: there is some of each.
        """
        with THIS_PROCESS.budgets_lock:
            return next((name for level in self._levels() for name in level._nearly_used()), None)

    def __repr__(self) -> str:
        return f"<budget {self.limits_left()}>"

    # ── one level, with the lock held ────────────────────────────────────────────────────────

    def _levels(self) -> Iterator[SharedBudget]:
        """Yield this budget and all it draws on, each once, though several ways may lead to it."""
        found = [self]
        for level in found:
            yield level
            found += [above for above in level._above if above not in found]

    def _amount_drawn(self, limit: _Limit) -> int:
        field = "cost_usd_nano" if limit.name == "cost_usd" else limit.name
        return getattr(self._spent, field) + getattr(self._reserved, field)

    def _refuses(self, asked: Amount, final: bool, *, priced: bool) -> Refusal | None:
        for limit in self._limits:
            wanted = getattr(asked, "cost_usd_nano" if limit.name == "cost_usd" else limit.name)
            left = limit.most - self._amount_drawn(limit) - (0 if final else limit.kept)
            if limit.name == "cost_usd" and not priced:
                why = "no price is known, so cost_usd_max cannot be kept"
                return Refusal(limit.name, 0, max(0, left) / limit.unit, why, is_unpriced=True)
            # A spend that takes nothing of a limit is not refused for it: a tool call can be made
            # when the tokens are gone.
            if wanted and wanted > left:
                reason = self._account(limit, max(0, left), final)
                return Refusal(limit.name, wanted / limit.unit, max(0, left) / limit.unit, reason)
        return self._refuses_time(final)

    def _account(self, limit: _Limit, left: int, final: bool) -> str:
        """Return where a limit has gone: "13 of 250 tokens are left: 22 used, …"."""
        field = "cost_usd_nano" if limit.name == "cost_usd" else limit.name
        drawn = self._amount_drawn(limit)
        kept = 0 if final else min(limit.kept, max(0, limit.most - drawn))
        uses = (
            (getattr(self._spent, field), "used"),
            (getattr(self._reserved, field), "set aside for asks under way"),
            (kept, "kept for a final answer"),
        )
        told = ", ".join(f"{amount / limit.unit:,g} {use}" for amount, use in uses if amount)
        name = limit.name.replace("_", " ").replace("cost usd", "US dollars")
        account = f"{left / limit.unit:,g} of {limit.most / limit.unit:,g} {name} are left"
        return f"{account}: {told}" if told else account

    def _refuses_time(self, final: bool) -> Refusal | None:
        most = self.limits.wall_s_max
        if most is None:
            return None
        left = most * (1 if final else 1 - RESERVE) - self.wall_s
        return (
            None
            if left > 0
            else Refusal("wall_s", 0.0, 0.0, f"of {most:g} s, {self.wall_s:.1f} s are used")
        )

    def _nearly_used(self) -> Iterator[str]:
        for limit in self._limits:
            if limit.most - self._amount_drawn(limit) <= limit.kept:
                yield limit.name
        if self._refuses_time(final=False):
            yield "wall_s"


def _limits_of(budget: Budget) -> tuple[_Limit, ...]:
    """The limits that are set, wall time aside, in the order in which they are named when several
    do not allow something.
    """
    for name in Budget.__struct_fields__:
        most = getattr(budget, name)
        if most is not None and not 0 <= most < math.inf:
            raise InvalidValue(
                name, f"{most!r} is not a limit", "pass a number from 0, or None for no limit"
            )
    found: list[_Limit] = []
    if budget.tokens_max is not None:
        found.append(_Limit("tokens", budget.tokens_max, _final_share(budget.tokens_max)))
    if budget.cost_usd_max is not None:
        most = round(budget.cost_usd_max * _NANO)
        found.append(_Limit("cost_usd", most, _final_share(most), _NANO))
    if budget.steps_max is not None:
        # A grant of a single step is meant so: then that one is the answer.
        found.append(_Limit("steps", budget.steps_max, 1 if budget.steps_max > 1 else 0))
    if budget.tool_calls_max is not None:
        found.append(_Limit("tool_calls", budget.tool_calls_max, 0))  # a final answer calls nothing
    return tuple(found)


def _final_share(most: int) -> int:
    """A tenth, rounded up: also of a small limit there is something left to end with."""
    return -(-most // round(1 / RESERVE))


def _check(amount: Amount) -> None:
    for name, value in zip(amount._fields, amount, strict=True):
        if value < 0:
            raise InvalidValue(name, f"{value} is less than nothing", "pass what is spent, from 0")


# ── estimates ────────────────────────────────────────────────────────────────────────────────


def estimate(turn_characters: int, parameters: Mapping[str, Json]) -> Usage:
    """Estimate the tokens of an ask before it is made: four characters are a token, and an answer
    is as long as it may be.

    Without tokens_max that length is not known: any number would refuse an answer that fits, or
    promise a limit that is not kept. So only the question is counted, and one answer may go over
    the limit, by its own length; the next ask is refused.
    """
    most = parameters.get("tokens_max")
    answer = most if isinstance(most, int) and not isinstance(most, bool) and most > 0 else 0
    return Usage(input_tokens=-(-turn_characters // CHARACTERS_PER_TOKEN), output_tokens=answer)


def price_of(model: str, usage: Usage) -> Price | None:
    """Return the price of a usage for a model named as in `openai:gpt-5`. None: it is not known."""
    provider, _, name = model.partition(":")
    if provider in _FREE:
        return prices.FREE
    return prices.price_of(provider, name, usage) if provider in _PRICED and name else None
