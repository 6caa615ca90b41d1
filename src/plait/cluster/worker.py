"""A worker: claims runs, executes each in a slot, and finishes when it is asked to.

A bell is a hint; a look every few seconds is the truth. While others have runs, a worker looks more
often, so that the run of a worker that died is taken over soon. Whether a run is being executed is
told by its lock alone: there is nothing to sweep up after a crash.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from plait.cluster.choosing import Ability, ProjectShare, Shares
from plait.cluster.claiming import ClaimedWork, Claims, Look
from plait.cluster.controllers import JobDrivers
from plait.cluster.driving import drive_claimed
from plait.cluster.outcomes import Outcome
from plait.cluster.places import (
    bind_free_run,
    bind_run,
    check_given,
    find_rungs,
    missing_places,
    place_labels,
)
from plait.cluster.programs import code_of, served_programs
from plait.cluster.pruning import CopyPruner
from plait.cluster.shares import merged_shares
from plait.cluster.submitting import check_count, check_labels, now_in
from plait.cluster.sweeping import cancel_late_runs, sweep
from plait.cluster.workers import (
    ENDED,
    UnfitNotice,
    WorkerNotice,
    check_worker_name,
    drain_bell,
    lock_worker,
    note_let_go,
    note_unfit,
    put_worker,
    read_board,
    remove_worker,
)
from plait.errors import InvalidValue, PlaitError
from plait.ids import LogId, digest
from plait.runtime.run import Run
from plait.session.ask_rows import InboxRows
from plait.session.work_rows import WORK_BELL
from plait.store import Bell, RunLock, Store

GRACE_S = 30.0  # for tools, when a worker is drained

_LOOK_S = 5.0  # between two looks without a bell
_BUSY_LOOK_S = 0.25  # while others have runs
_SWEEP_S = 4.0
_IDLE_SWEEP_S = 20.0  # while no other worker has a run, and no bell rang
_NOTICE_S = 60.0
_PRUNE_S = 300.0
_BEGUN_S = 0.1  # until its notice names a run that it has begun
_CHANGED_S = 1.0  # until it no longer names one that is over
_WATCH_S = 0.25  # between looks if another process has taken a run of this worker
_UNFIT_S, _NOT_NOW_S, _AWAY_S = 60.0, 5.0, 1.0
_SOON_US = 60_000_000
_log = logging.getLogger("plait.worker")
_numbers = count(1)


class Worker:
    """Serves the workflows of some modules, for one store or several."""

    def __init__(
        self,
        stores: Store | Sequence[Store],
        modules: Iterable[str],
        *,
        name: str = "",
        labels: Iterable[str] = (),
        slots: int = 4,
        shares: Mapping[str, ProjectShare] | None = None,
        host: str = "",
        isolation: str = "",
        until_empty: bool = False,
        alive_file: str | None = None,
    ) -> None:
        """`modules` are imported here: those that have the workflows, or MODULE:NAME for one.

        `isolation` is the best rung that it offers; without it, the best that this machine has.
        With `until_empty` it ends when no run is left for it, now or within a minute. It touches
        `alive_file` at every look, so that others see that it is not stuck.
        """
        self._stores = [stores] if not isinstance(stores, Sequence) else list(stores)
        if not self._stores:
            raise InvalidValue("stores", "there are none", "pass one that is open")
        served = modules if isinstance(modules, str) else tuple(dict.fromkeys(modules))
        check_count("slots", slots, 1, 1000)
        programs = served_programs(served)
        check_worker_name(name)
        self.host = host or socket.gethostname()
        self.name = name or f"{self.host}.{os.getpid()}.{next(_numbers)}"
        self.slots = slots
        given = frozenset(check_labels(labels, "labels"))
        check_given(given)
        self.rungs = find_rungs(self._stores[0], isolation)
        places = place_labels(self.host, self.rungs)
        self.ability = Ability(programs, given, code_of(tuple(served)), self.host, places)
        known = merged_shares(shares)
        self._claims = {
            store.address: Claims(store, self.name, self.ability, Shares(known, self.name))
            for store in self._stores
        }
        self._jobs = {store.address: JobDrivers(store) for store in self._stores}
        self._pruners = {store.address: CopyPruner(store) for store in self._stores}
        self._pruned_s = -_PRUNE_S
        self._has_deadlines = {store.address: True for store in self._stores}
        self._guard = threading.Lock()
        self._runs: dict[str, Run] = {}  # that it executes
        self._threads: dict[str, threading.Thread] = {}
        self._until_empty, self._alive_file = until_empty, alive_file
        self._told: dict[str, tuple[str, ...]] = {}  # by store: the runs in its notice
        self._wake = threading.Event()
        self._over = threading.Event()
        self._is_draining = False
        self._jitter = int(digest(b"plait/worker/1", self.name.encode())[:4], 16) / 0xFFFF
        self._look_s = _LOOK_S * (1 + self._jitter / 2)
        self._started = now_in(self._stores[0])
        self.ended: dict[str, int] = {}  # how many runs stopped how

    # ── its life ─────────────────────────────────────────────────────────────────────────────

    def serve(self) -> None:
        """Claim and execute runs until the worker is drained."""
        locks, bells = list[RunLock](), list[Bell]()
        try:
            for store in self._stores:
                locks.append(lock_worker(store, self.name))
                remove_worker(store, self.name)  # of an earlier one of this name
                bells.append(store.listen(WORK_BELL))
                threading.Thread(target=self._hear, args=(bells[-1],), daemon=True).start()
                bells.append(store.listen(drain_bell(self.name)))
                hears = threading.Thread(target=self._hear_drain, args=(store, bells[-1]))
                hears.daemon = True
                hears.start()
            threading.Thread(target=self._watch_runs, daemon=True).start()
            self._tell()
            self._claim_all()
            self._finish()
        finally:
            self._over.set()
            for bell in bells:
                bell.close()
            # the name may be that of another worker, in a store in which this one did not get it
            for store, lock in zip(self._stores, locks, strict=False):
                remove_worker(store, self.name)
                store.ring(WORK_BELL)
                lock.release()

    def drain(self) -> None:
        """Take no more runs, and let go of each at its next safe point. A signal handler may call
        this: it takes no lock.
        """
        self._is_draining = True
        for run in list(self._runs.values()):
            run.stops.let_go()
        self._wake.set()

    def _finish(self, grace_s: float = GRACE_S) -> None:
        """Wait for the runs that are let go of, for as long as tools are given."""
        self.drain()  # also those that began meanwhile
        with suppress(PlaitError):
            self._tell()
            for store in self._stores:
                for run in self._own_runs(store):
                    note_let_go(store, run)
        until = time.monotonic() + grace_s
        for thread in list(self._threads.values()):
            thread.join(max(0.0, until - time.monotonic()))

    def _hear(self, bell: Bell) -> None:
        while not self._over.is_set():
            try:
                if bell.wait(_LOOK_S):
                    self._wake.set()
            except PlaitError:  # the store is away: the looks go on
                self._over.wait(_AWAY_S)

    def _hear_drain(self, store: Store, bell: Bell) -> None:
        """Drain at once when another process asks for it. A sweep finds a wish without a bell."""
        while not self._over.is_set():
            try:
                if bell.wait(_LOOK_S) and read_board(store, self.name).is_drain_asked:
                    self.drain()
                    return
            except PlaitError:
                self._over.wait(_AWAY_S)

    def _watch_runs(self) -> None:
        """Halt runs that another process has taken, as after a cut of this worker's connections.
        Their commands end; a tool that is Python code of this process cannot be ended.
        """
        while not self._over.wait(_WATCH_S):
            for run in list(self._runs.values()):
                if run.lock is not None and run.lock.was_taken and not run.is_lost:
                    run.journal.fence.lose()
                    why = "another process has taken it: its commands are ended here"
                    _log.warning("%s: run %s: %s", self.name, run.id, why)

    # ── claiming ─────────────────────────────────────────────────────────────────────────────

    def _claim_all(self) -> None:
        swept = told = time.monotonic()
        sweep_s = _SWEEP_S
        while not self._is_draining:
            self._wake.clear()
            if self._alive_file is not None:
                Path(self._alive_file).touch()
            rest_s = self._look_s
            is_sweep_due = time.monotonic() - swept > sweep_s
            if is_sweep_due:
                swept, sweep_s = time.monotonic(), _IDLE_SWEEP_S
            for store in self._stores:
                try:
                    rest_s = min(rest_s, self._claim_from(store))
                    if is_sweep_due and self._sweep(store):
                        sweep_s = _SWEEP_S
                except PlaitError as error:
                    _log.warning("%s: %s", self.name, error.record_text)
                    rest_s, sweep_s = min(rest_s, _AWAY_S), _SWEEP_S
            try:
                tell_s = self._seconds_to_tell()
                if time.monotonic() - told > tell_s:
                    told = time.monotonic()
                    self._tell()
                else:
                    rest_s = min(rest_s, tell_s)
                if self._until_empty and self._is_empty():
                    self.drain()
            except PlaitError as error:  # a store that is away ends no worker
                _log.warning("%s: %s", self.name, error.record_text)
            if self._wake.wait(rest_s):
                sweep_s = _SWEEP_S

    def _claim_from(self, store: Store) -> float:
        """Claim runs of a store while there are slots; return the seconds until the next look."""
        claims = self._claims[store.address]
        look: Look | None = None
        while self._has_room():
            now = now_in(store)
            work, look = claims.claim(now)
            self._has_deadlines[store.address] = look.has_deadlines
            if work is not None:
                self._begin(store, claims, work)
            if work is None or not look.has_more:
                break
        if look is None:  # every slot is used: the end of a run wakes the worker
            return self._look_s
        rest_s = _BUSY_LOOK_S * (1 + self._jitter / 2) if look.is_busy else self._look_s
        if look.next_due is not None:
            rest_s = min(rest_s, max(0.01, (look.next_due - now_in(store)) / 1e6))
        return rest_s

    def _has_room(self) -> bool:
        return not self._is_draining and len(self._threads) < self.slots

    def _is_empty(self) -> bool:
        """True if this worker has no run, and none is left for it, now or soon."""
        if self._threads:
            return False
        for store in self._stores:
            now, jobs = now_in(store), self._jobs[store.address]
            jobs.sweep(now)
            if jobs.has_retries(self.ability.programs, now + _SOON_US):
                return False
            look = self._claims[store.address].look(now)
            if look.runs or (look.next_due is not None and look.next_due < now + _SOON_US):
                return False
        return True

    def _sweep(self, store: Store) -> bool:
        """See to jobs, to deadlines, to the runs of dead workers and to a wish that this one be
        drained. True: there are runs or jobs that may need it again soon.
        """
        board = read_board(store, self.name)
        if board.is_drain_asked:
            self.drain()
            return False
        if time.monotonic() - self._pruned_s > _PRUNE_S:
            self._pruned_s = time.monotonic()
            self._prune()
        claims, now = self._claims[store.address], now_in(store)
        has_jobs = self._jobs[store.address].sweep(now)
        if self._has_deadlines[store.address]:
            cancel_late_runs(store, now)
        for work in sweep(store, board, claims, now, self._has_room):
            self._begin(store, claims, work)
        has_runs = any([notice.runs for notice, _ in board.workers])
        return has_jobs or has_runs or self._has_deadlines[store.address]

    def _prune(self) -> None:
        """Remove the copies of sessions that have moved to other hosts."""
        for store in self._stores:
            own = frozenset(self._claims[store.address].own)
            rows = store.rows(InboxRows.name, "work", {"run": own}, limit=1000) if own else ()
            removed = list[str]()
            with suppress(OSError):  # a disk that is full or gone does not end the worker
                removed = self._pruners[store.address].prune({str(row["log"]) for row in rows})
            if removed:
                _log.info("%s: removed copies %s", self.name, ", ".join(removed))

    def _begin(self, store: Store, claims: Claims, work: ClaimedWork) -> None:
        run = work.run.run
        claims.own.add(run)
        thread = threading.Thread(
            target=self._execute, args=(store, claims, work), name=f"plait-slot-{run[-8:]}"
        )
        thread.daemon = True  # a tool that does not end must not keep a drained worker
        with self._guard:
            self._threads[run] = thread
        thread.start()

    def _execute(self, store: Store, claims: Claims, work: ClaimedWork) -> None:
        """Execute a run in this thread, until it stops."""
        run = work.run.run
        outcome = Outcome("failed")
        try:
            outcome = self._drive(store, work)
            _log.info("%s: %s %s %s", self.name, work.run.log, outcome.how, outcome.why)
            self._follow_up(store, claims, run, outcome)
            if work.run.job:
                self._jobs[store.address].advance(LogId(work.run.job))
        except PlaitError as error:
            _log.warning("%s: %s", self.name, error.record_text)
        finally:
            with self._guard:
                self._threads.pop(run, None)
                self._runs.pop(run, None)
                self.ended[outcome.how] = self.ended.get(outcome.how, 0) + 1
            claims.own.discard(run)
            self._wake.set()
            store.ring(ENDED)
            if outcome.how == "let go":
                store.ring(WORK_BELL)

    def _drive(self, store: Store, work: ClaimedWork) -> Outcome:
        """Execute a run until it stops; leave one to others that is bound to another place."""
        log, run = LogId(work.run.log), work.run.run
        lacking = frozenset[str]()
        try:
            if work.run.chosen != "first":
                lacking = missing_places(store, log, self.ability.places)
            if lacking:
                bind_run(store, log, run, lacking)
        except BaseException:  # the store may be away: the run must not stay locked
            work.lock.release()
            raise
        if lacking:
            work.lock.release()
            return Outcome("elsewhere", ", ".join(sorted(lacking)))
        outcome = drive_claimed(store, work, self._note_run)
        if outcome.how == "elsewhere":
            bind_free_run(store, log, run, [outcome.why])
        return outcome

    def _note_run(self, run: Run) -> None:
        self._runs[run.id] = run
        if self._is_draining:
            run.stops.let_go()

    def _follow_up(self, store: Store, claims: Claims, run: str, outcome: Outcome) -> None:
        """Leave a run to others for a while, if this worker cannot execute it now."""
        waits = {"unfit": _UNFIT_S, "not now": _NOT_NOW_S, "away": _AWAY_S, "lost": _AWAY_S}
        if outcome.how in waits:
            claims.unfit[run] = now_in(store) + int(waits[outcome.how] * 1e6)
        if outcome.how == "unfit":
            note_unfit(store, UnfitNotice(run, self.ability.code, self.name, outcome.why))
            store.ring(WORK_BELL)

    # ── notices ──────────────────────────────────────────────────────────────────────────────

    def _own_runs(self, store: Store) -> tuple[str, ...]:
        return tuple(sorted(self._claims[store.address].own))

    def _seconds_to_tell(self) -> float:
        """Return how old its notices may be: those that lack a run are put soon, unless the run is
        over by then.
        """
        told = [({*self._told.get(each.address, ())}, each) for each in self._stores]
        own = [(known, {*self._own_runs(each)}) for known, each in told]
        if any([runs - known for known, runs in own]):
            return _BEGUN_S
        return _CHANGED_S if any([known != runs for known, runs in own]) else _NOTICE_S

    def _tell(self) -> None:
        """Put the notice of this worker, with the runs that it has."""
        ability = self.ability
        for store in self._stores:
            notice = WorkerNotice(
                self.name,
                self.host,
                os.getpid(),
                tuple(sorted(ability.labels)),
                tuple(sorted(ability.programs)),
                ability.code,
                self.slots,
                self._own_runs(store),
                self._is_draining,
                self._started,
                self.rungs,
            )
            put_worker(store, notice)
            self._told[store.address] = notice.runs
