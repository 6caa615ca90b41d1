"""Locks: one process at a time has a run, and lets it go when it dies."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event, Thread

from plait.errors import RunHeld
from plait.store import Store
from plait.testing.store.durable import DurablePart
from plait.testing.writing import Opened, check_refused

_LOCKS = 300
_PATIENCE_S = 10.0  # a server may take a moment to notice that a client has died


class LockContract(DurablePart):
    def test_a_run_is_locked_once(self, opened: Opened) -> None:
        store = opened()
        lock = store.lock("run-1", "s")
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
            with _fork_process(ask) as (_, answers):
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
        with _fork_process(lambda: _holder(opened(), "run-1")) as (_, holder):
            assert "process" in holder
            if sys.platform == "linux":
                assert str(os.getpid()) in holder
        lock.release()
        with _fork_process(lambda: _holder(opened(), "run-1")) as (_, holder):
            assert holder == "nobody"

    def test_a_lock_dies_with_its_process(self, opened: Opened) -> None:
        if not self.durable:
            return
        store = opened()
        with _fork_process(lambda: str(opened().lock("run-1", "s"))) as (process, _):
            assert store.is_locked("run-1")
            os.kill(process, signal.SIGKILL)
            end = time.monotonic() + _PATIENCE_S
            while store.is_locked("run-1") and time.monotonic() < end:
                time.sleep(0.01)
            assert not store.is_locked("run-1")

    def test_a_forked_child_does_not_have_its_parents_run(self, opened: Opened) -> None:
        if not self.durable:
            return
        store = opened()
        lock = store.lock("run-1", "s")

        def release_and_ask() -> str:
            lock.release()
            return _holder(store, "run-1")

        with _fork_process(release_and_ask) as (_, holder):
            assert "process" in holder
        with _fork_process(lambda: _holder(opened(), "run-1")) as (_, holder):
            assert "process" in holder, "the end of a child frees nothing of its parent's"
        lock.release()


def _holder(store: Store, run: str) -> str:
    """Return the holder as the error names it, or "nobody" if the run can be locked."""
    try:
        store.lock(run, "s").release()
    except RunHeld as error:
        return error.holder
    return "nobody"


@contextmanager
def _fork_process(work: Callable[[], str]) -> Generator[tuple[int, str]]:
    """Do some work in a forked process, which stays until the block ends.

    Gives the id of the process, and the text that the work returned.
    """
    answer, answering = os.pipe()
    staying, stay = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of the test may run
        process = os.fork()
    if process == 0:
        os.close(stay)
        try:
            text = work()
        except BaseException as error:
            text = repr(error)
        os.write(answering, text.encode())
        os.close(answering)
        os.read(staying, 1)  # until the parent closes its end, or dies
        os._exit(0)
    os.close(answering)
    os.close(staying)
    try:
        with open(answer, encoding="utf-8") as file:
            text = file.read()
        yield process, text
    finally:
        os.close(stay)
        os.waitpid(process, 0)
