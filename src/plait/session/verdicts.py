"""Verdicts of a session: the last one of a name that counts, and the gates that are not met."""

from __future__ import annotations

from plait.event import Event
from plait.event.kinds import (
    FactRecorded,
    FactRetracted,
    Merged,
    MessageSaid,
    ModelReplied,
    PlacementChanged,
    ToolFailed,
    ToolResolved,
    ToolReturned,
    ValidationRecorded,
)
from plait.ids import LogId
from plait.session.core import Core
from plait.session.events import path_events
from plait.session.gates import is_counted
from plait.session.value import SessionValue, core_of

# Events after which a verdict no longer holds.
_MATERIAL = frozenset(
    kind.__name__
    for kind in (
        MessageSaid,
        ModelReplied,
        ToolReturned,
        ToolFailed,
        ToolResolved,
        FactRecorded,
        FactRetracted,
        Merged,
        PlacementChanged,
    )
)


def last_verdict(session: SessionValue, name: str) -> tuple[bool, int] | None:
    """The last verdict of a name that counts: True if it passed, and its seq. None: there is
    none.
    """
    found, _ = _last_verdicts(core_of(session), name)
    return (
        (found.body.passed, found.seq)
        if found is not None and isinstance(found.body, ValidationRecorded)
        else None
    )


def unmet_gates(session: SessionValue) -> dict[str, str]:
    """The gates that would hold a merge or a close right now, and why."""
    core = core_of(session)
    tree = core.state.story.tree
    found: dict[str, str] = {}
    for name, gate in core.state.gates.items():
        verdict, other = _last_verdicts(core, name)
        body = verdict.body if verdict is not None else None
        if verdict is None or not isinstance(body, ValidationRecorded):
            found[name] = "nobody gave a verdict"
            if other is not None:
                found[name] = (
                    f"the verdict at {other.seq} is by {other.actor} and does not count: only"
                    f" that of {gate.by} does"
                )
        elif not body.passed:
            found[name] = f"the verdict at {verdict.seq} is that it failed"
        elif body.tree != (tree.digest if tree else None):
            found[name] = f"the files have changed since the verdict at {verdict.seq}"
        elif (after := _material_after(core, verdict.log, body.at or verdict.seq)) is not None:
            found[name] = f"event {after} came after the verdict at {verdict.seq}"
    return found


def _last_verdicts(core: Core, name: str) -> tuple[Event | None, Event | None]:
    """The last verdict of a name that counts, and the last one that does not."""
    gate = core.state.gates.get(name)
    other: Event | None = None
    if name not in core.state.story.verdicts:
        return None, None
    for span, event in path_events(
        core.store, core.state.story.path, {ValidationRecorded.__name__}, reverse=True
    ):
        body = event.body
        if span.via or not isinstance(body, ValidationRecorded) or body.name != name:
            continue  # a verdict given in a branch was given before the merge
        if gate is None or is_counted(gate.by, event):
            return event, other
        other = other or event
    return None, other


def _material_after(core: Core, log: LogId, seq: int) -> int | None:
    """The seq of the first event on the path that makes a verdict given there out of date."""
    after = False
    for span in core.state.story.path:
        here = span.log == log and span.first <= seq <= span.last
        if (here or after) and not (span.via and not span.apart):
            first = seq + 1 if here else span.first
            for event in core.store.read(span.log, first, span.last, kinds=_MATERIAL):
                return event.seq
        after = after or here
    return None
