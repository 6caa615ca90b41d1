"""Workers in processes of their own: started, kept alive, drained."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from plait import Session, open_store
from plait.cluster import Cluster
from plait.errors import InvalidValue
from plait.session import verify
from plait.store import Store
from tests.cluster.conftest import FLOWS
from tests.cluster.flows import Count, Slow, effects_in
from tests.cluster.test_workers import LONG_S, claims_of, lines_in
from tests.support import child_environment, wait_until

pytestmark = pytest.mark.long


def is_alive(pid: int) -> bool:
    """True if a process is there, and is not the remains of one."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_workers_are_started_kept_alive_and_drained(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cluster = Cluster(store)
    tasks = [
        cluster.submit(Slow(), Session(f"{n}", store=store), path=str(out), seconds=0.05, steps=8)
        for n in range(6)
    ]
    with cluster.start([FLOWS], workers=2, name="w", slots=2, labels={"linux"}) as workers:
        wait_until(lambda: len(lines_in(out)) > 4 and len(cluster.workers()) == 2)
        first = workers.pids
        os.kill(first[0], signal.SIGKILL)
        wait_until(lambda: len(workers.pids) == 2 and first[0] not in workers.pids)
        for task in tasks:
            assert task.result(LONG_S).text == "rested"
        wait_until(lambda: {each.name for each in cluster.workers()} == {"w.0", "w.1"})
        last = workers.pids
    assert [pid for pid in {*first, *last} if is_alive(pid)] == [] == workers.pids
    assert cluster.workers() == []
    assert len(effects_in(out)) == 48
    assert {label for task in tasks for c in claims_of(task.session) for label in c.labels} == {
        "linux"
    }
    assert list(verify(store)) == []


def test_a_stopped_worker_lets_go_of_its_run(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cluster = Cluster(store)
    task = cluster.submit(Slow(), Session("Hi", store=store), path=str(out), seconds=0.1, steps=40)
    workers = cluster.start([FLOWS])
    wait_until(lambda: len(lines_in(out)) >= 2)
    workers.stop()
    assert workers.pids == [] and not store.is_locked(task.run)
    assert task.status == "interrupted" and "no worker serves" in task.why
    assert len(lines_in(out)) < 40


def test_workers_whose_starter_is_killed_drain(store: Store) -> None:
    code = (
        "import sys, time\n"
        "from plait.cluster import Cluster\n"
        f"workers = Cluster({store.address!r}).start([{FLOWS!r}], workers=2)\n"
        "print(*workers.pids, flush=True)\n"
        "time.sleep(600)\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=child_environment()
    )
    assert starter.stdout is not None
    pids = [int(pid) for pid in starter.stdout.readline().split()]
    wait_until(lambda: len(Cluster(store).workers()) == 2)
    starter.kill()
    starter.wait()
    starter.stdout.close()
    wait_until(lambda: not any(is_alive(pid) for pid in pids))
    assert len(pids) == 2 and Cluster(store).workers() == []


@pytest.mark.parametrize(
    ("modules", "count", "said"),
    [
        ([FLOWS], 0, "not a count"),
        ([], 1, "there are none"),
        (["tests.cluster.conftest"], 1, "has no workflow"),
    ],
)
def test_workers_that_cannot_serve_are_not_started(
    store: Store, modules: list[str], count: int, said: str
) -> None:
    with pytest.raises(InvalidValue, match=said):
        Cluster(store).start(modules, workers=count)
    with pytest.raises(InvalidValue, match="no other process reaches"):
        Cluster("memory:workers").start([FLOWS])


def test_the_command_keeps_workers_and_a_signal_drains_them(store: Store) -> None:
    command = [sys.executable, "-m", "plait", "worker", FLOWS, "--processes", "2"]
    starter = subprocess.Popen(
        [*command, "--store", store.address, "--name", "w", "--share", "shop=2:3"],
        env=child_environment(),
    )
    cluster = Cluster(store)
    wait_until(lambda: len(cluster.workers()) == 2)
    pids = [each.pid for each in cluster.workers()]
    starter.send_signal(signal.SIGTERM)
    assert starter.wait(LONG_S) == 0
    assert [pid for pid in pids if is_alive(pid)] == [] and cluster.workers() == []


def test_the_workers_of_several_stores(tmp_path: Path, environment: dict[str, str]) -> None:
    """`--store` again for each other; a session lives in one of them, with its forks."""
    stores = [open_store(tmp_path / name) for name in ("a", "b")]
    cluster = Cluster(stores)
    tasks = [
        cluster.submit(Count(), Session(f"{n}", store=stores[n % 2]), path=str(tmp_path / "out"))
        for n in range(6)
    ]
    line = [sys.executable, "-m", "plait", "worker", FLOWS, "--until-empty"]
    for store in (*stores, stores[0]):  # one of them twice
        line += ["--store", store.address]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(store.address in done.stderr for store in stores)
    assert [task.result(0).text for task in tasks] == ["counted"] * 6
    assert [task.session.store for task in tasks] == [stores[n % 2].address for n in range(6)]
    with cluster.start([FLOWS], workers=1):
        more = [cluster.submit(Count(), Session("Hi", store=store)) for store in stores]
        assert {task.result(LONG_S).text for task in more} == {"counted"}
    for store in stores:
        assert list(verify(store, state=True)) == []
        store.close()


def test_a_store_of_several_that_does_not_exist_is_named(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    open_store(tmp_path / "a").close()
    missing = str(tmp_path / "missing")
    line = [sys.executable, "-m", "plait", "worker", FLOWS, "--store", str(tmp_path / "a")]
    done = subprocess.run(
        [*line, "--store", missing], env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0 and "missing" in done.stderr and not Path(missing).exists()
