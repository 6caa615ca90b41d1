"""Commands on a PostgreSQL store that cannot be used: each refusal names the setting and the next
command, nothing is written, and no password is shown.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plait import Session, migrate_store, open_store
from plait.errors import PlaitError
from plait.store import canonical_address
from plait.store.postgres.address import parse_address
from plait.store.process import STORES
from tests.cli.shell import COMMAND, Shell, shell
from tests.support import (
    ForkedProgram,
    PostgresServer,
    fresh_store,
    private_postgres,
    run_forked,
    standby_of,
    wait_until,
)

__all__ = ["shell"]

CANARY = "c4n4ry-Zx81-of-a-password"


@contextmanager
def made_role(shared_postgres: PostgresServer, *settings: str) -> Generator[str]:
    """A superuser of the test's own, with further clauses of CREATE ROLE."""
    name = f"r_{secrets.token_hex(4)}"
    shared_postgres.execute(f"CREATE ROLE {name} LOGIN SUPERUSER {' '.join(settings)}")
    try:
        yield name
    finally:
        for each in [each for each in STORES.by_address if name in each]:
            STORES.by_address.pop(each).close()
        shared_postgres.execute(f"DROP ROLE {name}")


@pytest.fixture
def address(shared_postgres: PostgresServer) -> Iterator[str]:
    with fresh_store(shared_postgres) as address:
        migrate_store(address)
        yield address


# ── refusals ─────────────────────────────────────────────────────────────────────────────────


def test_no_such_database_or_user_or_host(
    shell: Shell, address: str, shared_postgres: PostgresServer
) -> None:
    where = address.replace("/plait?", "/nowhere?")
    said = shell.error(1, "ls", "--store", where)
    assert "there is no such database" in said and "Nothing was written" in said
    assert "there is no such user" in shell.error(
        1, "ls", "--store", address.replace("postgres@", "nobody_here@")
    )
    found = shell("doctor", "--store", where, code=1)
    assert "there is no such database" in found and "create it" in found


def test_a_server_without_tls_over_a_network(shell: Shell, address: str) -> None:
    elsewhere = address.replace("127.0.0.1", "0.0.0.0")  # not known to be this machine
    said = shell.error(1, "ls", "--store", elsewhere)
    assert "TLS" in said and "sslmode=disable" in said
    shell("ls", "--store", f"{elsewhere}&sslmode=disable")
    assert "TLS" in shell.error(1, "ls", "--store", f"{elsewhere}&sslmode=prefer")


@pytest.mark.parametrize("command", ["ls", "migrate"])
def test_a_user_whose_commits_are_not_synced(
    command: str, shell: Shell, address: str, shared_postgres: PostgresServer
) -> None:
    with made_role(shared_postgres) as role:
        shared_postgres.execute(f"ALTER ROLE {role} SET synchronous_commit = off")
        where = address.replace("postgres@", f"{role}@")
        given = [where] if command == "migrate" else ["--store", where]
        said = shell.error(1, command, *given)
        assert "synchronous_commit is 'off'" in said and "ALTER ROLE" in said
        assert "disk" not in said


def test_a_database_in_another_encoding(
    shell: Shell, address: str, shared_postgres: PostgresServer
) -> None:
    name = f"latin_{secrets.token_hex(4)}"
    shared_postgres.execute(
        f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
    )
    try:
        said = shell.error(1, "migrate", address.replace("/plait?", f"/{name}?"))
        assert "LATIN1" in said and "ENCODING 'UTF8'" in said
    finally:
        shared_postgres.execute(f"DROP DATABASE {name}")


def test_a_schema_that_is_another_programs(shell: Shell, shared_postgres: PostgresServer) -> None:
    for table in ("store (a int)", "event (number int8)"):
        with fresh_store(shared_postgres) as address:
            schema = address.partition("schema=")[2]
            shared_postgres.execute(f"CREATE SCHEMA {schema}")
            shared_postgres.execute(f"CREATE TABLE {schema}.{table}")
            said = shell.error(1, "migrate", address)
            assert "?schema=NAME" in said
            shell.error(1 if table.startswith("store") else 3, "ls", "--store", address)
            shell("doctor", "--store", address, code=1)
            assert shared_postgres.execute(f"SELECT count(*) FROM {schema}.{table.split()[0]}") == [
                (0,)
            ]


