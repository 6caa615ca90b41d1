"""The programs whose runs are on record in `store.tar.gz`: their steps must stay as they are."""

from __future__ import annotations

import os
import signal
from typing import Any

from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, tool
from plait.policy import Ask, Policy
from plait.sandbox import Sandbox

KILL = "OLD_STORE_KILL"  # the number that `put` dies at
done: list[str] = []  # the effects of this process


@tool(effect="pure")
def look(n: int) -> int:
    """Look something up."""
    return n * 2


@tool(effect="idempotent")
def put(n: int, idempotency_key: str) -> str:
    """Put something somewhere."""
    done.append(f"put {n}")
    if os.environ.get(KILL) == str(n):
        os.kill(os.getpid(), signal.SIGKILL)
    return f"put {n}"


@tool(effect="at_most_once")
def wire(to: str, amount: int) -> str:
    """Send money."""
    done.append(f"wire {amount} to {to}")
    return f"sent {amount}"


@tool(effect="workspace")
def write_line(path: str, text: str, sandbox: Sandbox) -> str:
    """Append a line to a file."""
    return sandbox.exec(["sh", "-c", f"echo {text} >> {path}"]).output.view()


def script(session: Session) -> Any:
    return f"Looked up {len(session.effects)}." if session.effects else ToolCall("look", n=21)


class Branches(Workflow):
    """Forks, merges, and lets an agent use a tool."""

    def __init__(self) -> None:
        self.agent = Agent("Look it up.", model=ScriptedModel(script), tools=[look])

    def forward(self, session: Session) -> Session:
        left, right = session.fork("left"), session.fork("right")
        left = self.agent(left.fact("side", "left"))
        right = right.use(put, n=7).decide("choice", "right")
        session = session.merge(left, right)
        dropped = session.fork("dropped").say("This goes nowhere.")
        return session.fact("dropped", dropped.lineage.label).todo("look again")


class Payment(Workflow):
    """Needs consent for what it does."""

    policy = Policy(Ask("wire", reason="money leaves the house"))

    def forward(self, session: Session) -> Session:
        session = session.use(put, n=1).use(wire, to="Ada", amount=90)
        return session.fact("paid", session.result)


class Killed(Workflow):
    """Is killed while it puts the second thing."""

    def forward(self, session: Session) -> Session:
        for n in (1, 2, 3):
            session = session.use(put, n=n)
        return session.fact("all", 3)


class Files(Workflow):
    """Changes files in two branches."""

    def forward(self, session: Session) -> Session:
        session = session.use(write_line, path="log", text="one")
        side = session.fork("side").use(write_line, path="side", text="two")
        return session.use(write_line, path="log", text="three").merge(side)
