"""The contestants' side of `locomo.py`: conversations and questions in, ids of turns out."""

from __future__ import annotations

from typing import Any

from worker import Guest, clocked

K_MAX = 10


class Rememberer(Guest):
    """The operations of a contestant. A turn has an id, a speaker and a text."""

    def ingest(self, user: str, talks: list[list[dict[str, str]]]) -> dict[str, Any]:
        """Take in the talks of a user, each a list of turns; clocked."""
        return clocked(lambda: self.take_in(user, talks))

    def recall(self, user: str, question: str) -> dict[str, Any]:
        """Answer with the ids of the best turns of this user, best first.

        Finding is clocked. Which turn a hit was is a question of the benchmark alone.
        """
        took = clocked(lambda: self.find(user, question))
        return {**took, "value": [self.turn_of(user, hit) for hit in took["value"]]}

    def take_in(self, user: str, talks: list[list[dict[str, str]]]) -> None:
        raise NotImplementedError

    def find(self, user: str, question: str) -> list[Any]:
        """Return hits, as the contestant has them."""
        raise NotImplementedError

    def turn_of(self, user: str, hit: Any) -> str:
        raise NotImplementedError


def line_of(turn: dict[str, str]) -> str:
    """A turn as one text, for a contestant that knows no speakers."""
    return f"{turn['speaker']}: {turn['text']}"
