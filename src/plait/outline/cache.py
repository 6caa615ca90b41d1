"""Records on disk, beside the store: a file for each log, written whole or not at all.

It is a cache. A file that is missing, torn or foreign is made anew; two processes may write the
same one, and either of them is right.
"""

from __future__ import annotations

from pathlib import Path

from plait.errors import PlaitError
from plait.ids import LogId
from plait.outline.records import VERSION, LogRecord, pack_record, unpack_record
from plait.store import Store
from plait.workspace.copy_state import cache_folder, write_whole

_SMALL = 64  # events: a shorter log is folded as fast as a file is read


def outline_folder(store: Store) -> Path | None:
    """Return the folder for outlines beside a store. None: there is no place for one."""
    try:
        return cache_folder(store) / f"outline-{VERSION}"
    except (OSError, PlaitError):  # it cannot be made, or others may write to it
        return None


def read_cache(file: Path | None) -> bytes:
    """Return the content of a file. Empty: there is none."""
    try:
        return file.read_bytes() if file is not None else b""
    except OSError:
        return b""


def write_cache(file: Path | None, content: bytes) -> None:
    """Write a file whole. If that is not possible, nothing is kept, and nothing is lost."""
    if file is None:
        return
    try:
        for folder in (file.parent.parent, file.parent):  # and no more: the store may be gone
            folder.mkdir(exist_ok=True)
        write_whole(file, content)
    except OSError:
        pass


class RecordCache:
    """The records of a store's logs on disk."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder  # None: nothing is kept

    @classmethod
    def of(cls, store: Store) -> RecordCache:
        return cls(outline_folder(store))

    def get(self, log: LogId) -> LogRecord | None:
        """Return the record of a log, however old. None: there is none that can be used."""
        record = unpack_record(read_cache(self._file(log)))
        return record if record is not None and record.log == log else None

    def put(self, record: LogRecord) -> None:
        """Keep the record of a log that is not short."""
        if len(record.owners) >= _SMALL:
            write_cache(self._file(record.log), pack_record(record))

    def _file(self, log: LogId) -> Path | None:
        return self._folder / log if self._folder is not None else None
