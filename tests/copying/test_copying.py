"""Sessions that are copied to another store: everything is the same there, however often the copy
was cut off, and no run has two homes.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from plait import Memory, Session, Store, Workflow, open_store, resume
from plait.copying import copy as copy_module
from plait.copying import copy_sessions
from plait.errors import (
    HasMoved,
    InvalidValue,
    LogsDiffer,
    NotSettled,
    RunHeld,
    StillArriving,
    StoreCorrupt,
)
from plait.event.kinds import Text, TurnPosted
from plait.ids import LogId, house_of, inbox_of
from plait.journal.stops import Parked
from plait.session import verify
from plait.session.inbox import post
from plait.session.ports import Act, Draft
from plait.store import SqliteStore, visible_events
from tests.copying.conftest import DURABLE_PAIRS
from tests.copying.histories import (
    asker,
    assert_same,
    commit_order,
    interrupted_session,
    sessions_of,
    waiting_session,
    worker,
    write_history,
)
from tests.support import RawSql, child_environment, report, run_forked


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


def test_a_copy_is_continued(source: Store, target: Store, tmp_path: Path) -> None:
    write_history(source, tmp_path, 1)
    copy_sessions(source, target)
    session = Session.open(sessions_of(source)[0], store=source)
    session.say("one more")
    found = copy_sessions(source, target)
    assert found.events == 1
    assert_same(source, target)


def test_there_and_back(source: Store, target: Store, tmp_path: Path) -> None:
    write_history(source, tmp_path, 2)
    copy_sessions(source, target)
    there = Session.open(sessions_of(source)[0], store=target).reload().say("written there")
    found = copy_sessions(target, source)
    assert Session.open(there.id, store=source).head == there.head
    assert found.events >= 1
    assert list(verify(source, state=True)) == []


def test_decisions_of_people_come_along(source: Store, target: Store) -> None:
    memory = Memory(store=source)
    session = Session("hosts", store=source, user="u-1", project="shop")
    session = memory.remember(session, "The host is alpha.", scope="session", evidence=session)
    (item,) = memory.items(session=session)
    memory.forget(item.id, reason="wrong", actor="human:ana")
    assert memory.recall(session.reload(), "host")[1] == []
    copy_sessions(source, target, [session.id])
    there = Session.open(session.id, store=target)
    assert memory.recall(there, "host")[1] == []
    assert target.log(house_of(source.id)).tip == source.log(house_of(source.id)).tip
    assert list(verify(target, state=True)) == []


def test_some_sessions_bring_all_they_rest_on(source: Store, target: Store) -> None:
    other = Session("other", store=source)
    base = Session("base", store=source)
    left, right = base.fork("left").say("l"), base.fork("right").say("r")
    merged = left.merge(right)
    next_one = merged.successor(title="next")
    next_one.inbox.send("a word")
    found = copy_sessions(source, target, [next_one.id])
    assert set(sessions_of(target)) == {base.id, left.id, right.id, next_one.id}
    assert other.id not in sessions_of(target)
    assert target.log(inbox_of(next_one.id)).head == source.log(inbox_of(next_one.id)).head
    assert found.sessions == 4
    assert list(verify(target, state=True)) == []


# ── runs ─────────────────────────────────────────────────────────────────────────────────────


def test_an_open_run_moves(pair: tuple[Store, Store]) -> None:
    source, target = pair
    session = waiting_session(source)
    found = copy_sessions(source, target)
    assert found.moved == (session.id,)
    here, there = (Session.open(session.id, store=each) for each in (source, target))
    assert (here.status, there.status) == ("moved", "waiting")
    assert not source.rows("inbox", "ask", {"over": 0})
    for act in (
        lambda: resume(here, asker()),
        lambda: here.say("x"),
        lambda: here.inbox.send("x"),
        lambda: here.inbox.answer(there.inbox.waiting[0].event, "yes"),
        lambda: here.close(),
    ):
        with pytest.raises(HasMoved) as refused:
            act()
        assert refused.value.address == target.address
    there.inbox.answer(there.inbox.waiting[0].event, "yes")
    done = resume(there, asker())
    assert (done.status, done.text) == ("finished", "done")
    assert copy_sessions(source, target).events == 0
    assert list(verify(target, state=True)) == list(verify(source, state=True)) == []
    # and back again, as a copy: its run is over
    back = copy_sessions(target, source)
    home = Session.open(session.id, store=source)
    assert (back.moved, home.status, home.head) == ((), "finished", done.head)


def test_an_interrupted_run_moves(source: Store, target: Store) -> None:
    session = interrupted_session(source)
    assert session.status == "interrupted"
    copy_sessions(source, target)
    assert session.reload().status == "moved"
    assert Session.open(session.id, store=target).status == "interrupted"


def test_a_queued_message_moves(source: Store, target: Store) -> None:
    session = Session("queue", store=source)
    body = TurnPosted((Text("hello"),), log=session.id, client="gone")
    post(source.address, session.id, [Draft(body, Act("human:ana", "human"))])
    assert session.status == "interrupted"
    assert copy_sessions(source, target).moved == (session.id,)


def test_a_held_run_is_refused(source: Store, target: Store) -> None:
    session = waiting_session(source)
    run = str(source.rows("inbox", "run", limit=1)[0]["run"])
    lock = source.lock(run, session.short)
    with pytest.raises(RunHeld):
        copy_sessions(source, target)
    lock.release()
    assert target.number == 0
    assert copy_sessions(source, target).moved == (session.id,)


def test_move_ends_every_session(source: Store, target: Store) -> None:
    session = Session("one", store=source).close()
    found = copy_sessions(source, target, move=True)
    assert found.moved == (session.id,)
    assert Session.open(session.id, store=source).status == "moved"
    assert Session.open(session.id, store=target).status == "closed"


def test_a_fork_of_a_moved_session_stays(source: Store, target: Store) -> None:
    session = waiting_session(source)
    copy_sessions(source, target)
    fork = session.reload().fork("stays").say("goes on here")
    assert fork.status == "open"


# ── refusals ─────────────────────────────────────────────────────────────────────────────────


def test_logs_that_differ(source: Store, target: Store) -> None:
    session = Session("one", store=source)
    copy_sessions(source, target)
    ours = session.say("here").say("again")
    Session.open(session.id, store=target).say("there")
    before = target.number
    with pytest.raises(LogsDiffer) as refused:
        copy_sessions(source, target)
    assert (refused.value.log, refused.value.seq) == (session.id, session.seq + 1)
    assert (target.number, ours.reload().head) == (before, ours.head)


def test_a_run_is_not_cut_in_the_middle(
    source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends while the copy looks is there with its end, or not at all."""
    session = waiting_session(source)
    Session("other", store=source)
    look = copy_module.plan_copy

    def plan_copy(*args: Any) -> Any:
        monkeypatch.undo()
        session.inbox.answer(session.inbox.waiting[0].event, "yes")
        assert resume(session.reload(), asker()).status == "finished"
        return look(*args)

    monkeypatch.setattr(copy_module, "plan_copy", plan_copy)
    found = copy_sessions(source, target)
    assert found.moved == ()
    there = Session.open(session.id, store=target)
    assert (there.status, there.head) == ("finished", session.reload().head)


