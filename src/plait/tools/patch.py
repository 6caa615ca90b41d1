"""Patches, as a model or `git diff` writes them, parsed into files and hunks.

Two spellings are understood: unified diffs as git writes them, and the `*** Begin Patch` form,
which has no line numbers. Both become the same hunks. Nothing here touches files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from plait.errors import InvalidValue
from plait.tools.hunks import Hunk, PatchLine
from plait.tools.text import NO_NEWLINE

Operation = Literal["change", "create", "delete", "rename", "copy"]

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_GIT = re.compile(r"diff --git (.+)")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r'\\([0-7]{3}|[abtnvfr"\\])')
_NAMED_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    '"': '"',
    "\\": "\\",
}
_STEP = "write it again, as a unified diff or between *** Begin Patch and *** End Patch"
_NULL = "/dev/null"


class FilePatch(NamedTuple):
    """The changes to one file."""

    operation: Operation
    path: str  # its name before
    target: str  # its name after
    hunks: tuple[Hunk, ...] = ()
    mode: int | None = None  # the permission bits it gets; None: those it has


def parse_patch(patch: str) -> tuple[FilePatch, ...]:
    """Return the files of a patch, in its order; raises InvalidValue with the line that makes no
    sense.
    """
    lines = patch.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    begun = next(
        (number for number, line in enumerate(lines) if line.strip() == "*** Begin Patch"), None
    )
    found = tuple(
        _plain_files(_PatchReader(lines, begun + 1))
        if begun is not None
        else _git_files(_PatchReader(lines))
    )
    if not found:
        raise InvalidValue("patch", "there is no file in it", _STEP)
    return found


class _PatchReader:
    """The lines of a patch, read one by one."""

    def __init__(self, lines: Sequence[str], at: int = 0) -> None:
        self._lines, self.at = lines, at

    def peek(self, ahead: int = 0) -> str | None:
        """The next line; None: there is none."""
        return self._lines[self.at + ahead] if self.at + ahead < len(self._lines) else None

    def take(self) -> str:
        line = self._lines[self.at]
        self.at += 1
        return line

    def error(self, why: str) -> InvalidValue:
        return InvalidValue("patch", f"line {self.at + 1}: {why}", _STEP)


# ── unified diffs ────────────────────────────────────────────────────────────────────────────


class _FileHead:
    """The lines before the hunks of a file."""

    def __init__(self, git: str = "") -> None:
        self.git = git  # both names, as `diff --git` has them
        self.old = self.new = ""  # as --- and +++ have them
        self.renamed_from = self.renamed_to = ""
        self.copied = self.created = self.deleted = False
        self.mode: int | None = None


def _git_files(lines: _PatchReader) -> Iterator[FilePatch]:
    while (line := lines.peek()) is not None:
        if git := _GIT.match(line):
            lines.take()
            yield _git_file(lines, _FileHead(git[1]))
        elif _is_at_names(lines):
            yield _git_file(lines, _FileHead())
        elif line.startswith("@@ "):
            raise lines.error("a hunk without the name of a file before it (--- a/… and +++ b/…)")
        else:
            lines.take()  # words before the first file, as in a mail


def _is_at_names(lines: _PatchReader) -> bool:
    first, second = lines.peek() or "", lines.peek(1) or ""
    return first.startswith("--- ") and second.startswith("+++ ")


def _git_file(lines: _PatchReader, head: _FileHead) -> FilePatch:
    while (
        (line := lines.peek()) is not None
        and not _is_at_names(lines)
        and head.git
        and not _GIT.match(line)
    ):
        if not _read_extended_line(lines, head, line):
            break
        lines.take()
    if _is_at_names(lines):
        head.old, head.new = (
            _parse_name(lines, lines.take()[4:]),
            _parse_name(lines, lines.take()[4:]),
        )
    old, new = _file_paths(lines, head)
    hunks = tuple(_git_hunks(lines))
    operation = _operation(head)
    if operation == "change" and not hunks and head.mode is None:
        raise lines.error(f"nothing is said about {new!r}: there is no hunk")
    return FilePatch(operation, old, new, hunks, head.mode)


def _operation(head: _FileHead) -> Operation:
    if head.renamed_to:
        return "copy" if head.copied else "rename"
    if head.created or head.old == _NULL:
        return "create"
    return "delete" if head.deleted or head.new == _NULL else "change"


def _read_extended_line(lines: _PatchReader, head: _FileHead, line: str) -> bool:
    """Read one of git's own lines between `diff --git` and the names; False: it is none."""
    for words in ("rename from ", "copy from "):
        if line.startswith(words):
            head.renamed_from, head.copied = (
                _parse_name(lines, line[len(words) :]),
                words.startswith("copy"),
            )
            return True
    for words in ("rename to ", "copy to "):
        if line.startswith(words):
            head.renamed_to = _parse_name(lines, line[len(words) :])
            return True
    for words in ("new file mode ", "deleted file mode ", "new mode ", "old mode "):
        if line.startswith(words):
            mode = _parse_mode(lines, line[len(words) :])
            head.created, head.deleted = (
                head.created or words.startswith("new file"),
                head.deleted or words.startswith("deleted"),
            )
            head.mode = mode if words.startswith("new") else head.mode
            return True
    if line.startswith(("GIT binary patch", "Binary files ")):
        raise lines.error(
            "it changes a binary file, which a patch cannot do here: write the file by other means"
        )
    return line.startswith(("index ", "similarity index ", "dissimilarity index "))


