"""A PostgreSQL server that refuses for a while: its disk is full, transactions collide, statements
take too long, others leave transactions open, a client stops in the middle of a fold. Errors are
typed, nothing is half there, and everything goes on afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from plait import Store
from plait.errors import (
    DiskFull,
    OutcomeUnknown,
    StoreBusy,
    StoreError,
    StoreFailed,
    StoreUnreachable,
)
from plait.event.kinds import ScratchSet
from plait.ids import Digest, LogId
from plait.runtime.live import Live
from plait.store import Fence
from plait.store.postgres import checks
from plait.store.postgres.store import PostgresStore
from plait.testing import Seeded
from plait.testing.writing import (
    begin,
    extend,
    message,
    seal_events,
    texts,
    wait_until_settled,
)
from tests.faults.postgres_aftermath import (
    Follower,
    Told,
    clients,
    judge,
    made_store,
    shared_log,
)
from tests.support import (
    CutMoment,
    ForkedProgram,
    child_environment,
    dose,
    has_ended,
    postgres_server,
    private_postgres,
    proxied,
    report,
    seed,
    wait_until,
)

STORE = {"schema": "plait"}


# ── a full disk ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def disk() -> Iterator[Path]:
    """A disk with room for a server and little more; its path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="plait-disk-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        command = ["mount", "-t", "tmpfs", "-o", "size=200m,mode=755", "tmpfs", name]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting a small disk needs root")
        yield folder
        subprocess.run(["umount", "-l", name], check=True)


