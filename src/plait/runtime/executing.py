"""The run and the call that the executing code belongs to, and all that follows from it.

Code of a run may act on values that are not the run's: on a session of its own, or on one that it
opens. Such acts are bound by the run's policies and its fence, and carry the reads of the code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from plait import inside
from plait.errors import EffectError, LeavesRecord, PlaitError, RunLost, StaleEpoch
from plait.ids import short
from plait.journal.journal import post_late
from plait.journal.stops import Cancelled
from plait.journal.writer import bind_acting, bind_fences, direct_writer
from plait.runtime.policy import Policy
from plait.runtime.reads import doing, tool_act
from plait.runtime.registry import released_run, run_by_id, run_of
from plait.runtime.run import Run, acting, run_here, running
from plait.runtime.stack import Frame
from plait.session import Session
from plait.session.ports import UNNAMED, Act, Draft, Position, bind_reader, note_read
from plait.session.value import position_of
from plait.store import Fence


def _call_here() -> tuple[Run | None, Frame | None]:
    """Return the run and the call that the code belongs to, also in threads that it started."""
    run = running.get()
    if run is None and (context := inside.starter_context()) is not None:
        return context.get(running), context.get(acting)
    return run, acting.get()


def executing() -> tuple[Run, Frame | None] | None:
    """Return the open run and the call that the code belongs to. None: there is no open run."""
    run, frame = _call_here()
    return (run, frame) if run is not None and not run.closed else None


def policies_here(run: Run | None, session: Session) -> tuple[Policy, ...]:
    """Return the policies that bind an effect.

    They are those of the calls that have the session in hand, and of the call that executes here.
    """
    top = run.stack.frames(session.id)[-1:] if run is not None else ()
    found = [*run.policies_for(session), *_policies_of(top)] if run is not None else []
    # as in most calls: nothing else binds it
    if run is not None and running.get() is run and acting.get() in (None, *top):
        return tuple(found)
    here = executing()
    if here is not None:
        outer, frame = here
        found += outer.settings.policies if outer is not run else ()
        found += _policies_of((frame,) if frame is not None else ())
    return tuple({id(each): each for each in found}.values())


def _policies_of(frames: Sequence[Frame]) -> tuple[Policy, ...]:
    return frames[-1].policies if frames else ()


# ── checks before an effect ──────────────────────────────────────────────────────────────────


def check_held(session: Session) -> None:
    """Raise if the run of an effect was taken: right before one that no append precedes."""
    run = run_of(session) or run_here()
    if run is not None and (run.is_lost or not run.closed):
        run.journal.fence.check()


def check_running(session: Session) -> None:
    """Raise if this branch was stopped, or if this is code of a run that is over."""
    run, here = run_of(session), run_here()
    if here is not None and here is not run:  # it acts on a session of its own, or the run is over
        here.stops.check_interrupt()
        # a thread that outlives the run may act on values that are not of the run
        is_of_it = running.get() is here or position_of(session).run == here.id
        if run is None and here.closed and is_of_it:
            raise Cancelled("the run this belongs to has ended")
    if run is not None:
        if run.closed and not run.is_lost:
            run.stops.check_interrupt()
            raise Cancelled("the run this belongs to has ended")
        run.stops.check(session.id)


def stop_check(session: Session) -> Callable[[], bool]:
    """Return a function that tells, right before an effect, if the branch was stopped meanwhile."""
    run, here = run_of(session), run_here()
    log = session.id

    def is_stopped() -> bool:
        if here is not None and here.stops.is_interrupted:
            return True
        return run is not None and run.stops.is_stopped(log)

    return is_stopped


# ── reads ────────────────────────────────────────────────────────────────────────────────────


class _RunReader:
    """Notes the reads of a run's code, also of values that are not the run's."""

    def note(self, position: Position, whole: bool) -> None:
        run = run_by_id(position.run) or run_here()
        if run is not None and not run.closed:
            run.reads.note(run.calls(position.id), position, whole=whole)


def note_error(error: BaseException) -> None:
    """Note that the code here is handed an error that tells of a session."""
    if isinstance(error, EffectError) and isinstance(error.session, Session):
        note_read(position_of(error.session))


def note_raised(run: Run, frame: Frame, callers: tuple[Frame, ...], error: BaseException) -> None:
    """Count the reads and writes of a call that raised as reads of its caller."""
    here = running.get() or (run if callers else None)
    if not isinstance(error, Exception) or here is None or here.closed:
        return
    caller = doing.get() or tuple([each.call for each in callers])
    with suppress(PlaitError):  # the caller has to see the error of the call
        here.reads.hand_up((*caller, frame.call), caller)
        here.reads.note(caller, run.journal.tip(frame.log))
        if isinstance(error, EffectError) and isinstance(error.session, Session):
            here.reads.note(caller, position_of(error.session))


# ── writes around the run ────────────────────────────────────────────────────────────────────


def _act_here(store: str, position: Position | None) -> Act:
    """Return how code of a run, or of a tool, acts on a value that is not the run's."""
    run = run_here()
    if run is not None and not run.closed:
        return run.act_of(store, position)
    handed = tool_act.get()
    is_handed = handed is not None and position is not None and position.id == handed[0]
    return handed[1] if handed is not None and is_handed else UNNAMED


class _FencesHere:
    """The fences of writes outside of any run.

    They rest on the run that the code belongs to, and on the released run of a value. Code of a run
    that is replayed writes nothing.
    """

    def fences(self, address: str, by: str | None) -> tuple[Fence, ...]:
        run, past = run_here(), released_run(by)
        own = past.fences if past is not None and past.home == address else ()
        if run is None or (run.closed and not run.is_lost):
            return own
        if run.journal.is_replay:
            raise run.journal.fence.halt(LeavesRecord(short(run.root)))
        if run.is_lost:
            run.journal.fence.check()
        return (*own, *run.journal.fence.fences_in(address))

    def loss_error(
        self, error: StaleEpoch, by: str | None, position: Position | None, drafts: Sequence[Draft]
    ) -> BaseException:
        run, past = run_here(), released_run(by)
        if past is not None and error.log in [fence.log for fence in past.fences]:
            if position is not None:
                post_late(direct_writer(), position, drafts)
            return RunLost(short(past.root), past.id, "another process")
        return error if run is None else run.journal.fence.halt_lost(error)


bind_reader(_RunReader())
bind_acting(_act_here)
bind_fences(_FencesHere())
