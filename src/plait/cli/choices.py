"""Who is right where files disagree: what somebody chose on the command line, and what is told
until they do.

A file is chosen whole: by the name of a side, as the conflict tells it, or as the content of a file
on this machine. A bare text is never taken for content, for it would be a slip of the hand more
often than a wish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from plait.cli.render import counted
from plait.cli.terminal import clean, cut, visible
from plait.errors import MergeConflict
from plait.session import ABSENT
from plait.session.merge import WORKSPACE
from plait.workspace.git_patch import quoted

Done = TypeVar("Done")

LINES_SHOWN, LINE_MAX = 3, 100  # of each side of a file in dispute; characters of a line
LEAD = 20  # of what long lines have in common, so much is shown


class Choices(NamedTuple):
    """What was chosen, by path: contents that are known, and sides whose content a conflict will
    tell.
    """

    contents: Mapping[str, Any] = {}
    sides: Mapping[str, str] = {}

    @classmethod
    def of(
        cls,
        chosen: Mapping[str, str],
        drop: Sequence[str] = (),
        names: Mapping[str, str] | None = None,
    ) -> Choices:
        """`names`: what may be said for a side, and what the conflict calls it; None: just what it
        calls it.
        """
        contents: dict[str, Any] = {
            path: _content(path, choice)
            for path, choice in chosen.items()
            if choice.startswith("@")
        }
        sides = {path: choice for path, choice in chosen.items() if path not in contents}
        known = (
            sides
            if names is None
            else {path: _side(path, side, names) for path, side in sides.items()}
        )
        return cls({**contents, **dict.fromkeys(drop, ABSENT)}, known)


def _side(path: str, side: str, names: Mapping[str, str]) -> str:
    if side not in names:
        raise click.BadParameter(
            f"{path}: {side!r} is no side; use {', '.join(names)} or @FILE.",
            param_hint="'--resolve'",
        )
    return names[side]


def _content(path: str, choice: str) -> bytes:
    try:
        return Path(choice[1:]).read_bytes()
    except OSError as error:
        why = f"{path}: {choice[1:]!r} cannot be read: {error.strerror}"
        raise click.BadParameter(f"{why}.", param_hint="'--resolve'") from error


def settled(act: Callable[[Mapping[str, Any]], Done], choices: Choices) -> Done:
    """Do it with what was chosen.

    A side's content is learnt from the conflict; what is still in dispute raises MergeConflict.
    """
    chosen = dict(choices.contents)
    while True:
        try:
            return act(chosen)
        except MergeConflict as error:
            told = _told_by(error, choices)
            if not told.keys() - chosen.keys():
                raise
            chosen |= told


def _told_by(error: MergeConflict, choices: Choices) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, sides in error.conflicts.items():
        side = choices.sides.get(path_in(key))
        if side is not None and side not in sides:
            names = ", ".join(map(repr, sides))
            raise click.BadParameter(
                f"{path_in(key)}: {side!r} is no side of it; there are {names}, or @FILE.",
                param_hint="'--resolve'",
            )
        if side is not None:
            found[key] = sides[side]
    return found


def path_in(key: str) -> str:
    """The path that a conflict is about."""
    return key.removeprefix(f"{WORKSPACE}/")


def sides_told(sides: Mapping[str, Any]) -> list[str]:
    """What each side has of a file: the first lines that differ.

    The whole would bury what is to be decided, and files begin alike.
    """
    texts = {side: _lines(value) for side, value in sides.items() if value is not ABSENT}
    before, after = _alike(list(texts.values()))
    differing = {side: lines[before : len(lines) - after] for side, lines in texts.items()}
    skipped = _shared([lines[0] for lines in differing.values() if lines])
    numbered = any(len(lines) > 1 for lines in texts.values())
    wide = max(len(clean(side)) for side in sides)
    told = list[str]()
    for side in sides:
        shown = (
            _excerpt(differing[side], before + 1 if numbered else None, skipped)
            if side in texts
            else ["(gone)"]
        )
        told += [
            f"    {name:{wide}}  {line}"
            for name, line in zip([clean(side), *[""] * len(shown)], shown, strict=False)
        ]
    return told


def _lines(value: Any) -> list[str]:
    return str(value).removesuffix("\n").split("\n") if value != "" else []


def _alike(texts: Sequence[Sequence[str]]) -> tuple[int, int]:
    """How many lines at the beginning, and at the end, are the same in all."""
    if len(texts) < 2:
        return 0, 0
    before = _leading(texts)
    return before, _leading([text[before:][::-1] for text in texts])


def _leading(texts: Sequence[Sequence[str]]) -> int:
    return next(
        (at for at, each in enumerate(zip(*texts, strict=False)) if len(set(each)) > 1),
        min(map(len, texts)),
    )


def _shared(lines: Sequence[str]) -> int:
    """How much of a long line is left out because all begin with it."""
    return (
        max(0, _leading(lines) - LEAD) if len(lines) > 1 and max(map(len, lines)) > LINE_MAX else 0
    )


def _excerpt(lines: Sequence[str], first: int | None, skipped: int) -> list[str]:
    if not lines:
        return [f"(has nothing there, at line {first})" if first is not None else "(empty)"]
    shown = [f"…{lines[0][skipped:]}" if skipped else lines[0], *lines[1:LINES_SHOWN]]
    numbers = ["" if first is None else f"{first + at}: " for at in range(len(shown))]
    left = [f"… {counted(len(lines) - len(shown), 'more line')}"] if len(lines) > len(shown) else []
    return [
        *(
            f"{number}{cut(visible(line.expandtabs(4)), LINE_MAX)}"
            for number, line in zip(numbers, shown, strict=True)
        ),
        *left,
    ]


def name_of(key: str) -> str:
    return quoted(path_in(key))
