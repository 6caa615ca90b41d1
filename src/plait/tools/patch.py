"""Patches: what a model or `git diff` writes, taken apart, and put to text.

Two spellings are understood: unified diffs as git writes them, and the `*** Begin Patch` form,
which has no line numbers. Both become the same hunks. A hunk fits where its old lines stand
exactly; line numbers only say where to look first. Nothing here touches files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from plait.errors import EditRefused, InvalidValue
from plait.tools.text import NO_NEWLINE, as_crlf, is_crlf, lines_of

Operation = Literal["change", "create", "delete", "rename", "copy"]

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_GIT = re.compile(r"diff --git (.+)")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r'\\([0-7]{3}|[abtnvfr"\\])')
_NAMED = {
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


class Line(NamedTuple):
    mark: Literal[" ", "-", "+"]
    text: str  # with its line feed, unless it is said to have none


class Hunk(NamedTuple):
    lines: tuple[Line, ...]
    # where it says that it begins in the old text, from 1; None: it does not say
    start: int | None = None
    after: tuple[str, ...] = ()  # lines that come before it, one after another, somewhere
    at_end: bool = False  # whether it belongs to the end of the file

    @property
    def old(self) -> list[str]:
        return [line.text for line in self.lines if line.mark != "+"]

    @property
    def new(self) -> list[str]:
        return [line.text for line in self.lines if line.mark != "-"]


class FilePatch(NamedTuple):
    """What is to be done to one file."""

    operation: Operation
    path: str  # as it is called before
    target: str  # and after
    hunks: tuple[Hunk, ...] = ()
    mode: int | None = None  # the permission bits it gets; None: those it has


def parse_patch(patch: str) -> tuple[FilePatch, ...]:
    """The files of a patch, in its order; raises InvalidValue with the line that makes no sense."""
    lines = patch.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    begun = next(
        (number for number, line in enumerate(lines) if line.strip() == "*** Begin Patch"), None
    )
    found = tuple(
        _plain_files(_Lines(lines, begun + 1)) if begun is not None else _git_files(_Lines(lines))
    )
    if not found:
        raise InvalidValue("patch", "there is no file in it", _STEP)
    return found


class _Lines:
    """The lines of a patch, and how far they are read."""

    def __init__(self, lines: Sequence[str], at: int = 0) -> None:
        self._lines, self.at = lines, at

    def peek(self, ahead: int = 0) -> str | None:
        """The next line; None: there is none."""
        return self._lines[self.at + ahead] if self.at + ahead < len(self._lines) else None

    def take(self) -> str:
        line = self._lines[self.at]
        self.at += 1
        return line

    def wrong(self, why: str) -> InvalidValue:
        return InvalidValue("patch", f"line {self.at + 1}: {why}", _STEP)


# ── unified diffs ────────────────────────────────────────────────────────────────────────────


class _Head:
    """What stands before the hunks of a file."""

    def __init__(self, git: str = "") -> None:
        self.git = git  # both names, as `diff --git` has them
        self.old = self.new = ""  # as --- and +++ have them
        self.renamed_from = self.renamed_to = ""
        self.copied = self.created = self.deleted = False
        self.mode: int | None = None


def _git_files(lines: _Lines) -> Iterator[FilePatch]:
    while (line := lines.peek()) is not None:
        if git := _GIT.match(line):
            lines.take()
            yield _git_file(lines, _Head(git[1]))
        elif _is_names(lines):
            yield _git_file(lines, _Head())
        elif line.startswith("@@ "):
            raise lines.wrong("a hunk without the name of a file before it (--- a/… and +++ b/…)")
        else:
            lines.take()  # words before the first file, as in a mail


def _is_names(lines: _Lines) -> bool:
    first, second = lines.peek() or "", lines.peek(1) or ""
    return first.startswith("--- ") and second.startswith("+++ ")


def _git_file(lines: _Lines, head: _Head) -> FilePatch:
    while (
        (line := lines.peek()) is not None
        and not _is_names(lines)
        and head.git
        and not _GIT.match(line)
    ):
        if not _extended(lines, head, line):
            break
        lines.take()
    if _is_names(lines):
        head.old, head.new = _name(lines, lines.take()[4:]), _name(lines, lines.take()[4:])
    old, new = _paths(lines, head)
    hunks = tuple(_git_hunks(lines))
    operation = _operation(head)
    if operation == "change" and not hunks and head.mode is None:
        raise lines.wrong(f"nothing is said about {new!r}: there is no hunk")
    return FilePatch(operation, old, new, hunks, head.mode)


def _operation(head: _Head) -> Operation:
    if head.renamed_to:
        return "copy" if head.copied else "rename"
    if head.created or head.old == _NULL:
        return "create"
    return "delete" if head.deleted or head.new == _NULL else "change"


def _extended(lines: _Lines, head: _Head, line: str) -> bool:
    """One line of git's own between `diff --git` and the names; False: it is none."""
    for words in ("rename from ", "copy from "):
        if line.startswith(words):
            head.renamed_from, head.copied = (
                _name(lines, line[len(words) :]),
                words.startswith("copy"),
            )
            return True
    for words in ("rename to ", "copy to "):
        if line.startswith(words):
            head.renamed_to = _name(lines, line[len(words) :])
            return True
    for words in ("new file mode ", "deleted file mode ", "new mode ", "old mode "):
        if line.startswith(words):
            mode = _mode(lines, line[len(words) :])
            head.created, head.deleted = (
                head.created or words.startswith("new file"),
                head.deleted or words.startswith("deleted"),
            )
            head.mode = mode if words.startswith("new") else head.mode
            return True
    if line.startswith(("GIT binary patch", "Binary files ")):
        raise lines.wrong(
            "it changes a binary file, which a patch cannot do here: write the file by other means"
        )
    return line.startswith(("index ", "similarity index ", "dissimilarity index "))


