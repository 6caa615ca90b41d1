"""A shard, simulated: one store, and the workers that serve it.

Which run a worker takes is decided by `plait.cluster.choosing` itself. A primary has so many cores,
and does work for each run, as was measured; who asks for more than it can do waits. Shards share
nothing but the rate of a provider, so that some of many can stand for all.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count, islice

from plait.cluster.choosing import TOP, QueuedRun, Shares, first_runs, order_runs

TAKEN_OVER_S = 0.3  # between two looks of a worker while others have runs: as in cluster/worker.py
CLAIM_PART = 0.3  # of the work of a primary for a run, before the run begins
Draw = Callable[[], float]


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
class Outage:
    """The primary is away, and its standby is promoted."""

    at_s: float
    seconds: float


@dataclass
class Rolling:
    """One worker after another is drained, and its successor has new code."""

    at_s: float
    each_s: float
    start_s: float = 5.0


@dataclass
class Rate:
    """The calls per second that a provider allows; from `half_s` on, half of them."""

    per_s: float
    half_s: float
    next_free: float = 0.0

    def wait_s(self, now: float) -> float:
        per_s = self.per_s if now < self.half_s else self.per_s / 2
        begin = max(now, self.next_free)
        self.next_free = begin + 1 / per_s
        return begin - now


@dataclass
class Faults:
    losses: Sequence[Loss] = ()
    outage: Outage | None = None
    rolling: Rolling | None = None
    rate: Rate | None = None


@dataclass
class Primary:
    """The server of a shard: so many cores, and so much work for a run."""

    work_s: float = 0.0
    cores: int = 8
    busy_s: float = 0.0
    _next_free: float = 0.0

    def wait_s(self, now: float, part: float) -> float:
        """Return how long a part of the work for a run takes, with the wait for others."""
        if not self.work_s:
            return 0.0
        work = self.work_s * part
        begin = max(now, self._next_free)
        self._next_free = begin + work / self.cores
        self.busy_s += work
        return begin + work - now

    def go_away(self, until: float) -> None:
        self._next_free = max(self._next_free, until)


@dataclass
class SimulatedWorker:
    number: int
    slots: int
    starts_s: float = 0.0
    free: int = 0
    life: int = 1
    running: dict[str, float] = field(default_factory=dict[str, float])  # by run: its end
    is_there: bool = False

    def __post_init__(self) -> None:
        self.shares = Shares(worker=f"{self.number}")


class Shard:
    """Runs arrive, are chosen, take a while, and are taken over."""

    def __init__(
        self,
        workers: int,
        slots: int,
        service: Draw,
        gap: Draw,
        draw: random.Random,
        *,
        primary: Primary | None = None,
        starts_s: Sequence[float] = (),
    ) -> None:
        """`starts_s` says when each worker begins; at once, if it is empty."""
        begins = starts_s or [0.0] * workers
        self.workers = [SimulatedWorker(n, slots, begins[n]) for n in range(workers)]
        self.primary = primary or Primary()
        self._slots, self._service, self._gap, self._random = slots, service, gap, draw
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._idle: list[SimulatedWorker] = []  # with a free slot; some may be gone by now
        self._queues: dict[str, deque[QueuedRun]] = {}
        self._came: dict[str, float] = {}
        self._project_of: dict[str, str] = {}
        self._left: dict[str, float] = {}  # what a run that was let go of still has to do
        self._faults = Faults()
        self.now = self.last_end = 0.0
        self.claims: list[tuple[float, str, float]] = []  # when, project, how long it had waited
        self.again: list[float] = []  # when runs were taken over, or taken up after a drain
        self.services: list[float] = []
        self.ended = 0

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))

    def run(self, arrivals: Iterable[Arrival], faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
        for worker in self.workers:
            self.at(worker.starts_s, lambda each=worker: self._begin(each))
        for number, each in enumerate(arrivals):
            self.at(each.at_s, lambda e=each, n=number: self._arrive(e, n))
        for loss in self._faults.losses:
            self.at(loss.at_s, lambda e=loss: self._lose(e))
        if (outage := self._faults.outage) is not None:
            until = outage.at_s + outage.seconds
            self.at(outage.at_s, lambda: self.primary.go_away(until))
        if (rolling := self._faults.rolling) is not None:
            for number, worker in enumerate(self.workers):
                when = rolling.at_s + number * rolling.each_s
                self.at(when, lambda each=worker: self._drain(each, rolling.start_s))
        while self._events:
            self.now, _, act = heapq.heappop(self._events)
            act()

    def _arrive(self, arrival: Arrival, number: int) -> None:
        run = f"{number}"
        self._came[run], self._project_of[run] = self.now, arrival.project
        self._put(QueuedRun(run, run, "p", arrival.project, number, since=int(self.now * 1e6)))

    def _put(self, run: QueuedRun) -> None:
        self._queues.setdefault(run.project, deque()).append(run)
        while self._idle:  # a bell wakes all of them, and one is first
            place = self._random.randrange(len(self._idle))
            worker = self._idle[place]
            if worker.is_there and worker.free:
                self._claim(worker)
                return
            self._idle[place] = self._idle[-1]
            self._idle.pop()

    def _claim(self, worker: SimulatedWorker) -> None:
        """Take the run that the choosing code puts first."""
        if not worker.free or not worker.is_there or not self._queues:
            return
        seen = first_runs(self._queues, worker.shares, lambda name: islice(self._queues[name], TOP))
        chosen = order_runs(seen, worker.shares, "")[0]
        queue = self._queues[chosen.project]
        queue.remove(chosen)
        if not queue:
            del self._queues[chosen.project]
        worker.shares.charge(chosen.project)
        worker.free -= 1
        begins_s = self.primary.wait_s(self.now, CLAIM_PART)
        if chosen.chosen != "first":
            self.again.append(self.now + begins_s)
        else:
            waited = self.now + begins_s - self._came[chosen.run]
            self.claims.append((self.now + begins_s, chosen.project, waited))
        self._execute(worker, chosen, begins_s)

    def _execute(self, worker: SimulatedWorker, run: QueuedRun, begins_s: float) -> None:
        takes = self._left.pop(run.run, None)
        if takes is None:
            takes = self._service()
            self.services.append(takes)
            if self._faults.rate is not None:
                takes += self._faults.rate.wait_s(self.now)
        end = self.now + begins_s + takes
        worker.running[run.run] = end
        self.at(end, lambda: self._end(worker, run.run, end))

    def _end(self, worker: SimulatedWorker, run: str, end: float) -> None:
        if worker.running.get(run) != end:
            return  # its worker was lost meanwhile
        del worker.running[run]
        self.ended, self.last_end = self.ended + 1, self.now
        rest_s = self.primary.wait_s(self.now, 1 - CLAIM_PART) + self._gap()
        life = worker.life
        self.at(self.now + rest_s, lambda: self._free(worker, life))

    def _free(self, worker: SimulatedWorker, life: int) -> None:
        if worker.is_there and worker.life == life:
            worker.free += 1
            self._claim(worker)
            if worker.free:
                self._idle.append(worker)

    def _begin(self, worker: SimulatedWorker) -> None:
        worker.is_there, worker.free = True, worker.slots
        for _ in range(worker.slots):
            self._claim(worker)
        self._idle += [worker] * worker.free

    def _stop(self, worker: SimulatedWorker, seen_s: Draw) -> None:
        """Let the runs of a worker go; others see them after a while."""
        worker.is_there, worker.free, worker.life = False, 0, worker.life + 1
        for run, end in worker.running.items():
            self._left[run] = max(0.0, end - self.now)
            name = self._project_of[run]
            freed = QueuedRun(run, run, "p", name, int(run), "taken over")
            self.at(self.now + seen_s(), lambda each=freed: self._put(each))
        worker.running = {}
        worker.shares = Shares(worker=f"{worker.number}")  # what it knew is gone

    def _lose(self, loss: Loss) -> None:
        for worker in self.workers[: int(len(self.workers) * loss.part)]:
            self._stop(worker, lambda: self._random.uniform(0, TAKEN_OVER_S))
            self.at(loss.back_s, lambda each=worker: self._begin(each))

    def _drain(self, worker: SimulatedWorker, start_s: float) -> None:
        self._stop(worker, lambda: 0.01)  # a bell tells
        self.at(self.now + start_s, lambda: self._begin(worker))


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


def fairness(shard: Shard, arrivals: Sequence[Arrival], until_s: float) -> float:
    """Jain's index over what each project got by then, as a part of its fair share."""
    demands = Counter(each.project for each in arrivals if each.at_s <= until_s)
    got = Counter(project for when, project, _ in shard.claims if when <= until_s)
    fair = fair_parts(dict(demands), sum(got.values()))
    return jain([got[name] / part for name, part in fair.items() if part >= 1])


def busiest_second(times: Iterable[float], since_s: float) -> int:
    counted = Counter(int(each - since_s) for each in times if each >= since_s)
    return max(counted.values(), default=0)


def zipf_projects(runs: int, projects: int, draw: random.Random) -> list[str]:
    """Draw the projects of runs: a few have most of them."""
    weights = [1 / (n + 1) for n in range(projects)]
    return [f"p{n}" for n in draw.choices(range(projects), weights, k=runs)]


def poisson_arrivals(
    rate: float, seconds: float, projects: int, draw: random.Random
) -> list[Arrival]:
    """Draw runs that arrive at random, so many per second."""
    came, times = 0.0, list[float]()
    while (came := came + draw.expovariate(rate)) < seconds:
        times.append(came)
    names = zipf_projects(len(times), projects, draw)
    return [Arrival(at, name) for at, name in zip(times, names, strict=True)]


def mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0
