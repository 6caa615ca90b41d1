"""LangGraph's store with the static vectors that Plait's extra `[memory]` uses.

Its store finds by vectors alone, and it brings none: a program hands it a function. Here it is the
mean of a text's static vectors. Every user is a namespace, every turn an item.
"""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
from langgraph.store.memory import InMemoryStore
from rememberer import K_MAX, Rememberer, line_of
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from worker import serve

SIZE = 256


class StaticVectors:
    def __init__(self) -> None:
        found = find_spec("wordllama")
        if found is None or found.origin is None:
            raise ImportError("wordllama is not installed")
        home = Path(found.origin).parent
        weights = load_file(home / "weights" / f"l2_supercat_{SIZE}.safetensors")
        self.weights = weights["embedding.weight"].astype(numpy.float32)
        tokenizer = home / "tokenizers" / "l2_supercat_tokenizer_config.json"
        self.tokenizer = Tokenizer.from_file(str(tokenizer))
        self.tokenizer.no_padding()

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [self._mean(text).tolist() for text in texts]

    def _mean(self, text: str) -> numpy.ndarray:
        tokens = self.tokenizer.encode(text, add_special_tokens=False).ids
        return self.weights[tokens].mean(0) if tokens else numpy.zeros(SIZE, numpy.float32)


class LangGraph(Rememberer):
    settings = "InMemoryStore, static vectors of the wordllama wheel, mean over tokens"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        index = {"dims": SIZE, "embed": StaticVectors().embed, "fields": ["text"]}
        self.store = InMemoryStore(index=index)

    def version(self) -> str:
        return f"langgraph {version('langgraph')}"

    def take_in(self, user: str, talks: list[list[dict[str, str]]]) -> None:
        for turn in (turn for turns in talks for turn in turns):
            self.store.put((user,), turn["id"], {"text": line_of(turn)})

    def find(self, user: str, question: str) -> list[Any]:
        return self.store.search((user,), query=question, limit=K_MAX)

    def turn_of(self, user: str, hit: Any) -> str:
        return hit.key


if __name__ == "__main__":
    serve(LangGraph)
