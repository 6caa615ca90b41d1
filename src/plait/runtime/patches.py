"""Patches: code that serves both runs that began before a change and those that began after."""

from __future__ import annotations

from plait.errors import InvalidValue, NoRun
from plait.event.kinds import PatchMarked
from plait.ids import LogId
from plait.runtime.executing import executing
from plait.runtime.registry import run_of
from plait.runtime.run import Run
from plait.runtime.stack import Frame
from plait.session import Session
from plait.session.ports import Act, Draft

_NAME_MAX = 200  # characters


def patched(name: str, session: Session | None = None) -> bool:
    """Return True if the changed code is to run, False if the code before the change is.

    It is True in a new run, which notes that on record, and wherever a resumed run goes on live. It
    is False where a run made its recorded steps without the note. `session` is a branch that the
    code works on. None: the session of the call that executes here.
    """
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue("patched", f"{name!r:.80} is not a name", 'name the change: "refunds"')
    here = executing()
    run = run_of(session) if session is not None else here[0] if here is not None else None
    frame = here[1] if here is not None else None
    if run is None or frame is None:
        raise NoRun("", "decide about a patch")
    return is_patched(name, run, frame, session.id if session is not None else frame.log)


def is_patched(name: str, run: Run, frame: Frame, log: LogId) -> bool:
    """Return the same for a change of the runtime itself, in a call."""
    is_marked = run.journal.has_mark(log, name)
    if is_marked is not None:
        return is_marked
    if not run.journal.is_replay:
        act = Act(frame.actor, "program", call=frame.call)
        run.journal.defer(log, run.id, Draft(PatchMarked(name), act))
    return True
