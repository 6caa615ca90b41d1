"""Many writers on a PostgreSQL store: processes, threads over few connections, forks, and clocks
that disagree. Their histories are checked as on one machine (`test_writers.py`).
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from plait import Session, Store
from plait.errors import StoreBusy
from plait.session import verify
from plait.store.postgres import connections
from plait.testing.writing import begin, extend, message, texts
from tests.faults.postgres_aftermath import IMPORTS, made_store
from tests.faults.rival import run
from tests.faults.test_clock import WRITER
from tests.faults.test_writers import judge, run_rivals
from tests.support import dose, import_in_server, postgres_server, python, report, seed, wait_until


@pytest.mark.parametrize(("short", "threads", "logs"), [(8, 1, 1), (4, 2, 24)])
def test_processes_leave_a_history_that_one_writer_could_have_made(
    postgres_address: str, short: int, threads: int, logs: int
) -> None:
    """WRITES=5000: so many appends by each process."""
    import_in_server(*IMPORTS)
    processes, chance = dose("PROCESSES", short=short, long=8), seed()
    each = dose("WRITES", short=10, ci=40, long=300)
    store = made_store(postgres_address)
    sessions = [Session(title=str(i), store=store) for i in range(logs)]
    ids = [session.id for session in sessions]
    acts = run_rivals(postgres_address, ids, processes, each, threads, chance)
    part = f"PostgreSQL, writers, {processes} processes of {threads} threads"
    judge(part, sessions, acts, each * processes, chance)


# ── few connections ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def four_connections(postgres_address: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("PLAIT_STORE_CONNECTIONS", "4")
    return made_store(postgres_address)


@pytest.mark.parametrize("logs", [1, 32])
def test_many_threads_share_four_connections(four_connections: Store, logs: int) -> None:
    """No deadlock, and nobody starves: each of them gets its writes done."""
    each, chance = dose("WRITES", short=3, ci=10, long=150), seed()
    sessions = [Session(title=str(i), store=four_connections) for i in range(logs)]
    acts = run("t", sessions, each * 32, 32, chance)
    judge("PostgreSQL, writers, 32 threads on 4 connections", sessions, acts, each * 32, chance)


def test_threads_get_connections_in_turn(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that never pauses does not push others aside."""
    monkeypatch.setenv("PLAIT_STORE_CONNECTIONS", "1")
    pool: Any = vars(made_store(postgres_address))["_connections"]
    order, all_wait = list[int](), threading.Event()

    def work(number: int) -> None:
        pool.run(lambda db: order.append(number))  # pyright: ignore[reportUnknownLambdaType]

    def work_without_a_pause() -> None:
        pool.run(lambda db: all_wait.wait())  # pyright: ignore[reportUnknownLambdaType]
        for _ in range(3):
            work(0)

    threads = [threading.Thread(target=work_without_a_pause)]
    threads += [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
    for number, thread in enumerate(threads):
        thread.start()
        wait_until(lambda number=number: pool._lent == 1 and len(pool._queue) == number)
    all_wait.set()
    for thread in threads:
        thread.join()
    assert order == [*range(1, 9), 0, 0, 0]


def test_a_crowd_beyond_the_connections_gets_a_typed_error(
    four_connections: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_BUSY_S", 0.2)
    log = begin(four_connections)
    schema = four_connections.address.partition("schema=")[2]
    with postgres_server().connect(autocommit=False) as rude:
        rude.execute(f"LOCK TABLE {schema}.log IN ACCESS EXCLUSIVE MODE".encode())
        stuck = [
            threading.Thread(target=four_connections.log, args=(log,), daemon=True)
            for _ in range(4)
        ]
        for thread in stuck:
            thread.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
        wait_until(lambda: postgres_server().execute(waiting, f"{schema}.log")[0][0] == 4)
        with pytest.raises(StoreBusy):
            four_connections.log(log)
        rude.rollback()
    for thread in stuck:
        thread.join()
    extend(four_connections, log, message("and on"))
    assert texts(four_connections, log) == ["and on"]


# ── forks, clocks ────────────────────────────────────────────────────────────────────────────

_FORKED = """
import os, sys, threading
from plait.runtime.live import Live
from plait.store import verify_store
from plait.store.postgres.store import PostgresStore
from plait.testing.writing import begin, extend, message, texts

store = PostgresStore(sys.argv[1], source=Live())
mine, stop = begin(store), threading.Event()

def write():
    while not stop.is_set():
        extend(store, mine, message("meanwhile"))

held = store.lock("run", "session")
writers = [threading.Thread(target=write)]
for writer in writers:
    writer.start()
for number in range(int(sys.argv[2])):
    yours = begin(store)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            extend(store, yours, message("from the child"))
            code = 0 if texts(store, yours) == ["from the child"] else 2
            if number % 2:
                store.close()
        finally:
            if number % 3:
                os._exit(code)
            sys.exit(code)  # runs finalisers, unlike os._exit
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert texts(store, yours) == ["from the child"]
    assert store.is_locked("run") and not held.is_lost
stop.set()
for writer in writers:
    writer.join()
extend(store, mine, message("after"))
assert store._connections.losses == 0, "connections of the parent ended with a child"
assert not list(verify_store(store))
print("ok")
"""


def test_a_fork_in_the_middle_shares_no_connection(postgres_address: str) -> None:
    made_store(postgres_address)
    forks = dose("FORKS", short=6, ci=20, long=200)
    done = python(_FORKED, postgres_address, str(forks))
    assert done.stdout == "ok\n", done.stdout + done.stderr
    report("PostgreSQL, forks in the middle of writes", f"{forks} forks, 0 connections lost")


def test_clients_whose_clocks_are_days_apart_write_one_history(postgres_address: str) -> None:
    store = made_store(postgres_address)
    session = Session("begin", title="first", store=store)
    for i, hours in enumerate((5 * 24, -7 * 24, 9000)):
        python(WRITER, postgres_address, session.id, str(hours), str(i))
    session = session.reload()
    assert [message.text for message in session.messages] == ["begin", "0", "1", "2"]
    assert session.facts["last"] == "2"
    assert [each.title for each in Session.list(store=store)] == ["2", "1", "0", "first"]
    numbers = [store.number_of(event.id) or 0 for event in session.events]
    assert numbers == sorted(numbers)
    times = [event.time for event in session.events]
    assert times == sorted(times)  # by the clock of the server
    assert list(verify(store, state=True)) == []
