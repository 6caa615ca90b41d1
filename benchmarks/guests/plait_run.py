"""Plait's runtime: agents with a model that answers at once, in memory and on its embedded store.

A step is a model call and a call of a pure tool, and three transactions: the question, the reply
with what it asks for, the result. All of it is sealed and hash-linked, and on disk before anything
follows from it. Nothing is configured.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import apsw
from worker import SETTLE_SIZE, Runner, Stamps, at_once, serve, share

import plait
from plait import Agent, Parallel, Session, Workflow, tool
from plait.event.kinds import Text
from plait.model.base import OnDelta, Reply, Request, ToolCall
from plait.model.prices import FREE

KEPT = 200  # messages of a session whose growth is not asked about: then another one is begun


@tool(effect="pure")
def echo(text: str) -> str:
    """Nothing but what it was given."""
    return text


def calling(name: str) -> Reply:
    return Reply(
        (), (ToolCall(name, text="to be or not to be"),), "calls", model="bench", price=FREE
    )


CALL, MISCALL, END = (
    calling("echo"),
    calling("missing"),
    Reply((Text("that is the question"),), model="bench", price=FREE),
)


class Ready:
    """A model that costs nothing: so many calls of a tool, then an answer."""

    name = "bench"

    def __init__(self, calls: int, call: Reply = CALL) -> None:
        self.calls, self.call, self.stamps = calls, call, Stamps()

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        self.stamps.mark()
        return self.call if len(request.outcomes) < self.calls else END


def agent(model: Ready, name: str = "bench") -> Agent:
    return Agent("Say it.", model=model, tools=[echo], steps_max=model.calls + 1, name=name)


class Repeat(Workflow):
    def __init__(self, times: int) -> None:
        self.agent, self._times = agent(Ready(0)), times

    def forward(self, session: Session) -> Session:
        for _ in range(self._times):
            session = self.agent(session)
        return session


class Plait(Runner):
    settings = "defaults: WAL, synchronous FULL, two commits per step; survives power loss"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.address = str(folder / "store")
        self.store: Any = plait.open_store(self.address)
        self.used = agent(Ready(0))
        self.long: dict[int, Session] = {}
        self.made = 0

    def version(self) -> str:
        return f"{plait.__version__} (SQLite {apsw.sqlite_lib_version()})"

    def settle(self) -> None:
        self.store.put_blob(random.Random(0).randbytes(SETTLE_SIZE))

    def turn(self, calls: int, refused: bool = False) -> dict[str, float]:
        return self._turn(self._fresh(), calls, MISCALL if refused else CALL).mean()

    def nested(self, calls: int) -> dict[str, float]:
        return share(calls, partial(Repeat(calls), self._fresh()))

    def outermost(self, calls: int) -> dict[str, float]:
        return share(calls, partial(_again, self.used, self._fresh(), calls))

    def growth(self, calls: int) -> dict[str, dict[str, float]]:
        stamps = self._turn(self._fresh(), calls)
        return {"early": stamps.median(5, 25), "late": stamps.median(calls - 20, calls)}

    def answer(self, messages: int, fresh: bool) -> dict[str, float]:
        session = self.long.get(messages)
        if session is None or session.seq > messages + KEPT:
            session = self._fresh()
            for i in range(messages - 1):
                session = session.say(f"message {i}")
            session = self.used(session)
        if fresh:  # an agent of another name: it has never asked here
            self.made += 1
            asks = agent(Ready(0), f"new-{self.made}")
            return share(1, lambda: asks(session.fork()))
        session = session.say("and now?")

        def ask() -> None:
            self.long[messages] = self.used(session)

        return share(1, ask)

    def steps(self, calls: int) -> dict[str, float]:
        return self._turn(Session("go", store=self.address), calls).mean()

    def appends(self, calls: int) -> float:
        """Counted where the store is asked, for a longer turn less a shorter one."""
        asked, append = 0, self.store.append

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal asked
            asked += 1
            return append(*args, **kwargs)

        found: list[int] = []
        self.store.append = counted
        try:
            for length in (10, 10 + calls):
                asked = 0
                self._turn(Session("go", store=self.address), length)
                found.append(asked)
        finally:
            del self.store.append
        return (found[1] - found[0]) / calls

    def together(self, sessions: int, agents: int, calls: int) -> dict[str, float]:
        """One workflow per session, in a thread; its agents each in a branch, in threads of their
        own.
        """
        crowds = [
            Parallel({f"a{i}": agent(Ready(calls), f"a{i}") for i in range(agents)})
            for _ in range(sessions)
        ]
        works: list[Callable[[], object]] = [
            partial(crowd, Session("go", store=self.address)) for crowd in crowds
        ]
        return share(sessions * agents * calls, lambda: at_once(works))

    def _turn(self, session: Session, calls: int, call: Reply = CALL) -> Stamps:
        model = Ready(calls, call)
        assert agent(model)(session).text == END.parts[0].text  # type: ignore[union-attr]
        return model.stamps

    def _fresh(self) -> Session:
        """A store of its own: one in memory keeps everything, and the next measurement shall not
        pay for the last.
        """
        self.made += 1
        return Session("go", store=plait.open_store(f"memory:{self.made % 50}"))


def _again(used: Agent, session: Session, calls: int) -> Session:
    for _ in range(calls):
        session = used(session)
    return session


if __name__ == "__main__":
    serve(Plait)
