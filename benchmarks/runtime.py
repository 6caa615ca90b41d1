"""The runtime, measured: what it adds to a model that costs nothing, and what a durable step of an
agent costs.

Every contestant is a process of its own, and they take turns, as in `peers.py`. A model that
answers at once notes when it is asked; what lies between two asks is what the runtime took for a
step. Without `--peers` only Plait and bare SQLite take part.

    python benchmarks/runtime.py [--quick] [--only NAME] [--date YYYY-MM-DD] [--peers PYTHON]
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from measure import machine
from peers import (
    RESULTS,
    Ask,
    Bench,
    Cell,
    Contestant,
    Failed,
    Heat,
    calls_in,
    reasons,
    shown,
    significant,
)

PLAIT, RAW = (
    Contestant("Plait", "plait_run.py", ours=True),
    Contestant("raw", "raw_run.py", ours=True),
)
PEERS = (
    Contestant("OpenRath", "openrath_run.py", "whole"),
    Contestant("OpenRath lean", "openrath_run.py", "lean"),
)

CALLS = 20  # model calls in a turn whose calls are timed
STEPS = 10  # durable steps in a turn
SESSIONS, AGENTS = 12, 4  # sessions at work at the same time, agents in each
CROWD = {"sessions": SESSIONS, "agents": AGENTS, "calls": STEPS}


class Line(msgspec.Struct):
    """One row: a figure per contestant. `target` is what we want of Plait."""

    what: str
    unit: str
    cells: dict[str, Cell]
    target: str = "-"


class Contest:
    """The contestants, each in a fresh process for a part of the table."""

    def __init__(self, bench: Bench, contestants: tuple[Contestant, ...]) -> None:
        self.bench, self.contestants = bench, contestants

    def heat(self, asks: dict[str, Callable[[Any], Ask]], rounds: int) -> Heat:
        """Each question to each contestant, in rounds.

        The keys of the heat are (contestant, question).
        """
        heat, workers = Heat(), list[Any]()
        try:
            for contestant in self.contestants:
                try:
                    worker = self.bench.start(contestant)
                except Failed as why:
                    heat.out |= {(contestant.name, name): str(why) for name in asks}
                    continue
                workers.append(worker)
                worker.ask("settle")
                for name, prepare in asks.items():
                    heat.enter((contestant.name, name), partial(_tried, prepare, worker))
            return heat.run(rounds)
        finally:
            for worker in workers:
                worker.end()

    def lines(self, heat: Heat, name: str, what: str, target: str) -> list[Line]:
        """Wall time and CPU of one question.

        The target is for the CPU: a wall clock on a busy machine says little.
        """
        keys = {contestant.name: (contestant.name, name) for contestant in self.contestants}
        return [
            Line(f"{what}, wall", "us", heat.cells(keys, "wall", 1e6)),
            Line(f"{what}, CPU", "us", heat.cells(keys, "cpu", 1e6), target),
        ]

    def each(self, figure: Callable[[Contestant], float]) -> dict[str, Cell]:
        cells: dict[str, Cell] = {}
        for contestant in self.contestants:
            try:
                cells[contestant.name] = Cell(figure(contestant))
            except Failed as why:
                cells[contestant.name] = Cell(says=str(why))
        return cells


def _tried(prepare: Callable[[Any], Ask], worker: Any) -> Ask:
    """Asked once before it counts: what is made when first needed is made, and who has no such
    thing drops out.
    """
    ask = prepare(worker)
    ask()
    return ask


def asking(verb: str, **what: Any) -> Callable[[Any], Ask]:
    return lambda worker: lambda: worker.ask(verb, **what)["value"]


# ── the parts ────────────────────────────────────────────────────────────────────────────────


def overhead(contest: Contest) -> list[Line]:
    """Measure the time that the runtime adds to a model call, in memory."""
    asks = {
        "turn": asking("turn", calls=CALLS),
        "refused": asking("turn", calls=CALLS, refused=True),
        "nested": asking("nested", calls=CALLS),
        "outermost": asking("outermost", calls=CALLS),
    }
    heat = contest.heat(asks, contest.bench.some(300))
    return [
        *contest.lines(heat, "turn", "model call and a tool that does nothing", "<= 200 us"),
        *contest.lines(heat, "refused", "model call whose tool is not there", "<= 200 us"),
        *contest.lines(heat, "nested", "agent that answers at once, in a run", "<= 200 us"),
        *contest.lines(heat, "outermost", "agent that answers at once, its own run", "-"),
    ]


def durable(contest: Contest) -> list[Line]:
    """A step on disk: a model call and a tool call, with everything on record before anything
    follows from it.
    """
    heat = contest.heat({"steps": asking("steps", calls=STEPS)}, contest.bench.some(100))
    lines = contest.lines(heat, "steps", "durable step", "-")
    rate = Line("durable steps per second", "", _rates(lines[0].cells), ">= 5x OpenRath")
    return [
        *lines,
        rate,
        Line(
            "commits asked for per step", "", contest.each(partial(_appends, contest.bench)), "<= 3"
        ),
    ]


def _rates(cells: dict[str, Cell]) -> dict[str, Cell]:
    rates = {
        name: Cell(1e6 / cell.value if cell.value else None, cell.says)
        for name, cell in cells.items()
    }
    raw = rates["raw"].value
    for cell in rates.values():
        cell.ratio = cell.value / raw if raw and cell.value else None
    return rates


def _appends(bench: Bench, contestant: Contestant) -> float:
    worker = bench.start(contestant)
    try:
        return worker.ask("appends", calls=bench.some(200))["value"]
    finally:
        worker.end()


def fsyncs(contest: Contest) -> list[Line]:
    """Calls that wait for the disk, counted from outside; checkpoints are among them."""
    steps = contest.bench.some(200)
    alone, together = (partial(_syncs, contest.bench, verb) for verb in ("steps", "together"))
    what = f"fsyncs per step, {SESSIONS * AGENTS} agents in {SESSIONS} sessions"
    return [
        Line(
            "fsyncs per step",
            "",
            contest.each(lambda one: alone(one, steps, {"calls": steps})),
            "<= 3",
        ),
        Line(
            what, "", contest.each(lambda one: together(one, SESSIONS * AGENTS * STEPS, CROWD)), "-"
        ),
    ]


def _syncs(
    bench: Bench, verb: str, contestant: Contestant, steps: int, asked: dict[str, int]
) -> float:
    """Beginning and ending a turn count, too: they are few beside its steps."""
    if shutil.which("strace") is None:
        raise Failed("no strace")
    trace = bench.folder / f"{contestant.name} {verb}.trace"
    worker = bench.start(contestant, trace)
    try:
        worker.ask("settle")
        worker.ask("steps", calls=3)
        before = calls_in(trace)
        worker.ask(verb, **asked)
        return (calls_in(trace) - before) / steps
    finally:
        worker.end()


def together(contest: Contest) -> list[Line]:
    """Agents at work at the same time, in threads: what they write shares commits."""
    heat = contest.heat({"together": asking("together", **CROWD)}, contest.bench.some(50) // 5)
    lines = contest.lines(
        heat, "together", f"step, {SESSIONS * AGENTS} agents in {SESSIONS} sessions", "-"
    )
    return [
        *lines,
        Line(
            f"steps per second, {SESSIONS * AGENTS} agents",
            "",
            _rates(lines[0].cells),
            ">= 5x OpenRath",
        ),
    ]


def growth(contest: Contest) -> list[Line]:
    """Measure if earlier steps make the next step slower, in memory."""
    steps, long = contest.bench.some(1000), contest.bench.some(1000)

    def late(worker: Any) -> Ask:
        return lambda: _grown(worker.ask("growth", calls=steps)["value"])

    heat = contest.heat({"growth": late}, contest.bench.some(50) // 5)
    keys = {contestant.name: (contestant.name, "growth") for contestant in contest.contestants}
    lines = [
        Line(f"step {steps:,} of a turn / step 10, CPU", "x", heat.cells(keys, "cpu", 1), "<= 1.1")
    ]
    for fresh, how in ((False, "asked again"), (True, "asked for the first time")):
        asks = {
            str(length): asking("answer", messages=length, fresh=fresh) for length in (10, long)
        }
        heat = contest.heat(asks, contest.bench.some(100))
        for length in (10, long):
            keys = {
                contestant.name: (contestant.name, str(length))
                for contestant in contest.contestants
            }
            lines.append(
                Line(f"agent {how} at message {length:,}, CPU", "us", heat.cells(keys, "cpu", 1e6))
            )
    return lines


def _grown(took: dict[str, dict[str, float]]) -> dict[str, float]:
    return {clock: took["late"][clock] / took["early"][clock] for clock in ("wall", "cpu")}


# ── the report ───────────────────────────────────────────────────────────────────────────────

Part = Callable[[Contest], list[Line]]
PARTS: tuple[Part, ...] = (overhead, durable, fsyncs, together, growth)


def print_table(lines: list[Line], names: list[str]) -> None:
    """A figure per contestant, in brackets its ratio to Plait's."""
    rows = [["what", *names, "target"]]
    for line in lines:
        ours = line.cells["Plait"].value
        rows.append(
            [
                line.what,
                *(_cell(line.cells[name], line.unit, ours, name) for name in names),
                line.target,
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _cell(cell: Cell, unit: str, ours: float | None, name: str) -> str:
    text = shown(cell, unit)
    beside = name != "Plait" and unit != "x" and bool(ours) and cell.value is not None
    return (
        f"{text} ({significant(cell.value / ours)}x)"
        if beside and cell.value is not None and ours
        else text
    )


def measure(
    doc: str,
    parts: Sequence[Part],
    ours: tuple[Contestant, ...],
    peers: tuple[Contestant, ...],
    file: str,
) -> None:
    """Run the parts that are asked for, print the table, and write it down if
    nothing was left out.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="about a tenth of everything")
    parser.add_argument(
        "--only",
        choices=[part.__name__ for part in parts],
        help="one part alone; nothing is written",
    )
    parser.add_argument(
        "--date", default="", help="the date to write into the results; today if not given"
    )
    parser.add_argument(
        "--peers", default="", help="the interpreter of the peers; without it they do not take part"
    )
    asked = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=RESULTS))
    bench = Bench(scratch, asked.peers, asked.quick, patient=False)
    contest, lines = Contest(bench, (*ours, *(peers if asked.peers else ()))), list[Line]()
    facts = machine(RESULTS, asked.date) | {"quick": asked.quick}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("broken off"))
    try:
        for part in parts:
            if asked.only in (None, part.__name__):
                start = time.perf_counter()
                lines += part(contest)
                print(f"{part.__name__}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if lines:
            report(lines, contest, facts)
    if asked.only is None:
        document = {
            "machine": facts,
            "contestants": bench.about,
            "absent": bench.absent,
            "rows": msgspec.to_builtins(lines),
        }
        (RESULTS / file).write_text(json.dumps(document, indent=2) + "\n")


def report(lines: list[Line], contest: Contest, facts: dict[str, object]) -> None:
    print_table(lines, [contestant.name for contestant in contest.contestants])
    print(
        "\nnone: it has no such operation. In brackets: how much of Plait's figure in the same run."
    )
    for name, said in contest.bench.about.items():
        print(f"{name}: {said['version']}; {said['settings']}")
    for reason in reasons(lines):  # type: ignore[arg-type]  it looks at cells alone
        print(reason)
    print(", ".join(f"{name} {value}" for name, value in facts.items()))


if __name__ == "__main__":
    measure(__doc__ or "", PARTS, (PLAIT, RAW), PEERS, "runtime.json")
