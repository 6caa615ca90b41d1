"""Twelve desks with four agents each, on one store: the program that the crowd test kills."""

from __future__ import annotations

import sys
from pathlib import Path

from plait import Agent, Memory, Session, Workflow, open_store, resume
from plait.event.kinds import Text, Usage
from plait.memory.plain_index import PlainIndex
from plait.model.base import OnDelta, Reply, Request, Returned, ToolCall
from plait.session.value import open_run_of

SESSIONS, AGENTS = 12, 4


class Clerk:
    """Stands for a model: it remembers one statement, then answers."""

    name = "clerk"

    def __init__(self, number: int) -> None:
        self._number = number

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        usage = Usage(input_tokens=100, output_tokens=10)
        if isinstance(request.turns[-1], Returned):
            return Reply((Text(f"Desk {self._number} is done."),), usage=usage)
        text = f"Order {self._number} went to shelf {self._number % 7}."
        call = ToolCall("remember", text=text, scope="project" if self._number % 2 else "user")
        return Reply((), (call,), "calls", usage)


class Desk(Workflow):
    """Four agents, one after another; every other desk has an index of its own."""

    def __init__(self, folder: str, number: int) -> None:
        index = PlainIndex(Path(folder) / "plain.db") if number % 2 else None
        self.memory = Memory(index=index)
        self.agents = [
            Agent(
                f"You are clerk {number}.{each}.",
                name=f"clerk-{number}-{each}",
                model=Clerk(number * AGENTS + each),
                memory=self.memory,
                tools=[*self.memory.tools],
            )
            for each in range(AGENTS)
        ]

    def forward(self, session: Session) -> Session:
        for agent in self.agents:
            session = agent(session)
        return session


def work(folder: str) -> None:
    """Finish every desk: take up those that were interrupted, open those that are missing."""
    store = open_store(Path(folder) / ".plait")
    known = {session.title: session for session in Session.list(store=store)}
    for number in range(SESSIONS):
        session = known.get(f"desk {number}")
        desk = Desk(folder, number)
        if session is None:
            question = f"Where did order {number} go?"
            user, title = f"u-{number % 3}", f"desk {number}"
            desk(Session(question, user=user, project="shop", title=title, store=store))
        elif open_run_of(session) is not None:
            resume(session, desk)
        elif session.seq < 4:
            desk(session)


if __name__ == "__main__":
    work(sys.argv[1])
