"""`plait migrate`, and the users of a server: one that migrates, one that runs agents, one that
looks.
"""

from __future__ import annotations

import importlib
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from plait import open_store
from plait.errors import StoreDenied, StoreReadOnly
from plait.session import SessionRows
from plait.store import Projection, canonical_address
from plait.store.process import STORES
from tests.cli.shell import Shell, shell
from tests.support import PostgresServer, fresh_store

__all__ = ["shell"]

ROWS = """
from plait.store import Table


class Facts:
    name, version = "own_facts", 1
    kinds = frozenset({"FactRecorded"})
    tables = (Table("fact", key=("log", "key"), columns={"log": "text", "key": "text"}),)

    def apply(self, rows, number, event):
        rows.put("fact", {"log": event.log, "key": event.body.key})


several = [Facts()]
number = 7
"""


class Users(NamedTuple):
    """Addresses of one store, for users with different rights."""

    admin: str
    agents: str
    reader: str
    nobody: str

    @property
    def names(self) -> dict[str, str]:
        return {
            part: canonical_address(each).split("//")[1].split("@")[0]
            for part, each in self._asdict().items()
        }


@pytest.fixture
def users(shared_postgres: PostgresServer) -> Iterator[Users]:
    """Users of one schema that is not made yet; only the first may make it."""
    tail = secrets.token_hex(4)
    names = [f"{part}_{tail}" for part in Users._fields]
    with fresh_store(shared_postgres) as address:
        for name in names:
            shared_postgres.execute(f"CREATE ROLE {name} LOGIN")
        shared_postgres.execute(f"GRANT CREATE ON DATABASE plait TO {names[0]}")
        try:
            yield Users(*[address.replace("postgres@", f"{name}@") for name in names])
        finally:
            for each in list(STORES.by_address):
                if tail in each:
                    STORES.by_address.pop(each).close()
            for name in names:
                shared_postgres.execute(f"DROP OWNED BY {name} CASCADE")
                shared_postgres.execute(f"DROP ROLE {name}")


@pytest.fixture
def migrated(users: Users, shell: Shell) -> Users:
    names = users.names
    shell("migrate", users.admin, "--grant", names["agents"], "--grant-read", names["reader"])
    return users


def test_a_store_in_a_folder_needs_no_migration(shell: Shell) -> None:
    assert "nothing to do" in shell("migrate")
    assert "nothing to do" in shell("migrate", str(shell.folder), "--dry-run")
    assert shell.json("migrate", str(shell.folder))["needs_migration"] is False
    assert not shell.folder.exists()


def test_migrate_prints_the_sql_and_makes_the_tables_once(users: Users, shell: Shell) -> None:
    sql = shell("migrate", users.admin, "--dry-run")
    assert sql.startswith("CREATE SCHEMA ") and "CREATE TABLE" in sql and "p_session_" in sql
    assert "has no tables" in shell.error(3, "ls", "--store", users.admin)
    assert "version 3" in shell("migrate", users.admin)
    assert "the latest" in shell("migrate", users.admin)
    again = shell.json("migrate", users.admin)
    assert (again["before"], again["after"], again["statements"]) == (3, 3, [])
    assert "there is a store already" in shell("init", "--store", users.admin)


def test_init_names_the_command_that_makes_the_tables(users: Users, shell: Shell) -> None:
    said = shell.error(3, "init", "--store", users.agents)
    assert f"`plait migrate '{canonical_address(users.agents)}'`" in said  # as a shell takes it
    # this user may not make a schema
    assert "may not do it" in shell.error(1, "migrate", users.agents)
    assert "there is no user 'nobody_there'" in shell.error(
        1, "migrate", users.admin, "--grant", "nobody_there"
    )
    assert "has no tables" in shell.error(3, "ls", "--store", users.admin)


def test_a_user_that_runs_agents_needs_no_right_to_create(
    migrated: Users, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "cart.py").write_text("x = 1\n")
    where = ("--store", migrated.agents)
    name = shell.new("one", "--title", "shop", *where)
    shell("say", name, "more", *where)
    shell("fact", name, "colour", "red", *where)
    shell("fork", name, "other", *where)
    shell("to", name, "local", str(tmp_path / "work"), *where)
    assert "cart.py" in shell("files", name, *where)
    for command in (
        ["ls"],
        ["runs"],
        ["show", name],
        ["log", name],
        ["find", "more"],
        ["why", name, "colour"],
        ["verify", "--state"],
        ["gc"],
        ["cost"],
        ["memory", "ls"],
        ["inbox"],
        ["doctor"],
    ):
        shell(*command, *where)
    assert "may run agents" in shell("doctor", *where)


