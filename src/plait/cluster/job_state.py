"""The state of a job: a fold of its log, and of nothing else.

The words are those of the Kubernetes Job page: an index is one session of the job; `active`,
`succeeded` and `failed` are counts, and `failed` counts every attempt that failed.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from plait.errors import InvalidValue
from plait.event import Event
from plait.event import kinds as k
from plait.ids import Digest, LogId, Micros
from plait.session.ports import Position
from plait.store import Store

JobStatus = Literal["active", "suspended", "complete", "failed"]
IndexStatus = Literal["waiting", "active", "succeeded", "failed", "cancelled"]


class JobCondition(NamedTuple):
    """One of Complete, Failed and Suspended, with the time since which it is as it is."""

    kind: Literal["Complete", "Failed", "Suspended"]
    is_true: bool
    since: Micros
    reason: str = ""
    message: str = ""


class JobIndex(msgspec.Struct):
    """One session of a job."""

    index: int
    session: LogId
    status: IndexStatus = "waiting"
    failures: int = 0
    why: str = ""
    after: int = 0  # the seq of its session when it started
    due: Micros = 0  # when it is tried again


class JobFold:
    """A job as its log tells, up to an event. It takes the events after that."""

    def __init__(self, log: LogId) -> None:
        self.log, self.seq, self.head = log, 0, Digest("")
        self.submitted: k.JobSubmitted | None = None
        self.indexes = list[JobIndex]()
        self.active = dict[int, JobIndex]()  # those that started, and did not end
        self.succeeded = self.failures = 0
        self.began: Micros = 0  # of its submission, or of its last resume
        self.is_expired = False
        self.suspended: JobCondition | None = None
        self.ended: JobCondition | None = None
        self._next = 0  # no index before it waits

    @property
    def order(self) -> k.JobSubmitted:
        """The first word of the job. Raises InvalidValue if the log is none of a job."""
        if self.submitted is None:
            step = "name one that `plait cluster jobs` lists"
            raise InvalidValue("job", f"session {self.log} is no job", step)
        return self.submitted

    @property
    def is_suspended(self) -> bool:
        return self.suspended is not None and self.suspended.is_true

    @property
    def status(self) -> JobStatus:
        if self.ended is not None:
            return "complete" if self.ended.kind == "Complete" else "failed"
        return "suspended" if self.is_suspended else "active"

    @property
    def conditions(self) -> tuple[JobCondition, ...]:
        return tuple(each for each in (self.suspended, self.ended) if each is not None)

    def waiting(self, count: int) -> list[JobIndex]:
        """Return the first indexes, at most so many, that did not start."""
        while self._next < len(self.indexes) and self.indexes[self._next].status != "waiting":
            self._next += 1
        return self.indexes[self._next : self._next + max(0, count)]

    def read(self, store: Store) -> Position:
        """Take the events that the log has by now; return the place of the last one."""
        for event in store.read(self.log, self.seq + 1):
            self.take(event)
        return Position(store.address, self.log, self.seq, self.head)

    def take(self, event: Event) -> None:
        """Take the next event of the log."""
        self.seq, self.head = event.seq, event.id
        body, time = event.body, event.header.time
        if isinstance(body, k.JobSubmitted) and self.submitted is None:
            self.submitted, self.began = body, time
            self.indexes = [JobIndex(n, log) for n, log in enumerate(body.sessions)]
        elif isinstance(body, k.JobIndexStarted):
            index = self.indexes[body.index]
            index.status, index.after = "active", body.after
            self.active[body.index] = index
        elif isinstance(body, k.JobIndexFailed):
            index = self.indexes[body.index]
            self._count_failures(index, body.failures)
            index.due = body.due
            index.why = f"{body.failure.kind}: {body.failure.message}"
        elif isinstance(body, k.JobIndexEnded):
            index = self.indexes[body.index]
            self._count_failures(index, body.failures)
            index.status, index.why = body.how, body.why
            self.active.pop(body.index, None)
            self.succeeded += body.how == "succeeded"
        elif isinstance(body, (k.JobSuspended, k.JobResumed)):
            is_suspended = isinstance(body, k.JobSuspended)
            self.suspended = JobCondition("Suspended", is_suspended, time, message=body.reason)
            self.began = time
        elif isinstance(body, k.JobEnded) and self.ended is None:
            self.ended = JobCondition(body.condition, True, time, body.reason, body.message)
        elif isinstance(body, k.JobExpired):
            self.is_expired = True

    def _count_failures(self, index: JobIndex, failures: int) -> None:
        self.failures += max(0, failures - index.failures)
        index.failures = max(failures, index.failures)


def find_end(fold: JobFold, now: Micros) -> k.JobEnded | None:
    """Return the end of a job, if it has come to one."""
    order = fold.order
    if fold.succeeded >= order.completions:
        return k.JobEnded("Complete", "CompletionsReached", f"{fold.succeeded} succeeded")
    limit = order.backoff_limit
    if limit is not None and fold.failures > limit:
        why = f"{fold.failures} attempts failed, and {limit} may"
        return k.JobEnded("Failed", "BackoffLimitExceeded", why)
    if not fold.active and not fold.waiting(1):
        bad = sum([index.status != "succeeded" for index in fold.indexes])
        return k.JobEnded("Failed", "FailedIndexes", f"{bad} indexes failed or were cancelled")
    late = order.deadline_s is not None and now >= fold.began + int(order.deadline_s * 1e6)
    if late and not fold.is_suspended:
        why = f"it was active for more than {order.deadline_s:g} s"
        return k.JobEnded("Failed", "DeadlineExceeded", why)
    return None


def indexes_to_start(fold: JobFold) -> list[JobIndex]:
    """Return the indexes that may start now."""
    if fold.is_suspended:
        return []
    order = fold.order
    room = min(order.parallelism, order.completions - fold.succeeded) - len(fold.active)
    return fold.waiting(room)
