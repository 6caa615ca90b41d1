"""Changes as a patch that `git apply` and `patch -p1` take."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from plait.workspace.base import FileChange, TreeEntry
from plait.workspace.diff import SIZE_MAX, is_folder, lines_of, reader_of, renames
from plait.workspace.lines import LineMatcher, split
from plait.workspace.tree import EMPTY, Objects, TreeReader


def patch_text(
    objects: Objects | TreeReader,
    changes: Iterable[FileChange],
    *,
    context: int = 3,
    size_max: int = SIZE_MAX,
) -> str:
    """Return the changes as a patch, as git writes it; `git apply` and `patch -p1` take it.

    Changes that no patch can express (binary and very long files, empty folders, withheld files)
    stand in lines that begin with `#`, which both pass over. Write it to a file as UTF-8 and
    without translating line ends.
    """
    reader, listed = reader_of(objects), list(changes)
    moved = {pair.added.path: pair.removed for pair in renames(listed)}
    gone = {removed.path for removed in moved.values()}
    parts: list[str] = []
    for change in listed:
        if change.path in moved:
            parts += _rename_patch(moved[change.path], change)
        elif change.path not in gone:
            for one in _split_by_kind(change):
                parts += _file_patch(reader, one, context, size_max)
    return "".join(parts)


class PatchParts(NamedTuple):
    """A patch in two parts: the changes that a person must see, and all others."""

    first: str
    rest: str


def patch_parts(
    objects: Objects | TreeReader, changes: Iterable[FileChange], first: Container[str]
) -> PatchParts:
    """Return the patch, with that of the paths in `first` before all others.

    Those are always shown by their lines: no rename stands for a content, and bytes that are no
    text are escaped.
    """
    reader, listed = reader_of(objects), list(changes)
    ahead = [one for change in listed if change.path in first for one in _split_by_kind(change)]
    parts = [
        part
        for one in ahead
        for part in (
            _file_patch(reader, one, 3, SIZE_MAX)
            if _has_lines(reader, one)
            else _escaped_patch(reader, one)
        )
    ]
    return PatchParts(
        "".join(parts),
        patch_text(reader, [change for change in listed if change.path not in first]),
    )


def _has_lines(reader: TreeReader, change: FileChange) -> bool:
    return all(
        lines_of(reader, entry, SIZE_MAX) is not None for entry in (change.before, change.after)
    )


def _escaped_patch(reader: TreeReader, change: FileChange) -> list[str]:
    """Return a patch for people only. Of a file too long to be compared all lines are shown
    as new.
    """
    before, after = change.before, change.after
    long = any(entry is not None and entry.size > SIZE_MAX for entry in (before, after))
    left, right = (
        _escaped_lines(reader, entry)
        for entry in (None if long and after is not None else before, after)
    )
    names = [
        f"--- {_side_label('a', change.path, before)}\n",
        f"+++ {_side_label('b', change.path, after)}\n",
    ]
    if long:
        hunks = [
            f"@@ -0,0 +{_range(0, len(right))} @@\n",
            *(_hunk_line("+", line) for line in right),
        ]
    else:
        hunks = _hunk_lines(left, right, 3)
    return [
        _header(change.path, change.path),
        *_mode_lines(before, after),
        _unshown_note(change, SIZE_MAX),
        *names,
        *hunks,
    ]


def _escaped_lines(reader: TreeReader, entry: TreeEntry | None) -> list[bytes]:
    if entry is None or entry.kind in ("folder", "withheld"):
        return []
    content = os.fsencode(entry.target) if entry.kind == "link" else reader.content(entry)
    text = content.decode("utf-8", "backslashreplace")
    return split(text.replace("\0", "\\x00").encode())


def _split_by_kind(change: FileChange) -> list[FileChange]:
    """Split a change of kind into a removal and an addition."""
    if change.before is None or change.after is None or change.before.kind == change.after.kind:
        return [change]
    return [
        FileChange(change.path, change.before, None),
        FileChange(change.path, None, change.after),
    ]


def _rename_patch(removed: FileChange, added: FileChange) -> list[str]:
    assert removed.before is not None and added.after is not None
    modes = _mode_lines(removed.before, added.after)
    old, new = quoted_path(removed.path), quoted_path(added.path)
    return [
        _header(removed.path, added.path),
        *modes,
        f"similarity index 100%\nrename from {old}\nrename to {new}\n",
    ]


def _file_patch(reader: TreeReader, change: FileChange, context: int, size_max: int) -> list[str]:
    before, after = change.before, change.after
    if is_folder(before) or is_folder(after):
        return [f"# {_folder_note(change)}\n"]
    modes = _mode_lines(before, after)
    same = (
        before is not None
        and after is not None
        and (before.blobs, before.target) == (after.blobs, after.target)
    )
    if same and modes:
        return [_header(change.path, change.path), *modes]
    left, right = (lines_of(reader, entry, size_max) for entry in (before, after))
    if left is None or right is None:
        return [
            *([_header(change.path, change.path), *modes] if before and after and modes else []),
            _unshown_note(change, size_max),
        ]
    hunks = _hunk_lines(left, right, context)
    names = (
        [
            f"--- {_side_label('a', change.path, before)}\n",
            f"+++ {_side_label('b', change.path, after)}\n",
        ]
        if hunks
        else []
    )
    return [_header(change.path, change.path), *modes, *names, *hunks]


def _header(old: str, new: str) -> str:
    return f"diff --git {quoted_path('a/' + old)} {quoted_path('b/' + new)}\n"


def _mode_lines(before: TreeEntry | None, after: TreeEntry | None) -> list[str]:
    if before is None:
        return [f"new file mode {_git_mode(after):o}\n"]
    if after is None:
        return [f"deleted file mode {_git_mode(before, usual=True):o}\n"]
    if before.mode == after.mode:
        return []
    return [f"old mode {_git_mode(before):o}\nnew mode {_git_mode(after):o}\n"]


def _git_mode(entry: TreeEntry | None, *, usual: bool = False) -> int:
    """Return the mode as git writes it. Git knows two modes of files, accepts others, and warns if
    a removed file had another: `usual` gives one of the two.
    """
    assert entry is not None
    if entry.kind == "link":
        return 0o120000
    return 0o100000 | ((0o755 if entry.mode & 0o100 else 0o644) if usual else entry.mode)


def _side_label(side: str, path: str, entry: TreeEntry | None) -> str:
    if entry is None:
        return "/dev/null"
    name = quoted_path(f"{side}/{path}")
    # else the text after a blank would be taken for a date
    return f"{name}\t" if " " in name else name


def _hunk_lines(left: Sequence[bytes], right: Sequence[bytes], context: int) -> list[str]:
    found: list[str] = []
    for group in LineMatcher(None, left, right).get_grouped_opcodes(context):
        _, i, _, j, _ = group[0]
        _, _, i_end, _, j_end = group[-1]
        found.append(f"@@ -{_range(i, i_end)} +{_range(j, j_end)} @@\n")
        for what, x, x_end, y, y_end in group:
            if what == "equal":
                found += [_hunk_line(" ", line) for line in left[x:x_end]]
            else:
                found += [_hunk_line("-", line) for line in left[x:x_end]]
                found += [_hunk_line("+", line) for line in right[y:y_end]]
    return found


def _range(start: int, end: int) -> str:
    size = end - start
    return f"{start + 1}" if size == 1 else f"{start + 1 if size else start},{size}"


def _hunk_line(sign: str, line: bytes) -> str:
    text = line.decode()
    return (
        f"{sign}{text}" if text.endswith("\n") else f"{sign}{text}\n\\ No newline at end of file\n"
    )


def _unshown_note(change: FileChange, size_max: int) -> str:
    sides = [entry for entry in (change.before, change.after) if entry is not None]
    old, new = (
        _side_label(side, change.path, entry).rstrip("\t")
        for side, entry in (("a", change.before), ("b", change.after))
    )
    if any(entry.kind == "withheld" for entry in sides):
        what = f"Files {old} and {new} differ, and a side that holds a secret was withheld"
    elif any(entry.size > size_max for entry in sides):
        what = f"Files {old} and {new} differ, and are too long to be shown"
    else:
        what = f"Binary files {old} and {new} differ"
    return f"# {what}: {_digest_text(change.before)} became {_digest_text(change.after)}\n"


def _digest_text(entry: TreeEntry | None) -> str:
    if entry is None:
        return "nothing"
    if entry.kind != "file":
        return entry.kind
    more = f" and {len(entry.blobs) - 1} more" if len(entry.blobs) > 1 else ""
    return f"{entry.size:,} bytes ({'sha256 ' + entry.blobs[0] + more if entry.blobs else 'empty'})"


def _folder_note(change: FileChange) -> str:
    before, after, name = change.before, change.after, quoted_path(change.path + "/")
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


def quoted_path(path: str) -> str:
    """Return a path as git spells it where a bare one could be misread: in quotes, odd bytes in
    octal.

    Letters of any script stand as they are.
    """
    if all(char.isprintable() and char not in _ESCAPES for char in path):
        return path
    return '"' + "".join(map(_escape_char, path)) + '"'


def _escape_char(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return char if char.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(char))
