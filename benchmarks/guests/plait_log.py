"""Plait, through `plait.Session` alone, on its embedded store.

One append is `session.say(text)`: sealed, hash-linked, indexed and fsynced when it returns. Nothing
is configured: these are the defaults, and there is no setting that would make it less durable.
"""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import apsw
from worker import Guest, serve

import plait
from plait import Session


class Plait(Guest):
    settings = "defaults: WAL, synchronous FULL, one commit per message; survives power loss"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.address = str(folder / "store")
        plait.open_store(self.address)
        self.sessions: dict[str, Session] = {}

    def version(self) -> str:
        return f"{plait.__version__} (SQLite {apsw.sqlite_lib_version()})"

    def begin(self) -> str:
        return self._keep(Session(store=self.address))

    def append(self, session: str, text: str) -> None:
        self.sessions[session] = self.sessions[session].say(text)

    def fork(self, session: str, place: int) -> None:
        self.sessions[session].fork(at=place)

    def state(self, session: str) -> int:
        plait.open_store(self.address).close()
        plait.open_store(self.address)
        return len(Session.open(session, store=self.address).messages)

    def crowd(self, count: int) -> None:
        for i in range(count):
            Session(title=f"session {i}", store=self.address)

    def page(self) -> int:
        return len(Session.list(limit=100, store=self.address))

    def hold(self, texts: list[str]) -> str:
        session = self._keep(Session(store=f"memory:{len(self.sessions)}"))
        self.remember(session, texts)
        return session

    def remember(self, session: str, texts: list[str]) -> None:
        self.fill(session, texts)

    def branches(self, texts: list[str], count: int, text: str) -> int:
        base = self.begin()
        self.fill(base, texts)
        parent = self.sessions[base]
        assert parent.status == "open"
        gc.collect()
        tracemalloc.start()
        kept = [parent.fork().say(text) for _ in range(count)]
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len({branch.head for branch in kept}) == count
        return held

    def _keep(self, session: Session) -> str:
        self.sessions[session.id] = session
        return session.id


if __name__ == "__main__":
    serve(Plait)
