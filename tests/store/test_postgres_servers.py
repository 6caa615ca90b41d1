"""The PostgreSQL servers of the tests, the proxy before them and its counts do what they say."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.support import (
    CutMoment,
    PostgresServer,
    child_environment,
    counted,
    fresh_store,
    has_ended,
    missing_program,
    pgbouncer_port,
    postgres_server,
    private_postgres,
    proxied,
    python,
    standby_of,
    wait_until,
)


@pytest.fixture
def server() -> PostgresServer:
    return postgres_server()


Connect = Callable[..., psycopg.Connection[tuple[Any, ...]]]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens connections that are closed after the test, whatever became of them."""
    with ExitStack() as opened:

        def connect_until_the_end(
            address: str, *, autocommit: bool = False
        ) -> psycopg.Connection[tuple[Any, ...]]:
            connection = psycopg.connect(address, autocommit=autocommit)
            opened.callback(connection.close)
            return connection

        yield connect_until_the_end


@pytest.fixture
def table(server: PostgresServer) -> Iterator[str]:
    """An empty table with one column, in a schema of its own."""
    with fresh_store(server) as address:
        schema = _schema_of(address)
        server.execute(f"CREATE SCHEMA {schema}")
        server.execute(f"CREATE TABLE {schema}.line (word text)")
        yield f"{schema}.line"


def _schema_of(address: str) -> str:
    return urlsplit(address).query.removeprefix("schema=")


def _words(server: PostgresServer, table: str) -> list[str]:
    return [word for (word,) in server.execute(f"SELECT word FROM {table} ORDER BY 1")]


# ── servers ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "version",
    [pytest.param(15, marks=pytest.mark.ci), pytest.param(16, marks=pytest.mark.ci), 18],
)
def test_a_server_has_the_settings_of_a_safe_one(version: int) -> None:
    server = postgres_server(version)
    wanted = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
    wanted |= {"max_connections": "200", "server_encoding": "UTF8", "listen_addresses": "127.0.0.1"}
    with server.connect() as connection:
        assert connection.info.server_version // 10_000 == version
        for name, value in wanted.items():
            assert server.execute(f"SHOW {name}") == [(value,)]
    by_socket = f"host={server.folder} port={server.port} user=postgres dbname=plait"
    with psycopg.connect(by_socket) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_all_processes_of_a_run_share_a_server(server: PostgresServer) -> None:
    code = "from tests.support import postgres_server; print(postgres_server().port)"
    assert int(python(code).stdout) == server.port


