"""Plait's memory, through `plait.Memory` and `plait.Session` alone, on its embedded store.

Every talk is a session of the user, every turn a message with the name of its speaker. Its messages
become memories of the user's scope, each with the message as its evidence. Words that a speaker
says again are support for the first memory, so a hit is the first turn with its words. Another
session of the same user asks.

- `words`: the defaults, no model.
- `vectors`: with the static vectors of the extra `[memory]`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rememberer import K_MAX, Rememberer
from worker import serve

import plait
from plait import Memory, Session


class Plait(Rememberer):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.address = str(folder / "store")
        plait.open_store(self.address)
        self.memory: Any = _memory(sys.argv[2])
        self.askers: dict[str, Session] = {}
        self.turns: dict[tuple[str, str, str], str] = {}  # ids by user, speaker and text
        self.settings = f"defaults, {sys.argv[2]}; every item with evidence, every recall on record"

    def version(self) -> str:
        return plait.__version__

    def take_in(self, user: str, talks: list[list[dict[str, str]]]) -> None:
        asker = Session(user=user, store=self.address)
        for turns in talks:
            talk = Session(user=user, store=self.address)
            for turn in turns:
                talk = talk.say(turn["text"], name=turn["speaker"])
                self.turns.setdefault((user, turn["speaker"], turn["text"]), turn["id"])
            asker = self.memory.ingest(asker, talk, scope="user")
        self.askers[user] = asker

    def find(self, user: str, question: str) -> list[Any]:
        self.askers[user], hits = self.memory.recall(self.askers[user], question, k=K_MAX)
        return hits

    def turn_of(self, user: str, hit: Any) -> str:
        return self.turns[user, hit.speaker, hit.text]


def _memory(option: str) -> Any:
    if option == "words":
        return Memory()
    from plait.memory.vectors import StaticEmbedder

    return Memory(embedder=StaticEmbedder())


if __name__ == "__main__":
    serve(Plait)