def _parse_mode(lines: _PatchReader, text: str) -> int:
    if text.strip() not in ("100644", "100755"):
        raise lines.error(
            f"mode {text.strip()!r}: only plain files can be patched, not links or submodules (use"
            " the shell)"
        )
    return int(text.strip()[-3:], 8)


def _parse_name(lines: _PatchReader, text: str) -> str:
    """Return a name as git or diff writes it: quoted if it is odd, with a time behind a tab."""
    if text.startswith('"'):
        match = _QUOTED.match(text)
        if match is None:
            raise lines.error(f"the name {text!r} has no closing quote")
        return _unquote_name(match[1])
    name = text.partition("\t")[0].rstrip("\r")
    if not name:
        raise lines.error("a file without a name")
    return name


def _unquote_name(text: str) -> str:
    """Return a name without git's backslashes; bytes in octal are UTF-8."""
    raw = b"".join(_unescape(text))
    return raw.decode("utf-8", "surrogateescape")


def _unescape(text: str) -> Iterator[bytes]:
    at = 0
    for match in _ESCAPE.finditer(text):
        yield text[at : match.start()].encode("utf-8", "surrogateescape")
        yield (
            bytes([int(match[1], 8) & 255])
            if match[1].isdigit()
            else _NAMED_ESCAPES[match[1]].encode()
        )
        at = match.end()
    yield text[at:].encode("utf-8", "surrogateescape")


def _file_paths(lines: _PatchReader, head: _FileHead) -> tuple[str, str]:
    """Return the names of the file before and after, without the prefixes a/ and b/ where both have
    them.
    """
    if head.renamed_to:
        return head.renamed_from, head.renamed_to
    if head.old:
        old, new = head.old, head.new
        if old == _NULL and new == _NULL:
            raise lines.error("a file that is nowhere, before and after")
        if old in (_NULL,) or new in (_NULL,) or (old.startswith("a/") and new.startswith("b/")):
            old, new = _without_prefix(old, "a/"), _without_prefix(new, "b/")
        # A patch that git did not make may have another name for the old file (x.orig): the new one
        # is meant.
        return (new, new) if old == _NULL else (old, old) if new == _NULL else (new, new)
    return _names_from_git(lines, head.git)


def _without_prefix(name: str, prefix: str) -> str:
    return name.removeprefix(prefix) if name != _NULL else name


def _names_from_git(lines: _PatchReader, text: str) -> tuple[str, str]:
    """Return both names from `diff --git`, where no other line gives them: then they are
    the same.
    """
    if text.startswith('"'):
        match = _QUOTED.match(text)
        if match is None:
            raise lines.error(f"the name {text!r} has no closing quote")
        name = _without_prefix(_unquote_name(match[1]), "a/")
        return name, name
    half = len(text) // 2
    old, new = text[:half], text[half + 1 :]
    if text[half : half + 1] != " " or _without_prefix(old, "a/") != _without_prefix(new, "b/"):
        raise lines.error(f"{text!r} does not say one name twice, as in a/x b/x")
    return _without_prefix(old, "a/"), _without_prefix(old, "a/")


def _git_hunks(lines: _PatchReader) -> Iterator[Hunk]:
    while (line := lines.peek()) is not None and line.startswith("@@"):
        if match := _HUNK.match(line):
            yield _counted_hunk(lines, match)
        elif line.startswith("@@ -"):
            raise lines.error(
                f"{line[:80]!r} is no head of a hunk, as in @@ -10,3 +10,4 @@; without numbers"
                " write @@ alone"
            )
        else:
            yield _uncounted_hunk(lines)


