"""The chain of a prompt: its digest and size after each turn, computed once per turn."""

from __future__ import annotations

from collections.abc import Sequence

from plait.ids import Digest, digest
from plait.model.base import Turn
from plait.runtime.prompt.setup import encode_json

PROMPT_TAG = b"plait/prompt/1"


def link_digest(before: Digest, turn: bytes) -> Digest:
    return digest(PROMPT_TAG, before.encode(), turn)


class Chain:
    """Begins with the encoded setup; each turn adds a link."""

    def __init__(self, setup: bytes) -> None:
        self.root, self.base = digest(PROMPT_TAG, setup), len(setup)
        # after each turn: the digest and the size so far, as far as they were asked for
        self._links: list[tuple[Digest, int]] = []

    def end(self, turns: Sequence[Turn]) -> tuple[Digest, int]:
        """The digest and the size after all these turns. Turns that have a link are not read."""
        found, size = self._links[-1] if self._links else (self.root, self.base)
        for turn in turns[len(self._links) :]:
            data = encode_json(turn)
            found, size = link_digest(found, data), size + len(data)
            self._links.append((found, size))
        return found, size

    def sizes(self, turns: Sequence[Turn]) -> list[int]:
        """The size before the first turn and after each."""
        self.end(turns)
        return [self.base, *(size for _, size in self._links)]

    def drop_from(self, at: int) -> None:
        """Drop the links from this turn on: the turn changed."""
        del self._links[at:]
