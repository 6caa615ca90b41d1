"""Code that a run calls beside its tools may raise whatever Python lets it raise: the effect fails,
and the run goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from plait import (
    Agent,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    ask_human,
    tool,
)
from plait.errors import InvalidValue, ModelFailed, ResultInvalid, ToolFailed
from plait.journal.stops import Cancelled
from plait.model.base import Reply
from plait.policy import Ask, Policy, Refuse
from plait.runs.resume import resume
from plait.tool import Tool
from tests.runtime.programs import AsyncUses


class Mine(BaseException):
    """An error of the code's own."""


class MyInterrupt(KeyboardInterrupt):
    """An interrupt of the code's own."""


ODD = (asyncio.CancelledError, Mine, MyInterrupt, GeneratorExit, SystemExit)
RAISES: list[type[BaseException]] = [Mine]
odd_kinds = pytest.mark.parametrize("kind", ODD, ids=lambda kind: kind.__name__)
ways = pytest.mark.parametrize("way", ["blocking", "acall"])


@pytest.fixture(autouse=True)
def _kind(request: pytest.FixtureRequest) -> None:
    RAISES[:] = (
        [request.node.callspec.params["kind"]]
        if hasattr(request.node, "callspec") and "kind" in request.node.callspec.params
        else [Mine]
    )


@dataclass
class Amount:
    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise RAISES[0]("as it likes")


@tool
def spend(amount: Amount) -> int:
    return amount.value


def run(workflow: Workflow, way: str, **more: Any) -> Session:
    session = Session("go", store="memory:")
    return (
        workflow(session, **more)
        if way == "blocking"
        else asyncio.run(workflow.acall(session, **more))
    )


def calling(used: Tool[..., Any], **arguments: Any) -> Agent:
    return Agent(
        "Work.",
        model=ScriptedModel([ToolCall.of(used.name, arguments), "still here"]),
        tools=[used],
    )


class Uses(Workflow):
    """Uses a tool, and notes as what it failed."""

    def __init__(self, deed: Callable[[Session], Session], *, catches: bool = True) -> None:
        self._deed, self._catches = deed, catches

    def forward(self, session: Session) -> Session:
        try:
            return self._deed(session)
        except ToolFailed as error:
            assert isinstance(error.session, Session)
            return error.session.fact("caught", error.kind)
        except InvalidValue as error:
            if not self._catches:
                raise
            return session.fact("caught", str(error))


def failure_kind(session: Session) -> str:
    """Return as what its only effect failed; the run came to its end."""
    assert session.runs[-1].status == "finished" and session.inbox.waiting == []
    (effect,) = session.effects
    assert effect.failure is not None
    return effect.failure.kind


@ways
@odd_kinds
def test_an_argument_type_that_raises_refuses_the_arguments(
    kind: type[BaseException], way: str
) -> None:
    told = run(calling(spend, amount={"value": -1}), way)
    assert (
        failure_kind(told) == "WrongArguments"
        and kind.__name__ in str(told.effects[0].failure)
        and told.text == "still here"
    )
    used = run(Uses(lambda at: at.use(spend, amount={"value": -1})), way)
    assert used.runs[-1].status == "finished" and kind.__name__ in str(used.facts["caught"])


@ways
@odd_kinds
def test_an_effect_of_that_raises_fails_the_call_before_it_runs(
    kind: type[BaseException], way: str
) -> None:
    ran: list[int] = []

    def effect_of(placement: object, arguments: object) -> Any:
        raise kind("as it likes")

    @tool(effect_of=effect_of)
    def varying() -> int:
        ran.append(1)
        return 1

    told = run(calling(varying), way)
    assert failure_kind(told) == "EffectUnknown" and told.text == "still here"
    assert failure_kind(run(Uses(lambda at: at.use(varying)), way)) == "EffectUnknown"
    assert (
        failure_kind(asyncio.run(AsyncUses(varying).acall(Session("go", store="memory:"))))
        == "EffectUnknown"
    )
    with pytest.raises(ToolFailed, match="effect_of"):
        Session("go", store="memory:").use(varying)
    assert ran == []


def test_so_does_one_that_raises_an_ordinary_error() -> None:
    def effect_of(placement: object, arguments: object) -> Any:
        raise ValueError("no idea")

    @tool(effect_of=effect_of)
    def varying() -> int:
        return 1

    assert failure_kind(run(calling(varying), "blocking")) == "EffectUnknown"


@tool
def act() -> int:
    return 1


@ways
@odd_kinds
def test_a_condition_that_raises_is_in_doubt(kind: type[BaseException], way: str) -> None:
    def when(call: object) -> bool:
        raise kind("as it likes")

    agent = calling(act)
    agent.policy = Policy(Refuse(when=when))
    told = run(agent, way)
    assert failure_kind(told) == "Refused" and kind.__name__ in str(told.effects[0].failure)


@ways
@odd_kinds
def test_an_approver_that_raises_allows_nothing(kind: type[BaseException], way: str) -> None:
    def approver(approval: object) -> bool:
        raise kind("as it likes")

    agent = calling(act)
    agent.policy = Policy(Ask())
    told = run(agent, way, approver=approver)
    assert failure_kind(told) == "ApproverFailed" and told.text == "still here"
    used = AsyncUses(act)
    used.policy = Policy(Ask())
    assert failure_kind(run(used, way, approver=approver)) == "ApproverFailed"


