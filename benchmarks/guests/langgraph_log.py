"""LangGraph with its SQLite checkpointer.

One append is `graph.update_state(config, {"messages": [one]}, as_node=…)` on a graph of one node:
the call by which a program adds one message to a thread, durable when it returns. `invoke` does the
same and more (a checkpoint for the input, another for the step, the writes between: five commits),
so it would not be the fair counterpart.

- `messages`: what its documentation shows, LangChain messages in a channel reduced by
  `add_messages`.
- `plain`: dictionaries and `operator.add`. The cheapest default channel: nothing has an id to look
  up or a class to restore. (They say "speaker" and not "role": a delta channel makes messages with
  ids of the latter, which takes several times the CPU.)
- `delta`: the same dictionaries in a `DeltaChannel` (beta), which stores writes and a snapshot
  every 100 of them, its default. (At 1,000 messages a snapshot every 10 made an append a third
  cheaper and the file eight times as large; every 300, the reverse.)

A fork is its own: a copy of an earlier checkpoint as the newest of the same thread
(`as_node="__copy__"`). It has no list of threads: a page is taken from the list of checkpoints
until a hundred threads were seen.
"""

from __future__ import annotations

import operator
import sqlite3
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from worker import Guest, serve


def extend(messages: list, writes: list) -> list:
    return [*messages, *(message for write in writes for message in write)]


class Messages(TypedDict):
    messages: Annotated[list, add_messages]


class Plain(TypedDict):
    messages: Annotated[list, operator.add]


class Delta(TypedDict):
    messages: Annotated[list, DeltaChannel(extend)]


CHANNELS: dict[str, type] = {"messages": Messages, "plain": Plain, "delta": Delta}


class LangGraph(Guest):
    settings = (
        "WAL as it comes, synchronous FULL (SQLite's default), two commits per message; survives"
        " power loss"
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kind = sys.argv[2]
        folder.mkdir(parents=True)
        self.saver, self.graph = self._open()
        self.held = self._graph(InMemorySaver())
        self.places: dict[str, list[dict[str, Any]]] = {}

    def version(self) -> str:
        names = ("langgraph", "langgraph-checkpoint-sqlite")
        return (
            ", ".join(f"{name} {version(name)}" for name in names)
            + f" (SQLite {sqlite3.sqlite_version})"
        )

    def begin(self) -> str:
        name = f"thread {len(self.places)}"
        self.places[name] = []
        return name

    def append(self, session: str, text: str) -> None:
        self.places[session].append(self._say(self.graph, session, text))

    def fill(self, session: str, texts: list[str]) -> None:
        """Make the same appends without waiting for the disk, since that is not measured here."""
        self.saver.setup()
        self.saver.conn.execute("PRAGMA synchronous = OFF")
        super().fill(session, texts)
        self.saver.conn.execute("PRAGMA synchronous = FULL")

    def fork(self, session: str, place: int) -> None:
        self.graph.update_state(self.places[session][place - 1], None, as_node="__copy__")

    def state(self, session: str) -> int:
        saver, graph = self._open()
        count = len(graph.get_state(_thread(session)).values["messages"])
        saver.conn.close()
        return count

    def crowd(self, count: int) -> None:
        for _ in range(count):
            self.fill(self.begin(), ["hello"])

    def page(self) -> int:
        seen: set[str] = set()
        for found in self.saver.list(None):
            seen.add(found.config["configurable"]["thread_id"])
            if len(seen) == 100:
                break
        return len(seen)

    def hold(self, texts: list[str]) -> str:
        session = f"held {len(texts)}"
        self.remember(session, texts)
        return session

    def remember(self, session: str, texts: list[str]) -> None:
        for text in texts:
            self._say(self.held, session, text)

    def _say(self, graph: Any, session: str, text: str) -> dict[str, Any]:
        said = (
            HumanMessage(text) if self.kind == "messages" else {"speaker": "user", "content": text}
        )
        return graph.update_state(_thread(session), {"messages": [said]}, as_node="say")

    def _open(self) -> tuple[SqliteSaver, Any]:
        saver = SqliteSaver(
            sqlite3.connect(self.folder / "checkpoints.db", check_same_thread=False)
        )
        return saver, self._graph(saver)

    def _graph(self, saver: BaseCheckpointSaver) -> Any:
        builder = StateGraph(CHANNELS[self.kind])
        builder.add_node("say", lambda state: {})
        builder.add_edge(START, "say")
        builder.add_edge("say", END)
        return builder.compile(checkpointer=saver)


def _thread(session: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": session}}


if __name__ == "__main__":
    serve(LangGraph)
