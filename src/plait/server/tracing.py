"""Answers about causes: the prompt as it was sent, why, and influence."""

from __future__ import annotations

import re

import msgspec

from plait.errors import PlaitError
from plait.event import Event
from plait.event.kinds import ModelAsked
from plait.ids import Digest, LogId, inbox_of
from plait.outline.shapes import SeqRef
from plait.runtime.sent import Sent, rebuild_prompt
from plait.server.desk import ServerDesk
from plait.server.params import AboutParams, SessionParams
from plait.server.shapes import LeftOutRow, PromptShape, ToolSpecShape, TraceShape, TraceStep
from plait.session import Session
from plait.session.listing import session_row
from plait.session.trace import Trace

_SEQ = re.compile(r"-?[0-9]{1,18}\Z")


def read_prompt(desk: ServerDesk, params: SessionParams) -> PromptShape:
    """Return the prompt that was sent at a place, or the last one before it."""
    session = desk.open(params.session)
    found = rebuild_prompt(session)
    setup = msgspec.to_builtins(found.setup)
    return PromptShape(
        session=found.event.log,
        place=found.event.seq,
        event=found.event.id,
        agent=found.event.actor,
        model=found.model,
        as_sent=found.matches,
        digest=found.digest,
        recorded=found.recorded,
        instruction=setup["instruction"],
        tools=tuple(
            [ToolSpecShape(spec.name, spec.description, spec.schema) for spec in found.setup.tools]
        ),
        parameters=found.parameters,
        output=setup.get("output"),
        view=setup.get("view", {}),
        turns=tuple([msgspec.to_builtins(turn) for turn in found.turns]),
        left_out=tuple(
            [LeftOutRow(each.log, each.seq, each.kind, each.why) for each in found.left_out]
        ),
        new_from=_new_from(desk, session, found),
    )


def _new_from(desk: ServerDesk, session: Session, found: Sent) -> int:
    """Return the index of the first turn that the agent's prompt before this one did not have."""
    before = _asked_before(desk, found.event)
    if before is None:
        return 0
    try:
        earlier = rebuild_prompt(session, before)
    except PlaitError:  # parts of it are erased: all of it counts as new
        return 0
    pairs = zip(earlier.turns, found.turns, strict=False)
    return next(
        (at for at, (old, new) in enumerate(pairs) if old != new),
        min(len(earlier.turns), len(found.turns)),
    )


def _asked_before(desk: ServerDesk, asked: Event) -> Event | None:
    """Return the ask of the same agent before this one; None: it is the first."""
    kinds = {ModelAsked.__name__}
    for event in desk.store.read(asked.log, 1, asked.seq - 1, kinds=kinds, reverse=True):
        if event.actor == asked.actor and event.header.call != asked.header.call:
            return event
    return None


def read_why(desk: ServerDesk, params: AboutParams) -> TraceShape:
    """Tell where something comes from."""
    session = desk.open(params.session)
    return _trace(desk, session.why(_subject(session, params.about), limit=params.limit))


def read_influence(desk: ServerDesk, params: AboutParams) -> TraceShape:
    """Tell what became of something."""
    session = desk.open(params.session)
    found = session.lineage.influence(_subject(session, params.about), limit=params.limit)
    return _trace(desk, found)


def _subject(session: Session, about: str) -> str | int:
    """Return what is asked about: a seq, or a text. A number in quotes is a text."""
    if not about:
        return session.seq
    if len(about) > 2 and about[0] == about[-1] == '"' and _SEQ.match(about[1:-1]):
        return about[1:-1]
    return int(about) if _SEQ.match(about) and about not in session.facts else about


def _trace(desk: ServerDesk, found: Trace) -> TraceShape:
    places = _places(desk, found)
    steps = [
        TraceStep(
            step.depth,
            step.how,
            step.id,
            step.log,
            step.seq,
            step.kind,
            step.branch,
            step.actor,
            step.time,
            step.says,
            step.relation,
            step.reason,
            step.placement,
            step.files,
            places[step.id],
        )
        for step in found
    ]
    return TraceShape(found.about, found.complete, tuple(steps))


def _places(desk: ServerDesk, found: Trace) -> dict[Digest, SeqRef | None]:
    """Return the place at which a page shows each event of a trace. An inbox has no page: its
    events are shown where the session heard them, or spoke of them last.
    """
    owners = {inbox_of(step.log): step.log for step in found}
    spots = dict[LogId, SeqRef]()  # the step of each session that was told last
    firsts = dict[LogId, SeqRef]()
    for step in found:
        firsts.setdefault(step.log, SeqRef(step.log, step.seq))
    sessions = {log for log in firsts if session_row(desk.store, log)}
    places = dict[Digest, SeqRef | None]()
    for step in found:
        here = SeqRef(step.log, step.seq)
        if step.log in sessions:
            places[step.id] = spots[step.log] = here
        else:
            owner = owners.get(step.log)
            places[step.id] = None if owner is None else spots.get(owner) or firsts[owner]
    return places
