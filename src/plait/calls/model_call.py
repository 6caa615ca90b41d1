"""One ask of a model, from its first attempt to its settlement.

A `ModelCallState` is fed its events, whether they were just written or are read from the record,
and `next_action` says what is due: the only place where that is decided. It is a pure function of
the events and of a `ModelContext`, so that a table test shows all of it
(tests/calls/test_model_call.py).

An ask may be made of a list of models. If one is down, the next is asked, until each was asked
once; a failure that another model would have as well, such as a bad request, ends the ask.

An ask without an outcome was lost, if the process that made it is gone: it is made again, and does
not count as an attempt. A branch leaves an open ask of its source behind and makes its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from plait.calls.actions import (
    AskAnew,
    AskNext,
    EndAtBudget,
    GiveUp,
    ModelAction,
    RecordAsk,
    RecordLoss,
    RequestReply,
    RetryAfter,
    Settled,
)
from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import Failure
from plait.journal.standing import Standing
from plait.session.backoff import backoff_s

PROCESS_ENDED = "ProcessEnded"  # the failure of an ask that was lost with its process
_ASKED, _FAILED = k.ModelAsked.__name__, k.ModelFailed.__name__
# The faults of a provider, of which another one is free. An error of a program's own model goes by
# its class.
DOWN = frozenset(
    {
        "AuthFailed",
        "ConnectionError",
        "ConnectionLost",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "MalformedReply",
        "MissingExtra",
        "MissingKey",
        "MissingSetting",
        "MissingWeights",
        "NotFound",
        "Overloaded",
        "QuotaExceeded",
        "RateLimited",
        "ServerError",
        "StreamCut",
        "Timeout",
        "TimeoutError",
    }
)


class Retry(NamedTuple):
    """The number of attempts, and the waits between them: longer each time, or as long as the
    provider says.
    """

    attempts: int = 5
    wait_s: float = 0.5  # before the second attempt; doubled for each one after
    wait_s_max: float = 60.0  # a provider that wants more is not waited for


class ModelContext(Protocol):
    """The facts about an ask that its own events do not tell."""

    @property
    def is_live(self) -> bool:
        """True if nothing is recorded after the last event of the ask."""
        ...

    @property
    def has_next(self) -> bool:
        """True if another attempt of the ask is recorded."""
        ...

    @property
    def next_model(self) -> str | None:
        """The name of the model that the next recorded attempt asks. None: none is recorded."""
        ...

    @property
    def is_at_end(self) -> bool:
        """True in a replay where nothing is left but the end of the run."""
        ...

    def standing_of(self, event: Event) -> Standing:
        """Return where an event comes from: this process, the recording, or the run's source."""
        ...

    def is_reopened(self, outcome: Event) -> bool:
        """True if a failure ended the run, and is now tried again."""
        ...


