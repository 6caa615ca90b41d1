"""Many writers: threads, processes, forks. And how many fsyncs they pay."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from plait.errors import StoreBusy
from plait.store import SqliteStore, verify_store
from plait.testing import Seeded
from plait.testing.store import begin, extend, said, texts
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


# These do to their process what a coverage tracer does not survive (a fork, or an exception, while it holds its
# own lock), so each runs in a process without one.


@pytest.mark.parametrize("scene", ["fork_in_the_middle", "fork_while_opening", "interrupt_at_random"])
def test_scene(tmp_path: Path, scene: str) -> None:
    done = python(f"import sys; sys.path[:0] = sys.argv[2:]; import scenes; scenes.{scene}(sys.argv[1])", tmp_path, Path(__file__).parent)
    assert done.stdout.endswith("ok\n"), done.stdout + done.stderr


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
