"""Runs on a PostgreSQL store that change hands: a holder that is killed, stopped for longer than
its lease, or cut off, and one whose server was restarted under it.

The process that lost its run writes nothing and pays nobody, as on one machine (`test_fence.py`);
here two machines' worth of network is between it and the one that took the run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from plait import Store, open_store
from plait.errors import RunHeld
from plait.runs.replay import replay
from plait.runs.resume import resume
from plait.runtime.live import Live
from plait.session.value import open_run_of
from plait.store.postgres.store import PostgresStore
from tests.faults import fenced_story
from tests.faults.fenced_story import STORIES
from tests.faults.holder import playing
from tests.faults.postgres_aftermath import made_store
from tests.faults.test_fence import Loser, check_lost
from tests.support import (
    CutMoment,
    ForkedProgram,
    child_environment,
    fresh_store,
    has_ended,
    postgres_server,
    private_postgres,
    proxied,
    report,
    wait_until,
)

LEASE_S = "1.5"
QUICK = {("After", "stopped"), ("Between", "partitioned"), ("After", "killed")}
"""What `make test` tries; CI tries the rest."""
FENCED = ("Before", "Between", "After", "Nested", "Caught", "InTool", "Lane", "Branches")
FAULTS = ("stopped", "stopped meanwhile", "partitioned", "killed")
CASES = [
    pytest.param(story, fault, marks=[] if (story, fault) in QUICK else [pytest.mark.ci])
    for story in FENCED
    for fault in FAULTS
]


# ── runs ─────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _loser(folder: Path, story: str, address: str, reached: str) -> Generator[Loser]:
    """A holder that reaches the store in its own way."""
    environment = {"STORY_STORE": reached, "PLAIT_STORE_LEASE_S": LEASE_S}

    def start() -> Loser:
        return Loser(folder, story, "at_most_once", store=address, **environment)

    with playing(fenced_story, start, folder) as loser:
        yield loser


def _resume(loser: Loser) -> None:
    """Take the run, and bring it to its end."""
    ended = resume(loser.session, loser.workflow, answerer=lambda question, choices: "yes")
    assert ended.status != "failed" and not fenced_story.meanwhile
    assert len(loser.payments) == STORIES[loser.story].payments
    paid = Counter(key for _, key in loser.payments)
    assert not [key for key, times in paid.items() if times > 1 and key != "first"]
    assert replay(ended, loser.workflow).head == ended.head


@pytest.mark.parametrize(("story", "fault"), CASES)
def test_who_lost_a_run_over_the_network_pays_nobody(
    tmp_path: Path, postgres_address: str, story: str, fault: str
) -> None:
    store = made_store(postgres_address)
    with (
        proxied(postgres_address) as proxy,
        _loser(tmp_path, story, postgres_address, proxy.address) as loser,
    ):
        before, run = loser.payments, open_run_of(loser.session.reload())
        assert run is not None and store.is_locked(run)
        with pytest.raises(RunHeld):
            resume(loser.session, loser.workflow)
        if fault == "killed":
            loser.process.kill()
        elif fault.startswith("stopped"):
            os.kill(loser.process.pid, signal.SIGSTOP)
        if fault == "partitioned":
            with proxy.partition():
                wait_until(lambda: not store.is_locked(run))
                _resume(loser)
            check_lost(loser, before)
        else:
            wait_until(lambda: not store.is_locked(run))
            if fault == "stopped meanwhile":
                fenced_story.meanwhile.append(lambda: _wake(loser, before))
            _resume(loser)
            if fault == "stopped":
                _wake(loser, before)
    report(f"PostgreSQL, a holder that is {fault}", f"{story}: nothing paid, nothing written")


def _wake(loser: Loser, before: list[tuple[str, str]]) -> None:
    os.kill(loser.process.pid, signal.SIGCONT)
    check_lost(loser, before)


# ── locks ────────────────────────────────────────────────────────────────────────────────────

_HOLDER = """
import os, sys, time
from plait.runtime.live import Live
from plait.store.postgres.store import PostgresStore

store = PostgresStore(sys.argv[1], source=Live())
held = store.lock("run", "session")
child = 0
if sys.argv[2] == "forks":
    child = os.fork()
    if child == 0:
        time.sleep(600)
print(child, flush=True)
for line in sys.stdin:
    print(held.is_lost, flush=True)
