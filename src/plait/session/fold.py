"""Folding events into the state at a place.

State is a pure function of events: the story over the path (rewinds followed), the ledger over the
whole log. A fold starts from the nearest place whose state is known (in memory, or kept as a
snapshot in the store) and reads only kinds that matter. A rewind needs the state at its target and
a merge those of its branches: the fold is a generator that asks for them, and `state_at` answers
from an explicit stack, so that no depth of branches on branches is too deep.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec

from plait.errors import StoreCorrupt
from plait.event import Event
from plait.event.kinds import (
    BudgetSet,
    Delivered,
    FactRecorded,
    FactRetracted,
    ForkedFrom,
    GateRequired,
    Merged,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    PendingAdded,
    PendingSettled,
    PlacementChanged,
    Price,
    Rewound,
    RunBranched,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    ScratchSet,
    SessionClosed,
    SessionOpened,
    ToolFailed,
    ToolRequested,
    ToolResolved,
    ToolReturned,
    Usage,
    ValidationRecorded,
)
from plait.ids import Digest, LogId, inbox_of
from plait.session.life import LIFE_KINDS, live_on
from plait.session.merge import combine, places_of
from plait.session.state import (
    NOTHING,
    Fact,
    Gate,
    Pending,
    Ref,
    Spent,
    State,
    Story,
    Stretch,
    Tree,
    Verdict,
    from_snapshot,
    to_snapshot,
)
from plait.store import Store

SNAPSHOT_EVERY = 256
# per event since the last one: copies of a large state must not outgrow the log
SNAPSHOT_BYTES_MAX = 128

_TURNS = frozenset({Rewound.__name__, Merged.__name__})

Ask = tuple[LogId, int]
Folding = Generator[Ask, State, State]


def state_at(
    store: Store,
    log: LogId,
    place: int,
    *,
    near: State | None = None,
    known: Sequence[State] = (),
    cached: bool = True,
) -> State:
    """The state of a log's lineage at a place.

    `near` is the state at an earlier place of the same lineage, if there is one at hand; `known`
    are those of other places.
    """
    folds = Folds(store, cached=cached)
    for state in known:
        folds.remember(state)
    return folds.state(log, place, near)


def keep_snapshot(store: Store, state: State, head: Digest) -> None:
    """Keep a state, a large one more rarely. It is a cache: whoever asks for it lives without."""
    data = to_snapshot(state, head)
    last = store.nearest_snapshot(state.log, state.place)
    if len(data) <= SNAPSHOT_BYTES_MAX * (state.place - (last[1] if last else 0)):
        store.keep_snapshot(state.log, state.place, data)


def advanced(store: Store, state: State, by: int) -> State:
    """The state after so many more events of the same log that fold nothing."""
    return _Fold(store, state.log, state).state(state.place + by) if by else state


class Folds:
    """The folds of one question, which share the states they met, each under the log that holds its
    place.
    """

    def __init__(self, store: Store, *, cached: bool = True) -> None:
        self._store = store
        self._cached = cached
        self._states: dict[Ask, State] = {}
        self._places: dict[LogId, list[int]] = {}
        self._origins: dict[LogId, tuple[LogId | None, int]] = {}

    def state(self, log: LogId, place: int, near: State | None = None) -> State:
        """The state at a place: asked for, and whatever it asks for in turn, from a stack instead
        of by recursion.
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
            answer = self.known(*ask)
            if answer is None:
                if any(asked == ask for asked, _ in stack):
                    raise StoreCorrupt(
                        f"log {ask[0]}", f"its place {ask[1]} is said to come from itself"
                    )
                stack.append((ask, self.fold(*ask)))
        return cast("State", answer)

    def known(self, log: LogId, place: int) -> State | None:
        return self._states.get(self._holder(log, place))

    def remember(self, state: State) -> None:
        if (state.log, state.place) not in self._states:
            self._states[state.log, state.place] = state
            insort(self._places.setdefault(state.log, []), state.place)

    def fold(self, log: LogId, place: int, near: State | None = None) -> Folding:
        start = self._nearest(log, place, near)
        first = start.place + 1 if start else 1
        fold = _Fold(self._store, log, start)
        events = self._read(log, first, place, STATE_KINDS)
        # The places that later events go back to are noted in passing, so that nothing is folded
        # twice.
        targets = sorted(
            target for target in self._targets(log, first, place, events) if target >= first
        )
        for event in events:
            while targets and targets[0] < event.seq:
                self.remember(fold.state(targets.pop(0)))
            asked = fold.take(event)
            if asked is not None:
                yield from asked
            if event.kind == Merged.__name__:
                self.remember(fold.state(event.seq))
        state = fold.state(place)
        self.remember(state)
        return state

    def _read(self, log: LogId, first: int, place: int, kinds: frozenset[str]) -> Iterable[Event]:
        """A few events are taken at once, so that they need not be read twice; many come one by
        one.
        """
        found = self._store.read(log, first, place, kinds=kinds)
        return list(found) if place - first < SNAPSHOT_EVERY else found

    def _targets(self, log: LogId, first: int, place: int, at_hand: Iterable[Event]) -> set[int]:
        """Where rewinds go back to, and where branches that are merged were forked."""
        found: set[int] = set()
        events = (
            at_hand
            if isinstance(at_hand, list)
            else self._store.read(log, first, place, kinds=_TURNS)
        )
        for event in events:
            if event.kind not in _TURNS:
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

    def _forks(self, log: LogId) -> Iterator[Ask]:
        """The logs on the way from a log up to its root, each with the last place that the log took
        along from there.
        """
        parent, place = self._origin(log)
        seen = {log}
        while parent is not None:
            if parent in seen:
                raise StoreCorrupt(f"log {log}", "its lineage runs in a circle")
            seen.add(parent)
            yield parent, place
            parent, above = self._origin(parent)
            place = min(place, above)  # a branch may have been forked below its parent's own fork

    def _nearest(self, log: LogId, place: int, near: State | None) -> State | None:
        best = near if near is not None and near.place <= place else None
        for holder, upto in (self._holder(log, place), *self._forks(log)):
            places = self._places.get(holder, [])
            at = bisect_right(places, min(upto, place))
            if at and (best is None or places[at - 1] > best.place):
                best = self._states[holder, places[at - 1]]
                break
        if self._cached and (best is None or place - best.place > SNAPSHOT_EVERY):
            kept = self._kept(log, place)
            if kept is not None and (best is None or kept.place > best.place):
                best = kept
        return best

    def _holder(self, log: LogId, place: int) -> Ask:
        """The log on a lineage that holds the event at a place."""
        for parent, upto in self._forks(log):
            if place > upto:
                break
            log = parent
        return log, place

    def _origin(self, log: LogId) -> tuple[LogId | None, int]:
        if log not in self._origins:
            info = self._store.log(log)
            self._origins[log] = info.parent, info.place
        return self._origins[log]

    def _kept(self, log: LogId, place: int) -> State | None:
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


