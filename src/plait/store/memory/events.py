"""Logs and events in a store in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count, islice

from plait.errors import (
    InvalidValue,
    LogExists,
    PlaitError,
    StaleHead,
    StaleReading,
    StoreCorrupt,
    UnknownBlob,
    UnknownEvent,
)
from plait.event import VOCABULARY, Event
from plait.ids import Digest, LogId, parse_digest, parse_log_id
from plait.store.arguments import (
    check_kinds,
    check_limit,
    check_number,
    check_prefix,
    check_read,
)
from plait.store.base import HeadsQuestion, Log, LogAppend, StoredRecord
from plait.store.blobs import checked_blobs
from plait.store.chain import check_chain, check_fork, check_parts, first_parent
from plait.store.epochs import Fence, ReadMark, TipsMark, check_epoch, epochs_raised
from plait.store.lineage import Lineage, cut_lineage, extend_lineage
from plait.store.memory.blobs import MemoryBlobs
from plait.store.memory.core import MemoryLog
from plait.store.plain_rows import RowsInMemory

_PAGE = 512  # events of the feed taken at a time


class MemoryEvents(MemoryBlobs):
    """Logs and their events."""

    def begin(
        self,
        log: LogId,
        events: Sequence[Event],
        *,
        parent: LogId | None = None,
        blobs: Mapping[Digest, bytes] | None = None,
        fences: Sequence[Fence] = (),
    ) -> Digest:
        parse_log_id(log)
        check_chain(log, events, first_parent(events), begins=True)
        first = events[0]
        place = first.seq - 1
        check_fork(
            first, parent, next(self.read(parent, place, place), None) if parent and place else None
        )
        with self._open():
            for fence in fences:
                check_epoch(fence, self._find(fence.log).epoch)
            known = self._logs.get(log)
            if known is not None:
                if self._is_appended(known, events[-1]):
                    return events[-1].id
                raise LogExists(log)
            inherited = self._logs[parent].lineage if parent else ()
            known = MemoryLog(len(self._logs), parent, place, extend_lineage(inherited, place, log))
            self._write([(known, events)], blobs)
            self._logs[log] = known
            return events[-1].id

    def append(
        self,
        log: LogId,
        events: Sequence[Event],
        *,
        after: Digest,
        blobs: Mapping[Digest, bytes] | None = None,
        flush: bool = False,
        fences: Sequence[Fence] = (),
        question: HeadsQuestion | None = None,
    ) -> Digest:
        check_chain(log, events, after)
        with self._open():
            known = self._find(log)
            stands = known.head != after and self._is_appended(known, events[-1])
            for fence in fences:
                check_epoch(
                    fence,
                    self._find(fence.log).epoch,
                    epochs_raised(events) if stands and fence.log == log else 0,
                )
            if known.head != after:
                if stands:
                    return events[-1].id
                raise StaleHead(log, after, known.head, known.tip)
            _check_next(known, events[0])
            self._write([(known, events)], blobs)
            return events[-1].id

    def append_all(
        self,
        parts: Sequence[LogAppend],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        fences: Sequence[Fence] = (),
        reading: ReadMark | TipsMark | None = None,
    ) -> list[Digest]:
        check_parts(parts)
        with self._open():
            stand = all(self._stands(part) for part in parts)
            for fence in fences:
                raised = [
                    epochs_raised(part.events) for part in parts if stand and part.log == fence.log
                ]
                check_epoch(fence, self._find(fence.log).epoch, sum(raised))
            if not stand:
                if reading is not None:
                    self._check_reading(reading)
                logs: dict[LogId, MemoryLog] = {}
                for part in parts:  # only the first one of a log can be refused
                    if part.log not in logs:
                        logs[part.log] = self._free_log(part)
                self._write([(logs[part.log], part.events) for part in parts], blobs)
                for part in parts:
                    if part.after is None:
                        logs[part.log].ordinal = len(self._logs)
                        self._logs[part.log] = logs[part.log]
        return [part.events[-1].id for part in parts]

    def _check_reading(self, reading: ReadMark | TipsMark) -> None:
        if isinstance(reading, TipsMark):
            for log, tip in reading.tips.items():
                known = self._logs.get(log)
                if known is not None and known.has_after(tip, reading.kinds):
                    raise StaleReading(None, reading.kinds)
            return
        for number, event in enumerate(self._feed[reading.number :], reading.number + 1):
            if event.kind in reading.kinds and number not in reading.seen:
                raise StaleReading(reading.number, reading.kinds)

    def _stands(self, part: LogAppend) -> bool:
        known = self._logs.get(part.log)
        return known is not None and self._is_appended(known, part.events[-1])

    def _free_log(self, part: LogAppend) -> MemoryLog:
        """Return the log that a part of an act is written to, or raise if it moved on."""
        if part.after is None:
            if part.log in self._logs:
                raise LogExists(part.log)
            return MemoryLog(0, None, 0, extend_lineage((), 0, part.log))
        known = self._find(part.log)
        if known.head != part.after:
            raise StaleHead(part.log, part.after, known.head, known.tip)
        _check_next(known, part.events[0])
        return known

    def flush(self) -> None:
        with self._open():
            pass  # there is no disk

    def log(self, log: LogId) -> Log:
        with self._open():
            return _to_log(log, self._find(log))

    def heads(self, logs: Sequence[LogId]) -> dict[LogId, Log]:
        with self._open():
            return {
                log: _to_log(log, self._logs[log])
                for log in logs
                if parse_log_id(log) in self._logs
            }

    def lineage(self, log: LogId) -> Lineage:
        with self._open():
            return self._find(log).lineage

    def logs(self, *, before: int | None = None, limit: int = 100) -> list[tuple[int, Log]]:
        check_limit(limit)
        check_number("before", 0 if before is None else before)
        with self._open():
            ids = list(self._logs)
            last = len(ids) - 1 if before is None else min(before, len(ids)) - 1
            return [
                (i, _to_log(ids[i], self._logs[ids[i]]))
                for i in range(last, max(last - limit, 0), -1)
            ]

    def match(self, text: str, limit: int = 20) -> list[LogId]:
        check_prefix(text)
        check_limit(limit)
        digits = text.replace("-", "").lower()
        if not digits:
            return []
        with self._open():
            plain = {log: log.replace("-", "") for log in self._logs}
        front = sorted(log for log, hex in plain.items() if hex.startswith(digits))
        tail = [log for log, hex in plain.items() if hex[20:].startswith(digits)]
        return list(dict.fromkeys(front + tail))[:limit]

    def read(
        self,
        log: LogId,
        first: int = 1,
        last: int | None = None,
        *,
        kinds: Collection[str] | None = None,
        reverse: bool = False,
    ) -> Iterator[Event]:
        check_read(first, last, kinds, VOCABULARY)
        with self._open():
            known = self._find(log)
            tip = known.tip
            found: list[Event] = []
            for span in cut_lineage(
                known.lineage, max(first, 1), tip if last is None else min(last, tip)
            ):
                own = self._find(span.log)
                start = own.place + 1
                stretch = own.events[span.first - start : span.last - start + 1]
                size = max(span.last - span.first + 1, 0)
                if len(stretch) != size or (
                    size and (stretch[0].seq, stretch[-1].seq) != (span.first, span.last)
                ):
                    raise StoreCorrupt(f"log {span.log}", "an event is missing, or stands twice")
                found = found + stretch if found else stretch
        ordered = reversed(found) if reverse else iter(found)
        # one by one: the caller may want the last of a kind, and no more
        return ordered if kinds is None else (event for event in ordered if event.kind in kinds)

    def read_ahead(self, log: LogId, first: int, last: int) -> AbstractContextManager[None]:
        return nullcontext()  # a read asks no server

    def look_ahead(
        self, logs: Sequence[LogId], limit: int
    ) -> AbstractContextManager[Mapping[LogId, Log]]:
        return nullcontext(self.heads(logs))

    def events_at(self, places: Sequence[tuple[LogId, int]]) -> list[Event]:
        logs = self.heads([log for log, _ in places])
        own = [(log, seq) for log, seq in places if log in logs and logs[log].place < seq]
        return [event for log, seq in own for event in self.read(log, seq, seq)]

    def event(self, id: Digest) -> Event:
        with self._open():
            if parse_digest(id) not in self._by_id:
                raise UnknownEvent(id)
            return self._by_id[id]

    def number_of(self, id: Digest) -> int | None:
        with self._open():
            event = self._by_id.get(parse_digest(id))
            if event is None:
                return None
            known = self._find(event.log)
            return known.numbers[event.seq - known.place - 1]

    def feed(
        self,
        after: int = 0,
        *,
        kinds: Collection[str] | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[int, Event]]:
        check_limit(limit)
        check_number("after", after)
        check_kinds(kinds, VOCABULARY)
        found = self._feed_down(after) if reverse else self._feed_up(after)
        yield from islice(
            ((number, event) for number, event in found if kinds is None or event.kind in kinds),
            limit,
        )

    def event_count(self, upto: int) -> int:
        check_number("upto", upto)
        with self._open():
            return len(self._feed[:upto])

    def records(self, log: LogId) -> Iterator[StoredRecord]:
        with self._open():
            known = self._find(log)
            rows = list(zip(known.numbers, known.events, strict=True))
        for number, event in rows:
            try:
                seq, kind, refs = event.seq, event.kind, event.refs
            except PlaitError:  # edited in memory: `verify` names the fault
                seq, kind, refs = 0, "", ()
            yield StoredRecord(
                number, log, seq, kind, event.id, event.raw, event.salt, event.content, refs
            )

    def _feed_up(self, after: int) -> Iterator[tuple[int, Event]]:
        while events := self._slice(after, after + _PAGE):
            yield from enumerate(events, after + 1)
            after += len(events)

    def _feed_down(self, after: int) -> Iterator[tuple[int, Event]]:
        last = self.number
        while events := self._slice(max(after, last - _PAGE), last):
            yield from zip(count(last, -1), reversed(events))
            last -= len(events)

    def _slice(self, first: int, last: int) -> list[Event]:
        with self._open():
            return self._feed[first:last]

    def _is_appended(self, known: MemoryLog, event: Event) -> bool:
        place = event.seq - known.place - 1
        return 0 <= place < len(known.events) and known.events[place].id == event.id

    def _write(
        self,
        writes: Sequence[tuple[MemoryLog, Sequence[Event]]],
        blobs: Mapping[Digest, bytes] | None,
    ) -> None:
        """All or nothing: rows are folded into copies first, and nothing below the
        fold can fail.
        """
        content = checked_blobs(blobs)
        events = [event for _, some in writes for event in some]
        new: set[Digest] = set()
        for _, some in writes:
            for parent in (parent for event in some for parent in event.header.parents[1:]):
                if parent not in self._by_id and parent not in new:
                    raise UnknownEvent(parent)
            new.update([event.id for event in some])
        for ref in (ref for event in events for ref in event.refs):
            if ref not in content and ref not in self._blobs:
                raise UnknownBlob(ref)
        folded = self._fold(events)
        self._rows.update(folded)
        self._keep_blobs(content)
        for known, some in writes:
            for event in some:
                self._feed.append(event)
                self._by_id[event.id] = event
                known.add(event, len(self._feed))
                for ref in set(event.refs):
                    self._blobs[ref].refs += 1

    def _fold(self, events: Sequence[Event]) -> dict[str, RowsInMemory]:
        folded: dict[str, RowsInMemory] = {}
        for number, event in enumerate(events, len(self._feed) + 1):
            for projection in self._interested.get(event.kind, ()):
                rows = folded.get(projection.name)
                if rows is None:
                    rows = folded[projection.name] = self._rows[projection.name].draft()
                projection.apply(rows, number, event)
        return {name: rows.apply_draft() for name, rows in folded.items()}


def _check_next(known: MemoryLog, first: Event) -> None:
    if first.seq != known.tip + 1:
        raise InvalidValue(
            "seq",
            f"event {first.seq} does not follow place {known.tip}",
            "seal it at the next place",
        )


def _to_log(id: LogId, log: MemoryLog) -> Log:
    return Log(id, log.parent, log.place, log.head, log.tip, "memory", log.epoch)
