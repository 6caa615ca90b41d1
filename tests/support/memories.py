"""Memories, an index that counts its searches, and a model that answers by what it is shown."""

from __future__ import annotations

from collections.abc import Callable

from plait import Memory, Session
from plait.event.kinds import Text, Usage
from plait.memory.recall import StoreFinder
from plait.memory.scopes import Viewer
from plait.model.base import OnDelta, Reply, Request, ToolCall
from plait.store import Found, Store
from tests.support.models import turn_text

STAGING = "The staging database is read-only."


class CountedIndex:
    """The store's own index under another name: it counts its searches, and may be broken."""

    name = "counted"

    def __init__(self) -> None:
        self.searches = 0
        self.before: Callable[[], object] = lambda: None  # called before each search

    def finder(self) -> _CountedFinder:
        return _CountedFinder(self)


class _CountedFinder(StoreFinder):
    def __init__(self, index: CountedIndex) -> None:
        super().__init__()
        self.name, self._index = index.name, index

    def find(self, store: Store, query: str, viewer: Viewer, limit: int) -> Found:
        self._index.searches += 1
        self._index.before()
        return super().find(store, query, viewer, limit)


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
