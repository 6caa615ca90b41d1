"""Errors of the server and of the driver, as errors of ours.

Three questions decide: is the connection lost, so that the work is repeated on another one; did two
transactions collide, so that it is repeated at once; else which sentence tells a person what to do.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

import psycopg
from psycopg import pq

from plait.errors import (
    DiskFull,
    OutcomeUnknown,
    PlaitError,
    StoreBusy,
    StoreCorrupt,
    StoreDenied,
    StoreFailed,
    StoreReadOnly,
    StoreUnsafe,
)
from plait.store.postgres.address import is_local_host
from plait.store.postgres.refusals import ConnectRefusal

VERSION_MIN = 150_000

_AWAY = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "53300"})
_COLLISION = frozenset({"40001", "40P01", "55P03"})
_DISK_FULL = frozenset({"53100"})
_CORRUPT = frozenset({"XX001", "XX002"})
_READ_ONLY = frozenset({"25006"})
_ENDS = frozenset({"FATAL", "PANIC"})  # severities with which a connection ends
_NOT_SAFE = frozenset({"off", "local", "remote_write"})

_LOG = "look into the log of the server"


class Denial(NamedTuple):
    """A lasting refusal of a connection: the codes of the server for it, the texts of the driver
    or of a pooler, and the sentences for people.
    """

    codes: tuple[str, ...]  # the state of the error; or the state and the routine
    texts: str
    why: str
    step: str


_NO_TLS = Denial(
    (),
    r"server does not support SSL|SSL is not enabled|SSL was required",
    "it does not speak TLS, which is required over a network",
    "switch TLS on in the server, or add sslmode=disable to the address if the network is safe",
)
# Servers speak in their own language: their texts are not looked at. Drivers and poolers speak
# English, and have no codes.
_DENIALS = (
    Denial(
        ("28P01",),
        r"password authentication failed|no password supplied|SCRAM|fe_sendauth",
        "the user or the password is wrong",
        "give the password with PGPASSWORD, a password file or the address",
    ),
    Denial(
        ("3D000",),
        r"database .* does not exist|no such database",
        "there is no such database",
        "create it, or name another one in the address",
    ),
    Denial(
        ("28000/InitializeSessionUserId",),
        r"role .* does not exist|no such user|is not permitted to log in",
        "there is no such user, or it may not log in",
        "create the user with the right LOGIN, or name another one",
    ),
    Denial(
        ("42501",),
        r"permission denied for database",
        "this user may not connect to it",
        "have the user given the right CONNECT, or name another one",
    ),
    Denial(
        ("28000",),
        r"no pg_hba.conf entry|pg_hba.conf rejects",
        "the server does not let this user in from here",
        "add a line to its pg_hba.conf",
    ),
    _NO_TLS,
    Denial(
        (),
        r"certificate|SSL error",
        "the TLS connection failed",
        "check the certificates, and sslmode",
    ),
    Denial(
        (),
        r"invalid \w+ value|invalid value for|invalid connection option|invalid integer value",
        "a parameter of the address has a value that the driver does not know",
        "correct the parameter",
    ),
    Denial(
        (),
        r"service .* not found|service file",
        "there is no such service",
        "name one of your service file",
    ),
    Denial(
        (),
        r"could not translate host name|Name or service not known",
        "the host is not known",
        "check the host in the address",
    ),
)
_POOLER = "08P01"  # poolers refuse with it, whatever the reason


class SafetySettings(Protocol):
    """The settings of a server that the store relies on."""

    @property
    def synchronous_commit(self) -> str: ...
    @property
    def fsync(self) -> str: ...


def is_lost(error: psycopg.Error) -> bool:
    """True if the connection broke, or the server ended it: the work may be repeated.

    A server whose own log has no room goes down with the code of a full disk. That is the end of
    the connection, and nothing is known about the work.
    """
    state = error.sqlstate
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    if error.diag.severity_nonlocalized in _ENDS:
        return True
    return state in _AWAY or state.startswith("08")


def is_collision(error: psycopg.Error) -> bool:
    """True if the server undid the work because of another transaction."""
    return error.sqlstate in _COLLISION


def refused_connection(
    address: str, error: psycopg.Error, refusal: ConnectRefusal | None
) -> StoreDenied | None:
    """Return the error for a connection that failed. None: the server may answer later."""
    denial = _by_text(str(error)) if refusal is None else _by_code(refusal, str(error))
    if denial is None:
        return None
    return StoreDenied(address, f"{denial.why} ({_first_line(error)})", denial.step)


def _by_text(text: str) -> Denial | None:
    return next((each for each in _DENIALS if re.search(each.texts, text)), None)


def _by_code(refusal: ConnectRefusal, text: str) -> Denial | None:
    if refusal.state == _POOLER:
        return _by_text(text)
    for code in (f"{refusal.state}/{refusal.routine}", refusal.state):
        for each in _DENIALS:
            if code in each.codes:
                return each
    return None


def refused_statement(address: str, error: psycopg.Error) -> PlaitError:
    state = error.sqlstate or ""
    why = _first_line(error)
    if state in _COLLISION:
        return StoreBusy(address, 0, f"had too many transactions that collide ({why})")
    if state in _READ_ONLY:
        return StoreReadOnly(address, why)
    if state == "42501":
        step = "ask for the rights that `plait migrate --grant USER` gives"
        return StoreDenied(address, f"this user may not do it ({why})", step)
    if state in _DISK_FULL:
        return DiskFull(address)
    if state in _CORRUPT:
        return StoreCorrupt(address, why)
    return StoreFailed(address, why, _LOG)


def unknown_outcome(address: str, error: psycopg.Error) -> PlaitError:
    """Return the error for work that was cut off, and then refused when it was repeated."""
    return OutcomeUnknown(address, f"the connection broke, and then {_first_line(error)}")


def check_encryption(address: str, connection: pq.abc.PGconn) -> None:
    """Raise if a network lies between this process and the server, and what is sent is not
    encrypted, unless the address or its service says sslmode=disable.
    """
    if connection.ssl_in_use or is_local_host(connection.host.decode(errors="replace")):
        return
    said = {option.keyword: option.val for option in connection.info}
    if said.get(b"sslmode") != b"disable" and said.get(b"gssencmode") != b"require":
        raise StoreDenied(address, _NO_TLS.why, _NO_TLS.step)


def check_server(address: str, version: int, encoding: str, settings: SafetySettings) -> None:
    """Raise unless the server keeps what the store promises."""
    if version < VERSION_MIN:
        why = f"the server is PostgreSQL {version // 10_000}"
        raise StoreDenied(address, why, "upgrade it: PostgreSQL 15 or newer is needed")
    if encoding != "UTF8":
        step = "create a database with ENCODING 'UTF8', and use that"
        raise StoreDenied(address, f"the database is encoded in {encoding}", step)
    if settings.synchronous_commit in _NOT_SAFE:
        step = "Set it for the server, and for this user: ALTER ROLE … SET synchronous_commit = on"
        raise StoreUnsafe(address, "synchronous_commit", "on", settings.synchronous_commit, step)
    if settings.fsync != "on":
        step = "Set it in postgresql.conf, and restart the server"
        raise StoreUnsafe(address, "fsync", "on", settings.fsync, step)


def read_only_reason(is_standby: bool) -> str:
    return "the server is a standby" if is_standby else "default_transaction_read_only is on"


def _first_line(error: psycopg.Error) -> str:
    text = error.diag.message_primary or str(error)
    return " ".join(text.split())[:300]
