"""Rows of jobs: those that are driven by workers, and the sessions that each has.

| state | meaning |
|---|---|
| active | its runs are submitted, or kept at work |
| suspended | no run of it is submitted |
| ending | it is over; runs of it are not yet |
| over | all of it is over |
"""

from __future__ import annotations

from typing import Literal

import msgspec

from plait.errors import UnknownRows
from plait.event import Event
from plait.event.kinds import (
    JobEnded,
    JobExpired,
    JobIndexEnded,
    JobIndexStarted,
    JobResumed,
    JobSubmitted,
    JobSuspended,
    KeeperSet,
    KeptEnded,
    KeptStarted,
)
from plait.ids import LogId
from plait.session.work_rows import program_name
from plait.store import Row, Rows, Store, Table

JobState = Literal["active", "suspended", "ending", "over"]

NEVER = 2**63 - 1
_ALL = 2**31
_ids = msgspec.json.Decoder(tuple[str, ...]).decode
_STARTS = (JobIndexStarted, KeptStarted)
_ENDS = (JobIndexEnded, KeptEnded)
_SUSPENDS = {JobSuspended.__name__: 1, JobResumed.__name__: 0}


class JobRows:
    """A `Projection`: one row per job, or name of kept sessions, until its time to live is over;
    and the sessions of jobs that are not over.

    All events of a job stand in one log. Its sessions are named by pairs, so that the rows of two
    jobs are the same in whichever order they are folded.
    """

    name = "job"
    version = 1
    kinds = frozenset(
        kind.__name__
        for kind in (
            JobSubmitted,
            JobIndexStarted,
            JobIndexEnded,
            JobSuspended,
            JobResumed,
            JobEnded,
            JobExpired,
            KeeperSet,
            KeptStarted,
            KeptEnded,
        )
    )
    tables = (
        Table(
            "job",
            key=("log",),
            columns={
                "log": "text",
                "number": "integer",
                "name": "text",  # of kept sessions; "": it is a job
                "program": "text",  # as workers know it
                "state": "text",
                "suspended": "integer",
                "active": "integer",  # indexes or ordinals that started, and did not end
                "replicas": "integer",
                "ttl": "integer",  # microseconds; NEVER: it is not removed
                "due": "integer",  # when its rows are removed
            },
            order="number",
            indexes=(("state", "due"), ("state", "number")),
        ),
        Table("job_list", key=("job",), columns={"job": "text", "sessions": "text"}),
        Table("job_part", key=("log", "job"), columns={"log": "text", "job": "text"}),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        body, log = event.body, event.log
        if isinstance(body, (JobSubmitted, KeeperSet)):
            self._add(rows, number, event)
            return
        row = rows.get("job", log)
        if row is None:
            return
        if isinstance(body, _STARTS):
            row = {**row, "active": _integer(row, "active") + 1}
        elif isinstance(body, _ENDS):
            row = {**row, "active": _integer(row, "active") - 1}
        elif event.kind in _SUSPENDS:
            row = {**row, "suspended": _SUSPENDS[event.kind]}
        elif isinstance(body, JobEnded):
            ttl = _integer(row, "ttl")
            due = event.header.time + ttl if ttl != NEVER else NEVER
            row = {**row, "replicas": 0, "due": due}
            for part in _parts_of(rows, log):
                rows.delete("job_part", part, log)
        elif isinstance(body, JobExpired):
            rows.delete("job", log)
            rows.delete("job_list", log)
            return
        rows.put("job", {**row, "state": _state_of(row)})

    def _add(self, rows: Rows, number: int, event: Event) -> None:
        body, log = event.body, event.log
        known = rows.get("job", log)
        if isinstance(body, KeeperSet):
            row: Row = {**(known or _new_row(number, log)), "name": body.name}
            row = {**row, "replicas": body.replicas, "program": program_name(body.run)}
        elif isinstance(body, JobSubmitted) and known is None:
            ttl = int(body.ttl_s * 1e6) if body.ttl_s is not None else NEVER
            row = {**_new_row(number, log), "replicas": 1, "ttl": ttl}
            row["program"] = program_name(body.run)
            sessions = msgspec.json.encode(body.sessions).decode()
            rows.put("job_list", {"job": log, "sessions": sessions})
            for part in body.sessions:
                rows.put("job_part", {"log": part, "job": log})
        else:
            return
        rows.put("job", {**row, "state": _state_of(row)})


def _new_row(number: int, log: LogId) -> Row:
    whole = {"suspended": 0, "active": 0, "replicas": 0, "ttl": NEVER, "due": NEVER}
    return {"log": log, "number": number, "name": "", "program": "", "state": "", **whole}


def _state_of(row: Row) -> JobState:
    if not row["replicas"]:
        return "ending" if _integer(row, "active") > 0 else "over"
    return "suspended" if row["suspended"] else "active"


def _parts_of(rows: Rows, job: LogId) -> tuple[str, ...]:
    row = rows.get("job_list", job)
    return _ids(str(row["sessions"])) if row is not None else ()


def _integer(row: Row, column: str) -> int:
    return int(str(row[column]))


# ── reading ──────────────────────────────────────────────────────────────────────────────────


def job_rows(store: Store, *states: JobState) -> list[Row]:
    """Return the rows of jobs and kept names in these states, the oldest first; without a state,
    in any.
    """
    where = {"state": frozenset(states)} if states else None
    try:
        return store.rows(JobRows.name, "job", where, order="number", limit=_ALL)
    except UnknownRows:
        return []


def find_job_row(store: Store, log: LogId) -> Row | None:
    """Return the row of a job, or of a name of kept sessions. None: there is none any more."""
    try:
        rows = store.rows(JobRows.name, "job", {"log": log}, limit=1)
    except UnknownRows:
        return None
    return rows[0] if rows else None


def expired_jobs(store: Store, now: int, limit: int = 16) -> list[Row]:
    """Return rows of jobs that are over, and whose time to live is, too."""
    try:
        rows = store.rows(JobRows.name, "job", {"state": "over"}, order="due", limit=limit)
    except UnknownRows:
        return []
    return [row for row in rows if _integer(row, "due") <= now]


def job_of_session(store: Store, log: LogId) -> LogId | None:
    """Return the job that has a session, and is not over. None: there is none."""
    try:
        rows = store.rows(JobRows.name, "job_part", {"log": log}, limit=1)
    except UnknownRows:
        return None
    return LogId(str(rows[0]["job"])) if rows else None
