"""Real workers: how long they took, by their logs; and what a PostgreSQL server does for a run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support import PostgresServer, private_postgres, wait_until

from plait import Cluster, Session, Store, migrate_store, open_store
from plait.cluster.cluster import Task
from plait.cluster.workers import live_workers
from plait.event import kinds as k
from scale_flows import Answer, Opens, Steps, Waits

FLOWS = "scale_flows"
LONG_S = 600.0


@dataclass
class Times:
    """Figures of many runs, measured or simulated."""

    waits_s: list[float]
    services_s: list[float]
    gaps_s: list[float]  # of a worker, from the end of a run to the claim of the next
    span_s: float
    starts_s: list[float] = field(default_factory=list[float])  # of each worker, after the first

    @property
    def throughput(self) -> float:
        return len(self.waits_s) / self.span_s


def run_real(workers: int, seconds: Sequence[float], projects: Sequence[str]) -> Times:
    """Submit a run for each time, start workers of one slot, and read from the logs what came."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        store = open_store(Path(folder) / ".plait")
        cluster = Cluster(store)
        gate = Path(folder) / "gate"
        # workers begin one after another: these runs keep them until all are there
        idle = [
            cluster.submit(Opens(), Session("Hi", store=store), path=str(gate))
            for _ in range(workers)
        ]
        with cluster.start([FLOWS], workers=workers, slots=1):
            wait_until(lambda: all(_span_of(task)[1] for task in idle), LONG_S)
            tasks = [
                cluster.submit(Answer(), Session("Hi", store=store, project=project), seconds=each)
                for each, project in zip(seconds, projects, strict=True)
            ]
            gate.touch()
            for task in [*idle, *tasks]:
                task.result(LONG_S)
        spans = [_span_of(task) for task in tasks]
        store.close()
    return times_of(spans)


def times_of(spans: Sequence[tuple[str, float, float]]) -> Times:
    """Return the times of runs, each with its worker, its claim and its end."""
    began = min(claimed for _, claimed, _ in spans)
    by_worker = dict[str, list[tuple[float, float]]]()
    for worker, claimed, ended in spans:
        by_worker.setdefault(worker, []).append((claimed, ended))
    gaps = list[float]()
    for each in by_worker.values():
        each.sort()
        gaps += [after[0] - before[1] for before, after in zip(each, each[1:], strict=False)]
    services = [ended - claimed for _, claimed, ended in spans]
    waits = [claimed - began for _, claimed, _ in spans]
    starts = sorted(each[0][0] - began for each in by_worker.values())
    return Times(waits, services, gaps, max(ended for *_, ended in spans) - began, starts)


def _span_of(task: Task) -> tuple[str, float, float]:
    """Return the worker of a run, and when it was claimed and ended, in seconds."""
    worker, claimed, ended = "", 0.0, 0.0
    for event in task.session.events:
        if isinstance(event.body, k.RunResumed) and event.body.claim is not None:
            worker, claimed = event.body.claim.worker, event.header.time / 1e6
        elif isinstance(event.body, k.RunFinished):
            ended = event.header.time / 1e6
    return worker, claimed, ended


# ── what a server does ───────────────────────────────────────────────────────────────────────


@dataclass
class ServerCosts:
    """The work of a primary for a run of so many steps, and the bytes that it keeps."""

    steps: int
    cpu_s: float  # for a run: submitted, claimed, executed, ended
    bytes_run: float
    wal_run: float
    connections: float  # of one worker
    rows_parked: float
    bytes_parked: float


def measure_server(runs: int, steps: int) -> ServerCosts:
    """Have one worker in a process of its own serve runs on a PostgreSQL server of their own."""
    with private_postgres(18) as server:
        address = server.address_for(schema="plait")
        migrate_store(address)
        store = open_store(address)
        cluster = Cluster(store)
        with _worker(store):
            _serve(cluster, store, 20, steps)  # caches are warm
            connections = _connections(server)
            before = _server_figures(server)
            _serve(cluster, store, runs, steps)
            after = _server_figures(server)
        cpu, size, wal = [(b - a) / runs for a, b in zip(before, after, strict=True)]
        before, rows = _server_figures(server), _rows(server)
        tasks = [
            cluster.submit(Waits(), Session("Hi", store=store, user=f"u{n}")) for n in range(runs)
        ]
        with _worker(store):
            wait_until(lambda: all(task.session.inbox.waiting for task in tasks[-4:]), LONG_S)
            wait_until(lambda: all(task.session.inbox.waiting for task in tasks), LONG_S)
        server.execute("VACUUM")
        parked = (_server_figures(server)[1] - before[1]) / runs
        rows_parked = (_rows(server) - rows) / runs
        store.close()
    return ServerCosts(steps, cpu, size, wal, connections, rows_parked, parked)


class _worker:
    """A worker in a process of its own."""

    def __init__(self, store: Store) -> None:
        here = [str(Path(__file__).parent), *filter(None, sys.path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(here)}
        line = [sys.executable, "-m", "plait", "worker", FLOWS, "--store", store.address]
        self._process = subprocess.Popen(
            [*line, "--slots", "8"], env=environment, stderr=subprocess.DEVNULL
        )
        wait_until(lambda: live_workers(store), LONG_S)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def _serve(cluster: Cluster, store: Store, runs: int, steps: int) -> None:
    tasks = [
        cluster.submit(Steps(), Session("Hi", store=store, project=f"p{n % 7}"), steps=steps)
        for n in range(runs)
    ]
    for task in tasks:
        task.result(LONG_S)


def _server_figures(server: PostgresServer) -> tuple[float, float, float]:
    """Return the CPU of all processes of a server, the size of its tables, and of its log."""
    time.sleep(0.3)
    size, wal = server.execute(
        "SELECT pg_database_size(current_database()), pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"
    )[0]
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if server.process in (int(words[1]), int(stat.parent.name)):
            ticks += sum(map(int, words[11:15]))  # with its children that have ended
    return ticks / os.sysconf("SC_CLK_TCK"), float(size), float(wal)


def _connections(server: PostgresServer) -> float:
    sql = "SELECT count(DISTINCT pid) FROM pg_stat_activity WHERE client_port IS NOT NULL"
    return float(server.execute(sql)[0][0]) / 2  # this process has a store open, too


def _rows(server: PostgresServer) -> int:
    tables = server.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'plait'")
    counts = [server.execute(f'SELECT count(*) FROM plait."{name}"')[0][0] for (name,) in tables]
    return int(sum(counts))
