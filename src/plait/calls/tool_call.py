"""One tool call, from its first request to its settlement.

A `ToolCallState` is fed its events, whether they were just written or are read from the record, and
`next_action` says what is due: the only place where that is decided. It is a pure function of the
events and of a `Context`, so that a table test shows all of it (tests/calls/test_tool_call.py).

A request without an outcome *may* have been carried out, if the process that wrote it is gone; so
may one whose tool raised. The effect class says what is done then (`effects.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from plait.calls.actions import (
    Action,
    AskAnswerer,
    AskApprover,
    AskPerson,
    AskQuestion,
    Compensate,
    Fail,
    ProbeCall,
    RequestAgain,
    Review,
    RunTool,
    Settled,
    Stopped,
    TakeAnswer,
    TakeEarlier,
    UseEdited,
    WaitForPerson,
)
from plait.event import Event, Json
from plait.event import kinds as k
from plait.event.effect_classes import EFFECTS, NOT_RUN
from plait.event.kinds import Failure
from plait.ids import Digest, Micros
from plait.journal.standing import Standing
from plait.secrets import stand_ins
from plait.tool import Tool

SERVICE = "service:plait"
STOPPED = "Stopped"
EFFECT_UNKNOWN, APPROVER_FAILED = "EffectUnknown", "ApproverFailed"
_RETURNED = k.ToolReturned.__name__
LOST = "its process ended, or lost the run, meanwhile"


class Context(Protocol):
    """The facts about a call that its own events do not tell."""

    is_in_run: bool
    can_wait: bool  # False inside of a tool without an approver: half a tool cannot be resumed
    has_approver: bool
    has_answerer: bool

    @property
    def is_live(self) -> bool:
        """True if nothing is recorded after the position of the session."""
        ...

    def now(self) -> Micros: ...

    def standing_of(self, event: Event) -> Standing:
        """Return where an event comes from: this process, the recording, or the run's source."""
        ...

    def is_reopened(self, outcome: Event, *, was_stopped: bool) -> bool:
        """True if a failure ended the run, or was stopped with it, and is now tried again."""
        ...

    def was_tried(self, call: ToolCallState) -> bool:
        """True if the call went further in a past that was rewound since."""
        ...

    def was_held(self, grant: Event) -> bool:
        """True if the run parked, for a pause or a gate, where it took this consent in."""
        ...

    def is_open(self, ask: Event) -> bool:
        """True if no event of the session's own log has settled an ask: the inbox is not read."""
        ...

    def is_bound(self, call: ToolCallState) -> bool:
        """True if the last ask is for exactly the call as it is requested now."""
        ...

    def change(self, call: ToolCallState) -> str:
        """Return the change of tool or policy since consent was asked for; "" if there is none."""
        ...

    def is_judged_alike(self, call: ToolCallState) -> bool:
        """True if the policies of now are those that the request was judged by."""
        ...

    def earlier(self, call: ToolCallState) -> EarlierCall | None:
        """Return the same call before a change of the program was accepted; None: it is new."""
        ...

    def misfit(self, call: ToolCallState) -> str:
        """Return why a result that a person reported just now lacks the tool's type; "" if not."""
        ...


class EarlierCall(NamedTuple):
    """A call of the steps that a changed program left behind, and asks for again."""

    outcome: Event | None  # None: it has none, or was certainly not run
    decision: Event | None  # consent to it that still holds, or the answer to its question
    may_have_begun: bool  # it has no outcome, and may have happened
    # why consent that was asked for or given does not count; "": there was none, or it counts
    change: str = ""


