"""Merging stories: three ways, without guessing.

Every key of a session remembers the event that last wrote it. When stories meet, a write that
another side *knows* (it is on that side's path) and yet has moved away from is the older one; a
write that nobody else knows is news. If two sides have news and say different things, that is a
conflict, and somebody has to choose. This is the three-way rule with the right base for every key,
so it also holds when branches were merged crosswise and have no single base.

Sessions that share no place can be merged against a base that the caller names: then values are
compared with its.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from plait.event.kinds import Merged, Resolution
from plait.ids import LogId
from plait.session.state import (
    ABSENT,
    NOTHING,
    Fact,
    FactKind,
    Known,
    Pending,
    Ref,
    Spent,
    State,
    Stretch,
    Tree,
)

WORKSPACE = "(workspace)"  # the name under which trees conflict; files have paths of their own


class Outcome(NamedTuple):
    """What a merge makes of the stories."""

    facts: dict[str, Fact]
    pending: dict[str, Pending]
    tree: Tree | None
    added: list[Stretch]  # what the branches bring to the path
    covers: dict[str, int]  # the logs that are counted further than before
    bills: dict[LogId, Spent]  # and what they spent up to there
    conflicts: dict[str, dict[str, Any]]


def combine(
    ours: State,
    theirs: Sequence[State],
    *,
    base: State | None = None,
    resolved: Mapping[str, Resolution] | None = None,
    at: Ref | None = None,
) -> Outcome:
    """Merge their stories into ours.

    `at` is the event that writes what was resolved; None while only trying.
    """
    sides = [ours, *theirs]
    known = [Known(side.story.path) for side in sides]
    names = names_of(sides)
    conflicts: dict[str, dict[str, Any]] = {}
    facts = dict(ours.story.facts)
    for key in dict.fromkeys(
        key for side in (sides if base else theirs) for key in side.story.facts
    ):
        said = [side.story.facts.get(key) for side in sides]
        if all(fact == said[0] for fact in said):
            continue
        left = (
            _changed(said, base.story.facts.get(key))
            if base
            else list[tuple[int, Fact | None]](_standing(said, known))
        )
        if resolved and key in resolved:
            continue
        if len({fact.json if fact else None for _, fact in left}) > 1:
            conflicts[key] = {
                names[side]: fact.value if fact and fact.json is not None else ABSENT
                for side, fact in left
            }
        elif (words := [fact for _, fact in left if fact is not None]) and left[0][1] is not None:
            facts[key] = _equal(words)
        # gone on the side that changed it: a retraction, or it would come back with the next merge
        elif left and at is not None:
            facts[key] = Fact(key, at, None, next(fact.kind for fact in said if fact is not None))
    for key, choice in (resolved or {}).items():
        if at is not None and not is_about_files(key):
            facts[key] = _resolved(key, choice, [side.story.facts.get(key) for side in sides], at)
    tree = _tree(sides, known, names, conflicts)
    return Outcome(
        facts, _pending(sides, known), tree, _added(ours, theirs), *_covers(ours, theirs), conflicts
    )


class _Written(Protocol):
    @property
    def at(self) -> Ref: ...
    @property
    def also(self) -> tuple[Ref, ...]: ...


W = TypeVar("W", Fact, Pending, Tree)


def _refs(word: _Written) -> tuple[Ref, ...]:
    return (word.at, *word.also)


def _standing(said: Sequence[W | None], known: Sequence[Known]) -> list[tuple[int, W]]:
    """The sides, ours first, whose word still stands: no other side knew it and moved on."""
    there = [(side, word) for side, word in enumerate(said) if word is not None]
    standing = [
        (side, word)
        for side, word in there
        if not any(
            _moved_on(word, other, known[knower], known[side])
            for knower, other in there
            if knower != side
        )
    ]
    return standing or there  # equal words, passed round in a circle


def _moved_on(word: _Written, other: _Written, knower: Known, side: Known) -> bool:
    """Whether whoever says `other` knew `word`, or its equal, and says something else that the side
    of `word` does not know.
    """
    mine, theirs = _refs(word), _refs(other)
    if set(mine) & set(theirs):
        return False
    return any(ref in knower for ref in mine) and not any(ref in side for ref in theirs)


def _equal(words: Sequence[W]) -> W:
    """The first of several words that say the same: it stands for all of them from now on."""
    first = words[0]
    also = dict.fromkeys(ref for word in words for ref in _refs(word) if ref != first.at)
    return (
        msgspec.structs.replace(first, also=tuple(also))
        if also.keys() != set(first.also)
        else first
    )


def _changed(said: Sequence[Fact | None], base: Fact | None) -> list[tuple[int, Fact | None]]:
    """The sides that say something else than the base; if none does, ours."""
    before = base.json if base else None
    return [
        (side, fact) for side, fact in enumerate(said) if (fact.json if fact else None) != before
    ] or [(0, said[0] or base)]


def _resolved(key: str, choice: Resolution, facts: Sequence[Fact | None], at: Ref) -> Fact:
    kinds: list[FactKind] = [fact.kind for fact in facts if fact is not None]
    return Fact(
        key,
        at,
        None
        if choice.absent
        else msgspec.json.encode(choice.value, order="deterministic").decode(),
        kinds[0] if kinds else "fact",
    )


def _pending(sides: Sequence[State], known: Sequence[Known]) -> dict[str, Pending]:
    """Open work of every side.

    Settled on one side while another side asked again: it stays open.
    """
    pending = dict(sides[0].story.pending)
    for key in dict.fromkeys(key for side in sides[1:] for key in side.story.pending):
        said = [side.story.pending.get(key) for side in sides]
        if all(word == said[0] for word in said):
            continue
        left = [one for _, one in _standing(said, known)]
        pending[key] = _equal([one for one in left if not one.settled] or left)
    return pending


def is_about_files(key: str) -> bool:
    """Whether this names the files, or one of them, and no fact."""
    return key == WORKSPACE or key.startswith(f"{WORKSPACE}/")


def names_of(sides: Sequence[State]) -> list[str]:
    """What to call each side, so that no two are called the same."""
    names = [side.name for side in sides]
    return [
        f"{name} ({side.log[-12:-4]}@{side.place})" if names.count(name) > 1 else name
        for name, side in zip(names, sides, strict=True)
    ]


def _tree(
    sides: Sequence[State],
    known: Sequence[Known],
    names: Sequence[str],
    conflicts: dict[str, dict[str, Any]],
) -> Tree | None:
    left = _standing([side.story.tree for side in sides], known)
    if len({tree.digest for _, tree in left}) > 1:
        conflicts[WORKSPACE] = {names[side]: tree.digest for side, tree in left}
    return _equal([tree for _, tree in left]) if left else None


def _added(ours: State, theirs: Sequence[State]) -> list[Stretch]:
    known, added = Known(ours.story.path), list[Stretch]()
    for side in theirs:
        for stretch in side.story.path:
            pieces = [
                msgspec.structs.replace(piece, branch=piece.branch or side.name)
                for piece in known.without(stretch)
            ]
            known.add(pieces)
            added.extend(pieces)
    return added


def _covers(ours: State, theirs: Sequence[State]) -> tuple[dict[str, int], dict[LogId, Spent]]:
    """The logs that somebody counts further than we do: each log's bill comes from whoever counts
    it furthest.
    """
    further: dict[str, int] = {}
    bills: dict[LogId, Spent] = {}
    for side in theirs:
        for log, last in side.covers.items():
            if last > max(further.get(log, 0), ours.covers.get(log, 0)):
                further[log] = last
                bills[log] = side.bills.get(log, NOTHING)
    return further, bills


def places_of(body: Merged) -> tuple[tuple[LogId, int], ...]:
    """The places whose states are needed to fold a merge."""
    return (
        *((place.log, place.seq) for place in body.branches),
        *([(body.base.log, body.base.seq)] if body.base else []),
    )
