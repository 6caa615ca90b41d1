"""Runs in a world made from a seed: time, ids, failures, lost tools, the order of branches, and
deaths of the process.

Everything follows from the seed and the question, never from time or count, so the same seed gives
the same history, head and all, in any order of threads. Nothing waits: pauses are over at
once.

A process that dies writes nothing more, in any of its threads; the run is then taken up again, as a
new process would, until it comes to its end. Where branches run side by side and may die, they take
turns at their writes, so that the progress of one at the death of another follows from the seed,
too.
Threads of the program's own take no turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from pathlib import Path
from threading import Semaphore
from typing import Any, TypeVar

import msgspec

from plait.errors import NothingToAccept
from plait.event import Json
from plait.event.kinds import (
    Failure,
    RunCancelled,
    RunFailed,
    RunFinished,
    Text,
    ToolRequested,
)
from plait.ids import Digest, digest
from plait.journal.stops import Halted, Parked
from plait.journal.writer import direct_writer
from plait.model.base import Fault, Reply
from plait.runs.take_up import resume_run
from plait.runtime import loop
from plait.runtime.attendants import NOBODY
from plait.runtime.drivers.blocking import Blocking
from plait.runtime.invoke import EnteredCall, invoke
from plait.runtime.run import Run
from plait.runtime.run_tools import is_there
from plait.runtime.waits import CallModel, Done, Job, Launch, Next, Pause, Search, Wait
from plait.session import Session
from plait.session.content import Content, text_of
from plait.session.inbox import all_waiting
from plait.session.ports import Draft, store_at
from plait.session.views import Waiting
from plait.store import canonical_address
from plait.testing.seeded import Seeded
from plait.testing.writing import new_log
from plait.tool import Happened
from plait.workflow import Workflow

T = TypeVar("T")

USER = "simulated"  # the owner of the sessions, on every machine

FAULTS = ("RateLimited", "Overloaded", "ServerError", "Timeout", "ConnectionLost", "StreamCut")


# a process that dies after these has nothing left to do
_ENDS = (RunFinished, RunFailed, RunCancelled)

# says if a call with a lost outcome took place; the digest is its idempotency key
Oracle = Callable[[Waiting, Digest], Happened | None]
# for an approval True if it is granted, for a question the answer
Answer = Callable[[Waiting], Json]


class Simulation:
    """`Simulation(seed=7, model_fault_rate=0.1, crash_rate=0.1).run(Repair(), "Fix the bug")`.

    A process may die before and after every write: by chance, at most `crashes_max` times, or with
    `crash_at` at just these moments, counted from 1.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        model_fault_rate: float = 0.0,
        tool_fault_rate: float = 0.0,
        crash_rate: float = 0.0,
        crash_at: int | Sequence[int] = (),
        crashes_max: int = 100,
    ) -> None:
        self.seed, self.model_fault_rate, self.tool_fault_rate = (
            seed,
            model_fault_rate,
            tool_fault_rate,
        )
        self.crash_rate, self.crashes_max = crash_rate, crashes_max
        self.crash_at = frozenset([crash_at] if isinstance(crash_at, int) else crash_at)
        self.crashes = 0  # how often a process died so far
        self.moments = 0  # how often one might have
        self.turns = 0  # how many turns were given
        self._addresses: list[str] = []

    def session(self, *content: Content) -> Session:
        """A session in a memory store of its own, with the seed's clock and chance."""
        address = canonical_address(f"memory:simulation-{new_log()}")
        self._addresses.append(address)
        direct_writer().bind_source(address, Seeded(self.seed))
        return Session(*(content or ("Begin.",)), store=address, user=USER)

    def run(
        self,
        workflow: Workflow | Callable[[], Workflow],
        *content: Content | Session,
        # None: unknown, and a run that waits for it stays parked
        oracle: Oracle | None = None,
        # None: everything is allowed, and of choices the first is taken
        answer: Answer | None = None,
        # called between a death and the next life
        between: Callable[[Session], object] | None = None,
        # the program from the first death on: its changes are accepted
        changed: Callable[[], Workflow] | None = None,
    ) -> Session:
        """Run a workflow on a new session, or on one made by `session()`, and return its
        result.

        If it dies, or parks, it is resumed until it comes to its end. A
        function that makes the workflow is called for every process anew.
        """
        given = content[0] if content and isinstance(content[0], Session) else None
        session = given or self.session(
            *[each for each in content if not isinstance(each, Session)]
        )
        made = _maker(workflow)
        try:
            call = made().invocation(session)
            return invoke(
                msgspec.structs.replace(call, waiter=self.waiter(), on_start=self._watch_entered)
            )
        except (Halted, Parked) as stop:
            last: Halted | Parked = stop
        while True:
            self._see_to(session, last, oracle, answer, between)
            if changed is not None and self.crashes:
                made = changed
            accept = "changed" if made is changed else None
            try:
                return self._resume(session, made, accept)
            except (Halted, Parked) as stop:
                last = stop

    def _resume(
        self, session: Session, made: Callable[[], Workflow], accept: str | None
    ) -> Session:
        try:
            return resume_run(
                session, made(), (), {}, NOBODY, self.waiter(), self._watch_resumed, accept
            )
        except NothingToAccept:
            return self._resume(session, made, None)

    def _see_to(
        self,
        session: Session,
        stop: Halted | Parked,
        oracle: Oracle | None,
        answer: Answer | None,
        between: Callable[[Session], object] | None,
    ) -> None:
        """Act as the people would while no process runs."""
        if isinstance(stop, Halted):
            self.crashes += 1
            if between is not None:
                between(session.reload())
            return
        asks = all_waiting(store_at(session.store))
        if not [ask for ask in asks if _attend(session.store, ask, oracle, answer)]:
            raise stop  # it waits for an answer that is not to be had here

    # ── dying ────────────────────────────────────────────────────────────────────────────────

    @property
    def may_crash(self) -> bool:
        return bool(self.crash_rate or self.crash_at)

    def _watch_entered(self, entered: EnteredCall) -> None:
        self._watch(entered.run)

    def _watch_resumed(self, run: Run) -> None:
        run.holder, run.taker = f"{USER}/{run.holder.rpartition('/')[2]}", f"human:{USER}"
        self._watch(run)

    def _watch(self, run: Run) -> None:
        def on_write(when: str, drafts: Sequence[Draft]) -> None:
            if when == "before":
                _take_turns()
            ended = when == "after" and any(isinstance(draft.body, _ENDS) for draft in drafts)
            if run.journal.fence.halted is not None or (not ended and self._dies_now()):
                raise run.journal.fence.halt(None)

        if self.may_crash:
            run.journal.on_write = on_write

    def _dies_now(self) -> bool:
        self.moments += 1
        if self.moments in self.crash_at:
            return True
        return self.crashes < self.crashes_max and self.lot("crash", self.moments) < self.crash_rate

    def close(self) -> None:
        """Forget its sessions."""
        for address in self._addresses:
            direct_writer().store(address).close()
        self._addresses.clear()

    def waiter(self) -> Simulated:
        return Simulated(self)

    def lot(self, *about: str | int) -> float:
        """A number from 0 to 1 that follows from the seed and these words."""
        text = "/".join(map(str, (self.seed, *about)))
        return int(digest(b"plait/lot/1", text.encode())[:13], 16) / 16**13

    @classmethod
    def check(
        cls,
        body: Callable[[Simulation], object],
        *,
        seeds: Iterable[int] = range(100),
        # where seeds that failed are kept, one per line, and tried first from then on
        kept: str | Path | None = None,
        **rates: Any,  # as for one
    ) -> int:
        """Try a property on many seeds; a seed that fails is kept and named in the error.

        Returns how many were tried.
        """
        file = Path(kept) if kept is not None else None
        before = (
            [int(line.split()[0]) for line in file.read_text().splitlines() if line.strip()]
            if file and file.exists()
            else []
        )
        tried = 0
        for seed in dict.fromkeys([*before, *seeds]):
            simulation = cls(seed, **rates)
            try:
                body(simulation)
                simulation.close()
            except Exception as error:
                if file is not None and seed not in before:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    with file.open("a") as out:
                        out.write(f"{seed}  {type(error).__name__}\n")
                error.add_note(f"seed {seed}" + (f", kept in {file}" if file else ""))
                raise
            tried += 1
        return tried


