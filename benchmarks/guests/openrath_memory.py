"""OpenRath's local memory, which its package brings: a file per item, BM25 over all of a folder.

Every user has a folder of one store, so that a question is asked of that user's items alone. One
item is `MemoryOpWrite`, one question `MemoryOpFind`; no model is configured, as it comes.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rath import memory
from rememberer import K_MAX, Rememberer, line_of
from worker import serve


class OpenRath(Rememberer):
    settings = "local backend as it comes, BM25"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        os.environ["OPENRATH_HOME"] = str(folder)
        self.backend = memory.get("local")
        spec = memory.MemoryStoreSpec(options={"path": str(folder / "memory")})
        self.store = self.backend.open(spec)
        self.store.acquire()
        self.turns: dict[str, str] = {}

    def version(self) -> str:
        return f"openrath {version('openrath')}"

    def take_in(self, user: str, talks: list[list[dict[str, str]]]) -> None:
        for turn in (turn for turns in talks for turn in turns):
            uri = f"memory://user/{user}/t{len(self.turns)}"
            self.turns[uri] = turn["id"]
            done = self.backend.dispatch(self.store, memory.MemoryOpWrite(uri, line_of(turn)))
            if not isinstance(done, memory.MemoryWriteResult):
                raise RuntimeError(str(done))

    def find(self, user: str, question: str) -> list[Any]:
        asked = memory.MemoryOpFind(question, f"memory://user/{user}", K_MAX)
        found = self.backend.dispatch(self.store, asked)
        if not isinstance(found, memory.MemoryFindResult):
            raise RuntimeError(str(found))
        return list(found.hits)

    def turn_of(self, user: str, hit: Any) -> str:
        return self.turns[hit.uri.removesuffix(".md")]


if __name__ == "__main__":
    serve(OpenRath)
