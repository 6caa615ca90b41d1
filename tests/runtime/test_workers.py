"""Threads that are kept for the next work: they take nothing along from the last."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from threading import Barrier, Event, Thread, current_thread
from typing import TypeVar

import pytest

from plait import Session, Workflow
from plait.errors import InvalidValue
from plait.inside import is_code_of_run
from plait.runtime.loop import spawn
from plait.runtime.process import THIS_PROCESS
from plait.runtime.workers import start_lasting_work
from tests.support import python, wait_until

PATIENCE_S = 60.0
T = TypeVar("T")


def do_in_thread(work: Callable[[], T]) -> tuple[T, Thread]:
    """Do some work in a thread of ours, and wait until the thread is idle again."""
    result, thread = spawn(lambda: (work(), current_thread())).result(PATIENCE_S)
    wait_until(lambda: thread.name == "plait-idle")
    return result, thread


def test_work_in_work_never_waits_for_a_thread() -> None:
    def count_down(n: int) -> int:
        return 1 + spawn(lambda: count_down(n - 1)).result(PATIENCE_S) if n else 0

    assert count_down(40) == 40
    assert do_in_thread(lambda: 7)[0] == 7 and len(THIS_PROCESS.idle_workers) <= 16


def test_work_that_lasts_never_waits_for_a_thread() -> None:
    all_there = Barrier(40)
    met: list[int] = []
    for _ in range(40):
        start_lasting_work(lambda: met.append(all_there.wait(PATIENCE_S)))
    wait_until(lambda: len(met) == 40)


def test_a_kept_thread_is_of_no_run_after_its_work() -> None:
    class Working(Workflow):
        def forward(self, session: Session) -> Session:
            seen.append(do_in_thread(is_code_of_run))
            return session

    seen: list[tuple[bool, Thread]] = []
    Working()(Session("go"))
    seen.append(do_in_thread(is_code_of_run))
    (inside, first), (outside, second) = seen
    assert (inside, outside) == (True, False) and first is second


def test_a_name_of_a_branch_is_free_again_when_the_work_that_used_it_is_done() -> None:
    """The thread of that work lives on, and may even have other work."""

    class Forking(Workflow):
        def forward(self, session: Session) -> Session:
            _, first = do_in_thread(lambda: session.fork("a"))
            done = Event()
            other = spawn(lambda: (done.wait(PATIENCE_S), current_thread()))
            _, second = do_in_thread(lambda: session.fork("a"))
            forked, done_forking = Event(), Event()

            def fork_and_stay() -> None:
                session.fork("b")
                forked.set()
                assert done_forking.wait(PATIENCE_S)

            staying = spawn(fork_and_stay)
            assert forked.wait(PATIENCE_S)
            with pytest.raises(InvalidValue, match="two threads fork"):
                session.fork("b")
            done_forking.set()
            staying.result(PATIENCE_S)
            done.set()
            assert first is other.result(PATIENCE_S)[1] is not second
            return session

    Forking()(Session("go"))


def test_a_forked_child_has_threads_of_its_own() -> None:
    done = python(
        dedent("""
        import os, warnings
        from plait.runtime.loop import spawn
        from plait.runtime.process import THIS_PROCESS
        warnings.simplefilter("ignore", DeprecationWarning)
        spawn(lambda: None).result()
        while not THIS_PROCESS.idle_workers: pass
        if not (child := os.fork()):
            os._exit(spawn(lambda: 7).result())
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        # and a child that the work itself forked ends with its thread
        child = spawn(os.fork).result()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """)
    )
    assert done.stdout.split() == ["7", "0"], done.stderr


def test_the_interpreter_waits_for_work_that_lasts() -> None:
    done = python(
        dedent("""
        import sys, threading
        from plait.runtime.workers import start_lasting_work
        def outermost_code():
            frame = sys._current_frames()[threading.main_thread().ident]
            while frame.f_back is not None:
                frame = frame.f_back
            return frame.f_code.co_name
        def work():
            while outermost_code() == "<module>": pass  # the program goes on
            print("done")
        start_lasting_work(work)
        """)
    )
    assert done.stdout.split() == ["done"], done.stderr
