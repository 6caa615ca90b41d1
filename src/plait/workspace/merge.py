"""Merging two trees that came from the same one.

Each path is decided by itself. A side that has there the entry of a base did not change it. A
change of only one side is taken, an equal change of both is taken once, and where both changed a
text file in different lines, the lines of both are taken. Everything else is a conflict, named by
its path, and nothing is chosen: the caller settles it with `resolve`.

There can be several bases, where branches were merged crosswise. They have to agree on the outcome,
or it is a conflict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from plait.errors import InvalidValue
from plait.ids import Digest
from plait.workspace.base import PIECE, Kind, TreeEntry
from plait.workspace.diff import changes, is_folder, reader_of
from plait.workspace.lines import as_text, is_text, matching, split
from plait.workspace.tree import EMPTY, Objects, TreeReader, digest_of, encode

TEXT_MAX = 64 << 10  # bytes of a file that a conflict shows
MERGED_MAX = 8 << 20  # bytes of a file up to which its lines are merged

Choice = TreeEntry | bytes | None
"""The choice that settles a conflict: the entry of a side, the content of a file, or nothing being
there.
"""


class ConflictSide(msgspec.Struct, frozen=True):
    """The entry of one side at a path in conflict."""

    entry: TreeEntry | None  # None: nothing is there
    # of a file of at most TEXT_MAX bytes that is text, or where a link points
    text: str | None = None

    @property
    def is_absent(self) -> bool:
        return self.entry is None

    @property
    def kind(self) -> Kind | None:
        return self.entry.kind if self.entry else None

    @property
    def mode(self) -> int | None:
        return self.entry.mode if self.entry else None

    @property
    def digests(self) -> tuple[Digest, ...]:
        """The pieces of a file, or the tree of a folder."""
        return self.entry.blobs if self.entry else ()

    def __str__(self) -> str:
        if self.entry is None:
            return "nothing"
        text = "no text" if self.text is None else self.text
        return f"a {self.entry.kind}, mode {self.entry.mode:o}" + (
            "" if self.entry.kind == "folder" else f": {text}"
        )


class Merging(msgspec.Struct, frozen=True):
    """The outcome of a merge: a tree, or conflicts."""

    tree: Digest | None  # None: there are conflicts
    blobs: dict[Digest, bytes]  # blobs of the tree that the store does not have
    conflicts: dict[
        str, dict[str, ConflictSide]
    ]  # by path: the entry of each side, by the name of the side


def merge_trees(
    objects: Objects | TreeReader,
    bases: Sequence[Digest | None],
    ours: Digest,
    theirs: Digest,
    names: tuple[str, str],
) -> Merging:
    """Merge two trees by their changes since the bases.

    None, or no base at all: there was nothing.
    """
    return resolve(objects, bases, ours, theirs, names, {})


def resolve(
    objects: Objects | TreeReader,
    bases: Sequence[Digest | None],
    ours: Digest,
    theirs: Digest,
    names: tuple[str, str],
    choices: Mapping[str, Choice],
) -> Merging:
    """Merge again, with conflicts settled by path. Those that are not settled come back.

    An entry is one of either side (`Version.entry`), or any other whose blobs the store has. Bytes
    keep the mode that the sides agree on, else that of ours. Where only the mode of a folder is in
    conflict, a folder settles the mode and its entries are merged.
    """
    if names[0] == names[1]:
        raise InvalidValue("names", f"both sides are called {names[0]!r}", "give them two names")
    work = _TreeMerge(reader_of(objects), names, choices)
    work.merge(
        _PathSides(
            "",
            _distinct_entries([_root_entry(base) for base in bases] or [None]),
            _root_entry(ours),
            _root_entry(theirs),
        )
    )
    strangers = sorted(choices.keys() - work.settled)
    if strangers:
        raise InvalidValue(
            "choices", f"there is no conflict at {strangers[0]!r}", "settle those that are named"
        )
    if work.conflicts:
        return Merging(None, {}, dict(sorted(work.conflicts.items())))
    return Merging(work.edits.rebuild(work.reader, ours), work.edits.blobs, {})


def _root_entry(tree: Digest | None) -> TreeEntry | None:
    return TreeEntry("", "folder", 0o755, 0, (tree or EMPTY,))


# ── path by path ─────────────────────────────────────────────────────────────────────────────


class _PathSides(NamedTuple):
    """The entries of the bases and of both sides at one path."""

    path: str
    bases: tuple[TreeEntry | None, ...]  # those that differ from each other
    ours: TreeEntry | None
    theirs: TreeEntry | None


class _Unclear:
    """No result that follows from both sides."""


UNCLEAR = _Unclear()


class _TreeMerge:
    """A merge under way: edits of our tree, and conflicts."""

    def __init__(
        self, reader: TreeReader, names: tuple[str, str], choices: Mapping[str, Choice]
    ) -> None:
        self.reader, self.names, self.choices = reader, names, choices
        self.edits = _Edits()
        self.conflicts: dict[str, dict[str, ConflictSide]] = {}
        self.settled: set[str] = set()

    def merge(self, root: _PathSides) -> None:
        open = [root]
        while open:
            at = open.pop()
            if at.ours == at.theirs:
                continue
            folders = is_folder(at.ours) + is_folder(at.theirs)
            if folders == 2 or (folders == 1 and None in (at.ours, at.theirs)):
                open += self._merge_folders(at)
            elif folders:
                self._merge_folder_and_leaf(at)
            else:
                self._merge_leaves(at)

    def _merge_folders(self, at: _PathSides) -> Iterator[_PathSides]:
        """Merge a folder of both sides, or one that the other side does not have: its entries
        decide.
        """
        if (
            len(at.bases) == 1
            and (found := _one_changed(at.bases, at.ours, at.theirs)) is not UNCLEAR
        ):
            self._take_entry(at, found)
        elif self._merge_folder_mode(at):
            yield from self._sides_below(at)

    def _merge_folder_mode(self, at: _PathSides) -> bool:
        """Decide the mode of the folder, and if it may go when it is empty.

        Return True if its entries are still to be merged.
        """
        if at.ours is None or at.theirs is None:
            there = at.ours or at.theirs
            assert there is not None
            self.edits.modes[at.path] = there.mode
            # one side removed it: it stays only for entries that the other side added
            if all(map(is_folder, at.bases)):
                self.edits.prunable.add(at.path)
            return True
        mode = _one_changed(
            [base.mode for base in at.bases if is_folder(base) and base],
            at.ours.mode,
            at.theirs.mode,
        )
        if not isinstance(mode, _Unclear):
            self.edits.modes[at.path] = mode
            return True
        chosen = self._apply_choice(at, None)
        if isinstance(chosen, TreeEntry) and chosen.kind == "folder":
            self.edits.modes[at.path] = chosen.mode
            del self.edits.entries[at.path]
            return True
        # without a choice, conflicts below are reported as well
        return isinstance(chosen, _Unclear)

    def _sides_below(self, at: _PathSides) -> Iterator[_PathSides]:
        bases = [self._entries_of(base) for base in at.bases]
        ours, theirs = self._entries_of(at.ours), self._entries_of(at.theirs)
        for name in sorted(ours.keys() | theirs.keys()):
            here = f"{at.path}/{name}" if at.path else name
            yield _PathSides(
                here,
                _distinct_entries([base.get(name) for base in bases]),
                ours.get(name),
                theirs.get(name),
            )

    def _entries_of(self, entry: TreeEntry | None) -> dict[str, TreeEntry]:
        return (
            {each.name: each for each in self.reader.entries(entry.blobs[0])}
            if entry and entry.kind == "folder"
            else {}
        )

    def _merge_folder_and_leaf(self, at: _PathSides) -> None:
        """Decide between a folder of one side and another kind of entry of the other."""
        found = _one_changed(at.bases, at.ours, at.theirs)
        if isinstance(found, _Unclear):
            folder, other = (at.ours, at.theirs) if is_folder(at.ours) else (at.theirs, at.ours)
            only_less = (
                len(at.bases) == 1
                and is_folder(at.bases[0])
                and self._only_removed(at.bases[0], folder)
            )
            found = other if only_less else UNCLEAR
        self._take_or_choose(at, found)

    def _only_removed(self, base: TreeEntry | None, folder: TreeEntry | None) -> bool:
        assert base is not None and folder is not None
        return all(
            change.after is None for change in changes(self.reader, base.blobs[0], folder.blobs[0])
        )

    def _merge_leaves(self, at: _PathSides) -> None:
        """Merge files, links, withheld files, or nothing, of both sides."""
        bases = _distinct_entries([None if is_folder(base) else base for base in at.bases])
        found = _one_changed(bases, at.ours, at.theirs)
        if (
            found is not UNCLEAR
            or at.ours is None
            or at.theirs is None
            or (at.ours.kind, at.theirs.kind) != ("file", "file")
        ):
            return self._take_or_choose(at, found)
        files = [base for base in bases if base is not None and base.kind == "file"]
        pieces = self._merge_content(files, at.ours, at.theirs)
        mode = _one_changed([file.mode for file in files], at.ours.mode, at.theirs.mode)
        if isinstance(pieces, _Unclear) or isinstance(mode, _Unclear):
            self._apply_choice(at, None if isinstance(mode, _Unclear) else mode)
        else:
            self._take_entry(at, msgspec.structs.replace(pieces, mode=mode))

    def _merge_content(
        self, bases: Sequence[TreeEntry], ours: TreeEntry, theirs: TreeEntry
    ) -> TreeEntry | _Unclear:
        """Return a file with the merged content, or UNCLEAR."""
        blobs = _one_changed([base.blobs for base in bases], ours.blobs, theirs.blobs)
        if not isinstance(blobs, _Unclear):
            return ours if blobs == ours.blobs else theirs
        if not bases or max(each.size for each in (*bases, ours, theirs)) > MERGED_MAX:
            return UNCLEAR
        left, right = self.reader.content(ours), self.reader.content(theirs)
        merged = {merge_lines(self.reader.content(base), left, right) for base in bases}
        content = merged.pop()
        if merged or content is None:
            return UNCLEAR
        return self.edits.file(ours.name, ours.mode, content)

    # ── decisions

    def _take_or_choose(self, at: _PathSides, found: TreeEntry | None | _Unclear) -> None:
        if isinstance(found, _Unclear):
            self._apply_choice(at, None)
        else:
            self._take_entry(at, found)

    def _take_entry(self, at: _PathSides, entry: TreeEntry | None) -> None:
        if entry != at.ours:
            self.edits.entries[at.path] = entry

    def _apply_choice(self, at: _PathSides, mode: int | None) -> TreeEntry | None | _Unclear:
        """Apply the caller's choice and return it; without one, note a conflict and return
        UNCLEAR.
        """
        self.settled.add(at.path)
        if at.path not in self.choices:
            self.conflicts[at.path] = {
                name: self._version(side)
                for name, side in zip(self.names, (at.ours, at.theirs), strict=True)
            }
            return UNCLEAR
        chosen, name = self.choices[at.path], at.path.rpartition("/")[2]
        if isinstance(chosen, bytes):
            sides = [
                side.mode
                for side in (at.ours, at.theirs)
                if side is not None and side.kind == "file"
            ]
            chosen = self.edits.file(name, mode if mode is not None else [*sides, 0o644][0], chosen)
        elif chosen is not None:
            chosen = msgspec.structs.replace(chosen, name=name)
        self.edits.entries[at.path] = chosen
        return chosen

    def _version(self, entry: TreeEntry | None) -> ConflictSide:
        if entry is None or entry.kind not in ("file", "link"):
            return ConflictSide(entry)
        if entry.kind == "link":
            return ConflictSide(entry, entry.target)
        return ConflictSide(
            entry, as_text(self.reader.content(entry)) if entry.size <= TEXT_MAX else None
        )


def _one_changed(bases: Collection[Any], ours: Any, theirs: Any) -> Any:
    """Return the result if at most one side changed it, or both did alike, from every base; else
    UNCLEAR.
    """
    if ours == theirs:
        return ours
    if bases and all(base == ours for base in bases):
        return theirs
    return ours if bases and all(base == theirs for base in bases) else UNCLEAR


def _distinct_entries(entries: Sequence[TreeEntry | None]) -> tuple[TreeEntry | None, ...]:
    return tuple(dict.fromkeys(entries))


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Return the lines of both; None if they changed the same ones, or if it is not text.

    Where lines repeat, it is unclear which of them a side removed or added, and one change may be
    counted as two. So the merge is done from the end as well: both results have to be the same.
    """
    if not (is_text(base) and is_text(ours) and is_text(theirs)):
        return None
    sides = split(base), split(ours), split(theirs)
    found = _weave_lines(*sides)
    if found is None or found != _reversed_or_none(_weave_lines(*map(_reversed_lines, sides))):
        return None
    return b"".join(found)


