"""The house log: acts that belong to the store and to no session.

Every store has one log of its own, with many writers, hash-linked like any other. People act there
through this module; code of a run does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from plait.event import Event
from plait.ids import Digest, LogId, house_of
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
