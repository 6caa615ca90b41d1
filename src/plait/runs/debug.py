"""Open a debugger in the program of a run, at the step that wrote an event.

The run is replayed: its program is called again, and its calls are answered from the recording.
When the program comes to the step, a debugger is opened at the line that made the call. From there
one can step on, as far as the recording goes. Nothing is executed in the world, nothing is written.
"""

from __future__ import annotations

import os
import sys
from bdb import BdbQuit
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from plait.errors import NothingToDebug, ReplayDiverged, RunHeld
from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId
from plait.inside import Stop
from plait.journal.recorded_run import RecordedRun, last_run, run_around
from plait.journal.stops import Halted
from plait.program import ProgramCall, check_workflow, find_program_call
from plait.runs.debugger import ProgramPoint, find_point, open_debugger
from plait.runs.replay import NoExecutor, replay_run
from plait.runtime.drivers.on_loop import writes_on_loop
from plait.runtime.end import outside
from plait.runtime.registry import is_going_on
from plait.runtime.run import Run
from plait.session import Session
from plait.session.ports import Position, store_at
from plait.session.session import session_at
from plait.session.state import Known
from plait.session.value import state_of
from plait.store import Store
from plait.workflow import Workflow

T = TypeVar("T")
OnStop = Callable[[Event, ProgramPoint], object]


class InlineExecutor(NoExecutor):
    """The waiter of a debugged replay: branches go one after another in the thread of their caller,
    so that the frames that led to a step are on one stack.
    """

    def start_all(
        self, works: Mapping[str, Callable[[], T]]
    ) -> tuple[dict[str, Future[T]], Callable[[], str]]:
        futures: dict[str, Future[T]] = {}
        for name, work in works.items():
            futures[name] = future = Future[T]()
            try:
                future.set_result(copy_context().run(work))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                future.set_exception(error)
        names = iter(futures)
        return futures, lambda: next(names)


def debug(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    store: str | Path | Store | None = None,
    on_stop: OnStop | None = None,
    **kwargs: Any,
) -> Session:
    """Replay the run of a session, and open the debugger in its program at the last event of this
    value: `debug(session.at(17))`; of a session that went on after its last run, as with a verdict
    of a person, at the last step of that run.

    The debugger is `pdb`, or the one that PYTHONBREAKPOINT names. Returns the session where the
    replay ended. `on_stop` is called with the event and the frame before the debugger opens.
    """
    check_workflow(workflow)
    there = outside(session if isinstance(session, Session) else Session.open(session, store=store))
    event = there.events[-1]
    around = run_around(store_at(there.store), event)
    if around is None and (last := _last_step(there)) is not None:
        event, around = last, run_around(store_at(there.store), last)
    if around is None:
        raise _no_run(there)
    recorded, end = around
    if is_going_on(recorded.id):
        raise RunHeld(there.short, recorded.id, f"this process, {os.getpid()}")
    root = session_at(_before_rewind(recorded, end, event))
    call = find_program_call(root, recorded, workflow, args, kwargs, is_live=False, verb="debug")
    calls = _calls_around(store_at(there.store), event.log, root.id)
    watch = _StepWatch(event, on_stop, calls)
    ended = _replay_watched(root, recorded, call, watch)
    if watch.last is not None and not watch.is_over:
        # the code had returned by then: stop at its last step
        watch = _StepWatch(watch.last, on_stop, calls)
        ended = _replay_watched(root, recorded, call, watch)
    if not watch.is_over:
        why, advice = "no line of the program makes a step there", "name another step of the run"
        raise NothingToDebug(there.short, there.seq, why, advice)
    return ended


def _last_step(there: Session) -> Event | None:
    """Return the last event of the last run, of a session that went on after it. None: this is an
    earlier value, or the run was rewound.
    """
    last = last_run(there) if there == there.reload() else None
    story = Known(state_of(there).story.path)
    return last.last if last is not None and story.has(there.id, last.last.seq) else None


def _calls_around(store: Store, log: LogId, root: LogId) -> list[str]:
    """Return the calls of workflows as tools that a branch was forked for, and its ancestors."""
    calls: list[str] = []
    about = store.log(log)
    while about.id != root and about.parent is not None:
        first = next(store.read(about.id, about.place + 1, about.place + 1))
        if first.header.call is not None:
            calls.append(first.header.call)
        about = store.log(about.parent)
    return calls


def _replay_watched(
    root: Session, recorded: RecordedRun, call: ProgramCall, watch: _StepWatch
) -> Session:
    token, trace = writes_on_loop.set(True), sys.gettrace()
    try:
        return replay_run(root, recorded, call, InlineExecutor(), watch.begin)
    except (Halted, ReplayDiverged) as error:
        if not watch.was_left and not _has_quit(error):
            raise
        return watch.place
    finally:
        sys.settrace(trace)  # it is not stepped any further
        writes_on_loop.reset(token)


def _has_quit(error: BaseException) -> bool:
    """True if the person left another debugger than ours, which raises an error in the program."""
    above: BaseException | None = error
    while above is not None and not isinstance(above, BdbQuit):
        above = above.__context__
    return above is not None


def _no_run(there: Session) -> NothingToDebug:
    runs = there.reload().runs
    step = "start a run: workflow(session)"
    if runs:
        known = ", ".join(f"{run.first} to {run.last or there.reload().seq}" for run in runs[-5:])
        step = f"name a step of a run: {known}"
    return NothingToDebug(there.short, there.seq, "no run was going on there", step)


def _before_rewind(recorded: RecordedRun, end: Position, event: Event) -> Position:
    """Return the end of the recording to follow: the event itself, if another writer rewound it
    later, else the end of the run.
    """
    if event.log != end.id:
        return end
    store = store_at(end.store)
    for later in store.read(end.id, event.seq + 1, end.seq, kinds={k.Rewound.__name__}):
        body = later.body
        if isinstance(body, k.Rewound) and later.header.run != recorded.id and body.to < event.seq:
            return Position(end.store, end.id, event.seq, event.id)
    return end


class _StepWatch:
    """Waits for a replay to come to a step, and opens the debugger there, once."""

    def __init__(self, event: Event, on_stop: OnStop | None, calls: Iterable[str]) -> None:
        """`calls`: those of workflows as tools in whose branches the step was made."""
        self._event, self._on_stop = event, on_stop
        self._lock = Lock()  # threads of the program take steps side by side
        self.is_over = False
        self.was_left = False  # the person has left the debugger
        self.last: Event | None = (
            None  # the last step before, while code of the program was at work
        )
        self._run: Run | None = None
        self._calls = frozenset(calls)

    def begin(self, run: Run) -> None:
        self._run = run
        run.journal.on_step = self._on_step
        run.entered_calls = self._calls
        run.journal.enters_branches = bool(self._calls)

    @property
    def place(self) -> Session:
        """The session as far as the replay has come."""
        assert self._run is not None
        return outside(session_at(self._run.journal.tip(self._run.root)))

    def _on_step(self, step: Event) -> None:
        point = find_point() if not self.is_over else None
        if point is None:
            return
        is_here = step.log == self._event.log
        with self._lock:
            if self.is_over:
                return
            if is_here or self.last is None or self.last.log != self._event.log:
                self.last = step
            self.is_over = is_stop = is_here and step.seq >= self._event.seq
        if is_stop:
            if self._on_stop is not None:
                self._on_stop(step, point)
            open_debugger(point, self._halt)

    def _halt(self) -> Stop:
        assert self._run is not None
        self.was_left = True
        return self._run.journal.fence.halt(None)
