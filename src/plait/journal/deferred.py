"""Drafts that wait for the next append to their log.

An event that only describes (a call started, a call finished) costs no transaction of its own: it
is written with the next append. Nothing that acts waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock

from plait.ids import Digest, LogId
from plait.session.ports import Act, Draft

Blobs = Mapping[Digest, bytes]
Waiting = tuple[Draft, Blobs]


class DeferredDrafts:
    """The waiting drafts of a run, by log and by scope: the run's own, or those of a tool call."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: dict[tuple[LogId, str], list[Waiting]] = {}

    def add(self, log: LogId, scope: str, draft: Draft, blobs: Blobs | None = None) -> None:
        with self._lock:
            self._waiting.setdefault((log, scope), []).append((draft, dict(blobs) if blobs else {}))

    def peek(self, log: LogId, scope: str) -> list[Waiting]:
        """Return the drafts that wait for a log: the very list that `pop` is about to return."""
        return self._waiting.get((log, scope), []) if self._waiting else []

    def pop(self, log: LogId, scope: str) -> list[Waiting]:
        """Remove and return the drafts that wait for a log."""
        with self._lock:
            return self._waiting.pop((log, scope), [])

    def put_back(self, log: LogId, scope: str, drafts: list[Waiting]) -> None:
        """Let drafts wait again, before those that came since: their append failed. They may not
        have been removed yet: an interrupt came first.
        """
        with self._lock:
            since = self._waiting.get((log, scope), [])
            if drafts and since is not drafts:
                self._waiting[log, scope] = [*drafts, *since]

    def count(self, log: LogId, scope: str) -> int:
        return len(self._waiting.get((log, scope), ()))

    def drafts(self, log: LogId, scope: str) -> list[Draft]:
        with self._lock:
            return [draft for draft, _ in self._waiting.get((log, scope), ())]

    def drop(self, log: LogId, scope: str, size: int) -> None:
        """Remove the first so many: they were found in the recording."""
        with self._lock:
            del self._waiting[log, scope][:size]

    def logs(self) -> list[tuple[LogId, str]]:
        """Return the logs that drafts wait for, with their scopes."""
        with self._lock:
            return [key for key, waiting in self._waiting.items() if waiting]


def append_drafts(
    waiting: Sequence[Waiting], drafts: Sequence[Draft], blobs: Blobs | None
) -> tuple[list[Draft], dict[Digest, bytes]]:
    """Return the drafts of one append, the waiting ones first, with all their blobs."""
    ahead = len(waiting)
    every = [draft for draft, _ in waiting]
    every += [
        draft._replace(act=_shift_causes(draft.act, ahead)) if draft.act.causes else draft
        for draft in drafts
    ]
    more = dict(blobs) if blobs else {}
    for _, with_it in waiting:
        more.update(with_it)
    return every, more


def _shift_causes(act: Act, by: int) -> Act:
    """Count causes within the append anew: other drafts stand before them."""
    causes = [cause + by if isinstance(cause, int) else cause for cause in act.causes]
    return act._replace(causes=tuple(causes))
