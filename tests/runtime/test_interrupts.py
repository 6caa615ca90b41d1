"""Interrupts and lost asks at odd moments: the run can be resumed, and replays."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from plait import Agent, Budget, Retry, ScriptedModel, Session, Workflow, replay, resume, tool
from plait.errors import BudgetExceeded, ModelFailed
from plait.model import Fault
from plait.runtime import invoke
from tests.support import run_module


class Busy:
    """A model that is always busy, and may interrupt the process."""

    name = "busy"

    def __init__(self, *, interrupts_at: int = 0) -> None:
        self.asks = 0
        self._interrupts_at = interrupts_at

    def ask(self, request: Any, on_delta: Any) -> Any:
        self.asks += 1
        if self.asks == self._interrupts_at:
            raise KeyboardInterrupt
        raise Fault("Busy", "busy", retryable=True, retry_after_s=0)


class Overspends(Workflow):
    """Notes that the budget refused another attempt of its agent."""

    def __init__(self) -> None:
        self.agent = Agent("Answer.", model=Busy())
        self.is_interrupted = True

    def forward(self, session: Session) -> Session:
        try:
            session = self.agent(session)
        except BudgetExceeded as error:
            assert isinstance(error.session, Session)
            session = error.session.fact("over", True)
        if self.is_interrupted:
            raise KeyboardInterrupt
        return session


def test_a_budget_that_refuses_another_attempt_is_followed_from_the_record() -> None:
    program = Overspends()
    session = Session("go", store="memory:").budget.grant(Budget(steps_max=1))
    with pytest.raises(KeyboardInterrupt):
        program(session)
    program.is_interrupted = False
    done = resume(session.reload(), program)
    assert done.facts["over"] is True
    assert replay(done, program).head == done.head


def test_an_agent_that_ends_at_its_budget_replays() -> None:
    agent = Agent("Answer.", model=Busy())
    session = Session("go", store="memory:").budget.grant(Budget(steps_max=1))
    with pytest.raises(BudgetExceeded):
        agent(session)
    last = session.reload()
    assert replay(last, agent).head == last.head


@pytest.mark.parametrize("function", ["_begin_call", "_push_frame", "leave"])
def test_an_interrupt_right_after_the_run_has_started(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    agent = Agent("Answer.", model=ScriptedModel(["hello"]))
    session = Session("go", store="memory:")
    with monkeypatch.context() as patched:
        patched.setattr(invoke, function, interrupt)
        with pytest.raises(KeyboardInterrupt):
            agent(session)
    assert resume(session.reload(), agent).text == "hello"


def test_an_ask_that_was_lost_with_its_process_is_no_attempt() -> None:
    model = Busy(interrupts_at=2)
    agent, session = (
        Agent("Answer.", model=model, retry=Retry(attempts=1)),
        Session("go", store="memory:"),
    )
    with pytest.raises(ModelFailed):
        agent(session)
    with pytest.raises(KeyboardInterrupt):
        resume(session.reload(), agent)
    with pytest.raises(ModelFailed):
        resume(session.reload(), agent)
    assert model.asks == 3


@pytest.mark.parametrize("way", ["threads", "pool", "raw"])
def test_ctrl_c_stops_the_next_effect_in_threads_that_forward_started(
    way: str, tmp_path: Path
) -> None:
    done = run_module("tests.runtime.interrupted_threads", str(tmp_path / "store"), way)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["raised"] == "KeyboardInterrupt" and told["status"] == "interrupted"
    assert told["late"] == [], "no tool began after it"
    assert len(told["errors"]) == 3, "each thread was stopped"
    assert told["resumed"] == "finished" and told["calls"] == 18


def test_ctrl_c_that_forward_catches_stops_the_next_effect() -> None:
    @tool
    def look() -> str:
        """Look."""
        used.append("look")
        return "seen"

    class Stubborn(Workflow):
        def forward(self, session: Session) -> Session:
            if not used:
                try:
                    signal.raise_signal(signal.SIGINT)
                except KeyboardInterrupt:
                    pass
            return session.use(look)

    used = list[str]()
    session, before = Session("go", store="memory:"), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        Stubborn()(session)
    assert used == [] and signal.getsignal(signal.SIGINT) is before
    used.append("")
    assert resume(session.reload(), Stubborn()).result == "seen"


def test_a_program_that_ctrl_c_stops_while_a_turn_starts_comes_to_its_end() -> None:
    done = run_module("tests.runtime.interrupted_starts", timeout=120)
    assert done.returncode == 0 and int(done.stdout.split()[0]) > 20, done.stderr
