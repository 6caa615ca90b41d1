"""Tests on PostgreSQL that know nothing of it: each address of theirs stands for a schema.

While a redirection is in force, `memory:NAME` and every folder is the address of a PostgreSQL store
which is made when it is opened, as stores in memory and folders are. So a test that opens a store
by any of these addresses, or by none, runs on PostgreSQL as it stands, and the programs that it
starts do.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import pytest

import plait.store
from plait.ids import Source
from plait.store import Projection, Store, find_open
from plait.store.postgres.address import is_postgres
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.schemas import SchemaPool, schema_pool

if TYPE_CHECKING:
    from plait.event import Event

_VARIABLE = "PLAIT_TEST_SCHEMAS"
"""For child processes: the beginning of the names of the test's schemas."""
_VERSION = int(os.environ.get("PLAIT_TEST_POSTGRES") or 18)
_SETTLE_S = 30.0
_NUMBERS = count(1)
_canonical_address, _store_exists, _make_store = (
    plait.store.canonical_address,
    plait.store.store_exists,
    vars(plait.store)["_make_store"],
)


@dataclass
class _Redirection:
    """What addresses mean now."""

    prefix: str = ""  # of the schemas of the test at hand; "": addresses mean what they say


_NOW = _Redirection()


def _pool() -> SchemaPool:
    """The schemas that this process has made."""
    return schema_pool(_server())


@cache
def _server() -> PostgresServer:
    """The server that tests are redirected to."""
    return postgres_server(_VERSION)


def _schema_in(address: str) -> str:
    """The schema that a canonical address names, if it stands for another address."""
    schema = address.rpartition("?schema=")[2]
    return schema if _NOW.prefix and schema.startswith(_NOW.prefix) else ""


def _redirected_address(address: str) -> str:
    """`canonical_address`, redirected."""
    plain = _canonical_address(address)
    if not _NOW.prefix or is_postgres(plain):
        return plain
    name = hashlib.sha256(plain.encode()).hexdigest()[:10]
    return _server().address_for(schema=f"{_NOW.prefix}{name}")


def _redirected_exists(address: str) -> bool:
    """`store_exists`, redirected."""
    schema = _schema_in(address)
    if not schema or find_open(address) is not None:
        return _store_exists(address)
    return _pool().exists(schema)


def _redirected_store(address: str, source: Source, projections: Sequence[Projection]) -> Store:
    """Open a store; one that stands for another address is made first."""
    if schema := _schema_in(address):
        _pool().make(schema)
        return _quiet_store(address, source, projections)
    return _make_store(address, source, projections)


def _quiet_store(address: str, source: Source, projections: Sequence[Projection]) -> Store:
    """A store that answers when all events are settled that can be seen.

    Tests share a server, and a transaction of another test holds the settled number back.
    """
    from plait.store.postgres.store import PostgresStore

    class QuietPostgres(PostgresStore):
        def feed(
            self,
            after: int = 0,
            *,
            kinds: Collection[str] | None = None,
            limit: int | None = None,
            reverse: bool = False,
        ) -> Iterator[tuple[int, Event]]:
            if not reverse:
                _ = self.number
            return super().feed(after, kinds=kinds, limit=limit, reverse=reverse)

        @property
        def number(self) -> int:
            newest = next((number for number, _ in self.feed(limit=1, reverse=True)), 0)
            end = time.monotonic() + _SETTLE_S
            while (number := super().number) < newest and time.monotonic() < end:
                time.sleep(0.002)
            return number

    return QuietPostgres(address, source=source, projections=projections)


def install_redirection() -> None:
    """Have addresses be looked at, from now on; in a child process, go on as its parent does."""
    _NOW.prefix = os.environ.get(_VARIABLE, "")
    changed = {
        "canonical_address": (_canonical_address, _redirected_address),
        "store_exists": (_store_exists, _redirected_exists),
        "_make_store": (_make_store, _redirected_store),
    }
    for module in [each for name, each in sys.modules.items() if name.startswith("plait")]:
        for name, (plain, redirected) in changed.items():
            if vars(module).get(name) is plain:
                setattr(module, name, redirected)


@contextmanager
def on_postgres() -> Generator[None]:
    """Redirect all addresses to schemas, which are emptied afterwards."""
    prefix = f"t{os.getpid()}_{next(_NUMBERS)}_"
    with (
        # the next test has stores with the same ids, and no files in common
        tempfile.TemporaryDirectory(prefix="plait-cache-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(_NOW, "prefix", prefix)
        patch.setenv(_VARIABLE, prefix)
        patch.setenv("XDG_CACHE_HOME", folder)
        yield
    _pool().give_back(prefix)
