"""The tables of this process: all that the runtime remembers outside of runs and values.

They are caches and registries: a process that finds them empty does the same, only slower. Each
field has one module that reads and writes it, named beside it. They stand together so that one hook
puts them right in a forked child, where the threads of the parent are gone and its locks may be
held for ever.
"""

from __future__ import annotations

import os
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any
from weakref import WeakKeyDictionary

from plait.ids import Digest


class ProcessTables:
    """Values are `Any` where their class belongs to a module above this one."""

    def __init__(self) -> None:
        # runtime.loop: the private event loops, the lowest first, each with its thread
        self.loops: list[tuple[AbstractEventLoop, Thread]] = []
        self.loops_lock = Lock()
        # runtime.workers: threads without work. No lock: each step is one act of the interpreter
        self.idle_workers: list[Any] = []
        self.lasting_threads: Any = None  # threads that the interpreter waits for; None: none yet
        # `thread`: the thread that a thread of ours works for
        self.works_for = threading.local()
        # runtime.budgets: one lock for all budgets, since a reservation is made on all levels or
        # on none, and budgets of several trees can meet
        self.budgets_lock = Lock()
        # runtime.spend: budgets by store address and grant, each with the runs that draw on it
        self.shared_budgets: dict[tuple[str, Digest], tuple[Any, Any]] = {}
        self.sharing_lock = Lock()
        # runtime.prompt: prompts that are not in use, the oldest first. No lock: each step is one
        # act of the interpreter
        self.prompts: dict[tuple[str, ...], Any] = {}
        # runtime.cooling: models that were down, and when, in microseconds of the runs' clock
        self.models_down: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        # runtime.bypass: watches by identity of their run; folders of stores; blocks that are
        # owned right now, in any thread; `busy` in the thread that judges an act
        self.watches: dict[int, Any] = {}
        self.store_folders: set[str] = set()
        self.owned_blocks = 0
        self.judging = threading.local()
        self.bypass_lock = Lock()
        # returns the run that the code in this context belongs to; runtime.run binds it
        self.find_running: Callable[[], Any] = lambda: None
        self.is_audit_hook_installed = False
        # runs.turn_queue: by turn, a function that wakes the client that waits for it
        self.waking: dict[str, Callable[[], object]] = {}
        # runs.turn_drivers: the tasks of turns whose callers may have gone
        self.turn_tasks: set[Any] = set()
        # runs.turn_circles: the runs that wait for turns of other sessions
        self.turn_waits: set[Any] = set()
        self.turn_waits_lock = Lock()
        # runtime.collecting: the thread in which the garbage collector runs; 0: it does not
        self.collecting_thread = 0
        self._in_child: list[Callable[[], object]] = []

    def call_in_child(self, put_right: Callable[[], object]) -> None:
        """Have a module above put its own state right in every forked child."""
        self._in_child.append(put_right)

    def start_child(self) -> None:
        """Forget the threads of the parent, and replace the locks that they may have held."""
        self.lasting_threads = None
        self.loops, self.idle_workers, self.waking, self.turn_tasks = [], [], {}, set()
        self.turn_waits, self.turn_waits_lock = set(), Lock()
        self.loops_lock, self.budgets_lock = Lock(), Lock()
        self.sharing_lock, self.bypass_lock = Lock(), Lock()
        for put_right in self._in_child:
            put_right()


THIS_PROCESS = ProcessTables()

os.register_at_fork(after_in_child=THIS_PROCESS.start_child)
