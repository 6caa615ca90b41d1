"""Budgets, enforced before the spend.

What an ask may cost is set aside before it is made; what it did cost replaces that when it is answered. All branches of a run draw on one
pool; a fork with a budget of its own draws on that as well. When there is not enough left, the agent is told so and answers within what is
kept back for that; if not even that is left, the run ends. Either way the refusal is an event, and what is on record is not judged again.
"""

from __future__ import annotations

from typing import NamedTuple

from plait.errors import BudgetExceeded
from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import Failure, Price, Usage
from plait.model.base import Model
from plait.model.scripted import ScriptedModel
from plait.runtime.effects import AskModel
from plait.runtime.pool import Pool, Refusal, Reservation, estimate, price_of
from plait.runtime.run import Run, record, run_of
from plait.session import Session
from plait.session.ports import Act, Draft, store_at
from plait.session.state import NOTHING, Spent

SERVICE = "service:plait"
LAST_WORDS = "The budget is nearly used up ({limit}). Answer now with what you have, without calling tools."


class Afforded(NamedTuple):
    """An ask that may be made, and what is set aside for it."""

    session: Session
    effect: AskModel
    reservation: Reservation | None = None
    reserved: Usage | None = None
    refusal: k.BudgetRefused | None = None  # why this is to be the last word


def pool_of(session: Session, run: Run, elsewhere: Spent = NOTHING, wall_s: float = 0.0) -> Pool | None:
    """What a run may draw on: the session's budget, less what was spent of it. None: it is unlimited."""
    if session.budget is None:
        return None
    spent = session.spent_of_budget + elsewhere
    return Pool(session.budget, spent=spent, wall_s=wall_s, clock=lambda: run.io.clock() / 1e6)


# ── models ───────────────────────────────────────────────────────────────────────────────────


def afford(session: Session, effect: AskModel) -> Afforded:
    """Set aside what an ask may cost, before it is made."""
    run = run_of(session)
    if run is None:
        return Afforded(session, effect)
    if run.follows(session):
        step = run.peek(session)
        body = step.body if step is not None and step.kind == k.BudgetRefused.__name__ else None
        return _refused(session, effect, body) if isinstance(body, k.BudgetRefused) else Afforded(session, effect)
    pool = run.pool(session.id)
    if pool is None:
        return Afforded(session, effect)
    usage = estimate(effect.prompt.tokens * 4, effect.prompt.setup.parameters)
    cost = price_of(_priced(effect.model), usage)
    tokens = usage.input_tokens + usage.output_tokens
    found = pool.reserve(tokens=tokens, cost_usd_nano=cost, steps=1)
    if isinstance(found, Reservation):
        return Afforded(session, effect, found, usage)
    last = pool.reserve(tokens=tokens, cost_usd_nano=cost, steps=1, reserve=True) if not effect.aside else found
    body = k.BudgetRefused(found.limit, found.asked, found.left, isinstance(last, Refusal))
    told = _refused(session, effect, body)
    return told._replace(reservation=last if isinstance(last, Reservation) else None, reserved=usage)


def _refused(session: Session, effect: AskModel, body: k.BudgetRefused) -> Afforded:
    """Say that the budget does not allow it; what is kept back allows an answer, or it is over."""
    act = Act(SERVICE, "program")
    if body.final:
        session, _ = record(session, [Draft(body, act)])
        raise BudgetExceeded(body.limit, body.asked, body.left, session)
    said = k.MessageSaid("user", (k.Text(LAST_WORDS.format(limit=body.limit)),), "plait")
    session, _ = record(session, [Draft(body, act), Draft(said, act._replace(causes=(0,)))])
    return Afforded(session, effect._replace(choice="none"), refusal=body)


def afford_again(session: Session, effect: AskModel) -> Afforded:
    """Set aside what another attempt may cost: it may use what is kept back, since the first one was allowed."""
    run = run_of(session)
    pool = run.pool(session.id) if run is not None and not run.follows(session) else None
    if pool is None:
        return Afforded(session, effect)
    usage = estimate(effect.prompt.tokens * 4, effect.prompt.setup.parameters)
    tokens, cost = usage.input_tokens + usage.output_tokens, price_of(_priced(effect.model), usage)
    found = pool.reserve(tokens=tokens, cost_usd_nano=cost, steps=1, reserve=True)
    if isinstance(found, Refusal):
        return _refused(session, effect, k.BudgetRefused(found.limit, found.asked, found.left, True))
    return Afforded(session, effect, found, usage)


def lose(session: Session, model: Model, usage: Usage | None) -> Price | None:
    """A call that was lost with the process that made it counts as what was set aside for it; returns what that costs."""
    if usage is None:
        return None
    run = run_of(session)
    pool, cost = run.pool(session.id) if run is not None else None, price_of(_priced(model), usage)
    if pool is not None:
        pool.count(Spent(usage, cost or 0))
    return Price(cost, "as it was set aside") if cost is not None else None


def settle(session: Session, reservation: Reservation | None, usage: Usage | None, price: Price | None) -> None:
    """What an ask did cost, as far as that is known."""
    run = run_of(session)
    pool = run.pool(session.id) if run is not None and reservation is not None else None
    if pool is None or reservation is None:
        return
    tokens = usage.input_tokens + usage.output_tokens if usage is not None else None
    pool.settle(reservation, tokens=tokens, cost_usd_nano=price.cost_usd_nano if price is not None else None)


def _priced(model: Model) -> str:
    return "scripted" if isinstance(model, ScriptedModel) else model.name


# ── tools ────────────────────────────────────────────────────────────────────────────────────


def afford_tool(session: Session) -> Refusal | None:
    """Set a tool call aside; None: it may be made."""
    run = run_of(session)
    pool = run.pool(session.id) if run is not None and not run.follows(session) else None
    found = pool.reserve(tool_calls=1) if pool is not None else None
    if pool is not None and isinstance(found, Reservation):
        pool.settle(found)
        return None
    return found if isinstance(found, Refusal) else None


def refusal_of(refusal: Refusal) -> tuple[k.BudgetRefused, Failure]:
    why = f"the budget does not allow it: {refusal.limit} ({refusal.left:g} left)"
    return k.BudgetRefused(refusal.limit, refusal.asked, refusal.left), Failure("BudgetExceeded", f"{why}. It was not run")


def wall_of(session: Session, started: Event) -> float:
    """How long a run was held so far, in seconds: from each start to the last thing it did before the next."""
    store = store_at(session.store)
    held, begun, last = 0, started.header.time, started.header.time
    for event in store.read(session.id, started.seq + 1, session.place):
        if event.header.run != started.header.run:
            continue
        if event.kind == k.RunResumed.__name__:
            held, begun = held + max(0, last - begun), event.header.time
        last = event.header.time
    return (held + max(0, last - begun)) / 1e6
