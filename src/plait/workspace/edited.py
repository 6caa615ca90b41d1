"""A new tree from another one by paths, without files on disk.

A backend that only lists changed paths makes its snapshots by this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from plait import secrets
from plait.errors import OutsideWorkspace
from plait.ids import Digest
from plait.workspace.base import CHANGED_MAX, PIECE, NewEntry, TreeEntry, TreeSnapshot
from plait.workspace.files import check_path
from plait.workspace.tree import (
    EMPTY,
    Objects,
    TreeReader,
    differing_paths,
    digest_of,
    encode,
    parts_of,
    shown_path,
)


class _FolderPlan:
    """The new state of one folder: of the entries in it, and of the folders below."""

    def __init__(self) -> None:
        self.nodes: dict[str, NewEntry | None] = {}
        self.below: dict[str, _FolderPlan] = {}


class _TreeBuild(NamedTuple):
    reader: TreeReader
    blobs: dict[Digest, bytes]
    withheld: list[str]


def edit_tree(
    objects: Objects, before: Digest, changes: Mapping[str, NewEntry | None]
) -> TreeSnapshot:
    """Return a snapshot of the tree with these paths changed; None: removed.

    Folders on the way are made. Touches only the folders that change.
    """
    build = _TreeBuild(TreeReader(objects), {}, [])
    tree = _edit_folder(build, before, _plan_folders(changes), "")
    paths = sorted(
        shown_path(change.path) for change in differing_paths(build.reader, before, tree)
    )
    return TreeSnapshot(
        tree,
        build.blobs,
        tuple(paths[:CHANGED_MAX]),
        max(len(paths) - CHANGED_MAX, 0),
        tuple(sorted(build.withheld)),
    )


def _plan_folders(changes: Mapping[str, NewEntry | None]) -> _FolderPlan:
    root = _FolderPlan()
    for path, node in changes.items():
        check_path(path)
        *above, name = parts_of(path) or [".."]
        if ".." in (*above, name):
            raise OutsideWorkspace(path)
        plan = root
        for folder in above:
            plan = plan.below.setdefault(folder, _FolderPlan())
        plan.nodes[name] = node
    return root


def _edit_folder(build: _TreeBuild, before: Digest, plan: _FolderPlan, path: str) -> Digest:
    entries = {entry.name: entry for entry in build.reader.entries(before)}
    for name, node in plan.nodes.items():
        there = entries.pop(name, None)
        if node is not None:
            entries[name] = _new_entry(build, name, node, there, f"{path}{name}")
    for name, inside in plan.below.items():
        there = entries.get(name)
        is_folder = there is not None and there.kind == "folder"
        tree = _edit_folder(
            build,
            there.blobs[0] if there is not None and is_folder else EMPTY,
            inside,
            f"{path}{name}/",
        )
        # no folder is made only for a path to be removed from it
        if is_folder or tree != EMPTY:
            entries[name] = TreeEntry(
                name, "folder", there.mode if there is not None and is_folder else 0o755, 0, (tree,)
            )
    return _add_folder(build, entries)


def _add_folder(build: _TreeBuild, entries: Mapping[str, TreeEntry]) -> Digest:
    if not entries:
        return EMPTY
    raw = encode(entries.values())
    tree = digest_of(raw)
    build.blobs[tree] = raw
    build.reader.remember_folder(
        tree,
        tuple(
            sorted(
                entries.values(), key=lambda entry: entry.name.encode("utf-8", "surrogateescape")
            )
        ),
    )
    return tree


def _new_entry(
    build: _TreeBuild, name: str, node: NewEntry, there: TreeEntry | None, path: str
) -> TreeEntry:
    if node.kind == "link":
        return TreeEntry(name, "link", 0o777, target=node.target)
    if node.kind == "folder":  # its entries stay
        tree = there.blobs[0] if there is not None and there.kind == "folder" else EMPTY
        return TreeEntry(name, "folder", node.mode & 0o777, 0, (tree,))
    hidden = secrets.hide_bytes(node.content)
    if hidden != node.content:
        build.withheld.append(shown_path(path))
        return TreeEntry(
            name, "withheld", node.mode & 0o777, len(node.content), (digest_of(hidden),)
        )
    pieces = [node.content[start : start + PIECE] for start in range(0, len(node.content), PIECE)]
    build.blobs.update((digest_of(piece), piece) for piece in pieces)
    return TreeEntry(
        name, "file", node.mode & 0o777, len(node.content), tuple(map(digest_of, pieces))
    )


def restore_paths(
    objects: Objects, before: Digest, after: Digest, paths: Iterable[str]
) -> TreeSnapshot:
    """Return a snapshot of the tree `after`, with these paths, and all below them, as in
    `before`.
    """
    build, root = _TreeBuild(TreeReader(objects), {}, []), _FolderPlan()
    for path in paths:
        *above, name = parts_of(path)
        plan = root
        for folder in above:
            plan = plan.below.setdefault(folder, _FolderPlan())
        plan.nodes[name] = None
    return TreeSnapshot(_restore_folder(build, before, after, root), build.blobs)


def _restore_folder(build: _TreeBuild, before: Digest, after: Digest, plan: _FolderPlan) -> Digest:
    old = {entry.name: entry for entry in build.reader.entries(before)}
    entries = {entry.name: entry for entry in build.reader.entries(after)}
    for name in plan.nodes:
        entries.pop(name, None)
        entries.update({name: old[name]} if name in old else {})
    for name, inside in plan.below.items():
        if name in plan.nodes:
            continue
        was, now = old.get(name), entries.get(name)
        tree = _restore_folder(build, _tree_in(was), _tree_in(now), inside)
        if now is not None and now.kind == "folder":
            entries[name] = msgspec.structs.replace(now, blobs=(tree,))
        # the old folder stays for the restored paths in it, in place of any new entry
        elif was is not None and was.kind == "folder" and tree != EMPTY:
            entries[name] = msgspec.structs.replace(was, blobs=(tree,))
    return _add_folder(build, entries)


def _tree_in(entry: TreeEntry | None) -> Digest:
    return entry.blobs[0] if entry is not None and entry.kind == "folder" else EMPTY
