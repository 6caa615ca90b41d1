"""A run that ingested or forgot is replayed from its record, whatever became of its memories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plait import Memory, Session, Store, Workflow, replay
from plait.errors import ReplayDiverged
from plait.event.kinds import Scope

# two pieces
GUIDE = f"Alpha backups run at night.{' They are kept.' * 52}\n\nBeta restores run at noon."


class Doing(Workflow):
    """Does something with the session, and says so."""

    def __init__(self, act: Callable[[Session], Session]) -> None:
        super().__init__()
        self._act = act

    def forward(self, session: Session) -> Session:
        return self._act(session).say("end")


@pytest.fixture
def guide(tmp_path: Path) -> Path:
    path = tmp_path / "guide.md"
    path.write_text(GUIDE)
    return path


@pytest.mark.parametrize("scope", ["session", "project"])
def test_an_ingested_document_is_replayed_though_its_pieces_are_known_now(
    memory: Memory, session: Session, guide: Path, scope: Scope
) -> None:
    """Twice in the run: the second time nothing was written, and nothing is now."""

    def ingest(value: Session) -> Session:
        value = memory.ingest(value, guide, scope=scope)
        return memory.ingest(value.say("again"), guide, scope=scope)

    done = Doing(ingest)(session)
    assert len(memory.items(state=None)) == 2
    for item in memory.items(state=None):
        memory.rollback(item).apply(reason="it is wrong", actor="human:zoe")
    assert replay(done, Doing(ingest)).head == done.head


def test_two_sources_in_one_run_are_told_apart(
    memory: Memory, session: Session, guide: Path, store: Store
) -> None:
    other = Session("I moved to Oslo.", user="ann", project="shop", store=store)
    later = other.say("I moved on to Bergen.")
    second = guide.with_name("more.md")
    second.write_text("Gamma logs are kept for a year.")

    def ingest(value: Session) -> Session:
        for source in (guide, second, guide, other, later):
            value = memory.ingest(value, source, scope="project")
        return value

    done = Doing(ingest)(session)
    assert len(memory.items(state=None)) == 5
    assert replay(done, Doing(ingest)).head == done.head


def test_another_document_than_the_recorded_one_diverges(
    memory: Memory, session: Session, guide: Path
) -> None:
    ingesting = Doing(lambda value: memory.ingest(value, guide, scope="project"))
    done = ingesting(session)
    guide.write_text(f"{GUIDE}\n\nGamma logs are kept for a year.")
    with pytest.raises(ReplayDiverged):
        replay(done, ingesting)
    guide.write_text("Nothing of it is true.")
    with pytest.raises(ReplayDiverged):
        replay(done, ingesting)


def test_a_memory_that_a_run_forgot_may_be_taken_back_by_others_since(
    memory: Memory, session: Session
) -> None:
    session = memory.remember(session, "The old door stands.")
    item = memory.items(session)[0]

    def forget(value: Session) -> Session:
        after = memory.forget(item.id, session=value)
        assert isinstance(after, Session)
        return after

    done = Doing(forget)(session)
    memory.rollback(item).apply(reason="it is wrong", actor="human:zoe")
    assert replay(done, Doing(forget)).head == done.head
