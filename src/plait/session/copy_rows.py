"""Rows about copies between stores: sessions on the way, and house logs that came along."""

from __future__ import annotations

from plait.errors import UnknownRows
from plait.event import Event
from plait.event.kinds import CopyBegun, CopyFinished, HouseOpened
from plait.ids import LogId, house_of
from plait.store import Rows, Store, Table

_ALL = 2**31


class CopyRows:
    """A `Projection`: `arriving` has the logs of copies into a store that have not ended, `house`
    the house logs of other stores.

    The house log of a store tells of copies into this store, and no other log does. It may come
    along with a copy into a third one, so rows name the store.
    """

    name = "copy"
    version = 1
    kinds = frozenset(kind.__name__ for kind in (CopyBegun, CopyFinished, HouseOpened))
    tables = (
        Table(
            "arriving",
            key=("into", "log"),
            columns={"into": "text", "log": "text", "address": "text"},
        ),
        Table("house", key=("log",), columns={"log": "text"}),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        body = event.body
        assert isinstance(body, (CopyBegun, CopyFinished, HouseOpened))
        if event.log != house_of(body.store if isinstance(body, HouseOpened) else body.into):
            return
        if isinstance(body, HouseOpened):
            rows.put("house", {"log": event.log})
            return
        for log in body.logs:
            if isinstance(body, CopyBegun):
                rows.put("arriving", {"into": body.into, "log": log, "address": body.address})
            else:
                rows.delete("arriving", body.into, log)


def arriving_logs(store: Store) -> dict[LogId, str]:
    """Return the logs of copies into a store that have not ended, each with the address of the
    store that it comes from.
    """
    try:
        rows = store.rows(CopyRows.name, "arriving", {"into": store.id}, limit=_ALL)
    except UnknownRows:
        return {}
    return {LogId(str(row["log"])): str(row["address"]) for row in rows}


def copied_houses(store: Store) -> frozenset[LogId]:
    """Return the house logs of other stores that came with copied sessions."""
    try:
        rows = store.rows(CopyRows.name, "house", limit=_ALL)
    except UnknownRows:
        return frozenset()
    return frozenset([LogId(str(row["log"])) for row in rows])
