"""A program that catches the stop which parks or cancels its run: the stop is raised again, so that
no approval is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from plait import Agent, Parked, ScriptedModel, Session, ToolCall, Workflow, resume, tool
from plait.event.kinds import CallFinished, MessageSaid, RunFinished
from plait.policy import Ask, Policy
from tests.support import RAN, assert_replays, bodies, parked_session

BOSS = "human:boss"


@tool
def wire(amount: int) -> str:
    """Wire money."""
    RAN.append((amount,))
    return f"wired {amount}"


class Careless(Workflow):
    """Catches all that its clerk raises."""

    policy = Policy(Ask("wire"))

    def __init__(self) -> None:
        self.clerk = Agent(
            "Pay.", model=ScriptedModel([ToolCall("wire", amount=5), "done"]), tools=[wire]
        )
        self.other = Agent("Say.", model=ScriptedModel(["instead"]))

    def forward(self, session: Session) -> Any:
        try:
            return self.clerk(session)
        except:  # noqa: E722  as programs have it
            return self.after(session)

    def after(self, session: Session) -> Any:
        return session


class ReturnsNothing(Careless):
    def after(self, session: Session) -> Any:
        return None


class SaysSo(Careless):
    def after(self, session: Session) -> Any:
        return session.reload().say("It failed.")


class AsksAnother(Careless):
    def after(self, session: Session) -> Any:
        return self.other(session.reload())


class Forks(Careless):
    def after(self, session: Session) -> Any:
        return self.other(session.reload().fork("instead"))


class RaisesAnother(Careless):
    def after(self, session: Session) -> Any:
        raise ValueError("it failed")


class InBranch(Careless):
    def forward(self, session: Session) -> Any:
        branch = session.fork("pay")
        try:
            return session.merge(self.clerk(branch))
        except:  # noqa: E722
            return session


class Nested(Workflow):
    def __init__(self) -> None:
        self.inner = Careless()

    def forward(self, session: Session) -> Session:
        return self.inner(session).say("after")


class Uses(Workflow):
    policy = Policy(Ask("wire"))

    def forward(self, session: Session) -> Session:
        try:
            return session.use(wire, amount=5)
        except BaseException:
            return session


class Questions(Workflow):
    def forward(self, session: Session) -> Session:
        try:
            return session.ask("Which one?")
        except BaseException:
            return session


CARELESS: list[Callable[[], Workflow]] = [
    Careless,
    ReturnsNothing,
    SaysSo,
    AsksAnother,
    Forks,
    RaisesAnother,
    InBranch,
    Nested,
    Uses,
]


@pytest.mark.parametrize("program", CARELESS)
def test_a_run_whose_program_catches_the_stop_is_parked(program: Callable[[], Workflow]) -> None:
    RAN.clear()
    session = parked_session(lambda: program()(Session("go")))
    assert session.status == "waiting" and not bodies(session, RunFinished)
    assert not bodies(session, CallFinished)
    (ask,) = session.inbox.waiting
    session = resume(session.inbox.approve(ask, actor=BOSS), program())
    assert session.status == "finished" and RAN == [(5,)] and not session.inbox.waiting
    assert "instead" not in [said.text for said in session.messages]
    assert_replays(session, program())


def test_a_question_that_the_program_catches_is_still_asked() -> None:
    session = parked_session(lambda: Questions()(Session("go")))
    (ask,) = session.inbox.waiting
    session = resume(session.inbox.answer(ask, "this", actor=BOSS), Questions())
    assert session.status == "finished" and session.result == "this"


def test_on_an_event_loop_a_caught_stop_parks_likewise() -> None:
    class OnLoop(Careless):
        async def forward(self, session: Session) -> Any:
            try:
                return await self.clerk.acall(session)
            except:  # noqa: E722
                return session

    session = Session("go")
    with pytest.raises(Parked) as stop:
        asyncio.run(OnLoop().acall(session))
    assert stop.value.session.status == "waiting"


def test_a_caught_cancel_ends_the_run() -> None:
    class Stubborn(Careless):
        policy = Policy()

        def forward(self, session: Session) -> Any:
            session.inbox.cancel("enough", actor=BOSS)
            for _ in range(3):
                try:
                    return self.clerk(session.reload())
                except BaseException:
                    continue
            return session

    session = Session("go")
    with pytest.raises(BaseException, match="enough"):
        Stubborn()(session)
    assert session.reload().status == "cancelled" and not bodies(session.reload(), MessageSaid)[1:]
