"""A store in memory whose numbers are not dense and settle late, and that folds behind: it stands
for a store with many writers.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from plait.errors import RowsBroken
from plait.event import Event
from plait.ids import Digest, LogId
from plait.store import Fence, LogAppend, MemoryStore, ReadMark, Row, StoredRecord, TipsMark
from plait.store.plain_rows import RowsInMemory
from plait.store.search import Found
from tests.laws.row_orders import any_order

_STRIDE = 2**16


class BehindStore(MemoryStore):
    """`lag` events at the end are visible and not settled.

    A question folds what is new, one log after another in a random order, as far as events do not
    name others that are not folded.
    """

    dense = False
    folds_inside = False
    lag = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._random = Random(7)
        self._folded: dict[str, set[int]] = {}
        self._broken: dict[str, RowsBroken] = {}
        super().__init__(*args, **kwargs)

    # ── numbers ──────────────────────────────────────────────────────────────────────────────

    @property
    def number(self) -> int:
        return max(len(self._feed) - self.lag, 0) * _STRIDE

    def number_of(self, id: Digest) -> int | None:
        found = super().number_of(id)
        return None if found is None else found * _STRIDE

    def event_count(self, upto: int) -> int:
        return super().event_count(upto // _STRIDE)

    def feed(
        self,
        after: int = 0,
        *,
        kinds: Collection[str] | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[int, Event]]:
        ahead = isinstance(after, int) and after > 0  # pyright: ignore[reportUnnecessaryIsInstance]
        place = after // _STRIDE if ahead else after
        settled = len(self._feed) - self.lag
        for number, event in super().feed(place, kinds=kinds, limit=limit, reverse=reverse):
            if not reverse and number > settled:
                return
            yield number * _STRIDE, event

    def _feed_down(self, after: int) -> Iterator[tuple[int, Event]]:
        numbered = list(enumerate(self._slice(after, len(self._feed)), after + 1))
        return reversed(numbered)

    def records(self, log: LogId) -> Iterator[StoredRecord]:
        for record in super().records(log):
            yield msgspec.structs.replace(record, number=record.number * _STRIDE)

    def append_all(
        self,
        parts: Sequence[LogAppend],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        fences: Sequence[Fence] = (),
        reading: ReadMark | TipsMark | None = None,
    ) -> list[Digest]:
        if isinstance(reading, ReadMark):
            seen = frozenset([number // _STRIDE for number in reading.seen])
            reading = ReadMark(reading.number // _STRIDE, reading.kinds, seen)
        return super().append_all(parts, blobs=blobs, fences=fences, reading=reading)

    def missing_blobs(self, digests: Collection[Digest]) -> set[Digest]:
        with self._open():
            missing = super().missing_blobs(digests)
            for digest in set(digests) - missing:
                self._blobs[digest].born = len(self._feed)
            return missing

    def sweep_blobs(self, *, before: int, keep: Container[Digest] = frozenset()) -> int:
        return super().sweep_blobs(before=before // _STRIDE, keep=keep)

    # ── rows ─────────────────────────────────────────────────────────────────────────────────

    def _fold(self, events: Sequence[Event]) -> dict[str, RowsInMemory]:
        return {}

    def rows(self, projection: str, *args: Any, **how: Any) -> list[Row]:
        with self._open():
            self._catch_up(projection)
            return super().rows(projection, *args, **how)

    def search(self, projection: str, *args: Any, **how: Any) -> Found:
        with self._open():
            self._catch_up(projection)
            return super().search(projection, *args, **how)

    def rebuild(self, projection: str) -> None:
        feed, self._feed = self._feed, []
        try:
            super().rebuild(projection)
        finally:
            self._feed = feed
        self._folded[projection] = set()
        self._broken.pop(projection, None)

    def _catch_up(self, name: str) -> None:
        if (projection := self._projections.get(name)) is None:
            return
        if name in self._broken:
            raise self._broken[name]
        new = [i for i in range(len(self._feed)) if i not in self._folded[name]]
        for place in self._some_order(new):
            event = self._feed[place]
            if event.kind in projection.kinds:
                draft = self._rows[name].draft()
                try:
                    projection.apply(draft, (place + 1) * _STRIDE, event)
                except Exception as error:
                    self._broken[name] = RowsBroken(name, event.log, event.seq, str(error))
                    raise self._broken[name] from error
                draft.apply_draft()
            self._folded[name].add(place)

    def _some_order(self, places: list[int]) -> list[int]:
        history = [(place, self._feed[place]) for place in places]
        return [number for number, _ in any_order(history, self._random)]
