"""Replacing one text in another, exactly and once; a refusal shows the lines that come nearest."""

from __future__ import annotations

import difflib

from plait.errors import EditRefused
from plait.tools.text import as_crlf, is_crlf


def replace_text(name: str, text: str, old: str, new: str, *, every: bool = False) -> str:
    """Return the text with the replacement, or raise EditRefused with the lines to look at."""
    if not old:
        raise EditRefused(
            name,
            "what to replace is empty",
            "Copy the text to replace from the file; use write_file for a new one",
        )
    if old == new:
        raise EditRefused(name, "old and new are the same", "Say what is to be different")
    if is_crlf(text):
        old, new = as_crlf(old), as_crlf(new)
    places = _find_all(text, old)
    if not places:
        raise _missing_error(name, text, old, new)
    if len(places) > 1 and not every:
        where = ", ".join(f"{_line_number(text, at):,}" for at in places[:20])
        step = "Add lines around it until it is the only one, or pass replace_all=true"
        raise EditRefused(name, f"the text is there {len(places)} times, at lines {where}", step)
    return text.replace(old, new)


def _find_all(text: str, old: str, limit: int = 10_000) -> list[int]:
    """Return all places of a text, overlapping ones included: it is unclear which of them was
    meant.
    """
    found: list[int] = []
    at = text.find(old)
    while at >= 0 and len(found) < limit:
        found.append(at)
        at = text.find(old, at + 1)
    return found


def _line_number(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _missing_error(name: str, text: str, old: str, new: str) -> EditRefused:
    done = text.find(new) if new.strip() else -1
    if done >= 0 and len(new) > 3:
        number = _line_number(text, done)
        step = "Read the file: the edit may have been made before"
        return EditRefused(
            name,
            f"the text is not there, but what it is to become is, at line {number:,}",
            step,
        )
    lines = text.split("\n")
    wanted = old.strip("\r\n").split("\n")
    start, why = _nearest_lines(lines, wanted)
    if start is None:
        return EditRefused(
            name,
            "the text is not there, nor anything like it",
            "Read the file, and copy the text from it",
        )
    shown = "\n".join(
        f"{start + n + 1}\t{line[:300]}"
        for n, line in enumerate(lines[start : start + min(len(wanted), 12) + 1])
    )
    return EditRefused(
        name,
        why,
        f"The nearest lines are:\n{shown}\nCopy the text from the file exactly, without the"
        " numbers",
    )


def _nearest_lines(lines: list[str], wanted: list[str]) -> tuple[int | None, str]:
    """Return the first of the lines that come nearest, and the difference; None: nothing comes
    near.
    """
    bare, sought = (
        ["".join(line.split()) for line in lines[:50_000]],
        ["".join(line.split()) for line in wanted],
    )
    for at in range(len(bare) - len(sought) + 1):
        if bare[at] == sought[0] and bare[at : at + len(sought)] == sought and any(sought):
            return (
                at,
                (
                    f"the text is not there; lines {at + 1:,} to {at + len(sought):,} differ from"
                    " it only in white space"
                ),
            )
    mark = max(range(len(wanted)), key=lambda n: len(sought[n]))
    best, score = None, 0.5
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[mark].strip()[:200])
    for at, line in enumerate(lines[:20_000]):
        matcher.set_seq1(line.strip()[:200])
        if (
            matcher.real_quick_ratio() > score
            and matcher.quick_ratio() > score
            and (ratio := matcher.ratio()) > score
        ):
            best, score = at, ratio
    return (None if best is None else max(best - mark, 0)), "the text is not there"
