"""The steps of a session and its family, with lanes in the margin: `log --steps`."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial

import msgspec

from plait.cli.common import Options
from plait.cli.documents import print_json, print_jsonl
from plait.cli.render import BAD, DIM, Cell, Column, Out, count_text
from plait.ids import LogId, Micros
from plait.outline.documents import session_document
from plait.outline.family import family_shape
from plait.outline.lanes import MarginLine, margins
from plait.outline.outlines import Outlines
from plait.outline.records import LogRecord
from plait.outline.shapes import FamilyShape, StepShape
from plait.outline.steps import step_shapes
from plait.session import Session
from plait.session.ports import store_at
from plait.session.state import dollars_text

_COLORS = ("blue", "yellow", "green", "magenta", "cyan", "red")
_MARKS = {"merge": "◆", "fork": "○", "rewind": "↺", "message": "❯"}
_PLAIN_MARKS = {"merge": "#", "fork": "o", "rewind": "<", "message": ">"}
_QUIET = frozenset(["run", "taken", "ended", "placement", "life", "compaction", "wait"])
_BATCH = 500  # steps that are read together


def print_steps(given: Options, session: Session, number: int | None, limit: int | None) -> None:
    """Print the steps of a session's family. `number`: the last so many; `limit`: those that a
    terminal shows.
    """
    outlines = Outlines(store_at(given.store))
    family = family_shape(outlines, session.id)
    rows = _rows_at(outlines, session, _rows(family))
    shown = rows[-number:] if number is not None else rows
    if given.form == "jsonl":
        print_jsonl(msgspec.to_builtins(step) for step in _steps(outlines, shown))
    elif given.form == "json":
        steps = [msgspec.to_builtins(step) for step in _steps(outlines, shown)]
        print_json(
            {
                "session": session_document(session),
                "family": msgspec.to_builtins(family),
                "steps": steps,
            }
        )
    else:
        cut = len(shown) - limit if limit is not None and number is None else 0
        _print_text(outlines, family, shown[max(cut, 0) :])
        if cut > 0:
            Out().hint(f"… and {cut:,} before: plait log {session.short} --steps -n {len(rows)}")


def _rows(family: FamilyShape) -> list[tuple[LogId, int]]:
    """Return the rows of the picture: steps by log and index."""
    return [
        (family.branches[stretch.branch].log, step)
        for stretch in family.stretches
        for step in range(stretch.first_step, stretch.first_step + stretch.step_count)
    ]


def _rows_at(
    outlines: Outlines, session: Session, rows: list[tuple[LogId, int]]
) -> list[tuple[LogId, int]]:
    """Return the rows of steps that had begun when an event was written."""
    store = outlines.store
    if session.seq >= store.log(session.id).tip:
        return rows
    number = store.number_of(session.head) or 0

    def is_later(record: LogRecord, step: int) -> bool:
        first = next(store.read(record.log, record.firsts[step], record.firsts[step]))
        return (store.number_of(first.id) or 0) > number

    ends = dict[LogId, int]()  # by log, the first step that had not begun
    for log in dict.fromkeys([log for log, _ in rows]):
        record = outlines.record(log)
        steps = range(record.step_count)
        ends[log] = bisect_left(steps, True, key=partial(is_later, record))
    return [(log, step) for log, step in rows if step < ends[log]]


def steps_by_place(outlines: Outlines, family: FamilyShape) -> dict[tuple[LogId, int], StepShape]:
    """Return all steps of a family, by log and index."""
    rows = _rows(family)
    return dict(zip(rows, _steps(outlines, rows), strict=True))


def _steps(outlines: Outlines, rows: list[tuple[LogId, int]]) -> Iterator[StepShape]:
    """Yield the steps of rows, with their words."""
    for at in range(0, len(rows), _BATCH):
        batch = rows[at : at + _BATCH]
        known = dict[tuple[LogId, int], StepShape]()
        for log in dict.fromkeys([log for log, _ in batch]):
            indexes = [index for of, index in batch if of == log]
            steps = step_shapes(outlines, outlines.record(log), indexes)
            known.update({(log, step.index): step for step in steps})
        yield from [known[row] for row in batch]


def _print_text(outlines: Outlines, family: FamilyShape, rows: list[tuple[LogId, int]]) -> None:
    out, plain = Out(), not (sys.stdout.encoding or "").lower().startswith("utf")
    wanted, steps = set(rows), _steps(outlines, rows)
    columns = [Column(whole=True), Column(), Column(flex=True), Column(right=True, aside=True)]

    def lines() -> Iterator[list[Cell]]:
        for line in margins(family, plain=plain):
            branch = family.branches[family.stretches[line.stretch].branch]
            if line.step is None:
                yield [_margin_cell(line, branch.color), Cell(""), Cell(""), Cell("")]
            elif (branch.log, line.step) in wanted:
                step = next(steps)
                mark = mark_of(step, plain)
                name = f"{outlines.name_of(step.log)}@{step.seq}"
                yield [
                    _margin_cell(line, branch.color, mark),
                    Cell(name, color_of(branch.color)),
                    Cell(step_text(step), style_of(step)),
                    Cell(figures_text(step), DIM),
                ]

    out.table(columns, _from_first_step(lines()))


def _from_first_step(lines: Iterator[list[Cell]]) -> Iterator[list[Cell]]:
    """Leave out the bends above the first step that is shown."""
    begun = False
    for line in lines:
        begun = begun or bool(line[1].text)
        if begun:
            yield line


def _margin_cell(line: MarginLine, color: int, mark: str = "") -> Cell:
    return Cell(line.margin.replace("{}", mark), color_of(color))


def mark_of(step: StepShape, plain: bool) -> str:
    other = "*" if plain else "●"
    if step.type == "message" and not step.actor.startswith("human:"):
        return other
    return (_PLAIN_MARKS if plain else _MARKS).get(step.type, other)


def color_of(color: int) -> str:
    return _COLORS[color % len(_COLORS)]


def style_of(step: StepShape) -> str:
    if step.is_rewound or step.type in _QUIET and step.state == "done":
        return DIM
    return BAD if step.state in ("failed", "denied", "unknown") else ""


def step_text(step: StepShape) -> str:
    """Return the line of a step: what it did, the words that matter most, the changed paths."""
    words = [step.verb, step.subject]
    if step.exit_code:
        words.append(f"[exit {step.exit_code}]")
    if step.says:
        words.append(f"{'= ' if step.type == 'fact' else ''}{step.says}")
    if step.state in ("open", "waiting", "denied") and step.type == "tool":
        words.append(f"({step.state})")
    if step.files:
        more = f" and {len(step.files) - 3} more" if len(step.files) > 3 else ""
        words.append(f"± {', '.join(step.files[:3])}{more}")
    if "kill" in step.marks:
        words.append("(after a kill)")
    return " ".join(filter(None, words))


def figures_text(step: StepShape) -> str:
    """Return what a step cost, and how long it took."""
    cost = dollars_text(step.cost_usd) if step.cost_usd else ""
    tokens = count_text(step.tokens, "token") if step.tokens else ""
    took = duration_text(step.took_us) if step.took_us is not None else ""
    return " · ".join(filter(None, [tokens, cost, took]))


def duration_text(micros: Micros) -> str:
    if micros < 1000:
        return f"{micros} µs"
    return f"{micros / 1000:.0f} ms" if micros < 1_000_000 else f"{micros / 1e6:.1f} s"
