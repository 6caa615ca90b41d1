"""Workers, simulated: the choosing code of real workers, fed with times that real workers took.

First so many runs are submitted to 1, 2, 4 and 8 real workers. How long each run took, and how long
a worker took from one to the next, are read from the logs. A simulation with the same number of
workers draws from these times, and its throughput and waiting times stand beside the real ones.
Then a PostgreSQL server is measured: its CPU and bytes for a run, and for a session that waits.
With these figures the simulation goes where no machine here does, to a million active sessions on
up to 64 shards.

    python benchmarks/scale.py [--quick] [--only real|server|swept] [--seed N] [--runs N]

An active session takes a turn every ten minutes; a turn asks models for some seconds. Of many
shards at most four are simulated: shards share nothing but a provider's rate.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from measure import percentile
from scale_model import (
    Arrival,
    Faults,
    Loss,
    Outage,
    Primary,
    Rate,
    Rolling,
    Shard,
    busiest_second,
    fairness,
    mean,
    poisson_arrivals,
    zipf_projects,
)
from scale_real import ServerCosts, Times, measure_server, run_real

WORKERS = (1, 2, 4, 8)
SIMULATIONS = 20
THINK_S = 600.0  # between two turns of an active session
STEPS = 4  # of a turn: models and tools
SLOTS = 16  # of a worker
CORES = 8  # of a primary
LOAD = 0.8  # of the slots
PROJECTS = 200
OUTAGE_S = 20.0  # until a standby is promoted
CONNECTIONS_MAX = 500  # of a primary without a pooler
SAMPLED = 4  # shards that are simulated, of many


# ── beside real workers ──────────────────────────────────────────────────────────────────────


def run_like(
    real: Times, workers: int, projects: Sequence[str], draw: random.Random, *, like: Times
) -> Times:
    """Simulate the runs that real workers had, with times drawn from `like`."""
    shard = Shard(
        workers,
        1,
        lambda: draw.choice(like.services_s),
        lambda: draw.choice(like.gaps_s),
        draw,
        starts_s=(real.starts_s + [real.span_s] * workers)[:workers],
    )
    shard.run([Arrival(0.0, project) for project in projects])
    return Times([wait for *_, wait in shard.claims], shard.services, [], shard.last_end)


def compare_with_real(runs: int, draw: random.Random) -> tuple[Times, float]:
    """Print the real figures beside the simulated ones; return the times of one worker, and how far
    off the simulation was at most.
    """
    seconds = [min(1.0, draw.lognormvariate(-1.9, 0.6)) for _ in range(runs)]
    projects = zipf_projects(runs, 6, draw)
    print(f"real workers beside the simulation (median of {SIMULATIONS} simulations)")
    print(f"{'workers':>8} {'runs/s':>8} {'simulated':>10} {'off':>6} {'from 1':>8} {'off':>6}"
          f" {'wait s':>8} {'simulated':>10} {'off':>6}")  # fmt: skip
    one: Times | None = None
    worst = 0.0
    for workers in WORKERS:
        real = run_real(workers, seconds, projects)
        one = one or real
        alike = [run_like(real, workers, projects, draw, like=real) for _ in range(SIMULATIONS)]
        told = [run_like(real, workers, projects, draw, like=one) for _ in range(SIMULATIONS)]
        speed = statistics.median([each.throughput for each in alike])
        foretold = statistics.median([each.throughput for each in told])
        wait = mean(real.waits_s)
        simulated = statistics.median([mean(each.waits_s) for each in alike])
        worst = max(worst, abs(speed / real.throughput - 1), abs(simulated / wait - 1))
        print(f"{workers:>8} {real.throughput:>8.2f} {speed:>10.2f} {_off(speed, real.throughput)}"
              f" {foretold:>8.2f} {_off(foretold, real.throughput)}"
              f" {wait:>8.2f} {simulated:>10.2f} {_off(simulated, wait)}", flush=True)  # fmt: skip
    assert one is not None
    print(f"at most {worst * 100:.0f} % off (target: 15)")
    return one, worst


def _off(found: float, real: float) -> str:
    return f"{(found / real - 1) * 100:>+5.0f}%"


# ── a server ─────────────────────────────────────────────────────────────────────────────────


def print_server(costs: ServerCosts) -> None:
    rate = CORES / costs.cpu_s
    billion_tb = costs.bytes_parked * 1e9 / 1e12
    print(f"""
