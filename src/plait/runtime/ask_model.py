"""Asking a model: every ask is brought to its end, live, resumed and replayed by the same lines.

`ask_model` puts the ask on record, feeds it what is recorded of it, asks it what is due
(`ModelCallState.next_action`) and performs that, until there is a reply. The program only ever sees
what was recorded: an answer is decoded from the bytes just written.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from plait.calls.actions import (
    AskAnew,
    AskNext,
    GiveUp,
    RecordLoss,
    RequestReply,
    RetryAfter,
    Settled,
)
from plait.calls.model_call import PROCESS_ENDED, ModelCallState
from plait.errors import BudgetExceeded, InvalidInput, ModelFailed, StaleHead
from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import Failure, Price, Usage
from plait.journal.standing import Standing
from plait.model.base import Fault, Model, Queued, Reply, Request, Restarted
from plait.model.fallback import models_in
from plait.model.limits import QueuePlace, limiter_of
from plait.runtime.appends import append_at_tip, append_events
from plait.runtime.ask_faults import PARTIAL_MAX, fault_traceback, without_secrets_of
from plait.runtime.cooling import choose_model, end_cooling, start_cooling
from plait.runtime.effects import Answer, AskModel
from plait.runtime.executing import check_running
from plait.runtime.failures import bounded_text
from plait.runtime.names import call_id
from plait.runtime.override import override_ask, setup_blob
from plait.runtime.prompt.parts import blob_reader, failure_text
from plait.runtime.registry import run_of
from plait.runtime.replies import recall_reply, record_reply
from plait.runtime.safe_points import safe_point
from plait.runtime.shared_limits import (
    Permit,
    await_another,
    await_permit,
    close_limits,
    closes_limits,
    settle_permit,
    take_permit,
)
from plait.runtime.spend import (
    afford,
    afford_again,
    count_lost_ask,
    counted_fault,
    counted_reply,
    estimated_tokens,
    settle_ask,
)
from plait.runtime.telling import DeltaTeller, is_unheard, tell_unseen_parts, teller_of
from plait.runtime.unwritten import Unwritten
from plait.runtime.waits import Answering, CallModel, Pause, Wait, WaitForPlace
from plait.session import Session
from plait.session.ports import Act, Draft, Position, store_at
from plait.session.value import advance, position_of


def ask_model(effect: AskModel, after: Unwritten | None = None) -> Answering:
    """Ask until there is a reply, and return it as an `Answer`.

    `after` is an outcome that is not written yet. The ask takes it along, in one transaction; where
    something else has to come first, it is written by itself. Also if this raises, it is written.
    """
    ask = yield from _begin(effect, after)
    while True:
        if ask.call.failure is not None:
            yield from ask.follow_waits()
        action = ask.call.next_action(ask)
        if isinstance(action, Settled):
            answer = ask.answer or ask.recall(action.outcome)
            return ask.session, answer
        if isinstance(action, RequestReply):
            outcome, latency_us = yield from _request_in_line(ask)
            ask.record_outcome(outcome, latency_us)
        elif isinstance(action, RecordLoss):
            ask.record_loss()
        elif isinstance(action, RetryAfter):
            ask.tell_restart(failure_text(action.failure.kind, action.failure.message))
            yield from ask.wait_again(action.seconds)
            ask.retry(action.failure)
        elif isinstance(action, AskNext):
            yield from ask.wait_again(None)
            ask.move_on(action.failure)
        elif isinstance(action, AskAnew):
            ask = yield from _begin(effect._replace(session=ask.session), None)
        elif isinstance(action, GiveUp):
            ask.leave_model()
            kind, message = action.failure.kind, action.failure.message
            asked = ask.call.asked_names or effect.model.name
            raise ModelFailed(asked, kind, message, ask.call.attempt, ask.session)
        else:
            assert ask.refusal is not None
            limit = ask.refusal
            raise BudgetExceeded(limit.limit, limit.asked, limit.left, ask.session, limit.why)


def _begin(effect: AskModel, after: Unwritten | None) -> Generator[Wait, Any, ModelAsk]:
    """Begin an ask when the limits that processes share allow it."""
    session, permit = effect.session, None
    if after is not None:
        begun = _begin_after(effect, after)
        if isinstance(begun, ModelAsk):
            return begun
        session, permit = begun
    check_running(session)
    session = safe_point(session)
    if permit is None:
        permit = take_permit(effect, session)
    session, permit = yield from await_permit(effect, session, permit)
    return ModelAsk(effect, session, permit=permit)


def _request_in_line(ask: ModelAsk) -> Generator[Wait, Any, tuple[Reply | Fault, int]]:
    """Send the request when the limits of its model allow it."""
    place = ask.enter_line()
    if place is None and ask.permit is None:
        return (yield ask.request())
    tokens: int | None = None
    try:
        if place is not None and not place.is_free.done():
            ask.tell_queued("others ask it, and no more may at a time")
            yield WaitForPlace(place, ask.session)
        if place is not None and (wait_s := place.wait_s(ask.clock_s)) > 0:
            ask.tell_queued(f"it has been asked so much this minute; {wait_s:.1f} s to go")
            yield Pause(wait_s, ask.session)
        # from here on it may have been sent
        tokens = place.tokens if place is not None else ask.permit.tokens if ask.permit else 0
        outcome, latency_us = yield ask.request()
        if isinstance(outcome, Reply) and outcome.usage.output_tokens:
            tokens = outcome.usage.input_tokens + outcome.usage.output_tokens
        return outcome, latency_us
    finally:
        if place is not None:
            place.leave(tokens)
        settle_permit(ask.permit, tokens)


def _begin_after(effect: AskModel, after: Unwritten) -> ModelAsk | tuple[Session, Permit | None]:
    """Begin an ask, and write the last outcome in the same transaction. If that cannot be, or the
    ask has to wait, write the outcome alone; return the value after it, and the permit so far.
    """
    permit: Permit | None = None
    try:
        permit = take_permit(effect, effect.session)
        is_due = permit is None or not permit.wait_s
        sealed = after.seal(effect.session) if is_due else None
        if sealed is None:
            return after.write(), permit
        ask = ModelAsk(effect, effect.session, sealed, after.events, permit)
    except BaseException as error:
        effect.prompt.forget()
        session = after.write_if_missing()
        if session is None or not isinstance(error, StaleHead):
            raise
        return session, permit
    after.is_done = True
    return ask


class ModelAsk:
    """One ask as it is performed, and the context of its call (`plait.calls.ModelContext`).

    Made, its first attempt is on record, and its call is fed with all that is recorded of it.
    """

    def __init__(
        self,
        effect: AskModel,
        session: Session,
        sealed: Position | None = None,
        held: Sequence[Event] = (),
        permit: Permit | None = None,
    ) -> None:
        self.run = run = run_of(session)
        self.permit, self._next_permit = permit, None  # of this attempt, and of the next one
        changed = list[Draft]()  # the agent's setup, if a what-if changes it
        if (
            run is not None
            and run.settings.overrides is not None
            and run.journal.standing(session) is not Standing.INHERITED
        ):
            effect, changed = override_ask(effect, session, run)
        self._models = models_in(effect.model)
        effect = effect._replace(model=permit.model if permit else self._choose(self._models))
        prompt, known = effect.prompt, run.journal.tips.events_between if run is not None else None
        prompt.catch_up(session, known)
        self._reservation, self._reserved = None, None
        self.refusal: k.BudgetRefused | None = None  # why this is to be the last word
        if sealed is not None:  # the run has no budget
            prompt.take(held, blob_reader(session))
            session = advance(session, sealed, *[event.kind for event in held])
        else:
            before = session
            session, effect, self._reservation, self._reserved, self.refusal = afford(
                before, effect
            )
            if session is not before:
                prompt.catch_up(session, known)
        self._effect, self.session = effect, session
        self._chain, self._turns = prompt.ask()
        self._outcomes = prompt.outcomes_here if effect.fresh else prompt.outcomes
        self._teller: DeltaTeller | None = None  # None: no listener
        self.answer: Answer | None = None  # None: the reply is on record
        name, log = run.journal.source_of(session) if run is not None else (None, session.id)
        id = call_id(name, log, session.seq + 1, "ask")
        names = [model.name for model in self._models]
        is_last_word = self.refusal is not None
        self.call = ModelCallState(id, effect.retry, names, is_last_word=is_last_word)
        if len(names) > 1 and run is not None:  # the record says which one was asked
            step = run.journal.step_after(position_of(session), len(changed))
            self._follow_record(_model_asked(step))
        self._record_attempt(changed, held)

    def _record_attempt(self, changed: Sequence[Draft] = (), held: Sequence[Event] = ()) -> None:
        """Put an attempt on record, after the events that were sealed before it; feed the call."""
        effect, call, setup = self._effect, self.call, self._effect.prompt.setup
        asked = k.ModelAsked(
            effect.model.name,
            self._chain,
            {**setup.parameters} or None,
            call.attempt + 1,
            self._reserved,
        )
        act = Act(effect.actor, "program", call=call.id, causes=effect.prompt.causes[-8:])
        blobs = setup_blob(setup) if changed else None
        drafts = [*changed, Draft(asked, act)]
        self.session, events = append_events(self.session, drafts, blobs, held=held)
        call.feed(events[-1:])
        if self.run is not None:
            step = self.run.journal.call_event(self.session, (call.id,))
            if step is not None:
                self.session = step[0]
                call.feed(step[1:])

    # ── the context of the call ──────────────────────────────────────────────────────────────

    @property
    def is_live(self) -> bool:
        return self.run is None or self.run.journal.standing(self.session) is Standing.LIVE

    @property
    def has_next(self) -> bool:
        run = self.run
        if run is None:
            return False
        if run.journal.peek_call(self.session, (self.call.id,)) is not None:
            return True
        step = run.journal.next_step(self.session)  # the budget may have refused the next attempt
        return step is not None and step.kind == k.BudgetRefused.__name__

    @property
    def next_model(self) -> str | None:
        if self.run is None:
            return None
        return _model_asked(self.run.journal.peek_call(self.session, (self.call.id,)))

    @property
    def is_at_end(self) -> bool:
        return self.run is not None and self.run.journal.is_at_end(self.session.id)

    def standing_of(self, event: Event) -> Standing:
        return self.run.journal.standing_of(event) if self.run is not None else Standing.LIVE

    def is_reopened(self, outcome: Event) -> bool:
        run = self.run
        return run is not None and run.journal.is_reopened(self.session.id, outcome)

    # ── actions ──────────────────────────────────────────────────────────────────────────────

    def request(self) -> CallModel:
        effect, setup = self._effect, self._effect.prompt.setup
        request = Request(
            setup.instruction,
            setup.tools,
            self._turns,
            self.session,
            store_at(self.session.store).get_blob,
            setup.parameters,
            setup.output,
            effect.choice,
            self._outcomes_of_model(),
            effect.forced if effect.choice == "any" else "",
        )
        if self.run is not None:
            tell_unseen_parts(self.run, effect, self._turns, request.blob)
            self._teller = teller_of(self.run, effect, self.session.id)
        return CallModel(effect.model, request, self._teller, self.call.id, self.call.attempt)

    @property
    def clock_s(self) -> float:
        """Seconds, for durations."""
        return self.run.io.clock() / 1e6 if self.run is not None else 0.0

    def enter_line(self) -> QueuePlace | None:
        """Take a place in the line of the model. None: it has no limits."""
        limiter = limiter_of(self._effect.model.name) if self.run is not None else None
        return limiter.enter(estimated_tokens(self._effect)) if limiter is not None else None

    def follow_waits(self) -> Generator[Wait, Any, None]:
        """Go through recorded waits for the next attempt."""
        self.session, permit = yield from await_permit(self._effect, self.session, None)
        self._next_permit = permit or self._next_permit

    def wait_again(self, seconds: float | None) -> Generator[Wait, Any, None]:
        """Wait before another attempt for so long, and for the shared limits of its model. None:
        it is made at one of the models of the list that are left.
        """
        models = (
            [self._effect.model] if seconds is not None else _left_models(self._models, self.call)
        )
        permit, self._next_permit = self._next_permit, None
        if permit is None:
            self.session, permit = yield from await_another(
                self._effect, self.session, models, seconds or 0.0
            )
        self.permit = permit

    def tell_queued(self, why: str) -> None:
        if self.run is not None and self.run.listeners:
            self.run.listeners.tell(Queued(self._effect.model.name, why, self._effect.path))

    def record_outcome(self, outcome: Reply | Fault, latency_us: int) -> None:
        """Record a reply with its requests, or that the attempt failed: also by a reply that no log
        can hold.
        """
        if self._teller is not None:
            self._teller.end()
            self._teller = None
        if isinstance(outcome, Fault):
            close_limits(self.permit, outcome)
            self._record_fault(without_secrets_of(outcome), latency_us)
            return
        end_cooling(self._effect.model)
        reply = counted_reply(self._effect, outcome)
        self._settle_cost(reply.usage, reply.price)
        asked = self.call.asked
        assert asked is not None
        try:
            self.session, event, self.answer = record_reply(
                self._effect, self.session, reply, latency_us, self.call.id, asked.id
            )
        except InvalidInput as error:  # a text that no log can hold: nothing of it was written
            fault = Fault(
                "MalformedReply", str(error), retryable=True, usage=reply.usage, price=reply.price
            )
            self._record_fault(fault, latency_us)
        except Fault as fault:
            self._record_fault(fault, latency_us)
        else:
            self.call.feed((event,))

    def recall(self, reply: Event) -> Answer:
        """Return a reply that is on record, with what was recorded of its calls."""
        assert self.run is not None
        self.session, answer = recall_reply(self.run, self._effect, self.session, reply)
        return answer

    def record_loss(self) -> None:
        """Record that an ask was lost with its process: its reservation counts as spent."""
        asked = self.call.asked
        assert asked is not None
        body = asked.body
        usage = body.reserved if isinstance(body, k.ModelAsked) else None
        price = count_lost_ask(self.session, self._effect.model, usage)
        why = "it was stopped, or its process ended, before the answer was recorded"
        fault = Fault(
            PROCESS_ENDED, why, retryable=True, retry_after_s=0.0, usage=usage, price=price
        )
        self._record_fault(fault, 0)

    def _record_fault(self, fault: Fault, latency_us: int) -> None:
        usage, price = counted_fault(self._effect, fault)
        self._settle_cost(usage or Usage(), price)
        failure = Failure(
            bounded_text(fault.kind, 200),
            bounded_text(fault.message),
            fault_traceback(fault),
            retryable=self._may_retry(fault),
        )
        partial = bounded_text(fault.partial, PARTIAL_MAX)
        body = k.ModelFailed(failure, self.call.attempt, usage, partial, price, latency_us)
        asked = self.call.asked
        assert asked is not None
        act = Act(self._effect.actor, "model", call=self.call.id, causes=(asked.id,))
        self.session, events = append_at_tip(self.session, [Draft(body, act)])
        # how long its shared limits are closed is asked for before the next attempt
        retry_after_s = 0.0 if self._is_waited_for(fault) else fault.retry_after_s
        self.call.feed(events, retry_after_s=retry_after_s)

    def tell_restart(self, why: str) -> None:
        """Tell the listeners that what they heard of the reply counts no more."""
        run, outcome = self.run, self.call.outcome
        if run is None or outcome is None or not run.listeners:
            return
        if is_unheard(run, self._effect, self.session.id):
            return
        if run.journal.standing_of(outcome) is Standing.LIVE:
            run.listeners.tell(Restarted(why, self._effect.path))

    def retry(self, failure: Failure) -> None:
        """Put another attempt at the same model on record."""
        self._add_outcome(failure)
        self._attempt_again()

    def _attempt_again(self) -> None:
        """Put another attempt on record, with its cost set aside."""
        self._follow_record(self.next_model)
        again = afford_again(self.session, self._effect)
        self._reservation, self._reserved = again.reservation, again.reserved
        self._record_attempt()

    def _add_outcome(self, failure: Failure) -> None:
        outcome = self._effect.model.name, failure_text(failure.kind, failure.message)
        self._outcomes = [*self._outcomes, outcome]

    # ── lists of models ──────────────────────────────────────────────────────────────────────

    def _choose(self, models: Sequence[Model]) -> Model:
        """Return the model to ask, where the record does not say."""
        if len(models) == 1 or self.run is None:
            return models[0]
        return choose_model(models, self.run.io.clock())

    def _follow_record(self, name: str | None) -> None:
        """Ask the model of this name, which is on record. If the list has none, the record differs
        there.
        """
        for model in self._models if len(self._models) > 1 else ():
            if model.name == name:
                self._effect = self._effect._replace(model=model)

    def _outcomes_of_model(self) -> list[str]:
        """Return what this model has answered so far; a lone model also stands for the models that
        its agent had before.
        """
        name, is_alone = self._effect.model.name, len(self._models) == 1
        return [text for model, text in self._outcomes if is_alone or model == name]

    def _may_retry(self, fault: Fault) -> bool:
        """True if the same model is worth another attempt. Recorded, since it is not known after a
        kill how long the provider wants to be left alone.
        """
        if self._is_waited_for(fault):
            return True
        wanted_s = fault.retry_after_s
        return bool(fault.retryable) and (wanted_s or 0.0) <= self._effect.retry.wait_s_max

    def _is_waited_for(self, fault: Fault) -> bool:
        """True if the provider wants to be left alone for a time that is waited for without a
        process, however long it is.
        """
        return len(self._models) == 1 and closes_limits(self.permit, fault, self.session)

    def leave_model(self) -> None:
        """Pass the model over from now on, for a while, if it was one of several that failed."""
        outcome = self.call.outcome
        is_here = outcome is not None and self.standing_of(outcome) is Standing.LIVE
        if len(self._models) > 1 and self.run is not None and is_here:
            start_cooling(self._effect.model, self.run.io.clock())

    def move_on(self, failure: Failure) -> None:
        """Leave a model that is down, and put an attempt at another one on record."""
        self.leave_model()
        self._add_outcome(failure)
        left = _left_models(self._models, self.call)
        chosen = self.permit.model if self.permit is not None else self._choose(left)
        failed = self._effect.model.name
        why = failure_text(failure.kind, failure.message)
        self.tell_restart(f"{failed} failed, {chosen.name} answers now: {why}")
        self._effect = self._effect._replace(model=chosen)
        self._attempt_again()

    def _settle_cost(self, usage: Usage | None, price: Price | None) -> None:
        settle_ask(self.session, self._reservation, usage, price)
        self._reservation = None


def _left_models(models: Sequence[Model], call: ModelCallState) -> list[Model]:
    return [model for model in models if model.name in call.models_left]


def _model_asked(step: Event | None) -> str | None:
    """Return the name of the model that a recorded step asks. None: it asks none."""
    body = step.body if step is not None and step.kind == k.ModelAsked.__name__ else None
    return body.model if isinstance(body, k.ModelAsked) else None
