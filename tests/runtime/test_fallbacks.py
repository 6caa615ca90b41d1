"""Lists of models: which one is asked next, what is on record of it, and what never moves on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plait import Agent, Budget, Compactor, ScriptedModel, Selector, Session, ToolCall, Workflow
from plait.calls.model_call import Retry
from plait.errors import (
    BudgetExceeded,
    InvalidValue,
    MissingKey,
    ModelFailed,
    NoModel,
    PlaitError,
    ReplayDiverged,
)
from plait.event import kinds as k
from plait.model import Fault, find
from plait.model.base import OnDelta, Reply, Request, Restarted, TextDelta
from plait.model.fallback import COOL_S, ModelList
from plait.runs.replay import replay
from plait.runs.resume import resume
from plait.runs.whatif import whatif
from plait.runtime.cooling import choose_model, end_cooling, start_cooling
from tests.providers.wire import Wire, whole
from tests.support import Spy, bodies, free_port, kinds, word_count

TWICE = Retry(attempts=2, wait_s=0.0)
OVERLOADED = Fault("Overloaded", "come back later", retryable=True)


def scripted(name: str, *items: Any) -> ScriptedModel:
    return ScriptedModel(list(items), name=name)


def asked(session: Session) -> list[tuple[str, int]]:
    return [(body.model, body.attempt) for body in bodies(session, k.ModelAsked)]


def failures(session: Session) -> list[str]:
    return [body.failure.kind for body in bodies(session, k.ModelFailed)]


# ── the next one ─────────────────────────────────────────────────────────────────────────────


def test_the_next_model_answers_if_one_is_down() -> None:
    down, good = scripted("a", *[OVERLOADED] * 9), scripted("b", "Here you are.")
    agent = Agent("Answer.", model=[down, good], retry=TWICE)
    session = agent(Session("Hello?"))
    assert session.text == "Here you are."
    assert asked(session) == [("a", 1), ("a", 2), ("b", 3)]
    assert bodies(session, k.ModelReplied)[0].model == "b"
    assert replay(session, Agent("Answer.", model=[down, good], retry=TWICE)).head == session.head


class Half:
    """A model that breaks off in the middle of its answer."""

    name = "a"

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        assert on_delta is not None
        on_delta(TextDelta("Here "))
        raise OVERLOADED


def test_a_stream_says_which_model_failed_and_which_one_answers_now() -> None:
    def agent() -> Agent:
        return Agent("x", model=[Half(), scripted("b", "Hello.")], retry=TWICE)

    restarts = [
        "Overloaded: come back later",
        "a failed, b answers now: Overloaded: come back later",
    ]
    *deltas, session = agent().stream(Session("Hello?"))
    assert [delta.why for delta in deltas if isinstance(delta, Restarted)] == restarts
    assert isinstance(session, Session) and session.text == "Hello."

    async def listen() -> list[Any]:
        end_cooling(Half())
        return [item async for item in agent().astream(Session("Hello?"))]

    heard = asyncio.run(listen())
    assert [item.why for item in heard if isinstance(item, Restarted)] == restarts


@pytest.mark.parametrize(
    "fault",
    [
        Fault("ConnectionLost", "refused", retryable=True),
        Fault("RateLimited", "slow down", retryable=True, retry_after_s=3600),
        Fault("AuthFailed", "401"),
        Fault("QuotaExceeded", "pay first"),
        ConnectionRefusedError("nothing listens there"),
    ],
)
def test_faults_of_a_provider_move_on(fault: BaseException) -> None:
    models = [scripted("a", *[fault] * 9), scripted("b", "Yes.")]
    session = Agent("Answer.", model=models, retry=Retry(attempts=1))(Session("Hello?"))
    assert session.text == "Yes." and asked(session) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("BadRequest", "no such parameter"),
        Fault("ContextOverflow", "too long"),
        ValueError("a bug in the model"),
    ],
)
def test_faults_of_the_request_do_not(fault: BaseException) -> None:
    other = Spy("Yes.")
    with pytest.raises(ModelFailed) as error:
        Agent("Answer.", model=[scripted("a", fault), other], retry=TWICE)(Session("Hello?"))
    assert other.requests == [] and asked(error.value.session) == [("a", 1)]


def test_a_budget_that_is_used_up_does_not_move_on() -> None:
    other = Spy("Yes.")
    agent = Agent("Answer.", model=[scripted("a", OVERLOADED), other], retry=Retry(attempts=1))
    with pytest.raises(BudgetExceeded):
        agent(Session("Hello?", budget=Budget(steps_max=1)))
    assert other.requests == []


def test_if_all_are_down_the_last_failure_is_raised_and_a_resume_asks_them_all_again() -> None:
    script: list[Any] = [OVERLOADED, OVERLOADED]
    models = [scripted("a", *script), scripted("b", *script, "At last.")]
    agent = Agent("Answer.", model=models, retry=Retry(attempts=1))
    with pytest.raises(ModelFailed) as error:
        agent(Session("Hello?"))
    assert "a,b did not answer, asked 2 times" in str(error.value)
    with pytest.raises(ModelFailed):
        resume(error.value.session, agent)
    session = resume(
        error.value.session.reload(), Agent("Answer.", model=models[::-1], retry=TWICE)
    )
    assert session.text == "At last."
    assert [name for name, _ in asked(session)] == ["a", "b", "a", "b", "b"]
    assert replay(session, agent).head == session.head


def test_each_model_has_its_own_place_in_its_script() -> None:
    """A failure or an answer of one model uses up no item of another."""
    first = scripted("a", ToolCall("word_count", text="to be"), *[OVERLOADED] * 2)
    second = scripted("b", ToolCall("word_count", text="or not to"), "Five.")
    agent = Agent("Count.", model=[first, second], tools=[word_count], retry=TWICE)
    session = agent(Session("How many?"))
    assert session.text == "Five."
    assert [name for name, _ in asked(session)] == ["a", "a", "a", "b", "b"]


def test_a_record_with_a_model_that_the_list_has_no_more_differs() -> None:
    session = Agent("Answer.", model=[scripted("a", "Yes."), scripted("b")])(Session("Hello?"))
    with pytest.raises(ReplayDiverged, match="ModelAsked"):
        replay(session, Agent("Answer.", model=[scripted("c"), scripted("b")]))


def test_a_what_if_takes_a_list_and_is_replayed() -> None:
    agent = Agent("Answer.", model=scripted("a", "Yes."), retry=Retry(attempts=1))
    session = agent(Session("Hello?"))
    at = next(event.seq for event in session.events if event.kind == "ModelAsked") - 1
    models = [scripted("b", OVERLOADED), scripted("c", "No.")]
    branch = whatif(session.at(at), agent, model=models)
    assert branch.text == "No." and [name for name, _ in asked(branch)] == ["b", "c"]
    assert replay(branch, agent).head == branch.head


# ── a while ──────────────────────────────────────────────────────────────────────────────────


def test_a_model_that_was_down_is_passed_over_for_a_while() -> None:
    down, good = scripted("a", *[OVERLOADED] * 9), scripted("b", "One.", "Two.")
    agent = Agent("Answer.", model=[down, good], retry=Retry(attempts=1), name="both")
    session = agent(Session("Hello?"))
    again = agent(session.say("And now?"))
    assert [name for name, _ in asked(again)] == ["a", "b", "b"]
    assert replay(again, agent).head == again.head


def test_the_while_is_over_after_its_time_or_at_an_answer() -> None:
    one, two = scripted("a"), scripted("b")
    start_cooling(one, 0)
    assert choose_model([one, two], int(COOL_S * 1e6) - 1) is two
    assert choose_model([one, two], int(COOL_S * 1e6)) is one
    start_cooling(two, 0)
    assert choose_model([one, two], 1) is one  # all are down: in their order
    end_cooling(two)
    assert choose_model([one, two], 1) is two


# ── missing keys ─────────────────────────────────────────────────────────────────────────────


def test_a_model_without_a_key_is_left_out_with_its_reason_on_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("openai")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    good = scripted("b", ToolCall("word_count", text="to be"), "Two.")
    agent = Agent("Count.", model=["openai:gpt-5", good], tools=[word_count])
    session = agent(Session("How many?"))
    assert asked(session) == [("openai:gpt-5", 1), ("b", 2), ("b", 1)]  # said once, then left out
    assert failures(session) == ["MissingKey"]
    assert "OPENAI_API_KEY" in bodies(session, k.ModelFailed)[0].failure.message


def test_if_none_can_be_asked_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    session = Session("Hello?")
    with pytest.raises(NoModel, match="none of the 2 models can be asked: .*OPENAI_API_KEY"):
        Agent("Answer.", model=["openai:gpt-5", "openai:gpt-5-mini"])(session)
    with pytest.raises(MissingKey):
        Agent("Answer.", model=["openai:gpt-5"])(session)
    with pytest.raises(NoModel, match="no model is called 'gtp'"):  # a slip is no outage
        Agent("Answer.", model=["gtp", scripted("b")])(session)
    assert session.reload().head == session.head


# ── names ────────────────────────────────────────────────────────────────────────────────────


def test_a_variable_names_several_over_real_http(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    body = {"choices": [{"message": {"content": "Here."}, "finish_reason": "stop"}], "model": "m"}
    with Wire() as wire:
        wire.play(whole(body))
        names = f"http://127.0.0.1:{free_port()}/v1#m, {wire.url}/v1#m"
        monkeypatch.setenv("PLAIT_MODEL", names)
        agent = Agent("Answer.", retry=Retry(attempts=1))
        session = agent(Session("Hello?"))
    assert session.text == "Here." and failures(session) == ["ConnectionLost"]
    assert [name for name, _ in asked(session)] == names.split(", ")
    assert isinstance(find(names), ModelList)


class Team(Workflow):
    def __init__(self, model: Any) -> None:
        self.one = Agent("Answer.", model=model)

    def forward(self, session: Session) -> Session:
        return self.one(session)


@pytest.mark.parametrize(
    "models, why",
    [
        ([], "is empty"),
        (["local", "local"], "two models in the list are called 'local'"),
        ([scripted("a"), scripted("a")], "two models in the list are called 'a'"),
        ("local,", "a name in the list of models is empty"),
        ("local, local", "two models"),
        (["local", 7], "a int is not a model"),
        (["local", ["openai:gpt-5"]], "a list is not a model"),
    ],
)
def test_a_list_that_is_none_is_refused_when_it_is_written(models: Any, why: str) -> None:
    team = Team(scripted("a", "Yes."))
    for make in (
        lambda: Agent("Answer.", model=models),
        lambda: Selector(one=team, model=models),
        lambda: Compactor(model=models),
        lambda: team.to(model=models),
    ):
        with pytest.raises(InvalidValue, match=why):
            make()
    assert team(Session("Hello?")).text == "Yes."  # nothing was rebound


def test_a_tree_is_rebound_to_a_list_and_prints_it() -> None:
    team = Team("local").to(model=["openai:gpt-5", "local"])
    assert "model=openai:gpt-5,local" in repr(team)
    assert issubclass(InvalidValue, PlaitError)
    assert kinds(team.to(model=[scripted("a", "Yes."), scripted("b")])(Session("Hello?")))
