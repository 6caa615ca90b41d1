"""Kinds about jobs and kept sessions: a log of its own for each, which no run is open in."""

from __future__ import annotations

from typing import Literal

from plait.event.kinds.base import Body, MeasuredTime
from plait.event.kinds.values import Failure, PlannedRun, Wishes
from plait.ids import LogId

IndexEnd = Literal["succeeded", "failed", "cancelled"]


class JobSubmitted(Body, frozen=True):
    """The first word of a job: one run per session, with these limits."""

    run: PlannedRun
    sessions: tuple[LogId, ...]  # by index
    wishes: Wishes  # of each run; its project is that of its session
    parallelism: int
    completions: int  # so many indexes have to succeed
    backoff_limit: int | None = None  # failures of all indexes. None: any number
    backoff_limit_per_index: int | None = None
    deadline_s: float | None = None  # from the start, or from the last resume
    ttl_s: float | None = None  # its rows are removed so long after its end. None: never


class JobIndexStarted(Body, frozen=True):
    """The run of an index may be submitted from here on, once."""

    index: int
    after: int  # the seq of its session then: the run comes after it


class JobIndexFailed(Body, frozen=True):
    """The run of an index failed, and is tried again from `due` on."""

    index: int
    failures: int  # of this index so far
    failure: Failure
    due: MeasuredTime


class JobIndexEnded(Body, frozen=True):
    index: int
    how: IndexEnd
    why: str = ""
    failures: int = 0


class JobSuspended(Body, frozen=True):
    reason: str = ""


class JobResumed(Body, frozen=True):
    reason: str = ""


class JobEnded(Body, frozen=True):
    """The decision that a job is over. Runs of it that are open are cancelled after it."""

    condition: Literal["Complete", "Failed"]
    reason: str = ""  # in one word, as BackoffLimitExceeded
    message: str = ""


class JobExpired(Body, frozen=True):
    """Its time to live is over: it is listed no more. Logs stay."""


class KeeperSet(Body, frozen=True):
    """So many sessions of this name are kept at work, each with an ordinal, from here on."""

    name: str
    replicas: int
    run: PlannedRun
    wishes: Wishes


class KeptStarted(Body, frozen=True):
    """The next run of an ordinal may be submitted from here on, once."""

    ordinal: int
    session: LogId
    round: int  # counted from 1
    after: int  # the seq of the session then: the run comes after it


class KeptEnded(Body, frozen=True):
    ordinal: int
    round: int
    how: IndexEnd
    due: MeasuredTime  # the next one starts not before
    why: str = ""
    failures: int = 0  # one after another, up to this one
