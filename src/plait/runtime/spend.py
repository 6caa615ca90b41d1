"""Budgets, enforced before the spend.

What an ask may cost is set aside before it is made; what it did cost replaces that when it is
answered. All branches of a run draw on one pool; a fork with a budget of its own draws on that as
well. When there is not enough left, the agent is told so and answers within what is kept back for
that; if not even that is left, the run ends. Either way the refusal is an event, and what is on
record is not judged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple, cast
from weakref import WeakSet

import msgspec

from plait.errors import BudgetExceeded
from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import Budget, Failure, Parts, Price, Reasoning, Usage
from plait.ids import Digest
from plait.model.base import Fault, Model, Reply
from plait.model.prices import FREE
from plait.model.scripted import ScriptedModel
from plait.runtime.effects import AskModel
from plait.runtime.pool import (
    CHARACTERS_PER_TOKEN,
    Pool,
    Refusal,
    Reservation,
    estimate,
    price_of,
    wall_in,
)
from plait.runtime.run import Run, append_events, executing, run_of, running
from plait.session import Session
from plait.session.content import text_of
from plait.session.grants import Grant, grants_at, spent_under
from plait.session.ports import Act, Draft, store_at
from plait.session.state import Spent
from plait.session.value import spent_of_budget

SERVICE = "service:plait"
LAST_WORDS = (
    "The budget is nearly used up ({limit}). Answer now with what you have, without calling tools."
)


class Afforded(NamedTuple):
    """An ask that may be made, and what is set aside for it."""

    session: Session
    effect: AskModel
    reservation: Reservation | None = None
    reserved: Usage | None = None
    refusal: k.BudgetRefused | None = None  # why this is to be the last word


# by store and grant: runs of one process draw on one pool
_shared: dict[tuple[str, Digest], tuple[Pool, WeakSet[Run]]] = {}
_sharing = Lock()


def pool_of(session: Session, run: Run, wall_s: float = 0.0) -> Pool | None:
    """Return what a run draws on: the budgets of its session, less what all runs and branches spent
    of them. None: there is no limit.

    `wall_s` is how long the run was held before.
    """
    if session.budget.limits is None:
        return None
    grants = grants_at(store_at(session.store), session.id, session.seq)
    walls = [grant.budget.wall_s_max for grant in grants if grant.budget.wall_s_max is not None]
    above = _granted(session, grants, run)
    # The time is that of this run alone.
    limits = Budget(wall_s_max=min(walls, default=None))
    return Pool(limits, wall_s=wall_s, above=above, clock=lambda: run.io.clock() / 1e6)


def _granted(session: Session, grants: Sequence[Grant], run: Run | None) -> Pool | None:
    """Return the pool of the innermost of these grants, which draws on the others.

    A run shares it with the runs after it.
    """
    store = store_at(session.store)
    pool: Pool | None = None
    with _sharing:
        for key in [key for key, (_, runs) in _shared.items() if all(each.closed for each in runs)]:
            del _shared[key]
        for grant in reversed(grants):
            found = _shared.get((store.address, grant.id))
            if found is None:
                spent = spent_under(store, grant)
                spent = _most(spent, spent_of_budget(session)) if grant is grants[0] else spent
                limits = msgspec.structs.replace(grant.budget, wall_s_max=None)
                found = Pool(limits, spent=spent, above=pool, clock=lambda: 0.0), WeakSet[Run]()
            pool = found[0]
            if run is not None:
                found[1].add(run)
                _shared[store.address, grant.id] = found
    return pool


def _most(one: Spent, other: Spent) -> Spent:
    """Return the larger of two bills, figure by figure: one has the branches, the other what was
    merged from elsewhere.
    """
    usage = one.usage if one.tokens >= other.tokens else other.usage
    return Spent(
        usage,
        *(max(getattr(one, name), getattr(other, name)) for name in Spent.__struct_fields__[1:]),
    )


# ── models ───────────────────────────────────────────────────────────────────────────────────


def afford(session: Session, effect: AskModel) -> Afforded:
    """Set aside what an ask may cost, before it is made."""
    run = run_of(session)
    if run is None:
        return Afforded(session, effect)
    if run.follows(session):
        step = run.peek(session)
        body = step.body if step is not None and step.kind == k.BudgetRefused.__name__ else None
        return (
            _refused(session, effect, body)
            if isinstance(body, k.BudgetRefused)
            else Afforded(session, effect)
        )
    pool = run.pool(session.id)
    if pool is None:
        return Afforded(session, effect)
    usage = estimate(effect.prompt.tokens * 4, effect.prompt.setup.parameters)
    cost = _cost_of(effect.model, usage)
    tokens = usage.input_tokens + usage.output_tokens
    found = pool.reserve(tokens=tokens, cost_usd_nano=cost, steps=1)
    if isinstance(found, Reservation):
        return Afforded(session, effect, found, usage)
    last = (
        pool.reserve(tokens=tokens, cost_usd_nano=cost, steps=1, reserve=True)
        if not effect.aside
        else found
    )
    body = k.BudgetRefused(
        found.limit,
        found.asked,
        found.left,
        isinstance(last, Refusal),
        _why(found, effect.model, cost),
    )
    told = _refused(session, effect, body)
    return told._replace(
        reservation=last if isinstance(last, Reservation) else None, reserved=usage
    )


def _refused(session: Session, effect: AskModel, body: k.BudgetRefused) -> Afforded:
    """Say that the budget does not allow it; what is kept back allows an answer, or it is over."""
    act = Act(SERVICE, "program")
    if body.final:
        session, _ = append_events(session, [Draft(body, act)])
        raise BudgetExceeded(body.limit, body.asked, body.left, session, body.why)
    said = k.MessageSaid("user", (k.Text(LAST_WORDS.format(limit=body.limit)),), "plait")
    session, _ = append_events(session, [Draft(body, act), Draft(said, act._replace(causes=(0,)))])
    return Afforded(session, effect._replace(choice="none"), refusal=body)


def afford_again(session: Session, effect: AskModel) -> Afforded:
    """Set aside what another attempt may cost: it may use what is kept back, since the first one
    was allowed.
    """
    run = run_of(session)
    pool = run.pool(session.id) if run is not None and not run.follows(session) else None
    if pool is None:
        return Afforded(session, effect)
    usage = estimate(effect.prompt.tokens * 4, effect.prompt.setup.parameters)
    tokens, cost = usage.input_tokens + usage.output_tokens, _cost_of(effect.model, usage)
    found = pool.reserve(tokens=tokens, cost_usd_nano=cost, steps=1, reserve=True)
    if isinstance(found, Refusal):
        why = _why(found, effect.model, cost)
        return _refused(
            session, effect, k.BudgetRefused(found.limit, found.asked, found.left, True, why)
        )
    return Afforded(session, effect, found, usage)


def lose(session: Session, model: Model, usage: Usage | None) -> Price | None:
    """A call that was lost with the process that made it counts as what was set aside for it;
    returns what that costs.
    """
    if usage is None:
        return None
    run = run_of(session)
    pool, cost = run.pool(session.id) if run is not None else None, _cost_of(model, usage)
    if pool is not None:
        pool.count(Spent(usage, cost or 0))
    return Price(cost, "as it was set aside") if cost is not None else None


def settle(
    session: Session, reservation: Reservation | None, usage: Usage | None, price: Price | None
) -> None:
    """What an ask did cost, as far as that is known."""
    run = run_of(session)
    pool = run.pool(session.id) if run is not None and reservation is not None else None
    if pool is None or reservation is None:
        return
    tokens = usage.input_tokens + usage.output_tokens if usage is not None else None
    pool.settle(
        reservation, tokens=tokens, cost_usd_nano=price.cost_usd_nano if price is not None else None
    )


def _cost_of(model: Model, usage: Usage) -> int | None:
    price = _price_of(model, usage)
    return None if price is None else price.cost_usd_nano


def _price_of(model: Model, usage: Usage) -> Price | None:
    """Return what this costs of a model: by its own `price_of`, if it has one, else by its name.

    None: no price is known.
    """
    own = getattr(model, "price_of", None)
    if callable(own):
        return cast("Price | None", own(usage))
    return price_of("scripted" if isinstance(model, ScriptedModel) else model.name, usage)


def _why(refusal: Refusal, model: Model, cost: int | None) -> str:
    """Say what to do where a limit in dollars cannot be kept; "": there is simply
    not enough left.
    """
    if refusal.limit != "cost_usd" or cost is not None:
        return ""
    step = (
        "give it one, ChatModel(…, price=(0.5, 1.5)) in dollars per million tokens, or set"
        " tokens_max or steps_max instead"
    )
    return f"no price is known for {model.name}, so cost_usd_max cannot be kept; {step}"


# ── providers that do not count ──────────────────────────────────────────────────────────────


def counted_reply(effect: AskModel, reply: Reply) -> Reply:
    """Return a reply with an estimate of the tokens that the provider did not
    count, marked as one.
    """
    if reply.usage.input_tokens and reply.usage.output_tokens:
        return reply
    calls = "".join(f"{call.tool}{call.arguments}" for call in reply.calls)
    usage = _counted(
        effect, reply.usage, text_of(reply.parts) + "".join(_thoughts(reply.parts)) + calls
    )
    if usage is reply.usage:
        return reply
    price = reply.price
    if price != FREE:  # it is that of the tokens that were counted
        whole = _price_of(effect.model, usage)
        price = (
            price
            if whole is None or (price is not None and price.cost_usd_nano > whole.cost_usd_nano)
            else whole
        )
    return msgspec.structs.replace(reply, usage=usage, price=price)


def counted_fault(effect: AskModel, fault: Fault) -> tuple[Usage | None, Price | None]:
    """Return what an attempt that failed took: as counted, an estimate where an answer broke off,
    else nothing.
    """
    if fault.usage is not None or not fault.partial:
        return fault.usage, fault.price
    usage = _counted(effect, Usage(), fault.partial)
    return usage, _price_of(effect.model, usage)


def _thoughts(parts: Parts) -> list[str]:
    return [part.text for part in parts if isinstance(part, Reasoning)]


def _counted(effect: AskModel, usage: Usage, said: str) -> Usage:
    """Fill in what is missing: no prompt is empty, and what was said took tokens."""
    asked, answered = usage.input_tokens, usage.output_tokens
    asked = asked or max(1, effect.prompt.tokens)
    answered = answered or -(-len(said) // CHARACTERS_PER_TOKEN)
    guessed = (asked - usage.input_tokens) + (answered - usage.output_tokens)
    if not guessed:
        return usage
    return msgspec.structs.replace(
        usage, input_tokens=asked, output_tokens=answered, estimated_tokens=guessed
    )


# ── tools ────────────────────────────────────────────────────────────────────────────────────


def afford_tool(session: Session) -> Refusal | None:
    """Set a tool call aside; None: it may be made."""
    run = run_of(session)
    pool = _tool_pool(session, run) if run is None or not run.follows(session) else None
    found = pool.reserve(tool_calls=1) if pool is not None else None
    if pool is not None and isinstance(found, Reservation):
        pool.settle(found)
        return None
    return found if isinstance(found, Refusal) else None


def _tool_pool(session: Session, run: Run | None) -> Pool | None:
    """Return what a tool call draws on: the budget of its run, or session, and that of the run
    whose code makes it. None: no limit.
    """
    if run is not None and running.get() is run:
        return run.pool(session.id)
    own, here = run.pool(session.id) if run is not None else None, executing()
    if run is None and session.budget.limits is not None:
        grants = grants_at(store_at(session.store), session.id, session.seq)
        # nothing else is spent by a tool
        if any(grant.budget.tool_calls_max is not None for grant in grants):
            own = _granted(session, grants, None)
    outer = None
    if here is not None and here[0] is not run:
        outer = here[0].pool(here[1].log if here[1] is not None else here[0].root)
    if own is None or outer is None:
        return own or outer
    return Pool(None, above=(own, outer), clock=lambda: 0.0)


def refusal_of(refusal: Refusal) -> tuple[k.BudgetRefused, Failure]:
    why = f"the budget does not allow it: {refusal.limit} ({refusal.left:g} left)"
    return k.BudgetRefused(refusal.limit, refusal.asked, refusal.left), Failure(
        "BudgetExceeded", f"{why}. It was not run"
    )


def wall_of(session: Session, started: Event) -> float:
    """Return how long a run was held so far, in seconds."""
    return wall_in(started, store_at(session.store).read(session.id, started.seq + 1, session.seq))
