"""Finds the budgets that bind a session, and what was spent under each.

A grant is an event: the first one of a session that was opened with a budget, a `BudgetSet`, or the first one of a fork that got a share.
It bounds its log from there on, and every branch of it, merged or not. A share, and a budget that code of a run granted itself, draw on
the grant above as well. `session.grant(…)` outside of runs ends the grant before it for its log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from plait.event import Event
from plait.event.kinds import Budget, BudgetSet, ForkedFrom, ModelAsked, ModelFailed, ModelReplied, SessionOpened, ToolRequested
from plait.ids import Digest, LogId, inbox_of
from plait.session.state import NOTHING, Spent
from plait.store import Store

SPENDING = frozenset({kind.__name__ for kind in (ModelAsked, ModelReplied, ModelFailed, ToolRequested)})
_GRANTING = frozenset({kind.__name__ for kind in (SessionOpened, BudgetSet, ForkedFrom)})


class Grant(NamedTuple):
    """A budget, and the event that grants it."""

    id: Digest
    log: LogId
    seq: int
    budget: Budget


def grants_at(store: Store, log: LogId, place: int) -> list[Grant]:
    """Return the grants that bind a lineage at a place, the innermost first."""
    found: list[Grant] = []
    for event in store.read(log, 1, place, kinds=_GRANTING, reverse=True):
        body: Any = event.body
        if body.budget is not None:
            found.append(Grant(event.id, event.log, event.seq, body.budget))
            if not is_share(store, event):
                break
    return found


def spent_under(store: Store, grant: Grant) -> Spent:
    """Add up what a log and all its branches spent from a grant on, each event once."""
    spent = NOTHING
    logs = [(grant.log, grant.seq)]
    while logs:
        log, place = logs.pop()
        known = store.log(log)
        first = max(place, known.place) + 1
        regrants = (event.seq for event in store.read(log, first, known.tip, kinds={BudgetSet.__name__}) if not is_share(store, event))
        last = next(regrants, known.tip + 1) - 1
        spent += spent_in(store.read(log, first, last, kinds=SPENDING))
        for row in store.rows("session", "session", {"parent": log}, limit=2**31):
            forked_at = int(row["place"] or 0)
            if grant.seq <= forked_at <= last:  # a branch can be forked below the place its own parent was forked at
                logs.append((LogId(str(row["log"])), forked_at))
    return spent


def budget_left(store: Store, log: LogId, place: int, own: Budget | None) -> Budget | None:
    """Return what remains of a budget as the store is now, branches that were never merged counted. `own` is what its own log leaves."""
    for grant in grants_at(store, log, place) if own is not None else ():
        spent, most = spent_under(store, grant), grant.budget
        own = Budget(
            tokens_max=_least(own and own.tokens_max, most.tokens_max, spent.tokens),
            cost_usd_max=_least(own and own.cost_usd_max, most.cost_usd_max, spent.cost_usd_nano / 1e9),
            wall_s_max=own and own.wall_s_max,
            steps_max=_least(own and own.steps_max, most.steps_max, spent.model_calls),
            tool_calls_max=_least(own and own.tool_calls_max, most.tool_calls_max, spent.tool_calls),
        )
    return own


Number = TypeVar("Number", int, float)


def _least(own: Number | None, most: Number | None, spent: Number) -> Number | None:
    """Return the tighter of two limits, the second less what was spent of it. None: there is no limit."""
    left = [each for each in (own, None if most is None else most - spent) if each is not None]
    return max(type(left[0])(0), min(left)) if left else None


def spent_in(events: Iterable[Event]) -> Spent:
    """Add up what these events spent."""
    spent = NOTHING
    for event in events:
        if event.kind in SPENDING:
            spent += spent_by(event.body)
    return spent


def spent_by(body: Any) -> Spent:
    """Return what one event adds to a bill."""
    if isinstance(body, ModelAsked):
        return Spent(model_calls=1)
    if isinstance(body, ToolRequested):
        return Spent(tool_calls=1)
    if body.usage is None:  # it failed before anything was counted
        return NOTHING
    return Spent(body.usage, body.price.cost_usd_nano if body.price else 0, 0 if body.price else 1)


def is_share(store: Store, event: Event) -> bool:
    """Say whether a grant draws on the one above: a fork's does, and code of a run cannot raise its own limit.

    A grant that was sent to an open run is written by that run, with the event in the inbox as its cause: it is no share.
    """
    if event.kind != BudgetSet.__name__ or event.header.run is None:
        return event.kind == ForkedFrom.__name__
    inbox = inbox_of(event.log)
    return not any(store.event(cause).log == inbox for cause in event.header.causes)
