"""Allowances: amounts that refill with time, and that all processes share.

Most tests refill so slowly that the time between two draws changes nothing that they compare.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

from plait.errors import InvalidValue, StoreClosed
from plait.testing.store.bells import GOOD_NAMES, ODD_NAMES
from plait.testing.store.durable import DurablePart
from plait.testing.store.processes import fork_all
from plait.testing.writing import Opened, check_refused, verify

_SLOW = 1e-6  # per second
_NEAR = 0.01  # what refills during a test, or passes of a long wait, in parts of it


def _is_near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_NEAR, abs_tol=_NEAR)


class AllowanceContract(DurablePart):
    def test_an_allowance_is_full_at_first_and_gives_no_more_than_it_has(
        self, opened: Opened
    ) -> None:
        store = opened()
        for amount in (4, 5.5):
            drawn = store.draw("a", amount, per_s=_SLOW, size=10)
            assert (drawn.amount, drawn.wait_s) == (amount, 0)
        drawn = store.draw("a", 2, per_s=_SLOW, size=10)
        assert drawn.amount == 0 and _is_near(drawn.wait_s, 1.5 / _SLOW)
        assert store.draw("a", 0.5, per_s=_SLOW, size=10).amount == 0.5
        assert store.draw("b", 10, per_s=_SLOW, size=10).amount == 10

    def test_most_is_given_if_there_is_more(self, opened: Opened) -> None:
        store = opened()
        assert store.draw("a", 1, per_s=_SLOW, size=10, most=4).amount == 4
        assert _is_near(store.draw("a", 1, per_s=_SLOW, size=10, most=100).amount, 6)
        assert store.draw("a", 1, per_s=_SLOW, size=10, most=4).amount == 0
        assert store.draw("a", -3, per_s=_SLOW, size=10, most=4).amount == -3
        assert store.draw("a", 2, per_s=_SLOW, size=10, most=1).amount == 2
        assert store.draw("new", 1, per_s=_SLOW, size=10, most=100).amount == 10

    def test_reserved_amounts_come_one_after_another(self, opened: Opened) -> None:
        store = opened()
        waits = list[float]()
        for _ in range(4):
            drawn = store.draw("a", 5, per_s=_SLOW, size=10, reserves=True)
            assert drawn.amount == 5
            waits.append(drawn.wait_s * _SLOW)
        assert waits[:2] == [0, 0] and _is_near(waits[2], 5) and _is_near(waits[3], 10)
        drawn = store.draw("a", 1, per_s=_SLOW, size=10)
        assert drawn.amount == 0 and _is_near(drawn.wait_s * _SLOW, 11)
        assert _is_near(store.allowances()["a"].level, -10)

    def test_what_is_put_back_can_be_drawn_and_no_more_than_the_size(self, opened: Opened) -> None:
        store = opened()
        store.draw("a", 9, per_s=_SLOW, size=10)
        store.draw("a", -2, per_s=_SLOW, size=10)
        assert store.draw("a", 3, per_s=_SLOW, size=10).amount == 3
        store.draw("a", -50, per_s=_SLOW, size=10)
        assert store.draw("a", 10, per_s=_SLOW, size=10).amount == 10
        assert store.draw("a", 1, per_s=_SLOW, size=10).amount == 0
        store.draw("new", -50, per_s=_SLOW, size=10)
        assert store.draw("new", 11, per_s=_SLOW, size=10).amount == 11
        assert _is_near(store.allowances()["new"].level, -1)

    def test_an_amount_above_the_size_is_given_when_it_is_full(self, opened: Opened) -> None:
        store = opened()
        assert store.draw("a", 25, per_s=_SLOW, size=10).amount == 25
        drawn = store.draw("a", 30, per_s=_SLOW, size=10)
        assert drawn.amount == 0 and _is_near(drawn.wait_s * _SLOW, 25)

    def test_it_refills_with_time_up_to_its_size(self, opened: Opened) -> None:
        store = opened()
        assert store.draw("a", 10, per_s=1e6, size=10).amount == 10
        time.sleep(0.01)  # which refills it a thousand times
        assert store.draw("a", 1, per_s=1e6, size=10, most=50).amount == 10

    def test_a_closed_allowance_gives_nothing_and_does_not_refill(self, opened: Opened) -> None:
        store = opened()
        store.draw("a", 4, per_s=_SLOW, size=10)
        store.close_allowance("a", 1000)
        store.close_allowance("a", 10)  # ends before
        for amount in (0, 1, 10):
            drawn = store.draw("a", amount, per_s=0.01, size=10)
            short_s = max(0, amount - 6) * 100
            assert drawn.amount == 0 and 900 < drawn.wait_s - short_s <= 1000, amount
        waits = [store.draw("a", 5, per_s=0.01, size=10, reserves=True).wait_s for _ in range(3)]
        assert 900 < waits[0] <= 1000  # 6 are there when it opens
        assert 300 < waits[1] - waits[0] <= 400.1 and 400 < waits[2] - waits[1] <= 500.1
        assert 900 < store.allowances()["a"].closed_s <= 1000
        store.close_allowance("new", 3)
        assert 0 < store.draw("new", 0, per_s=0, size=0).wait_s <= 3
        store.close_allowance("long", 100_000)
        assert 3000 < store.draw("long", 0, per_s=0, size=0).wait_s <= 3600

    def test_allowances_are_listed_and_dropped(self, opened: Opened) -> None:
        store = opened()
        assert store.allowances() == {}
        store.drop_allowance("nothing")
        for name in GOOD_NAMES:
            store.draw(name, 1, per_s=_SLOW, size=2)
        found = store.allowances()
        assert list(found) == sorted(GOOD_NAMES, key=str.encode)
        assert all(_is_near(each.level, 1) and each.age_s >= 0 for each in found.values())
        assert not any(each.closed_s for each in found.values())
        store.close_allowance(GOOD_NAMES[0], 100)
        for name in GOOD_NAMES:
            store.drop_allowance(name)
            store.drop_allowance(name)
        assert store.allowances() == {}
        assert store.draw(GOOD_NAMES[0], 2, per_s=_SLOW, size=2).amount == 2

    def test_odd_draws_are_refused(self, opened: Opened) -> None:
        store = opened()
        for odd in ODD_NAMES:
            for ask in _asks(store, odd):
                with check_refused(InvalidValue, store):
                    ask()
        odd_numbers: list[Any] = [math.nan, math.inf, -math.inf, "1", None, True, 1e16]
        for odd in [*odd_numbers, -1]:
            for name in ("per_s", "size", "most"):
                numbers: dict[str, Any] = {"per_s": 1.0, "size": 1.0, "most": 1.0, name: odd}
                with check_refused(InvalidValue, store):
                    store.draw("a", 1, **numbers)
            with check_refused(InvalidValue, store):
                store.close_allowance("a", odd)
        for odd in odd_numbers:
            with check_refused(InvalidValue, store):
                store.draw("a", odd, per_s=1.0, size=1.0)
        for per_s, size in ((0, 1), (1, 0), (0, 0)):
            with check_refused(InvalidValue, store):
                store.draw("a", 1, per_s=per_s, size=size)
        assert store.allowances() == {}

    def test_threads_and_processes_share_what_there_is(self, opened: Opened) -> None:
        store = opened()
        got = list[float]()

        def draw() -> str:
            other = opened() if self.durable else store
            mine = [other.draw("a", 1, per_s=_SLOW, size=100, most=3).amount for _ in range(30)]
            return str(sum(mine))

        if self.durable:
            with fork_all(3, draw) as answers:
                got += [float(each) for each in answers]
        threads = [Thread(target=lambda: got.append(float(draw()))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert _is_near(sum(got), 100)
        assert store.draw("a", 1, per_s=_SLOW, size=100).amount == 0

    def test_allowances_are_not_on_record(self, opened: Opened) -> None:
        store = opened()
        store.draw("a", 1, per_s=_SLOW, size=2)
        assert verify(store) == []
        store.close()
        for ask in [*_asks(store, "a"), store.allowances]:
            try:
                ask()
            except StoreClosed:
                continue
            raise AssertionError("a closed store has allowances")


def _asks(store: Any, name: Any) -> list[Callable[[], object]]:
    return [
        lambda: store.draw(name, 1, per_s=1.0, size=1.0),
        lambda: store.close_allowance(name, 1),
        lambda: store.drop_allowance(name),
    ]
