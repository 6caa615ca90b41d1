"""The audit: an edit of a memory's rows behind our back is found, and a clean store is silent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from plait import Memory, Session, open_store
from plait.session import verify
from plait.session.audit import Audit
from tests.memory.test_remember import last_item
from tests.support import RawSql

DOOR = "The door is red."


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a row in every table of memories."""
    folder = tmp_path_factory.mktemp("audit") / ".plait"
    store = open_store(folder)
    memory = Memory(store=store)
    session = memory.remember(
        Session("Hi", user="ann", project="shop", store=store), DOOR, scope="project"
    )
    item = last_item(memory, session)
    memory.remember(session, "Ann opens it.", scope="project", evidence=item.id, actor="agent:a")
    other = Session("Ho", user="bob", project="shop", store=store)
    other, _ = memory.recall(memory.remember(other, DOOR, scope="project"), "door")
    other.say("Away.").rewind(2)
    memory.rollback(item).apply(reason="it is blue", actor="human:zoe")
    assert list(verify(store, state=True)) == []
    store.close()
    return folder


EDITS = [
    ("UPDATE p_memory__item SET text = 'The door is open.'", "item row says text is 'The door is"),
    ("UPDATE p_memory__item SET owner = 'project:other'", "item row says owner"),
    ("UPDATE p_memory__item SET trust = 'checked'", "item row says trust is 'checked'"),
    ("UPDATE p_memory__item SET actor = 'human:boss'", "item row says actor is 'human:boss'"),
    ("UPDATE p_memory__item SET decisions = '[]'", "item row says decisions is '[]'"),
    ("UPDATE p_memory__item SET log = 'x'", "item row says log is 'x'"),
    ("DELETE FROM p_memory__rest", "the rest row of '"),
    ("INSERT INTO p_memory__rest VALUES ('a', 'b', 1)", "the rest row of 'a', 'b' stands there"),
    ("DELETE FROM p_memory__support", "support row is missing"),
    ("DELETE FROM p_memory__read", "read row is missing"),
    ("DELETE FROM p_memory__rewind", "rewind row is missing"),
    ("DELETE FROM p_memory__arriving", "arriving row is missing"),
    ("UPDATE projection SET version = 99 WHERE name = 'memory'", "which hides them"),
]


@pytest.mark.parametrize(("edit", "says"), EDITS)
def test_an_edit_of_rows_of_memories_is_found(
    original: Path, tmp_path: Path, edit: str, says: str
) -> None:
    folder = shutil.copytree(original, tmp_path / ".plait")
    sql = RawSql(folder / "store.db")
    sql(edit)
    assert sql("SELECT changes()") != [(0,)]
    sql.close()
    store = open_store(folder)
    try:
        found = [str(fault) for fault in verify(store, state=True)]
        assert found and all("row" in fault for fault in found) and says in found[0], found
    finally:
        store.close()


def test_rows_of_memories_are_named_where_they_are_not_compared(
    original: Path, tmp_path: Path
) -> None:
    store = open_store(shutil.copytree(original, tmp_path / ".plait"))
    audit = Audit(store)
    assert list(audit.faults()) == []
    assert any("rows other than those of sessions" in str(each) for each in audit.unchecked_parts())
    audit = Audit(store, state=True)
    assert list(audit.faults()) == []
    assert not any("rows" in each.what for each in audit.unchecked_parts())
    store.close()