class ToolCallState:
    """A call and how it stands."""

    def __init__(
        self,
        number: int,
        tool: Tool[..., Any],
        id: str,
        request: Event,
        own: dict[str, Any] | None = None,
        *,
        is_recalled: bool = False,
    ) -> None:
        self.number, self.id = number, id
        self._tool = tool
        # the arguments as passed, since the record may have secrets taken out; None: as recorded
        self._own = own
        self._is_recalled = is_recalled  # the arguments come from the recording
        self.first = self.last = self._keyed = request
        self.ask: Event | None = None  # the last ask for consent, or the question
        self.asked_for: Event | None = None  # the request that the ask is about
        self.grant: Event | None = None
        self.denial: Event | None = None
        self.answer: Event | None = None  # to the question of a tool that asks a person
        self.refusal: k.BudgetRefused | None = None
        self.unknown: Event | None = None  # the outcome is in doubt
        self.outcome: Event | None = None
        self._was_compensated = False
        self._begin(request)

    def _begin(self, request: Event) -> None:
        body = request.body
        assert isinstance(body, k.ToolRequested)
        self.request, self.attempt = request, body.attempt
        self.given, self.policy, self.reason = body.arguments, body.policy, body.reason
        self.needs_consent = body.decision == "ask"
        self.is_carried = body.carries is not None  # this very request, not a later attempt
        self.tool = self._tool.with_effect(body.effect)  # the class is that of this very call
        self.is_undone = False  # it did not happen, or was undone: it is to be run (again)
        self.unknown = self.outcome = self.refusal = None

    def feed(self, events: Iterable[Event]) -> None:
        """Take the events of this call in, one after another."""
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        self.last = event
        if event.kind == _RETURNED:  # as most calls end: its body, decoded at each access, may wait
            self.outcome = event
            return
        body = event.body
        if isinstance(body, k.ToolRequested):
            is_corrected = self.grant is not None and body.decision != "ask"
            if self._was_compensated:
                self._keyed, self._was_compensated = event, False
            if body.arguments != self.given:  # as a person wrote them, and they were recorded
                self._own, self._is_recalled = None, True
            if body.attempt == 1:  # asked for anew, in a branch: under a key of its own
                self.first, self.ask, self.grant, self.denial = event, None, None, None
                self._keyed = event
                is_corrected = False
            self._begin(event)
            self.needs_consent = self.needs_consent and not is_corrected
        elif isinstance(body, k.ToolFailed):
            self.outcome = event
        elif isinstance(body, k.ToolUnknown):
            self.unknown, self.outcome = event, None
        elif isinstance(body, k.ToolResolved):
            # Undone by the tool itself it is run once more; undone by a person, it stays undone.
            is_own = body.verdict == "compensated" and event.actor == SERVICE
            self.is_undone = body.verdict == "did_not_happen" or is_own
            self._was_compensated = is_own
            self.outcome = None if self.is_undone else event
            self.unknown = None if self.is_undone else self.unknown
        elif isinstance(body, k.ApprovalRequested):
            self.ask, self.asked_for, self.grant, self.denial = event, self.request, None, None
        elif isinstance(body, k.ApprovalGranted) and self._is_for_ask(body.binding):
            self.grant = event
        elif isinstance(body, k.ApprovalDenied) and self._is_for_ask(body.binding):
            self.denial = event
        elif isinstance(body, k.BudgetRefused):
            self.refusal = body
        elif isinstance(body, k.QuestionAsked):
            self.ask = event
        elif isinstance(body, k.QuestionAnswered):
            self.answer = event

    def _is_for_ask(self, binding: Digest) -> bool:
        ask = self.approval_ask
        return ask is not None and ask.binding == binding

    # ── how it stands ────────────────────────────────────────────────────────────────────────

    @property
    def key(self) -> Digest:
        """The idempotency key: the same however often the run is resumed.

        A call that was undone is another one to the service, which may remember the first by its
        key, so it gets a new key when it is requested again. A call that a changed program asks for
        again keeps its key.
        """
        body = self._keyed.body
        assert isinstance(body, k.ToolRequested)
        return body.carries.key if body.carries is not None else self._keyed.id

    @property
    def since(self) -> Event:
        """The event after which the tool may have begun: the request, or the consent to it."""
        return self.grant if self.needs_consent and self.grant is not None else self.request

    @property
    def waits(self) -> bool:
        """True while a person has to consent first."""
        return self.outcome is None and self.needs_consent and self.grant is None

    @property
    def approval_ask(self) -> k.ApprovalRequested | None:
        body = self.ask.body if self.ask is not None else None
        return body if isinstance(body, k.ApprovalRequested) else None

    @property
    def times_asked(self) -> int:
        ask = self.approval_ask
        return ask.asked if ask is not None else 0

    @property
    def edited(self) -> Json:
        """The arguments that the consenting person put in place, until they are requested."""
        is_new = self.grant is not None and self.request.seq < self.grant.seq
        body = self.grant.body if self.grant is not None and is_new else None
        return body.edited if isinstance(body, k.ApprovalGranted) else None

    @property
    def missing_secrets(self) -> list[str]:
        """The names that stand in the arguments for secrets, which are nowhere on record."""
        return stand_ins(self.given) if self._own is None and self._is_recalled else []

    def arguments(self) -> dict[str, Any]:
        return dict(self._own) if self._own is not None else self.tool.arguments(self.given)

    # ── what is due ──────────────────────────────────────────────────────────────────────────

    def next_action(self, context: Context) -> Action:
        """Return what is due next. Feed the events that come of it, and ask again."""
        if self.outcome is not None:
            return self._action_after_outcome(self.outcome, context)
        earlier = context.earlier(self) if self.is_carried else None
        if earlier is not None and earlier.outcome is not None:
            return TakeEarlier(earlier.outcome)
        if self.tool.asks and not self.waits:
            return self._action_of_question(context, earlier)
        if context.is_in_run and (action := self._action_in_doubt(context, earlier)) is not None:
            return action
        if (
            self.needs_consent
            and (action := self._action_for_consent(context, earlier)) is not None
        ):
            return action
        if names := self.missing_secrets:
            why = "an argument has a secret, whose value is not on record"
            step = "After the process ended it was not run; call it again, with the value"
            return Fail(Failure("SecretArgument", f"{why}: {', '.join(names)}. {step}"))
        return RunTool()

    def _action_after_outcome(self, outcome: Event, context: Context) -> Action:
        if outcome.kind == _RETURNED:
            return Settled(outcome)
        body = outcome.body
        if isinstance(body, k.ToolResolved):
            why = context.misfit(self) if body.verdict == "happened" else ""
            return Review(why) if why else Settled(outcome)
        assert isinstance(body, k.ToolFailed)
        is_ours = outcome.header.origin in ("program", "human")  # a tool may raise any name
        was_stopped = body.failure.kind == STOPPED and is_ours
        if context.is_reopened(outcome, was_stopped=was_stopped):
            was_not_run = body.failure.kind in NOT_RUN and is_ours
            if was_not_run or EFFECTS[self.tool.effect].is_repeatable:
                return self._request_again(context)
            failure = f"{body.failure.kind}: {body.failure.message}"
            return self._find_out(f"it failed, and may have happened all the same: {failure}")
        if was_stopped:
            return Stopped()
        # its next attempt was rewound: whoever goes on from here makes it again
        is_cut_short = self.attempt < self.tool.attempts and context.was_tried(self)
        return self._request_again(context) if is_cut_short else Settled(outcome)

    def _action_in_doubt(self, context: Context, earlier: EarlierCall | None) -> Action | None:
        """Return what is due for a call that may have happened; None if it may just be run."""
        was_tried = context.was_tried(self)
        if self.is_undone and not was_tried:
            return self._request_again(context)
        if self.unknown is not None:
            is_asked = not context.is_live or context.is_open(self.unknown)
            return WaitForPerson() if is_asked else Review(LOST)
        standing = context.standing_of(self.since)
        if earlier is not None and earlier.may_have_begun:
            was_tried = True
        if not was_tried and (self.waits or standing is Standing.LIVE):
            return None
        if standing is Standing.INHERITED:
            return RequestAgain(is_new=True)
        if not was_tried and self.since is self.grant and context.was_held(self.since):
            return None
        if EFFECTS[self.tool.effect].is_repeatable:  # it is run again, with the same key
            is_same = standing is Standing.LIVE or self._is_as_consented(context)
            return None if is_same else RequestAgain()
        return self._find_out(LOST)

    def _request_again(self, context: Context) -> RequestAgain:
        """Request the call once more: only what did not happen needs no second consent."""
        keeps = self.is_undone and self.grant is not None and self._is_as_consented(context)
        is_new = context.standing_of(self.since) is Standing.INHERITED
        return RequestAgain(keeps_consent=keeps, is_new=is_new and not keeps)

    def _is_as_consented(self, context: Context) -> bool:
        return context.is_judged_alike(self) and (self.grant is None or not context.change(self))

    def _find_out(self, why: str) -> Action:
        """Return how a call that may have happened is settled: by its tool, or by a person."""
        if names := self.missing_secrets:
            also = "and an argument was a secret, which is not on record"
            return Review(f"{why}; {also}: {', '.join(names)}")
        rule = EFFECTS[self.tool.effect]
        if rule.companion and getattr(self.tool, rule.companion) is None:
            return Review(f"{why}; the tool has no {rule.companion}= any more")
        match rule.when_lost:
            case "probe":
                return ProbeCall(why)
            case "compensate":
                return Compensate(why)
            case "review":
                return Review(why)
            case "repeat":
                return RequestAgain()

    def _action_for_consent(self, context: Context, earlier: EarlierCall | None) -> Action | None:
        """Return what is due before the call may run; None if it may."""
        if self.waits and not context.is_in_run:
            where = "on a session outside of the run; use the run's own session"
            return Fail(Failure("Refused", f"it needs consent, which cannot be waited for {where}"))
        if self.waits and not context.can_wait:
            where = "inside a tool; call it from a workflow, or pass approver="
            return Fail(Failure("Refused", f"it needs consent, which cannot be waited for {where}"))
        change = context.change(self)
        if change and (self.grant is not None or self.asked_for is self.request):
            return RequestAgain()
        if self.waits:
            return self._action_while_waiting(context, change, earlier)
        return UseEdited() if self.edited is not None else None

    def _action_while_waiting(
        self, context: Context, change: str, earlier: EarlierCall | None
    ) -> Action:
        ask = self.approval_ask
        if self.denial is not None:
            body = self.denial.body
            assert isinstance(body, k.ApprovalDenied)
            why = body.reason or f"{self.denial.actor} did not allow it"
            return Fail(Failure("Denied", why), cause=self.denial)
        if ask is None or self.ask is None or not context.is_bound(self):
            is_first = ask is None  # consent to the call that it stands for may have been asked for
            return AskPerson(earlier.change if is_first and earlier is not None else change)
        if ask.expires is not None and context.now() > ask.expires:
            why = "nobody allowed it in time; it was not run"
            return Fail(Failure("ApprovalExpired", why), expires=True)
        if not context.is_open(self.ask):  # its answer was for another binding, or was rewound
            return AskPerson(change)
        if earlier is not None and earlier.decision is not None:
            return TakeEarlier(earlier.decision)
        return AskApprover() if context.has_approver else WaitForPerson()

    def _action_of_question(self, context: Context, earlier: EarlierCall | None) -> Action:
        if not context.is_in_run:
            return Fail(Failure("NoRun", "a person can only be asked in a workflow"))
        if self.ask is None:
            return AskQuestion()
        if self.answer is not None:
            return TakeAnswer()
        if earlier is not None and earlier.decision is not None:
            return TakeEarlier(earlier.decision)
        return AskAnswerer() if context.has_answerer else WaitForPerson()
