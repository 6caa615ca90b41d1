"""`plait resume --accept`: what differs is printed first, and in the end what stays done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.cli.attending import RunAttendant
from plait.cli.divergence import comparison_lines, missing_program_error
from plait.cli.render import ACCENT, Cell, as_json
from plait.errors import NeedsWorkflow
from plait.event.kinds import ToolRequested
from plait.ids import short
from plait.outline.documents import Document
from plait.session import Session
from plait.session.event_text import event_text

if TYPE_CHECKING:
    from plait.workflow import Workflow


def resume_accepting(
    attendant: RunAttendant, session: Session, program: Workflow | None, reason: str
) -> None:
    """Print what differs, accept it, and go on; in the end print the effects that stay done."""
    from plait.runs.changes import check_reason, preview_change
    from plait.runs.resume import resume

    check_reason(reason)
    try:
        change = preview_change(session, program)
    except NeedsWorkflow as error:
        raise missing_program_error(attendant.given, error) from error
    out = attendant.progress.out
    if not attendant.mute:
        for error in change.differences:
            out.line(f"accepted: session {error.session} differs from event {error.at} on")
            for line in comparison_lines(error.expected, error.found):
                out.line(line)
        branches = [log for log in change.cuts if log not in {e.log for e in change.differences}]
        for log in branches:
            seq = change.cuts[log] + 1
            out.line(f"accepted: session {short(log)} follows, from event {seq} on")
    attendant.more = lambda now: {
        "accepted": [
            {"session": e.log, "at": e.at, "recorded": e.expected, "now": e.found}
            for e in change.differences
        ],
        "not_undone": _effects_left(now),
    }
    try:
        attendant.attend_run(
            session, lambda watch: resume(session, program, accept=reason, **watch)
        )
    finally:
        if not attendant.mute:
            for left in _effects_left(session):
                place = Cell(f"{short(left['session'])}@{left['seq']}", ACCENT)
                call = f"{left['tool']} {as_json(left['arguments'])}: {left['says']}"
                out.print_brief("  not undone, not asked for again  ", place, "  ", call)


def _effects_left(session: Session) -> list[Document]:
    from plait.runs.changes import effects_left

    found: list[Document] = []
    for request, outcome in effects_left(session):
        body = request.body
        assert isinstance(body, ToolRequested)
        found.append(
            {
                "session": request.log,
                "seq": request.seq,
                "tool": body.tool,
                "arguments": body.arguments,
                "says": event_text(outcome) if outcome is not None else "it may have happened",
            }
        )
    return found
