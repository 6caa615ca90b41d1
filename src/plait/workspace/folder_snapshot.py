"""The first snapshot of a user's folder."""

from __future__ import annotations

import os
from pathlib import Path

from plait.errors import WorkspaceError
from plait.store import Store
from plait.workspace import disk
from plait.workspace.base import TreeSnapshot
from plait.workspace.copy_state import (
    cache_folder,
    folder_home,
    read_index,
    stored_index,
    write_whole,
)
from plait.workspace.index import pack_index
from plait.workspace.rules import USUAL, Rules
from plait.workspace.scan import THREADS, Scan
from plait.workspace.sink import Sink
from plait.workspace.tree import TreeReader


def snapshot_folder(
    store: Store, folder: Path, rules: Rules = USUAL, cache: Path | None = None
) -> TreeSnapshot:
    """Return a snapshot of a folder; all its blobs are in the store when this returns.

    Files that did not change since the last snapshot are not read again.
    """
    home = folder_home(cache_folder(store) if cache is None else cache, folder)
    home.mkdir(parents=True, exist_ok=True)
    index = stored_index(store, read_index(home, rules))
    sink = Sink(store)
    with disk.closing_handle(_open_users_folder(folder)) as root:
        found = Scan(
            sink, rules, index, reader=TreeReader(store), threads=THREADS, ours=False
        ).scan_folder(root)
    sink.flush()
    write_whole(home / "index", pack_index(found.seen, rules))
    return TreeSnapshot(found.tree, {}, withheld=found.withheld, skipped=found.skipped)


def _open_users_folder(folder: Path) -> int:
    """Open a folder of the user, unless its owner locked it."""
    try:
        handle = disk.open_root(folder)
    except PermissionError as error:
        raise WorkspaceError(
            f"{str(folder)!r} may not be read: {error.strerror}. Look at its mode and its owner."
        ) from error
    if disk.is_locked(os.fstat(handle).st_mode):
        os.close(handle)
        raise WorkspaceError(
            f"{str(folder)!r} may not be read: its owner locked it. Look at its mode."
        )
    return handle
