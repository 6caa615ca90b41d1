"""The differences between two trees: paths, renames, and numbers of lines.

Folders with the same digest are equal and are not read, so the cost grows with the changes. A tree
is compared by its leaves: files, links and empty folders. A folder that both sides have is listed
only if its mode changed, or if it became empty or ceased to be.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from plait.ids import Digest
from plait.workspace.base import FileChange, TreeEntry
from plait.workspace.lines import LineMatcher, as_text, split
from plait.workspace.tree import EMPTY, Objects, TreeReader

SIZE_MAX = 1 << 20  # bytes of a file, on either side, up to which its lines are compared

Side = dict[str, TreeEntry]


def reader_of(objects: Objects | TreeReader) -> TreeReader:
    """Return a reader of these objects. A caller that compares often passes one reader, which keeps
    the folders it has read.
    """
    return objects if isinstance(objects, TreeReader) else TreeReader(objects)


# ── paths ────────────────────────────────────────────────────────────────────────────────────


def changes(
    objects: Objects | TreeReader, left: Digest | None, right: Digest | None
) -> list[FileChange]:
    """Return the paths that differ, in order. None: a tree with nothing in it."""
    reader, found = reader_of(objects), list[FileChange]()
    open = [("", left or EMPTY, right or EMPTY)]
    while open:
        path, one, two = open.pop()
        if one != two:
            open += _compare_folder(
                path, _entries_by_name(reader, one), _entries_by_name(reader, two), found
            )
    return sorted(found, key=lambda change: change.path)


def _entries_by_name(reader: TreeReader, tree: Digest) -> Side:
    return {entry.name: entry for entry in reader.entries(tree)}


def _compare_folder(
    path: str, left: Side, right: Side, found: list[FileChange]
) -> Iterator[tuple[str, Digest, Digest]]:
    """Add the differences of one folder to `found`, and yield the folders in it to be compared."""
    differing = [name for name, entry in left.items() if right.get(name) != entry]
    for name in (*differing, *(right.keys() - left.keys())):
        before, after = left.get(name), right.get(name)
        here = f"{path}/{name}" if path else name
        sides = _entry_if_shown(before), _entry_if_shown(after)
        if is_folder(before) and is_folder(after):
            sides = (before, after) if _folder_changed(before, after) else (None, None)
        if sides != (None, None):
            found.append(FileChange(here, *sides))
        if is_folder(before) or is_folder(after):
            yield here, _tree_of(before), _tree_of(after)


def is_folder(entry: TreeEntry | None) -> bool:
    return entry is not None and entry.kind == "folder"


def _entry_if_shown(entry: TreeEntry | None) -> TreeEntry | None:
    """Return the entry, or None for a folder that is not empty: its content stands for it."""
    return None if is_folder(entry) and _tree_of(entry) != EMPTY else entry


def _folder_changed(before: TreeEntry | None, after: TreeEntry | None) -> bool:
    assert before is not None and after is not None
    return before.mode != after.mode or EMPTY in (before.blobs[0], after.blobs[0])


def _tree_of(entry: TreeEntry | None) -> Digest:
    return entry.blobs[0] if entry is not None and entry.kind == "folder" else EMPTY


class Rename(NamedTuple):
    """A removed path and an added one with the same content."""

    removed: FileChange
    added: FileChange


def renames(changes: Iterable[FileChange]) -> list[Rename]:
    """Pair removed with added files and links of equal content, the same name first. Empty files
    are not paired.
    """
    gone: defaultdict[object, list[FileChange]] = defaultdict(list)
    come: defaultdict[object, list[FileChange]] = defaultdict(list)
    for change in changes:
        if change.after is None and (content := _content_key(change.before)):
            gone[content].append(change)
        elif change.before is None and (content := _content_key(change.after)):
            come[content].append(change)
    pairs = [
        pair for content, added in come.items() for pair in _pair_renames(gone[content], added)
    ]
    return sorted(pairs, key=lambda pair: pair.added.path)


def _content_key(entry: TreeEntry | None) -> object:
    if entry is None or entry.kind not in ("file", "link") or not (entry.blobs or entry.target):
        return None
    return entry.kind, entry.blobs, entry.target


def _pair_renames(removed: list[FileChange], added: list[FileChange]) -> Iterator[Rename]:
    left, rest = list(removed), list[FileChange]()
    for change in added:
        same = next(
            (each for each in left if _file_name(each.path) == _file_name(change.path)), None
        )
        if same is None:
            rest.append(change)
        else:
            left.remove(same)
            yield Rename(same, change)
    for one, two in zip(left, rest, strict=False):  # as many as there are on both sides
        yield Rename(one, two)


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]


# ── lines ────────────────────────────────────────────────────────────────────────────────────


class Stat(NamedTuple):
    """The numbers of lines added and removed. None: the file has no lines, or is too long."""

    path: str
    added: int | None
    removed: int | None


def stat_lines(
    objects: Objects | TreeReader, changes: Iterable[FileChange], *, size_max: int = SIZE_MAX
) -> list[Stat]:
    reader = reader_of(objects)
    return [Stat(change.path, *_count_lines(reader, change, size_max)) for change in changes]


def _count_lines(
    reader: TreeReader, change: FileChange, size_max: int
) -> tuple[int | None, int | None]:
    if is_folder(change.before or change.after) and is_folder(change.after or change.before):
        return 0, 0
    before, after = (lines_of(reader, entry, size_max) for entry in (change.before, change.after))
    if before is None or after is None:
        return None, None
    common = sum(size for _, _, size in LineMatcher(None, before, after).get_matching_blocks())
    return len(after) - common, len(before) - common


def lines_of(reader: TreeReader, entry: TreeEntry | None, size_max: int) -> list[bytes] | None:
    """Return the lines of an entry. None: it cannot be shown by lines."""
    if entry is None or entry.kind == "folder":
        return []
    if entry.kind == "link":
        return (
            split(os.fsencode(entry.target))
            if as_text(os.fsencode(entry.target)) is not None
            else None
        )
    if entry.kind == "withheld" or entry.size > size_max:
        return None
    content = reader.content(entry)
    return split(content) if as_text(content) is not None else None
