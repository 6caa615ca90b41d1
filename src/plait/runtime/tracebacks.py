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
import sysconfig
import traceback
from collections.abc import Iterator
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
_STDLIB = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


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


# ── the line that raised an error ────────────────────────────────────────────────────────────


def raised_text(error: BaseException) -> str:
    """Return an error in one line, with the line of the program that raised it."""
    text = error.record_text if isinstance(error, PlaitError) else str(error)
    if isinstance(error, SyntaxError):
        text = error.msg
    at = raised_at(error)
    where = f" ({_relative_path(at[0])}, line {at[1]})" if at is not None else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"


def raised_at(error: BaseException) -> tuple[str, int] | None:
    """Return the file and the line of the program that raised an error, or called the library that
    did. None: no line of a program was at work.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 0
    foreign: list[tuple[str, int]] = []
    causes = list(_causes(error))
    # the error of a branch was raised where the program raised its cause
    for each in [*causes[1:], error] if isinstance(error, PlaitError) else causes:
        frames = [
            (frame.filename, frame.lineno or 0)
            for frame in traceback.extract_tb(each.__traceback__)
            if not _is_ours(frame) and not frame.filename.startswith("<frozen")
        ]
        if own := [at for at in frames if not _is_of_library(at[0])]:
            return own[-1]
        foreign += frames[-1:]
    return foreign[0] if foreign else None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that it comes from, ten at most."""
    at: BaseException | None = error
    for _ in range(10):
        if at is not None:
            yield at
            at = at.__cause__


def _is_of_library(file: str) -> bool:
    return file.startswith(_STDLIB) or any(part in file for part in _PACKAGES)


def _relative_path(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
