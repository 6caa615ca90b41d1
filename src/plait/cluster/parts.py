"""The runs of parts: an index of a job, or an ordinal of kept sessions.

The log of a job says that a part may start before its run is submitted, and after which event of
its session. So a driver that takes over finds the run of a part, or that there is none yet; and a
run is submitted after exactly the value in which none was found.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Literal, NamedTuple

import msgspec

from plait.cluster.places import with_demands
from plait.cluster.submitting import begin_submitted
from plait.errors import HasMoved, RunHeld, RunOpen, SessionError, StaleHead, WrongStatus
from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId, inbox_of, short
from plait.journal.writer import direct_writer
from plait.session import Session
from plait.session.moves import check_may
from plait.session.pauses import check_not_paused, is_paused
from plait.session.ports import Act, Draft, store_at
from plait.session.value import core_of, position_of
from plait.session.work_rows import BUDGET_FAILURE, WORK_BELL
from plait.store import Store

ACTOR = "service:cluster"
PartState = Literal["none", "open", "resubmitted", "succeeded", "failed", "cancelled"]

_ABOUT_RUNS = frozenset(
    kind.__name__
    for kind in (
        k.RunStarted,
        k.RunResumed,
        k.RunSubmitted,
        k.RunFinished,
        k.RunFailed,
        k.RunCancelled,
    )
)
_PAUSES = frozenset({k.SessionPaused.__name__, k.SessionResumed.__name__})
_OVER = ("closed", "archived")


class JobPart(NamedTuple):
    """The name of a part: it is in the wishes of its runs."""

    job: LogId
    ordinal: int
    after: int  # its run stands after this seq of its session


class PartRun(NamedTuple):
    """The run of a part, as the log of its session tells."""

    state: PartState
    run: str = ""
    failures: int = 0
    failure: k.Failure | None = None  # the last one
    why: str = ""
    began: Event | None = None  # its first event
    last: Event | None = None  # the last event about the run


def read_part(session: Session, part: JobPart) -> PartRun:
    """Return the run of a part in a session, up to this value of it."""
    store = store_at(session.store)
    found = PartRun("none")
    for event in store.read(session.id, part.after + 1, session.seq, kinds=_ABOUT_RUNS):
        body = event.body
        if isinstance(body, k.RunStarted):
            wishes = body.wishes
            if wishes is not None and (wishes.job, wishes.ordinal) == part[:2]:
                found = PartRun("open", event.header.run or event.id, began=event, last=event)
        elif found.run and found.run in (event.header.run, getattr(body, "run", None)):
            found = _after(found, event)
    return found


def _after(found: PartRun, event: Event) -> PartRun:
    """Return how a run stands after an event about it."""
    body = event.body
    found = found._replace(last=event)
    if isinstance(body, k.RunFinished):
        return found._replace(state="succeeded")
    if isinstance(body, k.RunFailed):
        if body.failure.kind == BUDGET_FAILURE:  # it waits for a grant
            return found._replace(state="open")
        why = f"{body.failure.kind}: {body.failure.message}"
        failures = found.failures + 1
        return found._replace(state="failed", failures=failures, failure=body.failure, why=why)
    if isinstance(body, k.RunCancelled) and body.by:
        return found._replace(state="cancelled", why=f"cancelled by {body.by}: {body.reason}")
    if isinstance(body, k.RunSubmitted):
        return found._replace(state="resubmitted") if found.state == "failed" else found
    return found._replace(state="open")


class CannotRun(Exception):
    """The session of a part takes no runs any more."""


def submit_part(session: Session, part: JobPart, planned: k.PlannedRun, wishes: k.Wishes) -> bool:
    """Submit the run of a part after exactly this value. False: it cannot be submitted now.

    Raises CannotRun if it never can be.
    """
    try:
        check_may(core_of(session), "run a workflow")
    except (WrongStatus, HasMoved) as error:
        if isinstance(error, HasMoved) or core_of(session).life.status in _OVER:
            raise CannotRun(error.record_text) from None
        return False
    started = k.RunStarted(
        planned.workflow,
        planned.arguments,
        planned.revision,
        planned.environment,
        version=planned.version,
        wishes=_own_wishes(session, part, wishes),
    )
    try:
        check_not_paused(core_of(session), "run a workflow")
        begin_submitted(session, started)
    except (StaleHead, RunOpen, RunHeld, WrongStatus):  # others act in it: look again later
        return False
    return True


def resubmit_part(session: Session, part: JobPart, run: str, wishes: k.Wishes) -> bool:
    """Leave a run that failed to the workers once more. False: another process was first."""
    store = store_at(session.store)
    try:
        lock = store.lock(run, session.short)
    except RunHeld:
        return False
    try:
        body = k.RunSubmitted(run, _own_wishes(session, part, wishes))
        direct_writer().write(position_of(session), [Draft(body, Act(ACTOR))])
    except StaleHead:
        return False
    finally:
        lock.release()
    store.ring(WORK_BELL)
    return True


def _own_wishes(session: Session, part: JobPart, wishes: k.Wishes) -> k.Wishes:
    project = session.project or session.user or ""
    own = msgspec.structs.replace(wishes, project=project, job=part.job, ordinal=part.ordinal)
    return with_demands(own, session.files.placement)


def cancel_part(session: Session, found: PartRun, reason: str) -> None:
    """Ask the run of a part to end. One that failed, and waits to be taken up again, is ended."""
    if found.state == "open":
        with suppress(SessionError):  # it ended meanwhile
            session.inbox.cancel(reason, actor=ACTOR)
    elif found.state == "resubmitted":
        with suppress(RunHeld, StaleHead):  # a worker has just taken it: it is open next time
            lock = store_at(session.store).lock(found.run, session.short)
            try:
                at = msgspec.structs.replace(position_of(session), run=found.run)
                direct_writer().write(at, [Draft(k.RunCancelled(reason, ACTOR), Act(ACTOR))])
            finally:
                lock.release()


# ── pauses of suspended jobs ─────────────────────────────────────────────────────────────────


def suspend_part(session: Session, job: LogId) -> None:
    """Pause the session of a part: its run goes no further than the effect at hand."""
    if not is_paused(core_of(session)):
        with suppress(SessionError):
            session.pause(reason=_pause_reason(job), actor=ACTOR)


def resume_part(session: Session, job: LogId) -> None:
    """Lift the pause of a job that was suspended. A pause by a person stays."""
    if is_paused(core_of(session)) and _last_pause(session) == (ACTOR, _pause_reason(job)):
        with suppress(SessionError):
            session.unpause(reason=f"job {short(job)} is resumed", actor=ACTOR)
        store_at(session.store).ring(WORK_BELL)


def _pause_reason(job: LogId) -> str:
    return f"job {short(job)} is suspended"


def _last_pause(session: Session) -> tuple[str, str]:
    """Return who paused a session last, and why."""
    store = store_at(session.store)
    found = list[tuple[int, Event]]()
    for log in (session.id, inbox_of(session.id)):
        event = _last_of(store, log)
        if event is not None:
            found.append((store.number_of(event.id) or 0, event))
    if not found:
        return "", ""
    event = max(found, key=lambda each: each[0])[1]
    return event.actor, getattr(event.body, "reason", "")


def _last_of(store: Store, log: LogId) -> Event | None:
    if log not in store.heads([log]):
        return None
    return next(iter(store.read(log, kinds=_PAUSES, reverse=True)), None)
