"""The branches of a run and their ids.

The id of a branch follows from the position that it is forked from, so that the same run, executed
again, finds the branch that it made before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from threading import Lock, Thread

from plait.errors import InvalidValue
from plait.event import Body
from plait.event.kinds import ForkedFrom, Place, SessionOpened
from plait.ids import LogId, derive_id
from plait.inside import PieceOfWork, present_work
from plait.store import Store


class Branches:
    """Names the logs that a run begins, and knows which was forked from which."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._parents: dict[LogId, LogId] = {}
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._works: dict[tuple[str, ...], Thread | PieceOfWork] = {}  # the last that named each

    def add(self, log: LogId, parent: LogId) -> None:
        with self._lock:
            self._parents[log] = parent

    def parent_of(self, log: LogId) -> LogId | None:
        return self._parents.get(log)

    def lineage(self, log: LogId) -> Iterator[LogId]:
        """Yield a log, the one it was forked from, and so on."""
        at: LogId | None = log
        while at is not None:
            yield at
            at = self._parents.get(at)

    def new_id(self, first: Body, fork: Place | None, scope: str) -> LogId:
        """Return the id of a log that begins with this event."""
        if fork is None:
            above = first.continues if isinstance(first, SessionOpened) else None
            about = ("root", above.log if above else "", str(above.seq if above else 0), "")
        else:
            about = _fork_names(first, fork)
        key = (scope, *about)
        with self._lock:
            before, here = self._works.get(key), present_work()
            self._works[key] = here
            if before is not None and before is not here and before.is_alive():
                raise InvalidValue(
                    "label",
                    f"two threads fork {about[1][-12:-4]}@{about[2]} under one name",
                    "give each branch a label of its own",
                )
            ordinal = self._counts[key]
            self._counts[key] += 1
        return derive_id("plait/fork/1", scope, *about, ordinal)

    def id_in_source(self, store: Store, run: str, first: Body, fork: Place | None) -> LogId | None:
        """Return the id that a branch has in the run that this one was branched off."""
        if fork is None or not isinstance(first, ForkedFrom):
            return None
        made_at = store.event(fork.head)
        how, log, seq, label = _fork_names(first, fork)
        ordinal = self._counts[run, how, log, seq, label] - 1
        run = made_at.header.run or ""
        return derive_id("plait/fork/1", run, how, made_at.log, seq, label, ordinal)


def _fork_names(first: Body, fork: Place) -> tuple[str, str, str, str]:
    label = first.label if isinstance(first, ForkedFrom) else None
    return "fork", fork.log, str(fork.seq), label or ""
