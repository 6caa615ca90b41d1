"""A program with everything that becomes a span: agents, tools, forks, a merge, a failure."""

from __future__ import annotations

import pytest

from plait import Agent, Memory, ScriptedModel, Session, ToolCall, Workflow, tool
from tests.cli.shell import Shell

SECRET = "the word that only content has"


@tool(effect="pure")
def look(at: str = "") -> str:
    """Look at something."""
    return f"seen {at}: {SECRET}"


@tool(effect="pure")
def stumble() -> str:
    """Fail."""
    raise ValueError(SECRET)


class Contest(Workflow):
    """Two try in branches, one of them with a helper, and one is merged."""

    def __init__(self) -> None:
        self.memory = Memory()
        helper = Agent(
            "Help.", name="helper", model=ScriptedModel([ToolCall("look"), "helped"]), tools=[look]
        )
        script = [ToolCall("helper", request=SECRET), ToolCall("stumble"), SECRET]
        self.lead = Agent(
            "Lead.", model=ScriptedModel(script), tools=[helper.as_tool(name="helper"), stumble]
        )
        self.other = Agent(
            "Try.", model=ScriptedModel([ToolCall("look", at="it"), "done"]), tools=[look]
        )

    def forward(self, session: Session) -> Session:
        session, _ = self.memory.recall(session, SECRET)
        winner = self.lead(session.fork("winner"))
        self.other(session.fork("loser"))
        return session.use(look).merge(winner)


TREE = """\
invoke_workflow Contest
  retrieval memory
  invoke_agent lead
    chat scripted
    execute_tool helper
      invoke_agent helper
        chat scripted
        execute_tool look
        chat scripted
    chat scripted
    execute_tool stumble
    chat scripted
  invoke_agent other
    chat scripted
    execute_tool look
    chat scripted
  execute_tool look
"""


@pytest.fixture
def session(shell: Shell) -> Session:
    return Contest()(Session("go", store=shell.address))
