"""Shapes of files: folders, files by lines, differences of trees, and blame."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice

from plait.errors import NoSuchFile, NotAFile
from plait.ids import Digest
from plait.outline.shapes import (
    BlameShape,
    DiffLine,
    EntryShape,
    FileDiff,
    FilesDiff,
    FileShape,
    FolderShape,
    WriterShape,
)
from plait.session import Session
from plait.store import Store
from plait.workspace import FileChange, TreeEntry
from plait.workspace.changes import Changes
from plait.workspace.diff import SIZE_MAX, lines_of
from plait.workspace.lines import LineMatcher, as_text, split
from plait.workspace.tree import TreeReader, shown_path

LINE_MAX = 2_000  # characters of a line that are shown
CONTEXT = 3  # lines around a difference
DIFF_LINES, DIFF_FILES = 2_000, 500  # that are shown of one file, and in all
_TEXT_MAX = 20_000_000  # bytes of a file that is shown by lines
_IMAGES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def image_type(content: bytes) -> str:
    """Return the media type of an image by its bytes; "": it is none that a browser may show."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((name for start, name in _IMAGES if content.startswith(start)), "")


# ── folders and files ────────────────────────────────────────────────────────────────────────


def folder_shape(store: Store, tree: Digest, folder: str = "") -> FolderShape:
    """Return the entries of a folder, folders first."""
    reader = TreeReader(store)
    entry = _entry_at(reader, tree, folder)
    if entry.kind != "folder":
        raise NotAFile(shown_path(folder), f"a {entry.kind}, not a folder")
    above = _path_of(folder)
    found = [_entry_shape(above, each) for each in reader.entries(entry.blobs[0])]
    found.sort(key=lambda each: (each.kind != "folder", each.name))
    return FolderShape(tree, shown_path(above), tuple(found))


def file_shape(
    store: Store, tree: Digest, path: str, first: int = 1, count: int = 1_000
) -> FileShape:
    """Return a file, with so many of its lines from `first` on if it is text."""
    reader = TreeReader(store)
    entry = _entry_at(reader, tree, path)
    if entry.kind == "folder":
        raise NotAFile(shown_path(path), "a folder")
    shown = shown_path(_path_of(path))
    if entry.kind == "link":
        target = shown_path(entry.target)
        return FileShape(tree, shown, "link", len(target), "", lines=(target,), line_count=1)
    blob = entry.blobs[0] if len(entry.blobs) == 1 else None
    if entry.kind == "withheld":  # its content holds a secret, and is not recorded
        return FileShape(tree, shown, "binary", entry.size, "")
    if entry.size > _TEXT_MAX:
        return FileShape(tree, shown, "binary", entry.size, "application/octet-stream", blob=blob)
    content = reader.content(entry)
    if as_text(content) is None:
        media = image_type(content)
        form = "image" if media else "binary"
        return FileShape(
            tree, shown, form, entry.size, media or "application/octet-stream", blob=blob
        )
    lines = split(content)
    wanted = [_line_text(line) for line in lines[first - 1 : first - 1 + count]]
    return FileShape(
        tree,
        shown,
        "text",
        entry.size,
        "text/plain",
        line_count=len(lines),
        first_line=first,
        lines=tuple([text[:LINE_MAX] + ("…" if len(text) > LINE_MAX else "") for text in wanted]),
        cut_lines=tuple([first + at for at, text in enumerate(wanted) if len(text) > LINE_MAX]),
        blob=blob,
    )


def _entry_at(reader: TreeReader, tree: Digest, path: str) -> TreeEntry:
    found = reader.find(tree, _path_of(path))
    if found is None:
        raise NoSuchFile(shown_path(path))
    return found


def _path_of(path: str) -> str:
    """Return a path that was shown: \\xNN stands for a byte that is no text."""
    if "\\x" not in path:
        return path.strip("/")
    raw = path.encode("utf-8", "surrogateescape")
    parts = raw.split(b"\\x")
    found = parts[0]
    for part in parts[1:]:
        try:
            byte = bytes([int(part[:2], 16)])
        except ValueError:
            found += b"\\x" + part
            continue
        # only bytes that are no text are shown like that
        found += byte + part[2:] if byte[0] >= 0x80 else b"\\x" + part
    return os.fsdecode(found.strip(b"/"))


def _entry_shape(above: str, entry: TreeEntry) -> EntryShape:
    path = f"{above}/{entry.name}" if above else entry.name
    kind = entry.kind if entry.kind in ("folder", "link") else "file"
    return EntryShape(
        shown_path(entry.name),
        shown_path(path),
        kind,
        entry.size,
        entry.kind == "file" and bool(entry.mode & 0o111),
        shown_path(entry.target) if entry.kind == "link" else "",
    )