# ── one fold ─────────────────────────────────────────────────────────────────────────────────


class _Fold:
    """A state in the making.

    Maps are shared with the state it started from until one is written to.
    """

    def __init__(self, store: Store, log: LogId, start: State | None) -> None:
        self._store = store
        self._state = start or State(log, 0, Story())
        self._story = self._state.story
        self._path = [*self._story.path]
        self._fresh: set[str] = set()
        # The log whose events come next, and the first of them that is not in `_path` yet.
        self._log, self._first = (start.log, start.place + 1) if start else (_root(store, log), 1)
        if (
            self._path
            and not self._path[-1].via
            and self._path[-1].log == self._log
            and self._path[-1].last == self._first - 1
        ):
            self._first = self._path.pop().first
        self._covers, self._bills = {**self._state.covers}, {**self._state.bills}
        self._lineage = log
        # what events of `_log` spent, not added up yet
        self._owed: list[tuple[Usage | None, int, int, int, int]] = []

    def state(self, place: int) -> State:
        """The state once everything up to this place was taken."""
        self._settle()
        path = tuple(self._path)
        if self._first <= place:
            path = (*path, Stretch(self._log, self._first, place))
        self._fresh.clear()
        story = msgspec.structs.replace(self._story, path=path)
        covers, bills = {**self._covers, self._log: place}, {**self._bills}
        return msgspec.structs.replace(
            self._state, log=self._log, place=place, story=story, covers=covers, bills=bills
        )

    def take(self, event: Event) -> Folding | None:
        """Fold one event; where other states are needed for that, what asks for
        them is returned.
        """
        kind = event.kind
        if kind in LIFE_KINDS:
            self._set(life=live_on(self._state.life, kind))
        handler = _HANDLERS.get(kind)
        return handler(self, event, event.body) if handler is not None else None

    # ── the session ──────────────────────────────────────────────────────────────────────────

    def opened(self, event: Event, body: SessionOpened) -> Folding | None:
        self._set(
            title=body.title,
            user=body.user,
            project=body.project,
            tags=body.tags,
            budget=body.budget,
            opened=event.header.time,
        )
        return (
            self._take_over((body.continues.log, body.continues.seq))
            if body.continues and body.detached
            else None
        )

    def _take_over(self, place: Ask) -> Folding:
        source = yield place
        self._story = source.story
        self._set(gates=source.gates)
        self._path = [msgspec.structs.replace(stretch, apart=True) for stretch in source.story.path]
        self._fresh.clear()
        return source

    def forked(self, event: Event, body: ForkedFrom) -> None:
        self._settle()
        if self._first <= body.place:
            self._path.append(Stretch(self._log, self._first, body.place))
        if body.place:
            self._covers[self._log] = body.place
        self._log, self._first = event.log, event.seq
        self._set(label=body.label, run=None, calls={}, delivered=0, opened=event.header.time)
        if body.budget is not None:
            self._set(budget=body.budget, granted_at=self._state.spent)

    def rewound(self, event: Event, body: Rewound) -> Folding:
        if not 1 <= body.to < event.seq:
            raise StoreCorrupt(
                f"event {event.seq} of {event.log}",
                f"it rewinds to {body.to}, which is not before it",
            )
        target = yield (self._lineage, body.to)
        self._story, self._path = target.story, [*target.story.path]
        self._first = event.seq
        self._fresh.clear()
        return target

    def merged(self, event: Event, body: Merged) -> Folding:
        ours = self.state(event.seq)
        self._check_branches(event, body)
        places = places_of(body)
        states: list[State] = []
        for place in places:
            states.append((yield place))
        theirs, base = (
            states[: len(body.branches)],
            states[len(body.branches)] if body.base else None,
        )
        outcome = combine(ours, theirs, base=base, resolved=body.resolved, at=_ref(event))
        tree = Tree(body.tree, _ref(event)) if body.tree else outcome.tree
        self._story = msgspec.structs.replace(
            self._story, facts=outcome.facts, pending=outcome.pending, tree=tree
        )
        self._fresh.clear()
        if outcome.added:
            self._path.append(Stretch(self._log, self._first, event.seq))
            self._path.extend(
                msgspec.structs.replace(stretch, via=event.seq) for stretch in outcome.added
            )
            self._first = event.seq + 1
        spent = self._state.spent
        for log, bill in outcome.bills.items():
            self._covers[log] = outcome.covers[log]
            spent += bill - self._bills.get(log, NOTHING)
            if bill != NOTHING:
                self._bills[log] = bill
        self._set(spent=spent)
        return ours

    def _check_branches(self, event: Event, body: Merged) -> None:
        """A merge's places are its parents: a body that says otherwise would count what nobody
        vouches for.
        """
        if tuple([place.head for place in body.branches]) != event.header.parents[1:]:
            raise StoreCorrupt(
                f"event {event.seq} of {event.log}", "the branches it names are not its parents"
            )
        for place in body.branches:
            found = next(self._store.read(place.log, place.seq, place.seq), None)
            if found is None or found.id != place.head:
                raise StoreCorrupt(
                    f"event {event.seq} of {event.log}",
                    f"{place.log}@{place.seq} is not the event it names",
                )

    def closed(self, event: Event, body: SessionClosed) -> None:
        self._story = msgspec.structs.replace(self._story, scratch={})
        self._fresh.discard("scratch")

    # ── what is known and open ───────────────────────────────────────────────────────────────

    def recorded(self, event: Event, body: FactRecorded) -> None:
        text = msgspec.json.encode(body.value, order="deterministic").decode()
        self._own("facts")[body.key] = Fact(body.key, _ref(event), text, body.kind, body.review_by)

    def retracted(self, event: Event, body: FactRetracted) -> None:
        before = self._story.facts.get(body.key)
        self._own("facts")[body.key] = Fact(
            body.key, _ref(event), None, before.kind if before else "fact"
        )

    def added(self, event: Event, body: PendingAdded) -> None:
        self._own("pending")[body.key] = Pending(body.key, _ref(event), body.what, body.kind)

    def settled(self, event: Event, body: PendingSettled) -> None:
        before = self._story.pending.get(body.key)
        what, kind = (before.what, before.kind) if before else ("", "step")
        self._own("pending")[body.key] = Pending(body.key, _ref(event), what, kind, settled=True)

    def scratched(self, event: Event, body: ScratchSet) -> None:
        scratch = self._own("scratch")
        scratch.pop(body.key, None)
        if body.value is not None:
            scratch[body.key] = msgspec.json.encode(body.value, order="deterministic").decode()

    def validated(self, event: Event, body: ValidationRecorded) -> None:
        self._own("verdicts")[body.name] = Verdict(body.name, body.passed, _ref(event), body.tree)

    def required(self, event: Event, body: GateRequired) -> None:
        self._set(gates={**self._state.gates, body.name: Gate(body.name, body.by, _ref(event))})

    def placed(self, event: Event, body: PlacementChanged) -> None:
        self._story = msgspec.structs.replace(self._story, placement=body.placement)
        if body.tree:
            self._left(event, body.tree)

    # ── effects and what they cost ───────────────────────────────────────────────────────────

    def granted(self, event: Event, body: BudgetSet) -> None:
        self._settle()
        self._set(budget=body.budget, granted_at=self._state.spent)

    def asked(self, event: Event, body: ModelAsked | ToolRequested) -> None:
        if event.header.call is not None and event.header.call not in self._state.calls:
            self._set(calls={**self._state.calls, event.header.call: event.seq})
        self._spend(model_calls=1) if isinstance(body, ModelAsked) else self._spend(tool_calls=1)

    def answered(
        self,
        event: Event,
        body: ModelReplied | ModelFailed | ToolReturned | ToolFailed | ToolResolved,
    ) -> None:
        if event.header.call in self._state.calls:
            self._set(
                calls={
                    call: seq
                    for call, seq in self._state.calls.items()
                    if call != event.header.call
                }
            )
        if isinstance(body, ModelReplied):
            self._pay(body.usage, body.price)
        elif isinstance(body, ModelFailed) and body.usage is not None:
            self._pay(body.usage, body.price)
        trees = getattr(body, "trees", None)
        if trees is not None:
            self._left(event, trees.after)

    def _left(self, event: Event, tree: Digest) -> None:
        """The files are these now. An event that left them as they were has not written them."""
        if self._story.tree is None or self._story.tree.digest != tree:
            self._story = msgspec.structs.replace(self._story, tree=Tree(tree, _ref(event)))

    def run_started(self, event: Event, body: object) -> None:
        if not (isinstance(body, RunResumed) and body.branch):
            self._set(run=event.header.run or event.id)

    def run_ended(self, event: Event, body: object) -> None:
        self._set(run=None, calls={})

    def delivered(self, event: Event, body: Delivered) -> None:
        if body.upto > self._state.delivered and body.inbox == inbox_of(event.log):
            self._set(delivered=body.upto)

    # ── helpers ──────────────────────────────────────────────────────────────────────────────

    def _pay(self, usage: Usage, price: Price | None) -> None:
        self._spend(usage, cost=price.cost_usd_nano if price else 0, unpriced=0 if price else 1)

    def _spend(
        self,
        usage: Usage | None = None,
        *,
        cost: int = 0,
        unpriced: int = 0,
        model_calls: int = 0,
        tool_calls: int = 0,
    ) -> None:
        """Note what an event adds to the bill.

        It is added up when somebody asks: structs are dear, numbers are not.
        """
        self._owed.append((usage, cost, unpriced, model_calls, tool_calls))

    def _settle(self) -> None:
        if not self._owed:
            return
        usages = [usage for usage, *_ in self._owed if usage is not None]
        used = Usage(
            *(sum([getattr(usage, name) for usage in usages]) for name in Usage.__struct_fields__)
        )
        spent = Spent(used, *(sum(column) for column in list(zip(*self._owed, strict=True))[1:]))
        self._owed.clear()
        self._bills[self._log] = self._bills.get(self._log, NOTHING) + spent
        self._set(spent=self._state.spent + spent)

    def _set(self, **fields: Any) -> None:
        self._state = msgspec.structs.replace(self._state, **fields)

    def _own(self, name: str) -> dict[str, Any]:
        """One of the story's maps, copied if anybody else may hold it."""
        if name not in self._fresh:
            self._story = msgspec.structs.replace(
                self._story, **{name: {**getattr(self._story, name)}}
            )
            self._fresh.add(name)
        return getattr(self._story, name)


