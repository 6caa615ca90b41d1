"""Shared budgets: nothing is spent that was not there, on any level, however many ask at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from plait import Budget
from plait.errors import InvalidValue
from plait.event.kinds import Usage
from plait.model.prices import FREE
from plait.runtime.budgets import (
    RESERVE,
    Amount,
    Refusal,
    Reservation,
    SharedBudget,
    estimate,
    price_of,
)
from plait.session.state import NOTHING, Spent


@pytest.fixture(autouse=True)
def store() -> None:
    """A budget needs none."""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def budget(
    above: SharedBudget | None = None, *, spent: Spent = NOTHING, **limits: Any
) -> SharedBudget:
    return SharedBudget(Budget(**limits), spent=spent, above=above, clock=Clock())


def taken(found: Reservation | Refusal) -> Reservation:
    assert isinstance(found, Reservation), found
    return found


def refused(found: Reservation | Refusal) -> tuple[str, float, float]:
    assert isinstance(found, Refusal), found
    assert found.reason
    return found[:3]


# ── one budget ────────────────────────────────────────────────────────────────────────────────


def test_without_limits_everything_is_allowed_and_counted() -> None:
    free = SharedBudget(None, clock=Clock())
    mine = taken(free.reserve(tokens=10**12, cost_usd_nano=None, steps=10**6, tool_calls=10**6))
    assert free.limits_left() == Budget()
    assert free.nearly_used() is None
    free.settle(mine, tokens=7, cost_usd_nano=9)
    assert (free.amount_spent, free.amount_reserved) == (Amount(7, 9, 10**6, 10**6), Amount())


def test_a_limit_refuses_before_the_spend_and_says_which_and_how_much_is_left() -> None:
    small = budget(tokens_max=1000, cost_usd_max=0.5, steps_max=3, tool_calls_max=2)
    assert refused(small.reserve(tokens=901)) == ("tokens", 901, 900)
    assert refused(small.reserve(cost_usd_nano=450_000_001)) == ("cost_usd", 0.450000001, 0.45)
    assert refused(small.reserve(steps=3)) == ("steps", 3, 2)
    assert refused(small.reserve(tool_calls=3)) == ("tool_calls", 3, 2)
    # the first
    assert (
        refused(small.reserve(tool_calls=3, steps=3, cost_usd_nano=10**9, tokens=901))[0]
        == "tokens"
    )
    assert (small.amount_spent, small.amount_reserved) == (Amount(), Amount())
    taken(small.reserve(tokens=900, cost_usd_nano=450_000_000, steps=2, tool_calls=2))
    assert small.limits_left() == Budget(
        tokens_max=100, cost_usd_max=0.05, steps_max=1, tool_calls_max=0
    )


def test_who_asks_for_nothing_of_a_limit_is_not_refused_for_it() -> None:
    small = budget(tokens_max=100, tool_calls_max=5)
    small.count(Spent(Usage(500, 500)))
    taken(small.reserve(tool_calls=1))
    assert refused(small.reserve(tokens=1)) == ("tokens", 1, 0)


def test_a_reservation_counts_until_it_is_settled_with_what_was_really_spent() -> None:
    small = budget(tokens_max=1000)
    mine = taken(small.reserve(tokens=900))
    assert refused(small.reserve(tokens=1)) == ("tokens", 1, 0)
    small.settle(mine, tokens=300)
    other = taken(small.reserve(tokens=600))
    small.settle(other, tokens=2000)  # an answer may be longer than anybody thought
    assert small.amount_spent.tokens == 2300
    assert small.limits_left() == Budget(tokens_max=0)
    assert refused(small.reserve(tokens=1, reserve=True)) == ("tokens", 1, 0)


def test_what_is_not_known_is_settled_as_it_was_reserved() -> None:
    small = budget(tokens_max=1000, cost_usd_max=1)
    small.settle(
        taken(small.reserve(tokens=100, cost_usd_nano=50, steps=1, tool_calls=2)),
        tokens=80,
        cost_usd_nano=None,
    )
    assert small.amount_spent == Amount(80, 50, 1, 2)


def test_what_certainly_did_not_happen_is_given_back_once() -> None:
    small = budget(tool_calls_max=1)
    mine = taken(small.reserve(tool_calls=1))
    small.release(mine)
    assert small.limits_left() == Budget(tool_calls_max=1)
    for again in (small.release, small.settle):
        with pytest.raises(InvalidValue, match="once"):
            again(mine)
    other = taken(small.reserve(tool_calls=1))
    with pytest.raises(InvalidValue, match="once"):
        budget(tool_calls_max=1).release(other)
    small.settle(other)
    with pytest.raises(InvalidValue, match="once"):
        small.release(other)
    assert (small.amount_spent, small.amount_reserved) == (Amount(tool_calls=1), Amount())


def test_without_a_price_a_limit_on_cost_refuses() -> None:
    small = budget(cost_usd_max=1.0)
    found = small.reserve(cost_usd_nano=None, reserve=True)
    assert refused(found) == ("cost_usd", 0, 1.0)
    assert isinstance(found, Refusal) and "no price is known" in found.reason
    taken(small.reserve(tool_calls=1))  # what costs nothing has a price
    below = budget(small, tokens_max=1000)
    assert refused(below.reserve(tokens=1, cost_usd_nano=None))[0] == "cost_usd"


def test_what_is_on_record_is_counted_whatever_the_limits_say() -> None:
    small = budget(tokens_max=1000, spent=Spent(Usage(100, 50), 7, model_calls=1, tool_calls=2))
    assert small.amount_spent == Amount(150, 7, 1, 2)
    small.count(Spent(Usage(800, 200), 3, model_calls=1))
    assert small.amount_spent == Amount(1150, 10, 2, 2)
    assert small.limits_left() == Budget(tokens_max=0)


@pytest.mark.parametrize(
    "asked", [{"tokens": -1}, {"cost_usd_nano": -1}, {"steps": -1}, {"tool_calls": -1}]
)
def test_nobody_asks_for_less_than_nothing(asked: dict[str, int]) -> None:
    free = SharedBudget(None, clock=Clock())
    with pytest.raises(InvalidValue, match=next(iter(asked))):
        free.reserve(**asked)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=next(iter(asked))):
        free.settle(taken(free.reserve()), **asked)


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), -1])
@pytest.mark.parametrize("name", Budget.__struct_fields__)
def test_a_limit_is_a_number(name: str, limit: float) -> None:
    with pytest.raises(InvalidValue, match=name):
        SharedBudget(Budget(**{name: limit}), clock=Clock())  # type: ignore[arg-type]


# ── ending well ──────────────────────────────────────────────────────────────────────────────


def test_a_share_is_kept_for_the_final_answer() -> None:
    small = budget(tokens_max=1000, cost_usd_max=1.0, steps_max=5)
    assert small.nearly_used() is None
    taken(small.reserve(tokens=900, cost_usd_nano=900_000_000, steps=4))
    assert refused(small.reserve(tokens=1))[0] == "tokens"
    assert refused(small.reserve(cost_usd_nano=1))[0] == "cost_usd"
    assert refused(small.reserve(steps=1))[0] == "steps"
    assert small.nearly_used() == "tokens"
    taken(small.reserve(tokens=100, cost_usd_nano=100_000_000, steps=1, reserve=True))
    assert refused(small.reserve(tokens=1, reserve=True)) == ("tokens", 1, 0)


def test_also_a_small_limit_keeps_something_and_a_single_step_is_not_kept() -> None:
    assert refused(budget(tokens_max=3).reserve(tokens=3)) == ("tokens", 3, 2)
    taken(budget(steps_max=1).reserve(steps=1))
    assert refused(budget(steps_max=2).reserve(steps=2)) == ("steps", 2, 1)
    nothing = budget(tokens_max=0, cost_usd_max=0, steps_max=0, tool_calls_max=0, wall_s_max=0)
    assert refused(nothing.reserve(steps=1, reserve=True)) == ("steps", 1, 0)
    assert nothing.nearly_used() == "tokens"


@given(st.integers(1, 10**12))
def test_a_tenth_is_kept_of_any_limit(most: int) -> None:
    kept = most - int(refused(budget(tokens_max=most).reserve(tokens=most))[2])
    assert kept - 1 < most * RESERVE * (1 + 1e-12) and most * RESERVE * (1 - 1e-12) <= kept


@pytest.mark.parametrize(
    ("limits", "spent", "name"),
    [
        ({"tokens_max": 10}, Spent(Usage(9)), "tokens"),
        ({"cost_usd_max": 1e-8}, Spent(cost_usd_nano=9), "cost_usd"),
        ({"steps_max": 3}, Spent(model_calls=2), "steps"),
        ({"tool_calls_max": 3}, Spent(tool_calls=3), "tool_calls"),
    ],
)
def test_it_is_told_which_limit_is_nearly_used(
    limits: dict[str, Any], spent: Spent, name: str
) -> None:
    assert budget(**limits, spent=spent).nearly_used() == name
    assert budget(budget(**limits, spent=spent)).nearly_used() == name
    assert budget(**limits).nearly_used() is None


def test_wall_time_is_checked_from_when_the_budget_was_made_on() -> None:
    clock = Clock()
    timed = SharedBudget(Budget(wall_s_max=100), wall_s=30, clock=clock)
    below = SharedBudget(Budget(wall_s_max=1000), above=timed, clock=clock)
    assert timed.limits_left() == below.limits_left() == Budget(wall_s_max=70)
    clock.now += 59
    taken(below.reserve(tool_calls=1))
    clock.now += 1
    assert timed.wall_s == 90
    assert refused(below.reserve(tool_calls=1)) == ("wall_s", 0, 0)
    assert below.nearly_used() == "wall_s"
    mine = taken(below.reserve(steps=1, reserve=True))
    clock.now += 10
    assert refused(below.reserve(steps=1, reserve=True)) == ("wall_s", 0, 0)
    assert below.limits_left() == Budget(wall_s_max=0)
    below.settle(mine, tokens=5)  # what was begun is counted, however late
    assert timed.amount_spent.tokens == 5
    clock.now -= 1000  # a clock that goes back gives nothing back of what was used before
    assert timed.wall_s == 30


# ── a fork with a grant of its own ───────────────────────────────────────────────────────────


def test_a_fork_with_a_grant_draws_on_both() -> None:
    run = budget(tokens_max=1000, steps_max=10)
    fork = budget(run, tokens_max=500)
    other = budget(run, tokens_max=800)
    mine = taken(fork.reserve(tokens=450, steps=1))
    assert refused(fork.reserve(tokens=1)) == ("tokens", 1, 0)
    assert (run.amount_reserved, other.amount_reserved) == (Amount(450, 0, 1), Amount())
    # within its own grant, beyond the run's
    assert refused(other.reserve(tokens=451)) == ("tokens", 451, 450)
    assert other.amount_reserved == Amount()
    assert other.limits_left() == Budget(tokens_max=550, steps_max=9)
    fork.settle(mine, tokens=100)
    assert fork.amount_spent == run.amount_spent == Amount(100, 0, 1)
    taken(other.reserve(tokens=720))
    fork.count(Spent(Usage(5)))
    assert (fork.amount_spent.tokens, run.amount_spent.tokens, other.amount_spent.tokens) == (
        105,
        105,
        0,
    )
    with pytest.raises(InvalidValue):
        run.release(taken(fork.reserve(steps=1)))  # not its own


# ── laws ─────────────────────────────────────────────────────────────────────────────────────

FIELDS = {
    "tokens_max": "tokens",
    "cost_usd_max": "cost_usd_nano",
    "steps_max": "steps",
    "tool_calls_max": "tool_calls",
}
limits = st.builds(
    Budget,
    tokens_max=st.none() | st.integers(0, 40),
    cost_usd_max=st.none() | st.integers(0, 40).map(lambda nano: nano / 1e9),
    steps_max=st.none() | st.integers(0, 5),
    tool_calls_max=st.none() | st.integers(0, 5),
)
amounts = st.builds(
    Amount, st.integers(0, 25), st.integers(0, 25), st.integers(0, 2), st.integers(0, 2)
)


class Drawing(RuleBasedStateMachine):
    """A run and two forks of it, against plain sums."""

    made: Bundle[tuple[int, Reservation]] = Bundle("made")
    budgets: list[SharedBudget]

    @initialize(run=limits, one=limits, other=limits)
    def start(self, run: Budget, one: Budget, other: Budget) -> None:
        top = SharedBudget(run, clock=Clock())
        self.budgets = [
            top,
            SharedBudget(one, above=top, clock=Clock()),
            SharedBudget(other, above=top, clock=Clock()),
        ]
        # of each, by everything that was ever granted, settled or counted
        self.drawn = [Amount(), Amount(), Amount()]
        # what no reservation asked for: longer answers, and what was on record
        self.beyond = [Amount(), Amount(), Amount()]

    def levels(self, at: int) -> list[int]:
        return [at] if at == 0 else [at, 0]

    def most(self, level: int, field: str) -> int | None:
        most = getattr(self.budgets[level].limits, field)
        return round(most * 1e9) if most is not None and field == "cost_usd_max" else most

    def kept(self, field: str, most: int) -> int:
        return {"steps_max": int(most > 1), "tool_calls_max": 0}.get(field, (most + 9) // 10)

    def fits(self, at: int, asked: Amount, final: bool) -> bool:
        for level in self.levels(at):
            for field, name in FIELDS.items():
                most, wanted = self.most(level, field), getattr(asked, name)
                if most is not None and wanted:
                    room = (
                        most
                        - getattr(self.drawn[level], name)
                        - (0 if final else self.kept(field, most))
                    )
                    if wanted > room:
                        return False
        return True

    def add(self, at: int, amount: Amount) -> None:
        for level in self.levels(at):
            self.drawn[level] = self.drawn[level].plus(amount)

    @rule(target=made, at=st.integers(0, 2), asked=amounts, final=st.booleans())
    def reserve(self, at: int, asked: Amount, final: bool) -> Any:
        fits = self.fits(at, asked, final)
        found = self.budgets[at].reserve(**asked._asdict(), reserve=final)
        assert isinstance(found, Reservation) == fits
        if isinstance(found, Refusal):
            assert found.asked > found.left >= 0
            return multiple()  # pyright: ignore[reportUnknownVariableType]  none
        self.add(at, asked)
        return at, found

    @rule(one=consumes(made), real=amounts)
    def settle(self, one: tuple[int, Reservation], real: Amount) -> None:
        at, reservation = one
        self.budgets[at].settle(reservation, **real._asdict())
        self.add(at, real.minus(reservation.amount))
        more = Amount(
            *(
                max(0, most - set_aside)
                for most, set_aside in zip(real, reservation.amount, strict=True)
            )
        )
        for level in self.levels(at):
            self.beyond[level] = self.beyond[level].plus(more)

    @rule(one=consumes(made))
    def release(self, one: tuple[int, Reservation]) -> None:
        self.budgets[one[0]].release(one[1])
        self.add(one[0], Amount().minus(one[1].amount))

    @rule(at=st.integers(0, 2), amount=amounts)
    def count(self, at: int, amount: Amount) -> None:
        self.budgets[at].count(
            Spent(Usage(amount.tokens), amount.cost_usd_nano, 0, amount.steps, amount.tool_calls)
        )
        self.add(at, amount)
        for level in self.levels(at):
            self.beyond[level] = self.beyond[level].plus(amount)

    @rule(at=st.integers(0, 2))
    def look(self, at: int) -> None:
        """Looking changes nothing, and what is said to be left can be had: all of it, and not one
        more.
        """
        self.budgets[at].nearly_used()
        left = self.budgets[at].limits_left()
        for field, name in FIELDS.items():
            most = getattr(left, field)
            if most is None:
                assert all(self.most(level, field) is None for level in self.levels(at))
                continue
            whole = round(most * 1e9) if field == "cost_usd_max" else most
            assert isinstance(self.budgets[at].reserve(**{name: whole + 1}, reserve=True), Refusal)  # type: ignore[arg-type]
            found = self.budgets[at].reserve(**{name: whole}, reserve=True)  # type: ignore[arg-type]
            self.budgets[at].release(taken(found))

    @invariant()
    def the_sums_are_right(self) -> None:
        for level, found in enumerate(getattr(self, "budgets", [])):
            assert found.amount_spent.plus(found.amount_reserved) == self.drawn[level]

    @invariant()
    def no_reservation_goes_over_a_limit(self) -> None:
        for level in range(len(getattr(self, "budgets", []))):
            for field, name in FIELDS.items():
                most = self.most(level, field)
                if most is not None:
                    assert getattr(self.drawn[level], name) <= most + getattr(
                        self.beyond[level], name
                    )


TestDrawing = Drawing.TestCase


# ── many at once ─────────────────────────────────────────────────────────────────────────────

THREADS = 8


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """The same by many threads, which start together."""
    barrier = Barrier(THREADS)

    def begin(number: int) -> Any:
        barrier.wait(timeout=30)
        return work(number)

    with ThreadPoolExecutor(THREADS) as executor:
        return list(executor.map(begin, range(THREADS)))


def test_many_threads_together_get_what_is_there_and_no_more() -> None:
    run = budget(tokens_max=2000, steps_max=1001)
    forks = [budget(run, tokens_max=400) for _ in range(THREADS // 2)]

    def draw(number: int) -> tuple[int, int]:
        mine = forks[number % len(forks)]
        got = 0
        while isinstance(mine.reserve(tokens=1, steps=1), Reservation):
            got += 1
        return number % len(forks), got

    got = at_once(draw)
    total = sum(count for _, count in got)
    # the steps, but for the one that is kept
    assert total == run.amount_reserved.steps == run.amount_reserved.tokens == 1000
    for number, fork in enumerate(forks):
        assert (
            fork.amount_reserved.tokens
            == sum(count for which, count in got if which == number)
            <= 360
        )


def test_many_threads_that_settle_and_release_leave_the_right_sums() -> None:
    run = budget(tokens_max=500)
    fork = budget(run, tokens_max=450)
    over: list[int] = []

    def draw(number: int) -> int:
        mine, spent = (run, fork)[number % 2], 0
        for turn in range(400):
            found = mine.reserve(tokens=20)
            if isinstance(found, Refusal):
                continue
            together = run.amount_spent.plus(run.amount_reserved).tokens
            if together > 450:
                over.append(together)
            if turn % 8:
                mine.release(found)
            else:
                mine.settle(found, tokens=1)
                spent += 1
        return spent

    assert sum(at_once(draw)) == run.amount_spent.tokens <= 450
    assert run.amount_reserved == fork.amount_reserved == Amount()
    assert over == []


# ── what something will take ─────────────────────────────────────────────────────────────────


def test_an_estimate_is_the_question_and_the_longest_answer() -> None:
    assert estimate(0, {}) == Usage()
    assert estimate(4001, {}) == Usage(input_tokens=1001)  # nobody knows how long the answer may be
    assert estimate(400, {"tokens_max": 256, "temperature": 0}) == Usage(
        input_tokens=100, output_tokens=256
    )
    for odd in (None, True, "256", -1, 2.5):
        assert estimate(4, {"tokens_max": odd}) == Usage(input_tokens=1)


def test_a_price_is_by_the_list_free_where_nobody_is_paid_and_never_made_up() -> None:
    pytest.importorskip("genai_prices")
    usage = Usage(1000, 100)
    known, more = price_of("openai:gpt-5", usage), price_of("openai:gpt-5", Usage(1000, 200))
    assert known is not None and more is not None and 0 < known.cost_usd_nano < more.cost_usd_nano
    assert price_of("local:smollm2", usage) == price_of("scripted", usage) == FREE
    for unknown in (
        "openai:no-such-model",
        "openai",
        "openai:",
        "http://127.0.0.1:8000#m",
        "my-script",
        "",
    ):
        assert price_of(unknown, usage) is None


def test_a_budget_tells_what_is_used_set_aside_and_kept() -> None:
    budget = SharedBudget(Budget(tokens_max=250, tool_calls_max=1), clock=lambda: 0.0)
    budget.count(Spent(Usage(20, 2)))
    assert isinstance(budget.reserve(tokens=190), Reservation)
    refusal = budget.reserve(tokens=190)
    assert isinstance(refusal, Refusal) and (refusal.asked, refusal.left) == (190, 13)
    uses = "22 used, 190 set aside for asks under way, 25 kept for a final answer"
    assert refusal.reason == f"13 of 250 tokens are left: {uses}"
    refusal = budget.reserve(tool_calls=2)
    assert isinstance(refusal, Refusal) and refusal.reason == "1 of 1 tool calls are left"
