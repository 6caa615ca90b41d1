"""Workers, simulated: the choosing code of real workers, fed with times that real workers took.

First so many runs are submitted to 1, 2 and 4 real workers. How long each run took, and how long a
worker took from one to the next, are read from the logs. A simulation with the same number of
workers draws from these times, and its throughput and waiting times stand beside the real ones.
Then the simulation goes where no machine here does.

    python benchmarks/scale.py [--quick] [--only real|swept] [--workers 16,64,256] [--seed N]

Which run a worker takes is decided by `plait.cluster.choosing` itself, in both. What the simulation
leaves out: the cost of a store under load, and bells that are late.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from measure import percentile
from plait import Cluster, Session, open_store
from plait.cluster.choosing import QueuedRun, Shares, order_runs
from plait.event import kinds as k
from scale_flows import Answer

TOP = 16  # runs of a project, and projects, that a worker looks at: as in cluster/claiming.py
TAKEN_OVER_S = 0.3  # between two looks of a worker while others have runs: as in cluster/worker.py
Draw = Callable[[], float]


@dataclass
class Times:
    """What was measured or simulated of many runs."""

    waits_s: list[float]
    services_s: list[float]
    gaps_s: list[float]  # of a worker, from the end of a run to the claim of the next
    span_s: float

    @property
    def throughput(self) -> float:
        return len(self.waits_s) / self.span_s


# ── real workers ─────────────────────────────────────────────────────────────────────────────


def run_real(workers: int, seconds: Sequence[float], projects: Sequence[str]) -> Times:
    """Submit a run for each time, start workers of one slot, and read from the logs what came."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / ".plait")
        cluster = Cluster(store)
        tasks = [
            cluster.submit(Answer(), Session("Hi", store=store, project=project), seconds=each)
            for each, project in zip(seconds, projects, strict=True)
        ]
        # a worker that begins later than the others is none of the queue's business
        idle = [
            cluster.submit(Answer(), Session("Hi", store=store, project="first"), seconds=1.5)
            for _ in range(workers)
        ]
        with cluster.start(["scale_flows"], workers=workers, slots=1):
            for task in [*idle, *tasks]:
                task.result(600)
        spans = [_span_of(task.session) for task in tasks]
        store.close()
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
    return Times(waits, services, gaps, max(ended for *_, ended in spans) - began)


def _span_of(session: Session) -> tuple[str, float, float]:
    """Return the worker of a run, and when it was claimed and ended, in seconds."""
    worker, claimed, ended = "", 0.0, 0.0
    for event in session.events:
        if isinstance(event.body, k.RunResumed) and event.body.claim is not None:
            worker, claimed = event.body.claim.worker, event.header.time / 1e6
        elif isinstance(event.body, k.RunFinished):
            ended = event.header.time / 1e6
    return worker, claimed, ended


# ── simulated workers ────────────────────────────────────────────────────────────────────────


@dataclass
class SimulatedWorker:
    number: int
    free: int
    running: dict[str, float] = field(default_factory=dict[str, float])  # by run: its end
    is_there: bool = True

    def __post_init__(self) -> None:
        self.shares = Shares(worker=f"{self.number}")


@dataclass
class Arrival:
    at_s: float
    project: str


@dataclass
class Loss:
    """A part of the workers goes at once, and comes back."""

    at_s: float
    part: float
    back_s: float


@dataclass
class Rate:
    """The calls per second that a provider allows; from `half_s` on, half of them."""

    per_s: float
    half_s: float

    def wait_s(self, now: float, next_free: float) -> tuple[float, float]:
        """Return how long a call waits, and when the next may begin."""
        per_s = self.per_s if now < self.half_s else self.per_s / 2
        begin = max(now, next_free)
        return begin - now, begin + 1 / per_s


