"""Experiences, reflections and plans, as in Generative Agents: a recall weighs recency, importance
and relevance; a reflection rests on the experiences that it was drawn from, and a plan on
reflections. Taking one experience back takes its reflection, and marks the plan.

`python examples/memory_experiences.py` needs no key and no network, and prints:

    Ann goes from the garden to the harbour to the bakery to the library.
    Ben goes from the garden to the harbour to the bakery to the library.
    Cleo goes from the garden to the harbour to the bakery to the library.
    the score of an experience: importance, own, recency
    falls: Ann repairs the cart number 193 at the harbour.
    falls: Ann cares about the things of the harbour.
    has less evidence: Ann goes from the garden to the harbour to the bakery to the library.
    Ann goes from the garden to th… is now marked: less evidence
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from plait import Agent, Memory, Session, Workflow
from plait.event.kinds import Text
from plait.ids import Micros
from plait.memory.items import MemoryItem
from plait.model.base import OnDelta, Reply, Request, Returned
from plait.session.content import text_of

STORE = "memory:village"
HOUR = 3_600_000_000  # microseconds
BEGIN = 1_767_225_600_000_000  # 1 January 2026
ACTS = "waters weeds paints repairs sweeps visits measures opens closes photographs".split()
THINGS = "gate bench roof fence lamp well oven cart clock mirror window ladder".split()
PLACES = "garden harbour bakery library".split()


def recency(row: Mapping[str, Any]) -> float:
    """Halve every four days: the time of an experience is when it began to hold."""
    began = row["valid_from"]
    return 0.993 ** ((BEGIN + 200 * HOUR - began) / HOUR) if began else 1.0


def importance(row: Mapping[str, Any]) -> float:
    return (row["importance"] or 5) / 10


def memory_of(name: str) -> Memory:
    """Return the memory of an agent. Relevance, by words, has the weight 1."""
    return Memory(
        store=STORE,
        agent=name,
        scopes=["agent"],
        k=6,
        parts={"recency": recency, "importance": importance},
        weights={"recency": 0.3, "importance": 0.3},
    )


def live(name: str, hours: int) -> Memory:
    """Have an agent make an experience each hour; the program that runs the village writes them."""
    memory, session = memory_of(name), village()
    for hour in range(hours):
        act, thing = ACTS[hour % 10], THINGS[hour * 7 % 12]
        place = PLACES[hour * 5 // 3 % 4]
        session = memory.remember(
            session,
            f"{name} {act} the {thing} number {hour} at the {place}.",
            scope="agent",
            importance=1 + hour * 3 % 10,
            valid_from=Micros(BEGIN + hour * HOUR),
        )
    return memory


def village(*question: str) -> Session:
    return Session(*question, project="village", store=STORE)


class Mind:
    """Stands for a model: it concludes that the lines of memory in its prompt have one place."""

    name = "mind"

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        texts = [text_of(turn.parts) for turn in request.turns if not isinstance(turn, Returned)]
        lines = re.findall(r"\[m:(\w+)\].*? (\w+) \w+ the (\w+) .*the (\w+)\.", "\n".join(texts))
        ((place, _),) = Counter([line[3] for line in lines]).most_common(1)
        cited = [line for line in lines if line[3] == place]
        marks = " ".join(f"[m:{line[0]}]" for line in cited)
        return Reply((Text(f"{cited[0][1]} cares about the things of the {place} {marks}."),))


class Reflect(Workflow):
    """Draws a conclusion from experiences. It waits until a person approves it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.mind = Agent("What follows? Cite memories.", model=Mind(), memory=memory)

    def forward(self, session: Session) -> Session:
        session = self.mind(session)
        conclusion = re.sub(r" ?\[m:\w+\]", "", session.text)
        # it rests on the reply, and so on every memory that the reply has seen
        said = session.messages[-1]
        return self.memory.remember(
            session, conclusion, scope="agent", kind="reflection", evidence=said
        )


def reflect_and_plan(memory: Memory) -> MemoryItem:
    """Reflect on each place, and propose a plan that cites the reflections to a person."""
    for place in PLACES:
        Reflect(memory)(village(f"What does {memory.agent} do at the {place}?"))
    session = village()
    for item, _ in memory.pending(session):
        memory.approve(item, actor="human:mayor")
    found = [item for item in memory.items(session) if item.kind == "reflection"]
    places = [item.text.rstrip(".").rpartition(" ")[2] for item in reversed(found)]
    text = f"{memory.agent} goes from the {' to the '.join(places)}."
    cited, who = [item.id for item in found], f"agent:{memory.agent}"
    session = memory.remember(
        session, text, scope="agent", kind="procedure", evidence=cited, actor=who
    )
    return memory.approve(session.events[-2], actor="human:mayor")


def main() -> None:
    minds = [live(name, 200) for name in ("Ann", "Ben", "Cleo")]
    plans = [reflect_and_plan(memory) for memory in minds]
    for plan in plans:
        print(plan.text)
    ann, session = minds[0], village()
    session, hits = ann.recall(session, "What does Ann do at the harbour?")
    experience = next(hit for hit in hits if hit.kind == "fact")
    print(f"the score of an experience: {', '.join(sorted(experience.parts))}")
    rollback = ann.rollback(experience)
    for sort, ids in (("falls", rollback.retracted), ("has less evidence", rollback.weakened)):
        for id in ids:
            print(f"{sort}: {rollback.texts[id]}")
    rollback.apply(reason="it was Ben")
    session, (hit, *_) = ann.recall(session, "From where to where goes Ann?", k=1)
    print(f"{hit.text[:30]}… is now marked: {', '.join(hit.marks)}")


if __name__ == "__main__":
    main()
