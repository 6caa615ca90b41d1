"""Take up a run that did not come to its end: call its program again, and go on live."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import msgspec

from plait.errors import NothingToAccept, NothingToResume, ReplayDiverged, RunHeld, StaleEpoch
from plait.event import kinds as k
from plait.ids import LogId, house_of, inbox_of
from plait.journal.abandoned import branches_of, read_abandoned
from plait.journal.recorded_run import (
    RecordedRun,
    check_start_stands,
    follow_recording,
    last_run,
    root_session,
    start_of,
    unmerged_heads,
)
from plait.program import ProgramCall, check_workflow, find_program_call
from plait.runs.changes import Change, check_reason, find_change, write_change
from plait.runs.overrides import apply_recorded_overrides
from plait.runtime.appends import append_around_run
from plait.runtime.attendants import Watch
from plait.runtime.drivers.blocking import Waiter
from plait.runtime.drivers.on_loop import run_in_thread
from plait.runtime.end import let_go, outside
from plait.runtime.registry import is_going_on, open_run
from plait.runtime.run import Run
from plait.runtime.spend import held_seconds_of, run_budget
from plait.runtime.start import draw_under, new_run
from plait.session import Session
from plait.session.moves import check_arrived, check_moved
from plait.session.pauses import check_not_paused, is_paused
from plait.session.ports import Act, Draft, Position, store_at
from plait.session.value import core_of, next_value, position_of
from plait.store import Log, RunLock, Store
from plait.workflow import Workflow, acall_again, call_again

_AHEAD_MAX = 2560  # events of a log that are read in one go, whether they are all needed or not


def resume_run(
    session: Session,
    workflow: Workflow | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    watch: Watch,
    waiter: Waiter | None,
    on_start: Callable[[Run], None] | None = None,
    accept: str | None = None,
    *,
    lifts_pause: bool = True,
    claimed: ClaimedRun | None = None,
) -> Session:
    """Go on with the last run of a session, with this waiter for models, tools and pauses.

    `on_start` is called with the run before the run writes anything. `lifts_pause`: this is a wish
    that a paused session go on; else WrongStatus is raised for one. `claimed`: a worker has its
    lock already.
    """
    difference: ReplayDiverged | None = None
    while True:
        taken = take_run(
            session,
            workflow,
            args,
            kwargs,
            watch,
            waiter,
            on_start,
            accept,
            difference,
            lifts_pause=lifts_pause,
            claimed=claimed,
        )
        claimed = None
        if not isinstance(taken, TakenRun):
            return taken
        try:
            return call_program(*taken, watch)
        except ReplayDiverged as error:
            difference = _further_difference(error, accept)


async def aresume_run(
    session: Session,
    workflow: Workflow | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    watch: Watch,
    accept: str | None = None,
    *,
    lifts_pause: bool = True,
) -> Session:
    """Do the same on this event loop."""
    difference: ReplayDiverged | None = None
    while True:
        taken = await run_in_thread(
            partial(
                take_run,
                session,
                workflow,
                args,
                kwargs,
                watch,
                None,
                accept=accept,
                difference=difference,
                lifts_pause=lifts_pause,
            )
        )
        if not isinstance(taken, TakenRun):
            return taken
        try:
            return await acall_program(*taken, watch)
        except ReplayDiverged as error:
            difference = _further_difference(error, accept)


def _further_difference(error: ReplayDiverged, accept: str | None) -> ReplayDiverged:
    """Return a difference that came up while a run went on with an accepted change: the change
    reaches further than could be seen before anything was done.
    """
    if accept is None or not error.log:
        raise error
    return error


class TakenRun(NamedTuple):
    """A run that this process holds now, with the call of its program that is due."""

    call: ProgramCall
    run: Run
    start: Session  # the value at which the program started


class ClaimedRun(NamedTuple):
    """A run that a worker of a cluster has locked, and the words for the record."""

    run: str
    lock: RunLock
    claim: k.Claim


def take_run(
    session: Session,
    workflow: Workflow | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    watch: Watch,
    waiter: Waiter | None,
    on_start: Callable[[Run], None] | None = None,
    accept: str | None = None,
    difference: ReplayDiverged | None = None,
    *,
    lifts_pause: bool = True,
    claimed: ClaimedRun | None = None,
) -> TakenRun | Session:
    """Make this process the holder of the last run of a session. A session: the run is over.

    `accept` is the reason to go on with a changed program, and `difference` one that came up while
    the run went on with it. The lock of a `claimed` run is released if the run is not taken.
    """
    lift = _lift_pause if lifts_pause else _check_not_paused
    lock = claimed.lock if claimed is not None else None
    claim = claimed.claim if claimed is not None else None
    recorded: RecordedRun | None = None
    with ExitStack() as ahead:
        try:
            if accept is not None:
                check_reason(accept)
            session, heads = _look(outside(session), ahead)
            has_inbox = inbox_of(session.id) in heads
            recorded = _open_run(session, heads, accept)
            if recorded is None:
                return lift(session, has_inbox)
            check_workflow(workflow)
            call = find_program_call(session, recorded, workflow, args, kwargs)
            if is_going_on(recorded.id):
                raise RunHeld(session.short, recorded.id, f"this process, {os.getpid()}")
            if claimed is not None and claimed.run != recorded.id:
                raise NothingToResume(session.short, "another run was started in it meanwhile")
            if lock is None:
                lock = store_at(session.store).lock(recorded.id, session.short)
            change = None
            if accept is not None:
                change = find_change(session, recorded, call, difference)
            at = lift(session, has_inbox)
            run, start = _take_up(
                at, recorded, watch, waiter, on_start, change, accept or "", claim
            )
            run.lock, lock = lock, None  # from now on the run releases it
            run.ahead = ahead.pop_all()
            return TakenRun(call, run, start)
        # the log has changed since it was read: another process took the run first, or ended it
        except StaleEpoch:
            pass
        finally:
            if lock is not None:
                lock.release()
    now = last_run(session.reload())
    if now is not None and recorded is not None and now.id == recorded.id:
        body = now.last.body
        if isinstance(body, k.RunResumed):
            raise RunHeld(session.short, recorded.id, body.holder) from None
    return take_run(
        session,
        workflow,
        args,
        kwargs,
        watch,
        waiter,
        on_start,
        accept,
        difference,
        lifts_pause=lifts_pause,
    )


def _open_run(
    session: Session, heads: Mapping[LogId, Log], accept: str | None
) -> RecordedRun | None:
    """Return the last run of a session. None: it is finished. Raises if it cannot be resumed."""
    check_moved(core_of(session), "be resumed")
    check_arrived(store_at(session.store), [session.id], heads)
    recorded = last_run(session)
    if recorded is None:
        raise NothingToResume(session.short, "no run was ever started in it")
    if recorded.is_finished:
        if accept is not None:
            raise NothingToAccept(session.short, recorded.id, is_finished=True)
        return None
    ended = recorded.last.body
    if isinstance(ended, k.RunCancelled) and ended.by:
        raise NothingToResume(
            session.short, f"{ended.by} cancelled its run", "start another: workflow(session)"
        )
    check_start_stands(session, recorded)
    return recorded


def _look(session: Session, ahead: ExitStack) -> tuple[Session, Mapping[LogId, Log]]:
    """Return the session in which the run of a session began, as it is now, and how its log, its
    inbox and the house log stand. Its events are read ahead, unless they are many.
    """
    store = store_at(session.store)
    while True:
        here = position_of(session)
        logs = [here.id, inbox_of(here.id), house_of(store.id)]
        heads = ahead.enter_context(store.look_ahead(logs, _AHEAD_MAX))
        log = heads.get(here.id) or store.log(here.id)  # which raises
        if log.head != here.head:
            session = next_value(session, _end_of(store, log, here.run))
        root = root_session(session)
        if root.id == session.id:
            return session, heads
        session = root


def call_program(call: ProgramCall, run: Run, start: Session, watch: Watch) -> Session:
    """Call a program again, at the start of its run. Afterwards the run is let go of."""
    try:
        return call_again(call.program, run, start, call.args, call.kwargs, watch)
    finally:
        if not run.closed:  # it never came to its first call
            let_go(run)


async def acall_program(call: ProgramCall, run: Run, start: Session, watch: Watch) -> Session:
    """Call a program again on this event loop, at the start of its run."""
    try:
        return await acall_again(call.program, run, start, call.args, call.kwargs, watch)
    finally:
        if not run.closed:
            let_go(run)


def _take_up(
    session: Session,
    recorded: RecordedRun,
    watch: Watch,
    waiter: Waiter | None,
    on_start: Callable[[Run], None] | None,
    change: Change | None,
    reason: str,
    claim: k.Claim | None,
) -> tuple[Run, Session]:
    """Make this process the holder of a run, and read the recording.

    RunResumed is written to the root first. From that commit on the old holder writes nothing, in
    any log, nor does it begin a branch, so the branches that are found afterwards are all there
    are.
    """
    store, times = store_at(session.store), recorded.resumes + 1
    start = start_of(session, recorded)
    run = new_run(recorded.id, start, watch, waiter, behalf=recorded.started.actor)
    run.holder = f"{socket.gethostname()}/{os.getpid()}/{times}"
    run.is_claimed = claim is not None
    if on_start is not None:
        on_start(run)
    run.journal.fence.hold(recorded.epoch)
    end = write_resumed(run, store, session.id, times, at=position_of(session), claim=claim)
    run.journal.fence.hold(recorded.epoch + 1)
    informed = set[LogId]()
    branches = [] if _was_never_held(recorded) else list(branches_of(store, session.id, run.id))
    while new := [log for log in unmerged_heads(session, branches) if log.id not in informed]:
        for log in new:
            at = _end_of(store, log, run.id)
            write_resumed(run, store, log.id, times, branch=True, at=at)
        informed.update([log.id for log in new])
        branches = list(branches_of(store, session.id, run.id))
    now = next_value(session, msgspec.structs.replace(end, run=position_of(session).run))
    if change is not None and change.cuts:
        write_change(run, now, change, reason)
        now = now.reload()
    follow_recording(run.journal, now, recorded, start)
    run.journal.abandoned = read_abandoned(now, run.id, branches)
    apply_recorded_overrides(run, recorded)
    if session.budget.limits is not None:  # the amounts spent are only added up under a budget
        budget = run_budget(session, run, held_seconds_of(session, recorded.started))
        assert budget is not None
        run.budgets.set_root(budget)
    draw_under(run)
    open_run(run)
    return run, start


def _was_never_held(recorded: RecordedRun) -> bool:
    """True if no process had the run before: it was submitted, and this is its first claim."""
    started = recorded.started.body
    return (
        recorded.resumes == 0 and isinstance(started, k.RunStarted) and started.wishes is not None
    )


def write_resumed(
    run: Run,
    store: Store,
    log: LogId,
    times: int,
    *,
    branch: bool = False,
    at: Position | None = None,
    claim: k.Claim | None = None,
) -> Position:
    """Write to a log of the run that it has a new holder; return the position after it. `at`: the
    end of the log, if it is known.

    Once this is in its root, the old holder can write no more.
    """
    drafts = [Draft(k.RunResumed(run.holder, times, branch, claim), Act(run.taker, "program"))]
    if at is None:
        at = _end_of(store, store.log(log), run.id)
    if run.journal.on_write is not None:
        run.journal.on_write("before", drafts)
    asked = run.journal.ask_heads(drafts, log)
    try:
        after = append_around_run(
            msgspec.structs.replace(at, run=run.id),
            drafts,
            run.journal.fence.fences_in(store.address),
            asked.question,
        )
    except StaleEpoch as error:
        if error.log != run.root:  # the run whose code resumes this one is lost
            raise run.journal.fence.halt_lost(error) from None
        raise
    run.journal.keep_heads(after, asked)
    if run.journal.on_write is not None:
        run.journal.on_write("after", drafts)
    return after


def _end_of(store: Store, log: Log, run: str | None) -> Position:
    return Position(store.address, log.id, log.tip, log.head, run)


def _lift_pause(session: Session, has_inbox: bool) -> Session:
    """Lift the pause of a session: to resume it is to want it to go on."""
    is_resting = is_paused(core_of(session), has_inbox=has_inbox)
    return outside(session).unpause(reason="resumed") if is_resting else session


def _check_not_paused(session: Session, has_inbox: bool) -> Session:
    """Raise if a session is paused: a message does not lift the pause that a person wants."""
    check_not_paused(core_of(session), "take turns", has_inbox=has_inbox)
    return session
