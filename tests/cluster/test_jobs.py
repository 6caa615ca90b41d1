"""Jobs: sessions with a log of their own, driven by workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from plait import Session
from plait.cluster import Cluster, Worker
from plait.session import verify
from plait.store import Store
from tests.cluster.flows import Count

Serve = Callable[..., Worker]
LONG_S = 120  # a test that waits so long has failed


def sessions_in(store: Store, count: int) -> list[Session]:
    return [Session(f"Part {n}", store=store) for n in range(count)]


def lines_in(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_job_runs_each_index_once(store: Store, serve: Serve, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sessions = sessions_in(store, 7)
    job = Cluster(store).job(Count(), sessions, parallelism=3, path=str(out))
    assert (job.status, job.active, job.succeeded, job.failed) == ("active", 3, 0, 0)
    serve()
    after = job.result(LONG_S)
    assert [each.id for each in after] == [each.id for each in sessions]
    assert {each.text for each in after} == {"counted"}
    assert len(lines_in(out)) == 21 == len(set(lines_in(out)))
    assert (job.status, job.active, job.succeeded, job.failed) == ("complete", 0, 7, 0)
    assert [(c.kind, c.is_true) for c in job.conditions] == [("Complete", True)]
    assert list(verify(store)) == []
