"""Workers that are killed, stopped and drained while they execute runs of all kinds: every run
comes to its end, no event is lost or doubled, no effect is made outside of its class, and never two
processes have a run.

`CLUSTER_KILLS` says how often a worker is killed on each store.
"""

from __future__ import annotations

import importlib
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from plait import Session
from plait.cluster import Cluster
from plait.cluster.cluster import Task
from plait.cluster.workers import live_workers
from plait.errors import TaskFailed
from plait.event import kinds as k
from plait.session import verify
from plait.store import Store
from tests.cluster.flows import Deadly
from tests.faults.herd import (
    PATIENCE_S,
    Answerer,
    Herd,
    all_ended,
    busy_workers,
    check_logs,
    disturb,
    submit_all,
    wait_for_all,
)
from tests.faults.postgres_aftermath import made_store
from tests.support import claims_of, dose, report, seed, wait_until

KILLS = dose("CLUSTER_KILLS", short=6, long=500, ci=40)
RUNS_EACH = 8  # runs that are submitted at a time


def test_workers_that_are_killed_at_random(store: Store, tmp_path: Path) -> None:
    start, out = seed(), tmp_path / "out"
    random, tasks, kills = Random(start), submit_all(store, out, RUNS_EACH), 0
    with Herd(store.address, tmp_path, 3) as herd, Answerer(tasks, out) as answerer:
        while kills < KILLS:
            done = disturb(herd, store, tasks, random, kills=KILLS - kills)
            kills += done
            if kills < KILLS:
                tasks += submit_all(store, out, RUNS_EACH)
        wait_for_all(herd, tasks)
    found = check_logs(store, tasks, out)
    report(
        f"workers of a cluster killed at random on {type(store).__name__}",
        f"{kills:,} kills, {found['runs']:,} runs of 8 kinds ended, {found['claims']:,} claims,"
        f" {found['events']:,} events, 0 lost or doubled, {found['effects']:,} effects,"
        f" {found['repeated']:,} repeated under their own key, {found['trees']:,} trees right,"
        f" {answerer.given_up} given up and taken up by a person",
        start,
    )


