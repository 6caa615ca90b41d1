"""`durability="async"`: commits without an fsync of their own, and the boundaries at which they get
one.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from plait import Session, open_store
from plait.errors import DiskFull, InvalidValue, StaleHead, StoreFailed
from plait.event import Body
from plait.event.kinds import (
    BOUNDARIES,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequested,
    CheckpointSigned,
    Failure,
    HandedOff,
    ModelAsked,
    QuestionAsked,
    RunCancelled,
    RunFailed,
    RunFinished,
    SessionArchived,
    SessionArrived,
    SessionClosed,
    SessionMoved,
    SessionOpened,
    SessionPaused,
    TimerSet,
    ToolRequested,
    VerdictAwaited,
)
from plait.ids import Digest, LogId
from plait.session import verify
from plait.session.branching import durability_of
from plait.session.ports import Act, Draft, writer_of
from plait.session.value import position_of
from plait.store import SqliteStore, Store
from plait.store.sqlite import connections as connections_module
from plait.store.sqlite import database as database_module
from plait.store.sqlite.commit import GroupCommit
from plait.store.sqlite.connections import Connections
from plait.testing import Seeded
from plait.testing.writing import begin, extend, fork, message, new_log, seal_events
from tests.support import RawSql, needs_strace, python, sqlite_writer, unsynced_count, wait_until


def opened(folder: Path) -> SqliteStore:
    return SqliteStore(folder, source=Seeded(), durability="async")


def test_appends_gather_until_one_asks_for_the_disk(tmp_path: Path) -> None:
    store = opened(tmp_path)
    log = begin(store)
    extend(store, log, message("a"), message("b"))
    assert unsynced_count(store) == 2
    now = store.log(log)
    store.append(
        log, seal_events([message("c")], log, now.tip + 1, (now.head,)), after=now.head, flush=True
    )
    assert unsynced_count(store) == 0
    extend(store, log, message("d"))
    store.flush()
    assert unsynced_count(store) == 0
    store.close()


def test_a_boundary_comes_by_count(tmp_path: Path) -> None:
    store = opened(tmp_path)
    log = begin(store)
    seen = {unsynced_count(store)}
    for i in range(3 * database_module.UNSYNCED_MAX):
        extend(store, log, message(str(i)))
        seen.add(unsynced_count(store))
    assert max(seen) == database_module.UNSYNCED_MAX - 1 and 0 in seen
    store.close()


def test_a_boundary_comes_by_time_though_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_module, "UNSYNCED_S", 0.02)
    store = opened(tmp_path)
    log = begin(store)
    for text in ("a", "b"):
        extend(store, log, message(text))
        assert unsynced_count(store)
        wait_until(lambda: not unsynced_count(store))
    store.close()


def test_a_timer_that_fires_before_its_thread_goes_on_is_followed_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine so busy that the thread which starts the timer has to wait until then."""
    has_fired, sync = threading.Event(), Connections.sync_if_needed

    def sync_and_say_so(self: Connections) -> None:
        has_fired.set()
        sync(self)

    class FiresAtOnce(threading.Timer):
        def start(self) -> None:
            has_fired.clear()
            super().start()
            has_fired.wait()

    monkeypatch.setattr(connections_module, "UNSYNCED_S", 0)
    monkeypatch.setattr(Connections, "sync_if_needed", sync_and_say_so)
    monkeypatch.setattr(threading, "Timer", FiresAtOnce)
    store = opened(tmp_path)
    log = begin(store)
    for text in "abc":
        extend(store, log, message(text))
        wait_until(lambda: not unsynced_count(store), within_s=10)
    store.close()


def test_a_full_log_beside_it_is_durable_at_once_and_takes_the_others_along(tmp_path: Path) -> None:
    store = opened(tmp_path)
    lazy, strict = begin(store), begin_full(store)
    extend(store, lazy, message("a"))
    assert unsynced_count(store) == 1
    extend(store, strict, message("b"))
    assert unsynced_count(store) == 0
    assert store.log(lazy).durability == "async" and store.log(strict).durability == "full"
    assert (
        store.log(fork(store, lazy, 1)).durability == "async"
        and store.log(fork(store, strict, 1)).durability == "full"
    )
    store.close()


def begin_full(store: Store) -> LogId:
    log = new_log()
    store.begin(log, seal_events([SessionOpened()], log))
    return log