def _reversed_lines(lines: list[bytes]) -> list[bytes]:
    return lines[::-1]


def _reversed_or_none(lines: list[bytes] | None) -> list[bytes] | None:
    return lines[::-1] if lines is not None else None


def _weave_lines(old: list[bytes], one: list[bytes], two: list[bytes]) -> list[bytes] | None:
    found: list[bytes] = []
    i = j = k = 0
    for i_same, j_same, k_same, size in _common_spans(old, one, two):
        was, left, right = old[i:i_same], one[j:j_same], two[k:k_same]
        if left != right and was not in (left, right):
            return None
        found += right if left == was else left
        found += old[i_same : i_same + size]
        i, j, k = i_same + size, j_same + size, k_same + size
    return found


def _common_spans(
    old: list[bytes], one: list[bytes], two: list[bytes]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the spans that all three have: their start in each, and their size.

    The last one is the end.
    """
    lefts, rights = matching(old, one), matching(old, two)
    at_left = at_right = 0
    while at_left < len(lefts) and at_right < len(rights):
        (i, j, size), (other_i, k, other_size) = lefts[at_left], rights[at_right]
        start, end = max(i, other_i), min(i + size, other_i + other_size)
        if start < end:
            yield start, j + start - i, k + start - other_i, end - start
        if i + size <= other_i + other_size:
            at_left += 1
        else:
            at_right += 1
    yield len(old), len(one), len(two), 0


# ── a tree from the decisions ────────────────────────────────────────────────────────────────


class _Edits:
    """Edits that make another tree of one, path by path, with the new blobs."""

    def __init__(self) -> None:
        # the new entry; a folder stands for all that is in it
        self.entries: dict[str, TreeEntry | None] = {}
        self.modes: dict[str, int] = {}  # of folders that are looked into
        self.prunable: set[str] = set()  # folders that go if nothing is left in them
        self.blobs: dict[Digest, bytes] = {}

    def file(self, name: str, mode: int, content: bytes) -> TreeEntry:
        pieces = [content[at : at + PIECE] for at in range(0, len(content), PIECE)]
        digests = tuple(map(digest_of, pieces))
        self.blobs.update(zip(digests, pieces, strict=True))
        return TreeEntry(name, "file", mode, len(content), digests)

    def rebuild(self, reader: TreeReader, tree: Digest) -> Digest:
        """Return the tree with the edits, built from the deepest folder up, since each holds the
        digests of those in it.
        """
        whole = self.entries.get("")
        if whole is not None:
            return whole.blobs[0]
        waiting = self._by_folder()
        before = _folder_listings(reader, tree, waiting)
        for path in reversed(before):
            digest = self._rebuild_folder(before[path], waiting[path])
            if path:
                parent, _, name = path.rpartition("/")
                gone = digest == EMPTY and path in self.prunable
                waiting[parent][name] = (
                    None if gone else TreeEntry(name, "folder", self.modes[path], 0, (digest,))
                )
            tree = digest
        return tree  # the root comes last

    def _by_folder(self) -> dict[str, dict[str, TreeEntry | None]]:
        """Return the new entries of each folder to be rebuilt. All folders above one are rebuilt,
        too.
        """
        waiting: dict[str, dict[str, TreeEntry | None]] = {}
        for path, entry in self.entries.items():
            parent, _, name = path.rpartition("/")
            waiting.setdefault(parent, {})[name] = entry
        for path in {*waiting, *self.modes}:
            while path:
                waiting.setdefault(path, {})
                path = path.rpartition("/")[0]
        waiting.setdefault("", {})
        return waiting

    def _rebuild_folder(
        self, before: Mapping[str, TreeEntry], new: Mapping[str, TreeEntry | None]
    ) -> Digest:
        entries: dict[str, TreeEntry | None] = {**before, **new}
        raw = encode([entry for entry in entries.values() if entry is not None])
        digest = digest_of(raw)
        if digest != EMPTY and any(before.get(name) != entry for name, entry in new.items()):
            self.blobs[digest] = raw
        return digest


def _folder_listings(
    reader: TreeReader, tree: Digest, paths: Collection[str]
) -> dict[str, dict[str, TreeEntry]]:
    """Return the present entries of these folders, upper folders first.

    The paths must include all folders above each.
    """
    found: dict[str, dict[str, TreeEntry]] = {}
    for path in sorted(paths, key=lambda path: path.count("/") + bool(path)):
        parent, _, name = path.rpartition("/")
        folder = found[parent].get(name) if path else _root_entry(tree)
        found[path] = (
            {entry.name: entry for entry in reader.entries(folder.blobs[0])}
            if folder and folder.kind == "folder"
            else {}
        )
    return found
