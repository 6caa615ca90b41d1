"""Waiting for the limits that the processes of a store share, before an ask is on record.

A short wait is waited for in place. A long one of a run that a worker executes is a timer of the
run, which holds no process; nobody would take up another run in time, so that one waits in place. A
recorded ask needs no allowance: resumed and replayed runs follow the recorded waits alone.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from plait.event import kinds as k
from plait.model.base import Fault, Model, Queued
from plait.model.fallback import models_in
from plait.model.limits import shared_limiter_of
from plait.model.shared_limits import SharedLimiter
from plait.runtime.cooling import choose_model
from plait.runtime.effects import AskModel
from plait.runtime.registry import run_of
from plait.runtime.run import Run
from plait.runtime.spend import estimated_tokens
from plait.runtime.waiting import IN_PLACE_S, wait_for_limit, wait_recorded
from plait.runtime.waits import Pause, Wait
from plait.session import Session
from plait.session.ports import store_at

_REST_S_MAX = 1e6


class Permit(NamedTuple):
    """The permit of an ask by the limits of its model."""

    model: Model
    limiter: SharedLimiter | None  # None: its limits are not shared
    tokens: int = 0  # as estimated
    wait_s: float = 0.0  # until the ask may be made


def take_permit(
    effect: AskModel, session: Session, left: Sequence[Model] | None = None
) -> Permit | None:
    """Take a permit for an ask that is made now. None: it is on record, or nothing limits it.

    `left`: the models of a list that may still be asked.
    """
    run = run_of(session)
    models = list(left if left is not None else models_in(_model_of(effect, run)))
    store = store_at(session.store) if run is not None else None
    if run is None or store is None or not any(shared_limiter_of(each, store) for each in models):
        return None
    if not run.journal.is_live(session):
        return None
    effect.prompt.catch_up(session, run.journal.tips.events_between)
    tokens, now_s = estimated_tokens(effect), run.io.clock() / 1e6
    first = choose_model(models, run.io.clock())
    waits = list[Permit]()
    for model in [first, *[each for each in models if each is not first]]:
        limiter = shared_limiter_of(model, store)
        if limiter is None:
            return Permit(model, None)
        wait_s = limiter.start(tokens, now_s, reserves=len(models) == 1)
        waits.append(Permit(model, limiter, tokens, wait_s))
        if not wait_s:
            return waits[-1]
    permit = min(waits, key=lambda each: each.wait_s)
    if len(models) > 1 and permit.limiter is not None:
        permit = permit._replace(wait_s=permit.limiter.start(tokens, now_s))
    return permit


def await_permit(
    effect: AskModel, session: Session, permit: Permit | None
) -> Generator[Wait, Any, tuple[Session, Permit | None]]:
    """Wait until an ask may be made; return the value to go on from, and its permit."""
    run = run_of(session)
    if run is None:
        return session, permit
    if permit is None:
        session, over = yield from wait_recorded(run, session)
        if over is None or not run.journal.is_live(session):
            return session, None
        permit = _permit_after(effect, run, session, over)
    while permit is not None and permit.limiter is not None and permit.wait_s:
        _tell_queued(run, effect, permit)
        late_s = 0.0
        if permit.wait_s > IN_PLACE_S and _may_park(run, session):
            until = run.journal.now(session) + int(permit.wait_s * 1e6)
            session = yield from wait_for_limit(run, session, permit.model.name, permit.wait_s)
            late_s = (run.journal.now(session) - until) / 1e6
        else:
            yield Pause(permit.wait_s, session)
        permit = permit._replace(wait_s=permit.limiter.start_reserved(permit.tokens, late_s))
    return session, permit


def await_another(
    effect: AskModel, session: Session, models: Sequence[Model], seconds: float
) -> Generator[Wait, Any, tuple[Session, Permit | None]]:
    """Wait before another attempt at one of these models: so long, and for its limits."""
    permit = take_permit(effect, session, models)
    if permit is not None and permit.limiter is not None:
        permit = permit._replace(wait_s=max(permit.wait_s, seconds))
        return (yield from await_permit(effect, session, permit))
    if seconds:
        yield Pause(seconds, session)
    return session, permit


def _permit_after(effect: AskModel, run: Run, session: Session, over: k.TimerSet) -> Permit | None:
    """Return the permit of an ask whose recorded wait is over just now: it was set aside."""
    models = {model.name: model for model in models_in(_model_of(effect, run))}
    model = models.get(over.limit)
    limiter = shared_limiter_of(model, store_at(session.store)) if model is not None else None
    if model is None or limiter is None:
        return take_permit(effect, session)
    effect.prompt.catch_up(session, run.journal.tips.events_between)
    tokens = estimated_tokens(effect)
    late_s = (run.journal.now(session) - (over.until or 0)) / 1e6
    return Permit(model, limiter, tokens, limiter.start_reserved(tokens, late_s))


def _model_of(effect: AskModel, run: Run | None) -> Model:
    """Return the model of an ask: that of a what-if, or its own."""
    overrides = run.settings.overrides if run is not None else None
    other = overrides.of(effect.path).model if overrides is not None else None
    return other or effect.model


def settle_permit(permit: Permit | None, tokens: int | None) -> None:
    """Tell the limits how many tokens an attempt took. None: nothing was sent."""
    if permit is not None and permit.limiter is not None:
        permit.limiter.settle(permit.tokens, tokens)


def close_limits(permit: Permit | None, fault: Fault) -> None:
    """Let no process ask a model whose provider says for how long it wants to be left alone."""
    if permit is not None and permit.limiter is not None and (wait_s := _rest_s(fault)):
        permit.limiter.close(min(wait_s, _REST_S_MAX))


def closes_limits(permit: Permit | None, fault: Fault, session: Session) -> bool:
    """True if a fault closes the shared limits of a model, and the run waits without a process."""
    run = run_of(session)
    is_shared = permit is not None and permit.limiter is not None
    return is_shared and run is not None and _may_park(run, session) and bool(_rest_s(fault))


def _rest_s(fault: Fault) -> float:
    """Return for how long the provider wants to be left alone; 0 if it does not say."""
    is_limit = fault.kind == "RateLimited" and fault.retryable
    return max(0.0, fault.retry_after_s or 0.0) if is_limit else 0.0


def _may_park(run: Run, session: Session) -> bool:
    """True if a worker takes the run up again in time, and this is no code of a tool."""
    return run.is_claimed and session.run == run.id


def _tell_queued(run: Run, effect: AskModel, permit: Permit) -> None:
    if run.listeners:
        why = f"all who share its limits have asked it so much; {permit.wait_s:.1f} s to go"
        run.listeners.tell(Queued(permit.model.name, why, effect.path))
