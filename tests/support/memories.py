"""Memories, an index that counts its searches, and a model that answers by what it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plait import Memory, Session
from plait.event.kinds import Text, Usage
from plait.memory.plain_index import PlainIndex
from plait.model.base import OnDelta, Reply, Request, ToolCall
from tests.support.models import turn_text

STAGING = "The staging database is read-only."


class CountedIndex(PlainIndex):
    """An index of words that counts its searches for memories, and may be broken."""

    def __init__(self) -> None:
        super().__init__(name="counted")
        self.searches = 0
        self.before: Callable[[], object] = lambda: None  # called before each search

    def search(self, query: str, owners: Sequence[str], limit: int) -> list[tuple[str, float]]:
        if not owners[0].startswith("mark:"):
            self.searches += 1
            self.before()
        return super().search(query, owners, limit)


class PromptModel:
    """Answers by a function of the text of its prompt, from the last reply on if it has one."""

    name = "prompted"

    def __init__(self, answer: Callable[[str], str | ToolCall]) -> None:
        self.answer = answer
        self.asked = 0

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        self.asked += 1
        said = self.answer("\n".join(map(turn_text, request.turns)))
        usage = Usage(input_tokens=100, output_tokens=10)
        if isinstance(said, ToolCall):
            return Reply((), (said,), "calls", usage)
        return Reply((Text(said),), usage=usage)


def remembered(text: str = STAGING, *, project: str = "shop") -> str:
    """Have a person remember a statement for a project; return the id of the memory."""
    session = Session(text, user="u-17", project=project)
    session = Memory().remember(session, text, scope="project", evidence=session)
    return Memory().recall(session, text)[1][0].id
