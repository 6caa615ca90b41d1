"""Bells: hints between the processes of a store."""

from __future__ import annotations

from threading import Thread
from typing import Any

from plait.errors import InvalidValue, StoreClosed
from plait.store import Bell
from plait.testing.store.durable import DurablePart
from plait.testing.store.processes import fork_process
from plait.testing.writing import Opened, check_refused, verify

_PATIENCE_S = 20.0  # far more than a bell takes
_MOMENT_S = 0.05  # for a bell that must not ring

ODD_NAMES = list[Any](["", "a" * 201, "ä" * 101, "a\0b", "\ud800", None, 3, b"topic"])
GOOD_NAMES = ["work", "ä/..", "..", ".", "a" * 200, "Work", "~", "%2E", 'a"; DROP TABLE log'] + [
    "\n",
    " ",
]


class BellContract(DurablePart):
    def test_a_bell_rings_once_for_all_rings_before(self, opened: Opened) -> None:
        store = opened()
        bell = store.listen("work")
        assert not bell.wait(0)
        store.ring("work")
        assert bell.wait(_PATIENCE_S)
        for _ in range(1000):
            store.ring("work")
        assert bell.wait(_PATIENCE_S)
        while bell.wait(1):  # a second one may be on its way; a thousand are not
            pass
        bell.close()

    def test_only_listeners_of_the_topic_hear_it(self, opened: Opened) -> None:
        store = opened()
        bells = {topic: store.listen(topic) for topic in GOOD_NAMES}
        for topic in GOOD_NAMES:
            store.ring(topic)
            assert bells[topic].wait(_PATIENCE_S)
        again = store.listen("work")
        store.ring("work")
        assert again.wait(_PATIENCE_S) and bells["work"].wait(_PATIENCE_S)
        assert [topic for topic in GOOD_NAMES if bells[topic].wait(_MOMENT_S)] == []
        for bell in (*bells.values(), again):
            bell.close()

    def test_a_ring_before_listen_is_not_heard(self, opened: Opened) -> None:
        store = opened()
        store.ring("work")  # without any listener
        other = store.listen("work")
        store.ring("other")
        other.wait(1)  # a ring that takes its time
        bell = store.listen("work")
        assert not bell.wait(_MOMENT_S)
        bell.close()
        other.close()

    def test_a_thread_that_waits_is_woken(self, opened: Opened) -> None:
        store = opened()
        bell, heard = store.listen("work"), list[bool]()
        thread = Thread(target=lambda: heard.append(bell.wait(_PATIENCE_S)))
        thread.start()
        store.ring("work")
        thread.join()
        assert heard == [True]
        bell.close()

    def test_closing_ends_a_wait(self, opened: Opened) -> None:
        store = opened()
        for close in ("bell", "store"):
            bell, heard = store.listen("work"), list[bool]()
            threads = [Thread(target=_wait_long, args=(bell, heard)) for _ in range(3)]
            for thread in threads:
                thread.start()
            bell.close() if close == "bell" else store.close()
            for thread in threads:
                thread.join()
            assert heard == [False, False, False]
            bell.close()
            assert not bell.wait(600), "a closed bell does not wait"
        store.ring("work")  # no listener hears it, and that is no error
        try:
            store.listen("work")
        except StoreClosed:
            return
        raise AssertionError("a closed store listens")

    def test_odd_topics_and_times_are_refused(self, opened: Opened) -> None:
        store = opened()
        for odd in ODD_NAMES:
            with check_refused(InvalidValue, store):
                store.ring(odd)
            with check_refused(InvalidValue, store):
                store.listen(odd)
        bell = store.listen("work")
        odd_times: list[Any] = [-1, float("nan"), float("inf"), None, "1", True]
        for odd in odd_times:
            with check_refused(InvalidValue, store):
                bell.wait(odd)
        bell.close()

    def test_a_bell_rings_in_another_process(self, opened: Opened) -> None:
        if not self.durable:
            return
        store = opened()
        bell = store.listen("work")

        def ring() -> str:
            other = opened()
            other.ring("work")
            other.close()
            return "rang"

        with fork_process(ring) as (_, text):
            assert text == "rang"
            assert bell.wait(_PATIENCE_S if self.bells_reach else _MOMENT_S) is self.bells_reach

        def answer() -> str:
            other = opened()
            mine = other.listen("answer")
            other.ring("question")
            return str(mine.wait(_PATIENCE_S if self.bells_reach else _MOMENT_S))

        question = store.listen("question")
        answering = Thread(target=lambda: question.wait(_PATIENCE_S) and store.ring("answer"))
        answering.start()
        try:
            with fork_process(answer) as (_, text):
                assert text == str(self.bells_reach)
        finally:
            question.close()
            answering.join()
        bell.close()

    def test_a_forked_child_does_not_listen(self, opened: Opened) -> None:
        if not self.durable:
            return
        store = opened()
        bell = store.listen("work")

        def wait() -> str:
            inherited = bell.wait(600)
            bell.close()
            mine = store.listen("work")
            store.ring("work")
            return f"{inherited} {mine.wait(_PATIENCE_S)}"

        with fork_process(wait) as (_, text):
            assert text == "False True"
            assert not self.bells_reach or bell.wait(_PATIENCE_S), "the parent still listens"
        store.ring("work")
        assert bell.wait(_PATIENCE_S)
        bell.close()

    def test_bells_are_not_on_record(self, opened: Opened) -> None:
        store = opened()
        bell = store.listen("work")
        store.ring("work")
        assert bell.wait(_PATIENCE_S)
        assert verify(store) == []
        bell.close()
        assert verify(store) == []


def _wait_long(bell: Bell, heard: list[bool]) -> None:
    heard.append(bell.wait(600))
