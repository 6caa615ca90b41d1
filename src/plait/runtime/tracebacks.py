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

# modules that hand errors from one thread or task to another
_LIBRARY = tuple(
    str(Path(os.__file__).parent / name) + os.sep for name in ("concurrent", "asyncio")
) + (str(Path(os.__file__).parent / "threading.py"),)
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
        kept = _own_frames(stack, is_told)
        if kept and len(kept) < len(stack):
            described.stack = traceback.StackSummary.from_list(kept)
    if depth < 10 and error is not None:
        for below, cause in (
            (described.__cause__, error.__cause__),
            (described.__context__, error.__context__),
        ):
            if below is not None:
                _leave_out_frames(below, cause, depth + 1)


def _own_frames(stack: traceback.StackSummary, is_told: bool) -> list[traceback.FrameSummary]:
    """Return the frames of the program. If the error `is_told` by us, those of the standard library
    that ours called, as the one that hands an error from thread to thread, are left out, too.
    """
    kept: list[traceback.FrameSummary] = []
    is_below = False  # True: the frames before lead from ours through the library
    for frame in stack:
        is_library = is_told and frame.filename.startswith(_LIBRARY)
        is_below = _is_ours(frame) or (is_below and is_library)
        if not is_below:
            kept.append(frame)
    return kept


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(_OURS)
