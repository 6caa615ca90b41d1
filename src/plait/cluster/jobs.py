"""Jobs: one run for each of some sessions, so many at a time, with limits.

A job is a session of its own: its log says what was submitted, with which limits, and how each
index ended. All that a `Job` answers is a fold of that log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from plait.cluster.job_driving import JobDriver
from plait.cluster.job_state import JobCondition, JobFold, JobIndex, JobStatus
from plait.cluster.log_driving import lock_soon
from plait.cluster.parts import JobPart, read_part
from plait.cluster.programs import find_portable
from plait.cluster.submitting import (
    check_count,
    now_in,
    plan_of,
    planned_start,
    submitted_code,
    wishes_of,
)
from plait.cluster.workers import ENDED
from plait.errors import (
    InvalidValue,
    JobFailed,
    JobPending,
    NotASession,
    RunOpen,
    SessionInJob,
    StaleHead,
)
from plait.event import kinds as k
from plait.ids import LogId, short
from plait.journal.writer import direct_writer
from plait.runtime.appends import append_around_run
from plait.session import Session
from plait.session.acting import acting_in
from plait.session.branching import recorded_durability
from plait.session.job_rows import job_of_session
from plait.session.moves import check_may
from plait.session.pauses import check_not_paused
from plait.session.ports import Act, Draft, Position, store_at
from plait.session.run_rows import run_of_branch
from plait.session.session import session_at
from plait.session.value import core_of, open_run_of, position_of
from plait.session.work_rows import WORK_BELL
from plait.store import Store
from plait.workflow import Workflow

SESSIONS_MAX = 10_000
LIMIT_MAX = 2**31 - 1
_BACKOFF_LIMIT = 3
_LOOK_S = 1.0  # between two looks of a waiting caller, without a bell
_LOCK_S = 30.0


class Job:
    """A job, as its log tells."""

    def __init__(self, session: Session) -> None:
        """Raises InvalidValue if the session is no job."""
        self._session = session
        self._store = store_at(session.store)
        self._fold = JobFold(session.id)
        self._now()

    @property
    def id(self) -> LogId:
        return self._session.id

    @property
    def short(self) -> str:
        return self._session.short

    @property
    def session(self) -> Session:
        """The session of the job itself, as it is now."""
        return self._session.reload()

    @property
    def status(self) -> JobStatus:
        return self._now().status

    @property
    def conditions(self) -> tuple[JobCondition, ...]:
        """Suspended, if it ever was; Complete or Failed, if it is over."""
        return self._now().conditions

    @property
    def active(self) -> int:
        """The count of indexes whose run did not end. It is 0 while the job is suspended."""
        fold = self._now()
        return 0 if fold.is_suspended else len(fold.active)

    @property
    def succeeded(self) -> int:
        """The count of indexes that succeeded."""
        return self._now().succeeded

    @property
    def failed(self) -> int:
        """The count of attempts that failed, of all indexes."""
        return self._now().failures

    @property
    def indexes(self) -> tuple[JobIndex, ...]:
        """Each index, with its session and how it stands."""
        return tuple([msgspec.structs.replace(index) for index in self._now().indexes])

    @property
    def completed_indexes(self) -> tuple[int, ...]:
        return tuple([each.index for each in self._now().indexes if each.status == "succeeded"])

    @property
    def failed_indexes(self) -> tuple[int, ...]:
        """The indexes that failed or were cancelled."""
        over = ("failed", "cancelled")
        return tuple([each.index for each in self._now().indexes if each.status in over])

    @property
    def order(self) -> k.JobSubmitted:
        """The submitted job: its sessions and its limits."""
        return self._now().order

    def suspend(self, reason: str = "", *, actor: str | None = None) -> None:
        """Submit no more runs, and pause those that are open at their next safe point.

        It does nothing to a job that is suspended, or over.
        """
        fold = self._now()
        if fold.ended is None and not fold.is_suspended:
            self._say(k.JobSuspended(reason), actor)

    def resume(self, reason: str = "", *, actor: str | None = None) -> None:
        """Go on with a suspended job. Its deadline counts from here."""
        fold = self._now()
        if fold.ended is None and fold.is_suspended:
            self._say(k.JobResumed(reason), actor)

    def wait(self, timeout_s: float | None = None) -> JobStatus:
        """Wait for the end of the job, at most so long, and return its status."""
        began = time.monotonic()
        bell = self._store.listen(ENDED)
        try:
            while (fold := self._now()).ended is None:
                left = _LOOK_S
                if timeout_s is not None:
                    left = min(left, timeout_s - (time.monotonic() - began))
                    if left <= 0:
                        break
                bell.wait(left)
        finally:
            bell.close()
        return fold.status

    def result(self, timeout_s: float | None = None) -> list[Session]:
        """Wait for the end of the job, and return the sessions of the indexes that succeeded, by
        index, each as it was after its run.

        Raises JobFailed if the job failed, and JobPending after `timeout_s`: it goes on.
        """
        self.wait(timeout_s)
        fold = self._fold
        if fold.ended is None:
            counts = f"{fold.succeeded} of {fold.order.completions} succeeded"
            raise JobPending(self.short, timeout_s or 0.0, f"{counts}, {len(fold.active)} active")
        if fold.ended.kind == "Failed":
            bad = tuple(each.index for each in fold.indexes if each.status != "succeeded")
            raise JobFailed(self.short, fold.ended.reason, fold.ended.message, bad)
        done = [index for index in fold.indexes if index.status == "succeeded"]
        return [self._session_after(index) for index in done]

    def _session_after(self, index: JobIndex) -> Session:
        session = Session.open(index.session, store=self._store)
        last = read_part(session, JobPart(self.id, index.index, index.after)).last
        assert last is not None, "an index that succeeded has a run"
        return session_at(Position(session.store, session.id, last.seq, last.id))

    def _say(self, body: k.JobSuspended | k.JobResumed, actor: str | None) -> None:
        act = acting_in(self._session, actor)
        append_around_run(position_of(self._session.reload()), [Draft(body, act)])
        JobDriver(self._store).advance(self.id)

    def _now(self) -> JobFold:
        self._fold.read(self._store)
        _ = self._fold.order  # which raises
        return self._fold

    def __repr__(self) -> str:
        return f"<Job {self.short} {self.status}>"


# ── making one ───────────────────────────────────────────────────────────────────────────────


def submit_job(
    workflow: Workflow | str,
    sessions: Iterable[Session],
    kwargs: Mapping[str, Any],
    *,
    parallelism: int,
    backoff_limit: int | None,
    backoff_limit_per_index: int | None,
    deadline_s: float | None,
    ttl_s: float | None,
    completions: int | None,
    need: Iterable[str],
    priority: int,
    same_code: bool,
    actor: str | None,
) -> Job:
    """Check all of a job, write its log, and submit its first runs."""
    parts = _checked_sessions(sessions)
    store = store_at(parts[0].store)
    program = find_portable(workflow)
    started = planned_start(parts[0], program, (), kwargs)
    wishes = wishes_of(
        "",
        now=now_in(store),
        need=need,
        priority=priority,
        same_code=same_code,
        code=submitted_code(program),
    )
    if backoff_limit is None and backoff_limit_per_index is None:
        backoff_limit = _BACKOFF_LIMIT
    body = k.JobSubmitted(
        plan_of(started),
        tuple([part.id for part in parts]),
        wishes,
        check_count("parallelism", parallelism, 1, LIMIT_MAX),
        check_count(
            "completions", len(parts) if completions is None else completions, 1, len(parts)
        ),
        _limit("backoff_limit", backoff_limit),
        _limit("backoff_limit_per_index", backoff_limit_per_index),
        _seconds("deadline_s", deadline_s, is_above_zero=True),
        _seconds("ttl_s", ttl_s, is_above_zero=False),
    )
    # two jobs over one session: one is first
    lock = lock_soon(store, "jobs", "jobs", _LOCK_S) or store.lock("jobs", "jobs")
    try:
        for part in parts:
            if (job := job_of_session(store, part.id)) is not None:
                raise SessionInJob(part.short, short(job))
        session = _open_job_session(store, parts, body, actor)
    finally:
        lock.release()
    JobDriver(store).advance(session.id)
    store.ring(WORK_BELL)
    return Job(session)


def _checked_sessions(sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions of a job; raises for one that cannot run."""
    parts = list(sessions)
    if not parts:
        raise InvalidValue("sessions", "there are none", "pass one or more")
    if len(parts) > SESSIONS_MAX:
        step = f"pass at most {SESSIONS_MAX}, and the others to further jobs"
        raise InvalidValue("sessions", f"there are {len(parts)}", step)
    seen = set[LogId]()
    for part in parts:
        if not isinstance(part, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise NotASession("a job was given", part)
        if part.store != parts[0].store:
            raise InvalidValue("sessions", "they live in several stores", "make a job for each")
        if part.id in seen:
            step = "name it once, or fork it"
            raise InvalidValue("sessions", f"{part.short} is there twice", step)
        seen.add(part.id)
        check_may_run(part)
    return parts


def check_may_run(session: Session) -> None:
    """Raise if a run could not be started in a session now."""
    store = store_at(session.store)
    log = store.log(session.id)
    if log.head != session.head:
        raise StaleHead(session.id, session.head, log.head, log.tip)
    if (run := open_run_of(session) or run_of_branch(store, log)) is not None:
        raise RunOpen(session.short, run)
    check_may(core_of(session), "run a workflow")
    check_not_paused(core_of(session), "run a workflow")


def _limit(name: str, value: int | None) -> int | None:
    return check_count(name, value, 0, LIMIT_MAX) if value is not None else None


def _seconds(name: str, value: float | None, *, is_above_zero: bool) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_number or not 0 <= value <= 10**9 or (is_above_zero and not value):
        step = "pass seconds above 0, or None" if is_above_zero else "pass seconds, or None"
        raise InvalidValue(name, f"{value!r:.60} is not a time to wait", step)
    return float(value)


def _open_job_session(
    store: Store, parts: Sequence[Session], body: k.JobSubmitted, actor: str | None
) -> Session:
    """Write the first events of a job's log, in one transaction."""
    projects = {part.project for part in parts}
    users = {part.user for part in parts}
    opened = k.SessionOpened(
        title=f"Job: {body.run.workflow.rpartition(':')[2]} of {len(parts)}",
        user=users.pop() if len(users) == 1 else None,
        project=projects.pop() if len(projects) == 1 else None,
        durability=recorded_durability("full", store),
    )
    act = Act(actor or direct_writer().principal())
    at = direct_writer().begin(store.address, [Draft(opened, act), Draft(body, act)])
    return session_at(at)
