"""Trees for tests of sandboxes: files, odd names, and reading a tree back."""

from __future__ import annotations

import os
from collections.abc import Mapping

from plait.ids import Digest
from plait.store import Store
from plait.workspace import EMPTY, NewEntry, TreeEntry, TreeReader
from plait.workspace.edited import edit_tree

Tree = Mapping[str, NewEntry]

PLAIN: Tree = {
    "README": NewEntry("file", 0o644, b"read me\n"),
    "run.sh": NewEntry("file", 0o755, b"#!/bin/sh\necho ran\n"),
    "src": NewEntry("folder", 0o755),
    "src/cart.py": NewEntry("file", 0o644, b"total = 0\n"),
    "src/deep": NewEntry("folder", 0o755),
    "src/deep/data.bin": NewEntry("file", 0o600, bytes(range(256)) * 8),
    "empty": NewEntry("folder", 0o755),
    "nothing": NewEntry("file", 0o644, b""),
    "latest": NewEntry("link", 0o777, target="src/cart.py"),
    "dangling": NewEntry("link", 0o777, target="no/where"),
}
ODD_NAMES = (
    "a b",
    "naïve–名前.txt",
    "-rf",
    "line\nbreak",
    "end\n",
    "quote'\"$(x)`",
    os.fsdecode(b"bytes-\xff\xfe"),
    "*?[x]",
    "\\",
)

CHANGES = """
echo changed > README
rm src/cart.py; echo new > src/new
rm nothing; mkdir nothing; echo in > nothing/inside
chmod 700 run.sh
rm latest; ln -s src/new latest
mv src/deep/data.bin moved
"""

CHANGED: Tree = {
    "README": NewEntry("file", 0o644, b"changed\n"),
    "run.sh": NewEntry("file", 0o700, b"#!/bin/sh\necho ran\n"),
    "src": NewEntry("folder", 0o755),
    "src/new": NewEntry("file", 0o644, b"new\n"),
    "src/deep": NewEntry("folder", 0o755),
    "empty": NewEntry("folder", 0o755),
    "nothing": NewEntry("folder", 0o755),
    "nothing/inside": NewEntry("file", 0o644, b"in\n"),
    "latest": NewEntry("link", 0o777, target="src/new"),
    "dangling": NewEntry("link", 0o777, target="no/where"),
    "moved": NewEntry("file", 0o600, bytes(range(256)) * 8),
}


def put_tree(store: Store, nodes: Tree) -> Digest:
    """A tree in the store."""
    made = edit_tree(store, EMPTY, dict(nodes))
    store.put_blobs(made.blobs)
    return made.tree


def nodes_of(store: Store, tree: Digest) -> dict[str, NewEntry]:
    """Return the nodes of a tree, with contents."""
    reader = TreeReader(store)
    return {path: _node(reader, entry) for path, entry in reader.walk(tree)}


def _node(reader: TreeReader, entry: TreeEntry) -> NewEntry:
    assert entry.kind != "withheld"
    return NewEntry(
        entry.kind, entry.mode, reader.content(entry) if entry.kind == "file" else b"", entry.target
    )
