"""A tool may raise whatever Python lets it raise: its call is settled, and the run goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, tool
from plait.errors import ToolFailed
from plait.session.value import open_run_of
from plait.tool import Tool
from tests.runtime.programs import AsyncUses


class Mine(BaseException):
    """An error of the tool's own."""


class MyInterrupt(KeyboardInterrupt):
    """An interrupt of the tool's own."""


ODD = (asyncio.CancelledError, Mine, MyInterrupt, GeneratorExit, SystemExit, BaseExceptionGroup)


def _raise(kind: type[BaseException]) -> None:
    if kind is BaseExceptionGroup:
        raise BaseExceptionGroup("several", [Mine("one")])
    raise kind("as it likes")


def odd(kind: type[BaseException], *, coroutine: bool, **more: Any) -> Tool[..., Any]:
    @tool(name="odd", **more)
    def plain(n: int = 0) -> int:
        _raise(kind)
        return 1

    @tool(name="odd", **more)
    async def later(n: int = 0) -> int:
        _raise(kind)
        return 1

    return later if coroutine else plain


class Uses(Workflow):
    def __init__(self, act: Callable[[Session], Session]) -> None:
        self._deed = act

    def forward(self, session: Session) -> Session:
        try:
            return self._deed(session)
        except ToolFailed as error:
            assert isinstance(error.session, Session)
            return error.session.fact("caught", error.kind)


def failed(session: Session, kind: type[BaseException]) -> None:
    """The call is settled as failed, and the run came to its end."""
    (effect,) = [each for each in session.effects if each.tool == "odd"]
    assert effect.failure is not None and effect.failure.kind == kind.__name__
    assert session.runs[-1].status == "finished" and session.inbox.waiting == []


@pytest.mark.parametrize("coroutine", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("kind", ODD, ids=lambda kind: kind.__name__)
def test_what_a_tool_raises_settles_its_call_and_not_the_run(
    kind: type[BaseException], coroutine: bool
) -> None:
    used = odd(kind, coroutine=coroutine)
    blocking = Uses(lambda session: session.use(used))(Session("go", store="memory:"))
    failed(blocking, kind)
    assert blocking.facts["caught"] == kind.__name__
    failed(
        asyncio.run(Uses(lambda session: session.use(used)).acall(Session("go", store="memory:"))),
        kind,
    )
    failed(asyncio.run(AsyncUses(used).acall(Session("go", store="memory:"))), kind)
    with pytest.raises(ToolFailed, match=kind.__name__):
        Session("go", store="memory:").use(used)


@pytest.mark.parametrize("coroutine", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("kind", ODD, ids=lambda kind: kind.__name__)
def test_a_model_is_told_what_its_call_raised(kind: type[BaseException], coroutine: bool) -> None:
    used = odd(kind, coroutine=coroutine)
    agent = Agent("Work.", model=ScriptedModel([ToolCall("odd"), "still here"]), tools=[used])
    one = agent(Session("go", store="memory:"))
    assert one.text == "still here"
    failed(one, kind)
    failed(asyncio.run(agent.acall(Session("go", store="memory:"))), kind)


@pytest.mark.parametrize("coroutine", [False, True], ids=["plain", "async"])
def test_a_tool_with_a_time_limit_raises_likewise(coroutine: bool) -> None:
    used = odd(asyncio.CancelledError, coroutine=coroutine, timeout_s=60)
    failed(
        Uses(lambda session: session.use(used))(Session("go", store="memory:")),
        asyncio.CancelledError,
    )
    failed(
        asyncio.run(AsyncUses(used).acall(Session("go", store="memory:"))), asyncio.CancelledError
    )


def test_a_tool_that_cancels_the_task_it_runs_in_cancels_itself() -> None:
    @tool
    async def odd() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    failed(
        Uses(lambda session: session.use(odd))(Session("go", store="memory:")),
        asyncio.CancelledError,
    )
    failed(
        asyncio.run(AsyncUses(odd).acall(Session("go", store="memory:"))), asyncio.CancelledError
    )


def test_what_an_observer_raises_is_no_end_of_the_run_either() -> None:
    def watch() -> int:
        raise Mine("blind")

    @tool(observe=watch)
    def odd() -> int:
        return 1

    failed(Uses(lambda session: session.use(odd))(Session("go", store="memory:")), Mine)


def test_ctrl_c_still_interrupts_and_leaves_the_run_open() -> None:
    @tool
    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(10**6):  # Python hears of a signal between two of its own steps
            pass

    session = Session("go", store="memory:")
    with pytest.raises(KeyboardInterrupt):
        Uses(lambda at: at.use(work))(session)
    assert open_run_of(session.reload()) is not None
