"""What differs between two trees: paths, lines, and a patch that other tools can apply.

Folders with the same digest are the same and are not looked at, so the cost is that of what
changed. A tree is compared by what stands at its ends: files, links and empty folders. A folder
that both have is told only if its mode changed, or if it became empty or ceased to be.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from plait.ids import Digest
from plait.workspace.base import Change, Entry
from plait.workspace.lines import Lines, as_text, split
from plait.workspace.tree import EMPTY, Objects, TreeReader

SIZE_MAX = 1 << 20  # bytes of a file, on either side, up to which its lines are told
LISTED_MAX = 200  # paths in a summary

Side = dict[str, Entry]


def reading(objects: Objects | TreeReader) -> TreeReader:
    """Whoever asks often keeps a reader, and with it the folders that were read."""
    return objects if isinstance(objects, TreeReader) else TreeReader(objects)


# ── paths ────────────────────────────────────────────────────────────────────────────────────


def changes(
    objects: Objects | TreeReader, left: Digest | None, right: Digest | None
) -> list[Change]:
    """The paths that differ, in order. None: a tree with nothing in it."""
    reader, found = reading(objects), list[Change]()
    open = [("", left or EMPTY, right or EMPTY)]
    while open:
        path, one, two = open.pop()
        if one != two:
            open += _differing(path, _named(reader, one), _named(reader, two), found)
    return sorted(found, key=lambda change: change.path)


def _named(reader: TreeReader, tree: Digest) -> Side:
    return {entry.name: entry for entry in reader.entries(tree)}


def _differing(
    path: str, left: Side, right: Side, found: list[Change]
) -> Iterator[tuple[str, Digest, Digest]]:
    """Adds what differs in one folder, and gives the folders in it that are to be compared."""
    differing = [name for name, entry in left.items() if right.get(name) != entry]
    for name in (*differing, *(right.keys() - left.keys())):
        before, after = left.get(name), right.get(name)
        here = f"{path}/{name}" if path else name
        told = _told(before), _told(after)
        if is_folder(before) and is_folder(after):
            told = (before, after) if _folder_changed(before, after) else (None, None)
        if told != (None, None):
            found.append(Change(here, *told))
        if is_folder(before) or is_folder(after):
            yield here, _tree_of(before), _tree_of(after)


def is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "folder"


def _told(entry: Entry | None) -> Entry | None:
    """A folder that only one side has is told by what is in it, unless that is nothing."""
    return None if is_folder(entry) and _tree_of(entry) != EMPTY else entry


def _folder_changed(before: Entry | None, after: Entry | None) -> bool:
    assert before is not None and after is not None
    return before.mode != after.mode or EMPTY in (before.blobs[0], after.blobs[0])


def _tree_of(entry: Entry | None) -> Digest:
    return entry.blobs[0] if entry is not None and entry.kind == "folder" else EMPTY


class Rename(NamedTuple):
    """One path that went and one that came, with the same content."""

    removed: Change
    added: Change


def renames(changes: Iterable[Change]) -> list[Rename]:
    """Removed and added files and links of equal content, in pairs; the same name elsewhere is
    preferred. Empty files tell nothing.
    """
    gone: defaultdict[object, list[Change]] = defaultdict(list)
    come: defaultdict[object, list[Change]] = defaultdict(list)
    for change in changes:
        if change.after is None and (content := _content_key(change.before)):
            gone[content].append(change)
        elif change.before is None and (content := _content_key(change.after)):
            come[content].append(change)
    pairs = [pair for content, added in come.items() for pair in _paired(gone[content], added)]
    return sorted(pairs, key=lambda pair: pair.added.path)


def _content_key(entry: Entry | None) -> object:
    if entry is None or entry.kind not in ("file", "link") or not (entry.blobs or entry.target):
        return None
    return entry.kind, entry.blobs, entry.target


def _paired(removed: list[Change], added: list[Change]) -> Iterator[Rename]:
    left, rest = list(removed), list[Change]()
    for change in added:
        same = next((each for each in left if _name(each.path) == _name(change.path)), None)
        if same is None:
            rest.append(change)
        else:
            left.remove(same)
            yield Rename(same, change)
    for one, two in zip(left, rest, strict=False):  # as many as there are on both sides
        yield Rename(one, two)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


# ── lines ────────────────────────────────────────────────────────────────────────────────────


class Stat(NamedTuple):
    """How many lines came and went. None: it has no lines, or too many to look at."""

    path: str
    added: int | None
    removed: int | None


def stat_lines(
    objects: Objects | TreeReader, changes: Iterable[Change], *, size_max: int = SIZE_MAX
) -> list[Stat]:
    reader = reading(objects)
    return [Stat(change.path, *_counted(reader, change, size_max)) for change in changes]


def _counted(reader: TreeReader, change: Change, size_max: int) -> tuple[int | None, int | None]:
    if is_folder(change.before or change.after) and is_folder(change.after or change.before):
        return 0, 0
    before, after = (_lines(reader, entry, size_max) for entry in (change.before, change.after))
    if before is None or after is None:
        return None, None
    common = sum(size for _, _, size in Lines(None, before, after).get_matching_blocks())
    return len(after) - common, len(before) - common


def _lines(reader: TreeReader, entry: Entry | None, size_max: int) -> list[bytes] | None:
    """None: not to be told by lines."""
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


# ── a patch ──────────────────────────────────────────────────────────────────────────────────


def unified(
    objects: Objects | TreeReader,
    changes: Iterable[Change],
    *,
    context: int = 3,
    size_max: int = SIZE_MAX,
) -> str:
    """The changes as a patch, as git writes it; `git apply` and `patch -p1` take it.

    What no patch can say (binary and very long files, empty folders, files that were withheld)
    stands in lines that begin with `#`, which both pass over. Write it to a file as UTF-8 and
    without translating line ends.
    """
    reader, told = reading(objects), list(changes)
    moved = {pair.added.path: pair.removed for pair in renames(told)}
    gone = {removed.path for removed in moved.values()}
    parts: list[str] = []
    for change in told:
        if change.path in moved:
            parts += _rename(moved[change.path], change)
        elif change.path not in gone:
            for one in _apart(change):
                parts += _patch(reader, one, context, size_max)
    return "".join(parts)


class Parts(NamedTuple):
    """A patch in two parts: of what a person must see, and of all the rest."""

    first: str
    rest: str


def patch_parts(
    objects: Objects | TreeReader, changes: Iterable[Change], first: Container[str]
) -> Parts:
    """The patch, with that of some paths before all others.

    Those are told by their lines whatever they are: no rename stands for a content, and bytes that
    are no text are escaped.
    """
    reader, told = reading(objects), list(changes)
    ahead = [one for change in told if change.path in first for one in _apart(change)]
    parts = [
        part
        for one in ahead
        for part in (
            _patch(reader, one, 3, SIZE_MAX)
            if _is_told(reader, one)
            else _escaped_patch(reader, one)
        )
    ]
    return Parts(
        "".join(parts), unified(reader, [change for change in told if change.path not in first])
    )


def _is_told(reader: TreeReader, change: Change) -> bool:
    return all(
        _lines(reader, entry, SIZE_MAX) is not None for entry in (change.before, change.after)
    )


def _escaped_patch(reader: TreeReader, change: Change) -> list[str]:
    """A patch for people alone. Of a file too long to be compared all lines are told as new."""
    before, after = change.before, change.after
    long = any(entry is not None and entry.size > SIZE_MAX for entry in (before, after))
    left, right = (
        _escaped_lines(reader, entry)
        for entry in (None if long and after is not None else before, after)
    )
    names = [
        f"--- {_label('a', change.path, before)}\n",
        f"+++ {_label('b', change.path, after)}\n",
    ]
    if long:
        hunks = [f"@@ -0,0 +{_range(0, len(right))} @@\n", *(_line("+", line) for line in right)]
    else:
        hunks = _hunks(left, right, 3)
    return [
        _header(change.path, change.path),
        *_modes(before, after),
        _not_told(change, SIZE_MAX),
        *names,
        *hunks,
    ]


def _escaped_lines(reader: TreeReader, entry: Entry | None) -> list[bytes]:
    if entry is None or entry.kind in ("folder", "withheld"):
        return []
    content = os.fsencode(entry.target) if entry.kind == "link" else reader.content(entry)
    text = content.decode("utf-8", "backslashreplace")
    return split(text.replace("\0", "\\x00").encode())


def _apart(change: Change) -> list[Change]:
    """What became something of another kind went, and then came."""
    if change.before is None or change.after is None or change.before.kind == change.after.kind:
        return [change]
    return [Change(change.path, change.before, None), Change(change.path, None, change.after)]


def _rename(removed: Change, added: Change) -> list[str]:
    assert removed.before is not None and added.after is not None
    modes = _modes(removed.before, added.after)
    old, new = quoted(removed.path), quoted(added.path)
    return [
        _header(removed.path, added.path),
        *modes,
        f"similarity index 100%\nrename from {old}\nrename to {new}\n",
    ]


def _patch(reader: TreeReader, change: Change, context: int, size_max: int) -> list[str]:
    before, after = change.before, change.after
    if is_folder(before) or is_folder(after):
        return [f"# {_folder_told(change)}\n"]
    modes = _modes(before, after)
    same = (
        before is not None
        and after is not None
        and (before.blobs, before.target) == (after.blobs, after.target)
    )
    if same and modes:
        return [_header(change.path, change.path), *modes]
    left, right = (_lines(reader, entry, size_max) for entry in (before, after))
    if left is None or right is None:
        return [
            *([_header(change.path, change.path), *modes] if before and after and modes else []),
            _not_told(change, size_max),
        ]
    hunks = _hunks(left, right, context)
    names = (
        [f"--- {_label('a', change.path, before)}\n", f"+++ {_label('b', change.path, after)}\n"]
        if hunks
        else []
    )
    return [_header(change.path, change.path), *modes, *names, *hunks]


def _header(old: str, new: str) -> str:
    return f"diff --git {quoted('a/' + old)} {quoted('b/' + new)}\n"


def _modes(before: Entry | None, after: Entry | None) -> list[str]:
    if before is None:
        return [f"new file mode {_git_mode(after):o}\n"]
    if after is None:
        return [f"deleted file mode {_git_mode(before, usual=True):o}\n"]
    if before.mode == after.mode:
        return []
    return [f"old mode {_git_mode(before):o}\nnew mode {_git_mode(after):o}\n"]


def _git_mode(entry: Entry | None, *, usual: bool = False) -> int:
    """As git tells it; it knows two modes of files, takes others, and warns if a file that goes had
    another.
    """
    assert entry is not None
    if entry.kind == "link":
        return 0o120000
    return 0o100000 | ((0o755 if entry.mode & 0o100 else 0o644) if usual else entry.mode)


def _label(side: str, path: str, entry: Entry | None) -> str:
    if entry is None:
        return "/dev/null"
    name = quoted(f"{side}/{path}")
    # else what comes after a blank would be taken for a date
    return f"{name}\t" if " " in name else name


def _hunks(left: Sequence[bytes], right: Sequence[bytes], context: int) -> list[str]:
    found: list[str] = []
    for group in Lines(None, left, right).get_grouped_opcodes(context):
        _, i, _, j, _ = group[0]
        _, _, i_end, _, j_end = group[-1]
        found.append(f"@@ -{_range(i, i_end)} +{_range(j, j_end)} @@\n")
        for what, x, x_end, y, y_end in group:
            if what == "equal":
                found += [_line(" ", line) for line in left[x:x_end]]
            else:
                found += [_line("-", line) for line in left[x:x_end]]
                found += [_line("+", line) for line in right[y:y_end]]
    return found


def _range(start: int, end: int) -> str:
    size = end - start
    return f"{start + 1}" if size == 1 else f"{start + 1 if size else start},{size}"


def _line(sign: str, line: bytes) -> str:
    text = line.decode()
    return (
        f"{sign}{text}" if text.endswith("\n") else f"{sign}{text}\n\\ No newline at end of file\n"
    )


def _not_told(change: Change, size_max: int) -> str:
    sides = [entry for entry in (change.before, change.after) if entry is not None]
    old, new = (
        _label(side, change.path, entry).rstrip("\t")
        for side, entry in (("a", change.before), ("b", change.after))
    )
    if any(entry.kind == "withheld" for entry in sides):
        what = f"Files {old} and {new} differ, and a side that holds a secret was withheld"
    elif any(entry.size > size_max for entry in sides):
        what = f"Files {old} and {new} differ, and are too long to be shown"
    else:
        what = f"Binary files {old} and {new} differ"
    return f"# {what}: {_told_by_digest(change.before)} became {_told_by_digest(change.after)}\n"


def _told_by_digest(entry: Entry | None) -> str:
    if entry is None:
        return "nothing"
    if entry.kind != "file":
        return entry.kind
    more = f" and {len(entry.blobs) - 1} more" if len(entry.blobs) > 1 else ""
    return f"{entry.size:,} bytes ({'sha256 ' + entry.blobs[0] + more if entry.blobs else 'empty'})"


def _folder_told(change: Change) -> str:
    before, after, name = change.before, change.after, quoted(change.path + "/")
    if before is None or after is None:
        return f"Empty folder {name} {'added' if after else 'removed'}"
    if before.mode != after.mode:
        return f"Folder {name} has mode {after.mode:o}, had {before.mode:o}"
    return f"Folder {name} {'is empty now' if after.blobs[0] == EMPTY else 'was empty'}"


_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\v": "\\v",
    "\f": "\\f",
    "\r": "\\r",
}


def quoted(path: str) -> str:
    """A name as git spells it where a bare one could be misread: in quotes, odd bytes in octal.

    Letters of any script stand as they are.
    """
    if all(char.isprintable() and char not in _ESCAPES for char in path):
        return path
    return '"' + "".join(map(_escaped, path)) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return char if char.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(char))


# ── the value ────────────────────────────────────────────────────────────────────────────────


class Changes:
    """How the files of one tree differ from those of another.

    Looks only when asked; printing it gives the list of what changed.
    """

    def __init__(
        self, objects: Objects | TreeReader, left: Digest | None, right: Digest | None
    ) -> None:
        self._objects, self.left, self.right = objects, left, right

    @cached_property
    def all(self) -> tuple[Change, ...]:
        return tuple(changes(self._objects, self.left, self.right))

    @cached_property
    def renamed(self) -> dict[str, str]:
        """New path by old path."""
        return {pair.removed.path: pair.added.path for pair in renames(self.all)}

    @property
    def paths(self) -> tuple[str, ...]:
        """All that differ, both names of what was renamed included."""
        return tuple(change.path for change in self.all)

    @property
    def added(self) -> tuple[str, ...]:
        """What only the right side has, renamed files aside."""
        come = set(self.renamed.values())
        return tuple(
            each.path for each in self.all if each.before is None and each.path not in come
        )

    @property
    def removed(self) -> tuple[str, ...]:
        """What only the left side has, renamed files aside."""
        return tuple(
            each.path for each in self.all if each.after is None and each.path not in self.renamed
        )

    @property
    def changed(self) -> tuple[str, ...]:
        """What both have, in another state."""
        return tuple(
            each.path for each in self.all if each.before is not None and each.after is not None
        )

    def patch(self, *, context: int = 3, size_max: int = SIZE_MAX) -> str:
        """A patch for `git apply` and `patch -p1`."""
        return unified(self._objects, self.all, context=context, size_max=size_max)

    def stat(self, *, size_max: int = SIZE_MAX) -> list[Stat]:
        return stat_lines(self._objects, self.all, size_max=size_max)

    def __bool__(self) -> bool:
        return self.left != self.right and bool(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.all)

    def __contains__(self, path: object) -> bool:
        return path in self.paths

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Changes) and (self.left, self.right) == (other.left, other.right)

    def __hash__(self) -> int:
        return hash((self.left, self.right))

    def __repr__(self) -> str:
        return f"<Changes {(self.left or 'none')[:12]} to {(self.right or 'none')[:12]}>"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, most: int = LISTED_MAX) -> list[str]:
        """One line for each path: A added, M changed, D removed, R renamed, and how many lines came
        and went.
        """
        come = {new: old for old, new in self.renamed.items()}
        shown = [each for each in self.all if each.path not in self.renamed]
        found = [
            _listed(each, stat, come)
            for each, stat in zip(shown, stat_lines(self._objects, shown[:most]), strict=False)
        ]
        return [*found, *([f"… and {len(shown) - most:,} more"] if len(shown) > most else [])]


def _listed(change: Change, stat: Stat, come: dict[str, str]) -> str:
    before, after = change.before, change.after
    slash = "/" if is_folder(after or before) else ""
    name = quoted(change.path + slash)
    if change.path in come:
        return f"R {quoted(come[change.path])} → {name}"
    letter = "A" if before is None else "D" if after is None else "M"
    notes = [letter, name]
    if before and after and before.kind != after.kind:
        notes.append(f"({before.kind} → {after.kind})")
    elif before and after and before.mode != after.mode:
        notes.append(f"({before.mode:o} → {after.mode:o})")
    if stat.added is None:
        notes.append(
            "(withheld)"
            if "withheld" in (before and before.kind, after and after.kind)
            else "(no text)"
        )
    elif stat.added or stat.removed:
        notes.append(f"+{stat.added} −{stat.removed}")
    return " ".join(notes)
