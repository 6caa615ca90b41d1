"""Rules that name a tool which is not there: a slip in a name is warned of, once in a run."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, Workflow, replay, tool
from plait.policy import Allow, Ask, Policy, Refuse
from plait.runtime.rule_names import UnmatchedRule
from tests.runtime.test_turns import wire


@tool
def read(path: str) -> str:
    """Read a file."""
    return path


def clerk(policy: Policy | None = None, **more: Any) -> Agent:
    more.setdefault("tools", [wire, read])
    return Agent("Pay.", model=ScriptedModel(lambda at: "done"), policy=policy, **more)


class Desk(Workflow):
    def __init__(self, policy: Policy, agent: Agent) -> None:
        self.policy, self.agent = policy, agent

    def forward(self, session: Session) -> Session:
        return self.agent(self.agent(session))


class Uses(Desk):
    def forward(self, session: Session) -> Session:
        return session.use(wire, amount=1)


class Server:
    """Has tools that are not known before it is asked."""

    name = "server"

    def tools(self) -> list[Any]:
        return [wire]


def texts_of(workflow: Workflow) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        workflow(Session("go"))
    return [str(each.message) for each in found if each.category is UnmatchedRule]


def test_a_name_that_no_tool_has_is_warned_of_once() -> None:
    (text,) = texts_of(Desk(Policy(Ask("wrie")), clerk()))
    assert "Ask('wrie') in the policy of desk names the tool 'wrie'" in text
    assert text.endswith("write wire")
    (text,) = texts_of(clerk(Policy(Refuse("zzzz"))))
    assert text.endswith("use one of read, wire")


def test_agents_that_are_tools_are_in_reach() -> None:
    lead = Agent("Lead.", model=ScriptedModel(lambda at: "ok"), tools=[clerk(name="payer")])
    assert texts_of(Desk(Policy(Ask("wire", "payer")), lead)) == []
    assert len(texts_of(Desk(Policy(Ask("wires", "payer")), lead))) == 1


def test_a_policy_reaches_its_own_callees_alone() -> None:
    quiet = clerk(Policy(Ask("wire")), tools=[read])
    assert len(texts_of(Desk(Policy(Ask("read")), quiet))) == 1


@pytest.mark.parametrize(
    "workflow",
    [
        Desk(Policy(Ask("wri*", "wr?e", "[x]"), Ask(when=lambda call: False)), clerk()),
        Desk(Policy(Ask("wire"), Allow("read")), clerk()),
        Uses(Policy(Ask("wired"), Allow("wire")), clerk(tools=[])),
        Desk(Policy(Ask("anything")), clerk(tools=[Server()])),
        Desk(Policy(Ask("anything")), clerk(tools=[])),
    ],
)
def test_names_that_may_be_right_are_not_warned_of(workflow: Workflow) -> None:
    assert texts_of(workflow) == []


def test_code_that_uses_a_tool_itself_names_it() -> None:
    assert texts_of(Uses(Policy(Refuse("red"), Allow("wire", "read")), clerk(tools=[read])))
    assert texts_of(Uses(Policy(Allow("wire")), clerk(tools=[read]))) == []


def test_nothing_is_recorded_and_a_replay_is_silent() -> None:
    def program() -> Workflow:
        return Desk(Policy(Refuse("wrie")), clerk())

    with pytest.warns(UnmatchedRule):
        session = program()(Session("go"))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert replay(session, program()).head == session.head
    assert not [each for each in found if each.category is UnmatchedRule]
    script = ScriptedModel([ToolCall("wire", amount=1), "done", "done"])
    after = Desk(Policy(Refuse("wrie")), Agent("Pay.", model=script, tools=[wire]))(Session("go"))
    assert after.text == "done"  # where warnings are errors, the run goes on
