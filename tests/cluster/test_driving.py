"""Driving sessions that a queue of others delivers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plait import Session
from plait.cluster import Cluster
from plait.store import Store
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
    monkeypatch.syspath_prepend(str(tmp_path))
    cluster = Cluster(store)
    sessions = [
        cluster.submit("lateflows:Late", Session(f"{n}", store=store)).session.id for n in range(4)
    ]
    ended = python(DRIVE, tmp_path, store.address, *sessions).stdout
    assert json.loads(ended) == ["finished"] * 4
