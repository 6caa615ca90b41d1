"""Workers on a PostgreSQL server: its clock, its connections, and what a dispatch asks of it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from plait import Session, open_store
from plait.cluster import Cluster, Worker
from plait.cluster.choosing import Ability, Shares
from plait.cluster.claiming import Claims
from plait.cluster.driving import drive_claimed
from plait.cluster.submitting import now_in
from plait.errors import RunHeld
from plait.ids import LogId, Micros, digest
from plait.runtime.live import Live
from plait.store import Store
from plait.store.postgres.address import parse_address
from plait.store.postgres.migrate import migrate
from tests.cluster.conftest import FLOWS
from tests.cluster.flows import Count, Holds, Slow, effects_in
from tests.support import private_postgres, wait_until
from tests.support.proxy import counted, proxied
from tests.support.runs import claims_of

DAY_US = 86400 * 10**6
LONG_S = 120.0
# The connections that have the lock of the holder of a run.
PROCESSES = """
SELECT p.pid FROM {schema}.hold o JOIN {schema}.holder h ON h.id = o.holder
    JOIN pg_locks p ON p.classid::int8 = (h.advisory >> 32) & 4294967295
        AND p.objid::int8 = h.advisory & 4294967295
WHERE o.run = decode('{run}', 'hex') AND p.locktype = 'advisory' AND p.objsubid = 1 AND p.granted
ORDER BY p.pid"""


@pytest.fixture
def address(postgres_address: str) -> Iterator[str]:
    """The address of an empty store."""
    migrate(parse_address(postgres_address), source=Live())
    yield postgres_address
    open_store(postgres_address).close()


@contextmanager
def serving(store: Store, slots: int = 4) -> Generator[Worker]:
    """A worker in a thread of this process."""
    worker = Worker(store, [FLOWS], slots=slots)
    thread = threading.Thread(target=worker.serve)
    thread.start()
    try:
        yield worker
        assert thread.is_alive(), "nothing but a drain ends a worker"
    finally:
        worker.drain()
        thread.join()


def ask(address: str, sql: str) -> list[int]:
    """Ask the server, beside the store."""
    where, _, options = address.partition("?schema=")
    with psycopg.connect(where, autocommit=True) as db:
        return [row[0] for row in db.execute(sql.replace("{schema}", options).encode()).fetchall()]


def connections_of(address: str, run: str) -> list[int]:
    """Return the processes of the server that keep a run for its holder."""
    name = digest(b"plait/hold/1", run.encode())
    return ask(address, PROCESSES.replace("{run}", name))


def end_connection(address: str, process: int) -> None:
    ask(address, f"SELECT pg_terminate_backend({process})::int4")


# ── statements ───────────────────────────────────────────────────────────────────────────────


def test_a_dispatch_asks_the_server_for_what_it_needs(address: str) -> None:
    with counted(address) as counts:
        store = open_store(counts.address)
        ability = Ability(frozenset({f"{FLOWS}:Count"}))
        claims = Claims(store, "w", ability, Shares())
        found = list[tuple[int, int, int, int, int]]()
        for _ in range(4):  # the first fills caches, and makes this process a holder
            session = Session("Hi", store=store)
            counts.reset()
            Cluster(store).submit(Count(), session, steps=0)
            submitted = counts.statements
            counts.reset()
            claims.look(now := now_in(store))
            folded = counts.statements
            counts.reset()
            work, _ = claims.claim(now)
            claimed, commits = counts.statements, counts.commits
            assert work is not None
            counts.reset()
            assert drive_claimed(store, work).how == "finished"
            found.append((submitted, folded, claimed, commits, counts.statements))
        store.close()
    # a submit reads the session, asks for heads, and appends; a look asks for queues and for the
    # first rows, and folds before; a claim right after it locks
    submitted, folded, claimed, commits, driven = found[-1]
    assert (submitted, claimed, commits) == (3, 1, 1), found
    assert folded <= 24 and driven <= 6, found


# ── the clock ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("days", [3, -3])
def test_delays_and_deadlines_follow_the_clock_of_the_server(
    address: str, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """The clock of the process that submits is days away from that of the worker."""
    store = open_store(address)
    real = Live.now

    def away(self: Live, log: LogId, seq: int) -> Micros:
        return real(self, log, seq) + days * DAY_US

    monkeypatch.setattr(Live, "now", away)
    monkeypatch.setenv("PLAIT_STORE", address)
    cluster = Cluster(store)
    with cluster.start([FLOWS], workers=1):
        task = cluster.submit(
            Count(), Session("Hi", store=store), steps=0, delay_s=0.2, deadline_s=600
        )
        assert task.result(120).text == "counted"
    (now,) = ask(address, "SELECT extract(epoch FROM clock_timestamp())::int8 * 1000000")
    times = [event.time for event in task.session.events]
    assert times == sorted(times) and abs(times[0] - now) < DAY_US / 24
    begun = next(event.time for event in task.session.events if event.kind == "RunResumed")
    assert begun >= next(e.time for e in task.session.events if e.kind == "RunStarted") + 200_000


# ── connections that the server ends ─────────────────────────────────────────────────────────


def test_the_end_of_one_connection_frees_no_run(address: str) -> None:
    mine = open_store(address)
    lock, bell = mine.lock("run", ""), mine.listen("work")
    other = open_store(address.replace("@127.0.0.1:", "@localhost:"))
    try:
        for count in range(6):
            wait_until(lambda: len(connections_of(address, "run")) == 2, LONG_S)
            before = connections_of(address, "run")
            end_connection(address, before[count % 2])
            while {*connections_of(address, "run")} <= {*before}:  # until another one is there
                with pytest.raises(RunHeld):
                    other.lock("run", "")
        assert not lock.was_taken
    finally:
        bell.close()
        lock.release()
        other.close()


def test_a_worker_that_lost_a_run_ends_its_commands(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAIT_STORE", address)
    store = open_store(address)
    cluster, seconds = Cluster(store), f"6000.{os.getpid()}"
    with caplog.at_level(logging.WARNING), serving(store) as worker:
        (tmp_path / "files").mkdir()
        session = Session("Hi", store=store).to("local", tmp_path / "files")
        task = cluster.submit(Holds(), session, path=str(tmp_path / "begun"), seconds=seconds)
        wait_until(lambda: is_running(seconds), LONG_S)
        with cluster.start([FLOWS], workers=1, name="other"):
            while len(claims_of(session)) < 2:  # the first worker may be back before it is missed
                for process in connections_of(address, task.run):
                    end_connection(address, process)
            assert task.result(120).text == "held"
            wait_until(lambda: not is_running(seconds), LONG_S)
            wait_until(lambda: bool(worker.ended), LONG_S)
            assert worker.ended == {"lost": 1}
    assert [claim.chosen for claim in claims_of(session)][1:] == ["taken over"]
    assert "another process has taken it: its commands are ended here" in caplog.text


def is_running(seconds: str) -> bool:
    """True if a command of the test runs on this machine."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if process.read_bytes().split(b"\0")[:2] == [b"sleep", seconds.encode()]:
                return True
        except OSError:
            continue
    return False


