"""The choice of a run for a worker: which queues it may serve, and whose turn it is.

Pure functions and a small table of shares, without a store and without time, so that a simulation
of a cluster runs the same code as a worker.

Each project has a virtual time, which grows with each of its runs that a worker takes: the less the
more weight the project has. The project that is furthest behind is next. A project that was idle
begins at the time of the others: it does not save up. Every worker keeps the table by itself, since
workers that are fair one by one are fair together. For that they must not agree on who is first
among projects that are equally far behind: each worker has an order of its own for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from plait.event.kinds import Chosen
from plait.ids import Micros

TOP = 16  # runs of a queue that a worker looks at


class Ability(NamedTuple):
    """The programs, labels and code of a worker: it takes runs that these serve."""

    programs: frozenset[str]  # MODULE:NAME; empty: any that can be imported
    labels: frozenset[str] = frozenset()
    code: str = ""
    host: str = ""
    places: frozenset[str] = frozenset()  # labels of its host and its isolation

    def can_serve(self, program: str, need: Iterable[str], code: str) -> bool:
        """True if it may take runs of this program, with this need. `code`: "" for any."""
        if self.programs and program not in self.programs:
            return False
        has_all = self.labels.issuperset(need) or (self.labels | self.places).issuperset(need)
        return has_all and code in ("", self.code)


class QueuedRun(NamedTuple):
    """A run that may be taken now, as its row has it."""

    run: str
    log: str
    program: str
    project: str
    rank: int
    chosen: Chosen = "first"
    host: str = ""  # of the worker that had it before
    same_code: bool = False  # True: this worker's code is that of the process that submitted it
    since: Micros = 0  # the time of the event that set it free
    job: str = ""  # the log of the job that it is a part of
    number: int = 0  # the last commit about it


class ProjectShare(NamedTuple):
    """The share of one project of the workers. None: as many as there are."""

    weight: float = 1.0
    running_max: int | None = None
    queued_max: int | None = None


class Shares:
    """The virtual times of the projects, as one worker has served them."""

    def __init__(self, shares: Mapping[str, ProjectShare] | None = None, worker: str = "") -> None:
        self._shares = dict(shares or {})
        self._worker = worker
        self._ends: dict[str, float] = {}  # by project: when its last run is paid for
        self._now = 0.0  # the start of the run that was taken last

    def of(self, project: str) -> ProjectShare:
        return self._shares.get(project) or self._shares.get("*") or ProjectShare()

    def has_limits(self) -> bool:
        return any([share.running_max is not None for share in self._shares.values()])

    def order(self, projects: Iterable[str]) -> list[str]:
        """Return the projects, the one that is furthest behind first."""
        return sorted(set(projects), key=lambda each: (self._start_of(each), self._lot_of(each)))

    def charge(self, project: str) -> None:
        """Note that a run of a project was taken."""
        self._now = self._start_of(project)
        self._ends[project] = self._now + 1.0 / self.of(project).weight
        if len(self._ends) > 10_000:  # those that are not ahead begin at the time of the others
            self._ends = {name: end for name, end in self._ends.items() if end > self._now}

    def _lot_of(self, project: str) -> tuple[int, str]:
        """The place of a project among those that are equally far behind."""
        return crc32(f"{self._worker}/{project}".encode()), project

    def _start_of(self, project: str) -> float:
        return max(self._ends.get(project, 0.0), self._now)


def first_runs(
    projects: Iterable[str], shares: Shares, read: Callable[[str], Iterable[QueuedRun]]
) -> list[QueuedRun]:
    """Return the first runs of the projects that are furthest behind: as many as workers may want
    at the same moment, and not all there are. `read` returns the first runs of a project.
    """
    found = list[QueuedRun]()
    for project in shares.order(projects):
        found += read(project)
        if len(found) >= TOP:
            break
    return found


def order_runs(runs: Iterable[QueuedRun], shares: Shares, host: str) -> list[QueuedRun]:
    """Return runs in the order in which a worker tries to take them: by the shares of their
    projects; in a project by priority and age. Of runs with the same priority, those that this
    host executed before come first, and those that were submitted by the same code.
    """
    found = list(runs)
    places = {name: place for place, name in enumerate(shares.order(run.project for run in found))}

    def key(run: QueuedRun) -> tuple[int, int, bool, bool, int]:
        is_elsewhere = bool(run.host) and run.host != host
        return (places[run.project], run.rank >> 52, is_elsewhere, not run.same_code, run.rank)

    return sorted(found, key=key)


def within_limits(
    runs: Sequence[QueuedRun], shares: Shares, running: Mapping[str, int]
) -> list[QueuedRun]:
    """Return the runs of projects that may have one more running."""

    def has_room(project: str) -> bool:
        running_max = shares.of(project).running_max
        return running_max is None or running.get(project, 0) < running_max

    return [run for run in runs if run.chosen == "taken over" or has_room(run.project)]
