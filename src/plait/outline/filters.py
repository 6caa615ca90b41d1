"""The filter of a list of sessions: `status:waiting user:u-17 cost:>1 tag:team=web`, and words."""

from __future__ import annotations

import operator
import shlex
from collections.abc import Callable
from typing import Any

import msgspec

from plait.errors import InvalidValue
from plait.outline.shapes import SessionSummary, SpentShape
from plait.session.life import STATUSES

_NAMES = ("status", "user", "project", "tag", "label", "cost", "events", "tokens", "is")
_IS = ("root", "branch", "waiting", "due")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}


class NumberLimit(msgspec.Struct, frozen=True):
    """A comparison with a number: `>1`."""

    sign: str
    number: float

    def holds(self, value: float | None) -> bool:
        """True if the value is so; a value that is not known never is."""
        return value is not None and _COMPARISONS[self.sign](value, self.number)


class SessionFilter(msgspec.Struct, frozen=True):
    """Chooses sessions. An empty field chooses all."""

    status: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    tag: tuple[tuple[str, str], ...] = ()
    cost: tuple[NumberLimit, ...] = ()
    events: tuple[NumberLimit, ...] = ()
    tokens: tuple[NumberLimit, ...] = ()
    kind: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # in the name, the title, the first or the last words

    def allows(self, spent: SpentShape, event_count: int) -> bool:
        """True if the figures of a session are within the limits."""
        tokens = spent.input_tokens + spent.output_tokens
        return (
            all(limit.holds(spent.cost_usd) for limit in self.cost)
            and all(limit.holds(event_count) for limit in self.events)
            and all(limit.holds(tokens) for limit in self.tokens)
        )

    def chooses(self, summary: SessionSummary, first_words: str = "") -> bool:
        """True if all of it holds for a session; of several values of one name, any."""
        said = (summary.name, summary.title, first_words, summary.last_text)
        text = "\n".join(said).lower()
        return (
            (not self.status or summary.status in self.status)
            and (not self.user or summary.user in self.user)
            and (not self.project or summary.project in self.project)
            and (not self.label or summary.label in self.label)
            and all(summary.tags.get(tag) == value for tag, value in self.tag)
            and self.allows(summary.spent, summary.event_count)
            and all(_is_kind(summary, kind) for kind in self.kind)
            and all(word in text for word in self.words)
        )


def _is_kind(summary: SessionSummary, kind: str) -> bool:
    if kind == "waiting":
        return summary.waiting > 0
    if kind == "due":
        return summary.is_due
    return (summary.parent is None) == (kind == "root")


def parse_filter(text: str) -> SessionFilter:
    """Return the filter that a text spells, or raise `InvalidValue` with the words that there
    are.
    """
    try:
        pieces = shlex.split(text)
    except ValueError:  # a quote is open, as while somebody types
        pieces = text.replace('"', " ").replace("'", " ").split()
    found: dict[str, list[Any]] = {}
    for piece in pieces:
        name, colon, value = piece.partition(":")
        if not colon or name not in _NAMES:
            found.setdefault("words", []).append(piece.lower())
        else:
            field, parsed = _parse_value(name, value)
            found.setdefault(field, []).append(parsed)
    return SessionFilter(**{field: tuple(values) for field, values in found.items()})


def _parse_value(name: str, value: str) -> tuple[str, Any]:
    if name in ("cost", "events", "tokens"):
        return name, _parse_limit(name, value)
    if name == "tag":
        tag, _, wanted = value.partition("=")
        return name, (tag, wanted)
    known = {"status": STATUSES, "is": _IS}.get(name)
    if known is not None and value not in known:
        raise InvalidValue(name, f"{value!r} is none", f"use {', '.join(known)}")
    return "kind" if name == "is" else name, value


def _parse_limit(name: str, value: str) -> NumberLimit:
    sign = next((sign for sign in _COMPARISONS if value.startswith(sign)), "")
    try:
        return NumberLimit(sign or "=", float(value.removeprefix(sign).removeprefix("$")))
    except ValueError:
        raise InvalidValue(
            name, f"{value!r} is no comparison", f"write {name}:>1 or {name}:<=100"
        ) from None
