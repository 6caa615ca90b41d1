"""When something last happened in each session of a store: the order of a list for people.

The first look in a process compares the heads of all logs with those in a file beside the store,
and reads the last event of the others. Later looks follow `store.feed`, so they cost as much as is
new. The file is a cache: one that is missing, torn or foreign is made anew.
"""

from __future__ import annotations

import sys
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from plait.errors import PlaitError
from plait.ids import Digest, LogId, Micros
from plait.outline.records import VERSION
from plait.session.listing import list_rows, session_row
from plait.store import Log, Store
from plait.workspace.copy_state import cache_folder, write_whole

_TAG = f"plait/activity/{VERSION}/{sys.byteorder}\n".encode()
_PAGE = 500
_SCAN = 5000  # new events from which on comparing heads is less work than reading them


class Activity(msgspec.Struct, frozen=True, array_like=True):
    """The last event of one session, and where the session comes from."""

    head: Digest
    updated: Micros
    parent: LogId | None
    place: int
    is_of_run: bool  # forked by a run


class Activities:
    """The activity of all sessions of a store. It may be shared by threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._file = cache_folder(store) / f"outline-{VERSION}" / "activity"
        self._lock = threading.Lock()
        self._number: int | None = None  # up to which it is new; None: nothing was read yet
        self._known: dict[LogId, Activity] = {}
        self._children: dict[LogId, list[LogId]] = {}

    def catch_up(self) -> int:
        """Take in what is new, and return the commit number up to which it is."""
        with self._lock:
            number = self._store.number
            if self._number is None or number - self._number > _SCAN:
                self._scan()
            else:
                self._follow(self._number)
            self._number = number
            return number

    def of(self, log: LogId) -> Activity | None:
        return self._known.get(log)

    def logs(self) -> list[LogId]:
        return list(self._known)

    def branches_of_run(self, log: LogId) -> Iterator[LogId]:
        """Yield the branches that runs of a session forked, and those that they forked."""
        waiting = [log]
        while waiting:
            for child in self._children.get(waiting.pop(), ()):
                if self._known[child].is_of_run:
                    yield child
                    waiting.append(child)

    def count_below(self, log: LogId) -> int:
        """Return the number of sessions that were forked from a session, and from those."""
        count, waiting = 0, [log]
        while waiting:
            children = self._children.get(waiting.pop(), [])
            count += len(children)
            waiting += children
        return count

    def updated(self, log: LogId) -> Micros:
        """Return the time of the last event in a session and in the branches of its runs."""
        logs = (log, *self.branches_of_run(log))
        return max([self._known[each].updated for each in logs])

    def root_of(self, log: LogId) -> LogId:
        activity = self._known.get(log)
        while activity is not None and activity.parent is not None:
            log = activity.parent
            activity = self._known.get(log)
        return log

    # ── catching up ──────────────────────────────────────────────────────────────────────────

    def _scan(self) -> None:
        """Compare the heads of all sessions with those that are known."""
        kept = self._known or _read_file(self._file)
        rows = list_rows(self._store, {}, None, None, _PAGE)
        logs = [LogId(str(row["log"])) for row in rows]
        for log in self._known.keys() - set(logs):  # the store was put back to an earlier state
            self._forget(log)
        changed = 0
        for info in self._heads(logs):
            known = kept.get(info.id)
            if known is not None and known.head == info.head and known.place == info.place:
                self._set(info.id, known)
            else:
                changed += self._read(info)
        if changed:
            _write_file(self._file, self._known)

    def _follow(self, number: int) -> None:
        """Take in the logs that events after a commit number stand in."""
        changed = {event.log: None for _, event in self._store.feed(number)}
        if not self._store.dense:  # visible, and not settled: they come again
            unsettled = self._store.feed(self._store.number, reverse=True)
            changed.update({event.log: None for _, event in unsettled})
        for info in self._heads([log for log in changed if self._is_session(log)]):
            known = self._known.get(info.id)
            if known is None or known.head != info.head:
                self._read(info)

    def _heads(self, logs: Sequence[LogId]) -> Iterator[Log]:
        for at in range(0, len(logs), _PAGE):
            yield from self._store.heads(logs[at : at + _PAGE]).values()

    def _is_session(self, log: LogId) -> bool:
        return log in self._known or bool(session_row(self._store, log))

    def _read(self, info: Log) -> int:
        """Read the last event of a log, and return 1; of one that is damaged, 0."""
        known = self._known.get(info.id)
        try:
            updated = self._store.event(info.head).time
            if known is not None:
                is_of_run = known.is_of_run
            else:
                first = next(self._store.read(info.id, info.place + 1, info.place + 1))
                is_of_run = info.parent is not None and first.header.run is not None
        except (PlaitError, StopIteration):
            return 0
        self._set(info.id, Activity(info.head, updated, info.parent, info.place, is_of_run))
        return 1

    def _set(self, log: LogId, activity: Activity) -> None:
        if log not in self._known and activity.parent is not None:
            self._children.setdefault(activity.parent, []).append(log)
        self._known[log] = activity

    def _forget(self, log: LogId) -> None:
        activity = self._known.pop(log)
        if activity.parent is not None:
            self._children[activity.parent].remove(log)


# ── the file ─────────────────────────────────────────────────────────────────────────────────

_decode = msgspec.msgpack.Decoder(dict[str, Activity]).decode


def _read_file(file: Path) -> dict[LogId, Activity]:
    try:
        data = file.read_bytes()
    except OSError:
        return {}
    start = len(_TAG) + 4
    if not data.startswith(_TAG) or data[start - 4 : start] != _checksum(data[start:]):
        return {}
    try:
        return {LogId(log): activity for log, activity in _decode(data[start:]).items()}
    except msgspec.MsgspecError:
        return {}


def _write_file(file: Path, known: dict[LogId, Activity]) -> None:
    """Keep what is known. If that is not possible, nothing is lost."""
    content = msgspec.msgpack.encode(known)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, _TAG + _checksum(content) + content)
    except OSError:
        pass


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "big")


def latest_first(activities: Activities, logs: Iterable[LogId]) -> list[tuple[Micros, LogId]]:
    """Return sessions with the time of their last activity, the latest first."""
    return sorted([(activities.updated(log), log) for log in logs], reverse=True)
