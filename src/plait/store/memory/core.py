"""The data of a store in memory, which its subjects share."""

from __future__ import annotations

import threading
from collections.abc import Collection

from plait.errors import (
    StoreClosed,
    UnknownLog,
)
from plait.event import Event
from plait.ids import Digest, LogId, Source, parse_log_id
from plait.store.chain import house_event
from plait.store.epochs import EPOCH_KINDS
from plait.store.lineage import Lineage, extend_lineage
from plait.store.plain_rows import RowsInMemory
from plait.store.projection import Projection


class MemoryLog:
    """The events of one log and how it hangs together with the others."""

    def __init__(self, ordinal: int, parent: LogId | None, place: int, lineage: Lineage) -> None:
        self.ordinal, self.parent, self.place, self.lineage = ordinal, parent, place, lineage
        self.events: list[Event] = []
        self.numbers: list[int] = []
        self.head, self.tip, self.epoch = Digest(""), place, 0
        self.kept: dict[int, bytes] = {}

    def add(self, event: Event, number: int) -> None:
        self.events.append(event)
        self.numbers.append(number)
        self.head, self.tip = event.id, event.seq
        self.epoch += event.kind in EPOCH_KINDS

    def has_after(self, tip: int, kinds: Collection[str]) -> bool:
        """True if an event of these kinds stands after a seq."""
        return any([event.kind in kinds for event in self.events[max(tip - self.place, 0) :]])


class MemoryBlob:
    """A content, the commit number when it was put last, and how many events point to it."""

    def __init__(self, content: bytes, born: int) -> None:
        self.content, self.born, self.refs = content, born, 0


class MemoryCore:
    """Logs, blobs and rows, under one lock."""

    def __init__(self, name: str, source: Source) -> None:
        self.address = f"memory:{name}"
        self.id = source.fresh("store")
        self.is_closed = False
        self._guard = threading.RLock()
        first = house_event(self.id, source)
        house = MemoryLog(0, None, 0, extend_lineage((), 0, first.log))
        house.add(first, 0)
        # the house comes first, and has no ordinal
        self._logs: dict[LogId, MemoryLog] = {first.log: house}
        self._feed: list[Event] = []
        self._by_id: dict[Digest, Event] = {first.id: first}
        self._blobs: dict[Digest, MemoryBlob] = {}
        self._projections: dict[str, Projection] = {}
        self._interested: dict[str, list[Projection]] = {}  # by kind of event
        self._rows: dict[str, RowsInMemory] = {}

    @property
    def number(self) -> int:
        return len(self._feed)

    def _open(self) -> threading.RLock:
        if self.is_closed:
            raise StoreClosed(self.address)
        return self._guard

    def _find(self, log: LogId) -> MemoryLog:
        known = self._logs.get(log) if type(log) is str else None
        if known is None:
            raise UnknownLog(parse_log_id(log))
        return known
