"""Revisions, the names of sessions and places in them: one parser for Python and the shell.

S          a whole id, the start of it, the start of its random tail (the short id), or a label;
           from 8 digits on an id comes before a label
S@42       the value whose last event is 42
S@-1       one event before the last
@          the session written to last; @42 and @-1 are places in it, and so are @@42 and @@-1
A..B       a range: from one value to another
"""

from __future__ import annotations

import re
from typing import NamedTuple

from plait.errors import AmbiguousRevision, InvalidValue, UnknownPlace, UnknownRevision
from plait.event.kinds import ForkedFrom, SessionOpened
from plait.ids import LogId, short
from plait.session.listing import session_row
from plait.store import Store

PREFIX_MIN = 4  # of an id: below that a label is meant
ID_WINS = 8  # digits of an id, as a short id has them: from there on no label is meant if it is one
_PLACE = re.compile(r"-?[0-9]{1,18}\Z")
_WHOLE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_HEX = re.compile(r"[0-9a-fA-F-]{4,36}\Z")


class Revision(NamedTuple):
    """A revision in parts. An empty name is the latest session, a place of None its last."""

    name: str
    place: int | None


def parse(text: str) -> Revision:
    """Parse one revision, or raise UnknownRevision."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise UnknownRevision(repr(text), f"a {type(text).__name__} is not a name")
    if not text.strip():
        raise UnknownRevision(text, "it names nothing")
    if ".." in text:
        raise UnknownRevision(text, "it is a range, where one place is wanted")
    name, at, place = text.strip().partition("@")
    if not at or not (name or place):
        return Revision(name, None)
    # @ is a session, and S@42 a place in it: then so is @@42
    place = place if name else place.removeprefix("@")
    if not _PLACE.match(place):
        raise UnknownRevision(
            text,
            f"{place!r} is not a place: write a number, counted from 1, or -1 and so on back from"
            " the last",
        )
    return Revision(name, int(place))


def parse_range(text: str) -> tuple[str, str]:
    """Return the two ends of A..B. An end that is left out is the latest."""
    if not isinstance(text, str) or text.count("..") != 1:  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise UnknownRevision(str(text), "it is not a range: write A..B")
    left, _, right = text.partition("..")
    return left.strip() or "@", right.strip() or "@"


def check_label(label: str | None) -> None:
    """Check that a label can be written in a revision."""
    if label is None:
        return
    if not isinstance(label, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise InvalidValue("label", f"a {type(label).__name__} is not a name", "pass a text")
    bad = (
        not label
        or len(label) > 100
        or not label.isprintable()
        or label != label.strip()
        or label.startswith("-")
    )
    if bad or "@" in label or ".." in label or ":" in label:
        raise InvalidValue(
            "label",
            f"{label!r} cannot be a name",
            "use 1 to 100 printable characters without @, : and .., not starting with -",
        )


def find(store: Store, name: str) -> LogId:
    """Return the session of this name; the empty name is the latest."""
    if not name:
        return latest(store)
    if _WHOLE.match(name) and session_row(store, LogId(name)):  # a whole id is never a label
        return LogId(name)
    found = dict.fromkeys(
        LogId(str(row["log"]))
        for row in store.rows("session", "session", {"label": name}, descending=True, limit=20)
    )
    digits = len(name.replace("-", "")) if _HEX.match(name) else 0
    if digits >= PREFIX_MIN:
        ids = dict.fromkeys(log for log in store.match(name) if _is_session(store, log))
        # nobody takes the short id of a session by calling another one that
        found = ids if ids and digits >= ID_WINS else found | ids
    if len(found) == 1:
        return next(iter(found))
    if found:
        raise AmbiguousRevision(name, tuple(_describe(store, log) for log in found))
    why = (
        f"an id is given by at least {PREFIX_MIN} characters of it"
        if _too_short(name)
        else "no session is called that"
    )
    raise UnknownRevision(name, why)


def latest(store: Store) -> LogId:
    """Return the session that was written to last."""
    for _, event in store.feed(reverse=True):
        if _is_session(store, event.log):
            return event.log
    raise UnknownRevision("@", "there is no session yet; `plait new` opens one")


def place_in(log: LogId, place: int, tip: int) -> int:
    """Return a place as a number from 1: negative ones count back from the tip."""
    if type(place) is not int:
        raise InvalidValue(
            "place",
            f"{place!r} is not a position",
            "pass a number, counted from 1, or back from -1",
        )
    wanted = place if place >= 0 else tip + place
    if not 1 <= wanted <= tip:
        raise UnknownPlace(short(log), place, tip)
    return wanted


def _is_session(store: Store, log: LogId) -> bool:
    """Return True if a log is a session. Inboxes and the house are logs, but no sessions."""
    first = store.log(log).place + 1
    return next(store.read(log, first, first)).kind in (SessionOpened.__name__, ForkedFrom.__name__)


def _describe(store: Store, log: LogId) -> str:
    row = session_row(store, log)
    about = row.get("label") or row.get("title")
    return f"{short(log)} ({about}, {log})" if about else f"{short(log)} ({log})"


def _too_short(name: str) -> bool:
    return len(name) < PREFIX_MIN and bool(re.fullmatch(r"[0-9a-fA-F]+", name))