@ways
@odd_kinds
def test_an_answerer_that_raises_answers_nothing(kind: type[BaseException], way: str) -> None:
    def answerer(question: str, choices: tuple[str, ...]) -> str:
        raise kind("as it likes")

    session = Session("go", store="memory:")
    asks = Uses(lambda at: at.ask("Really?"), catches=False)
    with pytest.raises(InvalidValue, match=kind.__name__):
        asks(session, answerer=answerer) if way == "blocking" else asyncio.run(
            asks.acall(session, answerer=answerer)
        )
    assert session.reload().runs[-1].status == "failed"
    assert resume(session, asks, answerer=lambda question, choices: "yes").result == "yes"


@ways
@odd_kinds
def test_an_answerer_that_raises_answers_no_agent_either(
    kind: type[BaseException], way: str
) -> None:
    def answerer(question: str, choices: tuple[str, ...]) -> str:
        raise kind("as it likes")

    agent = Agent(
        "Work.",
        model=ScriptedModel([ToolCall("ask_human", question="Really?"), "still here"]),
        tools=[ask_human],
    )
    assert failure_kind(run(agent, way, answerer=answerer)) == "ApproverFailed"


@dataclass
class Once:
    """Can be made once."""

    value: int

    def __post_init__(self) -> None:
        MADE.append(self.value)
        if len(MADE) > 1:
            raise asyncio.CancelledError("once only")


MADE: list[int] = []


def test_arguments_that_fit_when_asked_for_and_not_when_run_fail_the_call() -> None:
    @tool
    def once(it: Once) -> int:
        return it.value

    MADE.clear()
    assert failure_kind(run(calling(once, it={"value": 1}), "blocking")) == "WrongArguments"


class Asks(Workflow):
    policy = Policy(Ask())

    def forward(self, session: Session) -> Session:
        return session.use(act)


def test_what_an_approver_failed_at_is_asked_for_again_on_resume() -> None:
    def approver(approval: object) -> bool:
        raise asyncio.CancelledError

    session = Session("go", store="memory:")
    with pytest.raises(ToolFailed):
        Asks()(session, approver=approver)
    done = resume(session, Asks(), approver=lambda approval: True)
    assert done.runs[-1].status == "finished" and done.effects[-1].result == 1


class OddModel:
    """Raises; plain, as a coroutine, or by cancelling the task it runs in."""

    name = "odd"

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def ask(self, request: object, on_delta: object = None) -> Reply:
        raise self.kind("as it likes")


class OddAsyncModel(OddModel):
    async def ask(self, request: object, on_delta: object = None) -> Reply:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise self.kind("as it likes")


class SelfCancelling(OddModel):
    async def ask(self, request: object, on_delta: object = None) -> Reply:  # pyright: ignore[reportIncompatibleMethodOverride]
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        raise AssertionError


@ways
@odd_kinds
@pytest.mark.parametrize("model", [OddModel, OddAsyncModel])
def test_a_model_that_raises_fails_its_ask(
    model: type[OddModel], kind: type[BaseException], way: str
) -> None:
    with pytest.raises(ModelFailed, match=kind.__name__) as failed:
        run(Agent("Work.", model=model(kind)), way)  # pyright: ignore[reportArgumentType]
    assert (
        isinstance(failed.value.session, Session)
        and failed.value.session.runs[-1].status == "failed"
    )


@ways
def test_a_model_that_cancels_its_task_fails_its_ask(way: str) -> None:
    with pytest.raises(ModelFailed, match="CancelledError") as failed:
        run(Agent("Work.", model=SelfCancelling(Mine)), way)  # pyright: ignore[reportArgumentType]
    assert (
        isinstance(failed.value.session, Session)
        and failed.value.session.runs[-1].status == "failed"
    )


@ways
@odd_kinds
def test_a_type_of_the_answer_that_raises_refuses_the_answer(
    kind: type[BaseException], way: str
) -> None:
    agent = Agent("Work.", model=ScriptedModel(['{"value": -1}', '{"value": 2}'])).returns(Amount)
    assert run(agent, way).result == {"value": 2}
    with pytest.raises(ResultInvalid, match=kind.__name__):
        run(Agent("Work.", model=ScriptedModel(['{"value": -1}'] * 3)).returns(Amount), way)


@ways
@odd_kinds
def test_a_listener_that_raises_is_not_called_any_more(kind: type[BaseException], way: str) -> None:
    def listener(item: object) -> None:
        raise kind("as it likes")

    with pytest.warns(RuntimeWarning, match=kind.__name__):
        assert run(calling(act), way, on_event=listener).text == "still here"


def test_a_real_cancel_while_a_model_is_asked_still_cancels() -> None:
    begun: list[asyncio.Task[Any]] = []

    class Slow(OddModel):
        async def ask(self, request: object, on_delta: object = None) -> Reply:  # pyright: ignore[reportIncompatibleMethodOverride]
            begun[0].get_loop().call_soon_threadsafe(begun[0].cancel)
            await asyncio.sleep(60)
            raise AssertionError

    session = Session("go", store="memory:")

    async def main() -> None:
        begun.append(asyncio.ensure_future(Agent("Work.", model=Slow(Mine)).acall(session)))  # pyright: ignore[reportArgumentType]
        with pytest.raises(asyncio.CancelledError):
            await begun[0]

    asyncio.run(main())
    assert session.reload().runs[-1].status == "cancelled"


def test_a_wish_to_end_the_run_while_it_asks_still_cancels() -> None:
    session = Session("go", store="memory:")
    agent = calling(act)
    agent.policy = Policy(Ask())

    def approver(approval: Any) -> bool:
        Session.open(session.id, store="memory:").inbox.cancel("enough")
        return True

    with pytest.raises(Cancelled):
        agent(session, approver=approver)
    assert session.reload().runs[-1].status == "cancelled"
