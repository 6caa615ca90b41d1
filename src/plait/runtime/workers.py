"""Threads for work: each does one piece of work after another.

A thread that is new is dear: besides its start, the compressor makes contexts for it, and a call on
a store on disk costs a tenth more in it. So a thread that is done is kept for a while. There is no
bound at which work waits for a thread, since work may wait for other work.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Thread, current_thread

from plait.inside import marked_work, start_thread, working
from plait.runtime.interrupts import held_interrupts
from plait.runtime.process import THIS_PROCESS

IDLE = "plait-idle"  # the name of a thread that has no work
_IDLE_MAX = 16  # threads that are kept, of each kind
_IDLE_S = 5.0  # how long each is kept

Work = Callable[[], object]


class KeptThread:
    """A thread, and the work that it is handed. The work raises nothing."""

    def __init__(self, name: str, work: Work) -> None:
        self._handed: SimpleQueue[tuple[str, Work]] = SimpleQueue()
        self._handed.put((name, work))
        self._process = os.getpid()
        start_thread(Thread(target=self._act, name=name, daemon=True))

    def hand(self, name: str, work: Work) -> None:
        """Do this next. Only for the caller that took the worker off the list of idle ones."""
        self._handed.put((name, work))

    def _act(self) -> None:
        thread, idle = current_thread(), THIS_PROCESS.idle_workers
        handed: tuple[str, Work] | None = self._handed.get()
        while handed is not None:
            thread.name, work = handed
            with working():
                work()
            del handed, work  # and what they hold
            thread.name = IDLE
            # a child that the work forked has this one thread, and ends with it
            if len(idle) >= _IDLE_MAX or os.getpid() != self._process:
                return
            idle.append(self)
            handed = self._next_work()

    def _next_work(self) -> tuple[str, Work] | None:
        """Wait for more. None: there was none for a while, and the thread ends."""
        try:
            return self._handed.get(timeout=_IDLE_S)
        except Empty:
            pass
        try:
            THIS_PROCESS.idle_workers.remove(self)
        except ValueError:  # it was taken just now
            return self._handed.get()
        return None


def start_work(name: str, work: Work) -> None:
    """Do some work in a thread of this name. No lock: each step is one act of the interpreter."""
    try:
        worker = THIS_PROCESS.idle_workers.pop()  # the last one: its memory is still in caches
    except IndexError:
        KeptThread(name, work)
    else:
        worker.hand(name, work)


class LastingThreads:
    """Threads whose work outlives its caller: the interpreter waits for them at its end."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_IDLE_MAX, "plait-turn")  # its threads are kept
        self._free = [None] * _IDLE_MAX  # one for each thread without work

    def start_work(self, work: Work) -> None:
        """Do some work in a thread that is free, else in a new one: it never waits for a thread."""

        def work_and_free() -> None:
            try:
                with working():
                    work()
            finally:
                self._free.append(None)

        try:  # no lock: each step is one act of the interpreter
            self._free.pop()
        except IndexError:
            pass
        else:
            try:
                self._pool.submit(work_and_free)
                return
            except RuntimeError:  # the interpreter is ending, and its pools take no more
                self._free.append(None)
        start_thread(Thread(target=marked_work(work), name="plait-turn", daemon=False))


def start_lasting_work(work: Work) -> None:
    """Do some work in a thread that the interpreter waits for at its end. It raises nothing.

    Ctrl-C is held back meanwhile: a pool that is stopped while it starts a thread does not know
    that thread, and the interpreter never ends.
    """
    with held_interrupts():
        with THIS_PROCESS.loops_lock:
            threads = THIS_PROCESS.lasting_threads
            threads = THIS_PROCESS.lasting_threads = threads or LastingThreads()
        threads.start_work(work)
