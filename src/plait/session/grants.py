"""Finds the budgets that bind a session, and the amounts spent under each.

A grant is an event: the first one of a session that was opened with a budget, a `BudgetSet`, or the
first one of a fork that got a share. It bounds its log from there on, every branch of it, merged or
not, and every session that follows it with the rest of it. A share, a rest, and a budget that code
of a run granted itself draw on the grant above as well. `session.budget.grant(…)` outside of runs
ends the grant before it for its log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from plait.event import Event
from plait.event.kinds import (
    Budget,
    BudgetSet,
    ForkedFrom,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    Place,
    SessionOpened,
    ToolRequested,
)
from plait.ids import Digest, LogId, inbox_of
from plait.session.state import NOTHING, Spent
from plait.store import Store

SPENDING = frozenset(
    {kind.__name__ for kind in (ModelAsked, ModelReplied, ModelFailed, ToolRequested)}
)
_GRANTING = frozenset({kind.__name__ for kind in (SessionOpened, BudgetSet, ForkedFrom)})


class Grant(NamedTuple):
    """A budget, and the event that grants it."""

    id: Digest
    log: LogId
    seq: int
    budget: Budget


def grants_at(store: Store, log: LogId, place: int) -> list[Grant]:
    """Return the grants that bind a lineage at a place, and those before it that it draws on; the
    innermost first.
    """
    found: list[Grant] = []
    above: Place | None = Place(log, place, Digest(""))
    while above is not None:
        events, above = store.read(above.log, 1, above.seq, kinds=_GRANTING, reverse=True), None
        for event in events:
            body: Any = event.body
            if body.budget is None:
                continue
            found.append(Grant(event.id, event.log, event.seq, body.budget))
            if not is_share(store, event):
                break
            above = body.continues if isinstance(body, SessionOpened) else None
    return found


def spent_under(store: Store, grant: Grant) -> Spent:
    """Add up the amounts that a log, all its branches and the sessions that follow them spent from
    a grant on, each event once.
    """
    spent = NOTHING
    logs = [(grant.log, grant.seq, grant.seq)]
    while logs:
        log, place, floor = logs.pop()
        known = store.log(log)
        first = max(place, known.place) + 1
        regrants = (
            event.seq
            for event in store.read(log, first, known.tip, kinds={BudgetSet.__name__})
            if not is_share(store, event)
        )
        last = next(regrants, known.tip + 1) - 1
        spent += spent_in(store.read(log, first, last, kinds=SPENDING))
        for row in store.rows("session", "session", {"parent": log}, limit=2**31):
            forked_at = int(row["place"] or 0)
            # a branch can be forked below the place its own parent was forked at
            if floor <= forked_at <= last:
                logs.append((LogId(str(row["log"])), forked_at, floor))
        for row in store.rows("session", "successor", {"continues": log}, limit=2**31):
            opened = next(store.read(LogId(str(row["log"])), 1, 1))
            body: Any = opened.body
            if (
                body.budget is not None
                and floor <= body.continues.seq <= last
                and is_share(store, opened)
            ):
                logs.append((opened.log, 0, 0))  # it counts its places anew
    return spent


def budget_left(store: Store, log: LogId, place: int, own: Budget | None) -> Budget | None:
    """Return the rest of a budget as the store is now, branches that were never merged counted.

    `own` is the rest that its own log leaves.
    """
    for grant in grants_at(store, log, place) if own is not None else ():
        spent, most = spent_under(store, grant), grant.budget
        own = Budget(
            tokens_max=_least(own and own.tokens_max, most.tokens_max, spent.tokens),
            cost_usd_max=_least(
                own and own.cost_usd_max, most.cost_usd_max, spent.cost_usd_nano / 1e9
            ),
            wall_s_max=own and own.wall_s_max,
            steps_max=_least(own and own.steps_max, most.steps_max, spent.model_calls),
            tool_calls_max=_least(
                own and own.tool_calls_max, most.tool_calls_max, spent.tool_calls
            ),
        )
    return own


Number = TypeVar("Number", int, float)


def _least(own: Number | None, most: Number | None, spent: Number) -> Number | None:
    """Return the tighter of two limits, the second less the amount spent of it.

    None: there is no limit.
    """
    left = [each for each in (own, None if most is None else most - spent) if each is not None]
    return max(type(left[0])(0), min(left)) if left else None


def spent_in(events: Iterable[Event]) -> Spent:
    """Add up the amounts that these events spent."""
    spent = NOTHING
    for event in events:
        if event.kind in SPENDING:
            spent += spent_by(event.body)
    return spent


def spent_by(body: Any) -> Spent:
    """Return the amounts that one event adds to a bill."""
    if isinstance(body, ModelAsked):
        return Spent(model_calls=1)
    if isinstance(body, ToolRequested):
        return Spent(tool_calls=1)
    if body.usage is None:  # it failed before anything was counted
        return NOTHING
    return Spent(body.usage, body.price.cost_usd_nano if body.price else 0, 0 if body.price else 1)


def is_share(store: Store, event: Event) -> bool:
    """Return True if a grant draws on the one above: that of a fork does, the rest of a budget
    does, and code of a run cannot raise its own limit.

    A grant that was sent to an open run is written by that run, with the event in the inbox as its
    cause: it is no share.
    """
    body = event.body if event.kind == SessionOpened.__name__ else None
    if isinstance(body, SessionOpened):
        return body.continues is not None and (body.draws or event.header.run is not None)
    if event.kind != BudgetSet.__name__ or event.header.run is None:
        return event.kind == ForkedFrom.__name__
    inbox = inbox_of(event.log)
    return not any(store.event(cause).log == inbox for cause in event.header.causes)