class Simulated(Blocking):
    """Waits for nothing; every outcome follows from the seed."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    def clock(self) -> int:
        return 0

    def wait(self, op: Wait) -> Any:
        if isinstance(op, CallModel):
            return self.ask(op), 0
        if isinstance(op, Launch):
            return _LaneBatch(op.lanes, self)
        if isinstance(op, Next):
            return op.batch.next()
        if isinstance(op, Search):
            return op.ask()
        return None

    def pause(self, op: Pause) -> None:
        """Wait for nothing."""

    def start_all(
        self, works: Mapping[str, Callable[[], T]]
    ) -> tuple[dict[str, Future[T]], Callable[[], str]]:
        return (
            _Turns(self.simulation).start_all(works)
            if self.simulation.may_crash
            else loop.start_all(works)
        )

    def ask(self, op: CallModel) -> Reply | Fault:
        if self.simulation.lot("model", op.call, op.attempt) >= self.simulation.model_fault_rate:
            return super().ask(op)
        kind = FAULTS[int(self.simulation.lot("fault", op.call, op.attempt) * len(FAULTS))]
        partial = ""
        if kind == "StreamCut":
            reply = super().ask(op)
            words = (
                text_of(tuple([part for part in reply.parts if isinstance(part, Text)]))
                if isinstance(reply, Reply)
                else ""
            )
            partial = words[: int(len(words) * self.simulation.lot("cut", op.call, op.attempt))]
        return Fault(
            kind,
            "as the seed has it",
            retryable=True,
            retry_after_s=1.0 if kind == "RateLimited" else None,
            partial=partial,
        )

    def run_job(self, job: Job) -> Done:
        if self.simulation.lot("tool", job.call, job.attempt) >= self.simulation.tool_fault_rate:
            return super().run_job(job)
        before = self.simulation.lot("before", job.call, job.attempt) < 0.5
        if not before:
            super().run_job(job)  # it ran, and its outcome is lost
        return Done(
            job.number,
            failure=Failure(
                "SimulatedFault", f"as the seed has it, {'before' if before else 'after'} it ran"
            ),
        )


class _LaneBatch:
    """Lanes are done one job at a time, in an order that follows from the seed."""

    def __init__(self, lanes: Sequence[Sequence[Job]], waiter: Simulated) -> None:
        self._lanes, self._waiter, self._over = [list(lane) for lane in lanes], waiter, False

    def next(self) -> Done:
        simulation = self._waiter.simulation
        lane = min(
            (lane for lane in self._lanes if lane),
            key=lambda lane: simulation.lot("order", lane[0].call, lane[0].attempt),
        )
        job = lane.pop(0)
        if self._over:
            return Done(
                job.number,
                failure=Failure("Cancelled", "not run: the call of its agent was cancelled"),
            )
        return self._waiter.run_job(job)

    def add(self, job: Job) -> None:
        for lane in self._lanes:  # the next jobs of its lane wait for it
            if lane and is_there(job) and is_there(lane[0]):
                lane.insert(0, job)
                return
        self._lanes.append([job])

    def cancel(self) -> None:
        self._over = True


class _Turns:
    """Threads that take turns, from write to write, in an order that follows from the seed."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._mine: dict[str, Semaphore] = {}  # given to the branch that goes on
        self._ours = Semaphore(0)  # given back when it comes to a write, or to its end
        self._done: dict[str, Future[Any]] = {}

    def start_all(
        self, works: Mapping[str, Callable[[], T]]
    ) -> tuple[dict[str, Future[T]], Callable[[], str]]:
        self._mine = {name: Semaphore(0) for name in works}
        futures = {
            name: loop.spawn(
                lambda name=name, work=work: self._run_branch(name, work),
                f"plait-{name}",
                apart=True,
            )
            for name, work in works.items()
        }
        return futures, self._next

    def _run_branch(self, name: str, work: Callable[[], T]) -> T:
        _turns.set((self, name))
        self._mine[name].acquire()
        try:
            return work()
        finally:
            self._mine.pop(name)
            self._ended = name
            self._ours.release()

    def wait_for_turn(self, name: str) -> None:
        self._ours.release()
        self._mine[name].acquire()

    def _next(self) -> str:
        """Let them go on, until one has come to its end."""
        self._ended: str | None = None
        while self._ended is None:
            _take_turns()  # the thread that waits for these may take turns itself
            self._simulation.turns += 1
            lots = {
                self._simulation.lot("turn", name, self._simulation.turns): name
                for name in self._mine
            }
            self._mine[lots[min(lots)]].release()
            self._ours.acquire()
        return self._ended


