"""Tool calls of the whole store, by index: `find --tool`, `--path`, `--outcome`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from plait.cli.common import Options
from plait.cli.documents import print_json, print_jsonl
from plait.cli.render import ACCENT, BAD, DIM, Cell, Column, Out
from plait.ids import short
from plait.outline.documents import Document
from plait.session.effect_rows import CallFilter, FoundCall, find_calls
from plait.store import Store

FOUND = 50
PATHS_MIN = 12  # cells of the changed paths: most calls change none
_STYLES = {"failed": BAD, "unknown": BAD, "returned": DIM}


def print_calls(given: Options, store: Store, wanted: CallFilter, limit: int | None) -> None:
    """Print the tool calls that a filter chooses, the newest first."""
    most = FOUND if limit is None else limit
    found = islice(find_calls(store, wanted), most)
    if given.form == "jsonl":
        print_jsonl(map(_call_document, found))
    elif given.form == "json":
        print_json({"calls": [_call_document(call) for call in found]})
    else:
        _print_table(found, most)


def _call_document(call: FoundCall) -> Document:
    return {
        "session": call.log,
        "short": short(call.log),
        "seq": call.seq,
        "call": call.call,
        "tool": call.tool,
        "outcome": call.outcome,
        "why": call.why or None,
        "actor": call.actor,
        "time": call.time,
        "run": call.run,
        "paths": list(call.paths),
    }


def _print_table(found: Iterator[FoundCall], most: int) -> None:
    out = Out()
    columns = [
        Column("when", aside=True),
        Column("call"),
        Column("actor", aside=True),
        Column("tool"),
        Column("outcome"),
        Column("paths, or why", flex=True, least=PATHS_MIN),
    ]
    count = out.table(
        columns,
        (
            [
                Cell(out.time(call.time), DIM),
                Cell(f"{short(call.log)}@{call.seq}", ACCENT),
                Cell(call.actor, DIM),
                Cell(call.tool),
                Cell(call.outcome, _STYLES.get(call.outcome, "")),
                Cell("  ".join(filter(None, [" ".join(call.paths), call.why]))),
            ]
            for call in found
        ),
        heads=True,
    )
    if not count:
        out.hint("No such calls.")
    elif count == most:
        out.hint(f"The newest {most}. More: --limit {most * 10}")
