"""Runs taken up again, measured: what it takes to bring a program back to where it was when its
process was killed.

A run is made in a process that kills itself with 1,000 effects on record, and taken up again in
another: the clock runs from just before `resume` to the first effect that is not on record. Each
time it is the same record, copied. Contestants are processes that take turns, as in `peers.py`;
without `--peers` only Plait and bare SQLite take part.

    python benchmarks/durable.py [--quick] [--only NAME] [--date YYYY-MM-DD] [--peers PYTHON]
"""

from __future__ import annotations

from typing import Any

from peers import Ask, Contestant
from runtime import Contest, Line, Part, asking, measure

OURS = (
    Contestant("Plait", "plait_durable.py", ours=True),
    Contestant("raw", "raw_durable.py", ours=True),
)
PEERS = (
    Contestant("DBOS WAL", "dbos_durable.py", "wal"),
    Contestant("LangGraph", "langgraph_durable.py"),
)
EFFECTS, ROUNDS = 1000, 20
SHAPES = {
    "agent": "500 model calls, 500 tool calls",
    "program": "1,000 tool calls of a program",
    "branches": "10 branches of 50 + 50",
}


def agent(contest: Contest) -> list[Line]:
    """One long turn of an agent."""
    return _shape(contest, "agent")


def program(contest: Contest) -> list[Line]:
    """A program that calls tools itself."""
    return _shape(contest, "program")


def branches(contest: Contest) -> list[Line]:
    """As many effects, in ten branches of one run that go on at the same time."""
    return _shape(contest, "branches")


def _shape(contest: Contest, shape: str) -> list[Line]:
    """From just before `resume` to the first live effect, beside reading the same events and
    nothing else.
    """
    rounds = contest.bench.some(ROUNDS)
    asks = {verb: _recorded(verb, shape, rounds) for verb in ("resume", "read", "replay")}
    heat, lines = contest.heat(asks, rounds), list[Line]()
    names = {"resume": "resume", "replay": "replay", "read": "read the same events"}
    for verb, what in names.items():
        keys = {contestant.name: (contestant.name, verb) for contestant in contest.contestants}
        target = "<= 50 ms" if verb == "resume" and shape != "branches" else "-"
        lines.append(
            Line(f"{what}, {SHAPES[shape]}, CPU", "ms", heat.cells(keys, "cpu", 1e3), target)
        )
        if verb == "resume":
            lines.append(
                Line(f"{what}, {SHAPES[shape]}, wall", "ms", heat.cells(keys, "wall", 1e3))
            )
    return lines


def _recorded(verb: str, shape: str, rounds: int) -> Any:
    """As often as it is asked, and a few times more to warm up."""

    def prepare(worker: Any) -> Ask:
        worker.ask("record", shape=shape, effects=EFFECTS, times=rounds + rounds // 2 + 4)
        return asking(verb, shape=shape)(worker)

    return prepare


PARTS: tuple[Part, ...] = (agent, program, branches)

if __name__ == "__main__":
    measure(__doc__ or "", PARTS, OURS, PEERS, "durable.json")
