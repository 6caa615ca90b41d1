"""The outcomes of runs in a worker, and what follows from each: one table.

| how it stopped | what a worker does |
|---|---|
| finished, cancelled | nothing: the run is over |
| parked | nothing: an answer, a time or a grant wakes it |
| let go | nothing: another worker takes it up |
| failed | nothing: it is taken again after a pause, while attempts are left |
| lost | nothing: another process has it |
| elsewhere | leaves it to workers on another host, on record |
| unfit | leaves it to workers with other code for a while |
| away | waits for the store |
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from plait.cluster.places import host_label
from plait.errors import (
    HasMoved,
    NeedsWorkflow,
    NothingToResume,
    PlaitError,
    ReplayDiverged,
    RunHeld,
    RunLost,
    StoreError,
    WrongStatus,
)
from plait.journal.stops import Cancelled, LetGo, NeedsHost, Parked

How = Literal[
    "finished",
    "cancelled",
    "parked",
    "let go",
    "elsewhere",
    "failed",
    "lost",
    "unfit",
    "away",
    "not now",
]


class Outcome(NamedTuple):
    how: How
    why: str = ""


def outcome_of(error: BaseException | None) -> Outcome:
    """Return how a run stopped, by the error that left it. None: there was none."""
    if error is None:
        return Outcome("finished")
    text = error.record_text if isinstance(error, PlaitError) else f"{error}"
    if isinstance(error, NeedsHost):
        return Outcome("elsewhere", host_label(error.host))
    if isinstance(error, (Parked, LetGo)):
        return Outcome("parked" if isinstance(error, Parked) else "let go", text)
    if isinstance(error, Cancelled):
        return Outcome("cancelled", text)
    if isinstance(error, (ReplayDiverged, NeedsWorkflow)):
        return Outcome("unfit", text)
    if isinstance(error, (RunHeld, RunLost)):
        return Outcome("lost", text)
    if isinstance(error, (NothingToResume, HasMoved, WrongStatus)):
        return Outcome("not now", text)
    if isinstance(error, StoreError):
        return Outcome("away", text)
    return Outcome("failed", f"{type(error).__name__}: {text}")
