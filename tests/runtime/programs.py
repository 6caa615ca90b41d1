"""Programs that several tests of runs call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait import Agent, ScriptedModel, Session, Workflow, tool
from plait.errors import ToolFailed
from plait.tool import Tool


class AsyncUses(Workflow):
    """Uses a tool, and goes on if it fails."""

    def __init__(self, used: Tool[..., Any]) -> None:
        self._used = used

    async def forward(self, session: Session) -> Session:
        try:
            return await session.ause(self._used)
        except ToolFailed as error:
            assert isinstance(error.session, Session)
            return error.session.fact("caught", error.kind)


class Steps(Workflow):
    """Writes, does a deed with its own value, and goes on with it."""

    def __init__(self, deed: Callable[[Session], object] = lambda session: None) -> None:
        self.agent = Agent("Go on.", model=ScriptedModel(["went on"]))
        self._deed = deed

    def forward(self, session: Session) -> Session:
        session = session.fact("known", 1).todo("work", key="work")
        self._deed(session)
        return self.agent(session.note("between two steps of its own"))


@tool
def look() -> int:
    return 1