def _mode(lines: _Lines, text: str) -> int:
    if text.strip() not in ("100644", "100755"):
        raise lines.wrong(
            f"mode {text.strip()!r}: only plain files can be patched, not links or submodules (use"
            " the shell)"
        )
    return int(text.strip()[-3:], 8)


def _name(lines: _Lines, text: str) -> str:
    """A name as git or diff writes it: quoted if it is odd, with a time behind a tab."""
    if text.startswith('"'):
        match = _QUOTED.match(text)
        if match is None:
            raise lines.wrong(f"the name {text!r} has no closing quote")
        return _unquoted(match[1])
    name = text.partition("\t")[0].rstrip("\r")
    if not name:
        raise lines.wrong("a file without a name")
    return name


def _unquoted(text: str) -> str:
    """What git wrote with backslashes; bytes in octal are UTF-8."""
    raw = b"".join(_pieces(text))
    return raw.decode("utf-8", "surrogateescape")


def _pieces(text: str) -> Iterator[bytes]:
    at = 0
    for match in _ESCAPE.finditer(text):
        yield text[at : match.start()].encode("utf-8", "surrogateescape")
        yield bytes([int(match[1], 8) & 255]) if match[1].isdigit() else _NAMED[match[1]].encode()
        at = match.end()
    yield text[at:].encode("utf-8", "surrogateescape")


def _paths(lines: _Lines, head: _Head) -> tuple[str, str]:
    """What the file is called before and after, without the prefixes a/ and b/ where both have
    them.
    """
    if head.renamed_to:
        return head.renamed_from, head.renamed_to
    if head.old:
        old, new = head.old, head.new
        if old == _NULL and new == _NULL:
            raise lines.wrong("a file that is nowhere, before and after")
        if old in (_NULL,) or new in (_NULL,) or (old.startswith("a/") and new.startswith("b/")):
            old, new = _bare(old, "a/"), _bare(new, "b/")
        # What is not made by git may call the old file by another name (x.orig): the new one is
        # meant.
        return (new, new) if old == _NULL else (old, old) if new == _NULL else (new, new)
    return _git_names(lines, head.git)


def _bare(name: str, prefix: str) -> str:
    return name.removeprefix(prefix) if name != _NULL else name


def _git_names(lines: _Lines, text: str) -> tuple[str, str]:
    """Both names from `diff --git`, where nothing else says them: then they are the same."""
    if text.startswith('"'):
        match = _QUOTED.match(text)
        if match is None:
            raise lines.wrong(f"the name {text!r} has no closing quote")
        name = _bare(_unquoted(match[1]), "a/")
        return name, name
    half = len(text) // 2
    old, new = text[:half], text[half + 1 :]
    if text[half : half + 1] != " " or _bare(old, "a/") != _bare(new, "b/"):
        raise lines.wrong(f"{text!r} does not say one name twice, as in a/x b/x")
    return _bare(old, "a/"), _bare(old, "a/")


