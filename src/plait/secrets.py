"""Secrets: values that must never be written down, whoever says them and however they are spelled.

A `Secret` names an environment variable. Once its value was handed out, the process knows it, and
whatever is recorded from then on shows `[secret STRIPE_KEY]` in its place: as it is, escaped as in
JSON or in a repr, quoted as in a URL, in hex, and in base64 at any alignment, so that the header of
a basic authentication is found as well. This happens before anything is hashed: there is nothing to
erase later, and what the program reads back is what was recorded.

What cannot be found is what nobody could: a value that was encrypted, compressed or cut into
pieces.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from json import dumps
from typing import Any, NamedTuple, cast
from urllib.parse import quote, quote_plus

import msgspec

from plait.errors import BadSecret, MissingKey, hide_with

# names, separated by commas, of variables whose values are known from the moment they are set
VARIABLE = "PLAIT_SECRETS"
SIZE_MIN = 6  # characters; anything shorter would eat ordinary text

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,100}\Z")
_LEVELS = 4  # of JSON in a text in JSON
_PIECE = 24  # characters: lines of base64 have 64 or more, so of two pieces in a row one is whole
# a character of base64 that is partly a neighbour's, unless it is the n of an escaped line break
_HALF = r"(?:(?<!\\)[A-Za-z0-9+/_-])?"
_BREAK = r"(?:\\+[rn]|\s)"  # where a long line was broken, and perhaps escaped after that


class Secret:
    """The name of something that must not be written down; `value` is the thing itself."""

    __slots__ = ("_given", "name")

    def __init__(self, name: str, value: str | Callable[[], str] | None = None) -> None:
        """`value`: itself, or what returns it; None: the environment variable of that name holds
        it.
        """
        self.name = _checked(name)
        self._given = value
        if isinstance(value, str):
            known(value, name)
        elif value is None:  # it may be in a file long before anybody asks for it
            learn(os.environ.get(name), name)

    @property
    def value(self) -> str:
        """Resolved anew each time, and known to the process from then on."""
        found = (
            self._given()
            if callable(self._given)
            else self._given
            if self._given is not None
            else os.environ.get(self.name)
        )
        if not found:
            raise MissingKey(repr(self), self.name, "give it a value: Secret(name, value)")
        known(found, self.name)
        return found

    def __repr__(self) -> str:
        return f"Secret({self.name!r})"

    def __str__(self) -> str:
        return shown(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("plait.Secret", self.name))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        """Only the name travels: whoever reads it finds the value in an environment of its own."""
        return Secret, (self.name,)


def known(value: str, name: str) -> None:
    """From now on this value is recorded as `[secret name]`."""
    text = value.strip()
    if len(text) < SIZE_MIN:
        raise BadSecret(
            name,
            f"its value has fewer than {SIZE_MIN} characters, and would be found in ordinary text",
        )
    if text not in _known:
        # one step: threads may do so at the same time
        _known.setdefault(text, _Value(text, _checked(name)))


def learn(value: str | None, name: str) -> None:
    """The same for what is a key by all appearances, as handed to an adapter; `ollama` and
    `not-needed` are none.
    """
    text = (value or "").strip()
    if len(text) >= 8 and any(c.isdigit() for c in text) and any(c.isalpha() for c in text):
        known(text, name if _NAME.match(name) else "KEY")


def learn_all(values: Mapping[str, str]) -> None:
    """Those of a server's variables or headers that are keys by their names."""
    for name, value in values.items():
        if _TELLING.search(name):
            for word in {value, value.rpartition(" ")[2]}:  # Bearer …
                learn(word, name)


_TELLING = re.compile(r"key|token|secret|passw|credential|auth|cookie", re.I)


def forget(name: str | None = None) -> None:
    """Secrets of this name, or all, are no longer known: for what was rotated, and for tests."""
    _refused.clear()
    for text, value in list(_known.items()):
        if name in (None, value.name):
            _known.pop(text, None)


def from_environment(environ: Mapping[str, str]) -> None:
    """Know what PLAIT_SECRETS names.

    What is refused is told when something is to be recorded, not to those who only look.
    """
    for name in filter(None, map(str.strip, environ.get(VARIABLE, "").split(","))):
        try:
            if environ.get(name):
                known(environ[name], name)
        except BadSecret as error:
            _refused.append(error)


