"""Records on disk, beside the store: a file for each log, written whole or not at all.

It is a cache. A file that is missing, torn or foreign is made anew; two processes may write the
same one, and either of them is right.
"""

from __future__ import annotations

from pathlib import Path

from plait.ids import LogId
from plait.outline.records import VERSION, LogRecord, pack_record, unpack_record
from plait.store import Store
from plait.workspace.copy_state import cache_folder, write_whole

_SMALL = 64  # events: a shorter log is folded as fast as a file is read


class RecordCache:
    """The records of a store's logs on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of(cls, store: Store) -> RecordCache:
        return cls(cache_folder(store) / f"outline-{VERSION}")

    def get(self, log: LogId) -> LogRecord | None:
        """Return the record of a log, however old. None: there is none that can be used."""
        try:
            record = unpack_record(self._file(log).read_bytes())
        except OSError:
            return None
        return record if record is not None and record.log == log else None

    def put(self, record: LogRecord) -> None:
        """Keep a record. If that is not possible, nothing is kept, and nothing is lost."""
        if len(record.owners) < _SMALL:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._file(record.log), pack_record(record))
        except OSError:
            pass

    def _file(self, log: LogId) -> Path:
        return self._folder / log
