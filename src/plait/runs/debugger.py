"""A debugger opened in the program of a run, at a frame of the program's own code.

A step is taken deep in Plait, below the line of the program that made the call. `pdb` is opened at
that line at once, and shows and steps through the program's frames alone. Another debugger, named
by PYTHONBREAKPOINT or set as `sys.breakpointhook`, is called when control comes back to that line:
it stops in the frames that it finds above its call, and these are the program's then.
"""

from __future__ import annotations

import inspect
import os
import pdb
import sys
import sysconfig
import traceback
from bdb import BdbQuit
from collections.abc import Callable, Iterator
from functools import cache
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from plait.inside import Stop
from plait.workflow import call_again

Halt = Callable[[], Stop]  # returns the stop to raise when the person leaves the debugger

_OURS = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_BEGIN = call_again.__code__  # the frames below it are those of the run
_PACKAGES = ("site-packages", "dist-packages")


# ── frames ───────────────────────────────────────────────────────────────────────────────────


class ProgramPoint(NamedTuple):
    """The point at which a program stands."""

    frame: FrameType
    trace: TracebackType | None = None  # of the error that ended the frame; None: it is going on
    is_ours: bool = False  # True: no code but Plait's own is at work there


def find_point() -> ProgramPoint | None:
    """Return the point of the program that led here: its innermost frame, else the frame that
    raised the error which is being handled, else the innermost `forward` of Plait.
    """
    frames: list[FrameType] = []
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not _BEGIN:
        frames.append(frame)
        frame = frame.f_back
    for frame in frames:
        if is_program_frame(frame):
            return ProgramPoint(frame)
    error = sys.exception()
    trace = error.__traceback__ if error is not None else None
    raised = [frame for frame, _ in traceback.walk_tb(trace) if is_program_frame(frame)]
    if raised:
        return ProgramPoint(raised[-1], trace)
    ours = [frame for frame in frames if frame.f_code.co_name == "forward"]
    return ProgramPoint(ours[0], is_ours=True) if ours else None


def is_program_frame(frame: FrameType) -> bool:
    """True for code that is neither Plait's nor the standard library's."""
    name = frame.f_code.co_filename
    if name == "<string>":  # `python -c`, or code that the standard library generates
        return frame.f_globals.get("__name__") == "__main__"
    return _is_program_file(name)


@cache
def _is_program_file(name: str) -> bool:
    if name.startswith("<frozen"):
        return False
    file = os.path.realpath(name)
    if file.startswith(_OURS + os.sep):
        return False
    library = {os.path.realpath(sysconfig.get_path(path)) for path in ("stdlib", "platstdlib")}
    is_library = any(file.startswith(folder + os.sep) for folder in library)
    return not is_library or any(part in _PACKAGES for part in file.split(os.sep))


# ── opening a debugger ───────────────────────────────────────────────────────────────────────


def open_debugger(point: ProgramPoint, halt: Halt) -> None:
    """Open the debugger of the user at a point of the program."""
    named = os.environ.get("PYTHONBREAKPOINT") or "pdb.set_trace"
    if sys.breakpointhook is sys.__breakpointhook__ and named == "pdb.set_trace":
        ProgramDebugger(halt).open(point)
    elif point.trace is not None:  # the frame is over: control does not come back to it
        _call_hook(point.frame, halt)
    else:
        _call_hook_at(point.frame, halt)


class ProgramDebugger(pdb.Pdb):
    """`pdb` for the frames of a program: it neither shows nor steps through those of Plait."""

    def __init__(self, halt: Halt) -> None:
        super().__init__(nosigint=True)
        self._halt = halt
        self._point: ProgramPoint | None = None

    def open(self, point: ProgramPoint) -> None:
        """Ask for commands now. The program goes on when this returns, traced if it was stepped."""
        self._point = point
        # pdb expects to be called by the interpreter, which traces nothing meanwhile
        sys.settrace(self._enter)
        _land()

    def _enter(self, frame: FrameType, event: str, argument: object) -> None:
        point, self._point = self._point, None
        if point is None:
            return
        above = [(each, each.f_trace) for each in _frames_above(frame)]
        self.set_trace(point.frame)
        for each, trace in above:  # the caller of the replay is not stepped through
            each.f_trace = trace
        self.interaction(point.frame if point.trace is None else None, point.trace)
        if self.quitting:
            raise self._halt()
        if point.trace is not None:
            sys.settrace(None)  # there is nothing to step through any more

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        try:
            return super().trace_dispatch(frame, event, arg)
        except BdbQuit:
            raise self._halt() from None

    def stop_here(self, frame: FrameType) -> bool:
        return is_program_frame(frame) and super().stop_here(frame)

    def get_stack(
        self, f: FrameType | None, t: TracebackType | None
    ) -> tuple[list[tuple[FrameType, int]], int]:
        stack, at = super().get_stack(f, t)
        begins = [at for at, (frame, _) in enumerate(stack) if frame.f_code is _BEGIN]
        below = stack[begins[-1] :] if begins else stack
        own = [entry for entry in below if is_program_frame(entry[0])]
        if not own:  # those of Plait, in the run
            return below, max(at - len(stack) + len(below), 0)
        return own, own.index(stack[at]) if stack[at] in own else len(own) - 1


def _frames_above(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames that called the program of the run."""
    is_above = False
    while frame is not None:
        is_above = is_above or frame.f_code is _BEGIN
        if is_above:
            yield frame
        frame = frame.f_back


def _land() -> None:
    """Be called: the call is where a debugger is entered."""


# ── other debuggers ──────────────────────────────────────────────────────────────────────────


def _call_hook_at(frame: FrameType, halt: Halt) -> None:
    """Call the hook as soon as control is back in a frame."""
    before = sys.gettrace()
    is_called = False

    def trace_frame(at: FrameType, event: str, argument: object) -> Any:
        nonlocal is_called
        if is_called:
            return None
        is_called = True
        at.f_trace, at.f_trace_opcodes = None, False
        _call_hook(at, halt)
        if sys.gettrace() is trace_others:  # it only looked
            sys.settrace(before)
        return None

    def trace_others(at: FrameType, event: str, argument: object) -> None:
        return None

    # the first opcode after the call: a debugger that is set there stops at the line that follows
    frame.f_trace, frame.f_trace_opcodes = trace_frame, True
    sys.settrace(trace_others)


def _call_hook(frame: FrameType, halt: Halt) -> None:
    """Call `sys.breakpointhook` in a frame with the file, line, globals and locals of another."""
    source = "__import__('sys').breakpointhook()"
    code = compile(source, frame.f_code.co_filename, "eval")
    code = code.replace(co_name=frame.f_code.co_name, co_firstlineno=frame.f_lineno)
    try:
        eval(code, frame.f_globals, frame.f_locals)
    except BdbQuit:
        raise halt() from None
