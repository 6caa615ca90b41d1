"""A store in memory: for tests, for trying things out, and as the plainest example of a store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from plait.errors import (
    UnknownRows,
)
from plait.ids import LogId, Source
from plait.store.arguments import (
    check_limit,
    check_name,
    check_own,
    check_place,
    check_runs,
)
from plait.store.base import Durability, Unchecked
from plait.store.blobs import check_size
from plait.store.lineage import cut_lineage
from plait.store.local_bells import LocalBell, LocalBells
from plait.store.locks import MemoryLock, lock_unmoved
from plait.store.memory.allowances import MemoryAllowances
from plait.store.moment import OneMachine, SeenRun
from plait.store.plain_rows import RowsInMemory
from plait.store.process import STORES
from plait.store.projection import Projection, Row, Scalar, Wanted
from plait.store.rows import check_names
from plait.store.search import Found, Region


class MemoryStore(MemoryAllowances, OneMachine):
    """A store that ends with its process.

    After os.fork the child goes on with a copy of its own.
    """

    dense = True
    folds_inside = True

    def __init__(
        self, name: str = "", *, source: Source, projections: Sequence[Projection] = ()
    ) -> None:
        super().__init__(name, source)
        self.durability: Durability = "memory"
        self.folder: Path | None = None
        self._locked: set[str] = set()  # runs
        self._bells = LocalBells()
        self.attach(projections)
        STORES.add(self)

    # ── snapshots ────────────────────────────────────────────────────────────────────────────

    def keep_snapshot(self, log: LogId, seq: int, data: bytes) -> None:
        check_size(data, "data")
        with self._open():
            known = self._find(log)
            check_own(log, seq, known.place, known.tip)
            known.kept[seq] = data

    def nearest_snapshot(self, log: LogId, upto: int) -> tuple[LogId, int, bytes] | None:
        check_place("upto", upto)
        with self._open():
            for span in reversed(cut_lineage(self._find(log).lineage, 1, upto)):
                kept = self._find(span.log).kept
                seq = max((seq for seq in kept if seq <= span.last), default=None)
                if seq is not None:
                    return span.log, seq, kept[seq]
        return None

    def snapshots(self, log: LogId) -> list[tuple[int, bytes]]:
        with self._open():
            return sorted(self._find(log).kept.items())

    def drop_snapshots(self, log: LogId | None = None) -> int:
        with self._open():
            logs = self._logs.values() if log is None else [self._find(log)]
            dropped = sum(len(known.kept) for known in logs)
            for known in logs:
                known.kept.clear()
        return dropped

    # ── rows ─────────────────────────────────────────────────────────────────────────────────

    def rows(
        self,
        projection: str,
        table: str,
        where: Mapping[str, Wanted] | None = None,
        *,
        order: str | None = None,
        descending: bool = False,
        before: Scalar = None,
        limit: int = 100,
        kinds: Collection[str] | None = None,
    ) -> list[Row]:
        check_limit(limit)
        if projection not in self._rows:
            raise UnknownRows(projection)
        with self._open():
            return self._rows[projection].scan(table, where or {}, order, descending, before, limit)

    def search(
        self,
        projection: str,
        table: str,
        words: Sequence[str],
        *,
        within: Sequence[Region] | None = None,
        upto: int | None = None,
        near: tuple[str, int] | None = None,
        limit: int = 20,
    ) -> Found:
        if projection not in self._rows:
            raise UnknownRows(projection)
        with self._open():
            return self._rows[projection].search(table, words, within, upto, near, limit)

    def check_words(self) -> list[str]:
        with self._open():
            return [fault for rows in self._rows.values() for fault in rows.word_faults()]

    def attached(self) -> list[Projection]:
        return list(self._projections.values())

    def attach(self, projections: Sequence[Projection]) -> None:
        for projection in projections:
            check_names(projection)
            with self._open():
                kept = self._projections.get(projection.name)
                if kept is None or kept.version < projection.version:
                    self._projections[projection.name] = projection
                    self.rebuild(projection.name)
                    every = self._projections.values()
                    self._interested = {
                        kind: [each for each in every if kind in each.kinds]
                        for kind in {kind for each in every for kind in each.kinds}
                    }

    def rebuild(self, projection: str) -> None:
        if projection not in self._projections:
            raise UnknownRows(projection)
        with self._open():
            fresh = RowsInMemory(self._projections[projection])
            for number, event in enumerate(self._feed, 1):
                if event.kind in self._projections[projection].kinds:
                    self._projections[projection].apply(fresh, number, event)
            self._rows[projection] = fresh

    # ── locks ────────────────────────────────────────────────────────────────────────────────

    def lock(self, run: str, session: str) -> MemoryLock:
        with self._open():
            return MemoryLock(self._locked, run, session)

    def is_locked(self, run: str) -> bool:
        with self._open():
            return run in self._locked

    def lock_first(
        self, runs: Sequence[str], seen: Mapping[str, SeenRun] | None = None
    ) -> tuple[str, MemoryLock] | None:
        check_runs(runs)
        return lock_unmoved(self, runs, seen or {}, self._lock_first)

    def _lock_first(self, runs: Sequence[str]) -> tuple[str, MemoryLock] | None:
        with self._open():
            run = next((run for run in runs if run not in self._locked), None)
            return None if run is None else (run, MemoryLock(self._locked, run))

    def free_runs(self, runs: Collection[str]) -> set[str]:
        check_runs(runs)
        with self._open():
            return set(runs) - self._locked

    # ── bells ────────────────────────────────────────────────────────────────────

    def shared_time(self) -> None:
        """None: all processes of the store are on this machine."""

    def ring(self, topic: str) -> None:
        check_name("topic", topic)
        self._bells.ring(topic)

    def listen(self, topic: str) -> LocalBell:
        check_name("topic", topic)
        with self._open():
            return self._bells.listen(topic)

    # ── the store as a whole ─────────────────────────────────────────────────────────────────

    def freeze(self) -> None:
        """Let no write begin until `thaw`."""
        self._guard.acquire()

    def thaw(self) -> None:
        self._guard.release()

    def start_over(self) -> None:
        """Go on in a forked child, where the locks of runs are the parent's."""
        self._locked.clear()
        self._bells.start_over()
        self._guard.release()

    def sync_at_exit(self) -> None:
        """Do nothing: the store ends with the process."""

    def set_durability(self, durability: Literal["full", "async"]) -> None:
        """Do nothing: the store ends with the process."""

    def check(self) -> list[str]:
        return []  # it has no files, and counts nothing twice

    def unchecked_parts(self) -> list[Unchecked]:
        return []

    def describe(self) -> dict[str, object]:
        return {
            "address": self.address,
            "id": self.id,
            "logs": len(self._logs) - 1,
            "events": len(self._feed),
            "blobs": len(self._blobs),
        }

    def close(self) -> None:
        self.is_closed = True
        self._bells.close()

    def __repr__(self) -> str:
        return f"<MemoryStore {self.address}>"
