"""Folding events into the state at a place.

State is a pure function of events: the story over the path (rewinds followed), the ledger over the
whole log. A fold starts from the nearest place whose state is known (in memory, or kept as a
snapshot in the store) and reads only kinds that matter. A rewind needs the state at its target and
a merge those of its branches: the fold is a generator that asks for them, and `state_at` answers
from an explicit stack, so that no depth of branches on branches is too deep. event_fold.py has a
function for each kind of event.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from plait.errors import StoreCorrupt
from plait.event import Event
from plait.event.kinds import Merged, Rewound
from plait.ids import Digest, LogId
from plait.session.event_fold import STATE_KINDS, EventFold, Folding, LogPlace
from plait.session.state import State, from_snapshot, to_snapshot
from plait.store import Store

SNAPSHOT_EVERY = 256
# per event since the last one: copies of a large state must not outgrow the log
SNAPSHOT_BYTES_MAX = 128

_TARGET_KINDS = frozenset({Rewound.__name__, Merged.__name__})


def state_at(
    store: Store,
    log: LogId,
    place: int,
    *,
    near: State | None = None,
    known: Sequence[State] = (),
    cached: bool = True,
) -> State:
    """Return the state of a log's lineage at a place.

    `near` is the state at an earlier place of the same lineage, if there is one at hand; `known`
    are states of other places.
    """
    folds = Folds(store, cached=cached)
    for state in known:
        folds.remember(state)
    return folds.state(log, place, near)


def keep_snapshot(store: Store, state: State, head: Digest) -> None:
    """Keep a state as a snapshot, a large one more rarely. It is a cache: no reader needs it."""
    data = to_snapshot(state, head)
    last = store.nearest_snapshot(state.log, state.place)
    if len(data) <= SNAPSHOT_BYTES_MAX * (state.place - (last[1] if last else 0)):
        store.keep_snapshot(state.log, state.place, data)


class Folds:
    """The folds of one question. They share the states they met, by the log that holds the place
    and the place.
    """

    def __init__(self, store: Store, *, cached: bool = True) -> None:
        self._store = store
        self._cached = cached
        self._states: dict[LogPlace, State] = {}
        self._places: dict[LogId, list[int]] = {}
        self._fork_points: dict[LogId, tuple[LogId | None, int]] = {}

    def state(self, log: LogId, place: int, near: State | None = None) -> State:
        """Return the state at a place. The states that a fold asks for are folded from a stack,
        not by recursion.
        """
        stack = [((log, place), self.fold(log, place, near))]
        answer: State | None = None  # a generator is started with None
        while stack:
            try:
                ask = stack[-1][1].send(cast("State", answer))
            except StopIteration as done:
                stack.pop()
                answer = done.value
                continue
            answer = self._states.get(self._holder(*ask))
            if answer is None:
                if any(each == ask for each, _ in stack):
                    raise StoreCorrupt(
                        f"log {ask[0]}", f"its place {ask[1]} is said to come from itself"
                    )
                stack.append((ask, self.fold(*ask)))
        return cast("State", answer)

    def remember(self, state: State) -> None:
        if (state.log, state.place) not in self._states:
            self._states[state.log, state.place] = state
            insort(self._places.setdefault(state.log, []), state.place)

    def fold(self, log: LogId, place: int, near: State | None = None) -> Folding:
        """Fold up to a place, from the nearest known state; yield the places whose states are
        needed for that.
        """
        start = self._nearest(log, place, near)
        first = start.place + 1 if start else 1
        fold = EventFold(self._store, log, start)
        events = self._store.read(log, first, place, kinds=STATE_KINDS)
        if place - first < SNAPSHOT_EVERY:
            events = list(events)  # a few are read once for both loops; many come one by one
        # The states at places that later events go back to are remembered in passing, so that
        # nothing is folded twice.
        targets = sorted(
            target for target in self._targets(log, first, place, events) if target >= first
        )
        for event in events:
            while targets and targets[0] < event.seq:
                self.remember(fold.state(targets.pop(0)))
            needs = fold.take(event)
            if needs is not None:
                yield from needs
            if event.kind == Merged.__name__:
                self.remember(fold.state(event.seq))
        state = fold.state(place)
        self.remember(state)
        return state

    def _targets(self, log: LogId, first: int, place: int, at_hand: Iterable[Event]) -> set[int]:
        """Return the places that rewinds go back to, and those where merged branches were forked.

        `at_hand` is used if it is a list; else the events are read again.
        """
        found: set[int] = set()
        events = (
            at_hand
            if isinstance(at_hand, list)
            else self._store.read(log, first, place, kinds=_TARGET_KINDS)
        )
        for event in events:
            if event.kind not in _TARGET_KINDS:
                continue
            body = event.body
            if isinstance(body, Rewound):
                found.add(body.to)
            elif isinstance(body, Merged):
                forks = [fork for branch in body.branches for fork in self._forks(branch.log)]
                found.update(
                    at
                    for above, at in forks
                    if at < event.seq and self._holder(log, at) == self._holder(above, at)
                )
        return found

    def _forks(self, log: LogId) -> Iterator[LogPlace]:
        """Yield the logs on the way from a log up to its root, each with the last place that the
        log took along from there.
        """
        parent, place = self._fork_point(log)
        seen = {log}
        while parent is not None:
            if parent in seen:
                raise StoreCorrupt(f"log {log}", "its lineage runs in a circle")
            seen.add(parent)
            yield parent, place
            parent, above = self._fork_point(parent)
            place = min(place, above)  # a branch may have been forked below its parent's own fork

    def _nearest(self, log: LogId, place: int, near: State | None) -> State | None:
        """Return the known state that is nearest before a place: `near`, one of this question, or
        a snapshot.
        """
        best = near if near is not None and near.place <= place else None
        # most questions begin with no state of their own, and need not ask where the log was forked
        holders = (self._holder(log, place), *self._forks(log)) if self._places else ()
        for holder, upto in holders:
            places = self._places.get(holder, [])
            at = bisect_right(places, min(upto, place))
            if at and (best is None or places[at - 1] > best.place):
                best = self._states[holder, places[at - 1]]
                break
        # the first snapshot is not kept before this place
        begun = 0 if best is None else best.place
        if self._cached and place - begun >= SNAPSHOT_EVERY:
            snapshot = self._snapshot_state(log, place)
            if snapshot is not None and (best is None or snapshot.place > best.place):
                best = snapshot
        return best

    def _holder(self, log: LogId, place: int) -> LogPlace:
        """Return the log on a lineage that holds the event at a place, and the place."""
        for parent, upto in self._forks(log):
            if place > upto:
                break
            log = parent
        return log, place

    def _fork_point(self, log: LogId) -> tuple[LogId | None, int]:
        if log not in self._fork_points:
            info = self._store.log(log)
            self._fork_points[log] = info.parent, info.place
        return self._fork_points[log]

    def _snapshot_state(self, log: LogId, place: int) -> State | None:
        """Return the state of the nearest snapshot, if it belongs to the event at its place."""
        found = self._store.nearest_snapshot(log, place)
        kept = from_snapshot(found[2]) if found else None
        if found is None or kept is None:
            return None
        head, state = kept
        event = next(self._store.read(found[0], found[1], found[1]), None)
        return (
            state
            if event is not None and event.id == head and (state.log, state.place) == found[:2]
            else None
        )
