"""Text that is safe to show on a terminal.

A terminal obeys control characters, and most of the text that Plait shows was written by an agent,
or by a page that an agent read. So all such text is cleaned before it is shown: no escape sequence,
no control and no invisible or reordering character is left; everything a person can see stays as it
was, in every script. A sequence is removed whole, for its visible tail would be noise; a sequence
without an end is removed up to the end of its line, so that it cannot hide the text after it.

Only the output is cleaned: the record keeps the text as it came.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

BREAK = " ⏎ "  # a line break within one line
# per base character: as many as Tibetan stacks; more would run over the lines above and below
MARKS_MAX = 8
WIDE = 10_000  # cells; the output into a pipe is not cut

# ── the text ─────────────────────────────────────────────────────────────────────────────────

# The patterns are texts that `re` compiles when a text first needs them: that takes longer than
# the rest of the import, and most commands show nothing but ASCII.

# The grammar is that of ECMA-48 as terminals read it: controls within a sequence do not end it,
# apart from CAN, SUB and ESC, and a C1 control is the same as ESC and a letter. A line break ends
# every sequence here, which a terminal would not do.
_IDLE = r"\x00-\x09\x0b\x0c\x0e-\x17\x19\x1c-\x1f\x7f"  # controls that leave a sequence going
# within a string; a bell as well, except in an OSC
_BODY = r"\x00-\x06\x08\x09\x0b\x0c\x0e-\x17\x19\x1c-\x7f\xa0-\U0010ffff"
_END = r"(?:\x1b\\|\x9c)"
_ESCAPE = (
    # CSI: colours, the cursor, modes
    rf"(?:\x1b[{_IDLE}]*+\[|\x9b)[{_IDLE}\x20-\x3f]*+[\x40-\x7e]?"
    rf"|(?:\x1b[{_IDLE}]*+\]|\x9d)[{_BODY}]*+(?:\x07|{_END})?"  # OSC: titles, links, the clipboard
    rf"|(?:\x1b[{_IDLE}]*+[PX^_]|[\x90\x98\x9e\x9f])[{_BODY}\x07]*+{_END}?"  # DCS, SOS, PM, APC
    # a title, to screen and tmux; to others an escape of two characters
    rf"|\x1b[{_IDLE}]*+k[{_BODY}\x07]*+{_END}"
    rf"|\x1b[{_IDLE}\x20-\x2f]*+[\x30-\x7e]?"  # the others: reset, character sets
)

# Controls, the format characters (Cf) but for the joiners, line separators, and letters and marks
# that show nothing.
_HIDDEN = (
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180e"
    r"\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_SURROGATE = r"[\ud800-\udfff]"
_JOINERS = "\u200c\u200d"
_SELECTORS = r"\u180b-\u180d\u180f\ufe00-\ufe0f"
# A selector chooses the look of the character before it. Elsewhere, and after another one, it says
# nothing to the eye.
_STRAY_SELECTOR = rf"(?<![^\s{_SELECTORS}{_JOINERS}])[{_SELECTORS}]+"
_JOINED = rf"[^\x00-\x7f\s{_JOINERS}]"
_JOINER = rf"(?<={_JOINED})([{_JOINERS}])[{_JOINERS}]*+(?={_JOINED})|[{_JOINERS}]"
_MARKS_SEEN = 4  # on one character, where a person decides
_BLANKS = "\u2800"  # looks like a space, and is a symbol
# no mark is a \w, and few other runs are as long
_PERHAPS_MARKS = rf"[^\w\x00-\x7f]{{{MARKS_MAX + 1},}}"


def clean(text: str, *, lines: bool = False) -> str:
    """Return text from outside, made safe to show: on one line, unless its `lines` are to
    be kept.
    """
    if text.isascii() and text.isprintable():
        return text
    text = re.sub(_ESCAPE, "", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ")
    text = re.sub(_SURROGATE, "\ufffd", text)
    text = re.sub(_HIDDEN, "", text)
    # In this order, so that none of the three makes work for another: cleaning twice is cleaning
    # once.
    text = re.sub(_STRAY_SELECTOR, "", text)
    text = re.sub(_PERHAPS_MARKS, _cap_marks, text)
    text = re.sub(_JOINER, r"\1", text)
    return (
        text
        if lines or "\n" not in text
        else BREAK.join(filter(None, (line.strip(" ") for line in text.split("\n"))))
    )


def visible(text: str) -> str:
    """Return text from outside on one line, with nothing left out: a character that would be
    obeyed, not be seen or reorder others stands as an escape.

    For text on which a person decides. `clean` leaves the result as it is.
    """
    if text.isascii() and text.isprintable():
        return text
    shown, marks = list[str](), 0
    for char in text:
        marks = marks + 1 if _is_mark(char) else 0
        shown.append(_escape(char) if marks > _MARKS_SEEN or _is_unseen(char) else char)
    return "".join(shown)


def _is_unseen(char: str) -> bool:
    if char == " ":
        return False
    category = unicodedata.category(char)
    return (
        category[0] in "CZ"
        or bool(re.match(_HIDDEN, char))
        or char in _BLANKS
        or re.match(_STRAY_SELECTOR, char) is not None
    )


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else json.dumps(char)[1:-1]


def _cap_marks(run: re.Match[str]) -> str:
    kept, marks = list[str](), 0
    for char in run[0]:
        if _is_mark(char):
            marks += 1
        elif char not in _JOINERS:  # a joiner does not begin a new character
            marks = 0
        if marks <= MARKS_MAX or char in _JOINERS:
            kept.append(char)
    return "".join(kept)


def _is_mark(char: str) -> bool:
    return unicodedata.category(char)[0] == "M"


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
    return char in _JOINERS or "\U0001f3fb" <= char <= "\U0001f3ff" or _is_mark(char)


def _is_symbol(char: str) -> bool:
    return unicodedata.category(char)[0] == "S"


# ── the console ──────────────────────────────────────────────────────────────────────────────


def console(stderr: bool = False) -> Console:
    """Return a console for stdout or stderr.

    It prints text as it is: no markup, no emoji names, no highlighting, and no line broken by us.
    """
    from rich.console import Console

    class PlainConsole(Console):
        """Leaves it to the command line to end when the reader has gone: rich would exit with 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    if reconfigure := getattr(stream, "reconfigure", None):
        # a text may hold characters that the terminal's encoding has not
        reconfigure(errors="backslashreplace")
    tty = stream.isatty()
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
