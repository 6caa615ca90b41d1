"""Who is right where files disagree: what somebody chose on the command line, and what is told until they do.

A file is chosen whole: by the name of a side, as the conflict tells it, or as the content of a file on this machine. A bare text is never
taken for content, for it would be a slip of the hand more often than a wish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from plait.cli.render import counted
from plait.cli.terminal import clean
from plait.errors import MergeConflict
from plait.session import ABSENT
from plait.session.merge import WORKSPACE
from plait.workspace.diff import quoted

Done = TypeVar("Done")


class Choices(NamedTuple):
    """What was chosen, by path: contents that are known, and sides whose content a conflict will tell."""

    contents: Mapping[str, Any] = {}
    sides: Mapping[str, str] = {}

    @classmethod
    def of(cls, chosen: Mapping[str, str], drop: Sequence[str] = (), names: Mapping[str, str] | None = None) -> Choices:
        """`names`: what may be said for a side, and what the conflict calls it; None: just what it calls it."""
        contents: dict[str, Any] = {path: _content(path, choice) for path, choice in chosen.items() if choice.startswith("@")}
        sides = {path: choice for path, choice in chosen.items() if path not in contents}
        known = sides if names is None else {path: _side(path, side, names) for path, side in sides.items()}
        return cls({**contents, **dict.fromkeys(drop, ABSENT)}, known)


def _side(path: str, side: str, names: Mapping[str, str]) -> str:
    if side not in names:
        raise click.BadParameter(f"{path}: {side!r} is no side; use {', '.join(names)} or @FILE.", param_hint="'--resolve'")
    return names[side]


def _content(path: str, choice: str) -> bytes:
    try:
        return Path(choice[1:]).read_bytes()
    except OSError as error:
        why = f"{path}: {choice[1:]!r} cannot be read: {error.strerror}"
        raise click.BadParameter(f"{why}.", param_hint="'--resolve'") from error


def settled(act: Callable[[Mapping[str, Any]], Done], choices: Choices) -> Done:
    """Do it with what was chosen. A side's content is learnt from the conflict; what is still in dispute raises MergeConflict."""
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
            raise click.BadParameter(f"{path_in(key)}: {side!r} is no side of it; there are {names}, or @FILE.", param_hint="'--resolve'")
        if side is not None:
            found[key] = sides[side]
    return found


def path_in(key: str) -> str:
    """The path that a conflict is about."""
    return key.removeprefix(f"{WORKSPACE}/")


def sides_told(sides: Mapping[str, Any]) -> list[str]:
    """What each side has of a file, briefly: the whole would bury what is to be decided."""
    wide = max(len(clean(side)) for side in sides)
    return [f"    {clean(side):{wide}}  {_brief(value)}" for side, value in sides.items()]


def _brief(value: Any) -> str:
    if value is ABSENT:
        return "(gone)"
    text = str(value)
    lines = text.split("\n")
    first = next((line.strip() for line in lines if line.strip()), "")
    more = "" if len(lines) < 3 else f"{counted(len(lines) - (not lines[-1]), 'line')}: "
    return f"{more}{clean(first)[:60]}"


def name_of(key: str) -> str:
    return quoted(path_in(key))