def test_workers_that_are_drained_lose_nothing(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tasks = submit_all(store, out, RUNS_EACH)
    drains = dose("CLUSTER_DRAINS", short=2, long=50, ci=10)
    with Herd(store.address, tmp_path, 2) as herd, Answerer(tasks, out):
        for _ in range(drains):
            if all_ended(tasks):
                tasks += submit_all(store, out, RUNS_EACH)
            while not (busy := busy_workers(herd, store)) and not all_ended(tasks):
                time.sleep(0.005)
            assert herd.drain([*busy, *herd.processes][0]) == 0
        wait_for_all(herd, tasks)
    found = check_logs(store, tasks, out)
    assert found["repeated"] == 0, "a drained worker ends no tool in the middle"
    report(
        f"workers of a cluster drained on {type(store).__name__}",
        f"{drains} drains, exit code 0, {found['runs']} runs ended, no effect repeated",
    )


def test_a_run_that_ends_its_workers_is_given_up_with_their_names(
    store: Store, tmp_path: Path
) -> None:
    task = Cluster(store).submit(Deadly(), Session("Go.", store=store))
    with Herd(store.address, tmp_path, 2) as herd:
        while not task.is_over():
            for process in [each for each in herd.processes if each.poll() is not None]:
                assert process.returncode == -signal.SIGKILL
                herd.replace(process)
        names = set(herd.names.values())
    with pytest.raises(TaskFailed, match="WorkersDied") as failed:
        task.result(0)
    claims = [e.body for e in task.session.events if isinstance(e.body, k.RunResumed)]
    assert len(claims) == 3
    workers = [body.claim.worker for body in claims if body.claim is not None]
    assert len(set(workers)) == 3 and set(workers) <= names
    assert all(name in str(failed.value) for name in workers)
    assert "it was given up" in task.why
    assert list(verify(store, state=True)) == []


def test_a_worker_that_was_stopped_for_longer_than_its_lease_writes_nothing(
    postgres_address: str, tmp_path: Path
) -> None:
    """A lock file of one machine is not lost so: its process has it while it is stopped."""
    store, out = made_store(postgres_address), tmp_path / "out"
    stops, start = dose("CLUSTER_STOPS", short=1, long=40, ci=5), seed()
    random, tasks = Random(start), submit_all(store, out, RUNS_EACH)
    with Herd(store.address, tmp_path, 2, PLAIT_STORE_LEASE_S="1.5") as herd, Answerer(tasks, out):
        for _ in range(stops):
            while not (busy := busy_workers(herd, store)):
                if all_ended(tasks):
                    tasks += submit_all(store, out, RUNS_EACH)
                time.sleep(0.005)
            time.sleep(0.3 * random.random())
            process = random.choice(busy)
            process.send_signal(signal.SIGSTOP)
            while herd.names[process.pid] in [each.name for each in live_workers(store)]:
                time.sleep(0.05)
            time.sleep(random.random())
            process.send_signal(signal.SIGCONT)
        wait_for_all(herd, tasks)
    found = check_logs(store, tasks, out)
    report(
        "workers of a cluster stopped for longer than their lease",
        f"{stops} stops, {found['runs']} runs ended, {found['claims']} claims, {found['effects']}"
        f" effects, {found['repeated']} repeated under their own key",
        start,
    )


REVISION = """
from plait import Session, Workflow
from tests.cluster.flows import note_line, rest_for

class Roll(Workflow):
    def forward(self, session: Session, path: str) -> Session:
        for step in range(3):
            session = session.use(note_line, path=path, text=f"{session.short}/{step}")
            session = session.use(rest_for, seconds=0.02)
        return session.say("%s", role="assistant")
"""
STEP = "session = session.use(note_line, path=path, text=f'{session.short}/new')"


@pytest.mark.parametrize("change", ["same steps", "another step"])
def test_workers_of_two_revisions_side_by_side(
    store: Store, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run goes on with either code, or stays with the one that fits its record."""
    out = tmp_path / "out"
    out.touch()
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, text in ((old, REVISION % "old"), (new, REVISION % "new")):
        folder.mkdir()
        if change == "another step" and folder == new:
            text = text.replace("        for step", f"        {STEP}\n        for step")
        (folder / "rolling_flows.py").write_text(text)
    monkeypatch.setattr(sys, "path", [str(old), *sys.path])
    monkeypatch.delitem(sys.modules, "rolling_flows", raising=False)
    roll, cluster = importlib.import_module("rolling_flows"), Cluster(store)
    how: dict[str, Any] = {"modules": ["rolling_flows"], "slots": 1}
    with (
        Herd(store.address, old, 1, first_path=old, prefix="old", **how) as before,
        Herd(store.address, new, 1, first_path=new, prefix="new", **how) as after,
    ):
        wait_until(lambda: len(live_workers(store)) == 2, PATIENCE_S)
        tasks, codes, kills = list[Task](), set[str](), 0
        while len(codes) < 2:  # on a busy machine one of them may have served all
            more = [
                cluster.submit(roll.Roll(), Session("Go.", store=store), path=str(out))
                for _ in range(8)
            ]
            kills += disturb(after, store, more, Random(1), kills=2, may_rest_s=3)
            wait_for_all(before, more)
            tasks += more
            codes |= {claim.code for task in more for claim in claims_of(task.session)}
    found = check_logs(store, tasks, out)
    said = {task.session.text for task in tasks}
    assert said <= {"old", "new"}
    report(
        f"workers of two revisions, {change}, on {type(store).__name__}",
        f"{kills} kills, {found['runs']} runs ended, {found['claims']} claims"
        f" by {len(codes)} codes",
    )


def test_a_bell_that_is_lost_delays_a_run_and_no_more(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with Herd(store.address, tmp_path, 1) as herd:
        wait_until(lambda: live_workers(store), PATIENCE_S)
        monkeypatch.setattr(store, "ring", str)  # it does nothing
        tasks = submit_all(store, out, 3)
        wait_for_all(herd, tasks)
    check_logs(store, tasks, out)
