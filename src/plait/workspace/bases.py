"""Bases: trees checked out once, which the copies of a store share as their lower layer."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from plait.ids import Digest
from plait.store import Store
from plait.workspace import disk
from plait.workspace.checkout import Placed, checkout
from plait.workspace.copy_state import AbsentFile, absent_files, boot_id, write_whole
from plait.workspace.locks import exclusive_lock


class Base(NamedTuple):
    """A tree checked out once, never to be changed."""

    folder: Path
    absent: tuple[AbsentFile, ...]


class _BaseRecord(msgspec.Struct, frozen=True):
    boot: str
    absent: tuple[AbsentFile, ...]


def base_of(store: Store, cache: Path, tree: Digest) -> Base:
    """Return the lower folder of a tree.

    It is checked out now if it is not there, or was written before the machine was started.
    """
    bases = cache / "bases"
    bases.mkdir(parents=True, exist_ok=True)
    home = bases / tree
    record = _read_record(home)
    if record is None:
        with exclusive_lock(bases / ".lock"):
            record = _read_record(home) or _make_base(store, bases, home, tree)
    return Base(home / "files", record.absent)


def _make_base(store: Store, bases: Path, home: Path, tree: Digest) -> _BaseRecord:
    making = bases / f".making-{tree}"
    disk.remove_folder(making)
    disk.remove_folder(home)
    placed: Placed = checkout(store, tree, making / "files")
    record = _BaseRecord(boot_id(), absent_files(placed.absent))
    write_whole(making / "made", msgspec.json.encode(record))
    making.rename(home)
    return record


def _read_record(home: Path) -> _BaseRecord | None:
    try:
        record = msgspec.json.decode((home / "made").read_bytes(), type=_BaseRecord)
    except (OSError, msgspec.MsgspecError):
        return None
    return record if record.boot == boot_id() and (home / "files").is_dir() else None