class ModelCallState:
    """An ask and how it stands."""

    def __init__(
        self,
        id: str,
        retry: Retry,
        models: Sequence[str] = (),  # the names of a list; fewer than two: there is none
        *,
        is_last_word: bool = False,
    ) -> None:
        self.id = id
        self._retry, self._models = retry, tuple(models)
        # True: the budget is used up, but for the share that is kept back for one answer
        self._is_last_word = is_last_word
        self.attempt = 0
        self.model: str = ""  # the name of the model that was asked last; "": none was
        self._asked_models: set[str] = set()  # in this round through the list
        self._tries = 0  # attempts at this model, without those that ended with their process
        self._lost = 0  # attempts that ended with their process, and do not count
        self.asked: Event | None = None
        self.outcome: Event | None = None  # of the last attempt
        self.failure: Failure | None = None  # None: it has not failed
        self._retry_after_s: float | None = None  # as the provider says, which is not recorded

    def feed(self, events: Iterable[Event], *, retry_after_s: float | None = None) -> None:
        """Take the events of this ask in, one after another."""
        for event in events:
            if event.kind == _ASKED:
                self.asked, self.outcome, self.failure = event, None, None
                self.attempt += 1
                self._count_attempt(event)
                self.id = event.header.call or self.id  # an inherited ask has the id it had there
            else:
                self.outcome = event
                if event.kind == _FAILED:
                    body = event.body
                    assert isinstance(body, k.ModelFailed)
                    self.failure, self._retry_after_s = body.failure, retry_after_s
                    is_lost = body.failure.kind == PROCESS_ENDED
                    self._lost += is_lost
                    self._tries -= is_lost

    def _count_attempt(self, asked: Event) -> None:
        body = asked.body
        assert isinstance(body, k.ModelAsked)
        if body.model != self.model:
            self.model, self._tries = body.model, 0
            if body.model in self._asked_models:  # the list is gone through once more
                self._asked_models.clear()
            self._asked_models.add(body.model)
        self._tries += 1

    @property
    def asked_names(self) -> str:
        """The names of the models of the list that were asked, in its order."""
        return ",".join([name for name in self._models if name in self._asked_models])

    @property
    def models_left(self) -> tuple[str, ...]:
        """The models of the list that were not asked yet, in its order; all, if all were asked."""
        left = tuple([name for name in self._models if name not in self._asked_models])
        return left or self._models

    def next_action(self, context: ModelContext) -> ModelAction:
        """Return what is due next. Feed the events that come of it, and ask again."""
        if self.asked is None:
            return RecordAsk()
        if self.failure is not None and self.outcome is not None:
            return self._action_after_failure(self.outcome, self.failure, context)
        if self.outcome is not None:
            if self._is_last_word and _is_empty(self.outcome):
                return self._action_after_empty_word(self.outcome, context)
            return Settled(self.outcome)
        standing = context.standing_of(self.asked)
        if standing is Standing.LIVE:
            return RequestReply()
        return AskAnew() if standing is Standing.INHERITED else RecordLoss()

    def _action_after_empty_word(self, reply: Event, context: ModelContext) -> ModelAction:
        """Return what is due after a last word that says nothing: the budget has ended the run.

        A run that went on after it was given another budget, and is asked once more.
        """
        went_on = context.standing_of(reply) is not Standing.LIVE and not context.is_at_end
        return AskAnew() if went_on else EndAtBudget()

    def _action_after_failure(
        self, outcome: Event, failure: Failure, context: ModelContext
    ) -> ModelAction:
        """Return what followed a failure on record; beyond the record it is decided now."""
        if context.standing_of(outcome) is not Standing.LIVE:
            if context.has_next:
                moves_on = context.next_model not in (None, self.model)
                return AskNext(failure) if moves_on else RetryAfter(0.0, failure)
            if context.is_reopened(outcome):
                return AskNext(failure) if len(self._models) > 1 else RetryAfter(0.0, failure)
            if not context.is_live:
                return GiveUp(failure)
        wait_s = self._wait_s(failure)
        if wait_s is not None:
            return RetryAfter(wait_s, failure)
        return AskNext(failure) if self._has_another(failure) else GiveUp(failure)

    def _has_another(self, failure: Failure) -> bool:
        """True if the failure is the provider's, and a model of the list was not asked yet."""
        is_down = failure.retryable or failure.kind in DOWN
        return is_down and any(name not in self._asked_models for name in self._models)

    def _wait_s(self, failure: Failure) -> float | None:
        """Return the seconds until the next attempt; None if there is none."""
        retry, tries, wanted_s = self._retry, self._tries, self._retry_after_s
        if failure.kind == PROCESS_ENDED:
            return 0.0  # no answer was heard: it does not count as an attempt
        if not failure.retryable or tries >= retry.attempts:
            return None
        if wanted_s is not None:
            return max(0.0, wanted_s) if wanted_s <= retry.wait_s_max else None
        return backoff_s(retry.wait_s, retry.wait_s_max, self.id, tries)


def _is_empty(reply: Event) -> bool:
    """True if a reply says nothing in words, files or data."""
    body = reply.body
    assert isinstance(body, k.ModelReplied)
    return all(
        isinstance(part, k.Reasoning)
        or (isinstance(part, k.Text) and not part.text and not part.blob)
        for part in body.parts
    )
