"""Rows of tool calls: a call helped if the run ends otherwise without its result."""

from __future__ import annotations

import json

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, tool
from plait.runs.tool_uses import as_jsonl, tool_uses


@tool(effect="pure")
def look_up(key: str) -> str:
    """Look something up."""
    if key == "nowhere":
        raise KeyError(key)
    return f"the value of {key}"


@tool(effect="at_most_once")
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


def answer(session: Session) -> str | ToolCall:
    calls = {effect.tool: effect for effect in session.effects}
    if "look_up" not in calls:
        return ToolCall("look_up", key=session.messages[0].text)
    if "send" not in calls and "sends" in session.messages[0].text:
        return ToolCall("send", text="hello")
    if "useless" in session.messages[0].text:
        return "always this"
    return str(calls["look_up"].result or "I do not know")


def agent() -> Agent:
    return Agent("Answer.", model=ScriptedModel(answer), tools=[look_up, send])


@pytest.mark.parametrize(("question", "helped"), [("a", True), ("useless", False)])
def test_a_call_helped_if_the_outcome_differs_without_it(question: str, helped: bool) -> None:
    session = agent()(Session(question, store="memory:"))
    before = session.reload().head
    (use,) = tool_uses(session, agent())
    assert (use.helped, use.why, use.result) == (helped, "", f"the value of {question}")
    assert use.outcome == session.text and (use.without != session.text) is helped
    request = session.effects[0].request
    assert (use.session, use.seq, use.event) == (session.id, request.seq, request.id)
    assert session.reload().head == before  # the branches are beside it
    (line,) = as_jsonl([use]).splitlines()
    assert json.loads(line)["helped"] is helped


def test_a_branch_that_needs_consent_is_not_known() -> None:
    session = agent()(Session("useless, and sends", store="memory:"))
    looked_up, sent = tool_uses(session, agent())
    assert looked_up.helped is None and "send" in looked_up.why
    assert sent.helped is False  # its result was replaced, so it is not made again
    live, _ = tool_uses(session, agent(), effects="live")
    assert live.helped is False


def test_a_call_that_failed_has_no_result_to_leave_out() -> None:
    session = agent()(Session("nowhere", store="memory:"))
    assert session.effects[0].failure is not None and tool_uses(session, agent()) == []
