"""Raises processes to be killed: one that has imported everything and opened nothing, and
forks a child each time.

A child does an act (`acts.py`) and acknowledges each step. It is killed at a random moment or at a
chosen system call, or its disk fails there; then its store is opened again, as anybody would, and
compared with what an undisturbed run left after each step. A script, because neither a tracer of
coverage nor a thread may be there when it forks: it takes a request as JSON, and prints what it did
and what was wrong.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw

from plait.errors import PlaitError, StoreError
from tests.faults.acts import ACTS, Act, Stage, Step
from tests.faults.undisturbed import Known, Wrong, check, fresh_copy, learn
from tests.support import run_module

T = TypeVar("T")

MEMORY = "/dev/shm"
PATIENCE_S = 60.0
WRONG_MAX = 10  # after that many we have seen enough

# What changes files, what makes them last, and the acknowledgement itself. strace counts each name
# by itself.
KILLED_AT = (
    "pwrite64",
    "write",
    "fdatasync",
    "fsync",
    "ftruncate",
    "unlink",
    "mkdir",
    "openat",
    "sendto",
)

# What a disk can refuse, and how: no space is needed to read or to remove.
_EITHER = ("EIO", "ENOSPC")
FAILING_AT = dict.fromkeys(
    ("pwrite64", "write", "fdatasync", "fsync", "ftruncate", "mkdir", "openat"), _EITHER
) | {
    "unlink": ("EIO",),
    "pread64": ("EIO",),
}
NEEDED_TO_READ = ("openat", "pread64")
ANSWERS = {
    "EIO": {"StoreFailed", "OutcomeUnknown", "BadAddress"},
    "ENOSPC": {"DiskFull", "OutcomeUnknown"},
}
ALSO = {
    # of a place that cannot be read SQLite says that it is damaged, not that the disk refused
    "pread64": {"StoreCorrupt"},
    # a file that cannot be made: whether for want of space, the disk is asked, and this one has
    # some
    "openat": {"StoreFailed"},
}


# ── children ─────────────────────────────────────────────────────────────────────────────────

Work = Callable[[Stage, Sequence[Step], socket.socket], None]


class Child:
    """A process that does an act.

    It opens what is open before the act, says so, and waits for a word to begin.
    """

    def __init__(self, act: Act, folder: Path, options: dict[str, Any], work: Work) -> None:
        self.line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            self.line.close()
            _be_a_child(act, folder, options, work, far)
        far.close()
        self.line.settimeout(PATIENCE_S)
        self.acknowledged = 0
        if self.line.recv(100_000) != b"ready":
            raise Wrong("it could not begin")

    def go(self) -> None:
        self.line.send(b"go")

    def wait_for(self, acknowledged: int) -> None:
        while self.acknowledged < acknowledged and self.hear():
            pass

    def hear(self) -> bytes:
        """The next message; nothing once it is gone."""
        try:
            message = self.line.recv(100_000)
        except TimeoutError:
            self.kill()
            raise Wrong("it hangs") from None
        except ConnectionResetError:  # killed with a word of ours unread
            return b""
        if message.startswith(b"!"):
            raise Wrong(message[1:].decode())
        self.acknowledged += message == b"."
        return message

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Wait until it is gone, and take its last words."""
        try:
            while self.hear():
                pass
        finally:
            status = os.waitpid(self.pid, 0)[1]
            self.line.close()
        return os.waitstatus_to_exitcode(status)


def _be_a_child(
    act: Act, folder: Path, options: dict[str, Any], work: Work, line: socket.socket
) -> None:
    code = 1
    try:
        stage = Stage(folder, options, act)
        steps = act.steps(stage)
        line.send(b"ready")
        line.recv(10)
        work(stage, steps, line)
        code = 0
    except BaseException:
        line.send(b"!" + traceback.format_exc(limit=-2).encode())
    finally:
        os._exit(code)


