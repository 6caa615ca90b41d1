"""`plait debug`: the debugger, opened in the program of a run at one of its steps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from plait.cli.common import Options, talking_command, workflow_option
from plait.cli.divergence import divergence_error, missing_program_error
from plait.cli.loading import import_from_here, load_workflow
from plait.cli.render import ACCENT, DIM, GAP, Cell, Out
from plait.errors import NeedsWorkflow, ReplayDiverged
from plait.event import Event
from plait.ids import short
from plait.session.event_text import event_text

if TYPE_CHECKING:
    from plait.runs.debugger import ProgramPoint


@click.command("debug")
@click.argument("name", metavar="S[@K]")
@workflow_option
@talking_command
def debug_command(given: Options, name: str, target: str | None) -> None:
    """Open the debugger in the program of a run, at event K.

    The run is replayed up to there: nothing is executed, nothing is written. The debugger is pdb,
    or the one that PYTHONBREAKPOINT names. Step on as far as the record goes; q leaves. Without K,
    the last step of the run; of a run that failed, the line that raised the error.
    """
    from plait.runs.debug import debug

    import_from_here()
    session = given.open(name)
    program = load_workflow(target) if target is not None else None
    out = Out(stderr=True)
    try:
        ended = debug(session, program, on_stop=lambda step, point: _print_stop(out, step, point))
    except ReplayDiverged as error:
        raise divergence_error(given, error) from error
    except NeedsWorkflow as error:
        raise missing_program_error(given, error) from error
    how = "the record ends here" if ended == ended.reload() else "the replay ended here"
    out.line(
        Cell(f"{ended.short}@{ended.seq}", ACCENT),
        Cell(f"  {how}; nothing was executed, nothing was written", DIM),
    )


def _print_stop(out: Out, step: Event, point: ProgramPoint) -> None:
    out.print_brief(Cell(f"{short(step.log)}@{step.seq}", ACCENT), GAP, event_text(step))
    if point.is_ours:
        file = os.path.basename(point.frame.f_code.co_filename)
        out.line(Cell(f"  no code of yours is at work there: this is Plait's own, {file}", DIM))
    elif point.trace is not None:
        out.line(Cell("  the error was raised here, and ended the run", DIM))