def _git_hunks(lines: _Lines) -> Iterator[Hunk]:
    while (line := lines.peek()) is not None and line.startswith("@@"):
        if match := _HUNK.match(line):
            yield _counted(lines, match)
        elif line.startswith("@@ -"):
            raise lines.wrong(
                f"{line[:80]!r} is no head of a hunk, as in @@ -10,3 +10,4 @@; without numbers"
                " write @@ alone"
            )
        else:
            yield _uncounted(lines)


def _counted(lines: _Lines, head: re.Match[str]) -> Hunk:
    """A hunk that says how many lines it has: a line of it may look like anything."""
    lines.take()
    start, old, new = int(head[1]), int(head[2] or 1), int(head[4] or 1)
    found: list[Line] = []
    while old > 0 or new > 0:
        line = lines.peek()
        if line is None or (line[:1] not in (" ", "-", "+", "") and line != "\r"):
            raise lines.wrong(
                f"the hunk {head[0]!r} lacks {old} old and {new} new lines: correct its numbers, or"
                " write @@ alone"
            )
        made = _line(lines)
        old, new = old - (made.mark != "+"), new - (made.mark != "-")
        if old < 0 or new < 0:
            raise lines.wrong(
                f"the hunk {head[0]!r} has more lines than it says: correct its numbers, or write"
                " @@ alone"
            )
        found.append(_ended(lines, made))
    if (
        (lines.peek() or "")[:1] in ("+", "-", " ")
        and not _is_names(lines)
        and (lines.peek() or "") != "-- "
    ):
        raise lines.wrong(
            f"the hunk {head[0]!r} has more lines than it says: correct its numbers, or write @@"
            " alone"
        )
    return Hunk(tuple(found), start)


def _uncounted(lines: _Lines) -> Hunk:
    after = _anchors(lines)
    found: list[Line] = []
    while (
        (line := lines.peek()) is not None
        and line[:1] in (" ", "-", "+", "")
        and not _is_names(lines)
    ):
        found.append(_ended(lines, _line(lines)))
    while found and found[-1] == Line(" ", "\n"):
        found.pop()  # an empty line between two files is none of the file's
    if not found:
        raise lines.wrong("a hunk without lines")
    return Hunk(tuple(found), None, after)


def _line(lines: _Lines) -> Line:
    text = lines.take()
    mark = text[:1]
    if mark in ("-", "+"):
        return Line("-" if mark == "-" else "+", text[1:] + "\n")
    # an empty line has lost its mark on the way
    return Line(" ", text[1:] + "\n" if mark == " " else text + "\n")


def _ended(lines: _Lines, line: Line) -> Line:
    """The line, without its line feed if it is said to have none."""
    if (lines.peek() or "").startswith(NO_NEWLINE[:2]):
        lines.take()
        return line._replace(text=line.text[:-1])
    return line


# ── the form without numbers ─────────────────────────────────────────────────────────────────


def _plain_files(lines: _Lines) -> Iterator[FilePatch]:
    while (line := lines.peek()) is not None and line.strip() != "*** End Patch":
        for words, make in (
            ("*** Add File: ", _added),
            ("*** Delete File: ", _deleted),
            ("*** Update File: ", _updated),
        ):
            if line.startswith(words):
                lines.take()
                yield make(lines, line[len(words) :].strip())
                break
        else:
            if line.strip():
                raise lines.wrong(
                    f"{line[:80]!r}: a file begins with *** Add File: , *** Update File: or ***"
                    " Delete File: and its path"
                )
            lines.take()


def _added(lines: _Lines, path: str) -> FilePatch:
    found: list[Line] = []
    while (line := lines.peek()) is not None and not line.startswith("*** "):
        if not line.startswith("+"):
            raise lines.wrong(f"{line[:80]!r}: each line of a new file begins with +")
        found.append(_line(lines))
    return FilePatch("create", path, path, (Hunk(tuple(found), 0),) if found else ())


