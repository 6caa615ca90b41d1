"""Epochs: which holder of a run may write.

A log counts its own events that begin, take or end a run. A write names the epoch it rests on, and
is refused under another: a holder that was replaced writes nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
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
)
from plait.ids import LogId

EPOCH_KINDS = frozenset(
    kind.__name__
    for kind in (RunStarted, RunBranched, RunResumed, RunFinished, RunFailed, RunCancelled)
)
"""The kinds of event that begin, take or end a run: each raises the epoch of its log by one."""


class Fence(NamedTuple):
    """A condition of a write: this log is still at this epoch.

    A run's writes name the log where the run began.
    """

    log: LogId
    epoch: int


class ReadMark(NamedTuple):
    """A condition of a write: no event of these kinds was committed, to any log, after this commit
    number, up to which the writer has read.
    """

    number: int
    kinds: frozenset[str]


def epochs_raised(events: Sequence[Event]) -> int:
    """Return by how much these events raise the epoch of their log."""
    return sum([event.kind in EPOCH_KINDS for event in events])


def check_epoch(fence: Fence, found: int, raised: int = 0) -> None:
    """Raise `StaleEpoch` unless the log of a fence is at its epoch.

    `raised` is by how much the writer's own events have moved it since.
    """
    if found != fence.epoch + raised:
        raise StaleEpoch(fence.log, fence.epoch, found)
