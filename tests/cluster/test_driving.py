"""Driving sessions that a queue of others delivers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from plait import Session
from plait.cluster import Cluster, Worker, drive
from plait.errors import StoreFailed
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
