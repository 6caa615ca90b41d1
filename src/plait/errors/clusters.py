"""Errors about submitted runs, and the workers that execute them."""

from __future__ import annotations

from collections.abc import Sequence

from plait.errors.base import PlaitError
from plait.errors.inputs import InvalidInput
from plait.errors.sessions import SessionError


class NotPortable(InvalidInput):
    """A workflow that a process elsewhere could not find or make again. Nothing was written."""

    def __init__(self, workflow: str, why: str, step: str) -> None:
        self.workflow, self.why = workflow, why
        super().__init__(f"{workflow} cannot be submitted: {why}. Nothing was written; {step}.")


class QueueFull(SessionError):
    """A project has as many runs in the queue as it may. Nothing was written."""

    def __init__(self, project: str, queued: int, queued_max: int, retry_after_s: float) -> None:
        self.project, self.queued, self.queued_max = project, queued, queued_max
        self.retry_after_s = retry_after_s
        super().__init__(
            f"project {project or '(none)'} has {queued} runs in the queue, and may have"
            f" {queued_max}. Nothing was written; submit it again in {retry_after_s:.0f} s."
        )


class TaskFailed(SessionError):
    """A submitted run failed, and is not tried again."""

    def __init__(self, session: str, seq: int, why: str) -> None:
        self.session, self.seq, self.why = session, seq, why
        super().__init__(
            f"the run of session {session} failed: {why}. It is on record at {session}@{seq};"
            f" take it up again with `plait resume {session}`."
        )


class TaskCancelled(SessionError):
    """A submitted run was cancelled: it has no result."""

    def __init__(self, session: str, seq: int, by: str, reason: str) -> None:
        self.session, self.seq, self.by, self.reason = session, seq, by, reason
        because = f": {reason}" if reason else ""
        super().__init__(
            f"the run of session {session} was cancelled by {by}{because}. It is on record at"
            f" {session}@{seq}; submit it again to start another."
        )


class TaskPending(SessionError):
    """A submitted run did not end in the time that its caller waits. It goes on."""

    def __init__(self, session: str, waited_s: float, why: str) -> None:
        self.session, self.waited_s, self.why = session, waited_s, why
        super().__init__(
            f"the run of session {session} has not ended after {waited_s:g} s: {why}. It goes on;"
            f" ask again with task.result(), or `plait cluster why {session}`."
        )


class SessionInJob(SessionError):
    """A session is a part of a job that is not over. Nothing was written."""

    def __init__(self, session: str, job: str) -> None:
        self.session, self.job = session, job
        super().__init__(
            f"session {session} is a part of job {job}, which is not over. Nothing was written;"
            f" see `plait cluster job {job}`, or fork the session."
        )


class UnknownKept(SessionError):
    """No sessions are kept under this name. Nothing was written."""

    def __init__(self, name: str, store: str) -> None:
        self.name, self.store = name, store
        super().__init__(
            f"no sessions are kept under the name {name!r} in {store}. Nothing was written; say"
            " which workflow is to keep them at work: cluster.keep(name, workflow, replicas=3)."
        )


class JobFailed(SessionError):
    """A job came to an end without the successes that it needs."""

    def __init__(self, job: str, reason: str, message: str, indexes: tuple[int, ...]) -> None:
        self.job, self.reason, self.indexes = job, reason, indexes
        named = ", ".join(str(index) for index in indexes[:10])
        failed = f" Indexes without success: {named}{', …' if len(indexes) > 10 else ''}."
        super().__init__(
            f"job {job} failed ({reason}): {message}.{failed if indexes else ''}"
            f" See `plait cluster job {job}`."
        )


class JobPending(SessionError):
    """A job did not end in the time that its caller waits. It goes on."""

    def __init__(self, job: str, waited_s: float, counts: str) -> None:
        self.job, self.waited_s = job, waited_s
        super().__init__(
            f"job {job} has not ended after {waited_s:g} s: {counts}. It goes on; ask again with"
            f" job.result(), or `plait cluster job {job}`."
        )


class WorkerError(PlaitError):
    """A worker cannot serve."""


class WorkerNameTaken(WorkerError):
    def __init__(self, name: str, store: str) -> None:
        self.name, self.store = name, store
        super().__init__(
            f"a worker named {name} serves {store} already. Give this one another name: --name."
        )


class UnknownWorker(WorkerError):
    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name, self.known = name, tuple(known)
        there = f"there are: {', '.join(known)}" if known else "no worker serves this store"
        super().__init__(f"there is no worker named {name}: {there}. See `plait cluster ls`.")
