"""The spends of a run: asks and tool calls, reserved on its budgets before they are made.

The largest cost of an ask is set aside before it is made, and replaced by the real cost when it is
answered. All branches of a run draw on one budget; a fork with a budget of its own draws on that as
well. When there is not enough left, the agent is told so and answers within the share that is kept
back for that; if not even that is left, the run ends. Either way the refusal is an event, and an
ask that is on record is not judged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, cast
from weakref import WeakSet

import msgspec

from plait.calls.tool_call import SERVICE
from plait.errors import BudgetExceeded
from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import Budget, Failure, Parts, Price, Reasoning, Usage
from plait.ids import Digest
from plait.journal.recording import held_seconds
from plait.model.base import Fault, Model, Reply
from plait.model.prices import FREE
from plait.model.scripted import ScriptedModel
from plait.model.settings import settings_of
from plait.runtime.appends import append_events
from plait.runtime.budgets import (
    CHARACTERS_PER_TOKEN,
    Refusal,
    Reservation,
    SharedBudget,
    estimate,
    price_of,
)
from plait.runtime.effects import AskModel
from plait.runtime.executing import executing
from plait.runtime.process import THIS_PROCESS
from plait.runtime.registry import run_of
from plait.runtime.run import Run, running
from plait.session import Session
from plait.session.content import text_of
from plait.session.grants import Grant, grants_at, spent_under
from plait.session.ports import Act, Draft, store_at
from plait.session.state import Spent
from plait.session.value import spent_of_budget

LAST_WORDS = (
    "The budget is nearly used up ({limit}). Answer now with what you have, without calling tools."
)
MORE_WORDS = "The budget allows more again. Go on, with tools as you need them."


# by store and grant: runs of one process draw on one budget
_Shared: TypeAlias = "dict[tuple[str, Digest], tuple[SharedBudget, WeakSet[Run]]]"


class Afforded(NamedTuple):
    """An ask that may be made, and the reservation for it."""

    session: Session
    effect: AskModel
    reservation: Reservation | None = None
    reserved: Usage | None = None
    refusal: k.BudgetRefused | None = None  # why this is to be the last word


def run_budget(session: Session, run: Run, wall_s: float = 0.0) -> SharedBudget | None:
    """Return the budget of a run: those of its session, less all that runs and branches spent of
    them. None: there is no limit.

    `wall_s` is how long the run was held before.
    """
    if session.budget.limits is None:
        return None
    grants = grants_at(store_at(session.store), session.id, session.seq)
    walls = [grant.budget.wall_s_max for grant in grants if grant.budget.wall_s_max is not None]
    above = _budget_of_grants(session, grants, run)
    # The time is that of this run alone.
    limits = Budget(wall_s_max=min(walls, default=None))
    return SharedBudget(limits, wall_s=wall_s, above=above, clock=lambda: run.io.clock() / 1e6)


def _budget_of_grants(
    session: Session, grants: Sequence[Grant], run: Run | None
) -> SharedBudget | None:
    """Return the budget of the innermost of these grants, which draws on the others.

    A run shares it with the runs after it.
    """
    store = store_at(session.store)
    budget: SharedBudget | None = None
    with THIS_PROCESS.sharing_lock:
        shared: _Shared = THIS_PROCESS.shared_budgets
        for key in [key for key, (_, runs) in shared.items() if all(each.closed for each in runs)]:
            del shared[key]
        for grant in reversed(grants):
            found = shared.get((store.address, grant.id))
            if found is None:
                spent = spent_under(store, grant)
                spent = (
                    _larger_bill(spent, spent_of_budget(session)) if grant is grants[0] else spent
                )
                limits = msgspec.structs.replace(grant.budget, wall_s_max=None)
                found = (
                    SharedBudget(limits, spent=spent, above=budget, clock=lambda: 0.0),
                    WeakSet[Run](),
                )
            budget = found[0]
            if run is not None:
                found[1].add(run)
                shared[store.address, grant.id] = found
    return budget


def _larger_bill(one: Spent, other: Spent) -> Spent:
    """Return the larger of two bills, figure by figure: one has the branches, the other the
    sessions that were merged from elsewhere.
    """
    usage = one.usage if one.tokens >= other.tokens else other.usage
    return Spent(
        usage,
        *(max(getattr(one, name), getattr(other, name)) for name in Spent.__struct_fields__[1:]),
    )


# ── models ───────────────────────────────────────────────────────────────────────────────────


def afford(session: Session, effect: AskModel) -> Afforded:
    """Set the largest cost of an ask aside, before it is made."""
    run = run_of(session)
    if run is None:
        return Afforded(session, effect)
    if not run.journal.is_live(session):
        return _recorded_allowance(run, session, effect)
    budget = run.budgets.of(session.id)
    if budget is None:
        return Afforded(_take_back_note(session, effect), effect)
    usage = estimate(effect.prompt.tokens * 4, effect.prompt.setup.parameters)
    cost = _cost_of(effect.model, usage)
    tokens = usage.input_tokens + usage.output_tokens
    found = budget.reserve(tokens=tokens, cost_usd_nano=cost, steps=1)
    if isinstance(found, Reservation):
        return Afforded(_take_back_note(session, effect), effect, found, usage)
    last = (
        budget.reserve(tokens=tokens, cost_usd_nano=cost, steps=1, reserve=True)
        if not effect.aside
        else found
    )
    body = k.BudgetRefused(
        found.limit,
        found.asked,
        found.left,
        isinstance(last, Refusal),
        _refusal_text(found, effect, usage),
    )
    afforded = _record_refusal(session, effect, body)
    return afforded._replace(
        reservation=last if isinstance(last, Reservation) else None, reserved=usage
    )


def _recorded_allowance(run: Run, session: Session, effect: AskModel) -> Afforded:
    """Return what the recording says of an ask: the budget refused it here, or it did not."""
    step = run.journal.next_step(session)
    body = step.body if step is not None and step.kind == k.BudgetRefused.__name__ else None
    if isinstance(body, k.BudgetRefused):
        return _record_refusal(session, effect, body)
    draft = _more_words(effect)
    if step is not None and draft is not None and step.body == draft.body:
        session, _ = append_events(session, [draft])
    return Afforded(session, effect)


def _take_back_note(session: Session, effect: AskModel) -> Session:
    """Tell the agent that it need not answer at once any more, if it was told to: an ask that is
    afforded in full comes after a grant, or in a run whose time is not used up.
    """
    draft = _more_words(effect)
    return session if draft is None else append_events(session, [draft])[0]


def _more_words(effect: AskModel) -> Draft | None:
    """Return the message in the place of the notes that the budget is nearly used up. None: the
    agent sees no such note.
    """
    note = effect.prompt.budget_note
    if note is None:
        return None
    body = k.MessageSaid("user", (k.Text(MORE_WORDS),), "plait", instead_of=note)
    return Draft(body, Act(SERVICE, "program", causes=(note.head,)))


def _record_refusal(session: Session, effect: AskModel, body: k.BudgetRefused) -> Afforded:
    """Record that the budget does not allow an ask. The share that is kept back allows a last
    answer; without it, raise BudgetExceeded.
    """
    act = Act(SERVICE, "program")
    if body.final:
        session, _ = append_events(session, [Draft(body, act)])
        raise BudgetExceeded(body.limit, body.asked, body.left, session, body.why)
    said = k.MessageSaid("user", (k.Text(LAST_WORDS.format(limit=body.limit)),), "plait")
    session, _ = append_events(session, [Draft(body, act), Draft(said, act._replace(causes=(0,)))])
    return Afforded(session, effect._replace(choice="none"), refusal=body)


def afford_again(session: Session, effect: AskModel) -> Afforded:
    """Set the largest cost of another attempt aside. It may use the share that is kept back, since
    the first attempt was allowed.
    """
    run = run_of(session)
    if run is not None and not run.journal.is_live(session):
        return _recorded_allowance(run, session, effect)
    budget = run.budgets.of(session.id) if run is not None else None
    if budget is None:
        return Afforded(session, effect)
    usage = estimate(effect.prompt.tokens * 4, effect.prompt.setup.parameters)
    tokens, cost = usage.input_tokens + usage.output_tokens, _cost_of(effect.model, usage)
    found = budget.reserve(tokens=tokens, cost_usd_nano=cost, steps=1, reserve=True)
    if isinstance(found, Refusal):
        why = _refusal_text(found, effect, usage)
        return _record_refusal(
            session, effect, k.BudgetRefused(found.limit, found.asked, found.left, True, why)
        )
    return Afforded(session, effect, found, usage)


def estimated_tokens(effect: AskModel) -> int:
    """Return about how many tokens an ask takes, its answer included as far as that is limited."""
    usage = estimate(effect.prompt.tokens * 4, effect.prompt.setup.parameters)
    return usage.input_tokens + usage.output_tokens


def count_lost_ask(session: Session, model: Model, usage: Usage | None) -> Price | None:
    """Count an ask that was lost with its process as its reservation; return the price of that."""
    if usage is None:
        return None
    run = run_of(session)
    budget, cost = run.budgets.of(session.id) if run is not None else None, _cost_of(model, usage)
    if budget is not None:
        budget.count(Spent(usage, cost or 0))
    return Price(cost, "as it was set aside") if cost is not None else None


def settle_ask(
    session: Session, reservation: Reservation | None, usage: Usage | None, price: Price | None
) -> None:
    """Replace the reservation of an ask by its real cost, as far as that is known."""
    run = run_of(session)
    budget = run.budgets.of(session.id) if run is not None and reservation is not None else None
    if budget is None or reservation is None:
        return
    tokens = usage.input_tokens + usage.output_tokens if usage is not None else None
    budget.settle(
        reservation, tokens=tokens, cost_usd_nano=price.cost_usd_nano if price is not None else None
    )


def _cost_of(model: Model, usage: Usage) -> int | None:
    price = _price_of(model, usage)
    return None if price is None else price.cost_usd_nano


def _price_of(model: Model, usage: Usage) -> Price | None:
    """Return the price of a usage: by the model's own `price_of`, if it has one, else by its name.

    A price in plait.toml is before the lists. None: no price is known.
    """
    if (written := _written_price(model, usage)) is not None:
        return written
    own = getattr(model, "price_of", None)
    if callable(own):
        return cast("Price | None", own(usage))
    return price_of("scripted" if isinstance(model, ScriptedModel) else model.name, usage)


def _written_price(model: Model, usage: Usage) -> Price | None:
    """Return the price by plait.toml. None: it has none, or the program itself gave one."""
    price = settings_of(model.name).price
    if price is None or getattr(model, "has_own_price", False):
        return None
    return price.price_of(usage)


def _refusal_text(refusal: Refusal, effect: AskModel, usage: Usage) -> str:
    """Return why an ask is refused: who asks, for how much, and where the budget has gone."""
    model = effect.model.name
    if refusal.is_unpriced:
        step = (
            f'give it one, price = [0.5, 1.5] under [models."{model}"] in plait.toml or'
            " ChatModel(…, price=(0.5, 1.5)), in dollars per million tokens, or set tokens_max or"
            " steps_max instead"
        )
        return f"no price is known for {model}, so cost_usd_max cannot be kept; {step}"
    if refusal.limit not in ("tokens", "cost_usd"):
        return f"{effect.path} asks {model}, and {refusal.reason}"
    prompt, answer = usage.input_tokens, usage.output_tokens
    parts = f"{prompt:,} for its prompt, {answer:,} for its answer by tokens_max"
    if not answer:
        parts = "for its prompt; its answer has no tokens_max"
    cost = f"${refusal.asked:.4g} for " if refusal.limit == "cost_usd" else ""
    return f"{effect.path} needs {cost}{prompt + answer:,} tokens ({parts}); {refusal.reason}"


# ── providers that do not count ──────────────────────────────────────────────────────────────


def counted_reply(effect: AskModel, reply: Reply) -> Reply:
    """Return a reply with an estimate of the tokens that the provider did not
    count, marked as one.
    """
    written = _written_price(effect.model, reply.usage)
    if written is not None:
        reply = msgspec.structs.replace(reply, price=written)
    if reply.usage.input_tokens and reply.usage.output_tokens:
        return reply
    calls = "".join(f"{call.tool}{call.arguments}" for call in reply.calls)
    usage = _fill_usage(
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
    """Return the usage of an attempt that failed: as counted, an estimate where an answer broke
    off, else None.
    """
    if fault.usage is not None or not fault.partial:
        return fault.usage, fault.price
    usage = _fill_usage(effect, Usage(), fault.partial)
    return usage, _price_of(effect.model, usage)


def _thoughts(parts: Parts) -> list[str]:
    return [part.text for part in parts if isinstance(part, Reasoning)]


def _fill_usage(effect: AskModel, usage: Usage, said: str) -> Usage:
    """Estimate the figures that are missing: no prompt is empty, and an answer took tokens."""
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
    budget = _tool_budget(session, run) if run is None or run.journal.is_live(session) else None
    found = budget.reserve(tool_calls=1) if budget is not None else None
    if budget is not None and isinstance(found, Reservation):
        budget.settle(found)
        return None
    return found if isinstance(found, Refusal) else None


def _tool_budget(session: Session, run: Run | None) -> SharedBudget | None:
    """Return the budget of a tool call: that of its run, or session, and that of the run whose code
    makes it. None: no limit.
    """
    if run is not None and running.get() is run:
        return run.budgets.of(session.id)
    own, here = run.budgets.of(session.id) if run is not None else None, executing()
    if run is None and session.budget.limits is not None:
        grants = grants_at(store_at(session.store), session.id, session.seq)
        # nothing else is spent by a tool
        if any(grant.budget.tool_calls_max is not None for grant in grants):
            own = _budget_of_grants(session, grants, None)
    outer = None
    if here is not None and here[0] is not run:
        outer = here[0].budgets.of(here[1].log if here[1] is not None else here[0].root)
    if own is None or outer is None:
        return own or outer
    return SharedBudget(None, above=(own, outer), clock=lambda: 0.0)


def refusal_of(refusal: Refusal) -> tuple[k.BudgetRefused, Failure]:
    body = k.BudgetRefused(refusal.limit, refusal.asked, refusal.left, why=refusal.reason)
    why = f"the budget does not allow it: {refusal.reason}. It was not run"
    return body, Failure("BudgetExceeded", why)


def held_seconds_of(session: Session, started: Event) -> float:
    """Return the time for which a run was held so far."""
    return held_seconds(
        started, store_at(session.store).read(session.id, started.seq + 1, session.seq)
    )