class Simulation:
    """A cluster without a store: runs arrive, are chosen, take a while, and are taken over."""

    def __init__(self, workers: int, slots: int, service: Draw, gap: Draw, draw: random.Random):
        self.workers = [SimulatedWorker(n, slots) for n in range(workers)]
        self._slots, self._service, self._gap, self._random = slots, service, gap, draw
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._queues: dict[str, deque[QueuedRun]] = {}
        self._came: dict[str, float] = {}
        self._project_of: dict[str, str] = {}
        self._left: dict[str, float] = {}  # what a run that was taken over still has to do
        self._rate: Rate | None = None
        self._next_call = 0.0
        self.now = 0.0
        self.claims: list[tuple[float, str, float]] = []  # when, project, how long it had waited
        self.takeovers: list[float] = []
        self.services: list[float] = []
        self.ended = 0

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    def run(
        self, arrivals: Iterable[Arrival], losses: Sequence[Loss] = (), rate: Rate | None = None
    ) -> None:
        self._rate = rate
        for number, each in enumerate(arrivals):
            self.at(each.at_s, lambda e=each, n=number: self._arrive(e, n))
        for loss in losses:
            self.at(loss.at_s, lambda e=loss: self._lose(e))
        while self._events:
            self.now, _, act = heapq.heappop(self._events)
            act()

    def _arrive(self, arrival: Arrival, number: int) -> None:
        run = f"{number}"
        self._came[run], self._project_of[run] = self.now, arrival.project
        self._put(QueuedRun(run, run, "p", arrival.project, number, since=int(self.now * 1e6)))

    def _put(self, run: QueuedRun) -> None:
        self._queues.setdefault(run.project, deque()).append(run)
        able = [worker for worker in self.workers if worker.free and worker.is_there]
        if able:  # a bell wakes all of them, and one is first
            self._claim(self._random.choice(able))

    def _claim(self, worker: SimulatedWorker) -> None:
        """Take the run that the choosing code puts first."""
        if not worker.free or not worker.is_there or not self._queues:
            return
        first = worker.shares.order(self._queues)[:TOP]
        seen = [run for name in first for run in list(self._queues[name])[:TOP]]
        chosen = order_runs(seen, worker.shares, "")[0]
        queue = self._queues[chosen.project]
        queue.remove(chosen)
        if not queue:
            del self._queues[chosen.project]
        worker.shares.charge(chosen.project)
        worker.free -= 1
        if chosen.chosen == "taken over":
            self.takeovers.append(self.now)
        else:
            self.claims.append((self.now, chosen.project, self.now - self._came[chosen.run]))
        self._execute(worker, chosen)

    def _execute(self, worker: SimulatedWorker, run: QueuedRun) -> None:
        takes = self._left.pop(run.run, None)
        if takes is None:
            takes = self._service()
            self.services.append(takes)
            if self._rate is not None:
                waited, self._next_call = self._rate.wait_s(self.now, self._next_call)
                takes += waited
        worker.running[run.run] = self.now + takes
        self.at(self.now + takes, lambda: self._end(worker, run.run))

    def _end(self, worker: SimulatedWorker, run: str) -> None:
        if worker.running.get(run) != self.now:
            return  # its worker was lost meanwhile
        del worker.running[run]
        self.ended += 1
        self.at(self.now + self._gap(), lambda: self._free(worker))

    def _free(self, worker: SimulatedWorker) -> None:
        if worker.is_there:
            worker.free += 1
            self._claim(worker)

    def _lose(self, loss: Loss) -> None:
        for worker in self.workers[: int(len(self.workers) * loss.part)]:
            worker.is_there, worker.free = False, 0
            for run, end in worker.running.items():
                self._left[run] = max(0.0, end - self.now)
                name = self._project_of[run]
                again = QueuedRun(run, run, "p", name, int(run), "taken over")
                seen_s = self._random.uniform(0, TAKEN_OVER_S)
                self.at(self.now + seen_s, lambda each=again: self._put(each))
            worker.running = {}
            self.at(loss.back_s, lambda each=worker: self._come_back(each))

    def _come_back(self, worker: SimulatedWorker) -> None:
        worker.is_there, worker.free = True, self._slots
        worker.shares = Shares(worker=f"{worker.number}")  # what it knew is gone
        for _ in range(self._slots):
            self._claim(worker)

    def times(self) -> Times:
        return Times([wait for *_, wait in self.claims], self.services, [], self.now)


def run_like(real: Times, workers: int, projects: Sequence[str], draw: random.Random) -> Times:
    """Simulate the runs that real workers had, with times drawn from `real`."""
    simulated = Simulation(
        workers, 1, lambda: draw.choice(real.services_s), lambda: draw.choice(real.gaps_s), draw
    )
    simulated.run([Arrival(0.0, project) for project in projects])
    return simulated.times()


# ── the figures ──────────────────────────────────────────────────────────────────────────────


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 if all have the same, 1/n if one has it all."""
    squares = sum([value * value for value in values])
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def fair_parts(demands: dict[str, int], served: int) -> dict[str, float]:
    """Return what each project gets of `served` runs if no one has more than a fair share."""
    left, parts, open_ = float(served), dict[str, float](), sorted(demands, key=demands.__getitem__)
    while open_:
        name = open_[0]
        share = min(float(demands[name]), left / len(open_))
        parts[name], left = share, left - share
        open_.pop(0)
    return parts


def fairness(simulated: Simulation, arrivals: Sequence[Arrival], until_s: float) -> float:
    """Jain's index over what each project got by then, as a part of its fair share."""
    demands = Counter(each.project for each in arrivals if each.at_s <= until_s)
    got = Counter(project for when, project, _ in simulated.claims if when <= until_s)
    fair = fair_parts(dict(demands), sum(got.values()))
    return jain([got[name] / part for name, part in fair.items() if part > 0])


def busiest_second(times: Iterable[float], since_s: float) -> int:
    counted = Counter(int(each - since_s) for each in times if each >= since_s)
    return max(counted.values(), default=0)


