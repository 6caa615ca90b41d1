"""Secrets: values that must never be written down, in any spelling.

A `Secret` names an environment variable. Once its value was handed out, the process knows it, and
everything recorded from then on shows `[secret STRIPE_KEY]` in its place: as it is, escaped as in
JSON or in a repr, quoted as in a URL, in hex, and in base64 at any alignment, so that the header of
a basic authentication is found as well. This happens before anything is hashed: there is nothing to
erase later, and the program reads back exactly the recorded text.

A value that was encrypted, compressed or cut into pieces is not found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from plait.errors import BadSecret, MissingKey, hide_with
from plait.secrets.search import SecretValue, stand_in
from plait.secrets.spellings import SIZE_MIN

# names, separated by commas, of variables that hold secrets from the moment they are set
VARIABLE = "PLAIT_SECRETS"
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,100}\Z")


class Secret:
    """The name of something that must not be written down; `value` is the thing itself."""

    __slots__ = ("_given", "name")

    def __init__(self, name: str, value: str | Callable[[], str] | None = None) -> None:
        """`value`: itself, or a function that returns it; None: the environment variable of that
        name holds it.
        """
        self.name = _check_name(name)
        self._given = value
        if isinstance(value, str):
            register(value, name)
        elif value is None:  # it may be in a file long before its first use
            learn_key(os.environ.get(name), name)

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
        register(found, self.name)
        return found

    def __repr__(self) -> str:
        return f"Secret({self.name!r})"

    def __str__(self) -> str:
        return stand_in(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("plait.Secret", self.name))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        """Pickle the name only: the reading process finds the value in its own environment."""
        return Secret, (self.name,)


def register(value: str, name: str) -> None:
    """Record this value as `[secret name]` from now on."""
    text = value.strip()
    if len(text) < SIZE_MIN:
        raise BadSecret(
            name,
            f"its value has fewer than {SIZE_MIN} characters, and would be found in ordinary text",
        )
    if text not in _registry.values:
        # one step: threads may do so at the same time
        _registry.values.setdefault(text, SecretValue(text, _check_name(name)))


def learn_key(value: str | None, name: str) -> None:
    """Register a value that was handed to an adapter if it looks like a key; `ollama` and
    `not-needed` do not.
    """
    text = (value or "").strip()
    if len(text) >= 8 and any(c.isdigit() for c in text) and any(c.isalpha() for c in text):
        register(text, name if _NAME.match(name) else "KEY")


def learn_all(values: Mapping[str, str]) -> None:
    """Learn those of a server's variables or headers that are keys by their names."""
    for name, value in values.items():
        if _TELLING.search(name):
            for word in {value, value.rpartition(" ")[2]}:  # Bearer …
                learn_key(word, name)


_TELLING = re.compile(r"key|token|secret|passw|credential|auth|cookie", re.I)


def forget(name: str | None = None) -> None:
    """Forget the secrets of this name, or all: for rotated keys, and for tests."""
    _registry.refused.clear()
    for text, value in list(_registry.values.items()):
        if name in (None, value.name):
            _registry.values.pop(text, None)


def from_environment(environ: Mapping[str, str]) -> None:
    """Learn the values of the variables that PLAIT_SECRETS names.

    A refused value raises when something is to be recorded, not when something is only read.
    """
    for name in filter(None, map(str.strip, environ.get(VARIABLE, "").split(","))):
        try:
            if environ.get(name):
                register(environ[name], name)
        except BadSecret as error:
            _registry.refused.append(error)


def _learn_named() -> None:
    """Learn the present values of PLAIT_SECRETS: the variables may be set at any time.

    Every append calls this: as long as nothing has changed, it is a lookup or two.
    """
    raw = _ENVIRONMENT
    names = raw.get(_RAW_VARIABLE)
    if names is None and _registry.named is None:
        return
    found = names, [raw.get(name.strip()) for name in (names or b"").split(b",")]
    if found != _registry.named:
        _registry.named = found
        _registry.refused.clear()
        from_environment(os.environ)


_RAW_VARIABLE = os.fsencode(VARIABLE)
# The process's own table, of bytes: it is looked into at every append, and decoding takes ten times
# as long.
_ENVIRONMENT: Mapping[bytes, bytes] = getattr(os.environ, "_data", None) or os.environb


