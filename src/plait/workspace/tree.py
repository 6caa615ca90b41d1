"""Trees: how a folder is spelled as bytes, and how trees are read.

A tree object lists one folder: a tag, then its entries in the order of their names' bytes. There is
one spelling for each folder, so equal folders have equal digests, and the digest of a workspace is
that of its root. Names are bytes: all but NUL and `/` can stand in them.

    plait/tree/1 NUL
    f644 5 2cf24d…9824 greeting.txt NUL     a file: mode, size, its pieces with commas, name
    l777 0 - current NUL releases/7 NUL     a link: its target stands after it
    d755 0 8a7f03…11c2 src NUL              a folder: the digest of its tree
    w600 31 4e07a1…07f0 .env NUL            withheld: the digest is that of the content with the
                                            secrets hidden, and names no blob
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Protocol

from plait.errors import InvalidValue, StoreCorrupt
from plait.ids import Digest
from plait.workspace.base import FileChange, Kind, TreeEntry

TAG = b"plait/tree/1\0"

_LETTERS: dict[Kind, str] = {"file": "f", "link": "l", "folder": "d", "withheld": "w"}
_KINDS: dict[bytes, Kind] = {letter.encode(): kind for kind, letter in _LETTERS.items()}
_HEAD = re.compile(
    rb"([fldw])([0-7]{1,3}) (0|[1-9][0-9]{0,18}) (-|[0-9a-f]{64}(?:,[0-9a-f]{64})*) ([^/]+)\Z",
    re.DOTALL,
)
_KEPT = 4096  # folders that a reader keeps decoded


class Objects(Protocol):
    """Reads trees and contents: all that is needed of a store."""

    def get_blob(self, digest: Digest) -> bytes: ...


def digest_of(content: bytes) -> Digest:
    return Digest(sha256(content).hexdigest())


# ── spelling ─────────────────────────────────────────────────────────────────────────────────


def encode(entries: Iterable[TreeEntry]) -> bytes:
    """Return the one spelling of a folder with these entries, given in any order."""
    named: dict[bytes, TreeEntry] = {}
    for entry in entries:
        if named.setdefault(os.fsencode(entry.name), entry) is not entry:
            raise InvalidValue("tree", f"two entries are called {entry.name!r}")
    return TAG + b"".join([_spell_entry(name, named[name]) for name in sorted(named)])


def decode(raw: bytes) -> list[TreeEntry]:
    """Return the entries of a folder, by name.

    Bytes that are not spelled as `encode` does are refused: a tree may come from anywhere.
    """
    if not raw.startswith(TAG) or not raw.endswith(b"\0"):
        raise StoreCorrupt("a tree", "its bytes are not those of a folder")
    parts = iter(raw[len(TAG) : -1].split(b"\0")) if len(raw) > len(TAG) else iter(())
    found: list[TreeEntry] = []
    last = b""
    for head in parts:
        match = _HEAD.match(head)
        if match is None or match[5] in (b".", b"..") or match[5] <= last:
            raise StoreCorrupt("a tree", f"it has an entry that cannot be: {head[:100]!r}")
        last = match[5]
        found.append(_parse_entry(match, parts))
    return found


def _spell_entry(name: bytes, entry: TreeEntry) -> bytes:
    if not name or name in (b".", b"..") or b"/" in name or b"\0" in name:
        raise InvalidValue("name", f"{entry.name!r} cannot be the name of something in a folder")
    kind, blobs = _LETTERS[entry.kind], ",".join(entry.blobs) or "-"
    head = f"{kind}{entry.mode & 0o777:o} {entry.size} {blobs} ".encode()
    if entry.kind == "link":
        return b"%b%b\0%b\0" % (head, name, os.fsencode(entry.target))
    return b"%b%b\0" % (head, name)


def _parse_entry(match: re.Match[bytes], rest: Iterator[bytes]) -> TreeEntry:
    letter, mode, size, blobs, name = match.groups()
    kind = _KINDS[letter]
    pieces = () if blobs == b"-" else tuple(map(Digest, blobs.decode().split(",")))
    if kind in ("folder", "withheld") and len(pieces) != 1:
        raise StoreCorrupt("a tree", f"{name!r} has {len(pieces)} digests where one is due")
    target = ""
    if kind == "link":
        target = os.fsdecode(next(rest, b""))
        if not target or pieces:
            raise StoreCorrupt("a tree", f"the link {name!r} points nowhere")
    return TreeEntry(os.fsdecode(name), kind, int(mode, 8), int(size), pieces, target)


EMPTY_BYTES = TAG
EMPTY = digest_of(TAG)  # the tree of a folder with nothing in it; its blob need not be stored


# ── reading ──────────────────────────────────────────────────────────────────────────────────


class TreeReader:
    """Reads trees, and keeps the folders it has read. Not to be shared by threads."""

    def __init__(self, objects: Objects, keep: int = _KEPT) -> None:
        self.objects, self._keep = objects, keep
        self._known: OrderedDict[Digest, tuple[TreeEntry, ...]] = OrderedDict()

    def entries(self, tree: Digest) -> tuple[TreeEntry, ...]:
        """Return the entries of one folder, by name."""
        found = self._known.get(tree)
        if found is None:
            found = () if tree == EMPTY else tuple(decode(self.objects.get_blob(tree)))
            self.remember_folder(tree, found)
        else:
            self._known.move_to_end(tree)
        return found

    def remember_folder(self, tree: Digest, entries: tuple[TreeEntry, ...]) -> None:
        """Remember a folder that was just made, perhaps before the store has it."""
        self._known[tree] = entries
        while len(self._known) > self._keep:
            self._known.popitem(last=False)

    def find(self, tree: Digest, path: str) -> TreeEntry | None:
        """Return the entry at a path, without following links; the root is a folder without a name.

        None: there is none.
        """
        entry = TreeEntry("", "folder", 0o755, 0, (tree,))
        for name in parts_of(path):
            if entry.kind != "folder":
                return None
            found = next((item for item in self.entries(entry.blobs[0]) if item.name == name), None)
            if found is None:
                return None
            entry = found
        return entry

    def walk(self, tree: Digest, path: str = "") -> Iterator[tuple[str, TreeEntry]]:
        """Yield every entry below, with its path, a folder before its entries."""
        for entry in self.entries(tree):
            here = f"{path}/{entry.name}" if path else entry.name
            yield here, entry
            if entry.kind == "folder":
                yield from self.walk(entry.blobs[0], here)

    def content(self, entry: TreeEntry) -> bytes:
        """Return the bytes of a file."""
        return b"".join([self.objects.get_blob(piece) for piece in entry.blobs])


def differing_paths(
    reader: TreeReader, before: Digest | None, after: Digest | None, path: str = ""
) -> Iterator[FileChange]:
    """Yield every path that differs, a folder before its entries.

    Equal folders are not read. None: there is no such folder.
    """
    if before == after:
        return
    old = {} if before is None else {entry.name: entry for entry in reader.entries(before)}
    new = {} if after is None else {entry.name: entry for entry in reader.entries(after)}
    for name in sorted(old.keys() | new.keys(), key=os.fsencode):
        was, now = old.get(name), new.get(name)
        if was == now:
            continue
        here = f"{path}/{name}" if path else name
        if (
            was is None
            or now is None
            or was.kind != "folder"
            or now.kind != "folder"
            or was.mode != now.mode
        ):
            yield FileChange(here, was, now)
        yield from differing_paths(reader, _tree_of(was), _tree_of(now), here)


def _tree_of(entry: TreeEntry | None) -> Digest | None:
    return entry.blobs[0] if entry is not None and entry.kind == "folder" else None


def walk(objects: Objects, tree: Digest) -> Iterator[tuple[str, TreeEntry]]:
    return TreeReader(objects).walk(tree)


def find(objects: Objects, tree: Digest, path: str) -> TreeEntry | None:
    return TreeReader(objects).find(tree, path)


def parts_of(path: str) -> list[str]:
    """Return the names on a path, empty ones and `.` left out: `./a//b/` is a, b.

    `..` stays, and finds nothing in a tree.
    """
    return [name for name in path.split("/") if name not in ("", ".")]


def shown_path(path: str) -> str:
    """A path as people, and JSON, can take it: bytes that are no text are told as \\xNN."""
    if path.isascii():
        return path
    return os.fsencode(path).decode("utf-8", "backslashreplace")
