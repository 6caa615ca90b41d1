"""Ending a run: the deferred events of its logs, the event that ends it, and its release."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plait.calls.tool_call import SERVICE
from plait.errors import (
    BudgetExceeded,
    ChoiceInvalid,
    GuardFailed,
    GuardRefused,
    ModelFailed,
    ResultInvalid,
    RunHeld,
    ToolFailed,
)
from plait.event import kinds as k
from plait.event.kinds import Body
from plait.ids import Digest, LogId
from plait.journal.standing import Standing
from plait.memory.arrival import decisions_at_end
from plait.runtime.appends import append_around_run, append_at_tip
from plait.runtime.registry import close_run, is_going_on
from plait.runtime.run import Run
from plait.runtime.run_writer import PROPOSING
from plait.runtime.safe_points import undelivered
from plait.session import Session
from plait.session.ports import Act, Draft, store_at
from plait.session.session import session_at
from plait.session.value import advance, open_run_of, position_of


def end_run(
    run: Run,
    session: Session,
    body: Callable[[Session, int], Body],
    *,
    is_complete: bool = False,
    causes: tuple[Digest, ...] = (),
) -> Session:
    """Write the deferred events of every log at rest, and the end of the run in its own log.

    `session` is a value of that log, `body` makes the end from the value before it and the number
    of events that are written with it. `is_complete`: the program came to its end.
    """
    for log, scope in run.journal.waiting_logs():
        # what waits for a branch in which a thread still works goes with the next event from there
        if (log, scope) != (run.root, run.id) and not run.stack.has_calls(log):
            append_at_tip(session_at(run.journal.tip(log, scope)), ())
    tip = session_at(run.journal.tip(run.root))
    # events that are recorded already are not written with the end
    if (
        run.journal.deferred.count(run.root, run.id)
        and run.journal.standing(tip) is not Standing.LIVE
    ):
        append_at_tip(tip, ())
    if is_complete:
        run.journal.check_recording_used()
    started = session.seq
    session = run.journal.catch_up(advance(session, run.journal.tip(run.root)))

    def last_drafts(at: Session) -> list[Draft]:
        decided = _decisions(run, at, started) if is_complete else []
        ahead = run.journal.deferred.count(run.root, run.id) + len(decided)
        return [*decided, Draft(body(at, ahead), Act(SERVICE, causes=causes))]

    return outside(append_at_tip(session, last_drafts)[0])


_PROPOSING = frozenset(kind.__name__ for kind in PROPOSING)
_DECISIONS = frozenset(
    kind.__name__
    for kind in (
        k.MemoryCommitted,
        k.MemoryQuarantined,
        k.MemoryRejected,
        k.MemorySupported,
        k.MemorySuperseded,
    )
)


def _decisions(run: Run, at: Session, started: int) -> list[Draft]:
    """Return the decisions about memories that a run proposed beyond its own session.

    Recorded ones are taken as they are: a gate decides once.
    """
    decided = list[Draft]()
    while (step := run.journal.step_after(position_of(at), len(decided))) is not None:
        if step.kind not in _DECISIONS:
            break
        header = step.header
        act = Act(header.actor, header.origin, header.behalf, header.call, header.causes)
        decided.append(Draft(step.body, act))
    if step is not None or decided or run.journal.is_replay or not _has_proposals(run, at, started):
        return decided
    return list(decisions_at_end(at, started))


def _has_proposals(run: Run, at: Session, started: int) -> bool:
    """True if the run may have memories to decide about, its time in other processes included."""
    if run.has_proposals or not run.holder:
        return run.has_proposals
    return any(store_at(at.store).read(at.id, started + 1, at.seq, kinds=_PROPOSING))


def unpassed_inputs(error: BaseException, root: LogId) -> tuple[Digest, ...]:
    """Return the messages over which a run fails, which no model is to see: those that a guard
    could not judge, or refused in another log than that of the run.
    """
    found: dict[Digest, None] = {}
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if isinstance(at, GuardFailed) and at.unjudged:
            found[Digest(at.unjudged)] = None
        elif isinstance(at, GuardRefused) and at.message:
            # a verdict in the log of the run names the message itself
            if isinstance(at.session, Session) and at.session.id != root:
                found[Digest(at.message)] = None
        at = at.__cause__
    return tuple(found)


def failure_causes(error: BaseException) -> tuple[Digest, ...]:
    """Return the recorded failure that an error comes from, if there is one: a resume of the run
    tries it again.
    """
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if isinstance(at, (ModelFailed, ToolFailed, BudgetExceeded)) and isinstance(
            at.session, Session
        ):
            last = store_at(at.session.store).event(at.session.head)
            # of a workflow that failed as a tool: the failure in its branch, too
            return (last.id, *last.header.causes) if isinstance(at, ToolFailed) else (last.id,)
        if isinstance(at, GuardRefused) and isinstance(at.session, Session):
            return (at.session.head,) if at.what == "answer" else ()
        if isinstance(at, (ResultInvalid, ChoiceInvalid)) and isinstance(at.session, Session):
            last = store_at(at.session.store).event(at.session.head)
            # a rule that chose wrongly asked no model
            return (last.id,) if last.kind == k.ModelReplied.__name__ else ()
        at = at.__cause__
    return ()


def end_unheld(session: Session, reason: str) -> None:
    """Cancel the open run of a session, if no process has it. A process that has the run finds the
    wish to cancel in the inbox, before its next effect.
    """
    at = outside(session).reload()
    run = open_run_of(at)
    if run is None or is_going_on(run):
        return
    try:
        lock = store_at(at.store).lock(run, at.short)
    except RunHeld:
        return
    try:
        inside = advance(at, msgspec.structs.replace(position_of(at), run=run))
        news = undelivered(inside)
        wish = next(
            (draft.act.actor for draft in news if isinstance(draft.body, k.CancelRequested)),
            SERVICE,
        )
        append_around_run(
            position_of(inside), [*news, Draft(k.RunCancelled(reason, wish), Act(SERVICE))]
        )
    finally:
        lock.release()


def let_go(run: Run) -> None:
    """Close a run in this process, and release its lock."""
    close_run(run)
    run.ahead.close()
    if run.lock is not None:
        run.lock.release()


def outside(session: Session) -> Session:
    """Return the value without its run, as code outside of the run has it."""
    return advance(session, msgspec.structs.replace(position_of(session), run=None))
