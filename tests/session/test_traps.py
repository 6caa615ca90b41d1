"""Traps in which other systems lost state. Each test would have caught it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from operator import attrgetter
from pathlib import Path

import pytest

from plait import Budget, Session, Store, open_store
from plait.errors import StaleHead, WrongStatus
from plait.event.kinds import Failure, ModelReplied, RunFailed, RunResumed, RunStarted, Text, Usage
from plait.ids import inbox_of
from plait.session import verify
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.value import counted_logs, position_of
from plait.testing.writing import run_threads
from tests.support import ForkedProgram, count_calls, record_reply


def test_one_state_the_session_tells_all_of_it_from_its_log_alone(sqlite: Store) -> None:
    """A session and a durable run that do not know each other: here a copy of the events is a copy
    of everything.
    """
    session = record_reply(
        Session("x", user="u", budget=Budget(tokens_max=9), store=sqlite)
        .fact("k", 1)
        .todo("t", key="t")
        .scratch("s", 1)
    )
    copy = open_store("memory:copy-of-everything")
    copy.begin(session.id, list(sqlite.read(session.id)))
    again = Session.open(session.id, store=copy)
    for name in (
        "facts",
        "pending",
        "scratchpad",
        "budget.usage",
        "budget.left",
        "status",
        "user",
        "lineage.statuses",
    ):
        ask = attrgetter(name)
        assert ask(again) == ask(session), name
    assert counted_logs(again) == counted_logs(session)
    assert [each.text for each in again.messages] == [each.text for each in session.messages]


def test_editing_a_forks_payload_changes_nothing_in_the_parent(store: Store) -> None:
    parent = Session({"list": [1]}, store=store).fact("cfg", {"deep": {"list": [1]}})
    child = parent.fork()
    child.facts["cfg"]["deep"]["list"].append(2)  # type: ignore[index,call-overload,union-attr]
    child.messages[0].parts[0].value["list"].append(2)  # type: ignore[union-attr,index,call-overload]
    child.events[1].body.parts[0].value["list"].append(2)  # type: ignore[attr-defined]
    for session in (parent, child, parent.reload()):
        assert (
            session.facts["cfg"] == {"deep": {"list": [1]}}
            and session.messages[0].text == '{"list":[1]}'
        )


def test_a_merge_does_not_repeat_the_common_prefix(store: Store) -> None:
    base = Session("one", store=store).say("two")
    merged = base.fork("a").say("A").merge(base.fork("b").say("B"))
    assert [each.text for each in merged.messages] == ["one", "two", "A", "B"]


def test_reloading_loses_neither_id_nor_parents_nor_usage(sqlite: Store) -> None:
    base = record_reply(Session("x", budget=Budget(tokens_max=100), store=sqlite))
    merged = record_reply(base.fork("a")).merge(record_reply(base.fork("b")))
    address, id = sqlite.address, merged.id
    sqlite.close()
    again = Session.open(id, store=address)
    assert (
        again == merged
        and again.lineage.parent == base
        and again.budget.usage.input_tokens == 15
        and again.budget.left == Budget(tokens_max=85)
    )
    assert again.events[-1].header.parents == merged.events[-1].header.parents


def test_usage_and_budget_go_along_at_every_hop(store: Store) -> None:
    session = record_reply(Session("x", budget=Budget(tokens_max=100), store=store), 10)
    for hop in (session.fork(), session.detach(), session.successor("go on"), session.rewind(2)):
        assert hop.budget.left == Budget(tokens_max=90)


def test_storage_grows_with_the_conversation_not_with_its_square(sqlite: Store) -> None:
    # state that every snapshot would repeat
    session = Session("x", store=sqlite).fact("profile", "p" * 3000)
    sizes: list[int] = []
    for _ in range(3):
        for i in range(600):
            session = session.say(f"{i} " + "words " * 20)
        sizes.append(_used_bytes(sqlite))
    assert sizes[2] - sizes[1] < 1.5 * (sizes[1] - sizes[0]) < 1.5 * 600 * 1500
    # snapshots are never the only copy
    assert sqlite.snapshots(session.id) and sqlite.drop_snapshots() > 0
    assert Session.open(session.id, store=sqlite).facts["profile"] == "p" * 3000
    assert list(verify(sqlite, state=True)) == []


def _used_bytes(store: Store) -> int:
    """The bytes of all pages that are in use. The files say something else: the write-ahead log
    grows by steps of its own, and keeps the size of its longest time.
    """
    with closing(sqlite3.connect(Path(store.address.partition(":")[2]) / "store.db")) as db:
        pages = ("page_count", "freelist_count", "page_size")
        count, free, size = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in pages]
    return (count - free) * size


def test_of_concurrent_writers_one_wins_and_the_others_are_told(store: Store) -> None:
    session = Session("x", store=store)
    results: list[Session | StaleHead] = []

    def write() -> None:
        try:
            results.append(session.say("mine"))
        except StaleHead as error:
            results.append(error)

    run_threads([write] * 8)
    assert sum(isinstance(result, Session) for result in results) == 1 and len(results) == 8
    assert len(session.reload().events) == 3


def test_staleness_is_by_head_never_by_clock(store: Store) -> None:
    """Two values of one microsecond are told apart; a clock that stands still or runs backwards
    harms nothing.
    """
    session = Session("x", store=store)
    later = session.say("y")
    with pytest.raises(StaleHead):
        session.say("z")
    assert later.say("z").seq == 4


def test_step_k_is_found_at_once(sqlite: Store) -> None:
    session = Session("x", store=sqlite)
    drafts = [
        Draft(ModelReplied((Text(str(i)),), Usage(1), "end"), Act("agent:m", "model"))
        for i in range(5000)
    ]
    session = session_at(writer_of(None).append(position_of(session), drafts))
    assert (
        max(count_calls(lambda at=place: session.at(at)) for place in range(10, 5000, 100)) < 500
    ), "it reads them all"
    assert session.at(4010).seq == 4010


def test_time_travel_does_not_break_with_nesting(store: Store) -> None:
    session = Session("0", store=store)
    for depth in range(1, 30):
        session = session.say(str(depth)).fork(f"d{depth}")
    back = session.rewind(2)
    assert back.text == "0" and session.at(10).text == session.at(10).fork().text
    again = back.say("other").fork("again").rewind(session.seq)
    assert again.text == "29"


def test_branches_on_branches_are_never_too_deep(store: Store) -> None:
    """Each branch takes in the one before, again and again: nothing recurses with the depth."""
    base = Session("x", store=store)
    last = base.fork("0").fact("n", 0)
    for i in range(1, 150):
        last = base.fork(str(i)).merge(last).fact("n", i)
    store.drop_snapshots()
    fresh = Session.open(last.id, store=store)
    assert fresh.facts["n"] == 149 and len(counted_logs(fresh)) == 151


def test_a_failed_run_leaves_a_session_that_goes_on(store: Store) -> None:
    session = Session("x", store=store)
    act = Act("agent:m", "model")
    bodies = (
        RunStarted("m:W"),
        ModelReplied((Text("8 of 10"),), Usage(1), "end"),
        RunFailed(Failure("E", "e")),
    )
    failed = session_at(
        writer_of(None).append(position_of(session), [Draft(body, act) for body in bodies])
    )
    assert failed.status == "failed" and failed.text == "8 of 10"
    assert (
        session_at(
            writer_of(None).append(position_of(failed), [Draft(RunResumed("pid-1"), act)])
        ).status
        == "interrupted"
    )


def test_a_second_writer_has_a_lane_of_its_own(store: Store) -> None:
    """An inbox is a log like any other, beside the session's: writing to it never makes the running
    writer stale.
    """
    from plait.event import seal_all
    from plait.event.kinds import MessageSaid
    from plait.runtime.live import Live

    session = Session("x", store=store)
    inbox = inbox_of(session.id)
    store.begin(
        inbox,
        seal_all(
            [MessageSaid("user", (Text("hurry"),))],
            log=inbox,
            seq=1,
            parents=(),
            source=Live(),
            actor="human:x",
        ),
    )
    assert session.say("not stale").seq == 3
    assert (
        inbox not in [each.id for each in Session.list(store=store)]
        and Session.open("@", store=store).id == session.id
    )


def test_a_closed_session_is_not_overwritten_by_opening_it_again(store: Store) -> None:
    session = Session("x", store=store).close()
    with pytest.raises(WrongStatus):
        Session.open(session.id, store=store).say("again")
    assert Session.open(session.id, store=store) == session


def test_kill_minus_nine_loses_nothing_acknowledged(tmp_path: Path) -> None:
    folder = tmp_path / ".plait"
    loop = """
import sys
from plait import Session
s = Session("x", title="killed", store=sys.argv[1])
print(f"{s.id}@{s.seq}", flush=True)
while True:
    b = s.fork("b").fact("k", s.seq)
    print(f"{b.id}@{b.seq}", flush=True)
    s = s.say("a").merge(b)
    print(f"{s.id}@{s.seq}", flush=True)
    s = s.rewind(2)
    print(f"{s.id}@{s.seq}", flush=True)
"""
    for _ in range(3):
        with ForkedProgram(
            [sys.executable, "-c", loop, str(folder)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            acknowledged = [process.stdout.readline().strip() for _ in range(12)]
            killer = threading.Timer(0.05, process.kill)
            killer.start()
            acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
            killer.join()
        store = open_store(folder)
        for name in acknowledged:
            assert Session.open(name, store=store).seq == int(name.split("@")[1])
        assert list(verify(store, state=True)) == []
        store.close()