_OWNER = """
import os, time
from tests.support import postgres_server
server = postgres_server()
print(server.process, server.folder, flush=True)
time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.parametrize("victim", ["owner", "keeper"])
def test_a_server_ends_with_its_run(victim: str) -> None:
    """The run is killed, or the process that watches over the server."""
    environment = child_environment(POSTGRES_TEST_RUN="")
    command = [sys.executable, "-c", _OWNER]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        number, folder = owner.stdout.readline().split()
        postmaster = int(number)
        status = Path(f"/proc/{postmaster}/status").read_text()
        [parent] = [line.split()[1] for line in status.splitlines() if line.startswith("PPid")]
        try:
            assert not has_ended(postmaster)
            os.kill(owner.pid if victim == "owner" else int(parent), signal.SIGKILL)
            wait_until(lambda: has_ended(postmaster))
        finally:
            owner.kill()
    if victim == "keeper":
        # nothing is left that could do it; the next run would
        shutil.rmtree(Path(folder).parent)
    wait_until(lambda: not Path(folder).parent.exists())


def test_a_store_is_a_schema_that_is_dropped_afterwards(server: PostgresServer) -> None:
    with fresh_store(server) as one, fresh_store(server) as other:
        assert one != other and one.startswith(f"{server.address}?schema=t_")
        server.execute(f"CREATE SCHEMA {_schema_of(one)}")
        server.execute(f"CREATE TABLE {_schema_of(one)}.line ()")
    assert server.execute("SELECT to_regnamespace(%s)", _schema_of(one)) == [(None,)]


def test_a_store_is_dropped_under_a_transaction_that_was_left_open(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.postgres._LOCK_WAIT", "10ms")
    with server.connect(autocommit=False) as left_open:
        with fresh_store(server) as address:
            schema = _schema_of(address)
            server.execute(f"CREATE SCHEMA {schema}")
            server.execute(f"CREATE TABLE {schema}.line ()")
            left_open.execute(f"SELECT FROM {schema}.line".encode())
        with pytest.raises(psycopg.OperationalError):
            left_open.execute("SELECT 1")


def test_members_of_with_password_need_one(server: PostgresServer) -> None:
    server.execute("DROP ROLE IF EXISTS careful")
    server.execute("CREATE ROLE careful LOGIN PASSWORD 'right' IN ROLE with_password")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        server.connect(user="careful:wrong")
    with server.connect(user="careful:right") as connection:
        assert connection.info.user == "careful"


def test_a_missing_program_is_a_skip_or_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLAIT_REQUIRE_NONSENSE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="nonsense is not installed"):
        missing_program("nonsense", "PLAIT_REQUIRE_NONSENSE")
    monkeypatch.setenv("PLAIT_REQUIRE_NONSENSE", "1")
    with pytest.raises(AssertionError, match="nonsense is required here"):
        missing_program("nonsense", "PLAIT_REQUIRE_NONSENSE")


def test_pgbouncer_lends_connections_per_transaction(
    pgbouncer_address: str, connect: Connect
) -> None:
    address = pgbouncer_address.partition("?")[0]
    assert urlsplit(address).port == pgbouncer_port(postgres_server())
    clients = [connect(address, autocommit=True) for _ in range(12)]
    lent = [client.execute("SELECT pg_backend_pid()").fetchone() for client in clients]
    assert len(set(lent)) < len(clients)


@pytest.mark.long
def test_a_killed_server_starts_again_with_all_that_was_committed(connect: Connect) -> None:
    with private_postgres() as server:
        connection = connect(server.address)
        connection.execute("CREATE TABLE line (word text)")
        connection.execute("INSERT INTO line VALUES ('kept')")
        connection.commit()
        connection.execute("INSERT INTO line VALUES ('open')")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            server.connect()
        server.start()
        assert _words(server, "line") == ["kept"]
        before = server.process
        server.restart()
        assert server.process != before and _words(server, "line") == ["kept"]


@pytest.mark.ci
def test_a_server_speaks_tls_if_it_is_told_to(connect: Connect) -> None:
    with private_postgres(15, ssl="on") as server:
        trusted = f"{server.data}/server.crt"
        verified = server.address_for(sslmode="verify-full", sslrootcert=trusted)
        assert connect(verified).pgconn.ssl_in_use
        assert not connect(server.address_for(sslmode="disable")).pgconn.ssl_in_use
    with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
        connect(postgres_server().address_for(sslmode="require"))


@pytest.mark.ci
def test_a_server_has_its_data_where_the_test_wants_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with private_postgres(parent=tmp_path) as server:
        [(data,)] = server.execute("SHOW data_directory")
        assert Path(data).is_relative_to(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.ci
def test_a_server_recovers_when_one_of_its_processes_is_killed(connect: Connect) -> None:
    with private_postgres(restart_after_crash="on") as server:
        victim, other = connect(server.address), connect(server.address)
        server.kill_backend(victim.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            wait_until(lambda: other.execute("SELECT 1").fetchone() is None)
        wait_until(lambda: _answers(server))


def _answers(server: PostgresServer) -> bool:
    try:
        server.connect().close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.ci
def test_a_standby_has_every_commit_and_can_be_promoted() -> None:
    with private_postgres() as primary, standby_of(primary) as standby:
        assert primary.execute("SHOW synchronous_commit") == [("remote_apply",)]
        primary.execute("CREATE TABLE line (word text)")
        primary.execute("INSERT INTO line VALUES ('kept')")
        # no waiting: the commit did
        assert _words(standby, "line") == ["kept"]
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            standby.execute("INSERT INTO line VALUES ('refused')")
        with proxied(primary.address) as proxy:
            primary.kill()
            standby.promote()
            proxy.lead_to(standby.address)
            with psycopg.connect(proxy.address, autocommit=True) as connection:
                connection.execute("INSERT INTO line VALUES ('later')")
        assert _words(standby, "line") == ["kept", "later"]


# ── counts ───────────────────────────────────────────────────────────────────────────────────


def test_statements_round_trips_and_commits_are_counted(server: PostgresServer, table: str) -> None:
    insert = f"INSERT INTO {table} VALUES (%s)".encode()
    text = f"INSERT INTO {table} VALUES ($1)"
    with counted(server.address) as wire:
        with psycopg.connect(wire.address, autocommit=True) as connection:
            assert (wire.connections, wire.statements, wire.round_trips) == (1, 0, 0)
            connection.execute(insert, ["one"])
            assert (wire.statements, wire.round_trips, wire.commits) == (1, 1, 1)
            assert wire.texts == [text]

            wire.reset()
            with connection.transaction():
                connection.execute(insert, ["two"])
            assert (wire.statements, wire.round_trips, wire.commits) == (3, 3, 1)
            assert wire.texts == ["BEGIN", text, "COMMIT"]

            wire.reset()
            with pytest.raises(psycopg.errors.UndefinedTable):
                connection.execute("SELECT 1 FROM nowhere")
            with connection.transaction(force_rollback=True):
                connection.execute(insert, ["three"])
            assert wire.commits == 0

            wire.reset()
            with connection.pipeline():
                for word in ("four", "five", "six"):
                    connection.execute(insert, [word])
            assert (wire.statements, wire.commits) == (3, 1)
            assert wire.round_trips < 3
        assert wire.connections == 0
    assert len(_words(server, table)) == 5


def test_a_statement_that_was_prepared_is_counted_by_its_text(server: PostgresServer) -> None:
    with counted(server.address) as wire, psycopg.connect(wire.address, autocommit=True) as client:
        client.pgconn.prepare(b"hot", b"SELECT 7")
        wire.reset()
        for _ in range(3):
            client.pgconn.exec_prepared(b"hot", [])
        assert wire.texts == ["SELECT 7"] * 3
        assert (wire.round_trips, wire.commits) == (3, 3)


def test_counts_hold_behind_a_pooler(server: PostgresServer) -> None:
    address = server.address.replace(f":{server.port}/", f":{pgbouncer_port(server)}/")
    with counted(address) as wire, psycopg.connect(wire.address, autocommit=True) as client:
        client.execute("SELECT 1")
        assert (wire.statements, wire.round_trips, wire.commits) == (1, 1, 1)


# ── faults ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("moment", list(CutMoment))
@pytest.mark.parametrize("autocommit", [True, False])
def test_a_connection_is_cut_around_a_commit(
    server: PostgresServer, table: str, moment: CutMoment, autocommit: bool, connect: Connect
) -> None:
    with proxied(server.address) as proxy:
        client = connect(proxy.address, autocommit=autocommit)
        process = client.info.backend_pid
        cut = proxy.cut(moment, nth=1 if autocommit else 2, text="INSERT|COMMIT")
        with pytest.raises(psycopg.OperationalError):
            client.execute(f"INSERT INTO {table} VALUES ('once')".encode())
            client.commit()
        assert cut.done.wait(60) and client.broken
        if moment is CutMoment.DURING:
            # the server may or may not have done it; it has done with it when the process is gone
            wait_until(lambda: _is_gone(server, process))
        expected = {CutMoment.BEFORE: [0], CutMoment.AFTER: [1], CutMoment.DURING: [0, 1]}
        assert len(_words(server, table)) in expected[moment]
        with psycopg.connect(proxy.address) as again:
            assert again.execute("SELECT 1").fetchone() == (1,)


def _is_gone(server: PostgresServer, process: int) -> bool:
    question = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
    return not server.execute(question, process)


def test_a_connection_is_cut_at_the_nth_statement(
    server: PostgresServer, table: str, connect: Connect
) -> None:
    with proxied(server.address) as proxy:
        client = connect(proxy.address, autocommit=True)
        proxy.cut(CutMoment.BEFORE, nth=3)
        with pytest.raises(psycopg.OperationalError):
            for number in range(9):
                client.execute(f"INSERT INTO {table} VALUES ('{number}')".encode())
    assert _words(server, table) == ["0", "1"]


def test_all_connections_are_cut_and_new_ones_refused(
    server: PostgresServer, connect: Connect
) -> None:
    with proxied(server.address) as proxy:
        clients = [connect(proxy.address, autocommit=True) for _ in range(3)]
        assert proxy.cut_all() == 3
        for client in clients:
            with pytest.raises(psycopg.OperationalError):
                client.execute("SELECT 1")
        proxy.is_refusing = True
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(proxy.address)
        proxy.is_refusing = False
        psycopg.connect(proxy.address).close()


def test_a_partition_lets_nothing_pass_until_it_ends(
    server: PostgresServer, table: str, connect: Connect
) -> None:
    insert = f"INSERT INTO {table} VALUES ('late')".encode()
    with proxied(server.address) as proxy, ThreadPoolExecutor() as threads:
        client = connect(proxy.address, autocommit=True)
        leaving = connect(proxy.address)
        process = leaving.info.backend_pid
        with proxy.partition():
            asked = threads.submit(client.execute, insert)
            joining = threads.submit(psycopg.connect, proxy.address)
            leaving.close()
            wait_until(lambda: proxy.counts.statements)
            assert not asked.done() and not joining.done() and _words(server, table) == []
            assert not _is_gone(server, process)
        asked.result(60)
        joining.result(60).close()
        assert _words(server, table) == ["late"]
        wait_until(lambda: _is_gone(server, process))


def test_a_delay_takes_time_in_each_direction(server: PostgresServer) -> None:
    with proxied(server.address) as proxy, psycopg.connect(proxy.address) as client:
        proxy.delay_s = 0.02
        begun = time.monotonic()
        client.execute("SELECT 1")
        # a lower bound: a busy machine only adds to it
        assert time.monotonic() - begun >= 2 * proxy.delay_s
        proxy.delay_s = 0.0
