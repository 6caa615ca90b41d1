"""kill -9 in the middle of writing: what was acknowledged is there, what was not is all there or not at all.

A child writes an acknowledgement to a pipe after each append; the parent kills it and compares. `KILLS` says how
often; a failure prints the seed that reproduces its moments.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plait.errors import StaleHead
from plait.event import seal_all
from plait.ids import LogId
from plait.store import SqliteStore, verify_store
from plait.testing import Seeded
from plait.testing.store import said, sealed, texts
from support import needs_strace, python

KILLS = int(os.environ.get("KILLS", "8"))
STEP = {"pwrite64": 29, "fdatasync": 7, "ftruncate": 1, "unlink": 1, "write": 5}  # `make torture` takes every one

WRITER = """
import os, sys
from plait.runtime.live import Live
from plait.event import seal_all
from plait.event.kinds import ForkedFrom, MessageSaid, SessionOpened, Text
from plait.session import SessionRows
from plait.store import SqliteStore

folder, limit = sys.argv[1], int(sys.argv[2])
source = Live()
store = SqliteStore(folder, source=source, projections=(SessionRows(),))
log = source.fresh()

def seal(bodies, log, seq, parents):
    return seal_all(bodies, log=log, seq=seq, parents=parents, source=source, actor="service:writer")

def acknowledge(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

head = store.begin(log, seal([SessionOpened(title="killed")], log, 1, ()))
acknowledge(log, 1, head)
for seq in range(2, limit):
    text = f"{seq}" if seq % 5 else "long " * 2000
    events = seal([MessageSaid("user", (Text(text),))], log, seq, (head,))
    head = store.append(log, events, after=head)
    acknowledge(log, seq, head)
    if seq % 7 == 0:
        child = source.fresh()
        fork = store.begin(child, seal([ForkedFrom(log, seq)], child, seq + 1, (head,)), parent=log)
        acknowledge(child, seq + 1, fork)
    if seq % 11 == 0:
        store.put_blob(os.urandom(20000))
"""


def acknowledged(output: str) -> dict[LogId, tuple[int, str]]:
    """The last acknowledged place and head of each log. A line that was cut off was not acknowledged."""
    last: dict[LogId, tuple[int, str]] = {}
    for line in output.split("\n")[:-1]:
        log, seq, head = line.split()
        last[LogId(log)] = int(seq), head
    return last


def check(folder: Path, acks: dict[LogId, tuple[int, str]]) -> None:
    """Reopen as anybody would: no manual step, nothing acknowledged is lost, the chain holds, writing goes on."""
    store = SqliteStore(folder, source=Seeded())
    assert [str(fault) for fault in verify_store(store)] == []
    for log, (seq, head) in acks.items():
        assert store.log(log).tip >= seq, f"{log}: {seq} was acknowledged, {store.log(log).tip} is there"
        assert next(store.read(log, seq, seq)).id == head
    for log in list(acks)[:1]:
        now = store.log(log)
        store.append(log, sealed([said("after")], log, now.tip + 1, (now.head,)), after=now.head)
    store.close()


def test_kills_at_random_moments(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    moments, total = random.Random(seed), 0
    for i in range(KILLS):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / str(i)), "100000"], stdout=subprocess.PIPE)
        assert child.stdout is not None
        select.select([child.stdout], [], [], 60)  # it has begun
        time.sleep(moments.random() * 0.15)  # a random moment is the point here
        child.kill()
        output, _ = child.communicate()
        acks = acknowledged(output.decode())
        total += len(output.splitlines())
        assert acks, f"seed {seed}, kill {i}"
        check(tmp_path / str(i), acks)
    print(f"\n{KILLS} kills at random moments, {total} acknowledgements, 0 lost (SEED={seed})")


@pytest.mark.parametrize("syscall", ["pwrite64", "fdatasync", "ftruncate", "unlink", "write"])
def test_a_kill_at_every_system_call(tmp_path: Path, syscall: str) -> None:
    """From making the store (migration included) to the tenth append. strace counts per name, so one name at a time."""
    strace, kills = needs_strace(), 0
    step = 1 if KILLS > 100 else STEP[syscall]
    for moment in range(1, 2000, step):
        folder = tmp_path / str(moment)
        trace = (strace, "-f", "-qq", "-o", os.devnull, "-e", f"trace={syscall}", "-e", f"inject={syscall}:signal=SIGKILL:when={moment}")
        done = python(WRITER, folder, "12", prefix=trace, check=False)
        check(folder, acknowledged(done.stdout))
        if done.returncode == 0:
            break
        assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), done.stderr
        kills += 1
    else:
        raise AssertionError("the writer never came to its end")
    print(f"\n{kills} kills at {syscall}, 0 lost")


def test_an_append_without_acknowledgement_is_settled_by_appending_it_again(tmp_path: Path) -> None:
    """The outcome of a killed append is unknown, not failed. The same events again: there once, whatever had happened."""
    store = SqliteStore(tmp_path, source=Seeded())
    log = LogId("0197a0b0-0000-7000-8000-000000000001")
    (opened,) = sealed([said("opened")], log)
    store.begin(log, [opened])
    for seq in range(2, 12):
        events = seal_all([said(str(seq))], log=log, seq=seq, parents=(store.log(log).head,), source=Seeded(seq), actor="human:a")
        after = events[0].header.parents[0]
        if seq % 2:
            store.append(log, events, after=after)  # it was committed, and then the process died before it could say so
        store.close()
        store = SqliteStore(tmp_path, source=Seeded())
        assert store.append(log, events, after=after) == events[0].id
        other = seal_all([said("another")], log=log, seq=seq, parents=(after,), source=Seeded(99), actor="human:a")
        with pytest.raises(StaleHead):
            store.append(log, other, after=after)
    assert texts(store, log) == ["opened", *map(str, range(2, 12))]
    store.close()