def _learn_named() -> None:
    """Know what PLAIT_SECRETS names at this moment: the variables may be set at any time.

    This is the path of every append: as long as nothing has changed, it is a lookup or two.
    """
    global _named
    raw = _ENVIRONMENT
    names = raw.get(_RAW_VARIABLE)
    if names is None and _named is None:
        return
    found = names, [raw.get(name.strip()) for name in (names or b"").split(b",")]
    if found != _named:
        _named = found
        _refused.clear()
        from_environment(os.environ)


_RAW_VARIABLE = os.fsencode(VARIABLE)
# The process's own table, of bytes: it is looked into at every append, and decoding takes ten times
# as long.
_ENVIRONMENT: Mapping[bytes, bytes] = getattr(os.environ, "_data", None) or os.environb
# as last seen: the names, and the values
_named: tuple[bytes | None, list[bytes | None]] | None = None


def shown(name: str) -> str:
    """What stands where a secret was."""
    return f"[secret {name}]"


def is_whole(text: str) -> bool:
    """Whether nothing but a secret was there."""
    return _SHOWN.match(text) is not None


_SHOWN = re.compile(r"\[secret [^\]]+\]\Z")
_ANYWHERE = re.compile(r"\[secret [A-Za-z0-9_.:/-]{1,100}\]")


def stand_ins(value: Any) -> list[str]:
    """What stands in a JSON value where secrets were, each once."""
    if isinstance(value, str):
        return list(dict.fromkeys(_ANYWHERE.findall(value)))
    items: list[Any] = []
    if isinstance(value, Mapping):
        items = [part for pair in cast("Mapping[str, Any]", value).items() for part in pair]
    elif isinstance(value, (list, tuple)):
        items = list(cast("Sequence[Any]", value))
    return list(dict.fromkeys(found for item in items for found in stand_ins(item)))


# ── in texts that come in pieces ─────────────────────────────────────────────────────────────


class HiddenPieces:
    """A text that comes in pieces, without secrets, also where one lies across pieces.

    The end of what has come is held back as long as it could be the beginning of a secret, in any
    of its spellings. All that `feed` and `end` return, put together, is the text as it is recorded.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take the next piece, and return what can be shown now."""
        text = self._held + piece
        edge = _open_from(text) if armed() and _known else len(text)
        self._held = text[edge:]
        return hide_told(text[:edge])

    def end(self) -> str:
        """Return the rest: nothing more will come."""
        text, self._held = self._held, ""
        return hide_told(text)


def _open_from(text: str) -> int:
    """Return the place in a text from which on it depends on what follows; its length: nothing
    does.
    """
    values = _sorted_values()
    edge = len(text)
    # it may be the half of a neighbour that goes with a secret in base64
    if edge and _OF_BASE64.match(text[-1]):
        edge -= 1
    for value in values:
        edge = min(edge, value.begins_in(text))
    before = -1
    while before != edge:  # what is there as a whole is shown as a whole, or held back as a whole
        before = edge
        for value in values:
            edge = value.cut_before(text, edge)
    return edge


_OF_BASE64 = re.compile(r"[A-Za-z0-9+/_-]")
_ESCAPED_END = re.compile(r"\\+\Z")


def _squashed(text: str) -> str:
    """Return a text without line breaks, whatever they look like: a spelling can be broken
    anywhere.
    """
    return re.sub(_BREAK, "", _ESCAPED_END.sub("", text)).lower()


# ── finding and hiding ───────────────────────────────────────────────────────────────────────


def armed() -> bool:
    """Return True if there is anything to look for."""
    if _named is not None or _RAW_VARIABLE in _ENVIRONMENT:
        _learn_named()
    return bool(_known or _refused)


def known_hash() -> int:
    """A number that changes with the values that are known; of this process only."""
    _learn_named()
    return hash(frozenset(_known))


def spotted(data: bytes) -> bool:
    """Whether these bytes may hold a secret. Quick: most hold none."""
    return any([value.in_bytes(data) for value in _values()])


def hide_text(text: str) -> str:
    for value in _values() if armed() else ():
        text = value.hide_text(text)
    return text