"""


@contextmanager
def _holder(address: str, how: str = "", lease_s: str = "") -> Generator[ForkedProgram]:
    """A process that holds a run, and says for each line if it has lost it."""
    process = ForkedProgram(
        [sys.executable, "-c", _HOLDER, address, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=child_environment(PLAIT_STORE_LEASE_S=lease_s),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _line(process: ForkedProgram) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _says_lost(process: ForkedProgram) -> bool:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return _line(process) == "True"


def _opened(address: str) -> Store:
    return PostgresStore(address, source=Live())


def test_a_holder_that_was_stopped_knows_that_its_run_is_gone(postgres_address: str) -> None:
    store = made_store(postgres_address)
    with _holder(postgres_address, lease_s="1") as holder:
        _line(holder)
        os.kill(holder.pid, signal.SIGSTOP)
        wait_until(lambda: not store.is_locked("run"))
        taken = store.lock("run", "session")
        os.kill(holder.pid, signal.SIGCONT)
        # its lease is renewed at once, and its run is not
        wait_until(lambda: _leases(postgres_address) == 2)
        assert _says_lost(holder)
        assert store.is_locked("run")
        taken.release()


def _leases(address: str) -> int:
    schema = address.partition("schema=")[2]
    sql = f"SELECT count(*) FROM {schema}.holder WHERE until > clock_timestamp()"
    return int(str(postgres_server().execute(sql)[0][0]))


def test_kill_frees_a_run_at_once_though_a_forked_child_lives(postgres_address: str) -> None:
    store = made_store(postgres_address)
    with _holder(postgres_address, "forks") as holder:
        child = int(_line(holder))
        assert store.is_locked("run")
        holder.kill()
        try:
            wait_until(lambda: not store.is_locked("run"), 20)  # the lease is longer
            assert not has_ended(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_restarted_server_does_not_give_runs_away() -> None:
    """It has no advisory locks, and nobody was killed: leases decide until holders are back."""
    with private_postgres() as server, fresh_store(server) as address:
        store, other = made_store(address), _opened(address)
        held = store.lock("run", "session")
        for _ in range(3):
            server.kill()
            server.start()
            assert other.is_locked("run")
            with pytest.raises(RunHeld):
                other.lock("run", "session")
        # the holder notices, and has its lock again: leases alone would not free it so soon
        wait_until(lambda: _advisory_locks(server.address) == 2)
        assert other.is_locked("run")
        held.release()
        assert not other.is_locked("run")
        other.close()
        store.close()


def _advisory_locks(address: str) -> int:
    with psycopg.connect(address) as connection:
        found = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
        row = found.fetchone()
    return 0 if row is None else int(row[0])


def test_a_holder_whose_old_connection_lingers_goes_by_its_lease(postgres_address: str) -> None:
    """The server may believe in a dead connection for long: its lock is nobody's, and when it goes
    the run stays held.
    """
    store, other = made_store(postgres_address), _opened(postgres_address)
    schema = postgres_address.partition("schema=")[2]
    held = store.lock("run", "session")
    server = postgres_server()
    ((key,),) = server.execute(f"SELECT advisory FROM {schema}.holder")
    with server.connect() as lingering:
        waiting = threading.Thread(
            target=lingering.execute, args=("SELECT pg_advisory_lock(%s)", [key])
        )
        waiting.start()
        owner = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted = %s AND"
        owner += " ((classid::int8 << 32) | objid::int8) = %s"
        wait_until(lambda: server.execute(owner, False, key))
        server.execute(f"SELECT pg_terminate_backend(pid) FROM ({owner}) AS it", True, key)
        waiting.join()
        wait_until(lambda: server.execute(f"SELECT 1 FROM {schema}.holder WHERE advisory IS NULL"))
    assert other.is_locked("run"), "freed with a connection that was not the holder's"
    wait_until(lambda: server.execute(f"SELECT 1 FROM {schema}.holder WHERE advisory = %s", key))
    assert other.is_locked("run")
    held.release()
    other.close()


def test_of_many_that_want_the_run_of_a_dead_holder_one_gets_it(postgres_address: str) -> None:
    store = made_store(postgres_address)
    stores = [store, *[_opened(postgres_address) for _ in range(5)]]
    for _ in range(3):
        with _holder(postgres_address) as holder:
            _line(holder)
        wait_until(lambda: not store.is_locked("run"))
        taken: list[object] = []

        def take(each: Store, taken: list[object] = taken) -> None:
            try:
                taken.append(each.lock("run", "session"))
            except RunHeld:
                return

        threads = [threading.Thread(target=take, args=(each,)) for each in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1
        getattr(taken[0], "release")()  # noqa: B009
    for each in stores[1:]:
        each.close()


def test_a_run_that_was_let_go_of_while_the_server_was_away_is_free() -> None:
    """The process lives on and renews its lease: the heartbeat lets go of the run."""
    with private_postgres() as server, fresh_store(server) as address:
        store, other = made_store(address), _opened(address)
        held, kept = store.lock("run", "session"), store.lock("kept", "session")
        server.kill()
        held.release()
        server.start()
        assert other.is_locked("kept")
        wait_until(lambda: not other.is_locked("run"), 30)  # the lease is longer
        other.lock("run", "session").release()
        assert other.is_locked("kept")
        kept.release()
        other.close()
        store.close()


@pytest.mark.parametrize("moment", list(CutMoment))
def test_a_claim_whose_answer_is_lost_is_the_callers_all_the_same(
    postgres_address: str, moment: CutMoment
) -> None:
    """The statement is made again: a run that was taken by the first one must not stay taken by a
    process that knows nothing of it.
    """
    other = made_store(postgres_address)
    with proxied(postgres_address) as proxy:
        store = open_store(proxy.address)
        store.lock("before", "a session").release()  # the process is a holder
        cut = proxy.cut(moment, text="first AS MATERIALIZED")
        taken = store.lock_first(["run-1", "run-2"])
        assert cut.done.is_set() and taken is not None
        assert other.free_runs(["run-1", "run-2"]) == {"run-1", "run-2"} - {taken[0]}
        taken[1].release()
        assert other.free_runs(["run-1", "run-2"]) == {"run-1", "run-2"}
        store.close()
    other.close()
