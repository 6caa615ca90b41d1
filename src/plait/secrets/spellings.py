"""The spellings of a secret: escaped, quoted, in hex, in base64, and broken across lines."""

from __future__ import annotations

import re
from base64 import b64encode
from json import dumps
from urllib.parse import quote, quote_plus

import msgspec

SIZE_MIN = 6  # characters; anything shorter would eat ordinary text
_LEVELS = 4  # of JSON in a text in JSON
# characters: lines of base64 have 64 or more, so of two pieces in a row one is whole
PIECE_SIZE = 24
# a character of base64 that is partly a neighbour's, unless it is the n of an escaped line break
_HALF = r"(?:(?<!\\)[A-Za-z0-9+/_-])?"
_BREAK = r"(?:\\+[rn]|\s)"  # where a long line was broken, and perhaps escaped after that
_ESCAPED_END = re.compile(r"\\+\Z")


def without_line_breaks(text: str) -> str:
    """Return a text without line breaks of any form: a spelling can be broken anywhere."""
    return re.sub(_BREAK, "", _ESCAPED_END.sub("", text)).lower()


def unsquashed_size(window: str, size: int) -> int:
    """Return the length of the end of a text that is squashed to so many characters, with one more
    that may be half of it.
    """
    taken = size
    while taken < len(window) and len(without_line_breaks(window[-taken:])) < size:
        taken += 1
    return min(len(window), taken + 1)


def spellings_of(text: str) -> tuple[list[str], list[str], list[str], str]:
    """Return the spellings as written, those with percent signs, those that are one long line; and
    the pattern of the text to replace.
    """
    written = _plain_spellings(text)
    patterns = [re.escape(form) for form in written]
    # as in a private key, which may come indented, or with its line breaks escaped
    if "\n" in text:
        patterns.append(f"{_BREAK}+".join(map(re.escape, text.split())))
        longest = max(text.split(), key=len)
        written |= {longest: None} if len(longest) >= SIZE_MIN else {}
    raw = text.encode("utf-8", "surrogatepass")
    every = "".join(f"%{byte:02x}" for byte in raw)
    lines = dict.fromkeys([raw.hex(), raw.hex().upper()])
    patterns += [f"(?i:{_breakable_pattern(raw.hex())})", f"(?i:{re.escape(every)})"]
    for before, core, after in _base64(raw):
        lines[core] = None
        patterns.append(
            f"{_HALF if before else ''}{_breakable_pattern(core)}{_HALF if after else ''}"
        )
    needles = [*written, every, every.upper(), *lines]
    return (
        [form for form in written if "%" not in form],
        [form for form in needles if "%" in form],
        [form for form in lines if "%" not in form],
        "|".join(sorted(patterns, key=len, reverse=True)),
    )


def _plain_spellings(text: str) -> dict[str, None]:
    """Return a text as it is, as in a repr, as in JSON in JSON, as in a URL."""
    found = dict.fromkeys(
        [text, repr(text)[1:-1], repr(text.encode("utf-8", "surrogatepass"))[2:-1]]
    )
    level = list(found)
    for _ in range(_LEVELS):
        level = list(dict.fromkeys(escaped for form in level for escaped in _escaped_forms(form)))
        found.update(dict.fromkeys(level))
    for safe in ("", "/", "!'()*"):
        quoted = quote(text, safe=safe, errors="replace")
        found.update(dict.fromkeys([quoted, re.sub(r"%..", lambda code: code[0].lower(), quoted)]))
    plus = quote_plus(text, errors="replace")
    return {**found, plus: None, re.sub(r"%..", lambda code: code[0].lower(), plus): None}


def _escaped_forms(text: str) -> list[str]:
    try:
        return [msgspec.json.encode(text).decode()[1:-1], dumps(text)[1:-1]]
    # a lone surrogate: nothing that is written can hold it, unless it is escaped
    except UnicodeEncodeError:
        return [dumps(text)[1:-1]]


def pieces_of(form: str) -> list[str]:
    """Return two pieces to look for: one of them is whole if there is one line break."""
    half = min(PIECE_SIZE, len(form) // 2)
    return [form] if half < SIZE_MIN else [form[:half], form[half : 2 * half]]


def _breakable_pattern(form: str) -> str:
    """Return a pattern that lets the form be broken across lines."""
    return f"{_BREAK}*".join(map(re.escape, form))


def _base64(raw: bytes) -> list[tuple[bool, str, bool]]:
    """Return the characters that the bytes alone decide, at each of three alignments, each with
    True if half a character stands before, and after.
    """
    found: list[tuple[bool, str, bool]] = []
    for shift in range(3):
        text, end = b64encode(bytes(shift) + raw).decode(), 8 * (shift + len(raw))
        core = text[-(-8 * shift // 6) : end // 6]
        forms = dict.fromkeys(
            [core, core.translate(_URLSAFE), quote(core, safe=""), quote(core, safe="").lower()]
        )
        if "%" not in quote(core, safe=""):
            forms = dict.fromkeys([core])
        found += [(shift > 0, form, end % 6 > 0) for form in forms]
    return found


_URLSAFE = str.maketrans("+/", "-_")
