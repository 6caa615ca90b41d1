"""Resume, replay and what-if on an event loop, and as streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plait import (
    Agent,
    Event,
    ScriptedModel,
    Session,
    Workflow,
    areplay,
    aresume,
    astream_replay,
    astream_resume,
    astream_whatif,
    awhatif,
    stream_replay,
    stream_resume,
    stream_whatif,
)
from plait.model.base import TextDelta


class Fails(Workflow):
    """Fails once, after a fact; then an agent answers."""

    def __init__(self) -> None:
        self.agent, self._times = Agent("Answer.", model=ScriptedModel(lambda at: "a b c")), 0

    def forward(self, session: Session) -> Session:
        session = session.fact("before", 1)
        self._times += 1
        if self._times == 1:
            raise LookupError("no stock")
        return self.agent(session)


def failed() -> tuple[Session, Fails]:
    session, workflow = Session("go", store="memory:"), Fails()
    with pytest.raises(LookupError):
        workflow(session)
    return session.reload(), workflow


def said(items: list[Any]) -> str:
    assert isinstance(items[-1], Session)
    return "".join(item.text for item in items[:-1] if isinstance(item, TextDelta))


def kinds(items: list[Any]) -> list[str]:
    return [item.kind for item in items if isinstance(item, Event)]


async def collect(items: Any) -> list[Any]:
    return [item async for item in items]


def test_a_resume_as_a_stream() -> None:
    session, workflow = failed()
    items = list(stream_resume(session, workflow, events=True))
    assert said(items) == "a b c"
    assert "ModelReplied" in kinds(items) and kinds(items)[-1] == "RunFinished"


def test_a_resume_on_a_loop() -> None:
    session, workflow = failed()
    assert asyncio.run(aresume(session, workflow)).text == "a b c"
    session, workflow = failed()
    items = asyncio.run(collect(astream_resume(session, workflow)))
    assert said(items) == "a b c" and kinds(items) == []


def test_replays() -> None:
    session, workflow = failed()
    done = asyncio.run(aresume(session, workflow))
    assert asyncio.run(areplay(done, workflow)).head == done.head
    items = list(stream_replay(done, workflow))
    assert items[-1] == done and kinds(items)[0] == "RunStarted"
    assert kinds(items)[-1] == "RunFinished"
    assert asyncio.run(collect(astream_replay(done, workflow))) == items


def test_what_ifs() -> None:
    session, workflow = failed()
    done = asyncio.run(aresume(session, workflow))
    other = ScriptedModel(lambda at: "x y")
    assert asyncio.run(awhatif(done, workflow, at=3, model=other)).text == "x y"
    assert said(list(stream_whatif(done, workflow, at=3, model=other))) == "x y"
    items = asyncio.run(collect(astream_whatif(done, workflow, at=3, model=other, events=True)))
    assert said(items) == "x y" and kinds(items)[-1] == "RunFinished"
