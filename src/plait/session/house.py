"""The house log: acts that belong to the store and to no session.

Every store has one log of its own, with many writers, hash-linked like any other. People act there
through this module; code of a run does not. Sessions that were copied from another store bring the
house log of that store along: the acts in it count here as they did there, and nothing is added to
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from plait.event import Event
from plait.ids import Digest, LogId, house_of
from plait.session.copy_rows import copied_houses
from plait.session.ports import Draft, Post, writer_of
from plait.store import Store


def append_to_house(
    store_address: str,
    drafts: Sequence[Draft],
    *,
    notices: Mapping[LogId, Sequence[Draft]] | None = None,
    blobs: Mapping[Digest, bytes] | None = None,
    check: Callable[[Sequence[Event]], object] | None = None,
    kinds: frozenset[str] = frozenset(),
) -> list[Event]:
    """Append to the house log of a store: durable on return, also while others write there.

    `notices` go to the inboxes of these logs in the same transaction. See `Writer.post_all`.
    """
    posts = [Post(None, drafts), *[Post(log, some) for log, some in (notices or {}).items()]]
    writer = writer_of(None)
    return writer.post_all(store_address, posts, blobs=blobs, check=check, kinds=kinds)


def house_events(
    store: Store, *, kinds: Collection[str] | None = None, reverse: bool = False
) -> Iterator[Event]:
    """Return the events of the house log, its first one included."""
    return store.read(house_of(store.id), kinds=kinds, reverse=reverse)


class Houses:
    """The house logs of a store: its own, and those that came with copied sessions."""

    def __init__(self, store: Store) -> None:
        self._store, self.own = store, house_of(store.id)
        self._others: frozenset[LogId] | None = None  # None: not read yet

    def __contains__(self, log: LogId | str) -> bool:
        return log == self.own or log in self.others

    def __iter__(self) -> Iterator[LogId]:
        return iter([self.own, *sorted(self.others)])

    @property
    def others(self) -> frozenset[LogId]:
        """Those that were copied."""
        if self._others is None:
            self._others = copied_houses(self._store)
        return self._others


def acts_of_houses(store: Store, *, kinds: Collection[str]) -> Iterator[Event]:
    """Return the events of these kinds of all house logs of a store, each log from its last event
    on, its own log first.
    """
    logs = Houses(store)
    return (event for log in logs for event in store.read(log, kinds=kinds, reverse=True))
