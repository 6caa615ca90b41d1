"""Blobs and events on their way from one store to another, in batches.

Events are written in the order in which the source committed them, so each is there after those
that it rests on, and rows come out as in the source. An event that is there already is left out:
whoever repeats a copy, or makes the same one at the same time, goes on where the other one was.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple

import msgspec

from plait.copying.plan import CopyPlan
from plait.errors import LogExists, LogsDiffer, OutcomeUnknown, StaleHead, StoreCorrupt
from plait.event import Event, parse_event
from plait.event.kinds import ForkedFrom
from plait.ids import Digest, LogId
from plait.store import LogAppend, Store
from plait.workspace.gc import TREE_KINDS, trees_in
from plait.workspace.tree import EMPTY, decode

_EVENTS_MAX = 500  # of one batch
_BYTES_MAX = 4 << 20  # of one batch
_BLOBS_MAX = 256  # that are looked up at once
_FORK = ForkedFrom.__name__
_MERGED_MAX = 64  # logs that are read side by side; of more, the whole store is read


class CopyCounts(msgspec.Struct):
    """The amounts that were copied."""

    events: int = 0
    blobs: int = 0
    bytes: int = 0  # of events and blobs, before compression


Report = Callable[[CopyCounts], object]


class CopyReader:
    """The events of some logs of a store, in the order of their commits."""

    def __init__(self, store: Store, logs: Container[LogId], names: Iterable[LogId] | None) -> None:
        """`names`: the logs, if they are few. None: the whole store is read."""
        self.store, self._logs = store, logs
        few = None if names is None else list(names)
        self._few = few if few is not None and len(few) <= _MERGED_MAX else None

    def events(self, after: int, upto: int, kinds: frozenset[str] | None = None) -> Iterator[Event]:
        """Yield the events with a commit number above `after`, up to `upto`."""
        if self._few is not None:
            streams = [self._own_events(log, after, upto) for log in self._few]
            found = heapq.merge(*streams, key=lambda each: each[0])
            yield from (
                []
                if not streams
                else (event for _, event in found if kinds is None or event.kind in kinds)
            )
            return
        for number, event in self.store.feed(max(after, 0), kinds=kinds):
            if number > upto:
                return
            if event.log in self._logs:
                yield event

    def _own_events(self, log: LogId, after: int, upto: int) -> Iterator[tuple[int, Event]]:
        for record in self.store.records(log):
            if max(after, 0) < record.number <= upto:
                if record.content is None:
                    raise StoreCorrupt(f"log {log}@{record.seq}", "its body cannot be read")
                yield record.number, Event(record.raw, record.salt, record.content)


# ── blobs ────────────────────────────────────────────────────────────────────────────────────


class BlobTransfer:
    """Brings the blobs over that events point to, also through trees."""

    def __init__(
        self,
        source: Store,
        target: Store | None,
        counts: CopyCounts,
        report: Report,
        *,
        is_trial: bool = False,
    ) -> None:
        """`is_trial`: blobs are counted alone. `target` None: there is no store yet."""
        self._source, self._target, self._is_trial = source, target, is_trial
        self._counts, self._report = counts, report
        self._seen = set[bytes]()  # digests, as bytes: half as long
        self._queue: list[Digest] = []

    def bring(self, events: Iterable[Event]) -> None:
        """Bring the blobs of these events over, those that are there left out."""
        for event in events:
            self._add(event.refs)
            if event.kind in TREE_KINDS:
                for tree in trees_in(event):
                    self._add_tree(tree)
        self._look_up()

    def _add(self, blobs: Iterable[Digest]) -> None:
        for blob in blobs:
            if (key := bytes.fromhex(blob)) not in self._seen:
                self._seen.add(key)
                self._queue.append(blob)
        if len(self._queue) >= _BLOBS_MAX:
            self._look_up()

    def _add_tree(self, root: Digest) -> None:
        trees = [root]
        while trees:
            tree = trees.pop()
            if (key := b"tree" + bytes.fromhex(tree)) in self._seen:
                continue
            self._seen.add(key)
            if tree == EMPTY and self._source.missing_blobs([tree]):
                continue  # the empty tree need not be stored
            self._add([tree])
            for entry in decode(self._source.get_blob(tree)):
                if entry.kind == "folder":
                    trees.append(entry.blobs[0])
                elif entry.kind == "file":
                    self._add(entry.blobs)

    def _look_up(self) -> None:
        asked, self._queue = self._queue, []
        target = self._target
        missing = set(asked) if target is None else target.missing_blobs(asked)
        batch: dict[Digest, bytes] = {}
        size = 0
        for blob in [blob for blob in asked if blob in missing]:
            content = self._source.get_blob(blob)
            self._counts.blobs += 1
            self._counts.bytes += len(content)
            if self._is_trial or target is None:
                continue
            batch[blob] = content
            size += len(content)
            if size >= _BYTES_MAX:
                target.put_blobs(batch)
                batch, size = {}, 0
        if target is not None and batch:
            target.put_blobs(batch)
        self._report(self._counts)


# ── events ───────────────────────────────────────────────────────────────────────────────────


class _LogEvents(NamedTuple):
    """Events of one log that follow each other in the order of commits."""

    log: LogId
    events: list[Event]


class EventTransfer:
    """Writes events to a store in the order they come."""

    def __init__(
        self,
        source: Store,
        target: Store,
        plan: CopyPlan,
        counts: CopyCounts,
        report: Report,
    ) -> None:
        self._source, self._target, self._logs = source, target, plan.logs
        self.tips = dict(plan.there)  # the last seq of each log that the target has
        self._counts, self._report = counts, report
        self._parts, self._size, self._length = list[_LogEvents](), 0, 0

    def unwritten(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events that the target does not have."""
        return (event for event in events if event.seq > self.tips[event.log])

    def write(self, events: Iterable[Event]) -> None:
        """Write these events, those that are there left out."""
        for event in self.unwritten(events):
            self._add(event)
        self._flush()

    def _add(self, given: Event) -> None:
        event = parse_event(given.raw, given.salt, given.content)
        if event.kind == _FORK:  # its parent has to be there
            self._flush()
        if not self._parts or self._parts[-1].log != event.log:
            self._parts.append(_LogEvents(event.log, []))
        self._parts[-1].events.append(event)
        self.tips[event.log] = event.seq
        self._size += len(event.raw) + len(event.content)
        self._length += 1
        if self._length >= _EVENTS_MAX or self._size >= _BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        parts, size, count = self._parts, self._size, self._length
        self._parts, self._size, self._length = [], 0, 0
        if not parts:
            return
        if parts[0].events[0].kind == _FORK:  # a fork is begun by itself
            self._write_surely(parts[:1])
            parts = parts[1:]
        self._write_surely(parts)
        self._counts.events += count
        self._counts.bytes += size
        self._report(self._counts)

    def _write_surely(self, parts: list[_LogEvents]) -> None:
        """Write, and leave out what another copy has written meanwhile."""
        while parts:
            try:
                try:
                    return self._write(parts)
                except OutcomeUnknown:
                    return self._write(parts)
            except (StaleHead, LogExists):
                left = self._left_of(parts)
                if sum(len(part.events) for part in left) == sum(
                    len(part.events) for part in parts
                ):
                    raise
                parts = left

    def _write(self, parts: list[_LogEvents]) -> None:
        log, events = parts[0]
        if events[0].kind == _FORK:
            self._target.begin(log, events, parent=self._logs[log].parent)
            return
        appends = [LogAppend(log, events, _before(events[0])) for log, events in parts]
        self._target.append_all(appends)

    def _left_of(self, parts: list[_LogEvents]) -> list[_LogEvents]:
        """Return the events that the target does not have by now; raise if it has others."""
        left: list[_LogEvents] = []
        heads = self._target.heads([part.log for part in parts])
        for log, events in parts:
            end = heads.get(log)
            known = [] if end is None else [each for each in events if each.seq <= end.tip]
            if known:
                there = next(self._target.read(log, known[-1].seq, known[-1].seq))
                if there.id != known[-1].id:
                    at = known[0].seq
                    raise LogsDiffer(log, at, self._source.address, self._target.address)
            if rest := events[len(known) :]:
                left.append(_LogEvents(log, rest))
        return left


def _before(event: Event) -> Digest | None:
    return event.header.parents[0] if event.header.parents else None
