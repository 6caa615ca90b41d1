"""Driving one claimed run: it is taken up, executed until it stops, and let go of.

A run whose workers died three times, without a new event of the run in between, is given up on
record: a run that ends its workers must not go round.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from plait.calls.tool_call import SERVICE
from plait.cluster.claiming import ClaimedWork
from plait.cluster.outcomes import Outcome, outcome_of
from plait.cluster.places import bind_free_run
from plait.errors import NothingToResume, RunHeld
from plait.event import kinds as k
from plait.event.kinds import Chosen, Failure
from plait.ids import Digest, LogId
from plait.inside import Stop
from plait.journal.abandoned import branches_of
from plait.journal.recorded_run import RecordedRun, last_run, root_session, unmerged_heads
from plait.runs.take_up import ClaimedRun, resume_run
from plait.runtime.appends import append_around_run
from plait.runtime.attendants import NOBODY
from plait.runtime.end import outside
from plait.runtime.run import Run
from plait.session import Session
from plait.session.ports import Act, Draft, Position, store_at
from plait.session.session import session_at
from plait.session.value import advance, position_of
from plait.session.work_rows import GIVEN_UP
from plait.store import Store

DEATHS_MAX = 3
_UNREAD = Digest("")  # the head of a session of which nothing is known but its log


def drive_claimed(
    store: Store, work: ClaimedWork, on_start: Callable[[Run], None] | None = None
) -> Outcome:
    """Execute a claimed run until it stops; return how."""
    claimed = ClaimedRun(work.run.run, work.lock, work.claim)
    return _execute(store, LogId(work.run.log), claimed, on_start)


def _execute(
    store: Store, log: LogId, claimed: ClaimedRun, on_start: Callable[[Run], None] | None = None
) -> Outcome:
    """Execute a run that is locked, until it stops. Its lock is released in any case."""
    # The end of the log is looked up when the run is taken up.
    session = session_at(Position(store.address, log, 0, _UNREAD))
    try:
        is_given_up = claimed.claim.chosen == "taken over" and _give_up_if_deadly(session, claimed)
    except BaseException as error:  # the store may be away: the run must not stay locked
        claimed.lock.release()
        if isinstance(error, Exception):
            return outcome_of(error)
        raise
    if is_given_up:
        claimed.lock.release()
        return Outcome("failed", GIVEN_UP)
    try:
        resume_run(
            session, None, (), {}, NOBODY, None, on_start, lifts_pause=False, claimed=claimed
        )
    except (Exception, Stop, SystemExit) as error:
        return outcome_of(error)
    return outcome_of(None)


def drive(
    session: Session | str,
    *,
    store: str | Path | Store | None = None,
    worker: str = "",
    labels: tuple[str, ...] = (),
) -> Outcome:
    """Execute the open run of one session in this process until it stops, and return how: for a
    queue, or an engine, that delivers sessions itself.

    A second delivery is refused (`lost`), or finds nothing to do (`finished`, `not now`).
    """
    if not isinstance(session, Session):
        session = Session.open(session, store=store)
    at = root_session(outside(session).reload())
    recorded = last_run(at)
    try:
        if recorded is None:
            raise NothingToResume(at.short, "no run was ever started in it")
        if recorded.is_finished:
            return Outcome("finished")
        lock = store_at(at.store).lock(recorded.id, at.short)
    except (NothingToResume, RunHeld) as error:
        return outcome_of(error)
    claim = claim_of(recorded, worker, labels)
    outcome = _execute(store_at(at.store), at.id, ClaimedRun(recorded.id, lock, claim))
    if outcome.how == "elsewhere":
        bind_free_run(store_at(at.store), at.id, recorded.id, [outcome.why])
    return outcome


def claim_of(recorded: RecordedRun, worker: str = "", labels: tuple[str, ...] = ()) -> k.Claim:
    """Return the words for the record of a claim on one run. A worker without a name has that of
    its host and process.
    """
    host = socket.gethostname()
    return k.Claim(worker or f"{host}.{os.getpid()}", _reason_of(recorded), host, labels)


def _reason_of(recorded: RecordedRun) -> Chosen:
    if not recorded.resumes:
        return "first"
    return "retried" if recorded.is_over else "taken over"


def _give_up_if_deadly(session: Session, claimed: ClaimedRun) -> bool:
    """End a run whose workers died again and again, as failed. False: it is not such a run."""
    at = session.reload()
    names = _dead_workers(at, claimed.run)
    if not names:
        return False
    inside = advance(at, msgspec.structs.replace(position_of(at), run=claimed.run))
    why = f"its workers died, and it made no step in between: {', '.join(names)}"
    body = k.RunFailed(Failure(GIVEN_UP, why))
    append_around_run(position_of(inside), [Draft(body, Act(SERVICE))])
    return True


def _dead_workers(session: Session, run: str) -> list[str]:
    """Return the workers that took a run one after another, without a new event of it in between,
    if they are so many that it is given up.

    A worker that takes a run says so in its root and in each branch that is not merged. So the last
    events of all these logs are such words alone.
    """
    store = store_at(session.store)
    names = list[str]()
    for event in store.read(session.id, reverse=True):
        body = event.body
        if not isinstance(body, k.RunResumed) or event.header.run != run or body.claim is None:
            break
        names.insert(0, body.claim.worker)
        if body.claim.chosen != "taken over":  # the worker before it, if any, did not die
            break
    if len(names) < DEATHS_MAX:
        return []
    branches = list(unmerged_heads(session, list(branches_of(store, session.id, run))))
    ends = [(log.id, log.tip - back) for log in branches for back in range(DEATHS_MAX)]
    last = store.events_at(ends) if ends else []
    is_still = all([isinstance(event.body, k.RunResumed) for event in last])
    return names[-DEATHS_MAX:] if is_still else []
