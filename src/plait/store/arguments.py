"""Arguments of a store's methods: checks that every store makes before it answers."""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import cast

from plait.errors import InvalidValue, TooLarge, UnknownKind
from plait.event.kinds import KINDS
from plait.ids import LogId

NAME_SIZE_MAX = 200  # bytes of a topic, a board or a key
NOTICE_SIZE_MAX = 64 * 1024
AMOUNT_MAX = 1e15  # of an allowance
WAIT_S_MAX = 1_000_000.0  # what every way of waiting can take

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


def check_runs(runs: object) -> None:
    """Raise unless these are ids of runs: one text would be taken as many of one letter."""
    step = "pass a list of run ids"
    if isinstance(runs, str) or not isinstance(runs, Collection):
        raise InvalidValue("runs", f"{runs!r} is not a list", step)
    for run in cast("Collection[object]", runs):
        if not isinstance(run, str) or not _is_unicode(run):
            raise InvalidValue("runs", f"{run!r} is not the id of a run", step)


def check_name(what: str, name: object) -> None:
    """Raise unless this can be the name of a topic, a board or a notice."""
    if not isinstance(name, str) or not name or "\0" in name or not _is_unicode(name):
        step = "pass a text that is not empty"
        raise InvalidValue(what, f"{name!r} is not a name", step)
    if len(name.encode()) > NAME_SIZE_MAX:
        why = f"{name[:20]!r}… has more than {NAME_SIZE_MAX} bytes"
        raise InvalidValue(what, why, "pass a shorter name, such as a digest")


def check_notice(data: object) -> None:
    if not isinstance(data, bytes):
        raise InvalidValue("data", f"a {type(data).__name__} is not bytes", "encode it first")
    if len(data) > NOTICE_SIZE_MAX:
        raise TooLarge("the notice", len(data), NOTICE_SIZE_MAX)


def check_draw(
    allowance: object, amount: object, per_s: object, size: object, most: object
) -> None:
    check_name("allowance", allowance)
    step = "pass a number"
    for name, value, least in (
        ("amount", amount, -AMOUNT_MAX),
        ("per_s", per_s, 0.0),
        ("size", size, 0.0),
        ("most", most, 0.0),
    ):
        if not _is_number(value) or not least <= cast("float", value) <= AMOUNT_MAX:
            raise InvalidValue(name, f"{value!r:.60} is not an amount", step)
    if cast("float", amount) > 0 and not (per_s and size):
        why = "an allowance that holds nothing, or does not refill, gives nothing"
        raise InvalidValue("per_s" if size else "size", why, "pass a number above 0")


def check_closing(allowance: object, seconds: object) -> None:
    check_name("allowance", allowance)
    if not _is_number(seconds) or not 0 <= cast("float", seconds) <= WAIT_S_MAX:
        raise InvalidValue("seconds", f"{seconds!r:.60} is not a time to wait", "pass seconds")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_timeout(timeout_s: object) -> None:
    if (
        not isinstance(timeout_s, (int, float))
        or isinstance(timeout_s, bool)
        or not 0 <= timeout_s <= WAIT_S_MAX
    ):
        raise InvalidValue("timeout_s", f"{timeout_s!r} is not a time to wait", "pass seconds")


def _is_unicode(text: str) -> bool:
    """True if the text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
