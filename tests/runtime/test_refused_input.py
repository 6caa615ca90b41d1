"""Input that no verb takes: each is refused with a typed error that names the next step, and the
store is as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, bisect, debug, replay, resume
from plait.errors import (
    EndsAgree,
    GuardFailed,
    InvalidValue,
    NeedsWorkflow,
    NothingToAccept,
    NothingToDebug,
    NothingToResume,
    NotPlaced,
    PlaitError,
    WrongStatus,
)
from plait.session.ports import store_at
from plait.testing.writing import check_refused
from tests.support import parked_session

Act = Callable[[], object]


def chat() -> Agent:
    return Agent("x", model=ScriptedModel(lambda at: "hello"), name="chat")


class Asks(Workflow):
    def forward(self, session: Session) -> Session:
        session.ask("Really?")
        return session


class Counts(Workflow):
    def __init__(self, number: int) -> None:
        self.number = number

    def forward(self, session: Session) -> Session:
        return session.fact("number", self.number)


def refused(act: Act, session: Session, error: type[PlaitError], step: str) -> None:
    """The act raises this error, which ends with the next step, and writes nothing."""
    with check_refused(error, store_at(session.store)):
        try:
            act()
        except error as found:
            assert step in str(found).rsplit(". ", 1)[-1], found
            raise


def test_a_turn_on_a_closed_session() -> None:
    session = Session("x").close()
    for value in (session, session.at(2)):
        acts: list[Act] = [
            lambda value=value: value.turn("hi", chat()),
            lambda value=value: value.turn("hi", chat(), wait=False),
            lambda value=value: asyncio.run(value.aturn("hi", chat())),
            lambda value=value: list(chat().stream_turn(value, "hi")),
        ]
        for act in acts:
            refused(act, session, WrongStatus, "go on in a fork of it")


@pytest.mark.parametrize(
    ("handoffs", "step"),
    [
        ([], "pass agents, or leave it out"),
        ([None], "pass agents: handoffs=[billing]"),
        (["billing"], "pass agents: handoffs=[billing]"),
        ([Agent("y")], 'name it: Agent(…, name="billing")'),
        ([chat(), chat()], "rename one of them"),
    ],
)
def test_a_handoff_to_nobody(handoffs: Any, step: str) -> None:
    refused(lambda: Agent("x", handoffs=handoffs), Session("x"), InvalidValue, step)


def test_a_model_that_hands_off_to_nobody_is_told_the_names() -> None:
    script = [ToolCall("hand_off_to_nix", reason="theirs"), "Then I answer."]
    desk = Agent("x", model=ScriptedModel(script), handoffs=[chat()])
    session = desk(Session("x"))
    (effect,) = session.effects
    assert effect.failure is not None and "there are: hand_off_to_chat" in effect.failure.message
    assert session.text == "Then I answer." and not session.events.where("HandedOff")


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_guard_that_raises(side: str) -> None:
    """The run is on record as failed: nothing was done after the guard, and it can be resumed."""
    mended = False

    def guard(*_: object) -> None:
        if not mended:
            raise LookupError("no list")

    more: Any = {side: [guard]}
    agent = Agent("x", model=ScriptedModel(["hello"]), name="a", **more)
    with pytest.raises(
        GuardFailed, match="LookupError: no list. Mend it, and resume the run."
    ) as e:
        agent(Session("x"))
    session: Session = e.value.session.reload()
    assert session.status == "failed" and session.events[-1].kind == "RunFailed"
    assert len(session.events.where("ModelAsked")) == (side == "after")
    mended = True
    session = resume(session, agent)
    assert session.text == "hello" and len(session.events.where("ModelAsked")) == 1


@pytest.mark.parametrize(
    "models",
    [[], ["local", "local"], "local,local", ["openai:a", "local", "openai:a"], [""], [None]],
)
def test_a_list_of_models_that_is_empty_or_has_two_of_one_name(models: Any) -> None:
    step = 'each once: ["anthropic:'
    session, agent = Session("x"), chat()
    refused(lambda: Agent("x", model=models), session, InvalidValue, step)
    refused(lambda: agent.to(model=models), session, InvalidValue, step)


def test_an_accept_without_a_difference() -> None:
    waiting = parked_session(lambda: Asks()(Session("x")))
    done, fresh = chat()(Session("x")), Session("x")
    unchanged: Act = lambda: resume(waiting, Asks(), accept="reworded")  # noqa: E731
    refused(unchanged, waiting, NothingToAccept, "go on without accept=")
    finished: Act = lambda: resume(done, chat(), accept="reworded")  # noqa: E731
    refused(finished, done, NothingToAccept, "start another run")
    refused(lambda: resume(waiting, accept=" "), waiting, InvalidValue, "say what changed")
    refused(lambda: resume(fresh, chat(), accept="x"), fresh, NothingToResume, "start one")


def test_a_bisect_whose_ends_agree() -> None:
    session = chat()(Session("x"))
    refused(lambda: bisect(session, lambda at: True), session, EndsAgree, "a later end: bad=K")
    refused(lambda: bisect(session, lambda at: False), session, EndsAgree, "an earlier: good=K")
    same: Act = lambda: bisect(session, lambda at: True, good=3, bad=3)  # noqa: E731
    refused(same, session, EndsAgree, "name others: good=K, bad=K")
    refused(lambda: bisect(session), session, InvalidValue, "pass a predicate, or command=[…]")
    refused(lambda: bisect(session, command=["true"]), session, NotPlaced, "Place it first")


def test_a_debug_of_a_run_that_has_no_program() -> None:
    session = Counts(1)(Session("x"))
    refused(lambda: debug(session), session, NeedsWorkflow, "debug(session, Counts(…))")
    refused(lambda: replay(session), session, NeedsWorkflow, "replay(session, Counts(…))")
    refused(lambda: debug(session.at(2)), session, NothingToDebug, "name a step of a run: 3 to 7")
    fresh = Session("x")
    refused(lambda: debug(fresh), fresh, NothingToDebug, "start a run: workflow(session)")
