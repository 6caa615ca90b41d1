"""The files of sessions that meet: three ways by path, with the base that both sides come from.

Two stories may share several places, after merges one way and the other. The trees at all of them
are bases: a side that has a file as some base has it did not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from plait.errors import InvalidValue
from plait.event import Event
from plait.event.kinds import (
    Bypassed,
    Merged,
    PlacementChanged,
    Resolution,
    ToolFailed,
    ToolReturned,
)
from plait.ids import Digest, LogId
from plait.session.events import path_events
from plait.session.fold import state_at
from plait.session.merge import WORKSPACE
from plait.session.state import ABSENT, Known, State
from plait.store import Store
from plait.workspace.merge import Choice, ConflictSide, merge_trees, resolve
from plait.workspace.tree import EMPTY, EMPTY_BYTES, shown_path

Resolve = Mapping[str, Any] | Callable[[str, Mapping[str, Any]], Any]

_TREES = frozenset(kind.__name__ for kind in (ToolReturned, ToolFailed, PlacementChanged, Merged))
TREE_KINDS = _TREES | {Bypassed.__name__}  # the kinds of events that may leave another tree


class MergedFiles(NamedTuple):
    """The merged files of several branches, or the paths in dispute."""

    tree: Digest | None  # None: something is in dispute
    blobs: dict[Digest, bytes]
    conflicts: dict[str, dict[str, Any]]  # by path: the version of each side
    resolved: dict[str, Resolution]


def first_tree(store: Store, state: State) -> Digest | None:
    """Return the tree that a story began with."""
    for tree in _trees(store, state):
        return tree
    return None


def _trees(store: Store, state: State) -> Iterator[Digest]:
    for _, event in path_events(store, state.story.path, _TREES):
        body = event.body
        trees = getattr(body, "trees", None)
        tree = trees.before if trees is not None else getattr(body, "tree", None)
        if tree is not None:
            yield tree


def tree_left_by(event: Event) -> Digest | None:
    """Return the tree that an event left. None: it left the files as they were."""
    body = event.body
    if isinstance(body, (ToolReturned, ToolFailed)):
        trees = body.trees
        return trees.after if trees is not None and trees.before != trees.after else None
    if isinstance(body, (PlacementChanged, Merged)):
        return body.tree
    if isinstance(body, Bypassed) and body.what == "workspace" and isinstance(body.detail, Mapping):
        # a change from outside to a folder that is worked on in place
        return Digest(str(body.detail.get("after")))
    return None


def merge_files(
    store: Store,
    ours: State,
    theirs: Sequence[State],
    base: State | None,
    names: Sequence[str],
    choices: Resolve | None,
) -> MergedFiles:
    """Merge the trees of these branches into ours, one after another; `choices` settle disputes, by
    path.
    """
    objects, tree, met_so_far = _Blobs(store), tree_of(ours), [ours]
    resolved: dict[str, Resolution] = {}
    for name, side in zip(names[1:], theirs, strict=True):
        their = tree_of(side)
        if tree is None or their is None:
            tree = tree or their
            continue
        bases = [tree_of(base)] if base is not None else bases_of(objects, met_so_far, side)
        met_so_far.append(side)
        met = objects, bases, tree, their, (names[0], name)
        found = merge_trees(*met)
        if found.conflicts:
            chosen = choices_for(found.conflicts, choices, resolved)
            if chosen.keys() != found.conflicts.keys():
                left = {
                    path: side_texts(sides)
                    for path, sides in found.conflicts.items()
                    if path not in chosen
                }
                return MergedFiles(None, {}, left, resolved)
            found = resolve(*met, choices=chosen)
        objects.add(found.blobs)
        tree = found.tree
    return MergedFiles(tree, objects.new, {}, resolved)


def choices_for(
    conflicts: Mapping[str, Mapping[str, ConflictSide]],
    choices: Resolve | None,
    resolved: dict[str, Resolution],
) -> dict[str, Choice]:
    """Return the choices for the paths in dispute, and add them to `resolved` as recorded."""
    chosen: dict[str, Choice] = {}
    given = (
        {}
        if choices is None or callable(choices)
        else {path_of_key(key): value for key, value in choices.items()}
    )
    for path, sides in conflicts.items():
        if callable(choices):
            given[path] = choices(path, side_texts(sides))
        if path in given:
            chosen[path] = _choice(path, given[path], sides)
            resolved[resolution_key(path)] = _resolution(given[path])
    return chosen


def _resolution(value: Any) -> Resolution:
    if value is ABSENT:
        return Resolution(absent=True)
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return Resolution(text if len(text) <= 200 else f"{text[:200]}…")  # the tree has it whole


def side_texts(sides: Mapping[str, ConflictSide]) -> dict[str, Any]:
    """Return a text for each side's version, which a caller may give back to choose it: its
    content; kind, mode and digests where that is no text or the same on all sides; ABSENT for a
    file that is gone.
    """
    alike = len({version.text for version in sides.values()}) == 1
    return {
        side: ABSENT if version.entry is None else _version_text(version, alike)
        for side, version in sides.items()
    }


def _version_text(version: ConflictSide, alike: bool) -> str:
    if version.text is not None and not alike:
        return version.text
    pieces = ",".join(digest[:16] for digest in version.digests)
    return (
        f"{version.kind}, mode"
        f" {version.mode or 0:o}{', ' + pieces if pieces and version.text is None else ''}"
    )


def _choice(path: str, value: Any, sides: Mapping[str, ConflictSide]) -> Choice:
    """Return the entry of the side that has this version, else the value as new content."""
    if value is ABSENT:
        return None
    for side, name in side_texts(sides).items():
        if name is not ABSENT and name == value:
            return sides[side].entry
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return value
    raise InvalidValue(
        "resolve",
        f"{path!r} cannot become a {type(value).__name__}",
        "give its text, its bytes, or what a side has",
    )


def resolution_key(path: str) -> str:
    """Return the key under which a choice for a file is recorded."""
    return f"{WORKSPACE}/{shown_path(path)}"


def path_of_key(key: str) -> str:
    """Return the path that a key names: a path, or a key of `resolution_key`."""
    return key.removeprefix(f"{WORKSPACE}/").removeprefix("./")


def bases_of(objects: _Blobs, ours: Sequence[State], theirs: State) -> list[Digest | None]:
    """Return the tree that both sides come from: that of the last place they share.

    After merges one way and the other there may be several such places, none on the way to another.
    Then their trees, merged in their turn, are the base; where that is in dispute, all of them are.
    """
    shared = _last_shared(objects.store, ours, theirs)
    trees = list(dict.fromkeys(tree_of(state) for state in shared))
    if len(trees) < 2 or None in trees:
        return trees or [None]
    tree = trees[0]
    for at in range(1, len(shared)):
        other = tree_of(shared[at])
        if tree is None or other is None:
            return list[Digest | None](trees)
        found = merge_trees(
            objects, bases_of(objects, shared[:at], shared[at]), tree, other, ("one", "another")
        )
        if found.tree is None:
            return list[Digest | None](trees)
        objects.add(found.blobs)
        tree = found.tree
    return [tree]


def _last_shared(store: Store, ours: Sequence[State], theirs: State) -> list[State]:
    """Return the states at the last places that two stories share, without those that lie on the
    way to another of them.
    """
    known, found = (
        Known(span for state in ours for span in state.story.path),
        dict[LogId, int](),
    )
    for span in theirs.story.path:
        last = known.last_shared(span)
        if last is not None:
            found[span.log] = max(last, found.get(span.log, 0))
    states = {place: state_at(store, *place) for place in found.items()}
    ways = {place: Known(state.story.path) for place, state in states.items()}
    return [
        state
        for place, state in states.items()
        if not any(place != other and way.has(*place) for other, way in ways.items())
    ]


def tree_of(state: State | None) -> Digest | None:
    return state.story.tree.digest if state is not None and state.story.tree is not None else None


class _Blobs:
    """The blobs of the store, and new ones that are not in it yet."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.new: dict[Digest, bytes] = {EMPTY: EMPTY_BYTES}

    def add(self, blobs: Mapping[Digest, bytes]) -> None:
        self.new.update(blobs)

    def get_blob(self, digest: Digest) -> bytes:
        found = self.new.get(digest)
        return found if found is not None else self.store.get_blob(digest)
