"""Workers drive jobs and kept sessions beside their runs: the worker that executed a run of one,
and every worker now and then.
"""

from __future__ import annotations

from plait.cluster.job_driving import JobDriver
from plait.cluster.keeping import KeepDriver
from plait.ids import LogId, Micros
from plait.session.job_rows import expired_jobs, find_job_row, job_rows
from plait.store import Row, Store


class JobDrivers:
    """Drives the jobs and the kept sessions of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs, self._kept = JobDriver(store), KeepDriver(store)

    def sweep(self, now: Micros) -> bool:
        """Bring all forward, and remove jobs whose time to live is over. True: some are open."""
        rows = job_rows(self._store, "active", "suspended", "ending")
        for row in [*rows, *expired_jobs(self._store, now)]:
            self._advance(row, wait_s=0.0)
        return bool(rows)

    def has_retries(self, programs: frozenset[str], soon: Micros) -> bool:
        """True if a job of one of these programs tries an index again until then."""
        rows = job_rows(self._store, "active")
        mine = [row for row in rows if not row["name"] and str(row["program"]) in programs]
        return any([self._jobs.has_retries(LogId(str(row["log"])), soon) for row in mine])

    def advance(self, log: LogId) -> None:
        """Bring one forward: a run of it has stopped."""
        if (row := find_job_row(self._store, log)) is not None:
            self._advance(row, wait_s=1.0)

    def _advance(self, row: Row, wait_s: float) -> None:
        driver = self._kept if row["name"] else self._jobs
        driver.advance(LogId(str(row["log"])), wait_s)
