"""Merging stories: three ways, without guessing.

Every key of a session remembers the event that last wrote it. When stories meet, a write that
another side *knows* (it is on that side's path) and has replaced is the older one; a write that no
other side knows is news. If two sides have news and say different things, that is a conflict, and
the caller has to choose. This is the three-way rule with the right base for every key, so it also
holds when branches were merged crosswise and have no single base.

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
    EventRef,
    Fact,
    FactKind,
    Known,
    Pending,
    Span,
    Spent,
    State,
    Tree,
)

WORKSPACE = "(workspace)"  # the name under which trees conflict; files have paths of their own


class MergeOutcome(NamedTuple):
    """The merged story, or the conflicts that stand in its way."""

    facts: dict[str, Fact]
    pending: dict[str, Pending]
    tree: Tree | None
    added: list[Span]  # the spans that the branches bring to the path
    covers: dict[str, int]  # the logs that are counted further than before
    bills: dict[LogId, Spent]  # the amounts that these logs spent up to there
    conflicts: dict[str, dict[str, Any]]


def combine(
    ours: State,
    theirs: Sequence[State],
    *,
    base: State | None = None,
    resolved: Mapping[str, Resolution] | None = None,
    at: EventRef | None = None,
) -> MergeOutcome:
    """Merge their stories into ours.

    `at` is the event that writes the resolved values; None while only trying.
    """
    sides = [ours, *theirs]
    known = [Known(side.story.path) for side in sides]
    names = side_names(sides)
    conflicts: dict[str, dict[str, Any]] = {}
    facts = dict(ours.story.facts)
    for key in dict.fromkeys(
        key for side in (sides if base else theirs) for key in side.story.facts
    ):
        said = [side.story.facts.get(key) for side in sides]
        if all(fact == said[0] for fact in said):
            continue
        left = (
            _changed_sides(said, base.story.facts.get(key))
            if base
            else list[tuple[int, Fact | None]](_standing_sides(said, known))
        )
        if resolved and key in resolved:
            continue
        if len({fact.json if fact else None for _, fact in left}) > 1:
            conflicts[key] = {
                names[side]: fact.value if fact and fact.json is not None else ABSENT
                for side, fact in left
            }
        elif (words := [fact for _, fact in left if fact is not None]) and left[0][1] is not None:
            facts[key] = _joined_word(words)
        # gone on the side that changed it: a retraction, or it would come back with the next merge
        elif left and at is not None:
            facts[key] = Fact(key, at, None, next(fact.kind for fact in said if fact is not None))
    for key, choice in (resolved or {}).items():
        if at is not None and not is_about_files(key):
            facts[key] = _resolved_fact(
                key, choice, [side.story.facts.get(key) for side in sides], at
            )
    tree = _merged_tree(sides, known, names, conflicts)
    pending, added = _merged_pending(sides, known), _new_spans(ours, theirs)
    return MergeOutcome(facts, pending, tree, added, *_further_bills(ours, theirs), conflicts)


class _Mergeable(Protocol):
    @property
    def at(self) -> EventRef: ...
    @property
    def also(self) -> tuple[EventRef, ...]: ...


W = TypeVar("W", Fact, Pending, Tree)


def _refs(word: _Mergeable) -> tuple[EventRef, ...]:
    return (word.at, *word.also)


def _standing_sides(said: Sequence[W | None], known: Sequence[Known]) -> list[tuple[int, W]]:
    """Return the sides, ours first, whose word still stands: no other side knew and replaced it."""
    there = [(side, word) for side, word in enumerate(said) if word is not None]
    standing = [
        (side, word)
        for side, word in there
        if not any(
            _is_superseded(word, other, known[knower], known[side])
            for knower, other in there
            if knower != side
        )
    ]
    return standing or there  # equal words, passed round in a circle


def _is_superseded(word: _Mergeable, other: _Mergeable, knower: Known, side: Known) -> bool:
    """Return True if the writer of `other` had seen `word` and replaced it by a write that this
    side has not seen.
    """
    mine, theirs = _refs(word), _refs(other)
    if set(mine) & set(theirs):
        return False
    return any(ref in knower for ref in mine) and not any(ref in side for ref in theirs)


def _joined_word(words: Sequence[W]) -> W:
    """Return the first of several words that say the same, as one that stands for all of them."""
    first = words[0]
    also = dict.fromkeys(ref for word in words for ref in _refs(word) if ref != first.at)
    return (
        msgspec.structs.replace(first, also=tuple(also))
        if also.keys() != set(first.also)
        else first
    )


def _changed_sides(said: Sequence[Fact | None], base: Fact | None) -> list[tuple[int, Fact | None]]:
    """Return the sides that say something else than the base; if none does, ours."""
    before = base.json if base else None
    return [
        (side, fact) for side, fact in enumerate(said) if (fact.json if fact else None) != before
    ] or [(0, said[0] or base)]


def _resolved_fact(
    key: str, choice: Resolution, facts: Sequence[Fact | None], at: EventRef
) -> Fact:
    kinds: list[FactKind] = [fact.kind for fact in facts if fact is not None]
    return Fact(
        key,
        at,
        None
        if choice.absent
        else msgspec.json.encode(choice.value, order="deterministic").decode(),
        kinds[0] if kinds else "fact",
    )


def _merged_pending(sides: Sequence[State], known: Sequence[Known]) -> dict[str, Pending]:
    """Return the pending work of every side.

    Work that is settled on one side and asked for again on another stays open.
    """
    pending = dict(sides[0].story.pending)
    for key in dict.fromkeys(key for side in sides[1:] for key in side.story.pending):
        said = [side.story.pending.get(key) for side in sides]
        if all(word == said[0] for word in said):
            continue
        left = [one for _, one in _standing_sides(said, known)]
        pending[key] = _joined_word([one for one in left if not one.settled] or left)
    return pending


def is_about_files(key: str) -> bool:
    """Return True if this names the files, or one of them, and no fact."""
    return key == WORKSPACE or key.startswith(f"{WORKSPACE}/")


def side_names(sides: Sequence[State]) -> list[str]:
    """Return a name for each side; no two are the same."""
    names = [side.name for side in sides]
    return [
        f"{name} ({side.log[-12:-4]}@{side.place})" if names.count(name) > 1 else name
        for name, side in zip(names, sides, strict=True)
    ]


def _merged_tree(
    sides: Sequence[State],
    known: Sequence[Known],
    names: Sequence[str],
    conflicts: dict[str, dict[str, Any]],
) -> Tree | None:
    left = _standing_sides([side.story.tree for side in sides], known)
    if len({tree.digest for _, tree in left}) > 1:
        conflicts[WORKSPACE] = {names[side]: tree.digest for side, tree in left}
    return _joined_word([tree for _, tree in left]) if left else None


def _new_spans(ours: State, theirs: Sequence[State]) -> list[Span]:
    known, added = Known(ours.story.path), list[Span]()
    for side in theirs:
        for span in side.story.path:
            pieces = [
                msgspec.structs.replace(piece, branch=piece.branch or side.name)
                for piece in known.unknown_pieces(span)
            ]
            known.add(pieces)
            added.extend(pieces)
    return added


def _further_bills(
    ours: State, theirs: Sequence[State]
) -> tuple[dict[str, int], dict[LogId, Spent]]:
    """Return the logs that a branch counts further than we do, and their bills: each from the
    branch that counts the log furthest.
    """
    further: dict[str, int] = {}
    bills: dict[LogId, Spent] = {}
    for side in theirs:
        for log, last in side.covers.items():
            if last > max(further.get(log, 0), ours.covers.get(log, 0)):
                further[log] = last
                bills[log] = side.bills.get(log, NOTHING)
    return further, bills


def needed_places(body: Merged) -> tuple[tuple[LogId, int], ...]:
    """Return the places whose states are needed to fold a merge."""
    return (
        *((place.log, place.seq) for place in body.branches),
        *([(body.base.log, body.base.seq)] if body.base else []),
    )
