"""Branches of a session: forks, detached roots, successors and rewinds."""

from __future__ import annotations

from typing import Literal

from plait.errors import InvalidValue, RunOpen
from plait.event import Event
from plait.event.kinds import (
    Budget,
    FactRecorded,
    ForkedFrom,
    MessageSaid,
    ModelReplied,
    PendingAdded,
    Place,
    PlacementChanged,
    Rewound,
    SessionOpened,
    ToolResolved,
    ToolReturned,
)
from plait.ids import Digest
from plait.session import revision
from plait.session.acting import acting_in
from plait.session.appending import append_to, run_of_others
from plait.session.arguments import check_budget
from plait.session.content import Content, pack, text_of, unpack
from plait.session.core import Core
from plait.session.events import Events, path_events
from plait.session.grants import budget_left
from plait.session.lasting import CALL_KINDS, LastingCalls
from plait.session.life import Life
from plait.session.origins import ORDINARY, origins_of
from plait.session.ports import Act, Draft, writer_of
from plait.session.state import EventRef, Fact, Known, Pending, State, Tree
from plait.session.value import S, SessionValue, core_of, next_value, value_at, value_at_seq
from plait.store import Durability, Store

QUOTE_MIN = 8  # characters that a text must share with another to count as taken from it


def fork_from(
    session: S, label: str | None, *, at: int | None, budget: Budget | None, actor: str | None
) -> S:
    """Fork a session; see `Session.fork`."""
    revision.check_label(label)
    check_budget(budget)
    if at is not None:
        session = value_at_seq(session, at)
    here = core_of(session).position
    body = ForkedFrom(here.id, here.seq, label, budget)
    made = writer_of(here.run).begin(
        here.store,
        [Draft(body, acting_in(session, actor))],
        fork=Place(here.id, here.seq, here.head),
        run=here.run,
    )
    return next_value(session, made, Life(), False if here.run is None else None)


def detach_from(session: S, title: str | None, budget: Budget | None, actor: str | None) -> S:
    """Open a detached root; see `Session.detach`."""
    core = core_of(session)
    opened = _opening(core, core.state, title, budget, detached=True)
    made = writer_of(session.run).begin(
        session.store, [Draft(opened, acting_in(session, actor))], run=session.run
    )
    return value_at(type(session), made)


def open_successor(
    session: S,
    brief: Content | None,
    *,
    title: str | None,
    budget: Budget | None,
    actor: str | None,
) -> S:
    """Open a successor; see `Session.successor`."""
    core = core_of(session)
    state, act = core.state, acting_in(session, actor)
    drafts = [Draft(_opening(core, state, title, budget), act)]
    story = state.story
    if story.placement is not None:
        placed = PlacementChanged(story.placement, story.tree.digest if story.tree else None)
        drafts.append(Draft(placed, _inherit(core, act, story.tree) if story.tree else act))
    for fact in story.facts.values():
        if fact.json is not None:
            said = core.store.event(fact.at.id).body
            reason = said.reason if isinstance(said, FactRecorded) else ""
            body = FactRecorded(fact.key, fact.value, fact.kind, fact.review_by, reason)
            drafts.append(Draft(body, _inherit(core, act, fact)))
    for work in story.pending.values():
        if not work.settled:
            body = PendingAdded(work.key, work.what, work.kind)
            drafts.append(Draft(body, _inherit(core, act, work)))
    parts, blobs = pack([brief] if brief is not None else [], "brief")
    if parts:
        quoted = (session.head,) if _is_quoted(core, text_of(parts)) else ()
        causes = tuple(dict.fromkeys((*act.causes, *quoted)))
        drafts.append(Draft(MessageSaid("user", parts), act._replace(causes=causes)))
    made = writer_of(session.run).begin(session.store, drafts, blobs=blobs, run=session.run)
    return value_at(type(session), made)