def _line_text(line: bytes) -> str:
    return line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")


# ── differences ──────────────────────────────────────────────────────────────────────────────


def files_diff(
    store: Store, left: Digest | None, right: Digest | None, path: str = ""
) -> FilesDiff:
    """Return the difference of two trees, of one path or of all. None: a tree with no files."""
    found = Changes(TreeReader(store), left, right)
    wanted = [change for change in found if not path or shown_path(change.path) == path]
    return diff_of(store, found, wanted)


def diff_of(
    store: Store, changes: Changes, wanted: Sequence[FileChange] | None = None
) -> FilesDiff:
    """Return the shape of a difference of trees, of these changes or of all."""
    reader = TreeReader(store)
    come = {new: old for old, new in changes.renamed_paths.items()}
    chosen = [
        change
        for change in (changes.all if wanted is None else wanted)
        if change.path not in changes.renamed_paths or change.after is not None
    ]
    files = [_file_diff(reader, each, come.get(each.path)) for each in islice(chosen, DIFF_FILES)]
    return FilesDiff(changes.left, changes.right, tuple(files))


def _file_diff(reader: TreeReader, change: FileChange, old: str | None) -> FileDiff:
    before, after = change.before, change.after
    if old is not None:
        return FileDiff("renamed", shown_path(change.path), shown_path(old), 0, 0, "text")
    status = "added" if before is None else "removed" if after is None else "changed"
    path = shown_path(change.path)
    if "link" in (getattr(before, "kind", ""), getattr(after, "kind", "")):
        form = "link"
    elif before is not None and after is not None and before.blobs == after.blobs:
        return FileDiff(status, path, None, 0, 0, "mode")
    else:
        form = "text"
    one, two = (lines_of(reader, entry, SIZE_MAX) for entry in (before, after))
    if one is None or two is None:
        return FileDiff(status, path, None, 0, 0, "binary")
    matcher = LineMatcher(None, one, two)
    common = sum(size for _, _, size in matcher.get_matching_blocks())
    hunks, is_cut = _hunks(matcher, one, two)
    return FileDiff(
        status, path, None, len(two) - common, len(one) - common, form, tuple(hunks), is_cut
    )


def _hunks(
    matcher: LineMatcher, one: Sequence[bytes], two: Sequence[bytes]
) -> tuple[list[tuple[DiffLine, ...]], bool]:
    """Return the lines that differ, with those around them, and True if there are more of them."""
    hunks, left = list[tuple[DiffLine, ...]](), DIFF_LINES
    for group in matcher.get_grouped_opcodes(CONTEXT):
        lines = list(islice(_group_lines(group, one, two), left + 1))
        is_cut = len(lines) > left
        if lines[:left]:
            hunks.append(tuple(lines[:left]))
        if is_cut:
            return hunks, True
        left -= len(lines)
    return hunks, False


def _group_lines(
    group: Sequence[tuple[str, int, int, int, int]], one: Sequence[bytes], two: Sequence[bytes]
) -> Iterator[DiffLine]:
    for tag, first, last, begin, end in group:
        if tag == "equal":
            for at in range(last - first):
                yield DiffLine(" ", first + at + 1, begin + at + 1, _cut(one[first + at]))
            continue
        for at in range(first, last):
            yield DiffLine("-", at + 1, 0, _cut(one[at]))
        for at in range(begin, end):
            yield DiffLine("+", 0, at + 1, _cut(two[at]))


def _cut(line: bytes) -> str:
    text = _line_text(line)
    return text if len(text) <= LINE_MAX else f"{text[:LINE_MAX]}…"


# ── blame ────────────────────────────────────────────────────────────────────────────────────


def blame_shape(session: Session, path: str) -> BlameShape:
    """Return the writers of a file, and for each line its writer."""
    writers = dict[Digest, int]()
    shapes, lines = list[WriterShape](), list[int]()
    blame = session.files.blame(_path_of(path))
    for line in blame:
        if line.event not in writers:
            writers[line.event] = len(shapes)
            shapes.append(
                WriterShape(
                    line.log,
                    line.seq,
                    line.event,
                    line.kind,
                    line.tool,
                    line.actor,
                    line.time,
                    line.branch,
                )
            )
        lines.append(writers[line.event])
    return BlameShape(shown_path(blame.path), tuple(shapes), tuple(lines))
