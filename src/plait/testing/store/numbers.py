"""Numbers that grow and settle, and rows as new as the question, while many write."""

from __future__ import annotations

import threading

from plait.event.kinds import ScratchSet
from plait.ids import Digest
from plait.store import Store, visible_events
from plait.testing.projections import Tally
from plait.testing.store.durable import DurablePart
from plait.testing.writing import (
    Opened,
    begin,
    extend,
    message,
    numbers_of,
    run_threads,
    verify,
    wait_until_settled,
)

_WRITERS = 8
_APPENDS = 25


class NumberContract(DurablePart):
    def test_numbers_grow_and_settle(self, opened: Opened) -> None:
        store = opened()
        assert store.dense == self.dense
        logs = [begin(store) for _ in range(_WRITERS)]
        run_threads(
            [
                lambda log=log: [extend(store, log, message(str(i))) for i in range(_APPENDS)]
                for log in logs
            ]
        )
        settled = wait_until_settled(store)
        numbers = numbers_of(store)
        assert numbers == sorted(set(numbers)) and numbers[-1] == settled
        assert len(numbers) == _WRITERS * (_APPENDS + 1)
        assert not self.dense or numbers == list(range(1, len(numbers) + 1))
        for log in logs:
            own = [store.number_of(event.id) or 0 for event in store.read(log)]
            assert own == sorted(own) and own[0] > 0
        (later,) = extend(store, logs[0], message("later"))
        assert (store.number_of(later.id) or 0) > settled, "its writer can have seen all others"
        assert store.event_count(0) == 0
        assert store.event_count(numbers[3]) == 4 and store.event_count(numbers[3] - 1) == 3
        assert store.event_count(2**63 - 1) == len(numbers) + 1
        assert verify(store) == []

    def test_who_follows_the_feed_misses_nothing(self, opened: Opened) -> None:
        """A reader goes on after the last number it got, while others write."""
        store = opened()
        logs = [begin(store) for _ in range(_WRITERS)]
        done = threading.Event()
        found: list[tuple[int, Digest]] = []
        left = [*logs]

        def write(place: int) -> None:
            for i in range(_APPENDS):
                extend(store, logs[place], *[message(f"{i}/{j}") for j in range(1 + i % 3)])
            left.pop()
            if not left:
                done.set()

        def follow() -> None:
            while not done.is_set():
                _read_on(store, found)

        run_threads([*[lambda i=i: write(i) for i in range(_WRITERS)], follow])
        wait_until_settled(store)
        _read_on(store, found)
        assert found == [(number, event.id) for number, event in store.feed()]
        assert len(found) == store.event_count(2**63 - 1) == len({id for _, id in found})

    def test_what_is_visible_comes_in_order(self, opened: Opened) -> None:
        """A writer sees its own events at once, settled or not."""
        store = opened()
        logs = [begin(store) for _ in range(_WRITERS)]

        def write(place: int) -> None:
            for i in range(5):
                (event,) = extend(store, logs[place], message(str(i)))
                seen = list(visible_events(store))
                numbers = [number for number, _ in seen]
                assert event.id in {each.id for _, each in seen}
                assert numbers == sorted(set(numbers))
                assert event.id in {each.id for _, each in store.feed(reverse=True)}

        run_threads([lambda i=i: write(i) for i in range(_WRITERS)])

    def test_rows_are_as_new_as_the_question(self, opened: Opened) -> None:
        """Every writer finds its own events folded at once, each once."""
        store = opened(Tally())
        logs = [begin(store) for _ in range(_WRITERS)]

        def write(place: int) -> None:
            log = logs[place]
            for i in range(_APPENDS):
                (event,) = extend(store, log, ScratchSet("k", i))
                (row,) = store.rows("tally", "count", {"log": log, "key": "k"})
                assert (row["times"], row["number"]) == (i + 1, store.number_of(event.id))

        run_threads([lambda i=i: write(i) for i in range(_WRITERS)])
        kept = store.rows("tally", "count", order="number", limit=1000)
        assert [row["times"] for row in kept] == [_APPENDS] * _WRITERS
        store.rebuild("tally")
        assert store.rows("tally", "count", order="number", limit=1000) == kept


def _read_on(store: Store, found: list[tuple[int, Digest]]) -> None:
    last = found[-1][0] if found else 0
    found.extend((number, event.id) for number, event in store.feed(last, limit=7))
    while found and found[-1][0] != last:
        last = found[-1][0]
        found.extend((number, event.id) for number, event in store.feed(last))
