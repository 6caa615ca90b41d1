"""Errors of a program that no longer fits the record, or that cannot be found."""

from __future__ import annotations

import json
from typing import Any

from plait.cli.common import Options, command_line
from plait.cli.exits import DIVERGED, FAILED, ShellError
from plait.cli.render import Out, cell_width
from plait.errors import NeedsWorkflow, PlaitError, ReplayDiverged
from plait.runtime.tracebacks import raised_at
from plait.session.safe_text import visible


def divergence_error(
    given: Options, error: ReplayDiverged, done: str = "Nothing was executed, nothing written."
) -> ShellError:
    """Return an error that shows both sides next to each other, the place, and the choices.

    `done`: the sentence that says what was done all the same.
    """
    branch = command_line(given, "whatif", f"{error.session}@{max(1, error.at - 1)}")
    accept = command_line(given, "resume", error.session, "--accept", '"…"')
    lines = [
        (
            f"the program goes another way than the record of session {error.session}, at event"
            f" {error.at}:"
        ),
        *comparison_lines(error.expected, error.found),
        f"{done} Either put the program back as it was,",
        f"or go on live in a branch from just before: {branch}",
        *([f"or accept the change, and go on live from there: {accept}"] if error.log else []),
    ]
    details = {
        "session": error.session,
        "at": error.at,
        "expected": error.expected,
        "found": error.found,
        "whatif": branch,
        **({"accept": accept} if error.log else {}),
    }
    return ShellError(error, lines, DIVERGED, details)


def comparison_lines(left: dict[str, Any], right: dict[str, Any]) -> list[str]:
    """Return a row for every field that differs; for the kind alone if none does."""
    fields = [
        name
        for name in dict.fromkeys([*left, *right])
        if left.get(name, _MISSING) != right.get(name, _MISSING)
    ] or ["kind"]
    if left.get("kind") != right.get("kind"):
        fields = [
            name
            for name in fields
            if name == "kind" or left.get(name, None) or right.get(name, None)
        ]
    rows = [
        ("", "on record", "wanted now"),
        *((name, _side_text(left, name), _side_text(right, name)) for name in fields),
    ]
    out = Out(stderr=True)
    first = max(cell_width(row[0]) for row in rows)
    half = (out.width - first - 8) // 2 if out.tty else max(cell_width(row[1]) for row in rows)
    if half < 16 or half > 200:  # no room side by side
        return [
            f"  {name}: {side}: {text}"
            for name, *sides in rows[1:]
            for side, text in zip(rows[0][1:], sides, strict=True)
        ]
    return [line for row in rows for line in _row_lines(row, first, half, fold=out.tty)]


_MISSING = object()


def _side_text(side: dict[str, Any], name: str) -> str:
    if name not in side:
        return "–"
    value = side[name]
    if name == "failure" and value:  # without its traceback, which has many lines
        return visible(f"{value['kind']}: {value['message']}")
    return visible(value if name == "kind" else json.dumps(value, ensure_ascii=False, default=str))


def _row_lines(row: tuple[str, str, str], first: int, half: int, *, fold: bool) -> list[str]:
    name, left, right = row
    lefts, rights = (
        (_wrap_cells(left, half), _wrap_cells(right, half)) if fold else ([left], [right])
    )
    count = max(len(lefts), len(rights))
    lefts, rights = lefts + [""] * (count - len(lefts)), rights + [""] * (count - len(rights))
    names = [name, *[""] * (count - 1)]
    return [
        f"  {name:<{first}}  {one}{' ' * (half - cell_width(one))}  {two}".rstrip()
        for name, one, two in zip(names, lefts, rights, strict=True)
    ]


def _wrap_cells(text: str, width: int) -> list[str]:
    """Cut a text into pieces that fit; characters may be two cells wide."""
    pieces, piece, used = list[str](), "", 0
    for char in text:
        wide = cell_width(char)
        if used + wide > width:
            pieces.append(piece)
            piece, used = "", 0
        piece, used = piece + char, used + wide
    return [*pieces, piece][:20]


def missing_program_error(given: Options, error: NeedsWorkflow) -> ShellError:
    named = f"--workflow {error.file or 'FILE.py'}:{error.name or 'NAME'}"
    step = f"Name it: {command_line(given, error.verb, error.session)} {named}"
    cause = error.__cause__
    if cause is not None and not isinstance(cause, PlaitError) and raised_at(cause) is not None:
        step = f"Correct it, or n{step[1:]}"
    if error.step:
        step = f"{error.step}."
    elif error.more:
        step = f"Pass it in Python: {error.call}"
    return ShellError(
        error,
        [f"the run of session {error.session} is of {error.workflow}, and {error.why}.", step],
        FAILED,
    )
