"""The texts of memories as people see them: on one line in lists, and behind a margin where all of
a text is shown, so that no line of it can be taken for one of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from plait.cli.common import Options, command_line
from plait.cli.exits import ShellError
from plait.cli.render import STRONG, Cell, Out
from plait.cli.terminal import cut_text
from plait.errors import UnknownMemory
from plait.ids import LogId, short
from plait.session.safe_text import clean, visible

if TYPE_CHECKING:
    from plait.memory.items import MemoryItem

TEXT_LINES = 40  # of one memory in a list, on a terminal
LINE_MAX = 200  # cells of a text in a list, also in a pipe: a memory may be a page
MARGIN = "│ "
_ALL = 2**31
WAITING = ("quarantined", "proposed")


def line_text(text: str) -> str:
    """Return a text on one line, cut to a length that a list bears."""
    return cut_text(clean(text), LINE_MAX)


def said_text(item: MemoryItem) -> str:
    """Return the text of a memory on one line, with its speaker."""
    return line_text(f"{item.speaker}: {item.text}" if item.speaker else item.text)


def owner_text(item: MemoryItem) -> str:
    """Return the scope of a memory and its owner."""
    owner = short(LogId(item.owner)) if item.scope == "session" else item.owner
    return f"{item.scope} {owner}"


def print_whole_text(out: Out, text: str) -> None:
    """Print all lines of a text behind a margin."""
    lines = _visible_lines(text)
    if out.tty:
        lines = out.wrap_lines("\n".join(lines), out.width - len(MARGIN), _ALL)
    for line in lines:
        out.line(MARGIN, Cell(line, STRONG))


def print_first_lines(out: Out, text: str, indent: str) -> bool:
    """Print the first lines of a text behind a margin, one in a pipe; return True if there are
    more.
    """
    whole = "\n".join(_visible_lines(text))
    if out.tty:
        lines = out.wrap_lines(whole, out.width - len(indent) - len(MARGIN), _ALL)
    else:
        lines = [line_text(whole)]
    for line in lines[:TEXT_LINES]:
        out.line(indent, MARGIN, line)
    return len(lines) > TEXT_LINES or (not out.tty and lines[0] != clean(whole))


def _visible_lines(text: str) -> list[str]:
    """Return the lines of a text, in which each character that a terminal would obey or hide
    stands as an escape: a person decides on it.
    """
    return [visible(line) for line in text.replace("\r\n", "\n").split("\n")]


def deciding_steps(given: Options, item: MemoryItem) -> list[str]:
    """Return the commands that decide about a memory which waits."""
    return [
        f"  {command_line(given, 'memory', 'approve', item.short)}",
        f"  {command_line(given, 'memory', 'reject', item.short)}",
    ]


# ── names ────────────────────────────────────────────────────────────────────────────────────


def check_name(given: Options, name: str) -> None:
    """Raise for a name that is too short for the id of a memory."""
    from plait.memory.items import ID_MIN, digits_of

    if len(digits_of(name)) < ID_MIN:
        ls = command_line(given, "memory", "ls")
        raise ShellError(
            UnknownMemory(name),
            [f"{name} is too short: write at least {ID_MIN} digits of the id.", f"  {ls}"],
        )


def check_person(given: Options) -> None:
    """Raise for an actor without its sort: people are called human:NAME."""
    name = given.actor_name
    if ":" not in name:
        raise click.UsageError(f"{name} is not the name of a person: write --as human:{name}.")
