"""Tools that work for long and say so, and tools that fall silent; attempts that back off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import msgspec
import pytest

from plait import Agent, Session, ToolCall, Workflow, heartbeat, resume, tool
from plait.errors import BadTool, ToolFailed
from plait.event import kinds as k
from plait.model.base import OutputDelta
from plait.runs.take_up import resume_run
from plait.runtime.attendants import NOBODY
from plait.runtime.drivers.blocking import Blocking
from plait.runtime.heartbeats import Heart
from plait.runtime.invoke import invoke
from plait.runtime.waits import Pause
from plait.session.backoff import WAIT_S_MAX, backoff_s
from tests.support import RAN, assert_replays, bodies, scripted_model


@pytest.fixture
def released() -> Iterator[Event]:
    """Lets tools end that were given up."""
    event = Event()
    yield event
    event.set()


class Uses(Workflow):
    def __init__(self, used: Any) -> None:
        self._used = used

    def forward(self, session: Session) -> Session:
        return session.use(self._used)


def _failure(session: Session) -> k.Failure:
    return bodies(session, k.ToolFailed)[-1].failure


def test_a_plain_tool_that_falls_silent_is_given_up(released: Event) -> None:
    @tool(effect="pure", heartbeat_s=0.05)
    def dig() -> str:
        """Dig."""
        heartbeat("10 of 90 m")
        released.wait(60)
        return "gold"

    with pytest.raises(ToolFailed) as failed:
        Uses(dig)(Session("Dig."))
    failure = _failure(failed.value.session)
    assert failure.kind == "FellSilent" and "10 of 90 m" in failure.message


def test_an_async_tool_that_falls_silent_is_given_up() -> None:
    @tool(effect="pure", heartbeat_s=0.05)
    async def dig() -> str:
        """Dig."""
        heartbeat({"metres": 10})
        await asyncio.sleep(60)
        return "gold"

    with pytest.raises(ToolFailed) as failed:
        Uses(dig)(Session("Dig."))
    failure = _failure(failed.value.session)
    assert failure.kind == "FellSilent" and "{'metres': 10}" in failure.message
    with pytest.raises(ToolFailed):
        asyncio.run(Uses(dig).acall(Session("Dig.")))


def test_a_plain_tool_on_the_callers_loop(released: Event) -> None:
    @tool(effect="pure", timeout_s=0.05)
    def dig() -> str:
        """Dig."""
        heartbeat("begun")
        released.wait(60)
        return "gold"

    with pytest.raises(ToolFailed) as failed:
        asyncio.run(Uses(dig).acall(Session("Dig.")))
    failure = _failure(failed.value.session)
    assert failure.kind == "TimedOut" and "begun" in failure.message


def test_an_agent_is_told_and_listeners_hear_the_details() -> None:
    heard: list[str] = []

    @tool(effect="pure", heartbeat_s=60)
    def dig() -> str:
        """Dig, also in a thread of its own."""
        heartbeat("here")
        worker = Thread(target=lambda: heartbeat("there"))
        worker.start()
        worker.join()
        return "gold"

    def hear(item: object) -> None:
        if isinstance(item, OutputDelta):
            heard.append(item.output)

    agent = Agent("Dig.", model=scripted_model(ToolCall("dig"), "Done."), tools=[dig])
    session = agent(Session("Dig."), on_event=hear)
    assert session.text == "Done." and heard == ["here\n", "there\n"]


def test_outside_of_a_tool_call_it_does_nothing() -> None:
    heartbeat("nobody listens")


def test_the_time_until_a_tool_is_given_up() -> None:
    now = [0]
    heart = Heart(lambda: now[0], timeout_s=10, heartbeat_s=2)
    now[0] = 5_000_000  # its sandbox was made meanwhile
    assert heart.left_s() == 2 and not heart.is_silent
    heart.begin()
    now[0] += 1_500_000
    assert heart.left_s() == 0.5
    heart.beat("half")
    assert heart.left_s() == 2
    now[0] += 2_000_000
    assert heart.left_s() == 0 and heart.is_silent and heart.detail == "half"
    never = Heart(lambda: now[0], timeout_s=None, heartbeat_s=None)
    assert never.left_s() is None


@pytest.mark.parametrize("wrong", [{"heartbeat_s": 0}, {"wait_s": -1}, {"heartbeat_s": -3.0}])
def test_times_that_are_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadTool):
        tool(effect="pure", **wrong)(lambda: None)


# ── attempts ─────────────────────────────────────────────────────────────────────────────────


class Patient(Blocking):
    """Notes the pauses, and waits for none."""

    def __init__(self, dies_at: int = 99) -> None:
        self.pauses: list[float] = []
        self._dies_at = dies_at

    def pause(self, op: Pause) -> None:
        self.pauses.append(op.seconds)
        if len(self.pauses) == self._dies_at:
            raise KeyboardInterrupt


@tool(effect="idempotent", attempts=4, wait_s=8)
def flaky(idempotency_key: str) -> str:
    """Fail three times."""
    RAN.append(idempotency_key)
    if len(RAN) < 4:
        raise ConnectionError("come back later")
    return "there"


def _run(program: Workflow, waiter: Patient) -> Session:
    call = program.invocation(Session("Go."))
    return invoke(msgspec.structs.replace(call, waiter=waiter))


def test_attempts_wait_longer_each_time() -> None:
    waiter = Patient()
    session = _run(Uses(flaky), waiter)
    assert session.result == "there" and len(set(RAN)) == 1
    assert [4 <= waiter.pauses[0] <= 8, 8 <= waiter.pauses[1] <= 16] == [True, True]
    assert 16 <= waiter.pauses[2] <= 32
    requests = session.events.where("ToolRequested")
    due = [event.body.due for event in requests if isinstance(event.body, k.ToolRequested)]
    assert due[0] is None and None not in due[1:]
    assert_replays(session, Uses(flaky))


def test_a_resume_waits_for_the_rest() -> None:
    first = Patient(dies_at=2)
    with pytest.raises(KeyboardInterrupt):
        _run(Uses(flaky), first)
    session, second = Session.open("@"), Patient()
    session = resume_run(session, Uses(flaky), (), {}, NOBODY, second)
    assert session.result == "there" and len(RAN) == 4 and len(set(RAN)) == 1
    # the second attempt was waited for; the third one is due at the same moment as before
    assert len(second.pauses) == 2 and 0 < second.pauses[0] <= first.pauses[1]
    assert resume(session) == session


def test_waits_are_drawn_by_the_call() -> None:
    assert backoff_s(1, WAIT_S_MAX, "a", 1) == backoff_s(1, WAIT_S_MAX, "a", 1)
    assert backoff_s(1, WAIT_S_MAX, "a", 1) != backoff_s(1, WAIT_S_MAX, "b", 1)
    assert backoff_s(1, WAIT_S_MAX, "a", 50) <= WAIT_S_MAX
    assert backoff_s(0, WAIT_S_MAX, "a", 3) == 0
