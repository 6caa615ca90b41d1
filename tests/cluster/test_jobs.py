"""Jobs: sessions with a log of their own, driven by workers."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from plait import Session, open_store
from plait.cluster import Cluster, Job, Worker, drive, job_driving, log_driving
from plait.cluster.job_driving import JobDriver
from plait.cluster.job_state import JobFold
from plait.cluster.parts import JobPart, read_part
from plait.errors import (
    InvalidValue,
    JobFailed,
    JobPending,
    NotASession,
    RunOpen,
    SessionInJob,
    StaleHead,
    WrongStatus,
)
from plait.event import kinds as k
from plait.journal.writer import direct_writer
from plait.session import verify
from plait.session.job_rows import job_of_session, job_rows
from plait.session.ports import Act, Draft
from plait.session.value import position_of
from plait.store import Store
from tests.cluster.flows import (
    Count,
    Fails,
    FailsOdd,
    Slow,
    Wire,
    effects_in,
    lines_in,
    started_runs,
    wait_until,
)
from tests.laws.row_orders import check_orders, history_of

Serve = Callable[..., Worker]
LONG_S = 120  # a test that waits so long has failed


def sessions_in(store: Store, count: int) -> list[Session]:
    return [Session(f"Part {n}", title=f"part {n}", store=store) for n in range(count)]


def runs_of(job: Job, store: Store) -> list[list[str]]:
    """Return, by index, the runs that were started for it, as the logs of the sessions tell."""
    found = list[list[str]]()
    for index in job.indexes:
        starts = started_runs(store, index.session)
        found.append([run for run, wishes in starts if wishes == (job.id, index.index)])
    return found


def words_of(job: Job) -> Counter[str]:
    return Counter(event.kind for event in job.session.events)


# ── how a job ends ───────────────────────────────────────────────────────────────────────────


def test_a_job_runs_each_index_once(store: Store, serve: Serve, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sessions = sessions_in(store, 7)
    cluster = Cluster(store)
    job = cluster.job(Count(), sessions, parallelism=3, path=str(out))
    assert (job.status, job.active, job.succeeded, job.failed) == ("active", 3, 0, 0)
    assert [len(runs) for runs in runs_of(job, store)] == [1, 1, 1, 0, 0, 0, 0]
    assert job_of_session(store, sessions[6].id) == job.id
    serve()
    after = job.result(LONG_S)
    assert [each.id for each in after] == [each.id for each in sessions]
    assert {each.text for each in after} == {"counted"}
    assert len(lines_in(out)) == 21 == len(set(lines_in(out)))
    assert (job.status, job.active, job.succeeded, job.failed) == ("complete", 0, 7, 0)
    assert [(c.kind, c.is_true) for c in job.conditions] == [("Complete", True)]
    assert cluster.open_job(job.id).completed_indexes == tuple(range(7))
    assert cluster.open_job(job.short).failed_indexes == ()
    assert job_of_session(store, sessions[6].id) is None
    assert list(verify(store)) == []


def test_parallelism_is_never_exceeded(store: Store, serve: Serve, tmp_path: Path) -> None:
    job = Cluster(store).job(
        Slow(),
        sessions_in(store, 6),
        parallelism=2,
        path=str(tmp_path / "out"),
        seconds=0.02,
        steps=2,
    )
    serve(slots=6)
    most = 0
    while job.status == "active":
        most = max(
            most, sum(not index.status == "waiting" for index in job.indexes) - job.succeeded
        )
    assert job.succeeded == 6 and 1 <= most <= 2
    # by its log alone: at no event more than two had started and not ended
    fold, seen = JobFold(job.id), 0
    for event in job.session.events:
        fold.take(event)
        seen = max(seen, len(fold.active))
    assert seen == 2


def test_a_job_is_complete_with_as_many_successes_as_it_needs(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    job = Cluster(store).job(
        FailsOdd(),
        sessions_in(store, 5),
        completions=2,
        backoff_limit_per_index=0,
        path=str(tmp_path / "out"),
    )
    serve()
    assert [each.title for each in job.result(LONG_S)] == ["part 0", "part 2"]
    assert [index.status for index in job.indexes][4] == "waiting"
    assert job.failed_indexes == (1,)


def test_a_failed_index_is_tried_again_and_goes_on_in_the_same_run(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    job = Cluster(store).job(Fails(), sessions_in(store, 1), path=str(there))
    serve()
    wait_until(lambda: job.failed >= 1)
    there.touch()
    assert [each.text for each in job.result(LONG_S)] == ["at last"]
    assert [len(runs) for runs in runs_of(job, store)] == [1]
    assert job.failed >= 1 and words_of(job)["JobIndexFailed"] == job.failed


def test_a_job_fails_when_more_attempts_failed_than_may(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    job = Cluster(store).job(
        FailsOdd(),
        sessions_in(store, 4),
        parallelism=2,
        backoff_limit=0,
        path=str(tmp_path / "out"),
    )
    serve()
    with pytest.raises(JobFailed, match="BackoffLimitExceeded") as failed:
        job.result(LONG_S)
    assert failed.value.reason == "BackoffLimitExceeded" and 1 in failed.value.indexes
    wait_until(lambda: job.active == 0)
    # index 0 is cancelled if it has not ended by then
    assert [index.status for index in job.indexes][1:] in (
        ["failed", "waiting", "waiting"],
        ["failed", "cancelled", "waiting"],
        ["failed", "succeeded", "waiting"],
    )
    assert [(c.kind, c.reason) for c in job.conditions] == [("Failed", "BackoffLimitExceeded")]


def test_an_index_that_failed_does_not_hold_up_the_others(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    job = Cluster(store).job(
        FailsOdd(),
        sessions_in(store, 6),
        parallelism=1,
        backoff_limit_per_index=0,
        path=str(out),
    )
    serve()
    with pytest.raises(JobFailed, match="FailedIndexes"):
        job.result(LONG_S)
    assert job.completed_indexes == (0, 2, 4) and job.failed_indexes == (1, 3, 5)
    assert [index.why for index in job.indexes if index.status == "failed"] == [
        "RuntimeError: odd"
    ] * 3
    assert sorted(line.split()[1] for line in lines_in(out)) == ["0", "2", "4"]


def test_a_job_past_its_deadline_cancels_what_is_open_on_record(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    cluster = Cluster(store)
    job = cluster.job(
        Slow(), sessions_in(store, 3), parallelism=2, deadline_s=1.0, path=str(out), steps=10_000
    )
    parked = cluster.job(Wire(), sessions_in(store, 1), deadline_s=1.0)
    serve()
    for each in (job, parked):
        with pytest.raises(JobFailed, match="DeadlineExceeded"):
            each.result(LONG_S)
        wait_until(lambda each=each: each.active == 0)
    assert [index.status for index in job.indexes] == ["cancelled", "cancelled", "waiting"]
    assert [index.status for index in parked.indexes] == ["cancelled"]
    for index in job.indexes[:2]:
        session = Session.open(index.session, store=store)
        (end,) = [e.body for e in session.events if isinstance(e.body, k.RunCancelled)]
        assert end.by == "service:cluster" and "DeadlineExceeded" in end.reason


def test_a_cancelled_index_is_not_tried_again(store: Store, serve: Serve) -> None:
    job = Cluster(store).job(Wire(), sessions_in(store, 1))
    session = Session.open(job.indexes[0].session, store=store)
    session.inbox.cancel("not needed", actor="human:ann")
    serve()
    with pytest.raises(JobFailed, match="FailedIndexes"):
        job.result(LONG_S)
    assert "not needed" in job.indexes[0].why


def test_a_caller_waits_no_longer_than_it_wants(store: Store) -> None:
    job = Cluster(store).job(Count(), sessions_in(store, 2), parallelism=1)
    assert job.wait(0.01) == "active"
    with pytest.raises(JobPending, match="0 of 2 succeeded, 1 active"):
        job.result(0.01)


def test_a_job_in_memory() -> None:
    store = open_store("memory:jobs")
    worker = Worker(store, ["tests.cluster.flows"])
    thread = threading.Thread(target=worker.serve)
    thread.start()
    try:
        job = Cluster(store).job(Count(), sessions_in(store, 4), parallelism=2)
        assert len(job.result(LONG_S)) == 4
    finally:
        worker.drain()
        thread.join()
        store.close()


def test_rows_are_the_same_in_every_order(store: Store, serve: Serve, tmp_path: Path) -> None:
    cluster, there = Cluster(store), tmp_path / "there"
    sessions = sessions_in(store, 3)
    serve()
    first = cluster.job(Fails(), sessions, backoff_limit_per_index=0, ttl_s=0, path=str(there))
    retried = cluster.job(Fails(), sessions_in(store, 1), path=str(there))
    kept = cluster.keep("count", Count(), replicas=2)
    with pytest.raises(JobFailed):
        first.result(LONG_S)
    wait_until(lambda: first.active == 0 and retried.failed > 0)
    there.touch()
    again = [each.reload() for each in sessions]
    cluster.job(Count(), again, parallelism=1).result(LONG_S)
    retried.result(LONG_S)
    cluster.keep("count", replicas=0)
    wait_until(lambda: kept.status == "ended")
    assert check_orders(history_of(store), 12, Random(7)) > 0


# ── suspending ───────────────────────────────────────────────────────────────────────────────


def test_a_suspended_job_rests_and_is_resumed(store: Store, serve: Serve, tmp_path: Path) -> None:
    out = tmp_path / "out"
    job = Cluster(store).job(
        Slow(), sessions_in(store, 3), parallelism=2, path=str(out), seconds=0.05, steps=8
    )
    serve()
    wait_until(lambda: len(lines_in(out)) >= 2)
    job.suspend("lunch", actor="human:ann")
    assert (job.status, job.active) == ("suspended", 0)
    first = [Session.open(index.session, store=store) for index in job.indexes[:2]]
    wait_until(lambda: not any(store.is_locked(str(s.reload().run)) for s in first))
    wait_until(lambda: all(s.reload().status == "paused" for s in first))
    job.suspend()  # nothing more is said
    assert words_of(job)["JobSuspended"] == 1 and words_of(job)["JobIndexStarted"] == 2
    job.resume(actor="human:ann")
    assert len(job.result(LONG_S)) == 3
    assert len(lines_in(out)) == 24 == len(set(lines_in(out)))
    suspended, complete = job.conditions
    assert (suspended.kind, suspended.is_true) == ("Suspended", False)
    assert complete.kind == "Complete" and job.failed == 0
    assert list(verify(store)) == []


def test_a_pause_of_a_person_outlasts_the_suspension(store: Store) -> None:
    job = Cluster(store).job(Wire(), sessions_in(store, 2), parallelism=2)
    mine, theirs = [Session.open(index.session, store=store) for index in job.indexes]
    theirs.pause(reason="wait for me", actor="human:ann")
    job.suspend()
    assert mine.reload().status == theirs.reload().status == "paused"
    job.resume()
    assert mine.reload().status != "paused" and theirs.reload().status == "paused"


def test_a_suspended_job_has_no_deadline(store: Store) -> None:
    job = Cluster(store).job(Wire(), sessions_in(store, 1), deadline_s=0.2)
    job.suspend()
    threading.Event().wait(0.4)
    JobDriver(store).advance(job.id)
    assert job.status == "suspended"
    job.resume()
    threading.Event().wait(0.4)
    JobDriver(store).advance(job.id)
    assert job.status == "failed" and job.conditions[-1].reason == "DeadlineExceeded"


# ── time to live ─────────────────────────────────────────────────────────────────────────────


def test_a_job_is_listed_until_its_time_to_live_is_over(store: Store, serve: Serve) -> None:
    cluster = Cluster(store)
    job = cluster.job(Count(), sessions_in(store, 2), ttl_s=0)
    kept = cluster.job(Count(), sessions_in(store, 1), ttl_s=None)
    serve()
    for each in (job, kept):
        each.result(LONG_S)
    wait_until(lambda: [row["log"] for row in job_rows(store)] == [kept.id])
    again = cluster.open_job(job.id)
    assert again.status == "complete" and len(again.result(1)) == 2
    assert words_of(job)["JobExpired"] == 1


# ── bad input ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"parallelism": 0}, "parallelism"),
        ({"parallelism": -1}, "parallelism"),
        ({"parallelism": True}, "parallelism"),
        ({"backoff_limit": -1}, "backoff_limit"),
        ({"backoff_limit_per_index": -1}, "backoff_limit_per_index"),
        ({"deadline_s": 0}, "deadline_s"),
        ({"deadline_s": -5}, "deadline_s"),
        ({"deadline_s": float("nan")}, "deadline_s"),
        ({"ttl_s": -1}, "ttl_s"),
        ({"completions": 0}, "completions"),
        ({"completions": 3}, "completions"),
        ({"need": "gpu"}, "not a set of labels"),
        ({"priority": 1000}, "priority"),
        ({"revision": "old"}, "revision"),
        ({"nonsense": 1}, "does not take that"),
    ],
)
def test_wrong_limits_are_refused(store: Store, how: dict[str, Any], said: str) -> None:
    sessions = sessions_in(store, 2)
    logs = len(store.logs())
    with pytest.raises(InvalidValue, match=said):
        Cluster(store).job(Count(), sessions, **how)
    assert len(store.logs()) == logs
    assert [each.reload().head for each in sessions] == [each.head for each in sessions]


def test_sessions_that_cannot_run_are_refused(store: Store) -> None:
    cluster = Cluster(store)
    good = Session("Hi", store=store)
    busy = cluster.submit(Count(), Session("Hi", store=store)).session
    old = Session("Hi", store=store)
    old.say("more")
    logs = len(store.logs())

    def refused(error: type[Exception], *sessions: Any, said: str | None = None) -> None:
        with pytest.raises(error, match=said):
            cluster.job(Count(), sessions)

    closed, paused = Session("Hi", store=store).close(), Session("Hi", store=store).pause()
    refused(InvalidValue, said="there are none")
    refused(RunOpen, good, busy)
    refused(WrongStatus, good, closed)
    refused(WrongStatus, good, paused)
    refused(StaleHead, good, old)
    refused(InvalidValue, good, good, said="twice")
    refused(NotASession, good, "hello")
    refused(InvalidValue, good, Session("Hi", store="memory:other"), said="the cluster serves")
    assert len(store.logs()) == logs + 2 and job_rows(store) == []
    assert good.reload().head == good.head


def test_two_jobs_do_not_share_a_session(store: Store) -> None:
    cluster = Cluster(store)
    sessions = sessions_in(store, 3)
    job = cluster.job(Count(), sessions, parallelism=1)
    with pytest.raises(SessionInJob, match=job.short):
        cluster.job(Count(), sessions[2:])
    assert len(job_rows(store)) == 1


def test_a_session_that_is_no_job_is_refused(store: Store) -> None:
    with pytest.raises(InvalidValue, match="is no job"):
        Cluster(store).open_job(Session("Hi", store=store).id)


def test_an_index_whose_session_was_closed_meanwhile_fails(store: Store, serve: Serve) -> None:
    sessions = sessions_in(store, 2)
    job = Cluster(store).job(Count(), sessions, parallelism=1)
    sessions[1].reload().close()
    serve()
    with pytest.raises(JobFailed, match="FailedIndexes"):
        job.result(LONG_S)
    assert job.completed_indexes == (0,) and "closed" in job.indexes[1].why


# ── drivers that die ─────────────────────────────────────────────────────────────────────────


def test_a_driver_that_died_after_its_word_left_nothing_undone(store: Store) -> None:
    """An index is on record, and its run was not submitted: the next driver submits it, once."""
    job = Cluster(store).job(Count(), sessions_in(store, 3), parallelism=1)
    index = job.indexes[1]
    session = Session.open(index.session, store=store)
    word = k.JobIndexStarted(1, session.seq)
    direct_writer().write(position_of(job.session), [Draft(word, Act("service:cluster"))])
    assert [len(runs) for runs in runs_of(job, store)] == [1, 0, 0]
    for _ in range(3):
        JobDriver(store).advance(job.id)
    assert [len(runs) for runs in runs_of(job, store)] == [1, 1, 0]
    assert read_part(session.reload(), JobPart(job.id, 1, session.seq)).state == "open"


class Died(BaseException):
    """The driver is gone."""


@pytest.mark.parametrize("moment", range(1, 17))
def test_a_driver_may_die_before_and_after_each_of_its_writes(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moment: int
) -> None:
    """Three indexes, two at a time, which fail at first. The driver dies, and others go on."""
    left = [moment]

    def step() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Died

    def mortal(act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            step()
            done = act(*args, **kwargs)
            step()
            return done

        return call

    class Writer:
        write = staticmethod(mortal(direct_writer().write))

    monkeypatch.setattr(log_driving, "direct_writer", lambda: Writer)
    for name in ("submit_part", "resubmit_part"):
        monkeypatch.setattr(job_driving, name, mortal(getattr(job_driving, name)))
    monkeypatch.setattr(job_driving, "RETRY_S", 0.01)
    there, cluster = tmp_path / "there", Cluster(store)
    with suppress(Died):
        cluster.job(
            Fails(), sessions_in(store, 3), parallelism=2, backoff_limit=99, path=str(there)
        )
    (row,) = job_rows(store)
    job = cluster.open_job(str(row["log"]))
    deaths = 0
    while job.status == "active":
        try:
            JobDriver(store).advance(job.id)
        except Died:
            deaths += 1
        for index in [each for each in job.indexes if each.status == "active"]:
            drive(index.session, store=store)
        if job.failed:
            there.touch()
    assert job.status == "complete" and job.succeeded == 3 and left[0] <= 0
    assert [len(runs) for runs in runs_of(job, store)] == [1, 1, 1]
    words = words_of(job)
    assert words["JobIndexStarted"] == words["JobIndexEnded"] == 3 and words["JobEnded"] == 1
    assert deaths <= 1 and list(verify(store)) == []


def test_drivers_at_the_same_time_submit_each_index_once(store: Store, tmp_path: Path) -> None:
    job = Cluster(store).job(Count(), sessions_in(store, 2), parallelism=2)
    job.suspend()
    job.resume()
    threads = [threading.Thread(target=lambda: JobDriver(store).advance(job.id)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(runs) for runs in runs_of(job, store)] == [1, 1]


def test_a_job_outlives_workers_that_are_killed(
    store: Store, environment: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    job = Cluster(store).job(
        Slow(), sessions_in(store, 8), parallelism=3, path=str(out), seconds=0.02, steps=3
    )
    line = [sys.executable, "-m", "plait", "worker", "tests.cluster.flows"]
    line += ["--store", store.address, "--slots", "3"]
    kills = 0
    while job.status == "active":
        before = len(lines_in(out))
        process = subprocess.Popen(line, env=environment)
        try:
            if kills < 4:  # in the middle: some lines further, while runs are open
                wait_until(
                    lambda before=before: len(lines_in(out)) > before + 3 or job.status != "active"
                )
                process.send_signal(signal.SIGKILL)
                kills += 1
            else:
                assert job.wait(LONG_S) == "complete"
                process.send_signal(signal.SIGTERM)
        finally:
            process.wait(60)
    assert kills and job.status == "complete" and job.succeeded == 8
    assert [len(runs) for runs in runs_of(job, store)] == [1] * 8
    assert len(effects_in(out)) == 24
    ends = [e.body.index for e in job.session.events if isinstance(e.body, k.JobIndexEnded)]
    starts = [e.body.index for e in job.session.events if isinstance(e.body, k.JobIndexStarted)]
    assert sorted(ends) == sorted(starts) == list(range(8))
    assert list(verify(store, state=True)) == []
