"""The record of a copy on disk: the tree it holds, its index, and its place in the cache.

Nothing here is synced. Records written before the machine was started are not trusted, since some
may be lost: each names the boot it was written in.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Mapping
from functools import cache as cached
from hashlib import sha256
from pathlib import Path

import msgspec

from plait.errors import PlaitError, StoreCorrupt
from plait.ids import Digest
from plait.store import Store, check_folder
from plait.workspace import disk
from plait.workspace.base import TreeEntry
from plait.workspace.index import Index, unpack_index
from plait.workspace.locks import Lock
from plait.workspace.process import WORKSPACES
from plait.workspace.rules import Rules
from plait.workspace.tree import EMPTY

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}\Z")
_VERSION = 2  # 1: files that no tree may hold stayed on disk


# ── the state of a copy ──────────────────────────────────────────────────────────────────────


class AbsentFile(msgspec.Struct, frozen=True):
    path: bytes
    mode: int
    size: int
    blob: Digest


class CopyState(msgspec.Struct, frozen=True):
    """The tree that a copy holds when it is clean, and how it was built."""

    tree: Digest
    base: Digest | None  # None: it is plain
    boot: str
    generation: int
    absent: tuple[AbsentFile, ...] = ()
    version: int = _VERSION


class CopyInfo(msgspec.Struct, frozen=True):
    """One copy that exists, as people are told of it."""

    name: str
    tree: Digest
    base: Digest | None  # None: it is plain
    in_doubt: bool
    in_use: bool
    generation: int


def absent_files(entries: Mapping[str, TreeEntry]) -> tuple[AbsentFile, ...]:
    return tuple(
        AbsentFile(os.fsencode(path), entry.mode, entry.size, entry.blobs[0])
        for path, entry in sorted(entries.items())
    )


def absent_entries(absent: tuple[AbsentFile, ...]) -> dict[str, TreeEntry]:
    found: dict[str, TreeEntry] = {}
    for each in absent:
        path = os.fsdecode(each.path)
        found[path] = TreeEntry(
            path.rpartition("/")[2], "withheld", each.mode, each.size, (each.blob,)
        )
    return found


def stored_index(store: Store, index: Index) -> Index:
    """Return the index if the store still has every blob it names, else an empty one."""
    blobs = {
        blob
        for _, seen, *_ in index.values()
        for each in seen.values()
        if each.entry.kind == "file"
        for blob in each.entry.blobs
    }
    trees = {tree for tree, *_ in index.values() if tree not in (None, EMPTY)}
    return {} if store.missing_blobs(blobs | trees) else index


# ── where things are ─────────────────────────────────────────────────────────────────────────


@cached
def boot_id() -> str:
    """Return an id of this start of the machine: unsynced files of an earlier one may be lost."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def cache_folder(store: Store) -> Path:
    """Return the folder for the copies of a store: beside the store, or, for a store on another
    machine, one of the user's cache.

    A store in memory has a temporary one, which is removed when the process ends. So has each
    process of a user without a home to write to.
    """
    if store.folder is not None:
        return store.folder / "work"
    if store.durability != "memory" and (lasting := _user_cache(store)) is not None:
        return lasting
    address = store.address
    with WORKSPACES.folders_lock:
        folders = WORKSPACES.temporary_folders
        if address not in folders:
            folder = folders[address] = Path(tempfile.mkdtemp(prefix="plait-"))
            atexit.register(_remove_temporary_folder, folder, os.getpid())
        return folders[address]


def _user_cache(store: Store) -> Path | None:
    """Return the folder of a store in the user's cache; None if it cannot be made."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(given) if os.path.isabs(given) else Path(os.path.expanduser("~/.cache"))
    folder = cache / "plait"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for each in (folder, folder / store.id):
            each.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    check_folder(folder, store.id, os.environ)  # commands see what stands there
    return folder / store.id


def _remove_temporary_folder(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not in a process that was forked off
        try:
            disk.remove_folder(folder)
        except (OSError, PlaitError):
            shutil.rmtree(folder, ignore_errors=True)


def copy_home(cache: Path, name: str) -> Path:
    (cache / "copies").mkdir(parents=True, exist_ok=True)
    good = is_folder_name(name)
    return cache / "copies" / (name if good else sha256(os.fsencode(name)).hexdigest())


def is_folder_name(name: str) -> bool:
    """True if the folder of a copy may have this name."""
    return _NAME.match(name) is not None and not name.endswith(".lock")


def folder_home(cache: Path, folder: Path) -> Path:
    (cache / "folders").mkdir(parents=True, exist_ok=True)
    return cache / "folders" / sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]


def read_state(home: Path) -> CopyState | None:
    try:
        state = msgspec.json.decode((home / "state").read_bytes(), type=CopyState)
    except (OSError, msgspec.MsgspecError):
        return None
    return state if state.version == _VERSION else None


def read_index(home: Path, rules: Rules) -> Index:
    try:
        return unpack_index((home / "index").read_bytes(), rules)
    except (OSError, StoreCorrupt, msgspec.MsgspecError):
        return {}


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. It is not synced: nothing of it outlives the boot."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def list_copies(cache: Path) -> list[CopyInfo]:
    """Those that exist, by name."""
    found: list[CopyInfo] = []
    for home in sorted((cache / "copies").glob("*")):
        state = read_state(home) if home.is_dir() else None
        if home.is_dir():
            doubt = (home / "doubt").exists() or state is None or state.boot != boot_id()
            tree, base, generation = (
                (state.tree, state.base, state.generation) if state else (EMPTY, None, 0)
            )
            found.append(
                CopyInfo(
                    home.name,
                    tree,
                    base,
                    doubt,
                    Lock.is_held(home.with_name(f"{home.name}.lock")),
                    generation,
                )
            )
    return found