def rewind_to(session: S, to: int | Event, reason: str, actor: str | None) -> S:
    """Rewind a session; see `Session.rewind`."""
    seq = to.seq if isinstance(to, Event) else to
    if isinstance(to, Event) and to not in Events(core_of(session).position):
        raise InvalidValue(
            "to", f"{to!r} is not an event of this session", "rewind to one of session.events"
        )
    wanted = revision.place_in(session.id, seq, session.seq)
    if wanted == session.seq:
        raise InvalidValue(
            "to", f"the session is at {wanted} already", "rewind to an earlier event"
        )
    step = (
        "let it finish, or end it with session.inbox.cancel(); or rewind a fork:"
        " session.fork().rewind(…)"
    )
    run = run_of_others(session)
    is_own = run is not None and core_of(session).state.run == run
    if run is not None and is_own and core_of(value_at_seq(session, wanted)).state.run != run:
        raise RunOpen(session.short, run, "be rewound to before that run", step)
    return append_to(
        session,
        rewind_body(session, wanted, reason),
        "be rewound",
        actor=actor,
        instead=step,
        unheld=True,
    )


def rewind_body(session: SessionValue, to: int, reason: str) -> Rewound:
    """Return the event that rewinds a session to this seq, with the effects it leaves done."""
    kept = core_of(value_at_seq(session, to)).state
    return Rewound(to, reason, _not_undone(core_of(session), kept))


def recorded_durability(
    durability: Durability | None, store: Store
) -> Literal["full", "async"] | None:
    """The durability that a session records: in memory there is nothing to record."""
    if store.durability == "memory":
        return None
    return "async" if (durability or store.durability) == "async" else "full"


def durability_of(session: SessionValue) -> Durability:
    """Return the durability of a session's log: `full`, on disk at once; `async`, at the next
    boundary; `memory`, never.
    """
    return _durability_in(core_of(session))


def _durability_in(core: Core) -> Durability:
    return core.opening.durability or core.store.log(core.position.id).durability


def _opening(
    core: Core, state: State, title: str | None, budget: Budget | None, *, detached: bool = False
) -> SessionOpened:
    here = core.position
    left = budget or _budget_to_grant(core)  # a change of session is no way to a new budget
    return SessionOpened(
        title=state.title if title is None else title,
        user=state.user,
        project=state.project,
        tags={**state.tags},
        budget=left,
        continues=Place(here.id, here.seq, here.head),
        detached=detached,
        durability=recorded_durability(_durability_in(core), core.store),
        # the header of a session that a run opens says it already
        draws=budget is None and left is not None and here.run is None,
    )


def _budget_to_grant(core: Core) -> Budget | None:
    """The budget that a session that follows is granted.

    In a run it is computed from the session's own log, so that a replay computes the same.
    """
    here, left = core.position, core.state.budget_left
    return left if here.run is not None else budget_left(core.store, here.id, here.seq, left)


def _inherit(core: Core, act: Act, source: Fact | Pending | Tree) -> Act:
    """The act by which a successor records a value of the session: with the origin of that value,
    because of every event that says it.
    """
    causes = (source.at.id, *(ref.id for ref in source.also), *act.causes)
    origin = core.store.event(source.at.id).header.origin
    return act._replace(origin=origin, causes=tuple(dict.fromkeys(causes)))


def _is_quoted(core: Core, text: str) -> bool:
    """True if a text is, or repeats, content said or returned here, and some of that comes from
    outside.
    """
    store, path = core.store, core.state.story.path
    if origins_of(store, path) <= ORDINARY:
        return False
    kinds = {kind.__name__ for kind in (MessageSaid, ModelReplied, ToolReturned, ToolResolved)}
    for _, event in path_events(store, path, kinds):
        said = text_of(unpack(getattr(event.body, "parts", ()), store.get_blob))
        if min(len(said), len(text)) >= QUOTE_MIN and (said in text or text in said):
            return True
    return False


def _not_undone(core: Core, target: State) -> tuple[Digest, ...]:
    """The outcomes that a rewind to `target` leaves done: on the path that is left and not on the
    one gone back to, of effects that reached beyond the workspace.
    """
    state = core.state
    kept = Known(target.story.path)
    path = [event for _, event in path_events(core.store, state.story.path, CALL_KINDS)]
    calls = LastingCalls(path)
    done = [
        event.id
        for event in calls.outcomes()
        if EventRef(event.log, event.seq, event.id) not in kept
    ]
    # asked for and never answered: it may have happened
    lost = [
        event.id
        for event in calls.open_requests()
        if event.log == state.log and event.header.call in state.calls
    ]
    return (*done, *lost)
