"""Locks: one process at a time has a run, and lets it go when it dies."""

from __future__ import annotations

import os
import signal
import sys
import time
from threading import Event, Thread
from typing import Any

from plait.errors import InvalidValue, RunHeld
from plait.store import SeenRun, Store
from plait.testing.store.durable import DurablePart
from plait.testing.store.processes import fork_all, fork_process
from plait.testing.writing import Opened, begin, check_refused, extend, message, new_log

_LOCKS = 300
_RACERS = 8
_PATIENCE_S = 10.0  # a server may take a moment to notice that a client has died


class LockContract(DurablePart):
    def test_a_run_is_locked_once(self, opened: Opened) -> None:
        store = opened()
        lock = store.lock("run-1", "s")
        assert not lock.was_taken
        with check_refused(RunHeld, store):
            store.lock("run-1", "s")
        assert str(os.getpid()) in _holder(store, "run-1")
        assert store.is_locked("run-1") and not store.is_locked("run-2")
        store.lock("run-2", "s").release()
        lock.release()
        assert not store.is_locked("run-1")
        store.lock("run-1", "s").release()

    def test_asking_takes_nothing(self, opened: Opened) -> None:
        store = opened()
        assert not store.is_locked("run-1")
        done = Event()

        def ask() -> None:
            while not done.is_set():
                store.is_locked("run-1")

        asking = Thread(target=ask)
        asking.start()
        try:
            for _ in range(_LOCKS):  # whoever asks meanwhile, each of them is granted
                store.lock("run-1", "s").release()
            lock = store.lock("run-1", "s")
            assert all(store.is_locked("run-1") for _ in range(_LOCKS))
        finally:
            done.set()
            asking.join()
        with check_refused(RunHeld, store):
            store.lock("run-1", "s")
        lock.release()

    def test_another_process_that_asks_takes_nothing(self, opened: Opened) -> None:
        if not self.durable:
            return
        store, done, refused = opened(), Event(), list[RunHeld]()

        def lock() -> None:
            while not done.is_set():
                try:
                    store.lock("run-1", "s").release()
                except RunHeld as error:
                    refused.append(error)

        def ask() -> str:
            other, answers = opened(), set[bool]()
            while len(answers) < 2:
                answers.add(other.is_locked("run-1"))
            return "both"

        locking = Thread(target=lock)
        locking.start()
        try:
            with fork_process(ask) as (_, answers):
                assert answers == "both"
        finally:
            done.set()
            locking.join()
        assert not refused

    def test_a_lock_is_released_once(self, opened: Opened) -> None:
        store = opened()
        first = store.lock("run-1", "s")
        first.release()
        first.release()
        assert not store.is_locked("run-1")

    def test_a_lock_outlives_the_store_that_gave_it(self, opened: Opened) -> None:
        store = opened()
        lock = store.lock("run-1", "s")
        store.close()
        if self.durable:
            again = opened()
            assert again.is_locked("run-1")
            lock.release()
            assert not again.is_locked("run-1")
        lock.release()

    def test_another_process_is_refused_and_told_the_holder(self, opened: Opened) -> None:
        if not self.durable:
            return
        store = opened()
        lock = store.lock("run-1", "s")
        with fork_process(lambda: _holder(opened(), "run-1")) as (_, holder):
            assert "process" in holder
            if sys.platform == "linux":
                assert str(os.getpid()) in holder
        lock.release()
        with fork_process(lambda: _holder(opened(), "run-1")) as (_, holder):
            assert holder == "nobody"

    def test_a_lock_dies_with_its_process(self, opened: Opened) -> None:
        if not self.durable:
            return
        store = opened()
        with fork_process(lambda: str(opened().lock("run-1", "s"))) as (process, _):
            assert store.is_locked("run-1")
            os.kill(process, signal.SIGKILL)
            end = time.monotonic() + _PATIENCE_S
            while store.is_locked("run-1") and time.monotonic() < end:
                time.sleep(0.01)
            assert not store.is_locked("run-1")
            assert store.free_runs(["run-1"]) == {"run-1"}

    def test_the_first_free_run_is_locked(self, opened: Opened) -> None:
        store = opened()
        held = store.lock("run-2", "s")
        runs = ["run-3", "run-2", "run-1", "run-3"]
        assert store.free_runs(runs) == {"run-1", "run-3"}
        first, second = store.lock_first(runs), store.lock_first(runs)
        assert first is not None and second is not None
        assert (first[0], second[0]) == ("run-3", "run-1"), "in their order, past the taken one"
        assert store.lock_first(runs) is None and store.lock_first([]) is None
        assert store.free_runs(runs) == store.free_runs([]) == set()
        with check_refused(RunHeld, store):
            store.lock("run-1", "s")
        held.release()
        first[1].release()
        assert store.free_runs(runs) == {"run-2", "run-3"}
        store.lock("run-3", "s").release()
        second[1].release()
        second[1].release()
        assert not store.is_locked("run-1")

    def test_a_run_whose_log_has_gone_on_is_passed_over(self, opened: Opened) -> None:
        store = opened()
        logs = [begin(store) for _ in range(3)]
        seen = {
            f"run-{n}": SeenRun(log, store.number_of(store.log(log).head) or 0)
            for n, log in enumerate(logs)
        }
        extend(store, logs[0], message("more"))
        first = store.lock_first([*seen], seen)
        assert first is not None and first[0] == "run-1"
        extend(store, logs[2], message("more"))
        assert store.lock_first([*seen], seen) is None
        assert store.free_runs([*seen]) == {"run-0", "run-2"}, "those that were passed over"
        stale = store.lock_first([*seen])
        assert stale is not None and stale[0] == "run-0", "without a mark it is taken"
        unknown = SeenRun(new_log(), 0)
        other = store.lock_first(["run-2"], {"run-2": unknown})
        assert other is not None and other[0] == "run-2"
        for _, lock in (first, stale, other):
            lock.release()

    def test_asking_for_free_runs_takes_nothing(self, opened: Opened) -> None:
        store = opened()
        assert store.free_runs({"run-1", "run-2"}) == {"run-1", "run-2"}
        lock = store.lock("run-1", "s")
        for _ in range(3):
            assert store.free_runs({"run-1", "run-2"}) == {"run-2"}
        lock.release()

    def test_odd_runs_are_refused(self, opened: Opened) -> None:
        store, odd = opened(), list[Any](["run-1", None, 3, [b"run-1"], [None], ["\ud800"]])
        for runs in odd:
            with check_refused(InvalidValue, store):
                store.lock_first(runs)
            with check_refused(InvalidValue, store):
                store.free_runs(runs)

    def test_threads_that_race_get_different_runs(self, opened: Opened) -> None:
        store, runs = opened(), [f"run-{i}" for i in range(50)]
        taken = list[str]()

        def take() -> None:
            while (found := store.lock_first(runs)) is not None:
                taken.append(found[0])

        threads = [Thread(target=take) for _ in range(_RACERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == sorted(runs)
        assert store.free_runs(runs) == set()

    def test_processes_that_race_get_different_runs(self, opened: Opened) -> None:
        if not self.durable:
            return
        runs = [f"run-{i}" for i in range(50)]

        def take() -> str:
            other, taken = opened(), list[str]()
            while (found := other.lock_first(runs)) is not None:
                taken.append(found[0])
            return " ".join(taken)

        with fork_all(_RACERS, take) as answers:
            assert sorted(" ".join(answers).split()) == sorted(runs)
            assert opened().free_runs(runs) == set()

    def test_the_runs_of_a_killed_process_are_taken(self, opened: Opened) -> None:
        if not self.durable:
            return
        store, runs = opened(), ["run-1", "run-2", "run-3"]
        held = store.lock("run-2", "s")

        def take() -> str:
            other = opened()
            return f"{other.lock_first(runs)} {other.lock_first(runs)} {other.lock_first(runs)}"

        with fork_process(take) as (process, text):
            assert "run-1" in text and "run-3" in text and text.endswith("None")
            assert store.lock_first(runs) is None
            os.kill(process, signal.SIGKILL)
            found, end = list[str](), time.monotonic() + _PATIENCE_S
            while len(found) < 2 and time.monotonic() < end:
                if (lock := store.lock_first(runs)) is not None:
                    found.append(lock[0])
                else:
                    time.sleep(0.01)
            assert found == ["run-1", "run-3"]
        held.release()

    def test_a_forked_child_does_not_have_its_parents_run(self, opened: Opened) -> None:
        if not self.durable:
            return
        store = opened()
        lock = store.lock("run-1", "s")

        def release_and_ask() -> str:
            lock.release()
            return _holder(store, "run-1")

        with fork_process(release_and_ask) as (_, holder):
            assert "process" in holder
        with fork_process(lambda: _holder(opened(), "run-1")) as (_, holder):
            assert "process" in holder, "the end of a child frees nothing of its parent's"
        lock.release()


def _holder(store: Store, run: str) -> str:
    """Return the holder as the error names it, or "nobody" if the run can be locked."""
    try:
        store.lock(run, "s").release()
    except RunHeld as error:
        return error.holder
    return "nobody"