def test_tables_of_a_newer_and_of_an_older_plait(
    shell: Shell, address: str, shared_postgres: PostgresServer
) -> None:
    schema = address.partition("schema=")[2]
    shared_postgres.execute(f"UPDATE {schema}.store SET migration = 99")
    said = shell.error(1, "ls", "--store", address)
    assert "has schema 99" in said and "upgrade" in said
    assert "upgrade" in shell.error(1, "migrate", address)
    assert "upgrade" in shell("doctor", "--store", address, code=1)
    shared_postgres.execute(f"UPDATE {schema}.store SET migration = 0")
    said = shell.error(3, "ls", "--store", address)
    assert f"`plait migrate '{canonical_address(address)}'`" in said


def test_a_kind_that_a_newer_writer_brought(
    shell: Shell, address: str, shared_postgres: PostgresServer
) -> None:
    """What both know is read; the rest is named."""
    name = shell.new("one", "--title", "kept", "--store", address)
    schema = address.partition("schema=")[2]
    shared_postgres.execute(f"INSERT INTO {schema}.kind VALUES (999, 'KindOfTheFuture')")
    STORES.by_address.pop(canonical_address(address)).close()
    assert name in shell("ls", "--store", address)
    shell("say", name, "goes on", "--store", address)
    assert "KindOfTheFuture" in shell("verify", "--store", address, code=6)


def test_a_standby_can_be_read_and_takes_no_writes(shell: Shell) -> None:
    with private_postgres() as primary:
        address = primary.address_for(schema="team")
        migrate_store(address)
        name = shell.new("one", "--title", "shop", "--store", address)
        with standby_of(primary) as standby:
            copy = standby.address_for(schema="team")
            assert "shop" in shell("ls", "--store", copy)
            shell("say", name, "said later", "--store", address)
            assert "said later" in shell("log", name, "--store", copy)
            assert name in shell("find", "later", "--store", copy)
            shell("verify", "--state", "--store", copy)
            for command in (["say", name, "x"], ["new", "x"], ["fact", name, "a", "b"]):
                said = shell.error(1, *command, "--store", copy)
                assert "takes no writes" in said and "primary" in said
            assert "is a standby" in shell.error(1, "migrate", copy)
            found = shell("doctor", "--store", copy)
            assert "it is a standby" in found
            assert "waits for" in shell("doctor", "--store", address)


def test_a_server_that_does_not_sync_its_disk(shell: Shell) -> None:
    with private_postgres(fsync="off") as unsafe:
        said = shell.error(1, "migrate", unsafe.address_for())
        assert "fsync is 'off'" in said and "postgresql.conf" in said


