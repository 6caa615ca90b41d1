"""Many writers: threads, processes, forks. And how many fsyncs they pay."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from plait.errors import StoreBusy
from plait.ids import LogId
from plait.store import MemoryStore, SqliteStore, verify_store
from plait.testing import Seeded
from plait.testing.store import begin, extend, run_threads, said, texts
from support import RawSql, needs_strace, python

RIVAL = """
import sys
from plait.errors import StaleHead
from plait.runtime.live import Live
from plait.event import seal_all
from plait.event.kinds import MessageSaid, Text
from plait.store import SqliteStore

folder, log, name, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
store, source = SqliteStore(folder, source=Live()), Live()
sys.stdin.read(1)  # everybody starts at once
lost = 0
for i in range(count):
    while True:
        now = store.log(log)
        events = seal_all([MessageSaid("user", (Text(f"{name}/{i}"),))], log=log, seq=now.tip + 1, parents=(now.head,),
                          source=source, actor=f"service:{name}")
        try:
            store.append(log, events, after=now.head)
            break
        except StaleHead:
            lost += 1
print(lost)
"""


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_on_one_log_have_one_winner_per_place(tmp_path: Path, processes: int) -> None:
    store = SqliteStore(tmp_path, source=Seeded())
    log, each = begin(store), 60
    rivals = [
        subprocess.Popen(
            [sys.executable, "-c", RIVAL, str(tmp_path), log, f"p{i}", str(each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(processes)
    ]
    for rival in rivals:
        assert rival.stdin is not None
        rival.stdin.write("x")
        rival.stdin.flush()
    outcomes = [rival.communicate(timeout=120) for rival in rivals]
    assert [rival.returncode for rival in rivals] == [0] * processes, outcomes
    said_there = texts(store, log)
    assert sorted(said_there) == sorted(f"p{i}/{n}" for i in range(processes) for n in range(each))
    for i in range(processes):  # each writer's own order is kept
        assert [text for text in said_there if text.startswith(f"p{i}/")] == [f"p{i}/{n}" for n in range(each)]
    assert list(verify_store(store)) == []
    store.close()


SYNCED = """
import sys, threading
from plait.runtime.live import Live
from plait.event import seal_all
from plait.event.kinds import MessageSaid, SessionOpened, Text
from plait.store import SqliteStore

folder, threads, each = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
source = Live()
store = SqliteStore(folder, source=source)

def write(begun, start):
    log = source.fresh()
    head = store.begin(log, seal_all([SessionOpened()], log=log, seq=1, parents=(), source=source, actor="human:a"))
    begun.wait(); start.wait()
    for seq in range(2, each + 2):
        events = seal_all([MessageSaid("user", (Text("x" * 900),))], log=log, seq=seq, parents=(head,), source=source, actor="human:a")
        head = store.append(log, events, after=head)

begun, start = threading.Barrier(threads + 1), threading.Event()
workers = [threading.Thread(target=write, args=(begun, start)) for _ in range(threads)]
for worker in workers: worker.start()
begun.wait()
open(folder + "/marker-before", "w").close()
start.set()
for worker in workers: worker.join()
open(folder + "/marker-after", "w").close()
"""


def syncs_per_append(folder: Path, threads: int, each: int) -> float:
    """Counted by strace, between two marks that the child makes by opening files."""
    trace = folder.parent / f"{folder.name}.trace"
    python(SYNCED, folder, str(threads), str(each), prefix=(needs_strace(), "-f", "-o", str(trace), "-e", "trace=fsync,fdatasync,openat"))
    lines = trace.read_text().splitlines()
    marks = [i for i, line in enumerate(lines) if "marker-" in line]
    calls = [line for line in lines[marks[0] : marks[-1]] if re.search(r"\b(fsync|fdatasync)\(", line)]
    return len(calls) / (threads * each)


def test_a_lone_writer_pays_one_fsync_per_append(tmp_path: Path) -> None:
    ratio = syncs_per_append(tmp_path / "one", 1, 400)
    print(f"\n{ratio:.3f} fsyncs per append, alone")
    assert 1.0 <= ratio < 1.05  # the rest is checkpoints


def test_sixteen_threads_share_their_fsyncs(tmp_path: Path) -> None:
    ratio = syncs_per_append(tmp_path / "many", 16, 60)
    print(f"\n{ratio:.3f} fsyncs per append, sixteen threads")
    assert ratio < 0.2


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_both_sides_of_a_fork_go_on(tmp_path: Path, kind: str) -> None:
    """A connection must not cross os.fork: the child opens its own, and ends without harming its parent's."""
    store = SqliteStore(tmp_path, source=Seeded()) if kind == "sqlite" else MemoryStore(source=Seeded())
    mine, yours = begin(store), begin(store)
    stop = threading.Event()
    extend(store, mine, said("before"))
    busy = threading.Thread(target=lambda: [extend(store, mine, said("meanwhile")) for _ in iter(stop.is_set, True)])
    busy.start()  # so that the fork happens in the middle of something
    time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            extend(store, yours, said("from the child"))
            code = 0 if texts(store, yours) == ["from the child"] else 2
            store.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    stop.set()
    busy.join()
    extend(store, mine, said("after"))
    assert texts(store, mine)[-1] == "after"
    if isinstance(store, SqliteStore):
        assert texts(store, yours) == ["from the child"]
    assert list(verify_store(store)) == []
    store.close()


def test_a_forked_child_that_ends_normally_does_no_harm(tmp_path: Path) -> None:
    done = python(
        """
import os, sys
from plait.testing import Seeded
from plait.testing.store import begin, extend, said, texts
from plait.store import SqliteStore, verify_store
store = SqliteStore(sys.argv[1], source=Seeded())
log = begin(store)
for i in range(20):
    if os.fork() == 0:
        extend(store, log, said(f"child {i}"))
        sys.exit(0)  # runs finalisers, unlike os._exit
    assert os.wait()[1] == 0
    extend(store, log, said(f"parent {i}"))
assert len(texts(store, log)) == 40 and not list(verify_store(store))
print("ok")
""",
        tmp_path,
    )
    assert done.stdout == "ok\n", done.stderr


def test_a_lock_that_is_never_given_up_is_a_typed_error(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, source=Seeded(), busy_s=0.1)
    log = begin(store)
    rude = RawSql(tmp_path / "store.db")
    rude("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="try again"):
        extend(store, log, said("x"))
    assert texts(store, log) == []  # reading goes on
    rude("ROLLBACK")
    extend(store, log, said("y"))
    assert texts(store, log) == ["y"]
    rude.close()
    store.close()


def test_an_interrupted_writer_leaves_nobody_waiting(tmp_path: Path) -> None:
    """Ctrl-C at any moment of a group commit: the others' work is done, and the store goes on."""
    store = SqliteStore(tmp_path, source=Seeded())
    logs: list[LogId] = [begin(store) for _ in range(5)]
    interrupts = 0

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    others = threading.Thread(
        target=lambda: run_threads([lambda log=log: [extend(store, log, said(str(i))) for i in range(150)] for log in logs[1:]])
    )
    others.start()
    try:
        while others.is_alive():
            signal.setitimer(signal.ITIMER_REAL, 0.0007)
            try:
                for _ in range(50):
                    extend(store, logs[0], said("mine"))
            except KeyboardInterrupt:
                interrupts += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    others.join(60)
    assert not others.is_alive()
    for log in logs[1:]:
        assert texts(store, log) == [str(i) for i in range(150)]
    assert interrupts > 10
    extend(store, logs[0], said("still writing"))
    assert list(verify_store(store)) == []
    store.close()
