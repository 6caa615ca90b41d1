"""Reasons for a run not to go on here.

None is an Exception: a workflow's `except Exception` must not swallow it.
"""

from __future__ import annotations

from plait.errors import PlaitError
from plait.inside import Stop
from plait.session import Session


class Cancelled(Stop):
    """Somebody stopped this.

    `by` is who wished the run to end; "": only this call of it was stopped.
    """

    def __init__(self, why: str = "", by: str = "") -> None:
        super().__init__(why)
        self.by = by


class Parked(Stop):
    """The run waits for somebody or something, and holds no process meanwhile.

    It is open: `resume` takes it up again.
    """

    def __init__(self, session: Session, why: str) -> None:
        # the run's own session, once it has left the workflow
        self.session, self.why = session, why
        super().__init__(why)


class LetGo(Stop):
    """The process lets the run go before its next effect, and writes nothing about it: a worker is
    drained. The run is open, and another process takes it up.
    """


class NeedsHost(LetGo):
    """The run needs a folder of another machine, and is left to a process there."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(why)
        self.host = host


class Halted(Stop):
    """The run goes on no further in this process, and nothing more is written: `error` says why.

    None: the record ends here.
    """

    def __init__(self, error: PlaitError | None = None) -> None:
        super().__init__(str(error) if error else "the record ends here")
        self.error = error
