"""Appending as the runtime does: to the journal of a run, or outside of any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from plait.calls.tool_call import ToolCallState
from plait.errors import StaleHead
from plait.event import Event
from plait.ids import Digest
from plait.journal.standing import Standing
from plait.journal.writer import direct_writer
from plait.runtime.registry import run_of
from plait.session import Session
from plait.session.ports import Draft, Position
from plait.session.value import advance, keep_snapshot_if_due, position_of
from plait.store import Fence, HeadsQuestion

Blobs = Mapping[Digest, bytes]


def append_events(
    session: Session,
    drafts: Sequence[Draft],
    blobs: Blobs | None = None,
    *,
    held: Sequence[Event] = (),
    merges: tuple[Digest, ...] = (),
) -> tuple[Session, list[Event]]:
    """Append to a session; return its next value and the events as they are on record.

    `merges` are the heads of branches that the first event merges.
    """
    run = run_of(session)
    append = run.journal.append if run is not None else direct_writer().write
    at, events = append(position_of(session), drafts, merges=merges, blobs=blobs, held=held)
    after = advance(session, at, *[type(draft.body).__name__ for draft in drafts])
    # a recorded event had its snapshot when it was written, and a replay writes nothing
    if run is None or (events and run.journal.standing_of(events[-1]) is Standing.LIVE):
        keep_snapshot_if_due(after, since=session.seq - len(held))
    return after, events


def append_at_tip(
    session: Session,
    drafts: Sequence[Draft] | Callable[[Session], Sequence[Draft]],
    blobs: Blobs | None = None,
) -> tuple[Session, list[Event]]:
    """Append where the log ends by now: for what has to be on record, whatever others wrote.

    Drafts may depend on where that is.
    """
    for _ in range(100):
        try:
            return append_events(session, drafts(session) if callable(drafts) else drafts, blobs)
        except StaleHead:
            session = session.reload()
    return append_events(session, drafts(session) if callable(drafts) else drafts, blobs)


def append_to_call(
    session: Session,
    call: ToolCallState,
    drafts: Sequence[Draft] | Callable[[Session], Sequence[Draft]],
    blobs: Blobs | None = None,
) -> Session:
    """Append events of a call, and feed them to it."""
    session, events = append_at_tip(session, drafts, blobs)
    call.feed(events)
    return session


def append_around_run(
    at: Position,
    drafts: Sequence[Draft],
    fences: Sequence[Fence] = (),
    question: HeadsQuestion | None = None,
) -> Position:
    """Append where a log ends by now, around its run: for what decides which process has it.
    Returns the position after it.
    """
    writer = direct_writer()
    while True:  # each time around another writer was first
        try:
            return writer.write(at, drafts, fences=fences, question=question)[0]
        except StaleHead:
            at = writer.latest(at)
