"""Driving jobs: an index is on record before its run is submitted, and its end before the next
one starts.
"""

from __future__ import annotations

from functools import partial

from plait.cluster.job_state import JobFold, JobIndex, find_end, indexes_to_start
from plait.cluster.log_driving import LogDriver
from plait.cluster.parts import (
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
from plait.cluster.workers import ENDED
from plait.event import Body
from plait.event import kinds as k
from plait.ids import LogId, Micros, short
from plait.session import Session
from plait.session.backoff import backoff_s
from plait.session.work_rows import GIVEN_UP, RETRY_S, RETRY_S_MAX
from plait.store import Store


class JobDriver(LogDriver[JobFold]):
    """Drives the jobs of one store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, JobFold)

    def has_retries(self, job: LogId, soon: Micros) -> bool:
        """True if an index that failed is tried again until then."""
        fold = JobFold(job)
        at = fold.read(self._store)
        waiting = [index for index in fold.active.values() if index.due and index.due <= soon]
        parts = [JobPart(at.id, index.index, index.after) for index in waiting]
        sessions = [Session.open(index.session, store=self._store) for index in waiting]
        states = [read_part(*each).state for each in zip(sessions, parts, strict=True)]
        return "failed" in states

    def _step(self, fold: JobFold) -> bool:
        was_over = fold.ended is not None
        is_more = super()._step(fold)
        if fold.ended is not None and not was_over:
            self._store.ring(ENDED)
        return is_more

    def _next_words(self, fold: JobFold, now: Micros) -> list[Body]:
        words = [word for index in [*fold.active.values()] for word in self._see(fold, index, now)]
        if words:
            return words
        if fold.ended is None:
            end = find_end(fold, now)
            return [end] if end is not None else [self._start(i) for i in indexes_to_start(fold)]
        ttl_s = fold.order.ttl_s
        is_due = ttl_s is not None and now >= fold.ended.since + int(ttl_s * 1e6)
        return [k.JobExpired()] if is_due and not fold.active else []

    def _start(self, index: JobIndex) -> Body:
        return k.JobIndexStarted(index.index, self._store.log(index.session).tip)

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