def test_a_damaged_event_is_named(tmp_path: Path, target: Store) -> None:
    source = open_store(tmp_path / "bad")
    session = Session("one", store=source).say("two").say("three")
    source.close()
    sql = RawSql(tmp_path / "bad" / "store.db")
    sql("UPDATE event SET salt = zeroblob(16) WHERE seq = ?", (session.seq,))
    sql.close()
    with pytest.raises(StoreCorrupt, match=f"{session.id}@{session.seq}"):
        copy_sessions(open_store(tmp_path / "bad"), target)
    assert target.number == 0


def test_the_same_store(source: Store) -> None:
    with pytest.raises(InvalidValue):
        copy_sessions(source, source)


def test_a_trial_writes_nothing(source: Store, target: Store, tmp_path: Path) -> None:
    write_history(source, tmp_path, 0)
    waiting = waiting_session(source)
    tried = copy_sessions(source, target, is_trial=True)
    assert (target.number, list(target.blobs()), tried.moved) == (0, [], (waiting.id,))
    done = copy_sessions(source, target)
    assert tried.blobs == done.blobs and tried.events + 1 == done.events


# ── cut off ──────────────────────────────────────────────────────────────────────────────────


class Cut(BaseException):
    pass


class _Cutter:
    """Ends a copy before or after the nth write of any store."""

    def __init__(self, patch: pytest.MonkeyPatch, nth: int, after: bool) -> None:
        self.left, self._after = nth, after
        patch.setattr("plait.copying.transfer._EVENTS_MAX", 8)  # many small acts
        for name in ("append_all", "begin", "append", "put_blobs"):
            patch.setattr(SqliteStore, name, self._cut(getattr(SqliteStore, name)))

    def _cut(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self._after:
                raise Cut
            found = write(*args, **more)
            if self.left == 0:
                raise Cut
            return found

        return call


def _mixed(source: Store, folder: Path) -> LogId:
    write_history(source, folder, 5, steps=12)
    return waiting_session(source).id


@pytest.mark.parametrize("after", [False, True])
def test_cut_off_at_every_write(tmp_path: Path, after: bool) -> None:
    nth, cuts = 0, True
    while cuts:
        nth += 1
        folder = tmp_path / str(nth)
        source, target = open_store(folder / "source"), open_store(folder / "target")
        waiting = _mixed(source, folder)
        with pytest.MonkeyPatch.context() as patch:
            cutter = _Cutter(patch, nth, after)
            try:
                copy_sessions(source, target)
            except Cut:
                pass
            cuts = cutter.left <= 0
        _assert_one_home(source, target, waiting)
        copy_sessions(source, target)
        assert_same(source, target)
        assert Session.open(waiting, store=target).status == "waiting"
        source.close()
        target.close()
    assert nth > 10


def _assert_one_home(source: Store, target: Store, log: LogId) -> None:
    """Assert that at most one of the stores goes on with the run of a session."""
    homes = 0
    for store in (source, target):
        if not store.heads([log]):
            continue
        try:
            resume(Session.open(log, store=store), asker())
        except (HasMoved, StillArriving):
            continue
        except Parked:
            homes += 1
        else:
            raise AssertionError
    assert homes <= 1


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


@pytest.mark.parametrize("addresses", DURABLE_PAIRS, indirect=True)
def test_killed_again_and_again(addresses: list[str], tmp_path: Path) -> None:
    source = open_store(addresses[0])
    waiting = _mixed(source, tmp_path)
    kills, nth = 0, 1
    while True:
        command = [sys.executable, "-c", _KILLED, *addresses, str(nth)]
        code = run_forked(command, env=child_environment()).returncode
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills, nth = kills + 1, nth % 3 + 2  # what is written each time is not written again
    assert kills > 3
    target = open_store(addresses[1])
    assert_same(source, target)
    assert Session.open(waiting, store=target).status == "waiting"
    report("copies killed with -9", f"{kills} kills, 0 events lost, doubled or different")


def test_two_copies_at_once(tmp_path: Path) -> None:
    source, target = open_store(tmp_path / "source"), open_store(tmp_path / "target")
    write_history(source, tmp_path, 3)
    errors: list[BaseException] = []

    def copy() -> None:
        try:
            copy_sessions(source, target)
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=copy) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert_same(source, target)


