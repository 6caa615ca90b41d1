"""Finds the actor, the origin and the causes of an event that a session appends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from plait.errors import InvalidValue, PlaitError
from plait.event import Event
from plait.event.codec import check_origin
from plait.ids import Digest, is_digest
from plait.session import revision
from plait.session.about import event_of_value, events_about, named_events
from plait.session.arguments import principal_of, value_text
from plait.session.events import Events
from plait.session.finding import open_value
from plait.session.origins import ORDINARY
from plait.session.ports import UNNAMED, Act, is_bound, writer_of
from plait.session.value import SessionValue, core_of
from plait.session.views import Attachment, Effect, Link, Message, RunView, Validation

Cause: TypeAlias = (
    "Event | SessionValue | Message | Effect | Attachment | Validation | Link | RunView | int | str"
)
# Events, values that stand for one (an effect, say, or a run for its end), places of this session,
# sessions for their last event, names of facts, pending work, verdicts and evidence, the id of an
# event, a place as `SHORT@4`, the last result or text.
Because: TypeAlias = "Cause | Sequence[Cause]"

_CAUSES = (
    "pass an event or its id, an effect, message, run, attachment, verdict or link, a session, a"
    " place of this session (4) or of another (SHORT@4), the name of a fact, pending work, verdict"
    " or evidence, or the last result or text"
)
_ORIGINS = {"human": "human", "agent": "model"}


def act_of(actor: str, causes: tuple[Digest | int, ...] = (), origin: str | None = None) -> Act:
    """Return the act of an actor. `origin`: None is the one that goes with the actor."""
    known = (
        check_origin(origin)
        if origin is not None
        else _ORIGINS.get(actor.partition(":")[0], "program")
    )
    return Act(actor, known, causes=causes)


def acting_in(
    session: SessionValue,
    actor: str | None = None,
    because: Because = (),
    origin: str | None = None,
) -> Act:
    """Return the act that an append records: as its caller says, else as the writer knows."""
    position = core_of(session).position
    known = writer_of(position.run).acting(position.store, position)
    if known is UNNAMED:  # as outside of runs
        causes = causes_of(session, because) if because != () else ()
        return act_of(actor or _principal(session), causes, origin)
    causes = (*causes_of(session, because), *known.causes)
    act = act_of(actor or known.actor or _principal(session), tuple(dict.fromkeys(causes)), origin)
    if origin is None and known.origin and (actor is None or known.origin not in ORDINARY):
        act = act._replace(origin=known.origin)
    return act._replace(call=known.call)


def _principal(session: SessionValue) -> str:
    """The principal of acts without a named actor: in a run its workflow, else the session's user,
    else the user of the process.
    """
    if is_bound(session.run):
        return writer_of(session.run).principal(session.id)
    user = core_of(session).user
    return principal_of(user) if user else writer_of(session.run).principal()


def causes_of(
    session: SessionValue, because: Because, where: str = "because"
) -> tuple[Digest, ...]:
    """The ids of the events that `because` names; `where` is the argument that names them."""
    return tuple([event.id for event in cited_events(session, because, where)])


def cited_events(session: SessionValue, because: Because, where: str = "because") -> list[Event]:
    """Return the events that `because` names, each once, as the store has them."""
    if because == ():
        return []
    items = (
        because
        if isinstance(because, Sequence) and not isinstance(because, (str, bytes))
        else [because]
    )
    try:
        found = [_cited_event(session, item, where) for item in items]
    except InvalidValue:
        shown = event_of_value(session, because)  # a result may be a list
        if shown is None:
            raise
        found = [shown.id]
    read = core_of(session).store.event  # raises for an event that is not in the store
    events = [each if isinstance(each, Event) else read(each) for each in dict.fromkeys(found)]
    return [*{event.id: event for event in events}.values()]


def _cited_event(session: SessionValue, item: object, where: str) -> Event | Digest:
    """Return an event that was read from the store, or its id."""
    if isinstance(item, int) and not isinstance(item, bool):
        seq = revision.place_in(session.id, item, session.seq)
        return Events(core_of(session).position)[seq - 1]
    return _cause_id(session, item, where)


def _cause_id(session: SessionValue, item: object, where: str) -> Digest:
    if isinstance(item, SessionValue):
        return item.head
    if isinstance(item, (Event, Message)):
        return item.id
    if isinstance(item, (Effect, Attachment, Validation, Link, RunView)):
        return events_about(session, item, where)[0][0].id
    if isinstance(item, str):
        if (named := named_events(session, item)) is not None:
            return named[0][0].id
        if is_digest(item):
            return Digest(item)
    if (shown := event_of_value(session, item)) is not None:
        return shown.id
    if (
        isinstance(item, str)
        and item.rpartition("@")[0]
        and (id := _event_at(session, item)) is not None
    ):
        return id
    raise InvalidValue(where, f"{value_text(item)} stands for no event", _CAUSES)


def _event_at(session: SessionValue, name: str) -> Digest | None:
    """The id of the event at a place that is written as `SHORT@4`. None: there is none."""
    try:
        return open_value(type(session), name, core_of(session).store).head
    except PlaitError:
        return None
