"""Pages of sessions, by the columns of their rows."""

from __future__ import annotations

from collections.abc import Mapping

from plait.errors import InvalidValue, UnknownLog
from plait.ids import LogId
from plait.store import Row, Store


def list_rows(
    store: Store,
    where: Mapping[str, str],
    tags: Mapping[str, str] | None,
    before: LogId | None,
    limit: int,
) -> list[Row]:
    """Rows with these values and tags, latest opened first; all of them have the log and the
    number.
    """
    after = _number(store, before) if before is not None else None
    if not tags:
        return store.rows(
            "session", "session", where, order="number", descending=True, before=after, limit=limit
        )
    if not all(isinstance(tag, str) and isinstance(value, str) for tag, value in tags.items()):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidValue("tag", "tags and their values are texts", 'pass {"team": "web"}')
    (tag, value), *others = tags.items()
    found: list[Row] = []
    while len(found) < limit:
        page = store.rows(
            "session",
            "tag",
            {"tag": tag, "value": value},
            order="number",
            descending=True,
            before=after,
            limit=max(limit, 100),
        )
        for row in page:
            rest = [
                store.rows(
                    "session", "tag", {"log": row["log"], "tag": name, "value": wanted}, limit=1
                )
                for name, wanted in others
            ]
            if all(rest):
                found += (
                    store.rows("session", "session", {**where, "log": row["log"]}, limit=1)
                    if where
                    else [row]
                )
        if len(page) < max(limit, 100):
            break
        after = page[-1]["number"]
    return found[:limit]


def session_row(store: Store, log: LogId) -> Row:
    """The row of one session; empty if it is none."""
    found = store.rows("session", "session", {"log": log}, limit=1)
    return found[0] if found else {}


def _number(store: Store, log: LogId) -> int:
    number = session_row(store, log).get("number")
    if not isinstance(number, int):
        raise UnknownLog(log)
    return number
