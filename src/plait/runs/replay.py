"""Call the program of a run by its recording alone: a replay executes and writes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plait.errors import LeavesRecord, NothingToResume, ReplayDiverged, RunHeld
from plait.inside import Stop
from plait.journal.recorded_run import RecordedRun, follow_recording, last_run, start_of
from plait.journal.stops import Halted, Parked
from plait.program import ProgramCall, check_workflow, find_program_call
from plait.runs.overrides import apply_recorded_overrides
from plait.runtime.attendants import Watch
from plait.runtime.end import let_go, outside
from plait.runtime.registry import is_going_on, open_run
from plait.runtime.run import Run
from plait.runtime.start import new_run
from plait.runtime.waits import Wait
from plait.session import Session
from plait.session.ports import Position
from plait.session.session import session_at
from plait.store import Store
from plait.workflow import Workflow, call_again


class NoExecutor:
    """The waiter of a replay, which executes nothing."""

    def wait(self, op: Wait) -> Any:
        raise AssertionError(
            f"a replay came to {type(op).__name__}: nothing may be executed in one"
        )

    def clock(self) -> int:
        return 0


def replay(
    session: Session | str,
    workflow: Workflow | None = None,
    /,
    *args: Any,
    store: str | Path | Store | None = None,
    **kwargs: Any,
) -> Session:
    """Go through the last run of a session by its recording alone: nothing is executed, nothing is
    written.

    Returns the session where the run ended, or as far as it came. If the program goes another way
    than the recording: ReplayDiverged.
    """
    check_workflow(workflow)
    there = outside(session if isinstance(session, Session) else Session.open(session, store=store))
    recorded = last_run(there)
    if recorded is None:
        raise NothingToResume(there.short, "no run was ever started in it")
    if is_going_on(recorded.id):
        raise RunHeld(there.short, recorded.id, f"this process, {os.getpid()}")
    call = find_program_call(there, recorded, workflow, args, kwargs, is_live=False, verb="replay")
    return replay_run(there, recorded, call, NoExecutor())


def replay_run(
    there: Session,
    recorded: RecordedRun,
    call: ProgramCall,
    waiter: NoExecutor,
    on_start: Callable[[Run], object] = lambda run: None,
) -> Session:
    """Replay a run up to where a session stands. `on_start` is called with it before its code."""
    start = start_of(there, recorded)
    run = new_run(recorded.id, start, Watch(), waiter, behalf=recorded.started.actor)
    follow_recording(run.journal, there, recorded, start, is_replay=True)
    apply_recorded_overrides(run, recorded, is_replay=True)
    open_run(run)
    on_start(run)
    try:
        return call_again(call.program, run, start, call.args, call.kwargs, Watch())
    except (ReplayDiverged, LeavesRecord):
        raise
    except (Exception, Stop) as error:
        if isinstance(error, Halted) and error.error is not None:
            raise error.error from None
        end = run.journal.tip(run.root)
        if recorded.is_over:
            stopped = isinstance(error, (Halted, Parked))
            if stopped and run.journal.is_at_end(run.root):
                end = Position(there.store, there.id, recorded.last.seq, recorded.last.id)
            elif end.head != recorded.last.id:
                raise
        return outside(session_at(end))
    finally:
        let_go(run)