def test_the_doctor_names_who_holds_numbers_back(
    shell: Shell, address: str, shared_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plait.store.postgres import checks

    shell("doctor", "--store", address)
    monkeypatch.setattr(checks, "LONG_S", 0.0)
    with shared_postgres.connect(autocommit=False) as left:
        left.execute("SELECT pg_current_xact_id()")
        (process,) = left.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        found = shell.json("doctor", "--store", address)
        (check,) = [each for each in found["checks"] if each["name"] == "transactions"]
        assert check["status"] == "warn" and f"process {process} " in check["detail"]
        assert f"pg_terminate_backend({process})" in check["next"]
    assert found["store"]["server"]["version"].startswith("18.")
    assert not {"pragmas", "sqlite", "filesystem"} & {each["name"] for each in found["checks"]}


def test_the_doctor_knows_a_pooler(shell: Shell, pgbouncer_address: str) -> None:
    migrate_store(pgbouncer_address)
    found = shell("doctor", "--store", pgbouncer_address)
    assert "leases alone" in found


def test_a_server_that_is_away(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_STORE_WAIT_S", "0.1")
    where = "postgresql://ana@127.0.0.1:9/agents"
    for command in (["ls"], ["say", "x", "y"], ["verify"]):
        said = shell.error(75, *command, "--store", where)
        assert "PLAIT_STORE_WAIT_S" in said and "refused. Nothing was written." in said
    assert "could not be reached" in shell("doctor", "--store", where, code=1)


# ── passwords ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def role(shared_postgres: PostgresServer) -> Iterator[str]:
    with made_role(shared_postgres, f"PASSWORD '{CANARY}' IN ROLE with_password") as name:
        yield name


def test_a_password_comes_from_where_every_program_finds_it(
    shell: Shell, address: str, role: str, shared_postgres: PostgresServer, tmp_path: Path
) -> None:
    where = canonical_address(address.replace("postgres@", f"{role}@"))
    kept, services = tmp_path / "pgpass", tmp_path / "services"
    kept.write_text(f"127.0.0.1:{shared_postgres.port}:*:{role}:{CANARY}\n")
    kept.chmod(0o600)
    services.write_text(
        f"[agents]\nhost=127.0.0.1\nport={shared_postgres.port}\nuser={role}\npassword={CANARY}\n"
        "dbname=plait\n"
    )
    schema = address.partition("schema=")[2]
    service = f"postgresql:///?service=agents&schema={schema}"
    given = where.replace(f"{role}@", f"{role}:{CANARY}@")
    refused = run_forked([*COMMAND, "ls", "--store", where])
    assert refused.returncode == 1 and "PGPASSWORD" in refused.stderr
    wrong = run_forked(
        [*COMMAND, "ls"], env={**os.environ, "PLAIT_STORE": where, "PGPASSWORD": "x"}
    )
    assert wrong.returncode == 1 and "the password is wrong" in wrong.stderr
    for store, settings in (
        (where, {"PGPASSWORD": CANARY}),
        (where, {"PGPASSFILE": str(kept)}),
        (service, {"PGSERVICEFILE": str(services)}),
        (given, {}),
    ):
        env = {**os.environ, **settings, "PLAIT_STORE": store}
        done = run_forked([*COMMAND, "ls", "--json"], env=env)
        assert done.returncode == 0, done.stderr
        assert CANARY not in done.stdout + done.stderr


PROGRAM = """
import subprocess
import sys
import time
from pathlib import Path

from plait import Agent, ScriptedModel, ToolCall, Workflow, tool


@tool(effect="pure")
def look(session_text: str) -> str:
    \"\"\"Start a process, and wait until somebody looked at its arguments.\"\"\"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"]) as child:
        Path("looking").write_text(str(child.pid))
        until = time.monotonic() + 30
        while not Path("looked").exists() and time.monotonic() < until:
            time.sleep(0.01)
        child.kill()
    return "looked"


class Flow(Workflow):
    def __init__(self):
        script = ScriptedModel([ToolCall("look", session_text="x"), "Done."])
        self.agent = Agent("Do it.", model=script, tools=[look])

    def forward(self, session):
        print("in the program:", session.store)
        session = session.fact("store", session.store)
        session = self.agent(session)
        raise RuntimeError(f"{session} in {session.store}")
"""


def test_a_password_is_nowhere(
    shell: Shell, address: str, role: str, tmp_path: Path, shared_postgres: PostgresServer
) -> None:
    (tmp_path / "flow.py").write_text(PROGRAM)
    given = address.replace("postgres@", f"{role}:{CANARY}@")
    env = {**os.environ, "PLAIT_STORE": given, "PLAIT_DEBUG": "1"}
    env.pop("PLAIT_SECRETS", None)
    run = [*COMMAND, "run", "flow.py:Flow", "-i", "go"]
    heard = subprocess.PIPE
    with ForkedProgram(run, env=env, stdout=heard, stderr=heard, text=True) as running:
        wait_until(lambda: (tmp_path / "looking").exists() and (tmp_path / "looking").read_text())
        process = int((tmp_path / "looking").read_text())
        assert CANARY not in Path(f"/proc/{process}/cmdline").read_text()
        (tmp_path / "looked").touch()
        out, err = running.communicate()
    assert running.returncode == 1, err
    said = [out, err]
    for command in (
        ["ls", "--json"],
        ["show", "@", "--json"],
        ["log", "@", "--jsonl"],
        ["doctor", "--json"],
        ["runs"],
        ["verify", "--state"],
        ["resume", "@"],
        ["why", "@", "store"],
        ["migrate", given],
        ["migrate", given, "--dry-run", "--grant", "nobody_there"],
        ["ls", "--store", given],
        ["copy", given, str(tmp_path / "other"), "--json"],
        ["copy", given, given],
        ["show", "no-such-session", "--store", given],
    ):
        done = run_forked([*COMMAND, *command], env=env)
        said += [done.stdout, done.stderr]
    assert not [text for text in said if CANARY in text]
    store = open_store(given)
    session = next(iter(Session.list(store=store)))
    assert CANARY not in f"{store!r} {session!r} {session.store} {store.describe()}"
    with pytest.raises(PlaitError) as raised:
        store.get_blob("0" * 64)  # pyright: ignore[reportArgumentType]
    assert CANARY not in str(raised.value)
    # other tests make and drop schemas beside this one
    chosen = ["-n", parse_address(address).schema, "-d", shared_postgres.address]
    dump = shared_postgres.command("pg_dump", *chosen)
    assert session.id.replace("-", "") in dump
    assert CANARY not in dump and CANARY.encode().hex() not in dump
    assert not [event for _, event in store.feed() if CANARY.encode() in event.raw + event.content]
