"""Workers in processes of their own that are killed, stopped and drained; and a judgement of the
sessions afterwards, by their logs and by the effects outside of the record.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from plait import Session
from plait.cluster import Cluster
from plait.cluster.cluster import Task
from plait.cluster.workers import live_workers
from plait.errors import AlreadyAnswered, RunHeld, UnknownAsk
from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId
from plait.journal.stops import Parked
from plait.runs.resume import resume
from plait.session import verify
from plait.session.ask_rows import InboxRows
from plait.session.work_rows import GIVEN_UP
from plait.store import Store
from plait.testing.writing import wait_until_settled
from tests.cluster.flows import Branches, Count, Edits, Forks, Pays, Sleeps, Slow, Wire
from tests.support import ForkedProgram, child_environment, import_in_server, wait_until

FLOWS = "tests.cluster.flows"
PATIENCE_S = 90.0
_ACTOR = "human:ann"
_EFFECTS = ("note_line", "pay_once")


class Herd:
    """So many workers. One that was ended has a successor with a name of its own."""

    def __init__(
        self,
        address: str,
        folder: Path,
        count: int,
        *,
        modules: Sequence[str] = (FLOWS,),
        slots: int = 2,
        prefix: str = "w",
        program: str = "plait",
        first_path: Path | None = None,
        **environment: str,
    ) -> None:
        """`first_path` is a folder that they import modules from before all others."""
        import_in_server("plait.store.postgres.store", "tests.faults.herd_code")
        self._address, self._folder, self._modules = address, folder, modules
        self._slots, self._prefix, self._program = slots, prefix, program
        self._environment = child_environment(**environment)
        if first_path is not None:
            path = [str(first_path), self._environment["PYTHONPATH"]]
            self._environment["PYTHONPATH"] = os.pathsep.join(path)
        self._born = 0
        self.names: dict[int, str] = {}  # by process
        self.processes: list[ForkedProgram] = []
        for _ in range(count):
            self.add()

    def add(self) -> ForkedProgram:
        self._born += 1
        name = f"{self._prefix}{self._born}"
        command = [sys.executable, "-m", self._program, "worker", *self._modules]
        command += ["--store", self._address, "--slots", str(self._slots), "--name", name]
        with (self._folder / "workers.txt").open("a") as said:
            process = ForkedProgram(
                command,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=self._environment,
                cwd=self._folder,
            )
        self.names[process.pid] = name
        self.processes.append(process)
        return process

    def replace(self, process: ForkedProgram) -> None:
        """Start another worker instead of one that has ended."""
        self.processes.remove(process)
        self.add()

    def kill(self, process: ForkedProgram) -> None:
        process.kill()
        process.wait()
        self.replace(process)

    def drain(self, process: ForkedProgram) -> int:
        """Have a worker drained, and return its exit code."""
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE_S)
        self.replace(process)
        return code

    @property
    def said(self) -> str:
        return (self._folder / "workers.txt").read_text()

    def __enter__(self) -> Herd:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


class Answerer:
    """A thread that approves, and looks up whether an effect happened; and takes runs up that were
    given up, as a person does.
    """

    def __init__(self, tasks: Sequence[Task], out: Path) -> None:
        self._tasks, self._out = tasks, out
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._answer_all)
        self._finished = set[str]()
        self.answers = self.given_up = 0
        self.error: BaseException | None = None

    def _answer_all(self) -> None:
        try:
            while not self._over.wait(0.02):
                for task in [each for each in self._tasks if each.run not in self._finished]:
                    self._answer(task)
        except BaseException as error:
            self.error = error

    def _answer(self, task: Task) -> None:
        session = task.session
        for ask in session.inbox.waiting:
            try:
                if ask.kind == "approval":
                    session.inbox.approve(ask, actor=_ACTOR)
                elif ask.kind == "unknown":
                    happened = str(ask.request) in self._out.read_text()
                    session.inbox.resolve(
                        ask,
                        "happened" if happened else "did_not_happen",
                        "looked up" if happened else None,
                        actor=_ACTOR,
                    )
                else:
                    continue
                self.answers += 1
            except (AlreadyAnswered, UnknownAsk):
                pass
        if session.status == "finished":
            self._finished.add(task.run)
        elif session.status == "failed":
            events = task.session.events  # the status may be newer than the value
            failures = [event.body for event in events if isinstance(event.body, k.RunFailed)]
            kinds = [event.kind for event in events[-8:]]
            assert failures and failures[-1].failure.kind == GIVEN_UP, (failures[-1:], kinds)
            self.given_up += 1
            with suppress(Parked, RunHeld):  # workers take it up again when it is answered
                resume(session)

    def __enter__(self) -> Answerer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


def submit_all(store: Store, out: Path, count: int) -> list[Task]:
    """Submit runs of all kinds."""
    cluster, path = Cluster(store), str(out)
    out.touch()
    repo = out.parent / "repo"
    repo.mkdir(exist_ok=True)
    for name in Edits.TEXTS:
        (repo / name).touch()
    how: list[tuple[Any, dict[str, Any]]] = [
        (Count(), {"path": path}),
        (Slow(), {"path": path, "seconds": 0.02}),
        (Branches(), {"path": path}),
        (Wire(), {}),
        (Pays(), {"path": path}),
        (Sleeps(), {"seconds": 0.1}),
        (Edits(), {"folder": str(repo)}),
        (Forks(), {"path": path}),
    ]
    tasks = list[Task]()
    for number in range(count):
        workflow, arguments = how[number % len(how)]
        session = Session("Go.", project=f"p{number % 3}", store=store)
        tasks.append(cluster.submit(workflow, session, **arguments))
    return tasks


def all_ended(tasks: Sequence[Task]) -> bool:
    return all(task.is_over() for task in tasks)


def busy_workers(herd: Herd, store: Store) -> list[ForkedProgram]:
    """Return the workers that have a run, as their notices tell."""
    busy = {notice.name for notice in live_workers(store) if notice.runs}
    return [process for process in herd.processes if herd.names[process.pid] in busy]


def disturb(
    herd: Herd,
    store: Store,
    tasks: Sequence[Task],
    random: Random,
    *,
    kills: int,
    may_rest_s: float | None = None,
) -> int:
    """Kill workers that have runs, at random moments, until so many were killed or all runs have
    ended; return how many were. `may_rest_s`: it is left alone if it has no run for so long. None:
    that is a fault.
    """
    done, last = 0, time.monotonic()
    while done < kills and not all_ended(tasks[-50:]):
        rested_s = time.monotonic() - last
        if may_rest_s is not None and rested_s > may_rest_s:
            break
        assert rested_s < PATIENCE_S, "no worker has a run, and some have not ended"
        if busy := busy_workers(herd, store):
            time.sleep(random.choice([0.0, 0.1, 0.5, 1.0]) * random.random())
            herd.kill(random.choice(busy))
            done, last = done + 1, time.monotonic()
        else:
            time.sleep(0.005)
    return done


def all_finished(tasks: Sequence[Task]) -> bool:
    """True if all have come to their end. One that was given up is taken up by a person."""
    return all(task.is_over() and task.status == "finished" for task in tasks)


def wait_for_all(herd: Herd, tasks: Sequence[Task]) -> None:
    """Wait for the end of all runs."""

    def evidence() -> str:
        left = [task for task in tasks if not all_finished([task])]
        told = [(task.session.short, task.why, kinds_of(task)[-6:]) for task in left[:5]]
        return f"{len(left)} are left: {told}. {herd.said[-2000:]}"

    wait_until(lambda: all_finished(tasks), PATIENCE_S, evidence)


def kinds_of(task: Task) -> list[str]:
    return [event.kind for event in task.session.events]


# ── the judgement ────────────────────────────────────────────────────────────────────────────


def check_logs(store: Store, tasks: Sequence[Task], out: Path) -> Counter[str]:
    """Check that no event is lost or doubled, that effects are those on record, and that never two
    processes had a run.
    """
    found = Counter[str]()
    assert list(verify(store, state=True)) == []
    wait_until_settled(store)  # a transaction of another test may hold the feed back
    lines = [line.split() for line in out.read_text().splitlines()]
    done = Counter(key for _, key, _ in lines)
    on_record = set[str]()
    events_of = defaultdict[str | None, list[Event]](list)  # of a run, in all its logs
    for _, event in store.feed():
        events_of[event.header.run].append(event)
    for task in tasks:
        events = events_of[task.run]
        holders = holders_in(store, task.session.id, task.run)
        _check_ends(events, task)
        found["trees"] += _check_tree(task)
        effects = _check_requests(events)
        on_record |= effects.keys()
        for key, effect in effects.items():
            assert done[key] == 1 or effect == "idempotent", (task.session.short, key, effect)
            assert done[key] >= 1, (task.session.short, key)
        check_holders([line for line in lines if line[1] in effects], holders)
        found["claims"] += len(holders)
        found["runs"] += 1
        found["events"] += len(events)
    assert done.keys() <= on_record, "an effect is not on record"
    found["effects"] = len(done)
    found["repeated"] = sum(count - 1 for count in done.values())
    assert not store.rows(InboxRows.name, "work", limit=10)
    assert not store.rows(InboxRows.name, "queue", limit=10)
    return found


def holders_in(store: Store, log: LogId, run: str) -> list[str]:
    """Return the processes that had a run, in their order, by its own log. Each has the next
    epoch.
    """
    found = list[str]()
    epochs = list[int]()
    for event in store.read(log):
        body = event.body
        if isinstance(body, k.RunResumed) and event.header.run == run:
            found.append(body.holder.split("/")[1])
            epochs.append(body.epoch)
    first = epochs[0] if epochs else 1  # runs before it in the same session had their own
    assert epochs == list(range(first, first + len(epochs))), epochs
    return found


def _check_ends(events: Sequence[Event], task: Task) -> None:
    ends = [event.kind for event in events if event.kind in ("RunFinished", "RunCancelled")]
    assert ends == ["RunFinished"], (task.session.short, ends)
    calls = Counter(event.kind for event in events)
    assert calls["CallStarted"] == calls["CallFinished"], (task.session.short, calls)
    assert calls["BranchStarted"] == calls["BranchFinished"], (task.session.short, calls)


def _check_tree(task: Task) -> int:
    """Check the files of a session that has some: 1 if it has."""
    session = task.session
    if session.text != "edited":
        return 0
    texts = {path: session.files.read(path).decode() for path in Edits.TEXTS}
    assert texts == Edits.TEXTS, (session.short, texts)
    return 1


def _check_requests(events: Sequence[Event]) -> dict[str, str]:
    """Return the keys of the effects on record, with their classes. Each call is asked for once,
    and settled once.
    """
    keys = dict[str, str]()
    settled = Counter[tuple[str, str | None]]()
    asked = Counter[tuple[str, str | None]]()
    for event in events:
        body, call = event.body, (event.log, event.header.call)
        if isinstance(body, k.ToolRequested) and body.attempt == 1:
            asked[call] += 1
            if body.tool in _EFFECTS:
                keys[event.id] = body.effect
        elif isinstance(body, k.ToolReturned):
            settled[call] += 1
    assert max(asked.values(), default=1) == 1, asked
    assert max(settled.values(), default=1) == 1, settled
    return keys


def check_holders(lines: Sequence[Sequence[str]], holders: Sequence[str]) -> None:
    """Check that the first effect under each key was made by the processes in the order in which
    they took the run.
    """
    first = dict[str, str]()
    for _, key, process in lines:
        first.setdefault(key, process)
    place = 0
    for process in first.values():
        assert process in holders[place:], (process, holders, list(first.values()))
        place = holders.index(process, place)