@pytest.mark.parametrize("full", ["tables", "log", pytest.param("all", marks=pytest.mark.ci)])
def test_a_full_disk_of_the_server_loses_nothing(
    disk: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """A server whose tables have no room refuses the append: nothing is written. One whose own log
    has none goes down with the same code: the append may stand or not. It goes on when there is
    space.
    """
    monkeypatch.setenv("PLAIT_STORE_WAIT_S", "2")
    rounds, refusals = dose("PG_FULL", short=1, ci=2, long=5), list[str]()
    kept = "1GB" if full == "log" else "0"  # else old parts of the log are used again
    elsewhere = {"tables": "pg_wal", "log": "base"}.get(full)
    other_disk = disk.with_name(f"{disk.name}-other")
    with private_postgres(
        parent=disk,
        min_wal_size="32MB",
        max_wal_size="48MB",
        wal_keep_size=kept,
        log_line_prefix="%e ",
    ) as server:
        if elsewhere is not None:
            server.stop()
            _move(server.data / elsewhere, other_disk)
            server.start()
        store, told = made_store(server.address_for(**STORE)), Told()
        log, ballast = begin(store), disk / "ballast"
        for _ in range(rounds):
            with ballast.open("wb") as out:
                room = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
                out.write(bytes(max(0, room - 12_000_000)))
            logged = len(server.log_text())
            error, act = _fill(store, log, told)
            refusals.append(type(error).__name__)
            said = server.log_text()[logged:]
            ballast.unlink()
            if not server.process or has_ended(server.process):
                server.start()
            if isinstance(error, DiskFull):
                assert "53100 ERROR" in said and full != "log", said
                assert not _stands(store, act), "refused, and it stands"
            else:
                assert isinstance(error, (StoreUnreachable, OutcomeUnknown)), error
                assert "53100 PANIC" in said and full != "tables", said
                told.unsure.append(act)
            told.acknowledged.append([extend(store, log, message("and on"))[0].id])
        judge(store, told)
        store.close()
        shutil.rmtree(other_disk, ignore_errors=True)
    report(f"PostgreSQL, a full disk ({full})", f"{', '.join(refusals)}; {told.counts}")


def _move(folder: Path, to: Path) -> None:
    """Move a folder of a server to another disk, with its owner."""
    subprocess.run(["cp", "-a", str(folder), str(to)], check=True)
    shutil.rmtree(folder)
    folder.symlink_to(to)


def _fill(store: Store, log: LogId, told: Told) -> tuple[StoreError, list[Digest]]:
    """Append until the server refuses; returns how it said so, and what it refused."""
    for number in range(1000):
        now = store.log(log)
        text = f"{number} " + os.urandom(100_000).hex()
        events = seal_events([message(text)], log, now.tip + 1, (now.head,), source=Seeded(number))
        act = [event.id for event in events]
        try:
            store.append(log, events, after=now.head)
        except StoreError as error:
            return error, act
        told.acknowledged.append(act)
    raise AssertionError("the disk does not get full")


def _stands(store: Store, act: Sequence[Digest]) -> bool:
    """True if an event of an act is there."""
    return any(store.number_of(id) is not None for id in act)


@pytest.mark.parametrize("stays_full", [True, False])
def test_an_append_that_was_cut_off_and_then_refused_may_stand(
    postgres_address: str, stays_full: bool
) -> None:
    """The answer to an append is lost, and its repetition finds no room for the proof that it is on
    disk: nobody says that nothing was written, and the same events again settle it.
    """
    store = made_store(postgres_address)
    log, schema = begin(store), postgres_address.partition("schema=")[2]
    full = f"CREATE FUNCTION {schema}.no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    full += " RAISE 'no room' USING ERRCODE = 'disk_full'; END $$"
    with proxied(postgres_address) as proxy:
        away = PostgresStore(proxy.address, source=Live())
        head = away.log(log).head
        events = seal_events([message("once")], log, 2, (head,), source=Seeded(1))
        server = postgres_server()
        server.execute(full)
        trigger = f"CREATE TRIGGER no_room BEFORE UPDATE ON {schema}.store EXECUTE FUNCTION"
        server.execute(f"{trigger} {schema}.no_room()")
        proxy.cut(CutMoment.AFTER, text="moved AS")
        with pytest.raises(OutcomeUnknown, match="same events again"):
            away.append(log, events, after=head)
        if stays_full:
            with pytest.raises(OutcomeUnknown, match="same events again"):
                away.append(log, events, after=head)
        server.execute(f"DROP TRIGGER no_room ON {schema}.store")
        assert away.append(log, events, after=head) == events[-1].id
        away.close()
    assert texts(store, log) == ["once"]
    judge(store, Told())


# ── collisions ───────────────────────────────────────────────────────────────────────────────


def test_appends_that_wait_for_each_other_both_come_to_their_end() -> None:
    """Each rests on the epoch of the other's log: the server ends one of them, and it is made
    again.
    """
    wanted, rounds = dose("PG_DEADLOCKS", short=1, ci=3, long=30), 0
    with private_postgres(deadlock_timeout="5ms") as server:
        store = made_store(server.address_for(**STORE))
        logs = [begin(store), begin(store)]

        def write(own: LogId, other: LogId, number: int) -> None:
            now = store.log(own)
            body = ScratchSet("n", number)
            events = seal_events([body], own, now.tip + 1, (now.head,), source=Seeded(number))
            store.append(own, events, after=now.head, fences=[Fence(other, 0)])

        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while server.log_text().count("deadlock detected") < wanted:
            # both wait for the lock on the other's log, and get it at about the same moment
            number, rounds = rounds, rounds + 1
            assert rounds < 200 * wanted
            with server.connect(autocommit=False) as rude:
                rude.execute(b"SELECT 1 FROM plait.log FOR UPDATE")
                pairs = [logs, logs[::-1]]
                threads = [threading.Thread(target=write, args=(*pair, number)) for pair in pairs]
                for thread in threads:
                    thread.start()
                wait_until(lambda: server.execute(waiting)[0][0] == 2)
                rude.rollback()
            for thread in threads:
                thread.join()
        assert [store.log(log).tip for log in logs] == [rounds + 1] * 2
        judge(store, Told())
        store.close()
    report("PostgreSQL, deadlocks", f"{wanted} in {rounds * 2:,} appends, all of which stand")


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
def test_a_server_whose_transactions_are_stricter_than_ours(level: str) -> None:
    """Statements fail where they would have waited; they are made again."""
    acts, chance = dose("PG_STRICT", short=20, ci=100, long=1000), seed()
    with private_postgres(default_transaction_isolation=level) as server:
        address = server.address_for(**STORE)
        store, told = made_store(address), Told()
        shared = shared_log(store)
        follower = Follower(store)
        with clients(address, 4, chance, shared, acts) as running:
            for each in running:
                told.add(each.end())
        failures = server.log_text().count("could not serialize access")
        assert not set(told.refused) - {"StaleHead"}, told.refused
        judge(store, told, follower.end())
        store.close()
    report(f"PostgreSQL, {level}", f"{failures} serialisation failures, {told.counts}", chance)


# ── waiting ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("setting", "error"), [("statement_timeout", StoreFailed), ("lock_timeout", StoreBusy)]
)
def test_a_wait_that_the_server_ends_is_a_typed_error(
    setting: str, error: type[StoreError]
) -> None:
    with private_postgres() as server:
        store = made_store(server.address_for(**STORE))
        log = begin(store)
        server.execute(f"ALTER DATABASE plait SET {setting} = '200ms'")
        hurried = PostgresStore(store.address, source=Live())
        with server.connect(autocommit=False) as rude:
            rude.execute(b"SELECT 1 FROM plait.log FOR UPDATE")
            with pytest.raises(error):
                extend(hurried, log, message("too early"))
            assert texts(store, log) == []  # reading goes on
            rude.rollback()
        extend(store, log, message("later"))
        assert texts(store, log) == ["later"]
        judge(store, Told())
        hurried.close()
        store.close()