a PostgreSQL server, measured with one worker; runs of {costs.steps} steps
  CPU of the server for a run             {costs.cpu_s * 1e3:.2f} ms
  bytes of tables for a run               {costs.bytes_run:,.0f}
  bytes of its write-ahead log for a run  {costs.wal_run:,.0f}
  connections of a worker                 {costs.connections:.1f}
  a session that waits: rows              {costs.rows_parked:.1f}
  a session that waits: bytes             {costs.bytes_parked:,.0f}
on paper
  runs per second of a primary with {CORES} cores, at 70 %   {0.7 * rate:,.0f}
  active sessions of it, a turn every {THINK_S / 60:.0f} minutes      {0.7 * rate * THINK_S:,.0f}
  a billion sessions that wait: rows      {costs.rows_parked * 1e9:,.0f}
  a billion sessions that wait: TB        {billion_tb:.1f} ({billion_tb / 64:.2f} on each of 64)
""", flush=True)  # fmt: skip


# ── swept ────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Point:
    """A size of a cluster."""

    sessions: int
    shards: int
    costs: ServerCosts
    gaps_s: Sequence[float]

    @property
    def rate(self) -> float:
        """Runs per second of one shard."""
        return self.sessions / THINK_S / self.shards

    @property
    def service_s(self) -> float:
        return STEPS * 2.0 * 1.28  # the mean of `draw_service`

    @property
    def workers(self) -> int:
        """Workers of one shard."""
        return max(2, round(self.rate * self.service_s / LOAD / SLOTS))

    def draw_service(self, draw: random.Random) -> float:
        """Models that take seconds, a few of them long."""
        return sum(draw.lognormvariate(0.693, 0.7) for _ in range(STEPS))

    def shard(self, draw: random.Random) -> Shard:
        return Shard(
            self.workers,
            SLOTS,
            lambda: self.draw_service(draw),
            lambda: draw.choice(self.gaps_s),
            draw,
            primary=Primary(self.costs.cpu_s, CORES),
        )

    def loads(self) -> dict[str, float]:
        """The used part of each thing that there is an end of."""
        return {
            "CPU of the primary": self.rate * self.costs.cpu_s / CORES / 0.7,
            "connections": self.workers * self.costs.connections / CONNECTIONS_MAX,
            "write-ahead log (100 MB/s)": self.rate * self.costs.wal_run / 100e6,
        }


HEADS = ("p50 s", "p99 s", "Jain", "again", "storm", "usual", "CPU %")


def sweep(points: Sequence[Point], seconds: float, draw: random.Random) -> None:
    """Print what becomes of waiting and fairness in larger clusters."""
    print(f"simulated for {seconds:.0f} s: sessions that take a turn of {STEPS} steps every"
          f" {THINK_S:.0f} s, {PROJECTS} projects by Zipf's law, {CORES} cores")  # fmt: skip
    print(f"{'sessions':>10} {'shards':>6} {'workers':>8} {'conn.':>7} {'GB/day':>7} "
          + " ".join(f"{head:>6}" for head in HEADS) + "  first to break")  # fmt: skip
    for point in points:
        figures = _simulate(point, seconds, draw, "steady")
        first, load = max(point.loads().items(), key=lambda each: each[1])
        print(f"{point.sessions:>10,} {point.shards:>6} {point.workers * point.shards:>8,}"
              f" {point.workers * point.costs.connections:>7,.0f}"
              f" {point.rate * point.costs.bytes_run * 86400 / 1e9:>7.1f} "
              + " ".join(f"{each:>6}" for each in figures)
              + f"  {first}: {load * 100:.0f} %", flush=True)  # fmt: skip
    print("connections and GB are of one shard")


CASES = (
    "steady",
    "all at once",
    "10 % of the workers lost",
    "a shard lost, promoted after 20 s",
    "a provider halves its rate",
    "a deployment rolls",
)


def faults_of(what: str, point: Point, seconds: float) -> Faults:
    half_s = seconds / 3
    if what.startswith("10 %"):
        return Faults(losses=[Loss(half_s, 0.1, half_s * 2)])
    if what.startswith("a shard"):
        return Faults(outage=Outage(half_s, OUTAGE_S))
    if what.startswith("a provider"):
        return Faults(rate=Rate(point.rate * 1.2, half_s))
    if what.startswith("a deployment"):
        return Faults(rolling=Rolling(half_s, half_s / point.workers))
    return Faults()


def sweep_faults(point: Point, seconds: float, draw: random.Random) -> None:
    print(f"\none shard of {point.shards} with {point.sessions // point.shards:,} active sessions"
          f" and {point.workers} workers, for {seconds:.0f} s")  # fmt: skip
    print(f"{'what':<34} " + " ".join(f"{head:>7}" for head in HEADS))
    for what in CASES:
        figures = _simulate(point, seconds, draw, what)
        print(f"{what:<34} " + " ".join(f"{each:>7}" for each in figures), flush=True)


def _simulate(point: Point, seconds: float, draw: random.Random, what: str) -> list[str]:
    """Return the figures of a case, over the shards that are simulated."""
    waits, again, jains, storms, cpu = list[float](), 0, list[float](), list[int](), list[float]()
    for _ in range(min(point.shards, SAMPLED) if what == "steady" else 1):
        arrivals = poisson_arrivals(point.rate, seconds, PROJECTS, draw)
        if what == "all at once":
            arrivals = [Arrival(0.0, each.project) for each in arrivals]
        faults, shard = faults_of(what, point, seconds), point.shard(draw)
        shard.run(arrivals, faults)
        assert shard.ended == len(arrivals), "every run ends"
        waits += [wait for *_, wait in shard.claims]
        again += len(shard.again)
        begun = [when for when, *_ in shard.claims] + shard.again
        is_outage = faults.outage is not None
        since = seconds / 3 + (OUTAGE_S if is_outage else 0.0) if what != "steady" else 0.0
        storms.append(busiest_second(begun, 0.0 if what == "all at once" else since))
        until_s = seconds / 4 if what == "all at once" else seconds
        jains.append(fairness(shard, arrivals, until_s))
        cpu.append(shard.primary.busy_s / CORES / shard.now)
    return [
        f"{percentile(waits, 50):.2f}",
        f"{percentile(waits, 99):.2f}",
        f"{mean(jains):.3f}",
        f"{again}",
        f"{max(storms)}",
        f"{point.rate:.0f}",
        f"{mean(cpu) * 100:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["real", "server", "swept"])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--runs", type=int, default=160)
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    gaps = [0.01]
    costs = ServerCosts(STEPS, 0.012, 9_000, 30_000, 3.0, 20, 6_000)
    if asked.only in (None, "real"):
        one, _ = compare_with_real(40 if asked.quick else asked.runs, draw)
        gaps = one.gaps_s
    if asked.only in (None, "server"):
        costs = measure_server(40 if asked.quick else 300, STEPS)
        print_server(costs)
    if asked.only == "swept":
        print("costs of a server are made up: without --only they are measured")
    if asked.only in (None, "swept"):
        sizes = [(10_000, 1), (100_000, 1), (100_000, 4)]
        if not asked.quick:
            sizes += [(1_000_000, 1), (1_000_000, 4), (1_000_000, 16), (1_000_000, 64)]
        points = [Point(sessions, shards, costs, gaps) for sessions, shards in sizes]
        sweep(points, 60 if asked.quick else 180, draw)
        sweep_faults(points[2] if asked.quick else points[-2], 90 if asked.quick else 300, draw)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
