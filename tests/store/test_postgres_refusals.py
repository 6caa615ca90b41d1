"""Refusals of a connection are known by their codes, whatever language the server speaks."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from plait import open_store
from plait.errors import StoreDenied, StoreUnreachable
from tests.support import postgres_programs, private_postgres

_TLS = 80877103
_GERMAN = Path("/usr/share/locale/de/LC_MESSAGES/postgres-15.mo")


@contextmanager
def _refusing(*fields: str) -> Generator[str]:
    """The address of a server that refuses everybody with these fields of an error."""
    said = b"".join([field.encode() + b"\0" for field in fields]) + b"\0"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client, suppress(OSError):
                    while struct.unpack("!II", client.recv(4096)[:8])[1] == _TLS:
                        client.sendall(b"N")
                    client.sendall(b"E" + struct.pack("!I", len(said) + 4) + said)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"postgresql://ana@127.0.0.1:{server.getsockname()[1]}/agents"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def _fatal(state: str, text: str, routine: str = "") -> list[str]:
    told = ["SВАЖНО", "VFATAL", f"C{state}", f"M{text}", "Fauth.c", "L1"]
    return [*told, f"R{routine}"] if routine else told


@pytest.mark.parametrize(
    ("fields", "step"),
    [
        (_fatal("28P01", 'пользователь "ana" не прошёл проверку', "auth_failed"), "PGPASSWORD"),
        (_fatal("3D000", "Datenbank »agents« existiert nicht", "InitPostgres"), "create it"),
        (_fatal("3D000", "la base « role certificate » n'existe pas"), "create it"),
        (_fatal("42501", "keine Berechtigung für Datenbank »agents«"), "CONNECT"),
        (_fatal("28000", "Rolle existiert nicht", "InitializeSessionUserId"), "create the user"),
        (_fatal("28000", "kein pg_hba.conf-Eintrag", "ClientAuthentication"), "pg_hba.conf"),
        # a pooler has one code for everything, and speaks English
        (_fatal("08P01", "no such database: agents"), "create it"),
        (_fatal("08P01", "SASL authentication failed"), ""),
    ],
)
def test_a_refusal_is_known_by_its_code(
    fields: list[str], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAIT_STORE_WAIT_S", "0.2")
    with _refusing(*fields) as address:
        if not step:
            with pytest.raises(StoreUnreachable):
                open_store(address)
            return
        with pytest.raises(StoreDenied, match=step) as raised:
            open_store(address)
    assert "Nothing was written" in str(raised.value)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("57P03", "das Datenbanksystem startet"),
        ("53300", "tut mir leid, schon zu viele Verbindungen"),
        # texts that would pass for a refusal
        ("57P03", 'database "role" does not exist yet'),
    ],
)
def test_a_server_that_may_accept_later_is_waited_for(
    state: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAIT_STORE_WAIT_S", "0.2")
    with _refusing(*_fatal(state, text)) as address, pytest.raises(StoreUnreachable):
        open_store(address)


@pytest.mark.ci
def test_a_server_that_speaks_german() -> None:
    if not _GERMAN.exists() or postgres_programs(15) is None:
        pytest.skip("PostgreSQL 15 with its translations is not installed")
    with private_postgres(15, language="de", lc_messages="C.UTF-8") as server:
        server.execute("CREATE ROLE ana LOGIN PASSWORD 'right' IN ROLE with_password")
        for address, text, step in (
            (server.address_for("ana:wrong"), "fehlgeschlagen", "PGPASSWORD"),
            (server.address_for("nobody"), "existiert nicht", "create the user"),
            (server.address_for(database="none"), "existiert nicht", "create it"),
        ):
            with pytest.raises(StoreDenied, match=step) as raised:
                open_store(address)
            assert text in str(raised.value)