def _counted_hunk(lines: _PatchReader, head: re.Match[str]) -> Hunk:
    """Read a hunk that says how many lines it has: a line of it may look like anything."""
    lines.take()
    start, old, new = int(head[1]), int(head[2] or 1), int(head[4] or 1)
    found: list[PatchLine] = []
    while old > 0 or new > 0:
        line = lines.peek()
        if line is None or (line[:1] not in (" ", "-", "+", "") and line != "\r"):
            raise lines.error(
                f"the hunk {head[0]!r} lacks {old} old and {new} new lines: correct its numbers, or"
                " write @@ alone"
            )
        made = _take_line(lines)
        old, new = old - (made.mark != "+"), new - (made.mark != "-")
        if old < 0 or new < 0:
            raise lines.error(
                f"the hunk {head[0]!r} has more lines than it says: correct its numbers, or write"
                " @@ alone"
            )
        found.append(_end_line(lines, made))
    if (
        (lines.peek() or "")[:1] in ("+", "-", " ")
        and not _is_at_names(lines)
        and (lines.peek() or "") != "-- "
    ):
        raise lines.error(
            f"the hunk {head[0]!r} has more lines than it says: correct its numbers, or write @@"
            " alone"
        )
    return Hunk(tuple(found), start)


def _uncounted_hunk(lines: _PatchReader) -> Hunk:
    after = _anchors(lines)
    found: list[PatchLine] = []
    while (
        (line := lines.peek()) is not None
        and line[:1] in (" ", "-", "+", "")
        and not _is_at_names(lines)
    ):
        found.append(_end_line(lines, _take_line(lines)))
    while found and found[-1] == PatchLine(" ", "\n"):
        found.pop()  # an empty line between two files is none of the file's
    if not found:
        raise lines.error("a hunk without lines")
    return Hunk(tuple(found), None, after)


def _take_line(lines: _PatchReader) -> PatchLine:
    text = lines.take()
    mark = text[:1]
    if mark in ("-", "+"):
        return PatchLine("-" if mark == "-" else "+", text[1:] + "\n")
    # an empty line has lost its mark on the way
    return PatchLine(" ", text[1:] + "\n" if mark == " " else text + "\n")


def _end_line(lines: _PatchReader, line: PatchLine) -> PatchLine:
    """Return the line, without its line feed if the next line of the patch says that it has
    none.
    """
    if (lines.peek() or "").startswith(NO_NEWLINE[:2]):
        lines.take()
        return line._replace(text=line.text[:-1])
    return line


# ── the form without numbers ─────────────────────────────────────────────────────────────────


def _plain_files(lines: _PatchReader) -> Iterator[FilePatch]:
    while (line := lines.peek()) is not None and line.strip() != "*** End Patch":
        for words, make in (
            ("*** Add File: ", _added_file),
            ("*** Delete File: ", _deleted_file),
            ("*** Update File: ", _updated_file),
        ):
            if line.startswith(words):
                lines.take()
                yield make(lines, line[len(words) :].strip())
                break
        else:
            if line.strip():
                raise lines.error(
                    f"{line[:80]!r}: a file begins with *** Add File: , *** Update File: or ***"
                    " Delete File: and its path"
                )
            lines.take()


def _added_file(lines: _PatchReader, path: str) -> FilePatch:
    found: list[PatchLine] = []
    while (line := lines.peek()) is not None and not line.startswith("*** "):
        if not line.startswith("+"):
            raise lines.error(f"{line[:80]!r}: each line of a new file begins with +")
        found.append(_take_line(lines))
    return FilePatch("create", path, path, (Hunk(tuple(found), 0),) if found else ())


def _deleted_file(lines: _PatchReader, path: str) -> FilePatch:
    return FilePatch("delete", path, path)


def _updated_file(lines: _PatchReader, path: str) -> FilePatch:
    target = path
    if (lines.peek() or "").startswith("*** Move to: "):
        target = lines.take()[len("*** Move to: ") :].strip()
    hunks: list[Hunk] = []
    while (line := lines.peek()) is not None and not _begins_file(line):
        hunks.append(_plain_hunk(lines))
    if not hunks and target == path:
        raise lines.error(f"nothing is said about {path!r}")
    return FilePatch("change" if target == path else "rename", path, target, tuple(hunks))


def _begins_file(line: str) -> bool:
    return line.startswith("*** ") and line.strip() != "*** End of File"


def _plain_hunk(lines: _PatchReader) -> Hunk:
    after = _anchors(lines)
    found: list[PatchLine] = []
    while (line := lines.peek()) is not None and not line.startswith(("@@", "*** ")):
        if line[:1] not in (" ", "-", "+", ""):
            raise lines.error(f"{line[:80]!r}: a line begins with a space, + or -")
        found.append(_take_line(lines))
    at_end = (lines.peek() or "").strip() == "*** End of File"
    if at_end:
        lines.take()
    if not found:
        raise lines.error("a hunk without lines")
    return Hunk(tuple(found), None, after, at_end)


def _anchors(lines: _PatchReader) -> tuple[str, ...]:
    found: list[str] = []
    while (line := lines.peek()) is not None and line.startswith("@@"):
        found.append(lines.take()[2:].strip().removesuffix("@@").strip())
    return tuple(text for text in found if text)
