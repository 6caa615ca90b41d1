"""Marks: the event that a turn comes from, and the turns that a compaction takes away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from plait.event import Event
from plait.event import kinds as k
from plait.ids import Digest, LogId
from plait.model.base import Turn
from plait.session.state import Span


class Mark(NamedTuple):
    """The event that a turn comes from."""

    # on the session's own path: which numbering of places, and the place; an event that a merge
    # brought stands at the place of the merge
    at: tuple[int, int]
    via: int  # that merge; 0: none
    log: LogId
    seq: int  # of the event that made it
    until: int  # the last place it stands for: its own, unless it is a summary
    kind: str
    # the subject that it is a word on: ("fact", "db"); None: nothing that has to stay
    about: tuple[str, str] | None = None
    ends: bool = False  # True: the subject is over with it
    id: Digest = Digest("")  # of the event


class LeftOut(NamedTuple):
    """An event that a prompt does not show, and why."""

    log: LogId
    seq: int
    kind: str
    why: str


def mark_of(event: Event, span: Span | None, epoch: int) -> Mark:
    via = span.via if span else 0
    at = epoch, via or event.seq
    return Mark(at, via, event.log, event.seq, event.seq, event.kind, id=event.id)


def leaves_session(epoch: int, first: int, last: int) -> Callable[[Mark], bool]:
    """Return a test for turns that leave with a compaction of the session itself: those of its own
    path, and with a merge the branches it brought.
    """
    low = (epoch, first) if first > 1 else (0, 0)
    return lambda mark: low <= mark.at <= (epoch, last)


def leaves_branch(there: Mark, first: int, last: int) -> Callable[[Mark], bool]:
    """Return a test for turns that leave with a compaction in a merged branch: those of that
    branch, and none of ours.
    """
    return lambda mark: (
        mark.via == there.via and mark.log == there.log and first <= mark.until <= last
    )


def standing_knowledge(turns: Sequence[tuple[Turn, Mark]]) -> list[tuple[Turn, Mark]]:
    """Return the last word on each subject. A subject that is over is left out, if its first word
    is among these turns, too.
    """
    found: dict[tuple[str, str], tuple[Turn, Mark]] = {}
    for turn, mark in turns:
        if mark.about is not None:
            before = found.pop(mark.about, None)
            if before is None or not mark.ends:
                found[mark.about] = turn, mark
    return list(found.values())


def subject_of(body: Any, branch: str | None) -> tuple[tuple[str, str], bool]:
    """Return the subject of a word, and True if the word ends it.

    Each branch has subjects of its own: a merge decides between them.
    """
    where = f"{branch}/" if branch else ""
    if isinstance(body, (k.FactRecorded, k.FactRetracted)):
        return (f"{where}fact", body.key), isinstance(body, k.FactRetracted)
    if isinstance(body, (k.PendingAdded, k.PendingSettled)):
        return (f"{where}pending", body.key), isinstance(body, k.PendingSettled)
    assert isinstance(body, k.ValidationRecorded)
    return (f"{where}verdict", body.name), False
