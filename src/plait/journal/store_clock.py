"""A source with the clock of a store: its processes may be on many machines."""

from __future__ import annotations

from plait.ids import LogId, Micros, Source
from plait.store import Store


class StoreClock:
    """A `Source` whose time is that of a store's server; ids and salt are those of another one."""

    def __init__(self, base: Source, store: Store) -> None:
        self._base, self._store = base, store

    def now(self, log: LogId, seq: int) -> Micros:
        shared = self._store.shared_time()
        return self._base.now(log, seq) if shared is None else shared

    def salt(self, log: LogId, seq: int) -> bytes:
        return self._base.salt(log, seq)

    def fresh(self, *about: str | int) -> LogId:
        return self._base.fresh(*about)