_turns: ContextVar[tuple[_Turns, str] | None] = ContextVar("plait_turns", default=None)


def _take_turns() -> None:
    mine = _turns.get()
    if mine is not None:
        mine[0].wait_for_turn(mine[1])


def _maker(workflow: Workflow | Callable[[], Workflow]) -> Callable[[], Workflow]:
    return (lambda: workflow) if isinstance(workflow, Workflow) else workflow


def _attend(store: str, ask: Waiting, oracle: Oracle | None, answer: Answer | None) -> bool:
    """Answer one ask. Returns False if there is no answer to it here."""
    session = Session.open(ask.log, store=store)
    if ask.kind == "unknown" and oracle is not None:
        found = oracle(ask, _key_of(session, ask))
        if found is None:
            session.inbox.resolve(ask, "did_not_happen")
        else:
            session.inbox.resolve(ask, "happened", found.value)
    elif ask.kind == "question":
        session.inbox.answer(
            ask, answer(ask) if answer is not None else next(iter(ask.choices), "yes")
        )
    elif ask.kind == "approval" and (answer is None or answer(ask)):
        session.inbox.approve(ask)
    elif ask.kind == "approval":
        session.inbox.deny(ask)
    else:
        return False
    return True


def _key_of(session: Session, ask: Waiting) -> Digest:
    """The idempotency key of a call: its first request, or that of the call it stands for."""
    requests = store_at(session.store).read(session.id, kinds={ToolRequested.__name__})
    first = next(event for event in requests if event.header.call == ask.call)
    carries = first.body.carries if isinstance(first.body, ToolRequested) else None
    return carries.key if carries is not None else first.id
