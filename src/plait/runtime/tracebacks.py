"""Prints uncaught errors: without the frames of Plait, and without secrets.

A program's own error passes through the runtime, and an error of Plait is raised deep inside it. A
traceback that is printed when the program, or a thread, ends shows the program's lines and leaves
ours out; PLAIT_TRACEBACK=full shows all. An error that is neither, raised in our code, is shown
whole: it is a fault of ours. The record has secrets hidden; here they are hidden in the text that
Python prints.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from types import TracebackType

from plait import secrets
from plait.errors import PlaitError
from plait.inside import Stop

_OURS = f"{Path(__file__).parents[1]}{os.sep}"


def print_short(error: BaseException, trace: TracebackType | None) -> bool:
    """Print an error that has frames of ours, or secrets; False: it has none, and nothing was
    printed.
    """
    text = "".join(traceback.format_exception(type(error), error, trace))
    shown = short_text(error, trace)
    hidden = secrets.hide_shown_text(shown) if secrets.is_armed() else shown
    if hidden == text:
        return False
    sys.stderr.write(hidden)
    return True


def short_text(error: BaseException, trace: TracebackType | None = None) -> str:
    """Return the traceback of an error without the frames of Plait."""
    described = traceback.TracebackException(
        type(error), error, trace or error.__traceback__, compact=True
    )
    if os.environ.get("PLAIT_TRACEBACK") != "full" and not isinstance(error, SyntaxError):
        _leave_out_frames(described, error)
    return "".join(described.format())


def _leave_out_frames(
    described: traceback.TracebackException, error: BaseException | None, depth: int = 0
) -> None:
    stack = described.stack
    is_told = isinstance(error, (PlaitError, Stop))
    if stack and error is not None and (is_told or not _is_ours(stack[-1])):
        kept = [frame for frame in stack if not _is_ours(frame)]
        if kept and len(kept) < len(stack):
            described.stack = traceback.StackSummary.from_list(kept)
    if depth < 10 and error is not None:
        for below, cause in (
            (described.__cause__, error.__cause__),
            (described.__context__, error.__context__),
        ):
            if below is not None:
                _leave_out_frames(below, cause, depth + 1)


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(_OURS)
