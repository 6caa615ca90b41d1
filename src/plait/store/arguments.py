"""Arguments of a store's methods: checks that every store makes before it answers."""

from __future__ import annotations

from collections.abc import Collection, Container

from plait.errors import InvalidValue, UnknownKind
from plait.event.kinds import KINDS
from plait.ids import LogId

_KINDS = frozenset(kind.__name__ for kind in KINDS)


def check_durability(durability: object) -> None:
    if durability not in ("full", "async", None):
        step = "use 'full', or 'async' for commits that are synced at boundaries"
        raise InvalidValue("durability", f"a session cannot be written {durability!r}", step)


def check_number(name: str, number: int) -> None:
    if type(number) is not int or not 0 <= number < 2**63:
        raise InvalidValue(name, f"{number!r} is not a commit number or ordinal")


def check_limit(limit: int | None) -> None:
    if limit is not None and (type(limit) is not int or not 0 <= limit < 2**63):
        raise InvalidValue("limit", f"{limit!r} is not a count", "pass a number from 0")


def check_kinds(kinds: Collection[str] | None, known: Container[str]) -> None:
    """Raise unless these are names of known kinds: a typo would look like an empty log."""
    if isinstance(kinds, str):
        raise InvalidValue("kinds", f"{kinds!r} is one text, not several", f"pass {{{kinds!r}}}")
    for kind in kinds or ():
        if not isinstance(kind, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue(
                "kinds", f"{kind!r} is not the name of a kind", "pass names, such as 'MessageSaid'"
            )
        if kind not in known:
            raise UnknownKind(kind)


def check_prefix(text: str) -> None:
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue(
            "id", f"{text!r} is not a text", "pass the start of an id or of its last group"
        )


def check_read(
    first: int, last: int | None, kinds: Collection[str] | None, known: Container[str]
) -> None:
    """Raise unless a log can be read so; one quick look, for every read begins with it."""
    if type(first) is not int or (last is not None and type(last) is not int):
        check_place("first", first)
        check_place("last", last)
    if kinds is not None and not (isinstance(kinds, frozenset) and kinds <= _KINDS):
        check_kinds(kinds, known)


def check_place(name: str, place: object) -> None:
    if type(place) is not int:
        raise InvalidValue(name, f"{place!r} is not a position", "pass a number, counted from 1")


def check_own(log: LogId, seq: int, place: int, tip: int) -> None:
    """Raise unless the place is one of the log's own: neither inherited nor still to come."""
    if type(seq) is not int or not place < seq <= tip:
        raise InvalidValue(
            "seq", f"{seq!r} is not a place of {log} itself, whose own are {place + 1} to {tip}"
        )
