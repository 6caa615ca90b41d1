"""Pages of sessions, by the columns of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from plait.errors import InvalidValue, UnknownLog
from plait.ids import LogId
from plait.store import Row, Scalar, Store

_PAGE = 100


def list_rows(
    store: Store,
    where: Mapping[str, Scalar],
    tags: Mapping[str, str] | None,
    before: LogId | None,
    page: int,
) -> Iterator[Row]:
    """Yield the rows with these values and tags, latest opened first; `page` are read at once."""
    after = _number(store, before) if before is not None else None
    if tags:
        yield from _tagged_rows(store, where, tags, after)
        return
    while found := store.rows(
        "session", "session", where, order="number", descending=True, before=after, limit=page
    ):
        yield from found
        if len(found) < page:
            return
        after = found[-1]["number"]


def _tagged_rows(
    store: Store, where: Mapping[str, Scalar], tags: Mapping[str, str], after: Scalar
) -> Iterator[Row]:
    if not all(isinstance(tag, str) and isinstance(value, str) for tag, value in tags.items()):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue("tag", "tags and their values are texts", 'pass {"team": "web"}')
    (tag, value), *others = tags.items()
    first = {"tag": tag, "value": value}
    while page := store.rows(
        "session", "tag", first, order="number", descending=True, before=after, limit=_PAGE
    ):
        for row in page:
            rest = [
                store.rows(
                    "session", "tag", {"log": row["log"], "tag": name, "value": wanted}, limit=1
                )
                for name, wanted in others
            ]
            if all(rest):
                yield from store.rows("session", "session", {**where, "log": row["log"]}, limit=1)
        after = page[-1]["number"]


def session_row(store: Store, log: LogId) -> Row:
    """The row of one session; empty if it is none."""
    found = store.rows("session", "session", {"log": log}, limit=1)
    return found[0] if found else {}


def _number(store: Store, log: LogId) -> int:
    number = session_row(store, log).get("number")
    if not isinstance(number, int):
        raise UnknownLog(log)
    return number
