"""Asking a model: every ask is brought to its end, live, resumed and replayed by the same lines.

`ask_model` puts the ask on record, feeds it what is recorded of it, asks it what is due
(`ModelCallState.next_action`) and performs that, until there is a reply. The program only ever sees
what was recorded: an answer is decoded from the bytes just written.
"""

from __future__ import annotations

from collections.abc import Sequence

from plait import secrets
from plait.calls.actions import AskAnew, GiveUp, RecordLoss, RequestReply, RetryAfter, Settled
from plait.calls.model_call import PROCESS_ENDED, ModelCallState
from plait.errors import BudgetExceeded, InvalidInput, ModelFailed, StaleHead
from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import Failure, Price, Usage
from plait.journal.standing import Standing
from plait.model.base import Fault, Reply, Request, Restarted
from plait.runtime.appends import append_at_tip, append_events
from plait.runtime.effects import Answer, AskModel
from plait.runtime.executing import check_running
from plait.runtime.failures import bounded_text, traceback_of
from plait.runtime.names import call_id
from plait.runtime.override import override_ask, setup_blob
from plait.runtime.prompt.parts import blob_reader, failure_text
from plait.runtime.registry import run_of
from plait.runtime.replies import recall_reply, record_reply
from plait.runtime.safe_points import safe_point
from plait.runtime.spend import (
    afford,
    afford_again,
    count_lost_ask,
    counted_fault,
    counted_reply,
    settle_ask,
)
from plait.runtime.telling import DeltaTeller
from plait.runtime.unwritten import Unwritten
from plait.runtime.waits import Answering, CallModel, Pause
from plait.session import Session
from plait.session.ports import Act, Draft, Position, store_at
from plait.session.value import advance

PARTIAL_MAX = 100_000  # characters of an answer that broke off


def ask_model(effect: AskModel, after: Unwritten | None = None) -> Answering:
    """Ask until there is a reply, and return it as an `Answer`.

    `after` is an outcome that is not written yet. The ask takes it along, in one transaction; where
    something else has to come first, it is written by itself. Also if this raises, it is written.
    """
    if after is None:
        check_running(effect.session)
        ask = ModelAsk(effect, safe_point(effect.session))
    else:
        ask = _begin_after(effect, after)
    while True:
        action = ask.call.next_action(ask)
        if isinstance(action, Settled):
            answer = ask.answer or ask.recall(action.outcome)
            return ask.session, answer
        if isinstance(action, RequestReply):
            outcome, latency_us = yield ask.request()
            ask.record_outcome(outcome, latency_us)
        elif isinstance(action, RecordLoss):
            ask.record_loss()
        elif isinstance(action, RetryAfter):
            ask.tell_restart(action.failure)
            if action.seconds:
                yield Pause(action.seconds, ask.session)
            ask.retry(action.failure)
        elif isinstance(action, AskAnew):
            ask = ModelAsk(effect, safe_point(ask.session))
        elif isinstance(action, GiveUp):
            kind, message = action.failure.kind, action.failure.message
            raise ModelFailed(effect.model.name, kind, message, ask.call.attempt, ask.session)
        else:
            assert ask.refusal is not None
            limit = ask.refusal
            raise BudgetExceeded(limit.limit, limit.asked, limit.left, ask.session, limit.why)


def _begin_after(effect: AskModel, after: Unwritten) -> ModelAsk:
    """Begin an ask, and write the last outcome in the same transaction; if that cannot be, one
    after the other.
    """
    sealed = after.seal(effect.session)
    if sealed is None:
        session = after.write()
        check_running(session)
        return ModelAsk(effect, safe_point(session))
    try:
        ask = ModelAsk(effect, effect.session, sealed, after.events)
    except BaseException as error:
        effect.prompt.forget()
        session = after.write_if_missing()
        if session is None or not isinstance(error, StaleHead):
            raise
        return ModelAsk(effect, safe_point(session))
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
    ) -> None:
        self.run = run = run_of(session)
        changed = list[Draft]()  # the agent's setup, if a what-if changes it
        if (
            run is not None
            and run.settings.overrides is not None
            and run.journal.standing(session) is not Standing.INHERITED
        ):
            effect, changed = override_ask(effect, session, run)
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
        self._outcomes: Sequence[str] = prompt.outcomes_here if effect.fresh else prompt.outcomes
        self._teller: DeltaTeller | None = None  # None: no listener
        self.answer: Answer | None = None  # None: the reply is on record
        name, log = run.journal.source_of(session) if run is not None else (None, session.id)
        id = call_id(name, log, session.seq + 1, "ask")
        self.call = ModelCallState(id, effect.retry, is_last_word=self.refusal is not None)
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
            self._outcomes,
            effect.forced if effect.choice == "any" else "",
        )
        if self.run is not None and self.run.listeners:
            self._teller = DeltaTeller(self.run, effect.path)
        return CallModel(effect.model, request, self._teller, self.call.id, self.call.attempt)

    def record_outcome(self, outcome: Reply | Fault, latency_us: int) -> None:
        """Record a reply with its requests, or that the attempt failed: also by a reply that no log
        can hold.
        """
        if self._teller is not None:
            self._teller.end()
            self._teller = None
        if isinstance(outcome, Fault):
            self._record_fault(_hide_secrets(outcome), latency_us)
            return
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
        why = "the process ended before the answer was recorded"
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
            _fault_traceback(fault),
            retryable=bool(fault.retryable),
        )
        partial = bounded_text(fault.partial, PARTIAL_MAX)
        body = k.ModelFailed(failure, self.call.attempt, usage, partial, price, latency_us)
        asked = self.call.asked
        assert asked is not None
        act = Act(self._effect.actor, "model", call=self.call.id, causes=(asked.id,))
        self.session, events = append_at_tip(self.session, [Draft(body, act)])
        self.call.feed(events, retry_after_s=fault.retry_after_s)

    def tell_restart(self, failure: Failure) -> None:
        """Tell the listeners that what they heard of the reply counts no more."""
        run, outcome = self.run, self.call.outcome
        if run is None or outcome is None or not run.listeners:
            return
        if run.journal.standing_of(outcome) is Standing.LIVE:
            text = failure_text(failure.kind, failure.message)
            run.listeners.tell(Restarted(text, self._effect.path))

    def retry(self, failure: Failure) -> None:
        """Put another attempt on record, with its cost set aside."""
        self._outcomes = [*self._outcomes, failure_text(failure.kind, failure.message)]
        again = afford_again(self.session, self._effect)
        self._reservation, self._reserved = again.reservation, again.reserved
        self._record_attempt()

    def _settle_cost(self, usage: Usage | None, price: Price | None) -> None:
        settle_ask(self.session, self._reservation, usage, price)
        self._reservation = None


def _hide_secrets(fault: Fault) -> Fault:
    """Return a fault as it is recorded."""
    if not secrets.is_armed():
        return fault
    kind, message, partial = [
        secrets.hide_shown_text(bounded_text(text, PARTIAL_MAX))
        for text in (fault.kind, fault.message, fault.partial)
    ]
    hidden = Fault(kind, message, partial=partial, usage=fault.usage, price=fault.price)
    hidden.retryable, hidden.retry_after_s = fault.retryable, fault.retry_after_s
    hidden.__cause__ = fault.__cause__
    return hidden


def _fault_traceback(fault: Fault) -> str:
    """Return the traceback of an error of the program's own model; "" for a provider's fault."""
    cause = fault.__cause__
    is_own = cause is not None and fault.kind == type(cause).__name__
    return traceback_of(cause) if cause is not None and is_own else ""