def _deleted(lines: _Lines, path: str) -> FilePatch:
    return FilePatch("delete", path, path)


def _updated(lines: _Lines, path: str) -> FilePatch:
    target = path
    if (lines.peek() or "").startswith("*** Move to: "):
        target = lines.take()[len("*** Move to: ") :].strip()
    hunks: list[Hunk] = []
    while (line := lines.peek()) is not None and not _is_next(line):
        hunks.append(_plain_hunk(lines))
    if not hunks and target == path:
        raise lines.wrong(f"nothing is said about {path!r}")
    return FilePatch("change" if target == path else "rename", path, target, tuple(hunks))


def _is_next(line: str) -> bool:
    return line.startswith("*** ") and line.strip() != "*** End of File"


def _plain_hunk(lines: _Lines) -> Hunk:
    after = _anchors(lines)
    found: list[Line] = []
    while (line := lines.peek()) is not None and not line.startswith(("@@", "*** ")):
        if line[:1] not in (" ", "-", "+", ""):
            raise lines.wrong(f"{line[:80]!r}: a line begins with a space, + or -")
        found.append(_line(lines))
    at_end = (lines.peek() or "").strip() == "*** End of File"
    if at_end:
        lines.take()
    if not found:
        raise lines.wrong("a hunk without lines")
    return Hunk(tuple(found), None, after, at_end)


def _anchors(lines: _Lines) -> tuple[str, ...]:
    found: list[str] = []
    while (line := lines.peek()) is not None and line.startswith("@@"):
        found.append(lines.take()[2:].strip().removesuffix("@@").strip())
    return tuple(text for text in found if text)


# ── putting hunks to a text ──────────────────────────────────────────────────────────────────


def apply_hunks(path: str, content: str, hunks: Sequence[Hunk]) -> str:
    """The text with all of them, or EditRefused: which does not fit, why, and what stands there."""
    lines, made, done, moved = lines_of(content), list[str](), 0, 0
    for number, hunk in enumerate(_in_its_lines(content, hunks), 1):
        at = _place(path, lines, hunk, done, moved, f"hunk {number} of {len(hunks)}")
        if hunk.start is not None:
            moved = at - _stated(hunk)
        made += lines[done:at]
        done = at + len(hunk.old)
        made += _result(lines[at:done], hunk)
    whole = [*made, *lines[done:]]
    joined = next(
        (number for number, line in enumerate(whole[:-1]) if not line.endswith("\n")), None
    )
    if joined is not None:
        # The last line had no line feed, and now others follow it.
        whole = [
            line if line.endswith("\n") or number == len(whole) - 1 else line + "\n"
            for number, line in enumerate(whole)
        ]
    return "".join(whole)


def _in_its_lines(content: str, hunks: Sequence[Hunk]) -> list[Hunk]:
    """The hunks with the line ends of the file, if it has those of Windows and they could not be
    meant exactly: their lines have others.
    """
    loose = any(
        hunk.start is None or any(text.endswith("\n") for text in hunk.old) for hunk in hunks
    )
    if (
        not loose
        or not is_crlf(content)
        or any("\r" in line.text for hunk in hunks for line in hunk.lines)
    ):
        return list(hunks)
    return [
        hunk._replace(lines=tuple([line._replace(text=as_crlf(line.text)) for line in hunk.lines]))
        for hunk in hunks
    ]


def _stated(hunk: Hunk) -> int:
    """Where it says that it begins, from 0.

    A hunk that removes nothing and has no lines around says after which line.
    """
    start = hunk.start or 0
    return start if not hunk.old else max(start - 1, 0)


def _place(path: str, lines: Sequence[str], hunk: Hunk, done: int, moved: int, which: str) -> int:
    """Where it fits, from 0."""
    old = hunk.old
    if hunk.start is not None:
        at = _stated(hunk) + moved
        if at >= done and _fits(lines, at, hunk):
            return at
    floor = _beyond(path, lines, hunk, done, which)
    if not old:
        if hunk.start is None:
            return len(lines) if hunk.at_end or not hunk.after else floor
        raise _refused(
            path,
            which,
            f"it adds lines after line {hunk.start}, and there are {len(lines)}",
            "",
            "Show the lines around them",
        )
    places = [at for at in range(floor, len(lines) - len(old) + 1) if _fits(lines, at, hunk)]
    if hunk.at_end:
        places = [at for at in places if at + len(old) == len(lines)]
    if len(places) == 1 or (places and hunk.after):
        return places[0]
    if places:
        where = ", ".join(str(at + 1) for at in places[:10])
        raise _refused(
            path,
            which,
            f"its lines stand at {len(places)} places, lines {where}",
            "",
            "Add lines around it until it is one",
        )
    raise _misfit(path, lines, hunk, which, floor, moved)


