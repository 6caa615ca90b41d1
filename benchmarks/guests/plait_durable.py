"""Plait: `resume` and `replay` of a run on its embedded store. Nothing is configured.

The same `forward` is called again and comes by every step it took before: each prompt is built
again, step by step, and compared with the record by its digest, so that a program that changed is
found out. The process that makes the record is killed while the next model (or tool) is at work:
that ask is on record as lost, and asked again.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

import apsw
from worker import Edge, Resumer, clocked, crash, serve

import plait
from plait import Agent, Parallel, Session, Workflow, replay, resume, tool
from plait.event.kinds import Text
from plait.model.base import OnDelta, Reply, Request, ToolCall
from plait.model.prices import FREE

BRANCHES = 10
EDGE = Edge()


@tool(effect="pure")
def echo(text: str) -> str:
    """Nothing but what it was given."""
    return text


@tool(effect="pure")
def last(text: str) -> str:
    """The same, beyond the record."""
    EDGE.reach()
    return text


CALL = Reply((), (ToolCall("echo", text="to be or not to be"),), "calls", model="bench", price=FREE)
END = Reply((Text("that is the question"),), model="bench", price=FREE)


class Ready:
    """A model that costs nothing: so many calls of a tool, then an answer."""

    name = "bench"

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        if sum(not failed for failed in request.outcomes) < self.calls:
            return CALL
        EDGE.reach()
        return END


class Program(Workflow):
    def __init__(self, calls: int) -> None:
        self._calls = calls

    def forward(self, session: Session) -> Session:
        for _ in range(self._calls):
            session = session.use(echo, text="to be or not to be")
        return session.use(last, text="that is the question")


def agent(calls: int, name: str = "bench") -> Agent:
    return Agent("Say it.", model=Ready(calls), tools=[echo], steps_max=calls + 1, name=name)


def made(shape: str, effects: int) -> Workflow:
    if shape == "program":
        return Program(effects)
    if shape == "agent":
        return agent(effects // 2)
    each = effects // 2 // BRANCHES
    return Parallel({f"a{i}": agent(each, f"a{i}") for i in range(BRANCHES)})


class Plait(Resumer):
    settings = (
        "defaults: WAL, synchronous FULL; the whole program is gone through again and every step"
        " compared"
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.shapes: dict[str, int] = {}
        self.ended: dict[str, Session] = {}
        self.made = 0

    def version(self) -> str:
        return f"{plait.__version__} (SQLite {apsw.sqlite_lib_version()})"

    def settle(self) -> None:
        """Each time a store of its own."""

    def record(self, shape: str, effects: int, times: int) -> None:
        if shape not in self.shapes:
            crash("crash", shape, str(effects))
            self.shapes[shape] = effects

    def resume(self, shape: str) -> dict[str, float]:
        session = self._copied(shape)
        took = EDGE.clock(partial(resume, session, made(shape, self.shapes[shape])))
        self._drop(session)
        return took

    def replay(self, shape: str) -> dict[str, float]:
        if shape not in self.ended:
            self.ended[shape] = resume(self._copied(shape), made(shape, self.shapes[shape]))
        ended, program = self.ended[shape], made(shape, self.shapes[shape])
        took = clocked(partial(replay, ended, program))
        assert took.pop("value").head == ended.head
        return took

    def read(self, shape: str) -> dict[str, float]:
        """Every event of it: the body as bytes, the header decoded, since it says whose the event
        is.
        """
        session = self._copied(shape)
        store = plait.open_store(session.store)
        took = clocked(lambda: [(event.header, event.content) for _, event in store.feed()])
        assert len(took.pop("value")) > self.shapes[shape]
        self._drop(session)
        return took

    def _copied(self, shape: str) -> Session:
        self.made += 1
        folder = self.folder / f"copy {self.made}"
        shutil.copytree(self.folder / shape, folder)
        root = [each for each in Session.list(store=str(folder)) if each.lineage.parent is None]
        return root[0]

    def _drop(self, session: Session) -> None:
        plait.open_store(session.store).close()
        shutil.rmtree(session.store.partition(":")[2])


def record_and_die(folder: Path, shape: str, effects: int) -> None:
    global EDGE
    EDGE = Edge(BRANCHES if shape == "branches" else 1)
    EDGE.deadly = True
    made(shape, effects)(Session("go", store=str(folder / shape)))


if __name__ == "__main__":
    if sys.argv[3:4] == ["crash"]:
        record_and_die(Path(sys.argv[1]), sys.argv[4], int(sys.argv[5]))
    else:
        serve(Plait)
