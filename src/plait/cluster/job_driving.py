"""Driving jobs: there is no controller. Workers do it, beside their runs: the worker that executed
a run of a job, and every worker now and then.

A driver has the lock of the job, reads its log, and writes what follows from it before it acts: an
index is on record before its run is submitted. So a driver may die at any moment, and the next one
goes on from the log.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial

from plait.cluster.job_state import JobFold, JobIndex, find_end, indexes_to_start
from plait.cluster.parts import (
    ACTOR,
    CannotRun,
    JobPart,
    PartRun,
    cancel_part,
    read_part,
    resubmit_part,
    resume_part,
    submit_part,
    suspend_part,
)
from plait.cluster.submitting import now_in
from plait.cluster.workers import ENDED
from plait.errors import RunHeld, StaleHead
from plait.event import Body
from plait.event import kinds as k
from plait.ids import LogId, Micros, short
from plait.journal.writer import direct_writer
from plait.session import Session
from plait.session.backoff import backoff_s
from plait.session.job_rows import expired_jobs, job_rows
from plait.session.ports import Act, Draft
from plait.session.work_rows import GIVEN_UP, RETRY_S, RETRY_S_MAX
from plait.store import RunLock, Store

_WAIT_S = 1.0  # for another driver of the same job
_LOOK_S = 0.02
_FOLDS_MAX = 256  # jobs that a driver remembers
_ROUNDS_MAX = 1000  # steps of one job in a row


class JobDriver:
    """Drives the jobs of one store. Threads of a process share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._folds: dict[LogId, JobFold] = {}
        self._asked: set[str] = set()  # runs that were asked to end, by this process
        self._has_acted = False  # in this step: another look is worth its while

    def sweep(self, now: Micros) -> None:
        """Bring all jobs forward, and remove those whose time to live is over."""
        rows = [*job_rows(self._store, "active", "suspended", "ending")]
        for row in [*rows, *expired_jobs(self._store, now)]:
            if not row["name"]:
                self.advance(LogId(str(row["log"])), wait_s=0.0)

    def advance(self, job: LogId, wait_s: float = _WAIT_S) -> bool:
        """Do all that can be done for a job now. False: another driver is at it."""
        with self._guard:
            lock = lock_soon(self._store, f"job/{job}", job, wait_s)
            if lock is None:
                return False
            try:
                fold = self._folds.pop(job, None) or JobFold(job)
                for _ in range(_ROUNDS_MAX):
                    if not self._step(fold):
                        break
                if fold.is_expired:
                    return True
                self._folds[job] = fold
                while len(self._folds) > _FOLDS_MAX:
                    self._folds.pop(next(iter(self._folds)))
            finally:
                lock.release()
        return True

    def _step(self, fold: JobFold) -> bool:
        """Take one step. False: there is nothing to do now."""
        at, now = fold.read(self._store), now_in(self._store)
        if fold.is_expired or fold.submitted is None:
            return False
        self._has_acted = False
        words = [word for index in [*fold.active.values()] for word in self._see(fold, index, now)]
        if not words and fold.ended is None:
            end = find_end(fold, now)
            words = [end] if end is not None else [self._start(i) for i in indexes_to_start(fold)]
        if not words and self._is_to_expire(fold, now):
            words = [k.JobExpired()]
        if not words:
            return self._has_acted
        with suppress(StaleHead):  # a person was first: the next step reads it
            direct_writer().write(at, [Draft(word, Act(ACTOR)) for word in words])
        if any([isinstance(word, k.JobEnded) for word in words]):
            self._store.ring(ENDED)
        return True

    def _start(self, index: JobIndex) -> Body:
        return k.JobIndexStarted(index.index, self._store.log(index.session).tip)

    def _is_to_expire(self, fold: JobFold, now: Micros) -> bool:
        ttl_s = fold.order.ttl_s
        if fold.ended is None or fold.active or ttl_s is None:
            return False
        return now >= fold.ended.since + int(ttl_s * 1e6)

    def _see(self, fold: JobFold, index: JobIndex, now: Micros) -> list[Body]:
        """Look at the run of an index; return what is to be said of it, or act on what was said."""
        session = Session.open(index.session, store=self._store)
        part = JobPart(fold.log, index.index, index.after)
        found = read_part(session, part)
        end = partial(k.JobIndexEnded, index.index, failures=found.failures)
        if found.state == "succeeded":
            return [end("succeeded")]
        if found.state == "cancelled":
            return [end("cancelled", found.why)]
        if found.state == "failed":
            return self._see_failure(fold, index, session, found, now)
        if found.state == "none":
            if fold.ended is not None:
                return [end("cancelled", "the job was over before its run was submitted")]
            try:
                if not fold.is_suspended:
                    planned, wishes = fold.order.run, fold.order.wishes
                    self._has_acted |= submit_part(session, part, planned, wishes)
            except CannotRun as error:
                return [end("failed", f"{error}", failures=1)]
            return []
        self._steer(fold, session, found)
        return []

    def _see_failure(
        self, fold: JobFold, index: JobIndex, session: Session, found: PartRun, now: Micros
    ) -> list[Body]:
        assert found.failure is not None
        limit = fold.order.backoff_limit_per_index
        is_last = limit is not None and found.failures > limit
        if fold.ended is not None or is_last or found.failure.kind == GIVEN_UP:
            return [k.JobIndexEnded(index.index, "failed", found.why, found.failures)]
        if found.failures > index.failures:
            wait_s = backoff_s(RETRY_S, RETRY_S_MAX, found.run, found.failures)
            due = now + int(wait_s * 1e6)
            return [k.JobIndexFailed(index.index, found.failures, found.failure, due)]
        total = fold.order.backoff_limit
        if not fold.is_suspended and index.due <= now and (total is None or fold.failures <= total):
            part = JobPart(fold.log, index.index, index.after)
            self._has_acted |= resubmit_part(session, part, found.run, fold.order.wishes)
        return []

    def _steer(self, fold: JobFold, session: Session, found: PartRun) -> None:
        """End, pause or resume an open run, as its job says."""
        if fold.ended is not None:
            if found.run not in self._asked or found.state == "resubmitted":
                self._asked.add(found.run)
                self._has_acted = True
                why = fold.ended.reason
                cancel_part(session, found, f"job {short(fold.log)} is over: {why}")
        elif fold.is_suspended:
            suspend_part(session, fold.log)
        elif fold.suspended is not None:
            resume_part(session, fold.log)


def lock_soon(store: Store, name: str, shown: str, wait_s: float) -> RunLock | None:
    """Take a lock that another process may have for a moment. None: it still has it."""
    until = time.monotonic() + wait_s
    while True:
        try:
            return store.lock(name, shown)
        except RunHeld:
            if time.monotonic() >= until:
                return None
        time.sleep(_LOOK_S)
