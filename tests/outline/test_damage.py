"""Events that were erased or damaged: their steps are told as far as headers go."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall, open_store
from plait.ids import LogId
from plait.outline.details import step_detail
from plait.outline.family import family_shape
from plait.outline.outlines import Outlines
from plait.outline.shapes import StepShape
from plait.outline.steps import outline_shape, step_page
from plait.outline.summaries import Summaries
from plait.outline.track import track_shape
from plait.store import Store
from tests.support import RawSql, word_count

DAMAGES = {
    "erased": "UPDATE event SET body = NULL",
    "other bytes": "UPDATE event SET body = x'00'",
    "another body": "UPDATE event SET body = x'7b7d', codec = codec & 8",
}


@pytest.fixture
def counted(tmp_path: Path) -> Session:
    script = [ToolCall("word_count", text="to be or not"), "Four."]
    agent = Agent("Count.", model=ScriptedModel(script), tools=[word_count])
    return agent(Session("How many words?", store=tmp_path / "store"))


def spoiled(session: Session, tmp_path: Path, damage: str, where: str) -> Store:
    """The store of the session after its file was edited behind its back."""
    open_store(tmp_path / "store").close()
    sql = RawSql(tmp_path / "store" / "store.db")
    sql(f"{DAMAGES[damage]} WHERE {where}")
    sql.close()
    return open_store(tmp_path / "store")


def look(store: Store, log: LogId) -> tuple[StepShape, ...]:
    """Look at everything there is of a session."""
    outlines = Outlines(store)
    family_shape(outlines, log)
    outline_shape(outlines, log)
    steps = step_page(outlines, log).steps
    for step in steps:
        step_detail(outlines, log, step.seq)
    Summaries(outlines).page()
    track_shape(store, log, store.log(log).tip)
    return steps


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_event_may_be_damaged(counted: Session, tmp_path: Path, damage: str) -> None:
    whole = look(open_store(tmp_path / "store"), counted.id)
    for seq in range(2, counted.seq + 1):
        store = spoiled(counted, tmp_path, damage, f"seq = {seq}")
        steps = look(store, counted.id)
        assert steps[0].first == 1 and len(steps) >= len(whole) - 1
        store.close()


def test_a_step_says_that_its_words_are_gone(counted: Session, tmp_path: Path) -> None:
    returned = counted.events.where("ToolReturned")[0].seq
    steps = look(spoiled(counted, tmp_path, "erased", f"seq = {returned}"), counted.id)
    (call,) = [step for step in steps if step.type == "tool"]
    assert (call.verb, call.subject, call.seq) == ("word_count", "to be or not", returned)
    assert (call.says, call.state) == ("(erased or unreadable)", "done")
