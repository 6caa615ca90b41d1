"""Addresses of PostgreSQL stores: their spelling, what is refused, and where passwords stay."""

from __future__ import annotations

import builtins
import importlib.util
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plait import Session, open_store
from plait.errors import (
    BadAddress,
    BadSettings,
    MissingExtra,
    PlaitError,
    StoreDenied,
    StoreUnreachable,
    StoreUnsafe,
)
from plait.store import canonical_address, shared_names
from plait.store.postgres.address import PASSWORDS, parse_address, without_password

CANARY = "c4n4ry-Zx81-of-a-password"
PLACE = "postgresql://ana@db.example:5432/agents"


@pytest.mark.parametrize(
    "spelled",
    [
        PLACE,
        "postgres://ana@db.example:5432/agents",
        f"postgresql://ana:{CANARY}@db.example:5432/agents",
        f"postgresql://ana@db.example:5432/agents?password={CANARY}",
        "postgresql://ana@db.example:5432/agents?schema=plait",
    ],
)
def test_one_spelling_without_a_password(spelled: str) -> None:
    assert canonical_address(spelled) == PLACE
    assert canonical_address(canonical_address(spelled)) == PLACE


def test_a_password_is_kept_for_the_driver() -> None:
    parse_address(f"postgresql://ana:{CANARY}%2F1@db.example/kept")
    assert PASSWORDS.find("postgresql://ana@db.example/kept") == f"{CANARY}/1"
    assert PASSWORDS.find("postgresql://ana@db.example/other") is None


def test_a_password_that_stands_in_the_address_hides_nothing() -> None:
    """Every text with the address would be hidden, too."""
    where = canonical_address("postgresql://shop2026:shop2026@db.example/shop2026")
    session = Session("Look.", store="memory:no-secret").fact("db", where)
    assert session.facts["db"] == where


def test_a_schema_is_a_store_of_its_own() -> None:
    one, two = f"{PLACE}?schema=team-a", f"{PLACE}?schema=team-b"
    assert canonical_address(one) == one != canonical_address(two)
    assert shared_names(one) != shared_names(two)
    # who uses the store makes no other store of it
    assert shared_names(one) == shared_names(one.replace("ana@", "ben@"))


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("postgresql://ana@db/agents\n", "blanks or line breaks"),
        ("postgresql://ana@db/a\nb", "blanks or line breaks"),
        (" postgresql://ana@db/agents", "blanks or line breaks"),
        ("postgresql:ana@db/agents", "is not like"),
        ("postgresql://ana@db/agents#x", "is not like"),
        ("postgresql://ana@db:one/agents", "port is not a number"),
        ("postgresql://ana@db:99999/agents", "port is not a number"),
        ("postgresql://ana@db:5432,other:x/agents", "port is not a number"),
        ("postgresql://ana@/agents?host=db&port=x", "port is not a number"),
        ("postgresql://ana@db/agents?connect_timeout=soon", "connect_timeout is not a number"),
        ("postgresql://ana@db/agents?schema=a&schema=b", "twice"),
        ("postgresql://ana@db/agents?options=-cfsync%3Doff", "'options'"),
        ("postgresql://ana@db/agents?colour=red", "'colour'"),
        ("postgresql://ana@db/agents?schema", "cannot be read"),
        ("postgresql://ana@db/agents?schema=a.b", "'a.b'"),
        ("postgresql://ana@db/agents?schema=pg_own", "'pg_own'"),
        ("postgresql://ana@db/agents?blobs=ftp://x", "s3://bucket"),
        ("postgresql://ana@db/a/b", "without a slash"),
        ("postgresql://[::1/agents", "cannot be read"),
        ("postgresql+psycopg://ana@db/agents", "no store is known for the scheme"),
    ],
)
def test_addresses_that_name_no_store(address: str, why: str) -> None:
    with pytest.raises(BadAddress, match=why):
        canonical_address(address)


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://ana:{CANARY}@db:x/agents",
        f"postgresql://ana:{CANARY}@db/a/b",
        f"postgresql://ana:{CANARY}/x@db/agents",
        f"postgresql://ana:{CANARY}?x@db/agents",
        f"postgresql://ana:{CANARY}#x@db/agents",
        f"postgresql://ana:{CANARY}@x@db/agents?colour=red",
        f"postgresql://ana@corp:{CANARY}@db/agents?colour=red",
        f"postgresql://ana:{CANARY}",
        f"postgresql://ana:{CANARY}\n@db/agents",
        f" postgresql://ana:{CANARY}@db/agents",
        f"POSTGRESQL://ana:{CANARY}@db/agents?colour=red",
        f"postgresql:/ana:{CANARY}@db/agents",
        f"postgresql+psycopg://ana:{CANARY}@db/agents",
        f"mysql://ana:{CANARY}@db/agents",
        f"postgresql://ana@db/agents?colour=red&password={CANARY}",
        f"postgresql://ana:{CANARY}@db/agents\0",
    ],
)
def test_an_error_about_an_address_has_no_password(address: str) -> None:
    with pytest.raises(BadAddress) as raised:
        canonical_address(address)
    assert CANARY not in "".join(traceback.format_exception(raised.value))
    assert CANARY not in without_password(address)


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("postgresql://ana@db.example/agents", "require"),
        ("postgresql://ana@10.0.0.7,localhost/agents", "require"),
        ("postgresql://ana@db.example/agents?sslmode=disable", "disable"),
        ("postgresql://ana@db.example/agents?sslmode=verify-full", "verify-full"),
        ("postgresql://ana@localhost/agents?hostaddr=10.0.0.7", "require"),
        ("postgresql://ana@localhost:5433/agents", None),
        ("postgresql://ana@127.0.0.1/agents", None),
        ("postgresql://ana@[::1]:5432/agents", None),
        ("postgresql://ana@/agents?host=/run/postgresql", None),
        ("postgresql:///agents", None),
    ],
)
def test_tls_is_required_over_a_network(
    address: str, mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    said = parse_address(address).driver_address
    assert ("sslmode=" in said) == (mode is not None)
    assert mode is None or f"sslmode={mode}" in said


def test_the_host_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    assert "sslmode=require" in parse_address("postgresql:///agents").driver_address


class _Line:
    """A connection that is made, as far as encryption goes."""

    def __init__(self, host: str, encrypted: bool = False, **said: str) -> None:
        self.host, self.ssl_in_use = host.encode(), encrypted
        self.info = [SimpleNamespace(keyword=k.encode(), val=v.encode()) for k, v in said.items()]


def test_a_connection_over_a_network_is_encrypted_or_refused() -> None:
    """A service file may name any host, and sslmode=prefer is no promise."""
    from plait.store.postgres.faults import check_encryption

    for line in (
        _Line("db.example", encrypted=True, sslmode="prefer"),
        _Line("localhost", sslmode="prefer"),
        _Line("/run/postgresql", sslmode="prefer"),
        _Line("db.example", sslmode="disable"),
    ):
        check_encryption(PLACE, line)  # pyright: ignore[reportArgumentType]
    for mode in ("prefer", "allow"):
        with pytest.raises(StoreDenied, match="sslmode=disable"):
            check_encryption(PLACE, _Line("db.example", sslmode=mode))  # pyright: ignore[reportArgumentType]


def _server(version: int = 180_000, **settings: str) -> None:
    from plait.store.postgres.connections import ServerFacts
    from plait.store.postgres.faults import check_server

    said = {"synchronous_commit": "on", "fsync": "on", "encoding": "UTF8"} | settings
    facts = ServerFacts(
        version,
        said["encoding"],
        said["synchronous_commit"],
        said["fsync"],
        is_standby=False,
        is_read_only=False,
        is_pooled=False,
        identity=7,
    )
    check_server(PLACE, version, facts.encoding, facts)


def test_a_server_that_cannot_be_relied_on_is_refused() -> None:
    _server()
    _server(150_000, synchronous_commit="remote_apply")
    with pytest.raises(StoreDenied, match="PostgreSQL 15 or newer"):
        _server(140_009)
    with pytest.raises(StoreDenied, match="ENCODING 'UTF8'"):
        _server(encoding="LATIN1")
    for level in ("off", "local", "remote_write"):
        with pytest.raises(StoreUnsafe, match="ALTER ROLE"):
            _server(synchronous_commit=level)
    with pytest.raises(StoreUnsafe, match="postgresql.conf"):
        _server(fsync="off")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('FATAL:  password authentication failed for user "ana"', "PGPASSWORD"),
        ("connection failed: fe_sendauth: no password supplied", "PGPASSWORD"),
        ('FATAL:  database "agents" does not exist', "create it"),
        ('FATAL:  permission denied for database "agents"', "CONNECT"),
        ('FATAL:  role "ana" does not exist', "create the user"),
        ("FATAL:  no pg_hba.conf entry for host", "pg_hba.conf"),
        ("server does not support SSL, but SSL was required", "sslmode=disable"),
        ('definition of service "x" not found', "service file"),
        ('could not translate host name "db"', "check the host"),
        ('invalid sslmode value: "x"', "correct the parameter"),
    ],
)
def test_a_refusal_names_the_next_step(text: str, why: str) -> None:
    from psycopg import OperationalError

    from plait.store.postgres.faults import refused_connection

    refused = refused_connection(PLACE, OperationalError(text), None)
    assert isinstance(refused, StoreDenied) and why in str(refused)
    assert "Nothing was written" in str(refused)


