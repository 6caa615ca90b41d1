"""Choices between the sides of files that disagree, as given on the command line, and the text that
asks for them.

A file is chosen whole: by the name of a side, as the conflict names it, or as the content of a file
on this machine. A bare text is never taken for content: it is more often a mistake than intended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from plait.cli.render import count_text
from plait.cli.terminal import cut_text
from plait.errors import MergeConflict
from plait.session import ABSENT
from plait.session.merge import WORKSPACE
from plait.session.safe_text import clean, visible
from plait.workspace.git_patch import quoted_path

Result = TypeVar("Result")

LINES_SHOWN, LINE_MAX = 3, 100  # of each side of a file in dispute; characters of a line
LEAD = 20  # characters shown of the beginning that long lines share


class Choices(NamedTuple):
    """The choices by path: contents that are known, and names of sides whose content the conflict
    has.
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
        """`names` maps the words for sides to their names in the conflict. None: the names in the
        conflict are the words.
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


def act_with_choices(act: Callable[[Mapping[str, Any]], Result], choices: Choices) -> Result:
    """Call `act` with the contents that were chosen.

    The content of a side is taken from the MergeConflict that the first call raises. A conflict
    without a choice is raised.
    """
    chosen = dict(choices.contents)
    while True:
        try:
            return act(chosen)
        except MergeConflict as error:
            told = _contents_of_sides(error, choices)
            if not told.keys() - chosen.keys():
                raise
            chosen |= told


def _contents_of_sides(error: MergeConflict, choices: Choices) -> dict[str, Any]:
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
    """Return the path that a conflict is about."""
    return key.removeprefix(f"{WORKSPACE}/")


def side_lines(sides: Mapping[str, Any]) -> list[str]:
    """Return the first lines that differ, for each side of a file.

    The whole files would bury the difference, and files begin alike.
    """
    texts = {side: _lines(value) for side, value in sides.items() if value is not ABSENT}
    before, after = _common_line_counts(list(texts.values()))
    differing = {side: lines[before : len(lines) - after] for side, lines in texts.items()}
    skipped = _shared_prefix_length([lines[0] for lines in differing.values() if lines])
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


def _common_line_counts(texts: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Count the lines that are the same in all texts, at the beginning and at the end."""
    if len(texts) < 2:
        return 0, 0
    before = _common_length(texts)
    return before, _common_length([text[before:][::-1] for text in texts])


def _common_length(texts: Sequence[Sequence[str]]) -> int:
    return next(
        (at for at, each in enumerate(zip(*texts, strict=False)) if len(set(each)) > 1),
        min(map(len, texts)),
    )


def _shared_prefix_length(lines: Sequence[str]) -> int:
    """Return how many characters of long lines to leave out, because all lines begin with them."""
    return (
        max(0, _common_length(lines) - LEAD)
        if len(lines) > 1 and max(map(len, lines)) > LINE_MAX
        else 0
    )


def _excerpt(lines: Sequence[str], first: int | None, skipped: int) -> list[str]:
    if not lines:
        return [f"(has nothing there, at line {first})" if first is not None else "(empty)"]
    shown = [f"…{lines[0][skipped:]}" if skipped else lines[0], *lines[1:LINES_SHOWN]]
    numbers = ["" if first is None else f"{first + at}: " for at in range(len(shown))]
    left = (
        [f"… {count_text(len(lines) - len(shown), 'more line')}"] if len(lines) > len(shown) else []
    )
    return [
        *(
            f"{number}{cut_text(visible(line.expandtabs(4)), LINE_MAX)}"
            for number, line in zip(numbers, shown, strict=True)
        ),
        *left,
    ]


def name_of(key: str) -> str:
    return quoted_path(path_in(key))