def hide_told(text: str) -> str:
    """Hide what is known in a text that only people see: a secret that was refused is no reason not
    to tell it.
    """
    for value in _sorted_values() if armed() else ():
        text = value.hide_text(text)
    return text


def hide_bytes(data: bytes) -> bytes:
    for value in _values() if armed() else ():
        data = value.hide_bytes(data)
    return data


def hide(value: Any) -> Any:
    """JSON without secrets: in texts, in keys, and as numbers."""
    if isinstance(value, str):
        return hide_text(value)
    if isinstance(value, Mapping):
        return hide_items(
            (hide_text(key), hide(item)) for key, item in cast("Mapping[str, Any]", value).items()
        )
    if isinstance(value, (list, tuple)):
        items = [hide(item) for item in cast("Sequence[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        found = _known.get(str(value))
        return shown(found.name) if found else value
    return value


def hide_items(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A map whose keys were hidden; where two have become one, both stay."""
    found: dict[str, Any] = {}
    for key, item in items:
        other, number = key, 2
        while other in found:
            other, number = f"{key} {number}", number + 1
        found[other] = item
    return found


class _Value:
    """One value, in all its spellings.

    Needles are looked for first; where one is, the pattern says what exactly goes.
    """

    __slots__ = ("_beginnings", "_bytes", "_text", "name", "size")

    def __init__(self, text: str, name: str) -> None:
        self.name, self.size = name, len(text)
        plain, percent, lines, source = _spellings(text)
        pieces = [piece for line in lines for piece in _pieces(line)]
        self._text = _Search(("%", "\n", "\\n"), plain, percent, lines, pieces, re.compile(source))
        self._bytes = _Search(
            (b"%", b"\n", b"\\n"),
            _encoded(plain),
            _encoded(percent),
            _encoded(lines),
            _encoded(pieces),
            re.compile(source.encode("utf-8", "surrogatepass")),
        )
        self._beginnings: tuple[str, ...] | None = None

    def in_bytes(self, data: bytes) -> bool:
        return self._bytes.may_be_in(data)

    def begins_in(self, text: str) -> int:
        """Return where the end of a text could be the beginning of this value, the earliest place;
        its length: nowhere.
        """
        if self._beginnings is None:
            search = self._text
            self._beginnings = tuple(
                dict.fromkeys(
                    [_squashed(form) for form in (*search.plain, *search.percent, *search.lines)]
                )
            )
        window = text[-2 * max(map(len, self._beginnings)) - _PIECE :]
        squashed = _squashed(window)
        most = 0
        for form in self._beginnings if squashed else ():
            last = squashed[-1]
            size = min(len(form), len(squashed))
            while size > most and (size := form.rfind(last, most, size) + 1) > most:
                if squashed.endswith(form[:size]):
                    most = size
                    break
                size -= 1
        return len(text) - _unsquashed(window, most) if most else len(text)

    def cut_before(self, text: str, edge: int) -> int:
        """Return the edge, or the start of the value if it lies across the edge, or ends where the
        text ends.
        """
        if self._text.may_be_in(text):
            for found in self._text.pattern.finditer(text):
                if found.start() < edge and (found.end() > edge or found.end() == len(text)):
                    return found.start()
        return edge

    def hide_text(self, text: str) -> str:
        return (
            self._text.pattern.sub(shown(self.name), text) if self._text.may_be_in(text) else text
        )

    def hide_bytes(self, data: bytes) -> bytes:
        return (
            self._bytes.pattern.sub(shown(self.name).encode(), data)
            if self._bytes.may_be_in(data)
            else data
        )


def _unsquashed(window: str, size: int) -> int:
    """Return how much of the end of a text is squashed to so many characters, with one more that
    may be half of it.
    """
    taken = size
    while taken < len(window) and len(_squashed(window[-taken:])) < size:
        taken += 1
    return min(len(window), taken + 1)


class _Search(NamedTuple):
    """Texts or bytes, all of them.

    This is the path of every append: one look per spelling, and only at those that can be there.
    """

    marks: Any  # a percent sign, a line break, and one that is escaped
    plain: Sequence[Any]
    percent: Sequence[Any]  # have percent signs
    lines: Sequence[Any]  # may be broken into lines
    pieces: Sequence[Any]  # of those, one of which is then still whole
    pattern: re.Pattern[Any]

    def may_be_in(self, data: Any) -> bool:
        for needle in self.plain:
            if needle in data:
                return True
        sign, line, escaped = self.marks
        for needle in self.pieces if line in data or escaped in data else self.lines:
            if needle in data:
                return True
        return sign in data and any([needle in data for needle in self.percent])


def _encoded(needles: Sequence[str]) -> list[bytes]:
    return [needle.encode("utf-8", "surrogatepass") for needle in needles]


_known: dict[str, _Value] = {}
_refused: list[BadSecret] = []


def _values() -> list[_Value]:
    """Those that are known, the longest first: one may be a part of another."""
    if _refused:
        raise _refused[0]
    return _sorted_values()


def _sorted_values() -> list[_Value]:
    values = list(_known.values())
    return sorted(values, key=lambda value: -value.size) if len(values) > 1 else values


def _checked(name: str) -> str:
    if not isinstance(name, str) or not _NAME.match(name):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise BadSecret(
            str(name)[:100], "a secret's name is 1 to 100 letters, digits and _ . : / -"
        )
    return name


# ── spellings ────────────────────────────────────────────────────────────────────────────────


def _spellings(text: str) -> tuple[list[str], list[str], list[str], str]:
    """What to look for: as written, with percent signs, as one long line; and the pattern of what
    is replaced.
    """
    written = _written(text)
    patterns = [re.escape(form) for form in written]
    # as in a private key, which may come indented, or with its line breaks escaped
    if "\n" in text:
        patterns.append(f"{_BREAK}+".join(map(re.escape, text.split())))
        longest = max(text.split(), key=len)
        written |= {longest: None} if len(longest) >= SIZE_MIN else {}
    raw = text.encode("utf-8", "surrogatepass")
    every = "".join(f"%{byte:02x}" for byte in raw)
    lines = dict.fromkeys([raw.hex(), raw.hex().upper()])
    patterns += [f"(?i:{_broken(raw.hex())})", f"(?i:{re.escape(every)})"]
    for before, core, after in _base64(raw):
        lines[core] = None
        patterns.append(f"{_HALF if before else ''}{_broken(core)}{_HALF if after else ''}")
    needles = [*written, every, every.upper(), *lines]
    return (
        [form for form in written if "%" not in form],
        [form for form in needles if "%" in form],
        [form for form in lines if "%" not in form],
        "|".join(sorted(patterns, key=len, reverse=True)),
    )


def _written(text: str) -> dict[str, None]:
    """As it is, as in a repr, as in JSON in JSON, as in a URL."""
    found = dict.fromkeys(
        [text, repr(text)[1:-1], repr(text.encode("utf-8", "surrogatepass"))[2:-1]]
    )
    level = list(found)
    for _ in range(_LEVELS):
        level = list(dict.fromkeys(escaped for form in level for escaped in _escaped(form)))
        found.update(dict.fromkeys(level))
    for safe in ("", "/", "!'()*"):
        quoted = quote(text, safe=safe, errors="replace")
        found.update(dict.fromkeys([quoted, re.sub(r"%..", lambda code: code[0].lower(), quoted)]))
    plus = quote_plus(text, errors="replace")
    return {**found, plus: None, re.sub(r"%..", lambda code: code[0].lower(), plus): None}


def _escaped(text: str) -> list[str]:
    try:
        return [msgspec.json.encode(text).decode()[1:-1], dumps(text)[1:-1]]
    # a lone surrogate: nothing that is written can hold it, unless it is escaped
    except UnicodeEncodeError:
        return [dumps(text)[1:-1]]


def _pieces(form: str) -> list[str]:
    """What to look for, so that it is found across one line break: either piece."""
    half = min(_PIECE, len(form) // 2)
    return [form] if half < SIZE_MIN else [form[:half], form[half : 2 * half]]


def _broken(form: str) -> str:
    """A pattern that lets the form be broken across lines."""
    return f"{_BREAK}*".join(map(re.escape, form))


def _base64(raw: bytes) -> list[tuple[bool, str, bool]]:
    """The characters that the bytes alone decide, at each of three alignments, and whether half a
    character stands before and after.
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

_learn_named()
hide_with(hide_told)