# ── a store that goes away under a worker ────────────────────────────────────────────────────


def finish_all(
    store: Store, worker_store: Store, path: Path, faults: list[Callable[[], object]]
) -> None:
    """Let a worker execute runs while faults happen, one after another, and check its effects."""
    with serving(worker_store, slots=3) as worker:
        tasks = [
            Cluster(store).submit(
                Slow(), Session("Hi", store=store), path=str(path), seconds=0.05, steps=4
            )
            for _ in range(6)
        ]
        for count, fault in enumerate(faults, 1):
            wait_until(lambda count=count: len(effects_in(path)) >= 3 * count, LONG_S)
            fault()
        assert [task.result(300).text for task in tasks] == ["rested"] * 6
        assert worker.ended["finished"] == 6
    shorts = [task.session.short for task in tasks]
    made = {effect.split()[0] for effect in effects_in(path)}
    assert made == {f"{short}/{step}" for short in shorts for step in range(4)}
    assert len(effects_in(path)) == 24  # each under its own key


def test_a_worker_outlives_cuts_of_all_its_connections(address: str, tmp_path: Path) -> None:
    with proxied(address) as proxy:
        behind = open_store(proxy.address)
        cuts: list[Callable[[], object]] = [proxy.cut_all] * 5
        finish_all(open_store(address), behind, tmp_path / "effects", cuts)
        behind.close()


def test_a_worker_outlives_restarts_of_its_server(tmp_path: Path) -> None:
    with private_postgres(18) as server:
        address = server.address_for(schema="plait")
        migrate(parse_address(address), source=Live())

        def crash() -> None:
            server.kill()
            server.start()

        store = open_store(address)
        finish_all(store, store, tmp_path / "effects", [server.restart, crash])
        store.close()
