"""The next action of an ask of a model: one table over events so far and where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import pytest

from plait.calls.actions import (
    AskAnew,
    AskNext,
    EndAtBudget,
    GiveUp,
    RecordAsk,
    RecordLoss,
    RequestReply,
    RetryAfter,
    Settled,
)
from plait.calls.model_call import PROCESS_ENDED, ModelCallState, Retry
from plait.event import Body, Event, seal
from plait.event import kinds as k
from plait.event.kinds import Failure, Usage
from plait.ids import Digest, LogId, Micros
from plait.journal.standing import Standing

LOG = LogId("01a1e807-061c-752d-992f-b2e79d9250b4")
Where = Literal["live", "recorded", "inherited", "over"]
WHERE: tuple[Where, ...] = get_args(Where)


def event(seq: int, body: Body, *, call: str = "c1") -> Event:
    return seal(
        body,
        log=LOG,
        seq=seq,
        parents=(Digest("a" * 64),),
        time=Micros(seq),
        salt=b"0" * 16,
        actor="agent:a",
        origin="program",
        run="r",
        call=call,
    )


@dataclass
class Facts:
    """A `ModelContext` of plain values.

    live: all of it happens in this process. recorded: the recording ends after these events, and
    the run goes on. inherited: likewise, of the run that this one was branched off. over: a replay
    whose recording ends after these events.
    """

    where: Where = "live"
    has_next: bool = False
    reopened: bool = False
    is_at_end: bool = False
    next_model: str | None = None

    @property
    def is_live(self) -> bool:
        return self.where != "over"

    def standing_of(self, event: Event) -> Standing:
        return {
            "live": Standing.LIVE,
            "recorded": Standing.RECORDED,
            "inherited": Standing.INHERITED,
            "over": Standing.RECORDED,
        }[self.where]

    def is_reopened(self, outcome: Event) -> bool:
        return self.reopened


# ── the events so far, by name ───────────────────────────────────────────────────────────────


def asked(attempt: int = 1, model: str = "m") -> Body:
    return k.ModelAsked(model, Digest("c" * 64), None, attempt, None)


def failed(kind: str = "RateLimited", *, retryable: bool = True) -> Body:
    return k.ModelFailed(Failure(kind, "no", retryable=retryable), 1)


def replied(*parts: k.Text | k.Reasoning | k.Data) -> Body:
    return k.ModelReplied(parts, Usage(1, 1), "end")


HISTORIES: dict[str, list[Body]] = {
    "nothing": [],
    "asked": [asked()],
    "failed, and may be tried again": [asked(), failed()],
    "failed for good": [asked(), failed("AuthFailed", retryable=False)],
    "lost with the process": [asked(), failed(PROCESS_ENDED)],
    "failed five times": [each for n in range(5) for each in (asked(n + 1), failed())],
    "asked once more": [asked(), failed(), asked(2)],
    "replied": [asked(), replied(k.Text("yes"))],
    "replied at the second attempt": [asked(), failed(), asked(2), replied(k.Text("yes"))],
}
EMPTY_WORDS: dict[str, Body] = {
    "nothing": replied(),
    "an empty text": replied(k.Text("")),
    "thoughts": replied(k.Reasoning("well")),
}
WORDS: dict[str, Body] = {
    "a text": replied(k.Text("yes")),
    "a long text": replied(k.Text(blob=Digest("d" * 64))),
    "data": replied(k.Data(None)),
}


def call_of(bodies: list[Body], *, is_last_word: bool = False) -> ModelCallState:
    call = ModelCallState("c1", Retry(), is_last_word=is_last_word)
    call.feed(event(10 + at, body) for at, body in enumerate(bodies))
    return call


# ── the table ────────────────────────────────────────────────────────────────────────────────

WANTED: dict[str, dict[Where, type]] = {
    "nothing": dict.fromkeys(WHERE, RecordAsk),
    "asked": {
        "live": RequestReply,
        "recorded": RecordLoss,
        "inherited": AskAnew,
        "over": RecordLoss,  # the journal refuses to write it
    },
    "failed, and may be tried again": {
        "live": RetryAfter,
        "recorded": RetryAfter,
        "inherited": RetryAfter,
        "over": GiveUp,
    },
    "failed for good": dict.fromkeys(WHERE, GiveUp),
    "lost with the process": {
        "live": RetryAfter,
        "recorded": RetryAfter,
        "inherited": RetryAfter,
        "over": GiveUp,
    },
    "failed five times": dict.fromkeys(WHERE, GiveUp),
    "asked once more": {
        "live": RequestReply,
        "recorded": RecordLoss,
        "inherited": AskAnew,
        "over": RecordLoss,
    },
    "replied": dict.fromkeys(WHERE, Settled),
    "replied at the second attempt": dict.fromkeys(WHERE, Settled),
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("history", HISTORIES)
def test_what_is_due(history: str, where: Where) -> None:
    action = call_of(HISTORIES[history]).next_action(Facts(where))
    assert type(action) is WANTED[history][where]


FAILED = [name for name in HISTORIES if name.startswith(("failed", "lost"))]


@pytest.mark.parametrize("where", ["recorded", "inherited", "over"])
@pytest.mark.parametrize("history", FAILED)
def test_a_recorded_attempt_follows_at_once(history: str, where: Where) -> None:
    """The recording says that it was tried again: it is not decided a second time."""
    action = call_of(HISTORIES[history]).next_action(Facts(where, has_next=True))
    assert isinstance(action, RetryAfter) and action.seconds == 0


@pytest.mark.parametrize("where", ["recorded", "inherited", "over"])
@pytest.mark.parametrize("history", FAILED)
def test_a_failure_that_ended_the_run_is_tried_again(history: str, where: Where) -> None:
    """The run was resumed because of it, also after its last attempt and if it failed for good."""
    action = call_of(HISTORIES[history]).next_action(Facts(where, reopened=True))
    assert isinstance(action, RetryAfter) and action.seconds == 0


@pytest.mark.parametrize("history", FAILED)
def test_only_recorded_failures_are_followed_by_the_recording(history: str) -> None:
    call = call_of(HISTORIES[history])
    facts = Facts("live", has_next=True, reopened=True)
    assert call.next_action(facts) == call.next_action(Facts("live"))


@pytest.mark.parametrize("word", [*EMPTY_WORDS, *WORDS])
@pytest.mark.parametrize("is_at_end", [True, False])
@pytest.mark.parametrize("where", WHERE)
def test_the_last_word_of_a_budget(word: str, is_at_end: bool, where: Where) -> None:
    """A last word that says nothing ends the run; a run that went on is asked once more."""
    body = {**EMPTY_WORDS, **WORDS}[word]
    call = call_of([asked(), body], is_last_word=True)
    action = call.next_action(Facts(where, is_at_end=is_at_end and where == "over"))
    if word in WORDS:
        assert isinstance(action, Settled)
    elif where == "live" or (where == "over" and is_at_end):
        assert isinstance(action, EndAtBudget)
    else:
        assert isinstance(action, AskAnew)


@pytest.mark.parametrize("word", EMPTY_WORDS)
def test_without_a_budget_an_empty_reply_is_a_reply(word: str) -> None:
    action = call_of([asked(), EMPTY_WORDS[word]]).next_action(Facts())
    assert isinstance(action, Settled)


# ── lists of models ──────────────────────────────────────────────────────────────────────────

DOWN, BAD = failed("AuthFailed", retryable=False), failed("BadRequest", retryable=False)
LISTED: dict[str, tuple[list[Body], type]] = {
    "the first is down": ([asked(1, "a"), DOWN], AskNext),
    "the first wants another attempt": ([asked(1, "a"), failed()], RetryAfter),
    "the first has had all attempts": (
        [asked(1, "a"), failed(), asked(2, "a"), failed("Odd")],
        AskNext,
    ),
    "the first refuses the request": ([asked(1, "a"), BAD], GiveUp),
    "the first was lost": ([asked(1, "a"), failed(PROCESS_ENDED)], RetryAfter),
    "the second wants another attempt": (
        [asked(1, "a"), failed(), asked(2, "a"), failed(), asked(3, "b"), failed()],
        RetryAfter,
    ),
    "both are down": ([asked(1, "a"), DOWN, asked(2, "b"), DOWN], GiveUp),
    "the second was asked first, and is down": ([asked(1, "b"), DOWN], AskNext),
    "in the second round the first is down": (
        [asked(1, "a"), DOWN, asked(2, "b"), DOWN, asked(3, "a"), DOWN],
        AskNext,
    ),
    "in the second round both are down": (
        [asked(n, "ab"[(n - 1) % 2]) if half else DOWN for n in range(1, 5) for half in (1, 0)],
        GiveUp,
    ),
}


def listed_call(bodies: list[Body]) -> ModelCallState:
    call = ModelCallState("c1", Retry(attempts=2), ("a", "b"))
    call.feed(event(10 + at, body) for at, body in enumerate(bodies))
    return call


@pytest.mark.parametrize("where", ["live", "recorded", "inherited"])
@pytest.mark.parametrize("history", LISTED)
def test_which_model_is_asked_next(history: str, where: Where) -> None:
    """The same after a kill as live: it follows from the events."""
    bodies, wanted = LISTED[history]
    assert type(listed_call(bodies).next_action(Facts(where))) is wanted


@pytest.mark.parametrize("history", [name for name in LISTED if name.startswith("the first")])
def test_the_recording_says_which_model_was_asked_next(history: str) -> None:
    bodies, _ = LISTED[history]
    for where in WHERE[1:]:
        same = listed_call(bodies).next_action(Facts(where, has_next=True, next_model="a"))
        assert isinstance(same, RetryAfter) and same.seconds == 0
        other = listed_call(bodies).next_action(Facts(where, has_next=True, next_model="b"))
        assert isinstance(other, AskNext)


def test_a_list_that_failed_is_gone_through_again() -> None:
    call = listed_call(LISTED["both are down"][0])
    assert isinstance(call.next_action(Facts("recorded", reopened=True)), AskNext)
    assert call.models_left == ("a", "b")


# ── waits ────────────────────────────────────────────────────────────────────────────────────


def wait_s(call: ModelCallState) -> float | None:
    action = call.next_action(Facts())
    return action.seconds if isinstance(action, RetryAfter) else None


def test_waits_grow_up_to_a_limit_and_are_the_same_each_time() -> None:
    retry, waits = Retry(attempts=9, wait_s=1, wait_s_max=8), list[float]()
    for call in (ModelCallState("c1", retry), ModelCallState("c1", retry)):
        for attempt in range(1, 9):
            call.feed([event(attempt * 2, asked(attempt)), event(attempt * 2 + 1, failed())])
            waits.append(wait_s(call) or 0)
    first, again = waits[:8], waits[8:]
    assert first == again
    for attempt, wait in enumerate(first):
        most = min(8, 2**attempt)
        assert most / 2 <= wait <= most


def test_two_calls_do_not_wait_alike() -> None:
    calls = ModelCallState("c1", Retry()), ModelCallState("c2", Retry())
    for call in calls:
        call.feed([event(1, asked(), call=call.id), event(2, failed(), call=call.id)])
    assert wait_s(calls[0]) != wait_s(calls[1])


@pytest.mark.parametrize("wanted, waited", [(0.0, 0.0), (-1.0, 0.0), (7.5, 7.5), (61.0, None)])
def test_a_provider_that_says_how_long_is_waited_for(wanted: float, waited: float | None) -> None:
    call = ModelCallState("c1", Retry(wait_s_max=60))
    call.feed([event(1, asked())])
    call.feed([event(2, failed())], retry_after_s=wanted)
    assert wait_s(call) == waited


def test_a_lost_attempt_does_not_count() -> None:
    call = ModelCallState("c1", Retry(attempts=2))
    for attempt in (1, 2, 3):
        call.feed([event(attempt * 2, asked(attempt))])
        call.feed([event(attempt * 2 + 1, failed(PROCESS_ENDED))], retry_after_s=0.0)
        assert wait_s(call) == 0
    call.feed([event(8, asked(4)), event(9, failed())])
    assert wait_s(call)
    call.feed([event(10, asked(5)), event(11, failed())])
    assert wait_s(call) is None
    assert call.attempt == 5


def test_an_inherited_ask_keeps_its_id() -> None:
    call = ModelCallState("c1", Retry())
    call.feed([event(1, asked(), call="there")])
    assert call.id == "there"