def test_a_transaction_that_somebody_left_open_holds_back_numbers_and_nothing_else(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LONG_S", 0.0)
    store = made_store(postgres_address)
    log = begin(store, ScratchSet("a", 1))
    wait_until_settled(store)
    follower = Follower(store)
    with postgres_server().connect(autocommit=False) as rude:
        rude.execute(b"SET application_name = 'forgotten'")
        rude.execute(b"SELECT pg_current_xact_id()")
        before = store.number
        for number in range(20):
            extend(store, log, ScratchSet("a", number))
            (row,) = store.rows("tally", "count")
            assert row["times"] == number + 2
        assert store.number == before
        assert [event.seq for _, event in store.feed(before)] == []
        newest = next(store.feed(reverse=True, limit=1))[1]
        assert newest.seq == 22
        named: Any = store.describe()["long_transactions"]
        (found,) = [each for each in named if each[2] == "forgotten"]
        assert found[0] == rude.info.backend_pid and found[3] == "idle in transaction"
        rude.rollback()
    judge(store, Told(), follower.end())


_FOLDER = """
import os, signal, sys
from plait import open_store
from plait.store.postgres import connections, fold, server_facts
from plait.testing.projections import Tally

connections.IDLE_S = fold.IDLE_S = server_facts.IDLE_S = float(sys.argv[2])
is_stopped = False

class Stops(Tally):
    def apply(self, rows, number, event):
        global is_stopped
        if not is_stopped and hasattr(rows, "flush"):
            is_stopped = True
            os.kill(os.getpid(), signal.SIGSTOP)
        super().apply(rows, number, event)

(row,) = open_store(sys.argv[1], projections=[Stops()]).rows("tally", "count")
print(row["times"], flush=True)
"""


def test_a_client_that_stops_in_the_middle_of_a_fold_does_not_stop_others(
    postgres_address: str,
) -> None:
    """It has the lock of the projection; the server ends its transaction after a while."""
    store = made_store(postgres_address)
    log = begin(store, *[ScratchSet("a", number) for number in range(50)])
    with ForkedProgram(
        [sys.executable, "-c", _FOLDER, postgres_address, "0.3"],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    ) as folder:
        try:
            wait_until(lambda: _is_stopped(folder.pid))
            (row,) = store.rows("tally", "count")
            assert row["times"] == 50
            extend(store, log, ScratchSet("a", 50))
            os.kill(folder.pid, signal.SIGCONT)
            assert folder.communicate(timeout=60)[0] == "51\n"
        finally:
            folder.kill()
    judge(store, Told())


_HALF = """
import os, signal, sys
from plait import open_store
from plait.store.postgres import pipeline
from plait.store.records import to_bytes

store = open_store(sys.argv[1])
db = store._connections.connect()
db.run_script(f"SET transaction_timeout = {sys.argv[3]}")
db.pgconn.enter_pipeline_mode()
sql = store._sql("UPDATE {s}.log SET tip = tip WHERE id = $1::bytea").encode()
db.pgconn.send_query_params(sql, [to_bytes(sys.argv[2])], None, [1], 1)
db.pgconn.send_flush_request()
db.pgconn.flush()
pipeline._next_result(db)  # the server has executed it, and waits for the end of the message
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_client_that_stops_with_half_a_message_does_not_keep_its_lock(
    postgres_address: str,
) -> None:
    """The statement has the lock of a log, and its transaction has no end."""
    store = made_store(postgres_address)
    if postgres_server().version < 17:
        pytest.skip("this server has no limit on transactions")
    log = begin(store, ScratchSet("a", 1))
    with ForkedProgram(
        [sys.executable, "-c", _HALF, postgres_address, log, "1500"], env=child_environment()
    ) as half:
        try:
            wait_until(lambda: _is_stopped(half.pid))
            writer = threading.Thread(target=extend, args=(store, log, ScratchSet("a", 2)))
            writer.daemon = True
            writer.start()
            wait_until(lambda: not writer.is_alive())
            assert store.log(log).tip == 3
        finally:
            half.kill()
    judge(store, Told())


def test_transactions_have_a_limit_unless_others_have_set_one(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made_store(postgres_address)
    assert isinstance(store, PostgresStore)
    if postgres_server().version < 17:
        pytest.skip("this server has no limit on transactions")
    ask = "SELECT current_setting('transaction_timeout')"
    db = store._connections.connect()  # pyright: ignore[reportPrivateUsage]
    assert db.get(ask) == "3min"
    with db.transaction():
        assert db.get(ask) == "1h"
    assert db.get(ask) == "3min"
    db.close()
    monkeypatch.setenv("PGOPTIONS", "-c transaction_timeout=7s")
    db = store._connections.connect()  # pyright: ignore[reportPrivateUsage]
    with db.transaction():
        assert db.get(ask) == "7s"
    db.close()


def _is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"
