"""`plait cluster jobs`, `job` and `kept`."""

from __future__ import annotations

from pathlib import Path

from plait import Session, open_store
from plait.cluster import Cluster, Job
from tests.cli.shell import Shell, shell
from tests.cluster.flows import Count, Fails, Wire

__all__ = ["shell"]


def job_in(shell: Shell, count: int = 3) -> Job:
    store = open_store(shell.folder)
    sessions = [Session(f"{n}", store=store) for n in range(count)]
    return Cluster(store).job(Wire(), sessions, parallelism=2)


def test_jobs_are_listed(shell: Shell) -> None:
    shell("init")
    assert shell("cluster", "jobs") == "" and shell.json("cluster", "jobs") == []
    job = job_in(shell)
    text = shell("cluster", "jobs")
    assert job.short in text and "active" in text and "0/3" in text and "2 active runs" in text
    (told,) = shell.json("cluster", "jobs")
    assert (told["job"], told["status"], told["active"]) == (job.id, "active", 2)
    assert told["backoff_limit"] == 3 and told["deadline_s"] == 7200 and told["conditions"] == []
    assert shell.jsonl("cluster", "jobs") == [told]


def test_a_job_is_shown_with_what_each_index_waits_for(shell: Shell) -> None:
    job = job_in(shell)
    text = shell("cluster", "job", job.short)
    assert "0 of 3 succeeded, 2 active, 0 failures" in text
    assert text.count("no worker serves this store") == 2
    assert text.count("it starts when there is room") == 1
    told = shell.json("cluster", "job", job.short)
    assert [each["status"] for each in told["indexes"]] == ["active", "active", "waiting"]
    assert "JobSubmitted" in [event["kind"] for event in shell.jsonl("log", job.short)]
    assert "job of 3 runs of tests.cluster.flows:Wire, 2 at a time" in shell("log", job.short)


def test_a_job_is_suspended_and_resumed(shell: Shell) -> None:
    job = job_in(shell)
    text = shell("cluster", "job", job.short, "--suspend", "--reason", "lunch")
    assert "suspended" in text and "Suspended yes: lunch" in text
    assert [event.actor for event in job.session.events][-1] == "human:ana"
    assert shell.json("cluster", "job", job.short)["active"] == 0
    assert "Suspended no" in shell("cluster", "job", job.short, "--resume")
    assert job.status == "active"
    error = shell.error(2, "cluster", "job", job.short, "--resume", "--suspend")
    assert "pass one of them" in error


def test_what_is_no_job_is_refused(shell: Shell) -> None:
    session = Session("Hi", store=open_store(shell.folder))
    assert "is no job" in shell.error(2, "cluster", "job", session.short)
    assert shell.error(3, "cluster", "job", "ffffffff")


def test_kept_sessions_are_listed(shell: Shell, tmp_path: Path) -> None:
    shell("init")
    assert shell("cluster", "kept") == ""
    cluster = Cluster(open_store(shell.folder))
    cluster.keep("triage", Wire(), replicas=2)
    cluster.keep("count", Count(), replicas=1)
    text = shell("cluster", "kept")
    assert "triage 0" in text and "triage 1" in text and "count 0" in text
    told = shell.json("cluster", "kept")
    assert [(each["name"], each["ordinal"], each["runs"]) for each in told] == [
        ("triage", 0, 1),
        ("triage", 1, 1),
        ("count", 0, 1),
    ]
    cluster.keep("triage", replicas=0)
    assert [each["name"] for each in shell.json("cluster", "kept")] == ["count"]


def test_a_worker_until_empty_tries_an_index_again_before_it_ends(
    shell: Shell, tmp_path: Path
) -> None:
    store = open_store(shell.folder)
    job = Cluster(store).job(
        Fails(), [Session("Hi", store=store)], backoff_limit=1, path=str(tmp_path / "missing")
    )
    shell("worker", "tests.cluster.flows", "--until-empty")
    assert job.status == "failed" and job.failed == 2
    assert job.conditions[-1].reason == "BackoffLimitExceeded"
