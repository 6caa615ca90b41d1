"""Tiered context with paging, as in MemGPT: a long talk in a small window. Turns that leave the
window are paged out to memory, and come back as memories when a question needs them.

`python examples/memory_paging.py` needs no key and no network, and prints:

    200 turns in a window of 2,000 tokens; no prompt was larger
    50 statements were paged out, each with its message: the first was said at 18
    answered: 50 of 50 with memory, 0 without
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from plait import Agent, Compactor, Memory, Session
from plait.event import Event
from plait.event.kinds import MemoryProposed, Text
from plait.model.base import Fault, OnDelta, Reply, Request, Returned
from plait.session.content import text_of
from plait.session.ports import store_at

WINDOW = 2000  # tokens, at four characters each
MEMORY_TOKENS = 300  # of these, for memories
TOPICS = (
    "fruit river tree bird colour tool song street game soup spice flower stone metal city lake"
    " dance cheese bread tea poem opera planet fish insect mountain coat shoe lamp chair clock"
    " train boat bridge tower garden island desert forest letter number month season cloud wind"
    " sport drum violin novel painting"
).split()
CHATTER = (
    "The morning was slow and the coffee was thin, and the neighbour practised the same eight bars"
    " again and again until the dog next door joined in, which at least changed the tune.",
    "Somebody had parked a moving van across half of the pavement, so everyone walked in the road"
    " for an hour and complained about it in a rather friendly way.",
    "It rained, it stopped, it rained again; the umbrella stayed at the office, where umbrellas of"
    " this family have always spent the rainy days of the year.",
)


class Reader:
    """Stands for a model: it knows nothing but its prompt, and refuses one above the window."""

    name = "reader"

    def __init__(self) -> None:
        self.largest = 0

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        texts = [
            "" if isinstance(turn, Returned) else text_of(turn.parts) for turn in request.turns
        ]
        prompt = "\n".join([request.instruction, *texts])
        tokens = len(prompt) // 4 + 1
        self.largest = max(self.largest, tokens)
        if tokens > WINDOW:
            raise Fault("ContextOverflow", f"{tokens:,} tokens, and the window has {WINDOW:,}")
        said = [text for text in texts if not text.startswith("[memory]")][-1]
        return Reply((Text(_answer(said, prompt)),))


def _answer(said: str, prompt: str) -> str:
    """Answer a question about a favourite by the sentence that states it, if the prompt has one."""
    asked = re.search(r"What is my favourite (\w+)\?", said)
    if asked is None:
        return "I see."
    known = re.findall(rf"favourite {asked[1]} is the (\w+)\.", prompt)
    return f"It is the {known[-1]}." if known else "I do not know."


def talk(topics: Sequence[str], turns: int, memory: Memory | None) -> Talk:
    """Have a person talk, mention a favourite now and then, and ask for all of them at the end."""
    reader = Reader()
    agent = Agent(
        "Listen, and answer from the talk and from memory.",
        model=reader,
        context_max=WINDOW - MEMORY_TOKENS,  # beyond that, earlier turns are paged out
        compactor=Compactor(keep=4, memory=memory),
        memory=memory,  # searched before each answer: pages in
    )
    session, right = Session(store="memory:paging"), 0
    heard = turns - len(topics)
    for turn in range(heard):
        line = CHATTER[turn % len(CHATTER)]
        if turn * len(topics) // heard != (turn + 1) * len(topics) // heard:
            topic = topics[turn * len(topics) // heard]
            line = f"{line} My favourite {topic} is the {_favourite(topic)}. And so on."
        session = agent(session.say(line))
    for topic in topics:
        session = agent(session.say(f"What is my favourite {topic}?"))
        right += session.text == f"It is the {_favourite(topic)}."
    return Talk(session, right, reader.largest)


def _favourite(topic: str) -> str:
    return topic[::-1]  # a word that cannot be guessed


class Talk(NamedTuple):
    """A talk, and how many questions were answered right."""

    session: Session
    right: int
    largest: int  # tokens of the largest prompt

    def originals(self) -> dict[str, Event]:
        """Return the message behind each statement that was paged out."""
        store, found = store_at(self.session.store), dict[str, Event]()
        for page in self.session.events:
            if isinstance(page.body, MemoryProposed):
                found[text_of(page.body.parts)] = store.event(page.header.causes[0])
        return found


def main() -> None:
    done = talk(TOPICS, 200, Memory(k=4, tokens_max=MEMORY_TOKENS))
    assert done.largest <= WINDOW
    print(f"200 turns in a window of {WINDOW:,} tokens; no prompt was larger")
    originals = done.originals()
    (first, *_) = originals.values()
    print(f"{len(originals)} statements were paged out, each with its message:", end=" ")
    print(f"the first was said at {first.seq}")
    without = talk(TOPICS, 200, None)
    print(f"answered: {done.right} of {len(TOPICS)} with memory, {without.right} without")


if __name__ == "__main__":
    main()