def perform(stage: Stage, steps: Sequence[Step], line: socket.socket) -> None:
    for step in steps:
        step()
        line.send(b".")


def perform_and_linger(stage: Stage, steps: Sequence[Step], line: socket.socket) -> None:
    perform(stage, steps, line)
    line.recv(10)  # to be killed after all


class Strace:
    """strace on a child that is waiting to begin."""

    def __init__(self, child: Child, *expressions: str, output: str = os.devnull) -> None:
        options = [word for expression in expressions for word in ("-e", expression)]
        command = ["strace", "-o", output, *options, "-p", str(child.pid)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert self._process.stderr is not None
        said = self._process.stderr.readline()
        if b"attached" not in said:
            child.kill()
            raise Wrong(f"strace cannot attach: {said.decode()}")

    def end(self) -> None:
        self._process.communicate(timeout=PATIENCE_S)


def count_calls(
    known: Known, folder: Path, options: dict[str, Any], names: Sequence[str]
) -> Counter[str]:
    """Count the system calls of an undisturbed act."""
    fresh_copy(known.base, folder)
    child, output = Child(known.act, folder, options, perform), known.base.parent / "calls"
    strace = Strace(child, f"trace={','.join(names)}", output=str(output))
    child.go()
    child.end()
    strace.end()
    return Counter(line.split("(")[0] for line in output.read_text().splitlines() if "(" in line)


# ── what can be asked for ────────────────────────────────────────────────────────────────────


class Nursery:
    """One run: what was asked for, what is known about the acts, and what came of it."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.options: dict[str, Any] = request.get("options", {})
        self.folder = Path(request["folder"])  # where stores are kept that something is wrong with
        self.disk = Path(request["disk"])
        self.now = self.disk / "now"
        self.chance = random.Random(request["seed"])
        self.known = [
            learn(ACTS[name], Path(request["quick"]) / name, self.options)
            for name in request["acts"]
        ]
        self.counts = Counter[str]()
        self.wrong: list[str] = []

    def run(self) -> dict[str, Any]:
        parts = {
            "random": self.kill_at_random,
            "calls": self.kill_at_calls,
            "errors": self.fail_at_calls,
            "full": self.fill_up,
        }
        parts[self.request["part"]]()
        return {"counts": self.counts, "wrong": self.wrong}

    def attempt(self, where: str, known: Known, trial: Callable[[], None]) -> None:
        """One trial on a fresh copy.

        What is wrong is noted, with what reproduces it, and its store is kept.
        """
        if len(self.wrong) >= WRONG_MAX:
            return
        fresh_copy(known.base, self.now)
        try:
            trial()
        except (Wrong, PlaitError, apsw.Error) as error:
            self.wrong.append(f"{where}: {type(error).__name__}: {error}")
            shutil.copytree(self.now, self.folder / f"wrong {len(self.wrong)}", dirs_exist_ok=True)

    def some(self, points: list[T]) -> list[T]:
        """One in so many, in their order: all of them, if one in one was asked for."""
        every = self.request["every"]
        return [
            points[i]
            for i in sorted(self.chance.sample(range(len(points)), -(-len(points) // every)))
        ]

    # killing

    def kill_at_random(self) -> None:
        moments = [
            (known, step, time_s)
            for known in self.known
            for step, time_s in enumerate(self._durations(known))
        ]
        for kill in range(self.request["kills"]):
            known, step, time_s = self.chance.choice(moments)
            delay = self.chance.random() * 1.2 * time_s
            where = f"kill {kill}, {delay * 1000:.3f} ms after step {step} of {known.act.name!r}"
            self.attempt(where, known, partial(self._kill_after, known, step, delay))

    def _durations(self, known: Known) -> list[float]:
        """Return the duration of each step when nothing goes wrong."""
        fresh_copy(known.base, self.now)
        child, found, last = (
            Child(known.act, self.now, self.options, perform),
            list[float](),
            time.perf_counter(),
        )
        child.go()
        while child.hear():
            found.append(time.perf_counter() - last)
            last = time.perf_counter()
        child.end()
        return found

    def _kill_after(self, known: Known, step: int, delay: float) -> None:
        child = Child(known.act, self.now, self.options, perform_and_linger)
        child.go()
        child.wait_for(step)
        time.sleep(delay)  # a random moment is the point here
        child.kill()
        child.end()
        self._examine(known, child)

    def kill_at_calls(self) -> None:
        for known in self.known:
            calls = count_calls(known, self.now, self.options, KILLED_AT)
            moments = [(call, moment) for call in KILLED_AT for moment in range(1, calls[call] + 1)]
            for call, moment in self.some(moments):
                self.attempt(
                    f"killed at {call} {moment} of {known.act.name!r}",
                    known,
                    partial(self._kill_at, known, call, moment),
                )

    def _kill_at(self, known: Known, call: str, moment: int) -> None:
        child = Child(known.act, self.now, self.options, perform)
        strace = Strace(child, f"trace={call}", f"inject={call}:signal=SIGKILL:when={moment}")
        child.go()
        code = child.end()
        strace.end()
        if code != -signal.SIGKILL:
            raise Wrong(f"it was not killed, but ended with {code}")
        self._examine(known, child)

    def _examine(self, known: Known, child: Child) -> None:
        self.counts["kills"] += 1
        self.counts[f"in {known.act.name}"] += 1
        self.counts["acknowledged"] += child.acknowledged
        self.counts["unknown"] += check(known, self.now, self.options, child.acknowledged)

    # failing disks

    def fail_at_calls(self) -> None:
        for known in self.known:
            calls = count_calls(known, self.now, self.options, tuple(FAILING_AT))
            for fault in self.some(
                [fault for call in FAILING_AT for fault in faults_at(call, calls[call])]
            ):
                self.attempt(
                    f"{fault} of {known.act.name!r}", known, partial(self._fail_at, known, fault)
                )

    def _fail_at(self, known: Known, fault: Fault) -> None:
        child = Child(
            known.act,
            self.now,
            self.options,
            Suffering(known, fault.error, fault.call, lasting=fault.lasting),
        )
        strace = Strace(
            child,
            f"trace={fault.call}",
            f"inject={fault.call}:error={fault.error}:when={fault.moment}{'+' * fault.lasting}",
        )
        self._let_suffer(known, child)
        strace.end()
        check(known, self.now, self.options, child.acknowledged, cached=False)

    def fill_up(self) -> None:
        """A disk with so much space left and no more: none at all, then more and more, until it is
        enough.
        """
        for known in self.known:
            for pages in range(
                self.chance.randrange(self.request["every"]), 10_000, self.request["every"]
            ):
                before = self.counts["errors"]
                self.attempt(
                    f"{pages} pages left for {known.act.name!r}",
                    known,
                    partial(self._fill_up, known, pages),
                )
                if self.counts["errors"] == before:
                    break

    def _fill_up(self, known: Known, pages: int) -> None:
        ballast = self.disk / "ballast"
        child = Child(
            known.act, self.now, self.options, Suffering(known, "ENOSPC", ballast=ballast)
        )
        space = os.statvfs(self.disk)
        ballast.write_bytes(bytes(max(0, space.f_bavail - pages) * space.f_frsize))
        try:
            self._let_suffer(known, child)
        finally:
            ballast.unlink(missing_ok=True)
        check(known, self.now, self.options, child.acknowledged, cached=False)

    def _let_suffer(self, known: Known, child: Child) -> None:
        child.go()
        errors: list[str] = []
        while message := child.hear():
            if message != b".":
                errors.append(message.decode())
        if (code := child.end()) != 0:
            raise Wrong(f"it ended with {code}")
        self.counts["faults"] += 1
        self.counts[f"in {known.act.name}"] += 1
        self.counts["errors"] += len(errors)
        self.counts.update(errors)


class Fault(NamedTuple):
    error: str
    call: str
    moment: int
    lasting: bool

    def __str__(self) -> str:
        return f"{self.error} from {self.call} {self.moment}{' on' if self.lasting else ''}"


def faults_at(call: str, count: int) -> list[Fault]:
    return [
        Fault(error, call, moment, lasting)
        for moment in range(1, count + 1)
        for error in FAILING_AT[call]
        for lasting in (False, True)
    ]


class Suffering:
    """Doing an act while the disk fails.

    Each refusal has to be one of ours, and reading has to go on.
    """

    def __init__(
        self,
        known: Known,
        error: str,
        call: str = "",
        *,
        lasting: bool = False,
        ballast: Path | None = None,
    ) -> None:
        self._known, self._lasting, self._ballast = known, lasting, ballast
        self._reads = not (lasting and call in NEEDED_TO_READ)
        self._answers = ANSWERS[error] | ALSO.get(call, set())

    def __call__(self, stage: Stage, steps: Sequence[Step], line: socket.socket) -> None:
        for done, step in enumerate(steps):
            if not self._did(stage, step, done, line):
                if self._lasting:
                    return  # the disk is gone for good, and so are we
                raise Wrong("the disk works again, and writing does not")
            line.send(b".")

    def _did(self, stage: Stage, step: Step, done: int, line: socket.socket) -> bool:
        """True if the step was done, at the second attempt if need be."""
        ordinal = stage.source.ordinal
        for _ in range(2):
            stage.source.ordinal = ordinal  # a second time means the very same events
            try:
                step()
                return True
            except StoreError as error:
                if type(error).__name__ not in self._answers:
                    raise
                line.send(type(error).__name__.encode())
            self._read(stage, done)
            if self._ballast is not None:
                self._ballast.unlink(missing_ok=True)
        return False

    def _read(self, stage: Stage, done: int) -> None:
        """Everything acknowledged can be read; so may the step that failed, as a whole."""
        if not stage.is_open:
            return
        try:
            found = {number: event.content and event.id for number, event in stage.store.feed()}
        except StoreError:
            if self._reads:
                raise
            return
        pictures = self._known.pictures
        ways = [
            {n: e.id for n, e in self._known.events.items() if n <= each.number}
            for each in pictures[done : done + 2]
        ]
        if found not in ways:
            raise Wrong(f"after {done} steps {len(found)} events can be read")


# ── asking from a test ───────────────────────────────────────────────────────────────────────


def ask(
    part: str,
    folder: Path,
    seed: int,
    acts: Sequence[str],
    *,
    disk: Path | None = None,
    lane: int = 0,
    **more: object,
) -> Counter[str]:
    """Have it done in a process of its own; what is wrong fails the test, with what reproduces it.

    On this disk, else on one in memory, if there is one: a kill does not care, and neither does an
    injected error.
    """
    with tempfile.TemporaryDirectory(
        prefix="plait-", dir=MEMORY if os.access(MEMORY, os.W_OK) else folder
    ) as quick:
        where = {"folder": str(folder), "quick": quick, "disk": str(disk or quick)}
        request = {"part": part, "seed": f"{seed}/{lane}", "acts": acts, **where, **more}
        done = run_module("tests.faults.nursery", json.dumps(request))
    assert done.returncode == 0, f"SEED={seed}: {done.stderr}"
    found = json.loads(done.stdout)
    assert found["wrong"] == [], (
        f"SEED={seed} reproduces this; the stores are in {folder}:\n" + "\n".join(found["wrong"])
    )
    return Counter(found["counts"])


def main() -> None:
    request = json.loads(sys.argv[1])
    gc.freeze()  # a child that collects garbage copies every page
    print(json.dumps(Nursery(request).run()))


if __name__ == "__main__":
    main()
