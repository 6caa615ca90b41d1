"""The logs that a log was forked from, as they stand."""

from __future__ import annotations

from collections.abc import Iterator

from plait.errors import StoreCorrupt
from plait.ids import LogId
from plait.store.base import Log, Store


def ancestry(store: Store, log: LogId) -> Iterator[Log]:
    """A log and those it was forked from, up to its root."""
    seen: set[LogId] = set()
    above: LogId | None = log
    while above is not None:
        if above in seen:
            raise StoreCorrupt(f"log {log}", "its lineage runs in a circle")
        seen.add(above)
        info = store.log(above)
        yield info
        above = info.parent
