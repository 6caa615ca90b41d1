"""Text that is safe to show to a person.

A terminal obeys control characters, and most of the text that Plait shows was written by an agent,
or by a page that an agent read. So all such text is cleaned before it is shown: no escape sequence,
no control and no invisible or reordering character is left; everything a person can see stays as it
was, in every script. A sequence is removed whole, for its visible tail would be noise; a sequence
without an end is removed up to the end of its line, so that it cannot hide the text after it.

Only the output is cleaned: the record keeps the text as it came.
"""

from __future__ import annotations

import json
import re
import unicodedata

BREAK = " ⏎ "  # a line break within one line
# per base character: as many as Tibetan stacks; more would run over the lines above and below
MARKS_MAX = 8

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
JOINERS = "\u200c\u200d"
_SELECTORS = r"\u180b-\u180d\u180f\ufe00-\ufe0f"
# A selector chooses the look of the character before it. Elsewhere, and after another one, it says
# nothing to the eye.
_STRAY_SELECTOR = rf"(?<![^\s{_SELECTORS}{JOINERS}])[{_SELECTORS}]+"
_JOINED = rf"[^\x00-\x7f\s{JOINERS}]"
_JOINER = rf"(?<={_JOINED})([{JOINERS}])[{JOINERS}]*+(?={_JOINED})|[{JOINERS}]"
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
        marks = marks + 1 if is_mark(char) else 0
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
        if is_mark(char):
            marks += 1
        elif char not in JOINERS:  # a joiner does not begin a new character
            marks = 0
        if marks <= MARKS_MAX or char in JOINERS:
            kept.append(char)
    return "".join(kept)


def is_mark(char: str) -> bool:
    return unicodedata.category(char)[0] == "M"