def test_a_user_that_looks_sees_what_is_new_and_writes_nothing(
    migrated: Users, shell: Shell
) -> None:
    reads = ("--store", migrated.reader)
    assert shell.json("ls", *reads)["sessions"] == []  # opened before the first writer
    name = shell.new("one", "--title", "shop", "--store", migrated.agents)
    shell("fact", name, "colour", "red", "--store", migrated.agents)
    (row,) = shell.json("ls", *reads)["sessions"]
    assert row["title"] == "shop"
    for command in (
        ["show", name],
        ["log", name],
        ["find", "one"],
        ["why", name, "colour"],
        ["verify", "--state"],
        ["cost"],
        ["memory", "ls"],
        ["doctor"],
    ):
        shell(*command, *reads)
    assert "may look, and not write" in shell("doctor", *reads)
    before = open_store(migrated.agents).number
    assert "may not do it" in shell.error(1, "say", name, "x", *reads)
    assert "may not do it" in shell.error(1, "new", "x", *reads)
    with pytest.raises(StoreDenied, match="--grant"):
        open_store(migrated.reader).put_blob(b"x")
    assert open_store(migrated.agents).number == before


def test_a_user_without_rights_is_told(migrated: Users, shell: Shell) -> None:
    said = shell.error(1, "ls", "--store", migrated.nobody)
    assert "may not do it" in said and "--grant" in said
    said = shell("doctor", "--store", migrated.nobody, code=1)
    assert "may not read the tables" in said


def test_a_user_whose_transactions_only_read(
    migrated: Users, shell: Shell, shared_postgres: PostgresServer
) -> None:
    name = shell.new("one", "--store", migrated.agents)
    shared_postgres.execute(
        f"ALTER ROLE {migrated.names['nobody']} SET default_transaction_read_only = on"
    )
    shared_postgres.execute(f"GRANT {migrated.names['agents']} TO {migrated.names['nobody']}")
    where = ("--store", migrated.nobody)
    assert name in shell("ls", *where)
    assert "takes no writes" in shell.error(1, "say", name, "x", *where)
    with pytest.raises(StoreReadOnly):
        open_store(migrated.nobody).put_blob(b"x")
    assert "default_transaction_read_only" in shell("doctor", *where)


def test_a_plain_user_is_told_who_holds_numbers_back(
    migrated: Users, shell: Shell, shared_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plait.store.postgres import inspect

    monkeypatch.setattr(inspect, "LASTING_S", 0.0)
    with shared_postgres.connect(autocommit=False) as left:
        left.execute("SELECT pg_current_xact_id()")
        (process,) = left.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        said = shell("doctor", "--store", migrated.agents)
    assert f"process {process} (postgres), its age needs" in said


def test_rows_of_a_newer_plait_need_their_tables(
    migrated: Users, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables of a projection are of one version: an upgrade of Plait may bring others."""
    name = shell.new("one", "--store", migrated.agents)
    STORES.by_address.pop(canonical_address(migrated.agents)).close()
    monkeypatch.setattr(SessionRows, "version", SessionRows.version + 1)
    said = shell.error(1, "ls", "--store", migrated.agents)
    assert f"`plait migrate '{canonical_address(migrated.agents)}'`" in said
    found = shell("doctor", "--store", migrated.agents, code=1)
    assert "have no tables yet" in found
    shell("migrate", migrated.admin)  # users keep the rights that they were given once
    assert name in shell("ls", "--store", migrated.agents)
    shell("doctor", "--store", migrated.agents)


def test_rows_of_ones_own_need_their_tables(
    migrated: Users, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_rows.py").write_text(ROWS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    facts: Projection = importlib.import_module("own_rows").Facts()
    with pytest.raises(StoreDenied, match=r"plait migrate .*--projections FILE\.py:NAME"):
        open_store(migrated.agents, projections=[facts])
    assert "not a projection" in shell.error(
        2, "migrate", migrated.admin, "--projections", "own_rows.py:number"
    )
    for target in ("own_rows.py:Facts", "own_rows.py:several"):
        shell("migrate", migrated.admin, "--projections", target)
    name = shell.new("one", "--store", migrated.agents)
    shell("fact", name, "colour", "red", "--store", migrated.agents)
    for user in (migrated.agents, migrated.reader):
        store = open_store(user, projections=[facts])
        assert [row["key"] for row in store.rows("own_facts", "fact")] == ["colour"]
    shell("verify", "--state", "--store", migrated.agents)
