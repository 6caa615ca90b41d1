"""`plait check`: the open runs that would not go on with the code at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from plait.cli.common import Options, command_line, listing
from plait.cli.divergence import comparison_lines
from plait.cli.documents import Document, print_json, print_jsonl
from plait.cli.exits import FAILED
from plait.cli.loading import import_from_here, loading_errors
from plait.cli.render import ACCENT, BAD, DIM, Cell, Out, count_text
from plait.session.ports import store_at

if TYPE_CHECKING:
    from plait.runs.check import CheckedRun


@click.command("check")
@click.argument("target", metavar="[TARGET]", required=False)
@listing
def check_command(given: Options, target: str | None) -> None:
    """Name the open runs that would diverge with the code at hand.

    TARGET is a module, a file, module:NAME or FILE.py:NAME; without it, each open run is checked
    with the program that its log names. Runs that wait, failed, were interrupted or are paused are
    replayed up to their last recorded step. Nothing is executed and nothing is written.

    The exit code is 1 if a run would diverge, or its program cannot be found; 2 if there is no
    TARGET.
    """
    from plait.runs.check import check_runs

    import_from_here()
    with loading_errors(target or ""):
        found = list(check_runs(store_at(given.store), target))
    unsafe = [checked for checked in found if not checked.is_safe]
    if given.form == "json":
        documents = [_document(checked) for checked in found]
        print_json({"checked": len(found), "unsafe": len(unsafe), "runs": documents})
    elif given.form == "jsonl":
        print_jsonl(_document(checked) for checked in found)
    else:
        _print_checked(given, found, len(unsafe))
    if unsafe:
        raise click.exceptions.Exit(FAILED)


def _document(checked: CheckedRun) -> Document:
    return {
        "session": checked.session.id,
        "short": checked.session.short,
        "run": checked.run,
        "workflow": checked.workflow,
        "status": checked.session.status,
        "revision": checked.revision,
        "code": checked.code,
        "patches": list(checked.patches),
        "safe": checked.is_safe,
        "at": checked.at or None,
        "recorded": checked.recorded or None,
        "now": checked.now or None,
        "why": checked.why,
    }


def _print_checked(given: Options, found: list[CheckedRun], unsafe: int) -> None:
    out = Out()
    for checked in found:
        short = checked.session.short
        name = checked.workflow.rpartition(":")[2]
        is_same = checked.revision == checked.code
        code = checked.revision if is_same else f"{checked.revision} → {checked.code or '?'}"
        if checked.is_safe:
            out.line(Cell(short, ACCENT), f"  {name}  goes on  ", Cell(code, DIM))
        elif checked.why:
            out.line(Cell(short, ACCENT), f"  {name}  ", Cell("cannot be checked", BAD))
            out.line(f"  {checked.why}")
        else:
            text = f"diverges at event {checked.at}"
            out.line(Cell(short, ACCENT), f"  {name}  ", Cell(text, BAD), Cell(f"  {code}", DIM))
            for line in comparison_lines(checked.recorded, checked.now):
                out.line(line)
            accept = command_line(given, "resume", short, "--accept", '"…"')
            out.line(Cell(f"  accept it, once the code is deployed: {accept}", DIM))
        if checked.patches:
            out.line(Cell(f"  patched: {', '.join(checked.patches)}", DIM))
    count = count_text(len(found), "open run")
    out.line(Cell(f"{count} checked, {unsafe} would not go on", BAD if unsafe else DIM))
