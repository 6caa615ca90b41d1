"""Reasons for a run not to go on here. None is an Exception: a workflow's `except Exception` must not swallow it."""

from __future__ import annotations

from threading import current_thread, main_thread

from plait.errors import PlaitError
from plait.session import Session


class Stop(BaseException):
    """The run does not go on here. Not an Exception: a workflow's `except Exception` must not swallow it."""


class Cancelled(Stop):
    """Somebody stopped this. `by` is who wished the run to end; "": only this call of it was stopped."""

    def __init__(self, why: str = "", by: str = "") -> None:
        super().__init__(why)
        self.by = by


class Parked(Stop):
    """The run waits for somebody or something, and holds no process meanwhile. It is open: `resume` takes it up again."""

    def __init__(self, session: Session, why: str) -> None:
        self.session, self.why = session, why  # the run's own session, once it has left the workflow
        super().__init__(why)


class Halted(Stop):
    """The run goes on no further in this process, and nothing more is written: `error` says why. None: the record ends here."""

    def __init__(self, error: PlaitError | None = None) -> None:
        super().__init__(str(error) if error else "the record ends here")
        self.error = error


def ends_more_than_a_tool(error: BaseException) -> bool:
    """Whether an error that left a tool is about the whole run: a stop of it, or Ctrl-C.

    Python raises Ctrl-C in the main thread only, and as itself: in another thread, or of a class of its own, it is the tool's.
    """
    if isinstance(error, Stop):
        return True
    return type(error) is KeyboardInterrupt and current_thread() is main_thread()
