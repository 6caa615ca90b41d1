"""Pruning copies of sessions that have moved to another host.

The copy that a session left behind here is a cache in doubt, which would be thrown away when it is
next seen. A worker removes it before, once the record says that the session works elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from plait.errors import PlaitError, UnknownLog
from plait.ids import LogId
from plait.runtime.place import LOCAL
from plait.runtime.placement import detail_of
from plait.runtime.sandboxes import close_idle_sandboxes
from plait.sandbox.local import host_name
from plait.session.ports import Position
from plait.session.run_rows import run_around
from plait.session.session import session_at
from plait.store import Log, Store
from plait.workspace.copy_state import cache_folder, list_copies
from plait.workspace.pruning import prune_copy

_LOOKED_AT = 256  # copies in one go
_ID_SIZE = 36  # characters of a session's id, with which the name of its copy begins


class _SeenCopy(NamedTuple):
    """A copy whose session worked here when it was last looked at, with the end of its log, and of
    the session that it is a branch of.
    """

    name: str
    head: str
    head_above: str


class CopyPruner:
    """Removes copies of one store on this host; remembers those that stay."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stays: set[_SeenCopy] = set()

    def prune(self, own: Collection[str] = ()) -> list[str]:
        """Remove copies of sessions that have moved away, and that no process uses; return their
        names. `own`: logs of runs that this worker has, which stay.
        """
        removed = list[str]()
        cache = cache_folder(self._store)
        stays = set[_SeenCopy]()
        for copy in list_copies(cache)[:_LOOKED_AT]:
            log = LogId(copy.name[:_ID_SIZE])
            if len(log) < _ID_SIZE or log in own:
                continue
            with suppress(UnknownLog):
                end = self._store.log(log)
                above = self._session_above(end)
                if above.id in own:
                    continue
                seen = _SeenCopy(copy.name, end.head, above.head)
                if seen in self._stays or not (self._has_moved(end) or self._has_moved(above)):
                    stays.add(seen)
                    continue
                close_idle_sandboxes(self._store.address, log)
                if prune_copy(cache, copy.name):
                    removed.append(copy.name)
        self._stays = stays
        return removed

    def _session_above(self, end: Log) -> Log:
        """Return the session whose run a log is a branch of: who has the run has its branches. Any
        other log is its own session.
        """
        while end.parent is not None:
            first = next(self._store.read(end.id, end.place + 1, end.place + 1), None)
            if first is None or run_around(first) is None:
                break
            end = self._store.log(end.parent)
        return end

    def _has_moved(self, end: Log) -> bool:
        """True if the session works on another host, by its record."""
        session = session_at(Position(self._store.address, end.id, end.tip, end.head))
        try:
            placement = session.files.placement
        except PlaitError:
            return False
        if placement is None:
            return False
        host = detail_of(placement).get("host")
        return placement.backend == LOCAL and bool(host) and host != host_name()
