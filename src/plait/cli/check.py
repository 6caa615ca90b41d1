"""`plait check`: the open runs that would not go on with the code at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from plait.cli.common import Options, command_line, listing
from plait.cli.divergence import comparison_lines
from plait.cli.documents import print_json, print_jsonl
from plait.cli.exits import FAILED
from plait.cli.loading import import_from_here, loading_errors
from plait.cli.render import ACCENT, BAD, DIM, GAP, Cell, Out, cell_width, count_text
from plait.outline.documents import Document
from plait.runtime.tracebacks import raised_at, raised_text
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

    The exit code is 1 if a run would diverge, or its program raises an error, or cannot be found; 2
    if there is no TARGET.
    """
    from plait.runs.check import check_runs

    import_from_here()
    with loading_errors(target or "", "workflow"):
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
        "target": checked.target or None,
        "after": checked.after or None,
        "raised": _error_document(checked.raised) if checked.raised is not None else None,
    }


def _error_document(error: BaseException) -> Document:
    file, line = raised_at(error) or (None, None)
    return {"type": type(error).__name__, "message": str(error), "file": file, "line": line}


def _print_checked(given: Options, found: list[CheckedRun], unsafe: int) -> None:
    out = Out()
    width = max([cell_width(_class_name(checked)) for checked in found], default=0)
    for checked in found:
        short, name = checked.session.short, _class_name(checked)
        head = Cell(short, ACCENT), GAP, name, " " * (width - cell_width(name)), GAP
        if checked.is_safe:
            out.line(*head, "goes on", GAP, Cell(_code_text(checked), DIM))
        elif checked.why:
            out.line(*head, Cell("cannot be checked", BAD))
            out.line(f"  {checked.why}")
            if checked.step:
                out.line(Cell(f"  {checked.step}", DIM))
            elif checked.target:
                check = command_line(given, "check", checked.target)
                out.line(Cell(f"  name the program: {check}", DIM))
        elif checked.raised is not None:
            text = f"raises an error after event {checked.after}"
            out.line(*head, Cell(text, BAD), GAP, Cell(_code_text(checked), DIM))
            out.line(f"  {raised_text(checked.raised)}")
            look = command_line(given, "debug", f"{short}@{checked.after}")
            out.line(Cell(f"  correct it, and check again; to look at it: {look}", DIM))
        else:
            text = f"diverges at event {checked.at}"
            out.line(*head, Cell(text, BAD), GAP, Cell(_code_text(checked), DIM))
            for line in comparison_lines(checked.recorded, checked.now):
                out.line(line)
            accept = command_line(given, "resume", short, "--accept", '"…"')
            out.line(Cell(f"  accept it, once the code is deployed: {accept}", DIM))
        if checked.patches:
            out.line(Cell(f"  patched: {', '.join(checked.patches)}", DIM))
    count = count_text(len(found), "open run")
    out.line(Cell(f"{count} checked, {unsafe} would not go on", BAD if unsafe else DIM))


def _class_name(checked: CheckedRun) -> str:
    return checked.workflow.rpartition(":")[2]


def _code_text(checked: CheckedRun) -> str:
    """Return the revision of a run, and that of the code at hand if it is another one, as `runs`
    shows them.
    """
    before, now = checked.revision[:8], checked.code[:8]
    return before if checked.revision == checked.code else f"{before} → {now or '?'}"
