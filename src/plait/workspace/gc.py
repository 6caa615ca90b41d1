"""Removing blobs that no event leads to.

Events point to trees, and trees to the blobs of files. Blobs that no tree of any event leads to can
be removed: contents of snapshots that were never recorded. Sessions may go on meanwhile. The
settled number is noted first, then the trees of all events that can be seen are followed, and only
blobs put before the event with that number are removed. So a blob that an append brings along is
safe, whether its event was seen or not, and blobs that the tree of a later event shares with an
earlier one were followed.

A writer that puts blobs first, as the first look at a large folder does, and records their tree in
a later append, is not covered by that. So young blobs stay, too, unless the caller passes `before`,
and thereby says that no writer is between the two steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from plait.errors import UnknownBlob
from plait.event import Event
from plait.event import kinds as k
from plait.ids import Digest
from plait.store import Store
from plait.workspace.tree import EMPTY, Objects, decode

YOUNG_S = 3600  # time that a blob may wait for the event that records its tree

TREE_KINDS = frozenset(
    kind.__name__
    for kind in (k.ToolReturned, k.ToolFailed, k.PlacementChanged, k.Merged, k.ValidationRecorded)
)


class Collected(msgspec.Struct, frozen=True):
    removed: int  # blobs
    kept: int  # blobs that some tree leads to
    # trees that events or other trees name, and that the store does not have
    missing: tuple[Digest, ...] = ()


class Reached(msgspec.Struct, frozen=True):
    there: set[Digest]  # trees that were read, and the contents of their files
    missing: set[Digest]  # trees that are not there


def collect(store: Store, *, before: int | None = None) -> Collected:
    """Remove blobs that no event leads to and that were put before the event with the number
    `before` was written; None: an hour before the last event.

    Raises StoreCorrupt, and removes nothing, if a tree is damaged: the blobs it led to could be
    needed to mend it.
    """
    number = store.number  # first of all: blobs put from now on stay
    reached = follow(store, roots_of(store))
    removed = store.sweep_blobs(
        before=min(_last_aged_commit(store) if before is None else before, number),
        keep=reached.there,
    )
    return Collected(removed, len(reached.there), tuple(sorted(reached.missing)))


def _last_aged_commit(store: Store) -> int:
    """Return the number of the last commit that is not young; the time of the last event is the
    present.
    """
    newest = None
    for number, event in store.feed(reverse=True):
        newest = event.time if newest is None else newest
        if event.time <= newest - YOUNG_S * 1_000_000:
            return number
    return 0


def reachable(store: Objects, roots: Iterable[Digest]) -> set[Digest]:
    """Return all blobs that these trees lead to, themselves included, as far as the trees are
    there.
    """
    return follow(store, roots).there


def follow(store: Objects, roots: Iterable[Digest]) -> Reached:
    """Follow these trees; each is read once, however many lead to it."""
    trees, contents, missing = set[Digest](), set[Digest](), set[Digest]()
    open = list(roots)
    while open:
        tree = open.pop()
        if tree in trees or tree in missing:
            continue
        try:
            entries = decode(store.get_blob(tree))
        except UnknownBlob:
            (trees if tree == EMPTY else missing).add(tree)  # the empty tree need not be stored
            continue
        trees.add(tree)
        for entry in entries:
            if entry.kind == "folder":
                open.append(entry.blobs[0])
            elif entry.kind == "file":
                contents.update(entry.blobs)
    return Reached(trees | contents, missing)


def roots_of(store: Store) -> set[Digest]:
    """Return every tree that an event of the store names."""
    # in reverse it gives also what is not settled yet
    found = store.feed(kinds=TREE_KINDS, reverse=True)
    return {tree for _, event in found for tree in trees_in(event)}


def trees_in(event: Event) -> Iterator[Digest]:
    """Yield the trees that an event names."""
    body = event.body
    if isinstance(body, (k.ToolReturned, k.ToolFailed)):
        if body.trees is not None:
            yield body.trees.before
            yield body.trees.after
    elif (
        isinstance(body, (k.PlacementChanged, k.Merged, k.ValidationRecorded))
        and body.tree is not None
    ):
        yield body.tree
