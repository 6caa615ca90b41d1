"""Driving sessions that a queue of others delivers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from plait import Session, Workflow
from plait.cluster import Cluster, Worker, drive
from plait.cluster.driving import _dead_workers  # pyright: ignore[reportPrivateUsage]
from plait.errors import StoreFailed
from plait.event import Event
from plait.event import kinds as k
from plait.ids import LogId
from plait.journal.abandoned import branches_of
from plait.journal.recorded_run import last_run
from plait.runtime.appends import append_around_run
from plait.session.ports import Act, Draft, Position
from plait.store import Store
from tests.cluster.flows import Count, Keyed
from tests.support import python

MODULE = """
import time
from plait import Session, Workflow

time.sleep(0.5)

class Late(Workflow):
    def forward(self, session: Session) -> Session:
        return session.say("late", role="assistant")
"""

DRIVE = """
import json, sys, threading
from plait import open_store
from plait.cluster import drive

folder, address, *sessions = sys.argv[1:]
sys.path.insert(0, folder)
store, found = open_store(address), []
threads = [
    threading.Thread(target=lambda each=each: found.append(drive(each, store=store).how))
    for each in sessions
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(found))
"""


def test_threads_that_need_a_module_at_once_wait_until_it_is_whole(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lateflows.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    cluster = Cluster(store)
    sessions = [
        cluster.submit("lateflows:Late", Session(f"{n}", store=store)).session.id for n in range(4)
    ]
    ended = python(DRIVE, tmp_path, store.address, *sessions).stdout
    assert json.loads(ended) == ["finished"] * 4


def test_a_program_that_cannot_be_made_here_is_left_to_other_workers(
    store: Store, serve: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is on record of it, so the run would be taken again and again."""
    monkeypatch.setenv("FLOWS_KEY", "k")
    task = Cluster(store).submit(Keyed(), Session("Hi", store=store))
    before = task.session.head
    monkeypatch.delenv("FLOWS_KEY")
    worker = serve()
    while not worker.ended:
        threading.Event().wait(0.01)
    threading.Event().wait(0.5)
    assert worker.ended == {"unfit": 1} and task.session.head == before
    assert "FLOWS_KEY" in task.why
    monkeypatch.setenv("FLOWS_KEY", "k")
    serve()
    assert task.result(120).text == "keyed"


def test_a_run_is_not_left_locked_if_the_store_fails_after_the_claim(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Cluster(store).submit(Count(), Session("Hi", store=store))

    def fail(*_: object, **__: object) -> None:
        raise StoreFailed(store.address, "it is away")

    monkeypatch.setattr("plait.runs.take_up._look", fail)
    assert drive(task.session).how == "away"
    assert not store.is_locked(task.run)
    monkeypatch.undo()
    assert drive(task.session).how == "finished"


class Forks(Workflow):
    """Leaves branches behind, and is interrupted."""

    def forward(self, session: Session, branches: int) -> Session:
        for number in range(branches):
            session.fork().say(f"branch {number}")
        raise KeyboardInterrupt


def test_a_run_that_ends_its_workers_is_found_by_the_last_words_of_its_branches(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many branches there are, they are asked for in one question."""
    session = Session("Hi", store=store)
    with pytest.raises(KeyboardInterrupt):
        Forks()(session, 5)
    recorded = last_run(session.reload())
    assert recorded is not None
    run = recorded.id
    logs = [session.id, *branches_of(store, session.id, run)]
    assert len(logs) == 6

    def take(times: int) -> None:
        for log in logs:
            end = store.log(log)
            claim = k.Claim(f"w{times}", "taken over")
            body = k.RunResumed("h", times, log != session.id, claim)
            at = Position(store.address, log, end.tip, end.head, run)
            append_around_run(at, [Draft(body, Act("service:test"))])

    asked, events_at = list[int](), store.events_at

    def count(places: list[tuple[LogId, int]]) -> list[Event]:
        asked.append(len(places))
        return events_at(places)

    for times in (1, 2):
        take(times)
        assert _dead_workers(session.reload(), run) == []
    take(3)
    monkeypatch.setattr(store, "events_at", count)
    assert _dead_workers(session.reload(), run) == ["w1", "w2", "w3"]
    assert asked == [5, 15]  # the first events of the branches, and the last three of each
    end = store.log(logs[-1])
    at = Position(store.address, end.id, end.tip, end.head, run)
    append_around_run(at, [Draft(k.ScratchSet("x", 1), Act("service:test"))])
    assert _dead_workers(session.reload(), run) == []