def test_the_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def find_spec(name: str, *rest: Any) -> Any:
        return None if name == "psycopg" else found(name, *rest)

    monkeypatch.setattr("plait.store.postgres.address.find_spec", find_spec)
    with pytest.raises(MissingExtra, match=r"plait\[postgres\]"):
        open_store("postgresql://ana@127.0.0.1:9/agents")


def test_the_driver_is_not_loaded_by_other_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        assert not name.startswith("psycopg")
        return load(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    Session("hello", store=open_store("memory:no-driver"))
    assert canonical_address(PLACE) == PLACE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PLAIT_STORE_WAIT_S", "soon"),
        ("PLAIT_STORE_WAIT_S", "-1"),
        ("PLAIT_STORE_WAIT_S", "nan"),
        ("PLAIT_STORE_CONNECTIONS", "0"),
        ("PLAIT_STORE_CONNECTIONS", "many"),
    ],
)
def test_settings_that_are_no_numbers(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BadSettings, match=name):
        open_store("postgresql://ana@127.0.0.1:9/agents")


def test_a_server_that_is_away_is_waited_for_as_long_as_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLAIT_STORE_WAIT_S", "0.1")
    address = f"postgresql://ana:{CANARY}@127.0.0.1:9/agents"
    with pytest.raises(StoreUnreachable, match="PLAIT_STORE_WAIT_S") as raised:
        open_store(address)
    assert CANARY not in "".join(traceback.format_exception(raised.value))
    assert isinstance(raised.value, PlaitError)


def test_settings_stand_in_the_current_folder_if_the_store_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plait.model.settings import default_model

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLAIT_MODEL", raising=False)
    monkeypatch.delenv("PLAIT_SETTINGS", raising=False)
    monkeypatch.setenv("PLAIT_STORE", PLACE)
    assert default_model()[0] is None
    (tmp_path / "plait.toml").write_text('model = "ollama:qwen3"\n')
    assert default_model()[0] == "ollama:qwen3"
