"""Files: read, write, edit and list them, through the sandbox's own access to them, which leads
nowhere else.

Content is shown exactly, so that it can be handed back to `edit_file`; a note names the parts that
are left out. A write leaves the difference as evidence, not the number of bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from plait.errors import EditRefused, InvalidValue, NoSuchFile, NotAFile
from plait.event import Json
from plait.sandbox import Sandbox
from plait.session import file, image
from plait.tool import Result, tool
from plait.tools.editing import replace_text
from plait.tools.paths import HEAVY, entry_or_none, path_in
from plait.tools.text import (
    DIFF_MAX,
    SHOWN_MAX,
    bounded_text,
    changed_lines,
    count_text,
    digest_of,
    image_type,
    lines_of,
    media_type,
    text_or_none,
    unified_diff,
)
from plait.workspace import PIECE, TreeEntry

LINE_MAX = 2_000  # characters of one line that are shown
_SNIFFED = 8_192  # bytes that tell text from other things
_COUNTED_MAX = 64 * PIECE  # bytes of a file whose lines are counted, or whose digest is shown
_IMAGE_MAX = 8 * PIECE
_EDITED_MAX = 16 * PIECE
_SCAN_S = 20.0  # seconds to find the requested lines

_LINES_MAX = 2_000


# ── reading ──────────────────────────────────────────────────────────────────────────────────


@tool(effect="pure", timeout_s=120)
def read_file(path: str, sandbox: Sandbox, offset: int = 1, limit: int = _LINES_MAX) -> Result:
    """Read a text file of the workspace, exactly as it is, or look at an image (png, jpeg, gif, webp).

    About 15,000 characters are shown at a time: if there is more, a note before the content says how to go on. Lines beyond 2,000
    characters are cut, and the note says which. Of other binary files you get type, size and digest.

    Args:
        path: relative to the workspace, as in src/cart.py
        offset: the first line to show, counted from 1
        limit: how many lines to show at most
    """  # noqa: E501
    if offset < 1 or limit < 1:
        raise InvalidValue(
            "offset" if offset < 1 else "limit", "lines are counted from 1", "pass a number from 1"
        )
    name = path_in(sandbox, path)
    head = sandbox.files.read(name, size=_SNIFFED)
    size = _file_size(sandbox, name, head)
    if b"\0" in head or image_type(head) or not _is_utf8(head):
        return _binary_result(sandbox, name, head, size)
    if not size:
        return Result([f"[{name} is empty]"], delta={"path": name, "bytes": 0})
    read = _read_lines(sandbox, name, size, offset, min(limit, _LINES_MAX))
    if read is None:
        return _binary_result(sandbox, name, head, size)
    if not read.text:
        raise InvalidValue(
            "offset",
            f"{name} has {read.total or 'fewer'} lines, and {offset} is beyond",
            "read from an earlier line",
        )
    delta: dict[str, Json] = {"path": name, "bytes": size, "lines": [offset, read.last]}
    note = _read_note(name, size, offset, read)
    return Result([note, read.text] if note else [read.text], delta=delta)


class _LinesRead(NamedTuple):
    text: str
    last: int  # the last line that is shown
    more: bool  # True: others follow
    total: int | None  # lines of the file; None: it was not read to its end
    cut: tuple[int, ...]  # lines that are shown in part


def _file_size(sandbox: Sandbox, name: str, head: bytes) -> int:
    """Return the size of a file. A link is as long as the file it leads to, which only reading
    shows.
    """
    entry = sandbox.files.entry(name)
    if entry.kind == "file":
        return entry.size
    if len(head) < _SNIFFED:
        return len(head)
    return sum(len(piece) for piece in _pieces(sandbox, name))


def _pieces(sandbox: Sandbox, name: str, start: int = 0) -> Iterator[bytes]:
    while piece := sandbox.files.read(name, offset=start, size=PIECE):
        yield piece
        start += len(piece)


def _is_utf8(head: bytes) -> bool:
    """Return True if the bytes can be the beginning of a text; the last character may be cut in
    two.
    """
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3 and error.reason == "unexpected end of data"
    return True


def _read_lines(
    sandbox: Sandbox, name: str, size: int, offset: int, limit: int
) -> _LinesRead | None:
    """Return the lines from `offset` on, as many as may be shown; None: it is no text after all.

    Read piece by piece: earlier lines are counted and dropped, and of a line without end only the
    beginning is held.
    """
    kept, cut, number, room, more = list[str](), list[int](), 1, SHOWN_MAX, False
    deadline = time.monotonic() + _SCAN_S
    count_all = size <= _COUNTED_MAX
    for line, whole in _split_lines(sandbox, name):
        if line is None:
            return None
        if time.monotonic() > deadline:
            raise InvalidValue(
                "offset",
                f"line {offset:,} of {name} was not found within {_SCAN_S:g} s",
                "read it with the shell",
            )
        if number >= offset and not more:
            shown = line if whole and len(line) <= LINE_MAX + 2 else f"{line[:LINE_MAX]}\n"
            if len(kept) >= limit or len(shown) > room:
                more = True
            else:
                kept.append(shown)
                room -= len(shown)
                cut += [number] if shown is not line else []
        if more and not count_all:
            return _LinesRead("".join(kept), offset + len(kept) - 1, True, None, tuple(cut))
        number += 1
    return _LinesRead("".join(kept), offset + len(kept) - 1, more, number - 1, tuple(cut))


def _split_lines(sandbox: Sandbox, name: str) -> Iterator[tuple[str | None, bool]]:
    """Yield the lines of a file, each with True if it is whole: of a long one the beginning.

    None for a line that is no text.
    """
    rest, skipping = b"", False
    for piece in _pieces(sandbox, name):
        *ended, rest = (rest + piece).split(b"\n")
        for line in ended:
            if not skipping:
                yield _decode_line(line + b"\n"), True
            skipping = False
        if len(rest) > LINE_MAX * 8:
            if not skipping:
                yield _decode_line(rest[: LINE_MAX * 8], cut=True), False
            rest, skipping = b"", True
    if rest and not skipping:
        yield _decode_line(rest), True


def _decode_line(line: bytes, *, cut: bool = False) -> str | None:
    if b"\0" in line:
        return None
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        return line[: error.start].decode() if cut and error.start >= len(line) - 3 else None


def _read_note(name: str, size: int, offset: int, read: _LinesRead) -> str:
    """Return a note on the lines that are not shown, and how to see them; "": all are."""
    notes: list[str] = []
    if read.more or offset > 1:
        of = f" of {read.total:,}" if read.total is not None else f" ({size:,} bytes in all)"
        notes.append(
            f"{name}: lines {offset:,} to {read.last:,}{of}"
            + (f"; go on with offset={read.last + 1}" if read.more else "")
        )
    if read.cut:
        which = ", ".join(map(str, read.cut[:20]))
        notes.append(
            f"of {'line' if len(read.cut) == 1 else 'lines'} {which} only the first {LINE_MAX:,}"
            " characters are shown"
        )
    return f"[{'; '.join(notes)}]" if notes else ""


def _binary_result(sandbox: Sandbox, name: str, head: bytes, size: int) -> Result:
    """Return the result for a file that is no text: a picture as a picture, any other by type, size
    and digest.
    """
    kind = media_type(name, head)
    delta: dict[str, Json] = {"path": name, "bytes": size, "media_type": kind}
    content = sandbox.files.read(name) if size <= _COUNTED_MAX else None
    if content is not None:
        delta["digest"] = digest_of(content)
    digest = (
        f"sha256 {delta['digest']}" if content is not None else "too long for a digest to be told"
    )
    words = f"[{name} is no UTF-8 text: {kind}, {size:,} bytes, {digest}]"
    if content is not None and image_type(head) and size <= _IMAGE_MAX:
        return Result([words, image(content, kind, alt=name)], delta=delta)
    return Result([words], delta=delta)


# ── writing ──────────────────────────────────────────────────────────────────────────────────


@tool(effect="workspace", timeout_s=120)
def write_file(path: str, content: str, sandbox: Sandbox) -> Result:
    """Write a whole text file of the workspace: a new one, or another content for one that is there. Folders on the way are made.

    To change a part of a file use edit_file or apply_patch.

    Args:
        path: relative to the workspace, as in src/cart.py
        content: all of it, with the line feed at its end
    """  # noqa: E501
    name = file_path(sandbox, path)
    there = entry_or_none(sandbox, name)
    before = None if there is None else _content_before(sandbox, name, there)
    after = content.encode("utf-8", "surrogatepass")
    sandbox.files.write(name, after)
    return _write_result(name, before, after)


def file_path(sandbox: Sandbox, path: str) -> str:
    """Return the path of a file that is to be written."""
    name = path_in(sandbox, path)
    if not name or path.endswith("/"):
        raise NotAFile(path, "a folder")
    return name


def _content_before(sandbox: Sandbox, name: str, there: TreeEntry) -> bytes:
    if there.kind == "folder":
        raise NotAFile(name, "a folder")
    if there.kind == "file" and there.size > _COUNTED_MAX:
        raise InvalidValue(
            "path",
            f"{name} has {there.size:,} bytes, too many to tell what would be lost",
            "remove it first, with the shell",
        )
    return sandbox.files.read(name)


def _write_result(name: str, before: bytes | None, after: bytes) -> Result:
    delta: dict[str, Json] = {"path": name, "created": before is None, "digest": digest_of(after)}
    delta["bytes"] = {"before": None if before is None else len(before), "after": len(after)}
    old, new = None if before is None else text_or_none(before), text_or_none(after) or ""
    if before is not None and old is None:
        delta["before"] = f"binary, sha256 {digest_of(before)}"
        return Result([f"overwrote {name}, which was binary; {len(after):,} bytes"], delta=delta)
    parts = add_evidence(delta, name, unified_diff(name, old, new))
    if before is None:
        return Result(
            [
                f"created {name}: {count_text(len(lines_of(new)), 'line')}, {len(after):,} bytes",
                *parts,
            ],
            delta=delta,
        )
    if before == after:
        return Result([f"{name} had this very content already"], delta=delta)
    added, removed = changed_lines(old or "", new)
    return Result(
        [
            (
                f"overwrote {name}: {count_text(added, 'line')} added, {removed:,} removed,"
                f" {len(after):,} bytes"
            ),
            *parts,
        ],
        delta=delta,
    )


def add_evidence(delta: dict[str, Json], name: str, diff: str) -> list[Any]:
    """Put the difference into the delta; a long one is bounded there, and returned whole as
    a part.
    """
    delta["diff"] = bounded_text(diff, DIFF_MAX)
    return (
        [
            file(
                diff.encode("utf-8", "surrogatepass"),
                f"{name.rpartition('/')[2]}.diff",
                "text/x-diff",
            )
        ]
        if len(diff) > DIFF_MAX
        else []
    )


# ── editing ──────────────────────────────────────────────────────────────────────────────────


@tool(effect="workspace", timeout_s=120)
def edit_file(path: str, old: str, new: str, sandbox: Sandbox, replace_all: bool = False) -> Result:
    """Replace a text in a file by another. It must stand there exactly as you write it, white space included, and only once.

    Give enough of the lines around it that it is the only one. You get the difference. Refused, with the lines to look at, if the text is
    not there or is there several times; then the file is as it was. Line ends of Windows (CRLF) are kept.

    Args:
        path: relative to the workspace, as in src/cart.py
        old: what to replace, copied from the file
        new: what to put there; "" removes it
        replace_all: whether to replace every one of them
    """  # noqa: E501
    name = file_path(sandbox, path)
    before = _editable_text(sandbox, name)
    after = replace_text(name, before, old, new, every=replace_all)
    sandbox.files.write(name, after.encode("utf-8", "surrogatepass"))
    diff = unified_diff(name, before, after)
    delta: dict[str, Json] = {
        "path": name,
        "bytes": {
            "before": len(before.encode()),
            "after": len(after.encode("utf-8", "surrogatepass")),
        },
    }
    parts = add_evidence(delta, name, diff)
    return Result([bounded_text(diff, SHOWN_MAX), *parts], delta=delta)


def _editable_text(sandbox: Sandbox, name: str) -> str:
    entry = sandbox.files.entry(name)
    if entry.size > _EDITED_MAX:
        raise EditRefused(
            name,
            f"it has {entry.size:,} bytes, the limit is {_EDITED_MAX:,}",
            "Edit it with the shell",
        )
    text = text_or_none(sandbox.files.read(name))
    if text is None:
        raise EditRefused(name, "it is no UTF-8 text", "Edit it with a program, through the shell")
    return text


# ── listing ──────────────────────────────────────────────────────────────────────────────────


@tool(effect="pure", timeout_s=120)
def list_files(sandbox: Sandbox, path: str = "", depth: int = 2, limit: int = 500) -> Result:
    """List what is in a folder of the workspace: one path per line, folders end in /, links show where they lead and are not followed.

    Folders such as .git and node_modules are named, not entered, unless path leads there.

    Args:
        path: the folder, relative to the workspace; leave it out for the workspace itself
        depth: how many levels of folders to enter
        limit: how many paths to list at most
    """  # noqa: E501
    if depth < 1 or limit < 1:
        raise InvalidValue(
            "depth" if depth < 1 else "limit", "less than 1 shows nothing", "pass a number from 1"
        )
    name = path_in(sandbox, path)
    if name and sandbox.files.entry(name).kind != "folder":
        raise NoSuchFile(f"{name}/", "it is no folder; read it with read_file")
    lines: list[str] = []
    deadline = time.monotonic() + _SCAN_S
    ended = ""
    for where, entry in walk_folder(sandbox, name, depth):
        if len(lines) >= min(limit, 5_000):
            ended = (
                f"[only the first {len(lines):,} are listed: name a folder, or raise limit (up to"
                " 5,000)]"
            )
        elif time.monotonic() > deadline:
            ended = f"[listing was ended after {_SCAN_S:g} s: name a folder]"
        if ended:
            break
        lines.append(_list_line(where, entry))
    shown = bounded_text("\n".join(lines)) if lines else f"[{name or 'the workspace'} is empty]"
    return Result(
        [f"{shown}\n{ended}" if ended else shown],
        delta={"path": name, "listed": len(lines), "all": not ended},
    )


def walk_folder(sandbox: Sandbox, folder: str, depth: int) -> Iterator[tuple[str, TreeEntry]]:
    """Yield the entries below a folder, names in order, folders before their entries.

    Links are not followed.
    """
    left = [iter(_entries_below(sandbox, folder))]
    while left:
        for where, entry in left[-1]:
            yield where, entry
            if entry.kind == "folder" and len(left) < depth and entry.name not in HEAVY:
                left.append(iter(_entries_below(sandbox, where)))
                break
        else:
            left.pop()


def _entries_below(sandbox: Sandbox, folder: str) -> list[tuple[str, TreeEntry]]:
    try:
        return [
            (f"{folder}/{entry.name}" if folder else entry.name, entry)
            for entry in sandbox.files.list(folder)
        ]
    except (NoSuchFile, NotAFile):  # it went away meanwhile
        return []


def _list_line(where: str, entry: TreeEntry) -> str:
    shown = where.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n")
    if entry.kind == "folder":
        return f"{shown}/"
    if entry.kind == "link":
        target = entry.target.encode("utf-8", "backslashreplace").decode()
        return f"{shown} -> {target}"
    return f"{shown} ({entry.size:,} bytes)" if entry.kind == "file" else f"{shown} ({entry.kind})"
