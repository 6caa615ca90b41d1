"""Epochs: which holder of a run may write.

A log counts its own events that begin, take, move or end a run. A write names the epoch it rests
on, and is refused under another: a holder that was replaced writes nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from plait.errors import StaleEpoch
from plait.event import Event
from plait.event.kinds import (
    RunBranched,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    SessionArrived,
    SessionMoved,
)
from plait.ids import LogId

EPOCH_KINDS = frozenset(
    kind.__name__
    for kind in (
        RunStarted,
        RunBranched,
        RunResumed,
        RunFinished,
        RunFailed,
        RunCancelled,
        SessionMoved,
        SessionArrived,
    )
)
"""The kinds of event that begin, take, move or end a run: each raises the epoch of its log."""


class Fence(NamedTuple):
    """A condition of a write: this log is still at this epoch.

    A run's writes name the log where the run began.
    """

    log: LogId
    epoch: int


class ReadMark(NamedTuple):
    """A condition of a write: of these kinds, no event was committed to any log but those that the
    writer could see when it began to read.

    Those are all events up to `number`, which was settled then, and the events after it with the
    numbers in `seen`, which were visible and not settled. So the condition fails if there is an
    event of these kinds with a number above `number` that is not in `seen`. An event that is seen
    later, while the writer reads, fails it, too: the writer reads again. `read_mark` makes one.
    """

    number: int
    kinds: frozenset[str]
    seen: frozenset[int] = frozenset()


class TipsMark(NamedTuple):
    """A condition of a write: of these kinds, no event stands in some logs after the tips that the
    writer has read up to.

    Events of one log are committed in the order of their seqs, so a tip needs no settled number.
    """

    kinds: frozenset[str]
    tips: Mapping[LogId, int]  # 0: the log was not there


def epochs_raised(events: Sequence[Event]) -> int:
    """Return by how much these events raise the epoch of their log."""
    raised = 0
    for event in events:  # each append comes by here
        raised += event.kind in EPOCH_KINDS
    return raised


def check_epoch(fence: Fence, found: int, raised: int = 0) -> None:
    """Raise `StaleEpoch` unless the log of a fence is at its epoch.

    `raised` is by how much the writer's own events have moved it since.
    """
    if found != fence.epoch + raised:
        raise StaleEpoch(fence.log, fence.epoch, found)