class _Registry:
    """The secrets of this process. Any thread may add to them, each in one step."""

    __slots__ = ("named", "refused", "values")

    def __init__(self) -> None:
        self.values: dict[str, SecretValue] = {}
        self.refused: list[BadSecret] = []
        # the names and values of PLAIT_SECRETS when they were last read
        self.named: tuple[bytes | None, list[bytes | None]] | None = None


_registry = _Registry()


def is_whole(text: str) -> bool:
    """Return True if a text consists of one stand-in and nothing else."""
    return _SHOWN.match(text) is not None


_SHOWN = re.compile(r"\[secret [^\]]+\]\Z")
_ANYWHERE = re.compile(r"\[secret [A-Za-z0-9_.:/-]{1,100}\]")


def stand_ins(value: Any) -> list[str]:
    """Return the stand-ins for secrets in a JSON value, each once."""
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

    The end of the text so far is held back as long as it could be the beginning of a secret, in any
    of its spellings. The returns of `feed` and `end`, put together, are the text as it is recorded.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take the next piece, and return the text that can be shown now."""
        text = self._held + piece
        edge = _open_from(text) if is_armed() and _registry.values else len(text)
        self._held = text[edge:]
        return hide_shown_text(text[:edge])

    def end(self) -> str:
        """Return the rest: nothing more will come."""
        text, self._held = self._held, ""
        return hide_shown_text(text)


def _open_from(text: str) -> int:
    """Return the place in a text from which on hiding depends on the next piece; its length:
    nothing does.
    """
    values = _sorted_values()
    edge = len(text)
    # it may be the half of a neighbour that goes with a secret in base64
    if edge and _OF_BASE64.match(text[-1]):
        edge -= 1
    for value in values:
        edge = min(edge, value.begins_in(text))
    before = -1
    while before != edge:  # a whole secret is shown as a whole, or held back as a whole
        before = edge
        for value in values:
            edge = value.cut_before(text, edge)
    return edge


_OF_BASE64 = re.compile(r"[A-Za-z0-9+/_-]")


# ── finding and hiding ───────────────────────────────────────────────────────────────────────


def is_armed() -> bool:
    """Return True if there is anything to look for."""
    if _registry.named is not None or _RAW_VARIABLE in _ENVIRONMENT:
        _learn_named()
    return bool(_registry.values or _registry.refused)


def known_hash() -> int:
    """Return a number that changes with the known values; of this process only."""
    _learn_named()
    return hash(frozenset(_registry.values))


def may_hold_secret(data: bytes) -> bool:
    """Return True if these bytes may hold a secret. Quick: most hold none."""
    return any([value.in_bytes(data) for value in _values()])


def hide_text(text: str) -> str:
    for value in _values() if is_armed() else ():
        text = value.hide_text(text)
    return text


def hide_shown_text(text: str) -> str:
    """Hide the known secrets in a text that only people see. Unlike `hide_text`, it raises nothing
    about a refused secret.
    """
    for value in _sorted_values() if is_armed() else ():
        text = value.hide_text(text)
    return text


def hide_bytes(data: bytes) -> bytes:
    for value in _values() if is_armed() else ():
        data = value.hide_bytes(data)
    return data


def hide(value: Any) -> Any:
    """Return JSON without secrets: in texts, in keys, and as numbers."""
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
        found = _registry.values.get(str(value))
        return stand_in(found.name) if found else value
    return value


def hide_items(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a map of items with hidden keys; where two keys have become one, both items stay."""
    found: dict[str, Any] = {}
    for key, item in items:
        other, number = key, 2
        while other in found:
            other, number = f"{key} {number}", number + 1
        found[other] = item
    return found


def _values() -> list[SecretValue]:
    """Return the known values, the longest first: one may be a part of another."""
    if _registry.refused:
        raise _registry.refused[0]
    return _sorted_values()


def _sorted_values() -> list[SecretValue]:
    values = list(_registry.values.values())
    return sorted(values, key=lambda value: -value.size) if len(values) > 1 else values


def _check_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.match(name):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise BadSecret(
            str(name)[:100], "a secret's name is 1 to 100 letters, digits and _ . : / -"
        )
    return name


_learn_named()
hide_with(hide_shown_text)
