"""A queue of others drives sessions: procrastinate delivers each twice, to two of its workers."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from plait import Session, migrate_store, open_store
from plait.cluster import Cluster
from plait.event import kinds as k
from plait.session import verify
from tests.cluster.flows import Slow
from tests.guests.hosting import HERE, ROOT, programs
from tests.support import private_postgres

SESSIONS = 8


@pytest.mark.slow
def test_a_queue_that_delivers_twice_drives_every_session_once(tmp_path: Path) -> None:
    python = programs("procrastinate") / "python"
    with private_postgres() as server:
        server.execute("CREATE DATABASE queue")
        server.execute("CREATE DATABASE agents")
        address = server.address_for(database="agents")
        host = [str(python), str(HERE / "procrastinate_host.py")]
        addresses = [server.address_for(database="queue"), address]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        migrate_store(address)
        store = open_store(address)
        out = tmp_path / "out"
        tasks = [
            Cluster(store).submit(
                Slow(), Session(f"{n}", store=store), path=str(out), steps=4, seconds=0.05
            )
            for n in range(SESSIONS)
        ]
        ids = json.dumps([task.session.id for task in tasks])
        for what, given in (("setup", ""), ("defer", ids)):
            subprocess.run(
                [*host, what, *addresses], input=given, text=True, check=True, env=environment
            )
        workers = [
            subprocess.Popen(
                [*host, "work", *addresses], stdout=subprocess.PIPE, text=True, env=environment
            )
            for _ in range(2)
        ]
        reports = [worker.communicate(timeout=300)[0] for worker in workers]
        for _ in range(20):  # deliveries that were refused come again
            if all(task.is_over() for task in tasks):
                break
            done = subprocess.run(
                [*host, "work", *addresses], stdout=subprocess.PIPE, text=True, env=environment
            )
            reports.append(done.stdout)
        ended = Counter(how for each in reports for how in json.loads(each.splitlines()[-1]))
        assert [task.result(0).text for task in tasks] == ["rested"] * SESSIONS
        lines = out.read_text().splitlines()
        assert len(lines) == len(set(lines)) == SESSIONS * 4
        assert ended["finished"] >= SESSIONS and set(ended) <= {"finished", "lost"}
        for task in tasks:
            resumed = [e for e in task.session.events if isinstance(e.body, k.RunResumed)]
            assert len(resumed) == 1
        assert list(verify(store)) == []
        store.close()