def test_what_stood_already_is_synced_when_it_is_appended_again_as_a_boundary(
    tmp_path: Path,
) -> None:
    """The first attempt was committed without an fsync: that the second finds it there does not
    make it durable.
    """
    store = opened(tmp_path)
    log = begin(store)
    now = store.log(log)
    events = seal_events([message("x")], log, now.tip + 1, (now.head,))
    store.append(log, events, after=now.head)
    assert unsynced_count(store) == 2
    store.append(log, events, after=now.head, flush=True)
    assert unsynced_count(store) == 0
    store.close()


def test_a_refused_append_is_no_boundary(tmp_path: Path) -> None:
    store = opened(tmp_path)
    log = begin(store)
    now = store.log(log)
    extend(store, log, message("x"))
    with pytest.raises(StaleHead):
        store.append(
            log,
            seal_events([message("late")], log, now.tip + 1, (now.head,), actor="human:b"),
            after=now.head,
            flush=True,
        )
    assert unsynced_count(store) == 2
    store.close()


# ── sessions ─────────────────────────────────────────────────────────────────────────────────


def test_a_session_says_how_it_is_written_and_its_branches_are_written_likewise(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path / ".plait")
    full, lazy = Session("x", store=store), Session("x", store=store, durability="async")
    assert durability_of(full) == "full" and durability_of(lazy) == "async"
    assert durability_of(lazy.fork("b").say("y").fork("c")) == "async"
    assert (
        durability_of(lazy.detach()) == "async"
        and durability_of(lazy.successor()) == "async"
        and durability_of(full.successor()) == "full"
    )
    assert durability_of(Session("x", store="memory:")) == "memory"
    assert list(verify(store, state=True)) == []
    store.close()


def test_a_store_opened_async_is_so_for_new_sessions_only(tmp_path: Path) -> None:
    store = open_store(tmp_path / ".plait")
    before = Session("x", store=store)
    assert open_store(tmp_path / ".plait", durability="async") is store
    after = Session("x", store=store)
    assert durability_of(before) == "full" and durability_of(after) == "async"
    after = after.say("y")
    assert unsynced_count(store) == 2
    before.say("y")
    assert unsynced_count(store) == 0
    store.flush()
    store.close()
    assert open_store(tmp_path / ".plait").durability == "full"
    open_store(tmp_path / ".plait").close()


def test_requests_approvals_and_the_end_are_boundaries(tmp_path: Path) -> None:
    store = open_store(tmp_path / ".plait", durability="async")
    session = Session("x", store=store)
    assert unsynced_count(store) == 1
    request = Draft(
        ToolRequested("pay", {"amount": 1}, "at_most_once"), Act("agent:a", "model", call="c-1")
    )
    asked = writer_of(None).append(position_of(session), [request])
    assert unsynced_count(store) == 0
    other = Session("y", store=store).say("z")
    assert unsynced_count(store) == 2
    other.close()
    assert unsynced_count(store) == 0
    assert asked.seq == 3
    store.close()


@pytest.mark.parametrize(
    "act",
    [lambda: Session("x", durability="fast"), lambda: open_store("memory:", durability="off")],  # pyright: ignore[reportArgumentType]
)
def test_another_word_is_refused(act: Any) -> None:
    with pytest.raises(InvalidValue, match="async"):
        act()


def test_a_row_that_makes_a_log_less_durable_than_it_says_is_found(tmp_path: Path) -> None:
    store = open_store(tmp_path / ".plait")
    branch = Session("x", store=store).fork("b")
    store.close()
    raw = RawSql(tmp_path / ".plait" / "store.db")
    raw("UPDATE log SET lazy = 1 WHERE parent IS NOT NULL")
    raw.close()
    store = open_store(tmp_path / ".plait")
    (fault,) = verify(store)
    assert fault.log == branch.id and "written async, its first event says full" in fault.what
    store.close()


# ── from outside ─────────────────────────────────────────────────────────────────────────────

MANY = """
import sys
from plait import Session, open_store
store = open_store(sys.argv[1], durability="async")
session = Session("x", store=store)
open(sys.argv[1] + "/begin", "w").close()
for i in range(500):
    session = session.say("y" * 900)
open(sys.argv[1] + "/end", "w").close()
if sys.argv[2] == "close":
    store.close()
print(session)
"""


