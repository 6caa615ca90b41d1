"""Submitted runs and the workers that execute them, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from plait import Session, resume
from plait.cluster import Cluster, ProjectShare, Worker, drive
from plait.errors import (
    InvalidValue,
    NoRun,
    NotPortable,
    RunOpen,
    TaskCancelled,
    TaskFailed,
    TaskPending,
    UnknownWorker,
    WorkerNameTaken,
    WrongStatus,
)
from plait.event import kinds as k
from plait.session import verify
from plait.session.ask_rows import InboxRows
from plait.session.work_rows import read_wishes
from plait.store import Store
from plait.workflow import Workflow
from tests.cluster.flows import (
    Branches,
    Count,
    Fails,
    Line,
    Sleeps,
    Slow,
    Wire,
    counter,
    lines_in,
)
from tests.support import claims_of, wait_until

Serve = Callable[..., Worker]
LONG_S = 120  # a test that waits so long has failed


def work_row(store: Store, session: Session) -> dict[str, Any]:
    return store.rows(InboxRows.name, "work", {"log": session.id}, limit=1)[0]


# ── submitting ───────────────────────────────────────────────────────────────────────────────


def test_a_submitted_run_is_on_record_and_nothing_is_called(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    task = Cluster(store).submit(
        Count(), Session("Count.", project="shop", store=store), path=str(out), need={"gpu"}
    )
    started = task.session.events[-1].body
    assert isinstance(started, k.RunStarted) and started.wishes is not None
    assert started.wishes.need == ("gpu",) and started.wishes.project == "shop"
    assert not out.exists() and not store.is_locked(task.run)
    assert work_row(store, task.session)["state"] == "queued"


def test_a_worker_executes_it_and_its_claim_is_on_record(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    task = Cluster(store).submit(Count(), Session("Count.", store=store), path=str(out))
    worker = serve(labels={"linux"})
    session = task.result(LONG_S)
    assert session.text == "counted" and session.status == "finished"
    assert len(lines_in(out)) == 3 and task.session.head == session.head
    (claim,) = claims_of(session)
    assert (claim.worker, claim.chosen, claim.labels) == (worker.name, "first", ("linux",))
    assert worker.name in task.why
    assert store.rows(InboxRows.name, "work") == []
    assert list(verify(store)) == []


def test_an_object_of_a_module_is_found_by_its_name(store: Store, serve: Serve) -> None:
    task = Cluster(store).submit(counter, Session("Count.", store=store))
    started = task.session.events[-1].body
    assert isinstance(started, k.RunStarted)
    serve()
    assert task.result(LONG_S).text == "counted"
    by_name = Cluster(store).submit("tests.cluster.flows:Count", Session("Hi", store=store))
    assert by_name.result(LONG_S).text == "counted"


class Local(Workflow):
    def forward(self, session: Session) -> Session:
        return session


def test_programs_that_cannot_travel_are_refused_before_anything_is_written(store: Store) -> None:
    cluster, session = Cluster(store), Session("Hi", store=store)

    class Inner(Workflow):
        def forward(self, session: Session) -> Session:
            return session

    main = type("Main", (Local,), {"__module__": "__main__"})
    with pytest.raises(NotPortable, match="inside a function"):
        cluster.submit(Inner(), session)
    with pytest.raises(NotPortable, match="script, a notebook or a file"):
        cluster.submit(main(), session)
    with pytest.raises(NotPortable, match="could not make it"):
        cluster.submit(Line("left"), session)
    with pytest.raises(NotPortable, match="as JSON"):
        cluster.submit(Count(), session, path=object())
    with pytest.raises(NotPortable, match="this file"):
        cluster.submit("flows.py:Count", session)
    assert session.reload().head == session.head


class Sized(Workflow):
    def __init__(self, size: int = 1) -> None:
        self.size = size

    def forward(self, session: Session) -> Session:
        return session


def test_a_workflow_that_was_made_with_arguments_is_refused(store: Store) -> None:
    session = Session("Hi", store=store)
    with pytest.raises(NotPortable, match="made with some"):
        Cluster(store).submit(Sized(2), session)
    assert Cluster(store).submit(Sized(1), session).status == "interrupted"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"need": "gpu"}, "not a set of labels"),
        ({"need": ["a b"]}, "not a label"),
        ({"priority": 101}, "priority"),
        ({"priority": True}, "priority"),
        ({"deadline_s": -1}, "deadline_s"),
        ({"deadline_s": 1, "delay_s": 2}, "before the run may begin"),
        ({"delay_s": -1}, "in the past"),
        ({"delay_s": float("nan")}, "not a time"),
        ({"attempts": 0}, "attempts"),
        ({"revision": "old"}, "revision"),
        ({"nonsense": 1}, "does not take that"),
    ],
)
def test_wrong_wishes_are_refused(store: Store, how: dict[str, Any], said: str) -> None:
    session = Session("Hi", store=store)
    with pytest.raises(InvalidValue, match=said):
        Cluster(store).submit(Count(), session, **how)
    assert session.reload().head == session.head


def test_a_session_that_cannot_run_is_refused(store: Store) -> None:
    cluster, session = Cluster(store), Session("Hi", store=store)
    task = cluster.submit(Count(), session)
    with pytest.raises(RunOpen):
        cluster.submit(Count(), task.session)
    with pytest.raises(WrongStatus):
        cluster.submit(Count(), Session("Hi", store=store).pause())
    with pytest.raises(WrongStatus):
        cluster.submit(Count(), Session("Hi", store=store).close())
    with pytest.raises(InvalidValue, match="the cluster serves"):
        cluster.submit(Count(), Session("Hi", store="memory:other"))


class Submits(Workflow):
    def forward(self, session: Session) -> Session:
        Cluster(session.store).submit(Count(), Session("Hi", store=session.store))
        return session


def test_code_of_a_run_does_not_submit(store: Store) -> None:
    with pytest.raises(InvalidValue, match="code of a run"):
        Submits()(Session("Hi", store=store))


# ── how a run stops ──────────────────────────────────────────────────────────────────────────


def test_a_parked_run_holds_no_slot_and_is_woken_by_the_answer(store: Store, serve: Serve) -> None:
    cluster = Cluster(store)
    task = cluster.submit(Wire(), Session("Wire.", store=store))
    serve(slots=1)
    wait_until(lambda: task.session.inbox.waiting and not store.is_locked(task.run), LONG_S)
    with pytest.raises(TaskPending, match="it waits for approval"):
        task.result(0.05)
    assert task.status == "waiting"
    assert cluster.submit(Count(), Session("Hi", store=store)).result(LONG_S).text == "counted"
    task.session.inbox.approve(task.session.inbox.waiting[0], actor="human:ann")
    assert task.result(LONG_S).text == "wired"
    assert [claim.chosen for claim in claims_of(task.session)] == ["first", "woken"]


def test_a_timer_wakes_a_run(store: Store, serve: Serve) -> None:
    serve()
    task = Cluster(store).submit(Sleeps(), Session("Sleep.", store=store), seconds=0.2)
    assert task.result(LONG_S).text == "awake"


def test_a_run_may_have_to_wait_for_its_time(store: Store, serve: Serve) -> None:
    serve()
    task = Cluster(store).submit(Count(), Session("Hi", store=store), delay_s=0.3)
    assert work_row(store, task.session)["state"] == "timed"
    assert task.result(LONG_S).text == "counted"


def test_a_failed_run_is_tried_again_while_attempts_are_left(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    task = Cluster(store).submit(
        Fails(), Session("Hi", store=store), attempts=5, path=str(tmp_path / "there")
    )
    serve()
    while work_row(store, task.session)["failures"] < 1:
        threading.Event().wait(0.01)
    (tmp_path / "there").touch()
    assert task.result(LONG_S).text == "at last"
    assert claims_of(task.session)[-1].chosen == "retried"


def test_a_run_without_attempts_left_stays_failed_and_a_person_resumes_it(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    serve()
    there = tmp_path / "there"
    task = Cluster(store).submit(Fails(), Session("Hi", store=store), path=str(there))
    with pytest.raises(TaskFailed, match="RuntimeError: not yet"):
        task.result(LONG_S)
    assert task.status == "failed" and "is not tried again" in task.why
    there.touch()
    assert resume(task.session).text == "at last"
    assert task.result(LONG_S).text == "at last"


def test_a_cancelled_run_has_no_result(store: Store, serve: Serve) -> None:
    cluster = Cluster(store)
    waiting = cluster.submit(Count(), Session("Hi", store=store), need={"gpu"})
    waiting.cancel("not needed", actor="human:ann")
    with pytest.raises(TaskCancelled, match="not needed"):
        waiting.result(LONG_S)


def test_a_run_is_cancelled_at_its_deadline(store: Store, serve: Serve, tmp_path: Path) -> None:
    serve()
    out = tmp_path / "out"
    task = Cluster(store).submit(
        Slow(), Session("Hi", store=store), deadline_s=0.5, path=str(out), steps=1000
    )
    parked = Cluster(store).submit(Wire(), Session("Hi", store=store), deadline_s=0.5)
    for each in (task, parked):
        with pytest.raises(TaskCancelled, match="deadline"):
            each.result(LONG_S)
    assert len(lines_in(out)) < 1000


def test_a_paused_session_is_not_taken(store: Store, serve: Serve) -> None:
    task = Cluster(store).submit(Count(), Session("Hi", store=store))
    task.session.pause()
    assert work_row(store, task.session)["state"] == "paused"
    serve()
    with pytest.raises(TaskPending, match="paused"):
        task.result(0.3)
    task.session.unpause()
    assert task.result(LONG_S).text == "counted"


def test_branches_are_merged_once(store: Store, serve: Serve, tmp_path: Path) -> None:
    serve()
    out = tmp_path / "out"
    task = Cluster(store).submit(Branches(), Session("Hi", store=store), path=str(out))
    assert task.result(LONG_S).text == "merged"
    assert len(lines_in(out)) == 2 and list(verify(store)) == []


# ── who gets it ──────────────────────────────────────────────────────────────────────────────


def test_labels_decide_and_why_tells(store: Store, serve: Serve) -> None:
    cluster = Cluster(store)
    task = cluster.submit(Count(), Session("Hi", store=store), need={"gpu", "linux"})
    assert "no worker serves this store" in task.why
    serve(labels={"linux"})
    while not cluster.workers():
        threading.Event().wait(0.01)
    assert "needs gpu, linux; 1 worker is there" in task.why
    worker = serve(labels={"linux", "gpu"})
    task.result(LONG_S)
    assert claims_of(task.session)[0].worker == worker.name


def test_only_programs_that_a_worker_has_are_claimed(store: Store, serve: Serve) -> None:
    task = Cluster(store).submit(Count(), Session("Hi", store=store))
    serve(modules=["tests.cluster.flows:Wire"])
    while not Cluster(store).workers():
        threading.Event().wait(0.01)
    with pytest.raises(TaskPending, match="none has tests.cluster.flows:Count"):
        task.result(0.5)
    assert len(task.session.events) == 3


def test_a_run_is_held_to_the_code_that_submitted_it(store: Store, serve: Serve) -> None:
    cluster = Cluster(store)
    task = cluster.submit(Count(), Session("Hi", store=store), revision="same")
    serve()
    assert task.result(LONG_S).text == "counted"
    started = task.session.events[2].body
    assert isinstance(started, k.RunStarted) and started.wishes is not None
    assert started.wishes.code == claims_of(task.session)[0].code


def test_priority_and_age_decide_within_a_project(store: Store, serve: Serve) -> None:
    cluster = Cluster(store)
    low = cluster.submit(Count(), Session("Hi", store=store), priority=-1)
    plain = [cluster.submit(Count(), Session("Hi", store=store)) for _ in range(3)]
    high = cluster.submit(Count(), Session("Hi", store=store), priority=5)
    serve(slots=1)
    tasks = [high, *plain, low]
    for task in tasks:
        task.result(LONG_S)
    taken = [
        store.number_of(next(e.id for e in task.session.events if e.kind == "RunResumed"))
        for task in tasks
    ]
    assert taken == sorted(taken, key=lambda number: number or 0)


def test_a_small_project_does_not_wait_for_a_large_one(store: Store, serve: Serve) -> None:
    cluster = Cluster(store)
    large = [
        cluster.submit(Count(), Session("Hi", store=store, project="large")) for _ in range(20)
    ]
    small = [cluster.submit(Count(), Session("Hi", store=store, project="small")) for _ in range(3)]
    serve(slots=1)
    for task in (*large, *small):
        task.result(LONG_S)
    taken = sorted(
        (store.number_of(next(e.id for e in t.session.events if e.kind == "RunResumed")) or 0, n)
        for n, tasks in (("large", large), ("small", small))
        for t in tasks
    )
    assert [name for _, name in taken[:6]].count("small") == 3


def test_a_project_has_no_more_running_than_it_may(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    cluster = Cluster(store)
    tasks = [
        cluster.submit(
            Slow(), Session("Hi", store=store), path=str(tmp_path / "out"), steps=2, seconds=0.05
        )
        for _ in range(4)
    ]
    worker = serve(slots=4, shares={"*": ProjectShare(running_max=1)})
    for task in tasks:
        task.result(LONG_S)
    times = [
        store.number_of(event.id) or 0
        for task in tasks
        for event in task.session.events
        if event.kind in ("RunResumed", "RunFinished")
    ]
    spans = sorted(zip(times[::2], times[1::2], strict=True))
    assert len(spans) == 4
    assert all(end < begin for (_, end), (begin, _) in pairwise(spans)), "one after another"
    wait_until(lambda: worker.ended.get("finished") == 4, LONG_S)


# ── workers ──────────────────────────────────────────────────────────────────────────────────


def test_a_drained_worker_lets_go_and_another_goes_on(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    task = Cluster(store).submit(
        Slow(), Session("Hi", store=store), path=str(out), steps=6, seconds=0.1
    )
    first = serve()
    while len(lines_in(out)) < 2:
        threading.Event().wait(0.01)
    head_before = task.session.seq
    first.drain()
    while first.name in [worker.name for worker in Cluster(store).workers()]:
        threading.Event().wait(0.01)
    kinds = [event.kind for event in task.session.events[head_before:]]
    assert not {"RunCancelled", "RunFailed", "CallFinished"} & set(kinds)
    assert first.ended == {"let go": 1} and not store.is_locked(task.run)
    serve()
    assert task.result(LONG_S).text == "rested"
    assert len(lines_in(out)) == 6 and len(set(lines_in(out))) == 6
    # a worker that lets go says so; if it is too late for that, its run was taken over
    first, second = [claim.chosen for claim in claims_of(task.session)]
    assert first == "first" and second in ("woken", "taken over")


def test_a_worker_is_drained_by_name(store: Store, serve: Serve) -> None:
    cluster = Cluster(store)
    worker = serve(name="one")
    while not cluster.workers():
        threading.Event().wait(0.01)
    with pytest.raises(UnknownWorker, match="there are: one"):
        cluster.drain("two")
    cluster.drain("one")
    while cluster.workers():
        threading.Event().wait(0.01)
    assert worker.ended == {}


def test_two_workers_of_one_name_are_refused(store: Store, serve: Serve) -> None:
    serve(name="one")
    while not Cluster(store).workers():
        threading.Event().wait(0.01)
    with pytest.raises(WorkerNameTaken):
        Worker(store, ["tests.cluster.flows"], name="one").serve()


@pytest.mark.parametrize(
    ("modules", "how", "said"),
    [
        ([], {}, "there are none"),
        (["tests.cluster.conftest"], {}, "has no workflow"),
        (["tests.cluster.flows"], {"slots": 0}, "slots"),
        (["tests.cluster.flows"], {"labels": ["a b"]}, "not a label"),
    ],
)
def test_a_worker_that_cannot_serve_is_refused(
    store: Store, modules: list[str], how: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidValue, match=said):
        Worker(store, modules, **how)


def test_map_yields_sessions_as_they_end(store: Store, serve: Serve, tmp_path: Path) -> None:
    serve()
    sessions = [Session(f"{n}", store=store) for n in range(7)]
    out = tmp_path / "out"
    ended = list(Cluster(store).map(Count(), sessions, parallelism=3, path=str(out)))
    assert {each.id for each in ended} == {each.id for each in sessions}
    assert len(lines_in(out)) == 21


def test_several_stores_are_served_by_one_worker(store: Store, tmp_path: Path) -> None:
    from plait import open_store

    other = open_store(tmp_path / "other")
    cluster = Cluster([store, other])
    worker = Worker([store, other], ["tests.cluster.flows"])
    thread = threading.Thread(target=worker.serve)
    thread.start()
    tasks = [cluster.submit(Count(), Session("Hi", store=each)) for each in (store, other)]
    assert [task.result(LONG_S).text for task in tasks] == ["counted", "counted"]
    worker.drain()
    thread.join()
    other.close()


# ── runs of others ───────────────────────────────────────────────────────────────────────────


def test_a_run_that_was_called_is_none_of_the_workers_business_until_it_is_adopted(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    session = Session("Hi", store=store)
    with pytest.raises(RuntimeError):
        Fails()(session, str(there))
    there.touch()
    cluster = Cluster(store)
    serve()
    with pytest.raises(NoRun, match="be left to workers"):
        cluster.adopt(session)


def test_an_interrupted_run_is_adopted(store: Store, serve: Serve) -> None:
    session = Session("Hi", store=store)
    with pytest.raises(BaseException, match="wire needs consent"):
        Wire()(session)
    cluster = Cluster(store)
    assert "not submitted" in cluster.why(session.reload())
    task = cluster.adopt(session, actor="human:ann")
    assert read_wishes(str(work_row(store, session)["wishes"])).attempts == 1
    serve()
    task.session.inbox.approve(task.session.inbox.waiting[0], actor="human:ann")
    assert task.result(LONG_S).text == "wired"


def test_a_queue_of_others_delivers_a_session_twice(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    task = Cluster(store).submit(Count(), Session("Hi", store=store), path=str(out))
    assert drive(task.session).how == "finished"
    assert drive(task.session.id, store=store).how == "finished"
    assert len(lines_in(out)) == 3
    slow = Cluster(store).submit(Slow(), Session("Hi", store=store), path=str(out), steps=2)
    found = list[str]()
    threads = [
        threading.Thread(target=lambda: found.append(drive(slow.session).how)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) in (["finished", "lost"], ["finished", "finished"])
    assert len(lines_in(out)) == 5
    assert drive(Session("Hi", store=store)).how == "not now"
