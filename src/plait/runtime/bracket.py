"""One tool call from its first request to its settlement: attempts, approvals, doubts and what came
of them.

A bracket is fed with its events, whether they were just written or are read from the record, and
knows what is due next. After a crash a request without an outcome *may* have happened; what is done
about that depends on the tool's effect class and is decided here and nowhere else.
"""

from __future__ import annotations

from typing import Any

from plait.event import Event, Json
from plait.event import kinds as k
from plait.ids import Digest
from plait.secrets import stand_ins
from plait.tool import Tool

SERVICE = "service:plait"


class Bracket:
    """A call and how it stands."""

    def __init__(
        self,
        number: int,
        tool: Tool[..., Any],
        call: str,
        request: Event,
        own: dict[str, Any] | None = None,
        *,
        recalled: bool = False,
    ) -> None:
        self.number, self.call = number, call
        self._tool = tool
        # what was passed: what is recorded of it may have secrets taken out. None: as recorded
        self._own = own
        self._recalled = recalled  # whether the arguments come off the record
        self.first = self.last = request
        self.asked: Event | None = None  # the last time a person was asked for it
        self.asked_for: Event | None = None  # the request that person was asked about
        self.grant: Event | None = None  # and that person's consent
        self.denial: Event | None = None  # or refusal
        self.answer: Event | None = None  # of a tool that asks a person: what was answered
        self.refusal: k.BudgetRefused | None = None  # the budget does not allow it
        self.unknown: Event | None = None  # the outcome is in doubt
        self.outcome: Event | None = None
        self._begin(request)

    def _begin(self, request: Event) -> None:
        body = request.body
        assert isinstance(body, k.ToolRequested)
        self.request, self.attempt, self.given, self.policy = (
            request,
            body.attempt,
            body.arguments,
            body.policy,
        )
        self.needs_consent = body.decision == "ask"
        self.version, self.effect = body.version, body.effect
        self.tool = self._tool.classed(body.effect)  # the class is that of this very call
        self.again = False  # it did not happen, or was undone: it is to be run (again)
        self.unknown = self.outcome = self.refusal = None

    @property
    def key(self) -> Digest:
        """The idempotency key: the same however often it is taken up again."""
        return self.first.id

    @property
    def since(self) -> Event:
        """The event from which on it may have been run."""
        return self.grant if self.needs_consent and self.grant is not None else self.request

    @property
    def waits(self) -> bool:
        """Whether a person has to consent first."""
        return self.outcome is None and self.needs_consent and self.grant is None

    def take(self, event: Event) -> None:
        """What happened next in this bracket."""
        body, self.last = event.body, event
        if isinstance(body, k.ToolRequested):
            corrected = self.grant is not None and body.decision != "ask"
            if body.arguments != self.given:  # as a person wrote them, and they were recorded
                self._own, self._recalled = None, True
            if body.attempt == 1:  # asked for anew, in a branch: under a key of its own
                self.first, self.asked, self.grant, self.denial, corrected = (
                    event,
                    None,
                    None,
                    None,
                    False,
                )
            self._begin(event)
            self.needs_consent = self.needs_consent and not corrected
        elif isinstance(body, (k.ToolReturned, k.ToolFailed)):
            self.outcome = event
        elif isinstance(body, k.ToolUnknown):
            self.unknown, self.outcome = event, None
        elif isinstance(body, k.ToolResolved):
            # Undone by the tool itself it is run once more, of which the request may have been
            # rewound; by a person, that is their word.
            self.again = body.verdict == "did_not_happen" or (
                body.verdict == "compensated" and event.actor == SERVICE
            )
            self.outcome = None if self.again else event
            self.unknown = None if self.again else self.unknown
        elif isinstance(body, k.ApprovalRequested):
            self.asked, self.asked_for, self.grant, self.denial = event, self.request, None, None
        elif isinstance(body, k.ApprovalGranted) and self._answers(body.binding):
            self.grant = event
        elif isinstance(body, k.ApprovalDenied) and self._answers(body.binding):
            self.denial = event
        elif isinstance(body, k.BudgetRefused):
            self.refusal = body
        elif isinstance(body, k.QuestionAsked):
            self.asked = event
        elif isinstance(body, k.QuestionAnswered):
            self.answer = event

    def _answers(self, binding: Digest) -> bool:
        body = self.asked.body if self.asked is not None else None
        return isinstance(body, k.ApprovalRequested) and body.binding == binding

    @property
    def edited(self) -> Json:
        """The arguments that whoever consented put in place of those asked for.

        None: as asked, or they are in place already.
        """
        body = (
            self.grant.body
            if self.grant is not None and self.request.seq < self.grant.seq
            else None
        )
        return body.edited if isinstance(body, k.ApprovalGranted) else None

    @property
    def asks(self) -> int:
        body = self.asked.body if self.asked is not None else None
        return body.asked if isinstance(body, k.ApprovalRequested) else 0

    @property
    def lacks(self) -> list[str]:
        """What stands in the arguments for secrets that were in them, and are nowhere on record: it
        cannot be called with that.
        """
        return stand_ins(self.given) if self._own is None and self._recalled else []

    def arguments(self) -> dict[str, Any]:
        return dict(self._own) if self._own is not None else self.tool.arguments(self.given)
