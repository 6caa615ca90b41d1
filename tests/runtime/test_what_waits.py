"""What a person is told of what waits: the call that needs consent, and the verdict that a gate was
given.
"""

from __future__ import annotations

from typing import Any

import pytest

from plait import (
    Agent,
    Parallel,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    tool,
)
from plait.journal.stops import Parked
from plait.policy import Ask, Policy, Refuse
from plait.runs.resume import resume
from plait.session.inbox import all_waiting
from plait.session.ledger import costs
from plait.session.ports import store_at


@tool
def wire(amount: int, to: str = "bob") -> str:
    return f"wired {amount} to {to}"


def pays() -> Agent:
    script = [ToolCall("wire", amount=5), "done"]
    return Agent("Pay.", model=ScriptedModel(script), tools=[wire], policy=Policy(Ask("wire")))


def parked(workflow: Workflow, session: Session) -> Parked:
    with pytest.raises(Parked) as stop:
        workflow(session)
    return stop.value


def test_an_approval_says_which_call_it_is_about() -> None:
    session = parked(pays(), Session("go", store="memory:")).session
    (ask,) = session.inbox.waiting
    assert (ask.kind, ask.tool, ask.arguments) == ("approval", "wire", {"amount": 5})
    assert all_waiting(store_at(session.store)) == [ask]


def test_so_does_one_of_a_branch_and_one_by_the_program() -> None:
    session = parked(Parallel(a=pays()), Session("go", store="memory:")).session.reload()
    assert [(ask.tool, ask.arguments) for ask in session.inbox.waiting] == [("wire", {"amount": 5})]

    class Uses(Workflow):
        policy = Policy(Ask("wire"))

        def forward(self, session: Session) -> Session:
            return session.use(wire, amount=7, to="ann")

    session = parked(Uses(), Session("go", store="memory:")).session
    assert [(ask.tool, ask.arguments) for ask in session.inbox.waiting] == [
        ("wire", {"amount": 7, "to": "ann"})
    ]


class Gated(Workflow):
    def __init__(self) -> None:
        self.worker = Agent("Go on.", model=ScriptedModel(["went on"]))

    def forward(self, session: Session) -> Session:
        return self.worker(session.checks.require("tests", by="human:ana"))


@pytest.mark.parametrize("detail", [None, "three of them", {"failed": 3}])
def test_a_failed_verdict_stands_in_what_the_run_says_when_it_waits_on(detail: Any) -> None:
    stop = parked(Gated(), Session("go", store="memory:"))
    assert "failed" not in stop.why
    stop.session.checks.record("tests", False, detail=detail, actor="human:ana")
    with pytest.raises(Parked, match="it failed, by human:ana") as again:
        resume(stop.session, Gated())
    if detail is not None:
        assert "three" in again.value.why or '"failed":3' in again.value.why
    again.value.session.checks.record("tests", True, actor="human:ana")
    assert resume(stop.session, Gated()).text == "went on"


def test_a_call_that_a_policy_refused_was_not_made() -> None:
    script = [ToolCall("wire", amount=5), ToolCall("wire", amount=500), "done"]
    policy = Policy(Refuse("wire", when=lambda call: call.arguments["amount"] > 100))  # pyright: ignore
    session = Agent("Pay.", model=ScriptedModel(script), tools=[wire], policy=policy)(
        Session("go", store="memory:")
    )
    assert costs(store_at(session.store), session=session).total.tool_calls == 1
    assert costs(store_at(session.store), "run", session=session).total.tool_calls == 1
    assert session.budget.used.tool_calls == 2  # what a budget counts
