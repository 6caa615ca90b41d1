"""All that can be seen of a store: settled events, and those that are visible before they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from plait.event import Event
from plait.store.base import Store
from plait.store.epochs import ReadMark

NUMBER_MAX = 2**63 - 1  # no commit number is larger


def visible_events(
    store: Store, *, kinds: Collection[str] | None = None
) -> Iterator[tuple[int, Event]]:
    """Yield every event that can be seen, settled or not, in the order of commit numbers.

    `feed` ends at the settled number, which may be behind the caller's own writes.
    """
    last = store.number
    for number, event in store.feed(kinds=kinds):
        last = max(last, number)
        yield number, event
    yield from reversed(list(store.feed(last, kinds=kinds, reverse=True)))


def visible_count(store: Store) -> int:
    """Return how many events can be seen: while it stays the same, nothing was written."""
    return store.event_count(NUMBER_MAX)


def read_mark(store: Store, kinds: frozenset[str]) -> ReadMark:
    """Return the mark of a reader that begins to read all logs now."""
    number = store.number
    if store.dense:  # all that is visible is settled
        return ReadMark(number, kinds)
    seen = [each for each, _ in store.feed(number, kinds=kinds, reverse=True)]
    return ReadMark(number, kinds, frozenset(seen))