def _beyond(path: str, lines: Sequence[str], hunk: Hunk, done: int, which: str) -> int:
    """The first line at which it may begin: after those that it says come before it."""
    for text in hunk.after:
        found = next((at for at in range(done, len(lines)) if lines[at].strip() == text), None)
        if found is None:
            raise _refused(
                path,
                which,
                f"no line {text!r} comes before it",
                "",
                "After @@ write a whole line of the file, or nothing",
            )
        done = found + 1
    return done


def _fits(lines: Sequence[str], at: int, hunk: Hunk) -> bool:
    old = hunk.old
    if not 0 <= at <= len(lines) - len(old):
        return False
    there = lines[at : at + len(old)]
    return list(there) == old or (
        _may_lack_newline(lines, at, hunk) and [*there[:-1], there[-1] + _end(old[-1])] == old
    )


def _end(line: str) -> str:
    return "\r\n" if line.endswith("\r\n") else "\n"


def _may_lack_newline(lines: Sequence[str], at: int, hunk: Hunk) -> bool:
    """Whether it reaches the last line, which has no line feed, and says nothing about that."""
    reaches = bool(hunk.old) and at + len(hunk.old) == len(lines) and not lines[-1].endswith("\n")
    return reaches and all(line.text.endswith("\n") for line in hunk.lines)


def _result(there: Sequence[str], hunk: Hunk) -> list[str]:
    """What stands there afterwards.

    A last line without a line feed stays so, if the hunk does not say otherwise.
    """
    new = hunk.new
    if there and not there[-1].endswith("\n") and hunk.old[-1].endswith("\n") and new:
        new[-1] = new[-1].removesuffix("\n").removesuffix("\r")
    return new


def _misfit(
    path: str, lines: Sequence[str], hunk: Hunk, which: str, floor: int, moved: int
) -> EditRefused:
    """Says where it fits best, which of its lines is not there, and what is."""
    old = hunk.old
    if hunk.new != old and _stands(lines[floor:], hunk.new):
        why = "its old lines are not there, but its new ones are: it may have been applied already"
        return _refused(path, which, why, "", "Read the file before you go on")
    around = [_stated(hunk) + moved] if hunk.start is not None else []
    starts = [at for at in [*around, *range(max(floor, 0), len(lines))] if 0 <= at < len(lines)]
    if not starts:
        return _refused(
            path,
            which,
            f"the file has {len(lines)} lines, none of which it could begin at",
            "",
            "Read the file first",
        )
    best = max(
        starts[:20_000],
        key=lambda at: sum(
            one == other for one, other in zip(lines[at : at + len(old)], old, strict=False)
        ),
    )
    there = lines[best : best + len(old)]
    wrong = next(
        (n for n, (one, other) in enumerate(zip(there, old, strict=False)) if one != other),
        len(there),
    )
    wanted = old[wrong] if wrong < len(old) else ""
    why = f"it does not fit: expected {wanted.rstrip()[:200]!r} at line {best + wrong + 1}"
    found = "\n".join(
        f"{best + n + 1}\t{line.rstrip()[:200]}"
        for n, line in enumerate(lines[best : best + max(len(old), 3)][:12])
    )
    return _refused(path, which, why, found, "Copy the lines from the file as they are")


def _stands(lines: Sequence[str], block: Sequence[str]) -> bool:
    return bool(block) and any(
        list(lines[at : at + len(block)]) == list(block)
        for at in range(len(lines) - len(block) + 1)
    )


def _refused(path: str, which: str, why: str, found: str, step: str) -> EditRefused:
    there = f". There stands:\n{found}\n" if found else ""
    return EditRefused(path, f"{which}: {why}{there}", f"{step}; nothing of the patch was applied")
