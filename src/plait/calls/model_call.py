"""One ask of a model, from its first attempt to its settlement.

A `ModelCallState` is fed its events, whether they were just written or are read from the record,
and `next_action` says what is due: the only place where that is decided. It is a pure function of
the events and of a `ModelContext`, so that a table test shows all of it
(tests/calls/test_model_call.py).

An ask without an outcome was lost, if the process that made it is gone: it is made again, and does
not count as an attempt. A branch leaves an open ask of its source behind and makes its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from plait.calls.actions import (
    AskAnew,
    EndAtBudget,
    GiveUp,
    ModelAction,
    RecordAsk,
    RecordLoss,
    RequestReply,
    RetryAfter,
    Settled,
)
from plait.calls.backoff import backoff_s
from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import Failure
from plait.journal.standing import Standing

PROCESS_ENDED = "ProcessEnded"  # the failure of an ask that was lost with its process
_ASKED, _FAILED = k.ModelAsked.__name__, k.ModelFailed.__name__


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

    def __init__(self, id: str, retry: Retry, *, is_last_word: bool = False) -> None:
        self.id = id
        self._retry = retry
        # True: the budget is used up, but for the share that is kept back for one answer
        self._is_last_word = is_last_word
        self.attempt = 0
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
                self.id = event.header.call or self.id  # an inherited ask has the id it had there
            else:
                self.outcome = event
                if event.kind == _FAILED:
                    body = event.body
                    assert isinstance(body, k.ModelFailed)
                    self.failure, self._retry_after_s = body.failure, retry_after_s
                    self._lost += body.failure.kind == PROCESS_ENDED

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
            if context.has_next or context.is_reopened(outcome):
                return RetryAfter(0.0, failure)
            if not context.is_live:
                return GiveUp(failure)
        wait_s = self._wait_s(failure)
        return RetryAfter(wait_s, failure) if wait_s is not None else GiveUp(failure)

    def _wait_s(self, failure: Failure) -> float | None:
        """Return the seconds until the next attempt; None if there is none."""
        retry, attempt, wanted_s = self._retry, self.attempt - self._lost, self._retry_after_s
        if failure.kind == PROCESS_ENDED:
            return 0.0  # no answer was heard: it does not count as an attempt
        if not failure.retryable or attempt >= retry.attempts:
            return None
        if wanted_s is not None:
            return max(0.0, wanted_s) if wanted_s <= retry.wait_s_max else None
        return backoff_s(retry.wait_s, retry.wait_s_max, self.id, attempt)


def _is_empty(reply: Event) -> bool:
    """True if a reply says nothing in words, files or data."""
    body = reply.body
    assert isinstance(body, k.ModelReplied)
    return all(
        isinstance(part, k.Reasoning)
        or (isinstance(part, k.Text) and not part.text and not part.blob)
        for part in body.parts
    )