@pytest.mark.parametrize("ending", ["close", "just end"])
def test_few_fsyncs_and_one_at_the_end(tmp_path: Path, ending: str) -> None:
    trace = tmp_path / "trace"
    python(
        MANY,
        tmp_path / ".plait",
        ending,
        prefix=(needs_strace(), "-f", "-o", str(trace), "-e", "trace=fsync,fdatasync,openat"),
    )
    lines = trace.read_text().splitlines()
    begun, ended = (
        next(i for i, line in enumerate(lines) if name in line and "O_CREAT" in line)
        for name in ("/begin", "/end")
    )
    syncs = [i for i, line in enumerate(lines) if "sync(" in line]
    during = sum(begun < i < ended for i in syncs)
    assert during / 500 < 0.05, f"{during} fsyncs for 500 appends"
    assert syncs[-1] > ended, "the end of the program left its last appends to chance"


def test_a_flush_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk nothing can be appended, but what was is brought there."""
    store = opened(tmp_path)
    extend(store, begin(store), message("x"))
    synced: list[str] = []

    def full(db: Any) -> None:
        raise DiskFull(db.path)

    monkeypatch.setattr(database_module.Database, "touch", full)
    monkeypatch.setattr(connections_module, "_sync_file", synced.append)
    store.flush()
    assert synced == [f"{tmp_path}/store.db-wal"]
    sqlite_writer(store).doubt()  # after a failed fsync another one says nothing
    with pytest.raises(DiskFull):
        store.flush()
    monkeypatch.undo()
    connections_module._sync_file(f"{tmp_path}/store.db-wal")  # pyright: ignore[reportPrivateUsage]
    connections_module._sync_file(f"{tmp_path}/nothing")  # pyright: ignore[reportPrivateUsage]
    store.close()


# ── what could go wrong with boundaries ──────────────────────────────────────────────────────


def test_a_round_is_as_durable_as_its_most_demanding_piece() -> None:
    class Noted:
        def __init__(self) -> None:
            self.rounds: list[bool] = []

        def begin(self, durable: bool) -> None:
            self.rounds.append(durable)

        def commit(self, pieces: int) -> None: ...
        def rollback(self) -> None: ...
        def translate(self, error: Exception) -> Exception:
            return error

        def changes(self) -> int:
            return 0

    noted, first, go = Noted(), threading.Event(), threading.Event()
    group = GroupCommit(noted)

    def lead() -> None:
        first.set()
        go.wait(20)

    leader = threading.Thread(target=lambda: group.submit(lead, False))
    leader.start()
    first.wait(20)
    followers = [
        threading.Thread(target=group.submit, args=(lambda: None, durable))
        for durable in (False, True, False)
    ]
    for i, follower in enumerate(followers):
        follower.start()
        wait_until(lambda queued=i + 2: len(vars(group)["_queue"]) >= queued)
    go.set()
    for thread in (leader, *followers):
        thread.join(20)
    assert noted.rounds == [False, True]


def test_a_commit_that_wrote_nothing_is_no_boundary(tmp_path: Path) -> None:
    """SQLite takes the same bytes kept again for a change, and writes none."""
    store = opened(tmp_path)
    full = begin_full(store)
    store.keep_snapshot(full, 1, b"kept")
    for i in range(10):
        extend(store, begin(store), message(str(i)))
    before = unsynced_count(store)
    assert before == 20
    store.keep_snapshot(full, 1, b"kept")
    assert unsynced_count(store) == before
    store.close()


def test_a_switch_that_was_interrupted_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the setting and the note of it: the next durable commit must not believe the
    note.
    """
    store = opened(tmp_path)
    log, full = begin(store), begin_full(store)
    db, real = sqlite_writer(store), sqlite_writer(store).run

    def interrupted(sql: str, *values: Any) -> Any:
        result = real(sql, *values)
        if sql.startswith("PRAGMA synchronous = 1"):
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(db, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        extend(store, log, message("x"))
    monkeypatch.undo()
    extend(store, full, message("y"))
    assert db.get("PRAGMA synchronous") == 2
    store.close()


def test_closing_brings_it_to_the_disk(tmp_path: Path) -> None:
    # with whom the file stays open, SQLite syncs nothing by itself
    store, bystander = opened(tmp_path), opened(tmp_path)
    log = begin(store)
    begin(bystander)
    bystander.flush()
    before = RawSql(tmp_path / "store.db")("SELECT synced FROM store")[0][0]
    extend(store, log, message("x"))
    store.close()
    assert RawSql(tmp_path / "store.db")("SELECT synced FROM store")[0][0] == before + 1
    bystander.close()


def test_a_blob_that_stands_already_is_on_disk_when_it_was_put(tmp_path: Path) -> None:
    store, other = opened(tmp_path), opened(tmp_path)
    log = begin(other)
    extend(other, log, message("long " * 2000))
    content = next(store.read(log, 2, 2)).content
    before = RawSql(tmp_path / "store.db")("SELECT synced FROM store")[0][0]
    store.put_blob(content)  # it was brought by another's append, which is not synced yet
    assert RawSql(tmp_path / "store.db")("SELECT synced FROM store")[0][0] == before + 1
    store.close()
    other.close()


def test_after_a_failed_fsync_everything_is_written_anew(tmp_path: Path) -> None:
    """The system takes what it could not write for written: a second fsync that succeeds says
    nothing about it.
    """
    store = opened(tmp_path)
    extend(store, begin(store), message("x"))
    sqlite_writer(store).doubt()
    assert (tmp_path / "store.db-wal").stat().st_size > 0
    store.flush()
    assert (tmp_path / "store.db-wal").stat().st_size == 0 and unsynced_count(store) == 0
    extend(store, begin(store), message("y"))
    store.flush()
    assert (tmp_path / "store.db-wal").stat().st_size > 0, "once is enough"
    store.close()


def test_what_a_fork_could_not_sync_stays_owed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    extend(store, begin(store), message("x"))
    connections: Any = vars(store)["_connections"]

    def refuse(db: Any) -> None:
        raise StoreFailed(db.path, "fdatasync failed")

    monkeypatch.setattr(database_module.Database, "sync", refuse)
    connections.freeze()
    monkeypatch.undo()
    connections.thaw()
    assert store.number == 2 and unsynced_count(store) == 2
    store.flush()
    assert unsynced_count(store) == 0
    store.close()


@pytest.mark.parametrize("kind", sorted(kind.__name__ for kind in BOUNDARIES))
def test_every_kind_that_is_said_to_be_one_is_a_boundary(tmp_path: Path, kind: str) -> None:
    digest = Digest("0" * 64)
    bodies: dict[str, Body] = {
        "ModelAsked": ModelAsked("m", digest),
        "ToolRequested": ToolRequested("pay", {}, "at_most_once"),
        "QuestionAsked": QuestionAsked("?"),
        "ApprovalRequested": ApprovalRequested(digest, {"tool": "pay"}),
        "ApprovalGranted": ApprovalGranted(digest),
        "ApprovalDenied": ApprovalDenied(digest, "no"),
        "HandedOff": HandedOff("judge"),
        "RunFinished": RunFinished(),
        "RunFailed": RunFailed(Failure("E", "x")),
        "RunCancelled": RunCancelled("x"),
        "SessionPaused": SessionPaused(),
        "TimerSet": TimerSet(1),
        "VerdictAwaited": VerdictAwaited("tests"),
        "SessionClosed": SessionClosed(),
        "SessionArchived": SessionArchived(),
        "SessionMoved": SessionMoved(LogId("l"), "memory:other"),
        "SessionArrived": SessionArrived(LogId("l"), "memory:other"),
        "CheckpointSigned": CheckpointSigned(1, digest, "k", "s"),
    }
    store = open_store(tmp_path / ".plait", durability="async")
    session = Session("x", store=store)
    assert unsynced_count(store) == 1
    writer_of(None).append(
        position_of(session), [Draft(bodies[kind], Act("agent:a", "model", call="c-1"))]
    )
    assert unsynced_count(store) == 0
    store.close()


CHILD = """
import multiprocessing, os, sys
from plait import Session, open_store
def work(folder):
    session = Session("x", store=open_store(folder, durability="async"))
    for i in range(5):
        session = session.say("y")
    open(folder + "/said", "w").close()
if __name__ == "__main__":
    bystander = open_store(sys.argv[1])
    child = multiprocessing.get_context("fork").Process(target=work, args=(sys.argv[1],))
    child.start()
    child.join()
    open(sys.argv[1] + "/joined", "w").close()
    os._exit(0)
"""


def test_a_child_that_ends_without_atexit_brings_it_to_the_disk(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    python(
        CHILD,
        tmp_path / ".plait",
        prefix=(needs_strace(), "-f", "-o", str(trace), "-e", "trace=fdatasync,openat"),
    )
    lines = trace.read_text().splitlines()
    said, joined = (
        next(i for i, line in enumerate(lines) if name in line and "O_CREAT" in line)
        for name in ("/said", "/joined")
    )
    assert any("fdatasync(" in line for line in lines[said:joined]), "nobody synced"
