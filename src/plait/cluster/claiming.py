"""Claiming a run: the rows of work are read, the choice is made, and the run is locked.

A claim takes the lock of the first run, in the order of the choice, that no process has. The rows
may be older than the lock: whoever takes the run up reads its log, and finds it finished then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from plait.cluster.choosing import (
    TOP,
    Ability,
    QueuedRun,
    Shares,
    first_runs,
    order_runs,
    within_limits,
)
from plait.cluster.workers import take_let_go
from plait.event import kinds as k
from plait.event.kinds import Chosen
from plait.ids import LogId, Micros
from plait.session.ask_rows import InboxRows
from plait.session.work_rows import read_wishes
from plait.store import Row, RunLock, SeenRun, Store

_QUEUES_MAX = 10_000
_TIMED = 64  # runs with a time that are looked at, the earliest first
_TAKEN = 2_000  # runs that workers have, or had when they died
_CROWDED_S = 0.2  # until a worker looks again at a project that has as many as it may
_LEFT_US = 250_000  # microseconds for which a worker takes the runs that a look has left
_need = msgspec.json.Decoder(tuple[str, ...]).decode


class ClaimedWork(NamedTuple):
    """A run that this worker has locked."""

    run: QueuedRun
    lock: RunLock
    claim: k.Claim


class Look(NamedTuple):
    """A look at the rows of work."""

    runs: list[QueuedRun]  # that may be taken, in the order in which to try
    next_due: Micros | None  # when a run with a time may be taken. None: none has one
    is_busy: bool  # True: others have runs, which may become free at any time
    has_deadlines: bool
    has_more: bool = False  # True: there may be more runs than the one that was taken


class _LeftRuns(NamedTuple):
    """The runs of a project that a look has found, and that are not taken yet."""

    at: Micros
    runs: list[QueuedRun]  # in the order in which to try


class Claims:
    """Claims runs of one store for one worker."""

    def __init__(
        self,
        store: Store,
        worker: str,
        ability: Ability,
        shares: Shares,
    ) -> None:
        self._store, self._worker = store, worker
        self._ability, self._shares = ability, shares
        self.unfit: dict[str, Micros] = {}  # runs that this worker leaves to others, until then
        self.own: set[str] = set()  # runs that this worker has
        # Rows that are folded inside of appends cost nothing to look at.
        self._keeps_left = not (store.folds_inside or shares.has_limits())
        self._left: dict[str, _LeftRuns] = {}  # by project
        self._waiting: frozenset[str] = frozenset()  # projects that had runs at the last look
        self._last_look: Look | None = None

    def claim(self, now: Micros) -> tuple[ClaimedWork | None, Look]:
        """Take the run that is next. None: there is none for this worker."""
        if (found := self._claim_left(now)) is not None:
            return found
        look = self.look(now)
        if not look.runs:
            return None, look
        by_id = {run.run: run for run in look.runs}
        taken = self._store.lock_first([*by_id])
        if taken is None:  # others take them at this moment, and may die at any other
            return None, look._replace(is_busy=True)
        return self._take(by_id[taken[0]], taken[1], look, now)

    def _claim_left(self, now: Micros) -> tuple[ClaimedWork, Look] | None:
        """Take a run that the last look has left, if that was a moment ago, and its log has not
        gone on since. None: look again.

        It saves the fold of the rows, where they are folded by those who read them.
        """
        look, project = self._last_look, next(iter(self._shares.order(self._waiting)), None)
        left = self._left.get(project) if project is not None else None
        if look is None or left is None or not 0 <= now - left.at <= _LEFT_US:
            return None
        if look.next_due is not None and look.next_due <= now:
            return None
        runs = {each.run: each for each in left.runs if self._may_take(each.run, now)}
        seen = {each.run: SeenRun(LogId(each.log), each.number) for each in runs.values()}
        taken = self._store.lock_first([*runs], seen) if runs else None
        if taken is None:
            self._left.pop(str(project), None)
            return None
        work, look = self._take(runs[taken[0]], taken[1], look._replace(has_more=True), now)
        return None if work is None else (work, look)

    def _drop_left(self, run: QueuedRun) -> None:
        """Keep the runs after one that was taken: those before it have gone on, or others have
        them.
        """
        left = self._left.get(run.project)
        tried = [each.run for each in left.runs].index(run.run) if left is not None else 0
        if left is None or tried + 1 == len(left.runs):
            self._left.pop(run.project, None)
        else:
            self._left[run.project] = left._replace(runs=left.runs[tried + 1 :])

    def _may_take(self, run: str, now: Micros) -> bool:
        return run not in self.own and self.unfit.get(run, 0) <= now

    def _take(
        self, run: QueuedRun, lock: RunLock, look: Look, now: Micros
    ) -> tuple[ClaimedWork | None, Look]:
        """Keep a run that was locked, unless its project has more running than it may."""
        try:
            if run.chosen == "taken over" and take_let_go(self._store, run.run):
                run = run._replace(chosen="woken")
            is_beyond = self._is_beyond_share(run)
        except BaseException:  # the store may be away: the run must not stay locked
            lock.release()
            raise
        if is_beyond:
            lock.release()
            self.unfit[run.run] = now + int(_CROWDED_S * 1e6)
            return None, look
        self._shares.charge(run.project)
        self._drop_left(run)
        return ClaimedWork(run, lock, self._words(run, now)), look

    def claim_run(self, run: str, now: Micros) -> ClaimedWork | None:
        """Take a run whose worker died, if it may be taken. None: it may not, or is over."""
        rows = self._store.rows(InboxRows.name, "work", {"run": run}, limit=1)
        may_go_on = [row for row in rows if row["state"] in ("taken", "parked", "timed", "queued")]
        found = self._as_run(may_go_on[0], now) if may_go_on else None
        taken = self._store.lock_first([run]) if found is not None else None
        if found is None or taken is None:
            return None
        found = found._replace(chosen="taken over")
        return ClaimedWork(found, taken[1], self._words(found, now))

    def look(self, now: Micros) -> Look:
        """Return the runs that may be taken now."""
        self.unfit = {run: until for run, until in self.unfit.items() if until > now}
        own = {*self.own}  # a run that ends meanwhile is over, whatever the rows say
        queues = self._store.rows(InboxRows.name, "queue", limit=_QUEUES_MAX)
        mine = [row for row in queues if self._can_serve(row)]
        timed = self._rows_in("timed", _TIMED, "due") if _sum(mine, "timed") else ()
        due = [row for row in timed if int(str(row["due"])) <= now]
        late = [int(str(row["due"])) for row in timed if int(str(row["due"])) > now]
        taken = self._rows_in("taken", _TAKEN, "number") if _sum(mine, "taken") else ()
        others = [row for row in taken if row["run"] not in own]
        free = self._store.free_runs([str(row["run"]) for row in others]) if others else set[str]()
        found = [*due, *[row for row in others if row["run"] in free]]
        runs = [run for row in found if (run := self._as_run(row, now)) is not None]
        if self._shares.has_limits():
            running = {project: self._count_running(project) for project in _projects_of(runs)}
            runs = within_limits(runs, self._shares, running)
        runs += self._queued_runs(mine, now)
        ordered = order_runs(runs, self._shares, self._ability.host)
        look = Look(
            ordered,
            late[0] if late else None,
            is_busy=len(others) > len(free),
            has_deadlines=bool(_sum(queues, "dated")),
            has_more=len(ordered) > 1,
        )
        self._keep_left(look, {str(row["project"]) for row in mine if row["queued"]}, now)
        return look

    def _keep_left(self, look: Look, projects: set[str], now: Micros) -> None:
        """Keep the runs that were found, for the next claims. Limits are looked at each time."""
        if not self._keeps_left:
            return
        found = dict[str, list[QueuedRun]]()
        for run in look.runs:
            found.setdefault(run.project, []).append(run)
        self._last_look, self._waiting = look, frozenset({*projects, *found})
        self._left = {name: left for name, left in self._left.items() if name in projects}
        self._left |= {name: _LeftRuns(now, runs) for name, runs in found.items()}

    def _count_running(self, project: str) -> int:
        """Count the runs of a project that a process has. A run whose worker has just locked it is
        still queued by its row.
        """
        if self._shares.of(project).running_max is None:
            return 0
        queues = self._store.rows(InboxRows.name, "queue", limit=_QUEUES_MAX)
        own = [row for row in queues if row["project"] == project and row["queued"]]
        known = [*self._rows_in("taken", _TAKEN, "number"), *self._first_rows(own)]
        runs = [
            str(row["run"]) for row in known if read_wishes(str(row["wishes"])).project == project
        ]
        return len(set(runs)) - len(self._store.free_runs(runs))

    def _is_beyond_share(self, run: QueuedRun) -> bool:
        """True if another worker took a run of the same project at the same time as this one, and
        the project has more running than it may.
        """
        running_max = self._shares.of(run.project).running_max
        return running_max is not None and self._count_running(run.project) > running_max

    def _can_serve(self, queue: Row) -> bool:
        need = _need(str(queue["need"]))
        return self._ability.can_serve(str(queue["program"]), need, str(queue["code"]))

    def _queued_runs(self, queues: Sequence[Row], now: Micros) -> list[QueuedRun]:
        """Return the first runs of the projects that are furthest behind."""
        ready = [row for row in queues if row["queued"]]

        def read(project: str) -> list[QueuedRun]:
            if not self._has_room(project):
                return []
            rows = self._first_rows([row for row in ready if row["project"] == project])
            return [run for row in rows if (run := self._as_run(row, now)) is not None]

        return first_runs([str(row["project"]) for row in ready], self._shares, read)

    def _first_rows(self, queues: Sequence[Row]) -> Iterator[Row]:
        """Yield the first runs of queues, past those that this worker leaves to others."""
        limit = min(TOP + len(self.unfit), _TAKEN)
        for row in queues:
            where = {"queue": row["queue"], "state": "queued"}
            rows = self._store.rows(InboxRows.name, "work", where, order="rank", limit=limit)
            yield from rows

    def _has_room(self, project: str) -> bool:
        running_max = self._shares.of(project).running_max
        return running_max is None or self._count_running(project) < running_max

    def _rows_in(self, state: str, limit: int, order: str) -> Sequence[Row]:
        return self._store.rows(InboxRows.name, "work", {"state": state}, order=order, limit=limit)

    def _as_run(self, row: Row, now: Micros) -> QueuedRun | None:
        """Return the run of a row. None: this worker may not take it."""
        run, program = str(row["run"]), str(row["program"])
        wishes = read_wishes(str(row["wishes"]))
        code = wishes.code if wishes.same_code else ""
        if not self._may_take(run, now):
            return None
        if not self._ability.can_serve(program, wishes.need, code):
            return None
        return QueuedRun(
            run,
            str(row["log"]),
            program,
            wishes.project,
            int(str(row["rank"])),
            _chosen_for(row),
            str(row["host"]),
            wishes.code == self._ability.code,
            int(str(row["since"])),
            wishes.job or "",
            max([int(str(row[column])) for column in ("number", "woke", "took")]),
        )

    def _words(self, run: QueuedRun, now: Micros) -> k.Claim:
        """Return the claim as it is recorded."""
        ability = self._ability
        waited = max(0, now - run.since) if run.chosen in ("first", "retried") else 0
        return k.Claim(
            self._worker,
            run.chosen,
            ability.host,
            tuple(sorted(ability.labels)),
            ability.code,
            _place_of(run, ability.host),
            waited,
        )


def _chosen_for(row: Row) -> Chosen:
    """Return the reason for which a run may be taken."""
    if row["state"] == "taken":
        return "taken over"
    if row["failure"]:
        return "retried"
    return "woken" if row["took"] else "first"


def _place_of(run: QueuedRun, host: str) -> Literal["", "affinity", "stolen"]:
    if not run.host:
        return ""
    return "affinity" if run.host == host else "stolen"


def _sum(queues: Sequence[Row], count: str) -> int:
    return sum([int(str(row[count])) for row in queues])


def _projects_of(runs: Iterable[QueuedRun]) -> set[str]:
    return {run.project for run in runs}