_HANDLERS: dict[str, Callable[[_Fold, Event, Any], Folding | None]] = {
    kind.__name__: handler
    for kinds, handler in (
        ((SessionOpened,), _Fold.opened),
        ((ForkedFrom,), _Fold.forked),
        ((Rewound,), _Fold.rewound),
        ((Merged,), _Fold.merged),
        ((SessionClosed,), _Fold.closed),
        ((FactRecorded,), _Fold.recorded),
        ((FactRetracted,), _Fold.retracted),
        ((PendingAdded,), _Fold.added),
        ((PendingSettled,), _Fold.settled),
        ((ScratchSet,), _Fold.scratched),
        ((ValidationRecorded,), _Fold.validated),
        ((GateRequired,), _Fold.required),
        ((PlacementChanged,), _Fold.placed),
        ((BudgetSet,), _Fold.granted),
        ((ModelAsked, ToolRequested), _Fold.asked),
        ((ModelReplied, ModelFailed, ToolReturned, ToolFailed, ToolResolved), _Fold.answered),
        ((RunStarted, RunResumed, RunBranched), _Fold.run_started),
        ((RunFinished, RunFailed, RunCancelled), _Fold.run_ended),
        ((Delivered,), _Fold.delivered),
    )
    for kind in kinds
}

STATE_KINDS = frozenset(_HANDLERS) | LIFE_KINDS


def _root(store: Store, log: LogId) -> LogId:
    """The log that holds the first event of a lineage."""
    first = next(store.read(log, 1, 1), None)
    return first.log if first is not None else log


def _ref(event: Event) -> Ref:
    return Ref(event.log, event.seq, event.id)
