"""Runs in a world made from a seed: time, ids, which attempt fails, which tool is lost, who is done first.

Everything follows from the seed and what is asked about, never from when or how often, so the same seed gives the same history, head
and all, whatever threads do. Nothing waits: pauses are over at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from plait.event import Event, without_measured
from plait.event.kinds import Failure, Merged, SessionOpened, Text
from plait.ids import digest
from plait.model.base import Fault, Reply
from plait.runtime.drive import Blocking
from plait.runtime.run import direct_writer
from plait.runtime.waits import CallModel, Done, Job, Launch, Next, Wait
from plait.session import Session
from plait.session.content import Content, text_of
from plait.session.ports import Spot
from plait.testing.seeded import Seeded
from plait.workflow import Workflow, original

_encode = msgspec.json.Encoder(order="deterministic").encode

USER = "simulated"  # whose sessions they are, on every machine
_numbers = count(1)  # every simulated session has a store that nobody had before

FAULTS = ("RateLimited", "Overloaded", "ServerError", "Timeout", "ConnectionLost", "StreamCut")


class Simulation:
    """`Simulation(seed=7, model_fault_rate=0.1).run(Repair(), "Fix the bug")`."""

    def __init__(self, seed: int = 0, *, model_fault_rate: float = 0.0, tool_fault_rate: float = 0.0) -> None:
        self.seed, self.model_fault_rate, self.tool_fault_rate = seed, model_fault_rate, tool_fault_rate
        self._addresses: list[str] = []

    def session(self, *content: Content) -> Session:
        """A session in a memory store of its own, with the seed's clock and chance."""
        address = f"memory:simulation-{next(_numbers)}"
        self._addresses.append(address)
        direct_writer().bind_source(address, Seeded(self.seed))
        return Session(*(content or ("Begin.",)), store=address, user=USER)

    def run(self, workflow: Workflow, *content: Content | Session) -> Session:
        """Run a workflow on a new session, or on one made by `session()`, and return what it returned."""
        given = content[0] if content and isinstance(content[0], Session) else None
        session = given or self.session(*[each for each in content if not isinstance(each, Session)])
        return workflow._run(original(type(workflow)), session, waiter=self.waiter())  # pyright: ignore[reportPrivateUsage]

    def close(self) -> None:
        """Forget its sessions."""
        for address in self._addresses:
            direct_writer().store(address).close()
        self._addresses.clear()

    def waiter(self) -> Simulated:
        return Simulated(self)

    def lot(self, *about: str | int) -> float:
        """A number from 0 to 1 that follows from the seed and what it is about."""
        text = "/".join(map(str, (self.seed, *about)))
        return int(digest(b"plait/lot/1", text.encode())[:13], 16) / 16**13

    @classmethod
    def check(
        cls,
        body: Callable[[Simulation], object],
        *,
        seeds: Iterable[int] = range(100),
        kept: str | Path | None = None,  # where seeds that failed are kept, one per line, and tried first from then on
        **rates: float,
    ) -> int:
        """Try a property on many seeds; a seed that fails is kept and named in the error. Returns how many were tried."""
        file = Path(kept) if kept is not None else None
        before = [int(line.split()[0]) for line in file.read_text().splitlines() if line.strip()] if file and file.exists() else []
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
    """Waits for nothing, and lets happen what the seed says."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def clock(self) -> int:
        return 0

    def wait(self, op: Wait) -> Any:
        if isinstance(op, CallModel):
            return self.ask(op), 0
        if isinstance(op, Launch):
            return _Batch(op.lanes, self)
        if isinstance(op, Next):
            return op.batch.next()
        return None

    def ask(self, op: CallModel) -> Reply | Fault:
        if self._simulation.lot("model", op.call, op.attempt) >= self._simulation.model_fault_rate:
            return super().ask(op)
        kind = FAULTS[int(self._simulation.lot("fault", op.call, op.attempt) * len(FAULTS))]
        partial = ""
        if kind == "StreamCut":
            reply = super().ask(op)
            words = text_of(tuple([part for part in reply.parts if isinstance(part, Text)])) if isinstance(reply, Reply) else ""
            partial = words[: int(len(words) * self._simulation.lot("cut", op.call, op.attempt))]
        return Fault(kind, "as the seed has it", retryable=True, retry_after_s=1.0 if kind == "RateLimited" else None, partial=partial)

    def run(self, job: Job) -> Done:
        if self._simulation.lot("tool", job.call, job.attempt) >= self._simulation.tool_fault_rate:
            return super().run(job)
        before = self._simulation.lot("before", job.call, job.attempt) < 0.5
        if not before:
            super().run(job)  # it ran, and nobody heard of it
        return Done(job.number, failure=Failure("SimulatedFault", f"as the seed has it, {'before' if before else 'after'} it ran"))


class _Batch:
    """Lanes are done one job at a time, in an order that follows from the seed."""

    def __init__(self, lanes: Sequence[Sequence[Job]], waiter: Simulated) -> None:
        self._lanes, self._waiter, self._over = [list(lane) for lane in lanes], waiter, False

    def next(self) -> Done:
        simulation = self._waiter._simulation  # pyright: ignore[reportPrivateUsage]
        lane = min((lane for lane in self._lanes if lane), key=lambda lane: simulation.lot("order", lane[0].call, lane[0].attempt))
        job = lane.pop(0)
        if self._over:
            return Done(job.number, failure=Failure("Cancelled", "not run: the turn was cancelled"))
        return self._waiter.run(job)

    def add(self, job: Job) -> None:
        for lane in self._lanes:  # what follows in its lane waits for it
            if lane and job.tool.effect == "workspace" and lane[0].tool.effect == "workspace":
                lane.insert(0, job)
                return
        self._lanes.append([job])

    def cancel(self) -> None:
        self._over = True


_IDS = re.compile(r"[0-9a-f]{64}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\bc[0-9a-f]{23}\b")


def history(session: Session) -> list[str]:
    """What happened, without what only a clock or chance decides: two runs of one history are equal by this.

    Merged branches come before the merge. Ids are told by when they are first met: they differ, what they stand for does not.
    """
    met: dict[str, str] = {}
    told = (_IDS.sub(lambda id: met.setdefault(id[0], f"#{len(met)}"), _told(event)) for event in _every(session, set()))
    return [_encode(msgspec.json.decode(text)).decode() for text in told]  # keys in the order of their new names


def _every(session: Session, seen: set[str]) -> list[Event]:
    found: list[Event] = []
    for event in session.events:
        if event.id not in seen:
            seen.add(event.id)
            for branch in event.body.branches if isinstance(event.body, Merged) else ():
                found.extend(_every(Session.of(Spot(session.store, branch.log, branch.seq, branch.head)), seen))
            found.append(event)
    return found


def _told(event: Event) -> str:
    header = event.header
    about = [header.log, header.seq, event.id, header.actor, header.behalf, header.origin, header.run, header.call, list(header.causes)]
    body = without_measured(event.body)
    if isinstance(body, SessionOpened):
        body = msgspec.structs.replace(body, durability=None)  # how it is written down is not what happened
    return _encode([event.kind, about, body]).decode()
