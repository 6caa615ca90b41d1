"""Compares two checkouts of Plait with each other: did a change make anything slower?

    python benchmarks/paired.py --before ../before/.venv/bin/python

Each checkout has a process of its own. In every round both do the same operation once, in an order
drawn anew, so that whatever else the machine does hits both. Printed is the CPU time of each (p50)
and their ratio, and the ratio of the fastest tenths (p10), which other work on the machine disturbs
less; a ratio above 1.02 deserves a look, and a second run. `--count` compares the number of Python
functions that one operation calls instead, which other work on the machine does not disturb at all.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = {"open and read 1,000 messages": 40, "replay of 200 effects": 30, "import plait": 15}
ROUNDS_ELSE = 400
WARM_UP = 0.1  # of the rounds, not counted
TIME, COUNT = "time", "count"  # ways to measure


# ── in the process of one checkout ───────────────────────────────────────────────────────────


def operations(folder: Path) -> dict[str, Callable[[], object]]:
    """Everything that is measured, by name: each call does the operation once."""
    from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, open_store, replay, tool

    @tool(effect="pure")
    def nothing(n: int) -> int:
        """Do nothing."""
        return n

    disk, memory = open_store(folder / ".plait"), open_store("memory:paired")
    kilobyte = "x" * 1000
    holder: dict[str, Session] = {
        "sqlite": Session("begin", store=disk),
        "memory": Session("begin", store=memory),
    }

    def say(where: str) -> None:
        holder[where] = holder[where].say(kilobyte)

    def conversation(size: int) -> Session:
        session = Session("begin", store=disk)
        for number in range(size):
            session = session.say(f"message {number}", role="user" if number % 2 else "assistant")
        return session

    long = conversation(1_000)
    for number in range(300):
        Session(f"one of many {number}", store=disk)
    answering = Agent("Answer.", model=ScriptedModel(lambda session: "Yes."))

    def script(session: Any) -> Any:
        return "Done." if session.effects else ToolCall("nothing", n=1)

    acting = Agent("Act.", model=ScriptedModel(script), tools=[nothing])

    class Many(Workflow):
        """Uses a tool 200 times."""

        def forward(self, session: Session) -> Session:
            for number in range(200):
                session = session.use(nothing, n=number)
            return session

    many = Many()
    recorded = many(Session("go", store=memory))
    return {
        "durable append, 1 KB": lambda: say("sqlite"),
        "append in memory, 1 KB": lambda: say("memory"),
        "fork": lambda: holder["sqlite"].fork(),
        "list a page of 100": lambda: Session.list(store=disk, limit=100),
        "open and read 1,000 messages": lambda: len(
            Session.open(str(long.id), store=disk).messages
        ),
        "agent that answers at once, memory": lambda: answering(Session("?", store=memory)),
        "agent with one tool call, memory": lambda: acting(Session("?", store=memory)),
        "agent with one tool call, SQLite": lambda: acting(Session("?", store=disk)),
        "replay of 200 effects": lambda: replay(recorded, many),
        "import plait": lambda: subprocess.run([sys.executable, "-c", "import plait"], check=True),
    }


def serve(folder: Path) -> None:
    """Do operations as they are asked for on stdin; answer with their CPU seconds."""
    known = operations(folder)
    print(json.dumps(list(known)), flush=True)
    for line in sys.stdin:
        way, _, name = line.rstrip("\n").partition(" ")
        print(_calls_of(known[name]) if way == COUNT else _cpu_of(known[name]), flush=True)


def _cpu_of(act: Callable[[], object]) -> float:
    before = _cpu()
    act()
    return _cpu() - before


def _calls_of(act: Callable[[], object]) -> int:
    """Return how many Python functions an operation calls in this thread."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    act()  # caches are filled
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def _cpu() -> float:
    import resource

    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


# ── the contest ──────────────────────────────────────────────────────────────────────────────


class Checkout:
    """One of the two, in a process of its own."""

    def __init__(self, python: str, folder: Path) -> None:
        command = [python, __file__, "--serve", str(folder)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.names: list[str] = json.loads(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the checkout's process has ended: what it said is above"
        return line

    def perform(self, name: str, way: str) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{way} {name}\n")
        self.process.stdin.flush()
        return float(self._line())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", help="the interpreter of the checkout to compare with")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--share", type=float, default=1.0, help="of the rounds")
    parser.add_argument("--count", action="store_true", help="count calls instead of time")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        return serve(Path(chosen.serve))
    if not chosen.before:
        parser.error("--before is needed: the interpreter of the checkout to compare with")
    with tempfile.TemporaryDirectory(prefix="plait-paired-") as place:
        pair = [
            Checkout(python, Path(place) / name)
            for python, name in ((chosen.before, "before"), (sys.executable, "after"))
        ]
        names = [name for name in pair[0].names if chosen.only in name]
        if chosen.count:
            compare_counts(pair, names)
        else:
            compare_times(pair, names, chosen.share)


def compare_counts(pair: list[Checkout], names: list[str]) -> None:
    print(f"{'':40}{'before':>10}{'after':>10}{'ratio':>8}   Python functions called")
    for name in names:
        before, after = (int(each.perform(name, COUNT)) for each in pair)
        print(f"{name:40}{before:10}{after:10}{after / max(1, before):8.3f}", flush=True)


def compare_times(pair: list[Checkout], names: list[str], share: float) -> None:
    print(f"{'':40}{'before':>10}{'after':>10}{'ratio':>8}{'p10':>8}   CPU, µs, p50")
    for name in names:
        taken: list[list[float]] = [[], []]
        rounds = max(10, int(ROUNDS.get(name, ROUNDS_ELSE) * share))
        for number in range(rounds):
            for side in random.sample((0, 1), 2):
                cost = pair[side].perform(name, TIME)
                if number >= rounds * WARM_UP:
                    taken[side].append(cost)
        before, after = map(statistics.median, taken)
        low, high = (statistics.quantiles(costs, n=10)[0] for costs in taken)
        figures = f"{before * 1e6:10.0f}{after * 1e6:10.0f}{after / before:8.3f}{high / low:8.3f}"
        print(f"{name:40}{figures}", flush=True)


if __name__ == "__main__":
    main()