def test_a_source_that_is_written_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = open_store(tmp_path / "source"), open_store(tmp_path / "target")
    write_history(source, tmp_path, 4)
    logs, write = sessions_of(source), SqliteStore.append_all

    def append_all(self: SqliteStore, *args: Any, **more: Any) -> Any:
        found = write(self, *args, **more)
        if self is target:
            Session.open(logs[0], store=source).fork().say("meanwhile")
            Session("new", store=source)
        return found

    monkeypatch.setattr(SqliteStore, "append_all", append_all)
    copy_sessions(source, target)
    monkeypatch.undo()
    assert list(verify(target, state=True)) == []
    copy_sessions(source, target)
    assert_same(source, target)


def test_a_session_on_its_way_cannot_run(
    source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = worker()(Session("go", store=source))
    with monkeypatch.context() as patch:
        _Cutter(patch, 3, after=True)
        with pytest.raises(Cut):
            copy_sessions(source, target)
    there = Session.open(session.id, store=target)
    step: Workflow = worker()
    before = target.number
    for act in (
        lambda: step(there),
        lambda: there.say("x"),
        lambda: there.fact("a", 1),
        lambda: there.inbox.send("x"),
        lambda: there.turn("x", step),
        lambda: there.merge(there.fork()),
        lambda: there.close(),
        lambda: Session.open(session.id, store=target).say("y"),
    ):
        with pytest.raises((StillArriving, NotSettled)):  # its run looks open
            act()
        assert target.log(session.id).tip == there.seq
    assert target.number == before + 1  # the fork
    copy_sessions(source, target)
    assert step(there.reload().say("z")).status == "finished"
