"""Stores: where events and blobs live, found by address."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plait.errors import BadAddress
from plait.ids import Source
from plait.store.ancestors import ancestry
from plait.store.arguments import check_durability
from plait.store.base import (
    BlobInfo,
    Durability,
    HeadsQuestion,
    Log,
    LogAppend,
    Store,
    StoredRecord,
    Unchecked,
)
from plait.store.epochs import Fence, ReadMark, TipsMark
from plait.store.lineage import LineageSpan
from plait.store.memory import MemoryStore
from plait.store.moment import Bell, Notice, RunLock, SeenRun
from plait.store.postgres.address import (
    check_driver,
    is_postgres,
    parse_address,
    without_password,
)
from plait.store.process import STORES
from plait.store.projection import Projection, Row, Rows, Scalar, Table, Wanted
from plait.store.search import Found, FoundRow, Region
from plait.store.sqlite import FILE, SqliteStore
from plait.store.trust import check_folder, folders_upward
from plait.store.verify import StoreFault, verify_log, verify_store
from plait.store.visible import NUMBER_MAX, read_mark, visible_count, visible_events

if TYPE_CHECKING:
    from plait.store.postgres.migrate import Migrated

__all__ = [
    "Bell",
    "BlobInfo",
    "Durability",
    "StoreFault",
    "Fence",
    "Found",
    "FoundRow",
    "HeadsQuestion",
    "LineageSpan",
    "Log",
    "LogAppend",
    "MemoryStore",
    "NUMBER_MAX",
    "Notice",
    "Projection",
    "ReadMark",
    "StoredRecord",
    "Region",
    "Row",
    "Rows",
    "RunLock",
    "SeenRun",
    "Scalar",
    "SqliteStore",
    "Store",
    "Table",
    "TipsMark",
    "Unchecked",
    "Wanted",
    "ancestry",
    "canonical_address",
    "check_durability",
    "check_folder",
    "store_exists",
    "folder_of",
    "locate",
    "migrate_at",
    "open_at",
    "find_open",
    "inspect_at",
    "read_mark",
    "shared_names",
    "verify_log",
    "verify_store",
    "visible_count",
    "visible_events",
]

FOLDER = ".plait"


def open_at(
    address: str,
    *,
    source: Source,
    projections: Sequence[Projection] = (),
    durability: Literal["full", "async"] | None = None,
) -> Store:
    """Return the store at an address. It is opened once per process: a session holds the address,
    never the store.
    """
    check_durability(durability)
    address = canonical_address(address)
    with STORES.opening:
        store = STORES.by_address.get(address)
        if store is not None and not store.is_closed:
            store.attach(projections)
        else:
            store = _make_store(address, source, projections)
            STORES.by_address[address] = store
        if durability is not None:
            store.set_durability(durability)
        return store


def _make_store(address: str, source: Source, projections: Sequence[Projection]) -> Store:
    scheme, _, rest = address.partition(":")
    if scheme == "memory":
        return MemoryStore(rest, source=source, projections=projections)
    if scheme == "sqlite":
        return SqliteStore(rest, source=source, projections=projections)
    check_driver()
    # the driver is loaded by those who use it, and by no others
    from plait.store.postgres.store import PostgresStore

    return PostgresStore(address, source=source, projections=projections)


def migrate_at(
    address: str,
    *,
    source: Source,
    projections: Sequence[Projection] = (),
    grant: Sequence[str] = (),
    grant_read: Sequence[str] = (),
    dry_run: bool = False,
) -> Migrated | None:
    """Make or upgrade the tables of a store that a server keeps. None: this store needs no
    migration, and was not touched.
    """
    address = canonical_address(address)
    if not is_postgres(address):
        return None
    check_driver()
    from plait.store.postgres.migrate import migrate

    return migrate(
        parse_address(address),
        source=source,
        projections=projections,
        grant=grant,
        grant_read=grant_read,
        dry_run=dry_run,
    )


def inspect_at(address: str, *, source: Source) -> dict[str, Any]:
    """Return facts about a store that a server keeps, and about the server; only reads."""
    check_driver()
    from plait.store.postgres.inspect import inspect_server

    return inspect_server(address, source)


def find_open(address: str) -> Store | None:
    """Return the store at a canonical address if this process has it open.

    Every append of a session asks this first.
    """
    store = STORES.by_address.get(address)
    if store is None or (
        store.is_closed_lately if isinstance(store, SqliteStore) else store.is_closed
    ):
        return None
    return store


def store_exists(address: str) -> bool:
    """True if a store was ever made at a canonical address, or only its server can tell.

    An empty file is none yet: opening it would make one.
    """
    scheme, _, rest = address.partition(":")
    if scheme == "memory" or find_open(address) is not None or is_postgres(address):
        return True  # a server tells by itself that there is no store
    path = os.path.join(rest, FILE)
    try:
        return os.lstat(path).st_size > 0 or os.path.lexists(f"{path}-wal")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # other obstacles are for the store to report
        return True


def canonical_address(address: str) -> str:
    """The one spelling of an address: `memory:NAME`, `sqlite:` and the folder's real path, or
    `postgresql://user@host/database` without a password.
    """
    if not isinstance(address, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise BadAddress(repr(address), "it is neither a text nor a path")
    scheme, colon, rest = address.partition(":")
    shown = without_password(address)
    if not address or "\0" in address:
        raise BadAddress(shown, "it is empty" if not address else "it contains NUL")
    try:
        address.encode()
    except UnicodeEncodeError as error:
        raise BadAddress(ascii(shown), "its name is not UTF-8") from error
    if is_postgres(address):
        return parse_address(address).text
    if colon and scheme == "memory":
        return address
    if colon and scheme == "sqlite":
        if not rest:
            raise BadAddress(address, "it names no folder")
        return f"sqlite:{os.path.realpath(os.path.expanduser(rest))}"
    if colon and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+", scheme):
        raise BadAddress(shown, f"no store is known for the scheme {scheme!r}")
    return f"sqlite:{os.path.realpath(os.path.expanduser(address))}"


def folder_of(address: str) -> Path | None:
    """The folder that a canonical address names, whether a store is there or not. None: it names
    none.
    """
    scheme, _, rest = address.partition(":")
    return Path(rest) if scheme == "sqlite" else None


def shared_names(address: str) -> list[str]:
    """Names by which other processes know the store at an address, however they spell it.

    Empty: no other process can reach it.
    """
    scheme, _, path = address.partition(":")
    if scheme == "memory" or not path:
        return []
    if is_postgres(address):
        # hosts have several names, and poolers and proxies others: the store's own id is one
        store = find_open(address)
        return [parse_address(address).shared_name, *([f"id/{store.id}"] if store else [])]
    real = os.path.realpath(path)
    names = [f"{scheme}/{real}"]
    with suppress(OSError):
        there = os.stat(real)
        names.append(f"inode/{there.st_dev}/{there.st_ino}")
    return names


def locate(start: Path, environ: Mapping[str, str]) -> str:
    """The address to use when none is given: PLAIT_STORE, else `.plait` in the nearest folder
    upward that has one, else here.

    One that another user could have put there raises UntrustedStore.
    """
    if given := environ.get("PLAIT_STORE"):
        return canonical_address(given)
    for folder in folders_upward(start, environ):
        # unlike Path.is_dir, this takes a folder we may not enter for none
        if os.path.isdir(folder / FOLDER):
            check_folder(folder, FOLDER, environ)
            return canonical_address(str(folder / FOLDER))
    check_folder(start, FOLDER, environ)
    return canonical_address(str(start / FOLDER))
