"""Hunks: lines to be replaced by others in a text, found where the old ones stand exactly.

Line numbers only say where to look first. Nothing here touches files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from plait.errors import EditRefused
from plait.tools.text import as_crlf, is_crlf, lines_of


class PatchLine(NamedTuple):
    mark: Literal[" ", "-", "+"]
    text: str  # with its line feed, unless it is said to have none


class Hunk(NamedTuple):
    lines: tuple[PatchLine, ...]
    # its first line in the old text, from 1, as it says; None: it does not say
    start: int | None = None
    after: tuple[str, ...] = ()  # lines that come before it, one after another, somewhere
    at_end: bool = False  # True: it belongs to the end of the file

    @property
    def old(self) -> list[str]:
        return [line.text for line in self.lines if line.mark != "+"]

    @property
    def new(self) -> list[str]:
        return [line.text for line in self.lines if line.mark != "-"]


def apply_hunks(path: str, content: str, hunks: Sequence[Hunk]) -> str:
    """Return the text with all hunks applied, or raise EditRefused: which one does not fit, why,
    and the lines that stand there.
    """
    lines, made, done, moved = lines_of(content), list[str](), 0, 0
    for number, hunk in enumerate(_with_file_line_ends(content, hunks), 1):
        at = _find_place(path, lines, hunk, done, moved, f"hunk {number} of {len(hunks)}")
        if hunk.start is not None:
            moved = at - _stated_start(hunk)
        made += lines[done:at]
        done = at + len(hunk.old)
        made += _new_lines(lines[at:done], hunk)
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


def _with_file_line_ends(content: str, hunks: Sequence[Hunk]) -> list[Hunk]:
    """Return the hunks with the line ends of Windows, if the file has them and no line of the hunks
    does.
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


def _stated_start(hunk: Hunk) -> int:
    """Return the line at which the hunk says that it begins, from 0.

    A hunk that removes nothing and has no lines around it names the line before it.
    """
    start = hunk.start or 0
    return start if not hunk.old else max(start - 1, 0)


def _find_place(
    path: str, lines: Sequence[str], hunk: Hunk, done: int, moved: int, which: str
) -> int:
    """Return the line at which the hunk fits, from 0."""
    old = hunk.old
    if hunk.start is not None:
        at = _stated_start(hunk) + moved
        if at >= done and _fits(lines, at, hunk):
            return at
    floor = _first_allowed(path, lines, hunk, done, which)
    if not old:
        if hunk.start is None:
            return len(lines) if hunk.at_end or not hunk.after else floor
        raise _refusal(
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
        raise _refusal(
            path,
            which,
            f"its lines stand at {len(places)} places, lines {where}",
            "",
            "Add lines around it until it is one",
        )
    raise _misfit_error(path, lines, hunk, which, floor, moved)


def _first_allowed(path: str, lines: Sequence[str], hunk: Hunk, done: int, which: str) -> int:
    """Return the first line at which the hunk may begin: after its anchors."""
    for text in hunk.after:
        found = next((at for at in range(done, len(lines)) if lines[at].strip() == text), None)
        if found is None:
            raise _refusal(
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
        _may_lack_newline(lines, at, hunk) and [*there[:-1], there[-1] + _line_end(old[-1])] == old
    )


def _line_end(line: str) -> str:
    return "\r\n" if line.endswith("\r\n") else "\n"


def _may_lack_newline(lines: Sequence[str], at: int, hunk: Hunk) -> bool:
    """Return True if the hunk reaches a last line without a line feed, and says nothing
    about that.
    """
    reaches = bool(hunk.old) and at + len(hunk.old) == len(lines) and not lines[-1].endswith("\n")
    return reaches and all(line.text.endswith("\n") for line in hunk.lines)


def _new_lines(there: Sequence[str], hunk: Hunk) -> list[str]:
    """Return the lines that the hunk leaves in place of these.

    A last line without a line feed stays so, unless the hunk says otherwise.
    """
    new = hunk.new
    if there and not there[-1].endswith("\n") and hunk.old[-1].endswith("\n") and new:
        new[-1] = new[-1].removesuffix("\n").removesuffix("\r")
    return new


def _misfit_error(
    path: str, lines: Sequence[str], hunk: Hunk, which: str, floor: int, moved: int
) -> EditRefused:
    """Return an error that names the best fit, the line that is missing there, and the lines of the
    file.
    """
    old = hunk.old
    if hunk.new != old and _contains_block(lines[floor:], hunk.new):
        why = "its old lines are not there, but its new ones are: it may have been applied already"
        return _refusal(path, which, why, "", "Read the file before you go on")
    around = [_stated_start(hunk) + moved] if hunk.start is not None else []
    starts = [at for at in [*around, *range(max(floor, 0), len(lines))] if 0 <= at < len(lines)]
    if not starts:
        return _refusal(
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
    return _refusal(path, which, why, found, "Copy the lines from the file as they are")


def _contains_block(lines: Sequence[str], block: Sequence[str]) -> bool:
    return bool(block) and any(
        list(lines[at : at + len(block)]) == list(block)
        for at in range(len(lines) - len(block) + 1)
    )


def _refusal(path: str, which: str, why: str, found: str, step: str) -> EditRefused:
    there = f". There stands:\n{found}\n" if found else ""
    return EditRefused(path, f"{which}: {why}{there}", f"{step}; nothing of the patch was applied")
