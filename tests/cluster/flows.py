"""Workflows that the workers of the tests serve."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from plait import Agent, Parallel, ScriptedModel, Session, ToolCall, Workflow, tool
from plait.event.kinds import RunStarted
from plait.ids import LogId
from plait.model.base import Fault
from plait.policy import Ask, Policy
from plait.sandbox import Sandbox
from plait.store import Store
from plait.tools import shell, write_file


@tool(effect="idempotent")
def note_line(path: str, text: str, idempotency_key: str) -> str:
    """Append a line, with its key and this process, to a file outside of the record."""
    with Path(path).open("a") as file:
        file.write(f"{text} {idempotency_key} {os.getpid()}\n")
    return text


@tool
def pay_once(path: str, text: str, idempotency_key: str) -> str:
    """Do the same, at most once."""
    with Path(path).open("a") as file:
        file.write(f"{text} {idempotency_key} {os.getpid()}\n")
    return text


def lines_in(path: Path) -> list[str]:
    """Return the lines that were noted."""
    return path.read_text().splitlines() if path.exists() else []


def effects_in(path: Path) -> set[str]:
    """Return the effects that were noted, each once: one that a killed process had begun may be
    made again by another, under the same key.
    """
    return {line.rpartition(" ")[0] for line in lines_in(path)}


def started_runs(store: Store, log: LogId) -> list[tuple[str, tuple[LogId | None, int | None]]]:
    """Return the submitted runs that were started in a session, each with its job and ordinal."""
    starts = [(event.id, event.body) for event in store.read(log)]
    return [
        (str(id), (body.wishes.job, body.wishes.ordinal))
        for id, body in starts
        if isinstance(body, RunStarted) and body.wishes is not None
    ]


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait for a condition that another thread or process makes true."""
    while not is_true():
        time.sleep(0.02)


