"""The index: files and folders as they were last seen, so that a scan reads only changed files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

import msgspec

from plait.ids import Digest
from plait.workspace.base import TreeEntry
from plait.workspace.rules import Rules
from plait.workspace.tree import decode, encode

RACY_NS = 20_000_000  # two ticks of the clock that files are stamped by

Stamp = tuple[int, int, int, int, int]  # size, mtime, ctime, inode, mode


class SeenEntry(NamedTuple):
    """One entry of a folder as it was last seen. Without a stamp it is read again."""

    stamp: Stamp | None
    entry: TreeEntry


class SeenFolder(NamedTuple):
    """A folder as it was last seen; in an upper layer also its base, and the names that it hid of
    that.
    """

    # None: it lists an entry that is not on this disk, and is spelled anew each time
    tree: Digest | None
    seen: Mapping[str, SeenEntry]
    base: Digest | None = None
    hidden: frozenset[str] = frozenset()


Index = dict[str, SeenFolder]  # by the folder's path


def stamp_of(found: os.stat_result) -> Stamp:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_mode


# ── the index on disk ────────────────────────────────────────────────────────────────────────


class _StoredFolder(msgspec.Struct, frozen=True, array_like=True):
    path: bytes
    tree: str | None
    listed: bytes  # spelled as a tree
    stamps: list[Stamp | None]
    base: str | None
    hidden: list[bytes]


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    rules: Rules
    folders: list[_StoredFolder]


def pack_index(index: Index, rules: Rules) -> bytes:
    folders: list[_StoredFolder] = []
    for path, (tree, seen, base, hidden) in index.items():
        names = sorted(seen, key=os.fsencode)
        listed = encode(seen[name].entry for name in names)
        stamps = [seen[name].stamp for name in names]
        folders.append(
            _StoredFolder(
                os.fsencode(path),
                tree,
                listed,
                stamps,
                base,
                [os.fsencode(name) for name in hidden],
            )
        )
    raw = msgspec.msgpack.encode(_Stored(rules, folders))
    return sha256(raw).digest() + raw


def unpack_index(raw: bytes, rules: Rules) -> Index:
    """Return the packed index; an empty one if it is damaged, or was made by other rules."""
    if sha256(raw[32:]).digest() != raw[:32]:
        return {}
    stored = msgspec.msgpack.decode(raw[32:], type=_Stored)
    if stored.rules != rules:
        return {}
    index: Index = {}
    for folder in stored.folders:
        entries = decode(folder.listed)
        seen = {
            entry.name: SeenEntry(stamp, entry)
            for entry, stamp in zip(entries, folder.stamps, strict=True)
        }
        tree = None if folder.tree is None else Digest(folder.tree)
        base = None if folder.base is None else Digest(folder.base)
        index[os.fsdecode(folder.path)] = SeenFolder(
            tree, seen, base, frozenset(map(os.fsdecode, folder.hidden))
        )
    return index
