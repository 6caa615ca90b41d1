"""Copies to a PostgreSQL store, and from one, where it differs from others."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from plait import Memory, Session, Store, resume
from plait.copying import copy_sessions
from plait.errors import StoreUnsettled
from plait.session import verify
from tests.copying.histories import (
    asker,
    assert_same,
)
from tests.support import (
    parked_session,
    postgres_server,
)


@pytest.mark.parametrize("addresses", ["sqlite-postgres"], indirect=True)
def test_a_run_with_files_goes_on_from_another_folder(
    pair: tuple[Store, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    for name in ("here", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "here" / "a.txt").write_text("apples")
    monkeypatch.chdir(tmp_path / "here")
    memory = Memory(store=source)
    begun = Session("wait", store=source, user="u-1", project="shop").to("local", ".")
    begun = memory.remember(begun, "The host is h1.", scope="project", evidence=begun)
    session = parked_session(lambda: asker()(begun))
    copy_sessions(source, target)
    source.close()
    shutil.rmtree(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "elsewhere")
    there = Session.open(session.id, store=target)
    there.inbox.answer(there.inbox.waiting[0].event, "yes")
    done = resume(there, asker())
    assert (done.status, done.files.read("a.txt")) == ("finished", b"apples")
    assert [each.text for each in Memory(store=target).items(session=done)] == ["The host is h1."]
    assert list(verify(target, state=True)) == []


@pytest.mark.parametrize("addresses", ["postgres-sqlite"], indirect=True)
def test_events_that_are_not_settled_are_waited_for(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    with postgres_server().connect(autocommit=False) as other:
        other.execute("SELECT pg_current_xact_id()")
        session = Session("new", store=source).say("more")
        assert source.number < (source.number_of(session.head) or 0)
        with monkeypatch.context() as patch:
            patch.setattr("plait.copying.copy._SETTLE_S", 0.2)
            with pytest.raises(StoreUnsettled):
                copy_sessions(source, target)
            assert target.number == 0
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            other.rollback()

        monkeypatch.setattr("plait.copying.copy.sleep", sleep)
        assert copy_sessions(source, target).events == session.seq
    assert waits and Session.open(session.id, store=target).head == session.head


@pytest.mark.parametrize("addresses", ["sqlite-postgres"], indirect=True)
def test_logs_written_side_by_side_make_large_acts(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = pair
    sessions = [Session(f"s{n}", store=source) for n in range(10)]
    for _ in range(30):
        sessions = [session.say("word") for session in sessions]
    acts: list[int] = []
    write = type(target).append_all

    def append_all(self: Store, parts: Any, **more: Any) -> Any:
        acts.append(len(parts))
        return write(self, parts, **more)

    monkeypatch.setattr(type(target), "append_all", append_all)
    found = copy_sessions(source, target)
    assert found.events == source.number > 300
    assert len(acts) == 3, acts  # the copy is begun, all events are brought over, it is finished
    assert_same(source, target)
