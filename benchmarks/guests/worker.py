"""The contestant's side of the line: a process that does what it is asked, one JSON document per
line, and times it.

    {"do": "append", "session": "…", "text": "…"}   →   {"wall": 0.0011, "cpu": 0.0002, "value": null}

Every contestant has an interpreter of its own, so that none pays for what another imports. Only the
standard library is needed here, for the same reason. The clock runs around the one call, in the
process that makes it: the pipe is not measured.
"""  # noqa: E501

from __future__ import annotations

import base64
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMED = ("append", "fork", "state", "page", "remember")
SETTLE_SIZE = 12_000_000  # more than SQLite lets a write-ahead log grow before it starts over


class Guest:
    """The operations of a contestant.

    A contestant without an operation leaves it out, and the table says so.
    """

    settings = ""  # what it was run with, and what that promises

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # ── not timed ──

    def about(self) -> dict[str, str]:
        return {"version": self.version(), "settings": self.settings}

    def version(self) -> str:
        raise NotImplementedError

    def begin(self) -> str:
        """A new, empty session; its name."""
        raise NotImplementedError

    def fill(self, session: str, texts: list[str]) -> None:
        """As many appends as there are texts, one by one: whoever pays per append pays for a long
        session as its users do.
        """
        for text in texts:
            self.append(session, text)

    def settle(self) -> None:
        """Past the first checkpoint, as any store is after a while: until then each commit makes
        the log's file longer.
        """
        self.append(
            self.begin(),
            base64.b64encode(random.Random(0).randbytes(SETTLE_SIZE * 3 // 4)).decode(),
        )

    def parent(self, session: str) -> str:
        """The session to fork, where that has to be one of another kind."""
        return session

    def crowd(self, count: int) -> None:
        """Many sessions, to list a page of."""
        raise NotImplementedError

    def hold(self, texts: list[str]) -> str:
        """A session in memory that already holds these."""
        raise NotImplementedError

    def branches(self, texts: list[str], count: int, text: str) -> int:
        """Bytes of RAM of as many branches of one session, each of which has gone its own way by
        one message.
        """
        raise NotImplementedError

    # ── timed ──

    def append(self, session: str, text: str) -> None:
        """One message, as durable as it gets, when this returns."""
        raise NotImplementedError

    def fork(self, session: str, place: int) -> None:
        """A branch after so many messages, which goes on without changing its parent."""
        raise NotImplementedError

    def state(self, session: str) -> int:
        """Open the store anew and bring back every message; how many."""
        raise NotImplementedError

    def page(self) -> int:
        """The newest hundred sessions; how many."""
        raise NotImplementedError

    def remember(self, session: str, texts: list[str]) -> None:
        """A few messages one by one, in memory alone: a single one is over before a clock that was
        just woken has warmed up.
        """
        raise NotImplementedError

    def time(self, verb: str, asked: dict[str, Any]) -> dict[str, Any]:
        """For a contestant whose work has to happen in another thread to override."""
        return clocked(lambda: getattr(self, verb)(**asked))


class Runner(Guest):
    """The operations of a contestant of the runtime's table.

    Each answers with {"wall": …, "cpu": …}: what one call or step took.
    """

    def turn(self, calls: int, refused: bool = False) -> dict[str, float]:
        """In memory: per model call of one turn, each with a tool that does nothing, or with a call
        of one that is not there.
        """
        raise NotImplementedError

    def nested(self, calls: int) -> dict[str, float]:
        """In memory: per call of an agent that answers at once, inside one run of a workflow."""
        raise NotImplementedError

    def outermost(self, calls: int) -> dict[str, float]:
        """In memory: per call of an agent that answers at once, each one a run of its own on the
        same session.
        """
        raise NotImplementedError

    def growth(self, calls: int) -> dict[str, dict[str, float]]:
        """In memory: a step at the beginning of one long turn and one at its end."""
        raise NotImplementedError

    def answer(self, messages: int, fresh: bool) -> dict[str, float]:
        """In memory: an agent asked in a session of so many messages, for the first
        time or again.
        """
        raise NotImplementedError

    def steps(self, calls: int) -> dict[str, float]:
        """On disk: per step (a model call, a tool call) of one turn."""
        raise NotImplementedError

    def appends(self, calls: int) -> float:
        """On disk: transactions asked of the store per step of one turn."""
        raise NotImplementedError

    def together(self, sessions: int, agents: int, calls: int) -> dict[str, float]:
        """On disk: per step of as many agents in each of as many sessions, all at the same time."""
        raise NotImplementedError


class Resumer(Guest):
    """The operations of a contestant of the table of resumed runs. Each answers with
    {"wall": …, "cpu": …}.

    `record` is not timed: a run is begun in another process, which kills itself when so many
    effects are on record. `shape` says what they are: `agent`, half of them a model's replies and
    half the tools it calls; `program`, tool calls that the program itself makes; `branches`, the
    first of these in ten branches of one run, at the same time.
    """

    def record(self, shape: str, effects: int, times: int) -> None:
        """Such a run that was cut by a crash, to be taken up again so often."""
        raise NotImplementedError

    def resume(self, shape: str) -> dict[str, float]:
        """Take it up again, to the first effect that is not on record (in branches: to the last of
        these).
        """
        raise NotImplementedError

    def replay(self, shape: str) -> dict[str, float]:
        """Go through it by its record alone, to its end."""
        raise NotImplementedError

    def read(self, shape: str) -> dict[str, float]:
        """Nothing but read what is on record of it."""
        raise NotImplementedError


class Edge:
    """The end of the record.

    The process that makes the record dies there; later, the clock stops there.
    """

    def __init__(self, lanes: int = 1) -> None:
        self.barrier, self.deadly = threading.Barrier(lanes), False
        self.wall = self.cpu = 0.0
        self.reached = threading.Event()

    def reach(self) -> None:
        if self.deadly:
            self.barrier.wait()  # every branch has come to it
            os.kill(os.getpid(), signal.SIGKILL)
        self.wall, self.cpu = time.perf_counter(), time.process_time()
        self.reached.set()

    def clock(self, operation: Callable[[], object]) -> dict[str, float]:
        """From here to where it was last reached; the operation goes on to its end."""
        self.reached.clear()
        cpu, wall = time.process_time(), time.perf_counter()
        operation()
        if not self.reached.wait(600):
            raise RuntimeError("it did not come to an effect that is not on record")
        return {"wall": self.wall - wall, "cpu": self.cpu - cpu}


def crash(*more: str) -> None:
    """This very script again, told to make a record and die."""
    done = subprocess.run(
        [sys.executable, *sys.argv[:3], *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=900,
    )
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(f"it was to be killed, but ended with {done.returncode}")


class Stamps:
    """The times at which a model was asked. A step is the time between two asks."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def mark(self) -> None:
        self.wall.append(time.perf_counter())
        self.cpu.append(time.process_time())

    def mean(self) -> dict[str, float]:
        """The first step is left out: it also begins the turn."""
        return {
            name: (marks[-1] - marks[1]) / (len(marks) - 2)
            for name, marks in (("wall", self.wall), ("cpu", self.cpu))
        }

    def median(self, first: int, last: int) -> dict[str, float]:
        return {
            name: statistics.median(_gaps(marks)[first:last])
            for name, marks in (("wall", self.wall), ("cpu", self.cpu))
        }


def _gaps(marks: list[float]) -> list[float]:
    return [after - before for before, after in zip(marks, marks[1:], strict=False)]


def share(count: int, operation: Callable[[], object]) -> dict[str, float]:
    """Return the time of the operation, divided by the count."""
    took = clocked(operation)
    return {"wall": took["wall"] / count, "cpu": took["cpu"] / count}


def at_once(works: list[Callable[[], object]]) -> None:
    """Each in a thread of its own, all let go at the same moment; raises what the
    first one raised.
    """
    gate, failed = threading.Barrier(len(works)), list[BaseException]()

    def work(each: Callable[[], object]) -> None:
        gate.wait()
        try:
            each()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(each,)) for each in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def clocked(operation: Callable[[], Any]) -> dict[str, Any]:
    """CPU of the whole process: threads that help with the operation count."""
    cpu, wall = time.process_time(), time.perf_counter()
    value = operation()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "value": value}


def serve(make: Callable[[Path], Guest]) -> None:
    """Answer until there are no more questions.

    The line is ours alone: whatever else is printed goes to the errors.
    """
    line, sys.stdout = sys.stdout, sys.stderr
    guest = make(Path(sys.argv[1]))
    for asked in sys.stdin:
        print(json.dumps(_answer(guest, json.loads(asked))), file=line, flush=True)


def _answer(guest: Guest, asked: dict[str, Any]) -> dict[str, Any]:
    verb = asked.pop("do")
    try:
        return (
            guest.time(verb, asked) if verb in TIMED else {"value": getattr(guest, verb)(**asked)}
        )
    except NotImplementedError:
        return {"none": True}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
