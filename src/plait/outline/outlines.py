"""The outlines of a store's logs: folded when somebody looks, kept, and caught up event by event.

A record names the event that it ends with. It is used if that event still stands at its place, and
then only the events after it are read. Nothing of this happens in the transaction of an append.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from plait.ids import LogId, short
from plait.outline.cache import RecordCache
from plait.outline.records import LogRecord
from plait.outline.step_fold import StepFold
from plait.session.listing import session_row
from plait.store import Log, Store

_EVENTS_MAX = 2_000_000  # that records in memory stand for; the ones used last stay
_KEEP_EVERY = 256  # events by which a record on disk may be behind; of a long log, its share
_KEEP_SHARE = 8


class Outlines:
    """The records of one store's logs. It may be shared by threads."""

    def __init__(self, store: Store, cache: RecordCache | None = None) -> None:
        self.store = store
        self._cache = RecordCache.of(store) if cache is None else cache
        self._records: OrderedDict[LogId, LogRecord] = OrderedDict()
        self._kept: dict[LogId, int] = {}  # seq up to which a log's file goes
        self._sizes: dict[LogId, int] = {}  # events of the records in memory
        self._event_count = 0
        self._names: dict[LogId, str] = {}
        self._lock = threading.RLock()

    def record(self, log: LogId) -> LogRecord:
        """Return the record of a log as it stands now."""
        return self.record_of(self.store.log(log))

    def records(self, logs: Sequence[LogId]) -> dict[LogId, LogRecord]:
        """Return the records of several logs. Those that are unknown are left out."""
        return {id: self.record_of(info) for id, info in self.store.heads(logs).items()}

    def record_of(self, info: Log) -> LogRecord:
        """Return the record of a log up to the head that is given."""
        with self._lock:
            record = self._records.get(info.id)
            if record is None:
                record = self._cache.get(info.id)
                self._kept[info.id] = record.tip if record is not None else 0
            if record is None or not self._is_ours(record, info):
                record = LogRecord(info.id, info.place, info.place)
            if record.tip < info.tip:
                events = self.store.read(info.id, record.tip + 1, info.tip)
                StepFold(record).take_all(events)
            self._remember(record)
            return record

    def name_of(self, log: LogId) -> str:
        """Return the name of a log among its family: its label, else its short id."""
        if log not in self._names:
            self._names[log] = str(session_row(self.store, log).get("label") or short(log))
        return self._names[log]

    def keep(self, record: LogRecord) -> None:
        """Write a record to disk, because something was noted in it."""
        with self._lock:
            self._cache.put(record)
            self._kept[record.log] = record.tip

    def _is_ours(self, record: LogRecord, info: Log) -> bool:
        """True if a record is of this very log: its last event stands where it says."""
        if record.tip == info.tip:
            return record.head == info.head
        if not info.place <= record.tip < info.tip or record.place != info.place:
            return False
        event = next(self.store.read(info.id, record.tip, record.tip), None)
        return event is not None and event.id == record.head

    def _remember(self, record: LogRecord) -> None:
        self._records[record.log] = record
        self._records.move_to_end(record.log)
        behind = record.tip - self._kept.get(record.log, 0)
        if behind >= max(_KEEP_EVERY, len(record.owners) // _KEEP_SHARE):
            self._cache.put(record)
            self._kept[record.log] = record.tip
        self._event_count += len(record.owners) - self._sizes.get(record.log, 0)
        self._sizes[record.log] = len(record.owners)
        while len(self._records) > 1 and self._event_count > _EVENTS_MAX:
            log, _ = self._records.popitem(last=False)
            self._event_count -= self._sizes.pop(log)
