"""The terminal: text cut to its width, the console, and times."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TextIO

from plait.session.safe_text import JOINERS, is_mark

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 10_000  # cells; the output into a pipe is not cut

# ── the text ─────────────────────────────────────────────────────────────────────────────────


def cut_text(text: str, width: int) -> str:
    """Cut clean text to so many cells of a terminal, with an ellipsis where something is
    missing.
    """
    if width <= 0:
        return ""
    if text.isascii():
        return text if len(text) <= width else f"{text[: width - 1]}…"
    from rich.cells import cell_len

    used = at = fits = 0
    for part in _characters(text):
        used += cell_len(part)
        if used > width:
            return f"{text[:fits]}…"
        at += len(part)
        if used < width:  # the ellipsis would take a cell
            fits = at
    return text


def wrap_text(text: str, width: int) -> list[str]:
    """Return a clean text in lines of at most so many cells, broken between words if that is
    possible.
    """
    from rich.console import Console
    from rich.text import Text

    lines = Text(text).wrap(Console(), width, no_wrap=False, overflow="fold")
    return [line.plain for line in lines]


def _characters(text: str) -> Iterator[str]:
    """Yield the text in pieces that a reader takes for one character, for half of one may look like
    another.
    """
    start = 0
    for at in range(1, len(text)):
        if not _continues_character(text, start, at):
            yield text[start:at]
            start = at
    yield text[start:]


def _continues_character(text: str, start: int, at: int) -> bool:
    char = text[at]
    # letters are joined too, but stay letters
    if text[at - 1] == "\u200d" and _is_symbol(text[start]) and _is_symbol(char):
        return True
    if "\U0001f1e6" <= char <= "\U0001f1ff":  # two such letters make a flag
        return at - start == 1 and "\U0001f1e6" <= text[start] <= "\U0001f1ff"
    # in the middle: tones of skin
    return char in JOINERS or "\U0001f3fb" <= char <= "\U0001f3ff" or is_mark(char)


def _is_symbol(char: str) -> bool:
    return unicodedata.category(char)[0] == "S"


# ── the console ──────────────────────────────────────────────────────────────────────────────


_CODES = {"bold": "1", "dim": "2"} | {
    name: str(30 + at)
    for at, name in enumerate(["black", "red", "green", "yellow", "blue", "magenta", "cyan"])
}


def text_stream(stderr: bool = False) -> TextIO:
    """Return stdout or stderr; it prints an escape for a character that its encoding has not."""
    stream = sys.stderr if stderr else sys.stdout
    if reconfigure := getattr(stream, "reconfigure", None):
        reconfigure(errors="backslashreplace")
    return stream


def has_colors(stream: TextIO) -> bool:
    """True if styles are printed: on a terminal, and in a pipe if FORCE_COLOR says so."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def screen_width(stream: TextIO) -> int:
    """Return the cells in a line: those of the terminal, or as many as there are in a pipe."""
    if not stream.isatty():
        return WIDE
    if (columns := os.environ.get("COLUMNS", "")).isdecimal():
        return int(columns)
    for number in (1, 2, 0):
        with suppress(OSError):
            if columns := os.get_terminal_size(number).columns:
                return columns
    return 80


def styled(text: str, style: str) -> str:
    """Return a text with the codes of its style, as in `bold red`."""
    if not style or not text:
        return text
    codes = ";".join(_CODES[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m"


def console(stderr: bool = False) -> Console:
    """Return a console for stdout or stderr, which redraws.

    It prints text as it is: no markup, no emoji names, no highlighting, and no line broken by us.
    """
    from rich.console import Console

    class PlainConsole(Console):
        """Leaves it to the command line to end when the reader has gone: rich would exit with 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    tty = text_stream(stderr).isatty()
    return PlainConsole(
        stderr=stderr,
        # rich keeps bold and dim under NO_COLOR, which asks for plain text
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        # With FORCE_COLOR rich takes a pipe for a terminal; it is none that has a width. rich
        # ignores a width without a height.
        width=None if tty else WIDE,
        height=None if tty else 25,
        soft_wrap=True,
        markup=False,
        emoji=False,
        highlight=False,
    )


# ── times ────────────────────────────────────────────────────────────────────────────────────

_MINUTE, _HOUR, _DAY, _WEEK = (seconds * 1_000_000 for seconds in (60, 3_600, 86_400, 604_800))


def age(micros: int, now: int) -> str:
    """Return the time passed, roughly; a date if that is long ago, the full time if it is yet to
    come.
    """
    past = now - micros
    if past < 0:
        return when(micros)
    if past < _MINUTE:
        return "just now"
    if past < _HOUR:
        return f"{past // _MINUTE} min ago"
    if past < _DAY:
        return f"{past // _HOUR} h ago"
    if past < _WEEK:
        return f"{past // _DAY} d ago"
    return when(micros).partition(" ")[0]


def when(micros: int) -> str:
    """Return date and time in UTC; the bare number, if no calendar has that year."""
    try:
        return (datetime(1970, 1, 1) + timedelta(microseconds=micros)).isoformat(" ", "seconds")
    except OverflowError:
        return str(micros)
