"""Sessions that go to a PostgreSQL store, come from one, or go from one to another."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from plait import Memory, Session, Store, open_store, resume
from plait.copying import copy_sessions
from plait.errors import HasMoved, StoreUnsettled
from plait.runtime.live import Live
from plait.session import verify
from plait.store import visible_events
from plait.store.postgres.address import parse_address
from plait.store.postgres.migrate import migrate
from tests.copying.histories import (
    asker,
    assert_same,
    commit_order,
    sessions_of,
    waiting_session,
    write_history,
)
from tests.support import (
    child_environment,
    fresh_store,
    parked_session,
    postgres_server,
    report,
    run_forked,
)

PAIRS = ["sqlite-postgres", "postgres-sqlite", "postgres-postgres"]


@pytest.fixture
def addresses(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of a store to copy from, and of an empty one."""
    found: list[str] = []
    with ExitStack() as stack:
        for n, kind in enumerate(str(request.param).split("-")):
            if kind == "postgres":
                address = stack.enter_context(fresh_store(postgres_server()))
                migrate(parse_address(address), source=Live())
            else:
                address = str(tmp_path / str(n))
            found.append(address)
        yield found


@pytest.fixture
def pair(addresses: list[str]) -> tuple[Store, Store]:
    return open_store(addresses[0]), open_store(addresses[1])


@pytest.mark.parametrize("addresses", PAIRS, indirect=True)
@pytest.mark.parametrize("seed", range(2))
def test_a_copy_is_the_same(pair: tuple[Store, Store], tmp_path: Path, seed: int) -> None:
    source, target = pair
    write_history(source, tmp_path, seed)
    found = copy_sessions(source, target)
    assert_same(source, target)
    assert (found.moved, found.sessions) == ((), len(sessions_of(source)))
    events = {event.id for _, event in visible_events(source)}
    assert commit_order(source, events) == commit_order(target, events)
    again = copy_sessions(source, target)
    assert (again.events, again.blobs, again.bytes) == (0, 0, 0)
    assert again.events_there == found.events


@pytest.mark.parametrize("addresses", PAIRS, indirect=True)
def test_an_open_run_moves(pair: tuple[Store, Store]) -> None:
    source, target = pair
    session = waiting_session(source)
    assert copy_sessions(source, target).moved == (session.id,)
    here, there = (Session.open(session.id, store=each) for each in (source, target))
    assert (here.status, there.status) == ("moved", "waiting")
    with pytest.raises(HasMoved):
        here.inbox.send("x")
    with pytest.raises(HasMoved):
        resume(here, asker())
    there.inbox.answer(there.inbox.waiting[0].event, "yes")
    done = resume(there, asker())
    assert (done.status, done.text) == ("finished", "done")
    assert copy_sessions(source, target).events == 0
    assert list(verify(target, state=True)) == list(verify(source, state=True)) == []
    back = copy_sessions(target, source)
    home = Session.open(session.id, store=source)
    assert (back.moved, home.status, home.head) == ((), "finished", done.head)


@pytest.mark.parametrize("addresses", PAIRS[:1], indirect=True)
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


_KILLED = """
import os, signal, sys
from plait import open_store
from plait.copying import copy_sessions, transfer
from plait.store import SqliteStore
from plait.store.postgres.store import PostgresStore

left = int(sys.argv[3])
transfer._EVENTS_MAX = 8

def cut(write):
    def call(*args, **more):
        global left
        found = write(*args, **more)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    return call

for store in (SqliteStore, PostgresStore):
    for name in ("append_all", "begin", "put_blobs"):
        setattr(store, name, cut(getattr(store, name)))
copy_sessions(open_store(sys.argv[1]), open_store(sys.argv[2]))
"""


@pytest.mark.parametrize("addresses", PAIRS, indirect=True)
def test_killed_again_and_again(addresses: list[str], tmp_path: Path) -> None:
    source = open_store(addresses[0])
    write_history(source, tmp_path, 5, steps=12)
    waiting = waiting_session(source)
    kills, nth = 0, 1
    while True:
        command = [sys.executable, "-c", _KILLED, *addresses, str(nth)]
        code = run_forked(command, env=child_environment()).returncode
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills, nth = kills + 1, nth % 3 + 2
    assert kills > 3
    target = open_store(addresses[1])
    assert_same(source, target)
    assert Session.open(waiting.id, store=target).status == "waiting"
    report("copies of PostgreSQL killed with -9", f"{kills} kills, 0 events lost or doubled")


@pytest.mark.parametrize("addresses", PAIRS[1:2], indirect=True)
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


@pytest.mark.parametrize("addresses", PAIRS[:1], indirect=True)
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
