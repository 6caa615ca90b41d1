"""A cluster of workers, measured: claims, dispatch, takeovers, idleness, fairness and growth.

Ratios and counts stand on a busy machine; times say as much about the machine.

    python benchmarks/cluster.py [--quick] [--only NAME] [--date YYYY-MM-DD]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support import PostgresServer, count_calls, private_postgres, wait_until

from cluster_flows import Long, Models, Stamp, Steps
from measure import Row, interleave, machine, percentile, print_table, write_json
from plait import Session, open_store
from plait.cluster import Cluster, Worker
from plait.cluster.choosing import Ability, Shares
from plait.cluster.claiming import Claims
from plait.cluster.driving import drive_claimed
from plait.cluster.submitting import now_in
from plait.cluster.workers import live_workers
from plait.event import kinds as k
from plait.event import seal_all
from plait.runtime.live import Live
from plait.session.ask_rows import InboxRows
from plait.store import Store
from plait.store.postgres.address import parse_address
from plait.store.postgres.connections import ServerConnection
from plait.store.postgres.migrate import migrate

RESULTS = Path(__file__).parent / "results"
FLOWS = "cluster_flows"
PROGRAM = f"{FLOWS}:Steps"
SOURCE = Live()
LONG_S = 300.0


class Bench:
    """A server, a folder, and the amount of work."""

    def __init__(self, server: PostgresServer, folder: Path, quick: bool) -> None:
        self.server, self.folder, self.quick = server, folder, quick

    def some(self, many: int, few: int) -> int:
        return few if self.quick else many

    def stores(self, name: str) -> Iterator[tuple[str, Store]]:
        """Yield a store of each kind, with its kind."""
        yield "SQLite", open_store(self.folder / name)
        yield "PostgreSQL", self.postgres(name)

    def postgres(self, name: str) -> Store:
        address = self.server.address_for(schema=name)
        migrate(parse_address(address), source=SOURCE)
        return open_store(address)


@contextmanager
def processes(store: Store, count: int, slots: int = 1) -> Generator[list[subprocess.Popen[bytes]]]:
    """Workers in processes of their own, which are there."""
    here = [str(Path(__file__).parent), *filter(None, sys.path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(here)}
    line = [sys.executable, "-m", "plait", "worker", FLOWS, "--store", store.address]
    started = [
        subprocess.Popen([*line, "--slots", str(slots)], env=environment, stderr=subprocess.DEVNULL)
        for _ in range(count)
    ]
    try:
        wait_until(lambda: len(live_workers(store)) == count, LONG_S)
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def serving(store: Store, slots: int = 1) -> Generator[Worker]:
    """A worker in a thread of this process."""
    worker = Worker(store, [FLOWS], slots=slots)
    thread = threading.Thread(target=worker.serve)
    thread.start()
    try:
        yield worker
    finally:
        worker.drain()
        thread.join()


def fill_queue(store: Store, count: int, project: str = "") -> None:
    """Write the starts of so many runs, without checks."""
    started = k.RunStarted(PROGRAM, wishes=k.Wishes(project=project))
    for _ in range(count):
        log = SOURCE.fresh()
        how = {"log": log, "source": SOURCE, "actor": "human:a"}
        (opened,) = seal_all([k.SessionOpened()], seq=1, parents=(), **how)
        (begun,) = seal_all([started], seq=2, parents=(opened.id,), run=str(log), **how)
        store.begin(log, [opened, begun])


def claims_for(store: Store) -> Claims:
    return Claims(store, "w", Ability(frozenset({PROGRAM})), Shares())


def claim_growth(bench: Bench) -> list[Row]:
    """A claim, and its release, at two lengths of the queue."""
    rows, many = list[Row](), bench.some(100_000, 5_000)
    for kind, small in bench.stores("small"):
        large = dict(bench.stores("large"))[kind]
        fill_queue(small, 100)
        fill_queue(large, many)

        def claim(claims: Claims) -> None:
            work, _ = claims.claim(SOURCE.now(SOURCE.fresh(), 0))
            assert work is not None
            work.lock.release()

        mine = {"small": claims_for(small), "large": claims_for(large)}
        acts = {name: (lambda each=each: claim(each)) for name, each in mine.items()}
        timings = interleave(acts, bench.some(300, 40))
        cpu = {name: percentile(each.cpu, 50) for name, each in timings.items()}
        wall = {name: percentile(each.wall, 50) for name, each in timings.items()}
        rows.append(
            Row(
                f"claim at {many:,} queued over 100, {kind}, CPU (wall)",
                f"{cpu['large'] * 1e6:.0f} µs",
                f"{cpu['small'] * 1e6:.0f} µs",
                f"{cpu['large'] / cpu['small']:.2f} ({wall['large'] / wall['small']:.2f})",
                "<= 1.5",
            )
        )
    return rows


def first_line(bench: Bench) -> list[Row]:
    """From just before `submit` to the first line of `forward`, in an idle worker."""
    rows = list[Row]()
    for kind, store in bench.stores("line"):
        with processes(store, 1):
            heard = [_submit_once(bench, store) for _ in range(bench.some(100, 12))]
            with patch.object(store, "ring", str):
                looked = [_submit_once(bench, store) for _ in range(bench.some(20, 3))]
        p50 = percentile(heard, 50)
        rows.append(
            Row(
                f"submit to the first line of forward, p50, {kind}; raw: without bell",
                f"{p50 * 1e3:.1f} ms",
                f"{percentile(looked, 50) * 1e3:.0f} ms",
                f"{p50 / percentile(looked, 50):.3f}",
                "<= 10 ms",
            )
        )
    return rows


def _submit_once(bench: Bench, store: Store) -> float:
    path = bench.folder / f"stamp{time.monotonic_ns()}"
    session = Session("Go.", store=store)
    begun = time.monotonic()
    task = Cluster(store).submit(Stamp(), session, path=str(path))
    wait_until(task.is_over, LONG_S)
    return float(path.read_text()) - begun


def dispatch(bench: Bench) -> list[Row]:
    """A run of one step: submitted and executed by a worker, beside the same call."""
    rows, count = list[Row](), bench.some(400, 60)
    for kind, store in bench.stores("dispatch"):
        sessions = [Session("Go.", store=store) for _ in range(2 * count)]
        begun = time.process_time()
        for session in sessions[:count]:
            Steps()(session)
        called = (time.process_time() - begun) / count
        cluster = Cluster(store)
        begun = time.process_time()
        tasks = [cluster.submit(Steps(), session) for session in sessions[count:]]
        submitted = (time.process_time() - begun) / count
        begun = time.process_time()
        with serving(store):
            for task in tasks:
                while not task.is_over():
                    time.sleep(0.2)
        served = (time.process_time() - begun) / count
        rows.append(
            Row(
                f"dispatch of a run of one step, {kind}, CPU; raw: a call",
                f"{submitted * 1e3:.2f} + {served * 1e3:.2f} ms",
                f"{called * 1e3:.2f} ms",
                f"{(submitted + served) / called:.2f}",
            )
        )
    return rows


def step_calls(bench: Bench) -> list[Row]:
    """Function calls of a step inside a claimed run, beside the same step without a cluster."""
    few, many = 20, 120
    rows = list[Row]()
    for kind, store in bench.stores("steps"):

        def called(steps: int, store: Store = store) -> int:
            session = Session("Go.", store=store)
            return count_calls(lambda: Steps()(session, steps=steps))

        def claimed(steps: int, store: Store = store) -> int:
            Cluster(store).submit(Steps(), Session("Go.", store=store), steps=steps)
            work, _ = claims_for(store).claim(now_in(store))
            assert work is not None
            return count_calls(lambda: drive_claimed(store, work))

        for act in (called, claimed):
            act(1)
        ours = (claimed(many) - claimed(few)) / (many - few)
        raw = (called(many) - called(few)) / (many - few)
        rows.append(
            Row(
                f"a step inside a claimed run over the same step, {kind}, calls",
                f"{ours:.0f}",
                f"{raw:.0f}",
                f"{ours / raw:.3f}",
                "<= 1.02",
            )
        )
    return rows


def takeover(bench: Bench) -> list[Row]:
    """From SIGKILL until another worker has the lock."""
    rows = list[Row]()
    for kind, store in bench.stores("killed"):
        waits = list[float]()
        for _ in range(bench.some(20, 4)):
            with processes(store, 2, slots=8) as started:
                task = Cluster(store).submit(Long(), Session("Go.", store=store))
                claim = wait_until(lambda task=task: _claims_in(task.session), LONG_S)[-1]
                (victim,) = [w.pid for w in live_workers(store) if w.name == claim.worker]
                begun = time.monotonic()
                next(each for each in started if each.pid == victim).kill()
                while store.is_locked(task.run) and len(_claims_in(task.session)) < 2:
                    time.sleep(0.001)
                while not store.is_locked(task.run):
                    time.sleep(0.001)
                waits.append(time.monotonic() - begun)
                task.cancel()
        rows.append(
            Row(
                f"SIGKILL until another worker has the lock, {kind}, p50 / most of {len(waits)}",
                f"{percentile(waits, 50) * 1e3:.0f} / {max(waits) * 1e3:.0f} ms",
                target="<= 500 ms",
            )
        )
    return rows


def _claims_in(session: Session) -> list[k.Claim]:
    bodies = [event.body for event in session.events]
    return [body.claim for body in bodies if isinstance(body, k.RunResumed) and body.claim]


def idle(bench: Bench) -> list[Row]:
    """A worker without work, for a minute: its own process, and its statements."""
    rest_s = bench.some(120, 45)
    store = bench.postgres("idle")
    with processes(store, 1) as (process,):
        time.sleep(3)
        before = _cpu_s(process.pid)
        time.sleep(rest_s)
        share = (_cpu_s(process.pid) - before) / rest_s
        status = Path(f"/proc/{process.pid}/status").read_text()
        memory = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    statements, execute = list[str](), ServerConnection._execute  # pyright: ignore[reportPrivateUsage]

    def count(self: ServerConnection, sql: str, values: object) -> object:
        statements.append(sql)
        return execute(self, sql, values)  # type: ignore[arg-type]  # pyright: ignore

    with serving(store):
        time.sleep(3)
        with patch.object(ServerConnection, "_execute", count):
            time.sleep(rest_s)
    per_minute = len(statements) * 60 / rest_s
    return [
        Row("an idle worker: CPU", f"{share * 100:.2f} %", target="<= 0.5 %"),
        Row("an idle worker: memory", f"{memory:.0f} MB", target="<= 80 MB"),
        Row("an idle worker: statements per minute", f"{per_minute:.0f}", target="<= 30"),
    ]


def _cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def fairness(bench: Bench) -> list[Row]:
    """When the last run of two small projects begins, beside one with 100 times their queue."""
    small, large = 3, bench.some(300, 60)
    store = open_store(bench.folder / "fair")
    cluster = Cluster(store)
    queues = {"large": large, "a": small, "b": small}
    tasks = [
        (project, cluster.submit(Steps(), Session("Go.", store=store, project=project)))
        for project, count in queues.items()
        for _ in range(count)
    ]
    with serving(store):
        for _, task in tasks:
            while not task.is_over():
                time.sleep(0.1)
    taken = sorted(
        (store.number_of(event.id) or 0, project)
        for project, task in tasks
        for event in task.session.events
        if event.kind == "RunResumed"
    )
    last = max(place for place, (_, project) in enumerate(taken, 1) if project != "large")
    return [
        Row(
            f"small projects beside one with {large // small} times their queue: place of the last",
            f"{last}",
            f"{3 * small}",
            f"{last / (3 * small):.2f}",
            "<= 1.1",
        )
    ]


def more_workers(bench: Bench) -> list[Row]:
    """Sessions whose models take 200 ms, by 1, 2 and 4 workers."""
    rows, count = list[Row](), bench.some(32, 12)
    for kind, store in bench.stores("growth"):
        rates = list[float]()
        for workers in (1, 2, 4):
            with processes(store, workers):
                begun = time.monotonic()
                tasks = [
                    Cluster(store).submit(Models(), Session("Go.", store=store))
                    for _ in range(count)
                ]
                while store.rows(InboxRows.name, "work", limit=1):
                    time.sleep(0.02)
                assert all(task.is_over() for task in tasks)
                rates.append(count / (time.monotonic() - begun))
        rows.append(
            Row(
                f"1, 2 and 4 workers with models of 200 ms, {kind}: runs per second",
                ", ".join(f"{rate:.2f}" for rate in rates),
                ratio=f"{rates[1] / rates[0]:.2f}, {rates[2] / rates[0]:.2f}",
                target=">= 1.9, >= 3.7",
            )
        )
    return rows


ALL = (claim_growth, step_calls, dispatch, fairness, first_line, takeover, idle, more_workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--date", default="")
    given = parser.parse_args()
    rows = list[Row]()
    with (
        private_postgres(18) as server,
        tempfile.TemporaryDirectory(dir="/dev/shm", ignore_cleanup_errors=True) as folder,
    ):
        bench = Bench(server, Path(folder), given.quick)
        for measure in ALL:
            if given.only in measure.__name__:
                rows += measure(bench)
                print_table(rows[-3:])
    print_table(rows)
    if not given.only:
        write_json(RESULTS / "cluster.json", machine(Path("/dev/shm"), given.date), rows)


if __name__ == "__main__":
    main()
