"""LangGraph with its SQLite checkpointer: a thread that is taken up again after its process was
killed.

- `agent`: a graph of two nodes, `model` and `tools`, that lead to each other, each adding a message
  to the state; a checkpoint after each (`durability="sync"`). Taken up again (`invoke(None)`), it
  loads the last checkpoint, with every message in it, and goes on at the next node: nothing that
  happened before is gone through again, since a graph has no program between its nodes to bring
  back.
- `program`: its functional API, an entrypoint that calls so many tasks. Taken up again, the
  function is called again and each task is answered from what is on record: the counterpart of a
  program.
"""

from __future__ import annotations

import operator
import shutil
import sqlite3
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from worker import Edge, Resumer, clocked, crash, serve

EDGE = Edge()


class State(TypedDict):
    messages: Annotated[list, operator.add]
    steps: int


def model(state: State) -> dict[str, Any]:
    if len(state["messages"]) < state["steps"]:
        return {
            "messages": [
                {
                    "speaker": "model",
                    "calls": [{"tool": "echo", "arguments": {"text": "to be or not to be"}}],
                }
            ]
        }
    EDGE.reach()
    return {"messages": [{"speaker": "model", "text": "that is the question"}]}


def tools(state: State) -> dict[str, Any]:
    return {"messages": [{"speaker": "tool", "text": "to be or not to be"}]}


@task
def echo(text: str) -> str:
    return text


@task
def last(text: str) -> str:
    EDGE.reach()
    return text


def graph(saver: SqliteSaver) -> Any:
    made = StateGraph(State)
    made.add_node("model", model)
    made.add_node("tools", tools)
    made.add_edge(START, "model")
    made.add_conditional_edges(
        "model", lambda state: "tools" if "calls" in state["messages"][-1] else "__end__"
    )
    made.add_edge("tools", "model")
    return made.compile(checkpointer=saver)


def program(saver: SqliteSaver) -> Any:
    @entrypoint(checkpointer=saver)
    def work(asked: dict[str, int]) -> str:
        for _ in range(asked["steps"]):
            echo("to be or not to be").result()
        return last("that is the question").result()

    return work


MADE = {"agent": graph, "program": program}
CONFIG = {"configurable": {"thread_id": "bench"}, "recursion_limit": 100_000}


class LangGraph(Resumer):
    settings = (
        "WAL as it comes, a checkpoint after each node; a graph loads its last checkpoint, an"
        " entrypoint is called again"
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir(parents=True)
        self.made = 0

    def version(self) -> str:
        names = ("langgraph", "langgraph-checkpoint-sqlite")
        return (
            ", ".join(f"{name} {version(name)}" for name in names)
            + f" (SQLite {sqlite3.sqlite_version})"
        )

    def settle(self) -> None:
        """Each time a file of its own."""

    def record(self, shape: str, effects: int, times: int) -> None:
        if shape not in MADE:
            raise NotImplementedError
        if not (self.folder / f"{shape}.db").exists():
            crash("crash", shape, str(effects))

    def resume(self, shape: str) -> dict[str, float]:
        saver, path = self._copied(shape)
        took = EDGE.clock(partial(MADE[shape](saver).invoke, None, CONFIG, durability="sync"))
        saver.conn.close()
        path.unlink()
        return took

    def read(self, shape: str) -> dict[str, float]:
        saver, path = self._copied(shape)
        took = clocked(lambda: saver.get_tuple(CONFIG))
        assert took.pop("value") is not None
        saver.conn.close()
        path.unlink()
        return took

    def _copied(self, shape: str) -> tuple[SqliteSaver, Path]:
        """With the write-ahead log that the killed process left in it."""
        self.made += 1
        path = self.folder / f"copy {self.made}.db"
        source = sqlite3.connect(self.folder / f"{shape}.db")
        source.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        source.close()
        shutil.copyfile(self.folder / f"{shape}.db", path)
        saver = SqliteSaver(sqlite3.connect(path, check_same_thread=False))
        saver.setup()
        return saver, path


def record_and_die(folder: Path, shape: str, effects: int) -> None:
    EDGE.deadly = True
    connection = sqlite3.connect(folder / f"{shape}.db", check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    # while the record is made nobody looks at the disk
    connection.execute("PRAGMA synchronous = OFF")
    asked: dict[str, Any] = {"steps": effects}
    MADE[shape](saver).invoke(
        asked | ({"messages": []} if shape == "agent" else {}), CONFIG, durability="sync"
    )


if __name__ == "__main__":
    if sys.argv[3:4] == ["crash"]:
        record_and_die(Path(sys.argv[1]), sys.argv[4], int(sys.argv[5]))
    else:
        serve(LangGraph)