def zipf_projects(runs: int, projects: int, draw: random.Random) -> list[str]:
    weights = [1 / (n + 1) for n in range(projects)]
    return [f"p{n}" for n in draw.choices(range(projects), weights, k=runs)]


# ── the parts ────────────────────────────────────────────────────────────────────────────────


def compare_with_real(runs: int, draw: random.Random) -> Times:
    """Print the real figures beside the simulated ones; return the times of one worker."""
    seconds = [min(1.0, draw.lognormvariate(-1.9, 0.6)) for _ in range(runs)]
    projects = zipf_projects(runs, 6, draw)
    print("real workers beside the simulation (median of 20 simulations)")
    print(f"{'workers':>8} {'runs/s':>8} {'simulated':>10} {'off':>6} {'from 1':>8} {'off':>6}"
          f" {'wait s':>8} {'simulated':>10} {'off':>6}")  # fmt: skip
    one: Times | None = None
    for workers in (1, 2, 4):
        real = run_real(workers, seconds, projects)
        one = one or real
        alike = [run_like(real, workers, projects, draw) for _ in range(20)]
        told = [run_like(one, workers, projects, draw) for _ in range(20)]
        speed = statistics.median([each.throughput for each in alike])
        foretold = statistics.median([each.throughput for each in told])
        wait = statistics.fmean(real.waits_s)
        simulated = statistics.median([statistics.fmean(each.waits_s) for each in alike])
        print(f"{workers:>8} {real.throughput:>8.2f} {speed:>10.2f} {_off(speed, real.throughput)}"
              f" {foretold:>8.2f} {_off(foretold, real.throughput)}"
              f" {wait:>8.2f} {simulated:>10.2f} {_off(simulated, wait)}")  # fmt: skip
    assert one is not None
    return one


def _off(found: float, real: float) -> str:
    return f"{(found / real - 1) * 100:>+5.0f}%"


def sweep(one: Times, sizes: Sequence[int], per_slot: int, draw: random.Random) -> None:
    """Print what becomes of waiting and fairness in larger clusters, and with faults."""
    mean = statistics.fmean(one.services_s) + statistics.fmean(one.gaps_s)
    slots = 4
    print(f"\nsimulated, {slots} slots each, 90 % load, 100 projects by Zipf's law; seconds")
    heads = ("p50", "p99", "Jain", "takeovers", "busiest s", "usual s")
    print(f"{'workers':>8} {'what':<34} " + " ".join(f"{head:>10}" for head in heads))
    for workers in sizes:
        runs = workers * slots * per_slot
        rate = 0.9 * workers * slots / mean
        projects = zipf_projects(runs, 100, draw)
        came, steady = 0.0, list[Arrival]()
        for project in projects:
            came += draw.expovariate(rate)
            steady.append(Arrival(came, project))
        half_s = came / 2
        burst = [Arrival(0.0, project) for project in projects]
        loss = Loss(half_s, 0.1, half_s + came / 5)
        cases: list[tuple[str, list[Arrival], list[Loss], Rate | None, float]] = [
            ("steady", steady, [], None, came),
            ("all at once", burst, [], None, came / 4),
            ("10 % of the workers lost", steady, [loss], None, came),
            ("a provider halves its rate", steady, [], Rate(rate * 1.2, half_s), came),
        ]
        for what, arrivals, losses, limit, until_s in cases:
            simulated = Simulation(
                workers,
                slots,
                lambda: draw.choice(one.services_s),
                lambda: draw.choice(one.gaps_s),
                draw,
            )
            simulated.run(arrivals, losses, limit)
            assert simulated.ended == runs, "every run ends"
            waits = [wait for *_, wait in simulated.claims]
            begun = [when for when, *_ in simulated.claims] + simulated.takeovers
            storm = busiest_second(begun, loss.back_s if losses else 0.0)
            figures = (
                f"{percentile(waits, 50):.3f}",
                f"{percentile(waits, 99):.2f}",
                f"{fairness(simulated, arrivals, until_s):.3f}",
                f"{len(simulated.takeovers)}",
                f"{storm}",
                f"{rate:.0f}",
            )
            print(f"{workers:>8} {what:<34} " + " ".join(f"{each:>10}" for each in figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["real", "swept"])
    parser.add_argument("--workers", default="16,64,256")
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    if asked.only == "swept":
        seconds = [min(1.0, draw.lognormvariate(-1.9, 0.6)) for _ in range(200)]
        one = Times([0.0], seconds, [0.01], 1.0)
        print("service times are made up: without --only they are measured")
    else:
        one = compare_with_real(40 if asked.quick else 160, draw)
    if asked.only != "real":
        sizes = [int(each) for each in asked.workers.split(",")]
        sweep(one, sizes[:1] if asked.quick else sizes, 10 if asked.quick else 40, draw)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