@tool(effect="pure")
def rest_for(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "rested"


class Count(Workflow):
    """Notes three lines, and says so."""

    def forward(self, session: Session, path: str = "", steps: int = 3) -> Session:
        for step in range(steps):
            if path:
                session = session.use(note_line, path=path, text=f"{session.short}/{step}")
        return session.say("counted", role="assistant")


class Slow(Workflow):
    """Takes a while between two lines."""

    def forward(self, session: Session, path: str, seconds: float = 0.2, steps: int = 5) -> Session:
        for step in range(steps):
            session = session.use(note_line, path=path, text=f"{session.short}/{step}")
            session = session.use(rest_for, seconds=seconds)
        return session.say("rested", role="assistant")


class Pays(Workflow):
    """Pays three times, and rests in between."""

    def forward(self, session: Session, path: str) -> Session:
        for step in range(3):
            session = session.use(pay_once, path=path, text=f"{session.short}/{step}")
            session = session.use(rest_for, seconds=0.01)
        return session.say("paid", role="assistant")


class Wire(Workflow):
    """Wires money with consent."""

    policy = Policy(Ask("wire"))

    def __init__(self) -> None:
        script = ScriptedModel([ToolCall("wire", amount=5), "wired"])
        self.clerk = Agent("Wire.", model=script, tools=[wire], name="clerk")

    def forward(self, session: Session) -> Session:
        return self.clerk(session)


@tool(effect="idempotent", version="1")
def wire(amount: int) -> str:
    """Send money."""
    return f"{amount} sent"


class Fails(Workflow):
    """Fails until a file is there."""

    def forward(self, session: Session, path: str) -> Session:
        if not Path(path).exists():
            raise RuntimeError("not yet")
        return session.say("at last", role="assistant")


class FailsOdd(Workflow):
    """Fails in sessions whose title ends with an odd digit; notes a line in the others."""

    def forward(self, session: Session, path: str) -> Session:
        if int(session.title[-1]) % 2:
            raise RuntimeError("odd")
        return session.use(note_line, path=path, text=session.title)


@tool(effect="idempotent")
def hold_command(path: str, seconds: str, sandbox: Sandbox) -> str:
    """Run a command that takes long, unless it was begun before."""
    if not Path(path).exists():
        Path(path).touch()
        sandbox.exec(["sleep", seconds])
    return "held"


class Holds(Workflow):
    """Runs a command that takes long, the first time."""

    def forward(self, session: Session, path: str, seconds: str) -> Session:
        session = session.use(hold_command, path=path, seconds=seconds)
        return session.say("held", role="assistant")


class Deadly(Workflow):
    """Ends every process that executes it."""

    def forward(self, session: Session) -> Session:
        os.kill(os.getpid(), signal.SIGKILL)
        return session


class Sleeps(Workflow):
    """Sleeps, without a process."""

    def forward(self, session: Session, seconds: float) -> Session:
        return session.sleep(seconds).say("awake", role="assistant")


class Branches(Workflow):
    """Counts in two branches."""

    def __init__(self) -> None:
        self.both = Parallel(left=Line("left"), right=Line("right"))

    def forward(self, session: Session, path: str) -> Session:
        session = session.fact("path", path)
        return self.both(session).say("merged", role="assistant")


class Line(Workflow):
    def __init__(self, name: str) -> None:
        self.name = name

    def forward(self, session: Session) -> Session:
        path = str(session.facts["path"])
        return session.use(note_line, path=path, text=f"{session.short}/{self.name}")


class Asks(Workflow):
    """Asks a model whose limits are shared, twice."""

    def __init__(self) -> None:
        self.first = Agent("First.", model=ScriptedModel(["one"], name="limited"), name="first")
        self.second = Agent("Then.", model=ScriptedModel(["two"], name="limited"), name="second")

    def forward(self, session: Session) -> Session:
        return self.second(self.first(session))


class Refused(Workflow):
    """Asks a model whose provider wants to be left alone at first."""

    def __init__(self) -> None:
        slow_down = Fault("RateLimited", "slow down", retryable=True, retry_after_s=1.5)
        model = ScriptedModel([slow_down, "served"], name="limited")
        self.asks = Agent("Ask.", model=model, name="asks")

    def forward(self, session: Session) -> Session:
        return self.asks(session)


@tool(effect="workspace")
def write_line(path: str, text: str, sandbox: Sandbox) -> str:
    """Append a line to a file of the session: a second time on the same files would be seen."""
    sandbox.files.write(path, sandbox.files.read(path) + f"{text}\n".encode())
    return text


class Edits(Workflow):
    """Changes files, in itself and in a fork, and brings both together."""

    TEXTS: ClassVar[dict[str, str]] = {"log": "one\ntwo\nthree\n", "side": "side\nagain\n"}

    def forward(self, session: Session, folder: str) -> Session:
        session = session.to("local", folder).use(write_line, path="log", text="one")
        side = session.fork("side").use(write_line, path="side", text="side")
        session = session.use(write_line, path="log", text="two")
        session = session.merge(side.use(write_line, path="side", text="again"))
        return session.use(write_line, path="log", text="three").say("edited", role="assistant")


class Keeps(Workflow):
    """Adds a line to a file of its session, and notes it outside."""

    def forward(self, session: Session, folder: str, path: str) -> Session:
        if not session.files.tree:
            session = session.to("local", folder)
        session = session.use(write_line, path="log", text="line")
        session = session.use(note_line, path=path, text=session.title)
        return session.use(rest_for, seconds=0.1)


class Forks(Workflow):
    """Notes lines in a fork and in itself, in turns, and merges the fork."""

    def forward(self, session: Session, path: str) -> Session:
        side = session.fork("side")
        for step in range(2):
            session = session.use(note_line, path=path, text=f"{session.short}/{step}")
            side = side.use(note_line, path=path, text=f"{session.short}/side{step}")
        return session.merge(side.fact("side", True)).say("merged", role="assistant")


class Keyed(Workflow):
    """Cannot be made without a key."""

    def __init__(self) -> None:
        self.key = os.environ["FLOWS_KEY"]

    def forward(self, session: Session) -> Session:
        return session.say("keyed", role="assistant")


counter = Count()


class Moves(Workflow):
    """Works in a folder in place, after a person has answered."""

    def forward(self, session: Session, folder: str) -> Session:
        session = session.to("local", folder, in_place=True, isolation="host")
        session = session.ask("Go on?")
        return session.use(shell, command="touch here").say("worked", role="assistant")


class Publishes(Workflow):
    """Brings its files to the folder that they came from."""

    def forward(self, session: Session) -> Session:
        return session.files.apply().say("published", role="assistant")


class Writes(Workflow):
    """Writes a file, waits for a person, and writes another one."""

    def forward(self, session: Session) -> Session:
        session = session.use(write_file, path="first.txt", content="written")
        session = session.ask("Go on?")
        return session.use(write_file, path="second.txt", content="written")


class WritesInBranch(Workflow):
    """Writes a file in a branch and one in itself, waits for a person, and writes another one."""

    def forward(self, session: Session) -> Session:
        side = session.fork("side").use(write_file, path="side.txt", content="written")
        session = session.use(write_file, path="first.txt", content="written")
        session = session.ask("Go on?")
        session = session.use(write_file, path="second.txt", content="written")
        return session.fact("side", side.id)
