"""Folding one event after another into a state: a function for each kind that matters.

`EventFold` holds a state in the making. fold.py decides where a fold starts, which events it reads,
and which other states it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import msgspec

from plait.errors import StoreCorrupt
from plait.event import Event
from plait.event.kinds import (
    BudgetSet,
    ChangeAccepted,
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
from plait.session.life import LIFE_KINDS, is_word_to_branch, life_after_event
from plait.session.merge import combine, needed_places
from plait.session.state import (
    NOTHING,
    EventRef,
    Fact,
    Gate,
    Pending,
    Span,
    Spent,
    State,
    Story,
    Tree,
    Verdict,
)
from plait.store import Store

LogPlace = tuple[LogId, int]  # a place of the lineage of a log
_UNUSED, _USAGE_FIELDS = Usage(), Usage.__struct_fields__
# A fold in steps: it yields a place, is sent the state there, and goes on.
Folding = Generator[LogPlace, State, State]


class EventFold:
    """A state in the making.

    Maps are shared with the state it started from until one is written to. Each `fold_` method
    takes one kind of event; a method that needs other states is a generator that asks for them.
    """

    def __init__(self, store: Store, log: LogId, start: State | None) -> None:
        self._store = store
        self._state = start or State(log, 0, Story())
        self._story = self._state.story
        self._path = [*self._story.path]
        self._fresh: set[str] = set()
        # The log whose events come next, and the first of them that is not in `_path` yet.
        if start is not None:
            self._log, self._first = start.log, start.place + 1
        else:
            first = next(store.read(log, 1, 1), None)
            self._log, self._first = first.log if first is not None else log, 1
        if (
            self._path
            and not self._path[-1].via
            and self._path[-1].log == self._log
            and self._path[-1].last == self._first - 1
        ):
            self._first = self._path.pop().first
        self._covers, self._bills = {**self._state.covers}, {**self._state.bills}
        self._lineage = log
        # Amounts of `_log` that are not added up yet: structs are dear, numbers are not. Usage,
        # nano dollars, replies without a price, model calls, tool calls.
        self._owed: list[tuple[Usage | None, int, int, int, int]] = []

    def state(self, place: int) -> State:
        """Return the state after all events up to this place."""
        self._add_up_bill()
        path = tuple(self._path)
        if self._first <= place:
            path = (*path, Span(self._log, self._first, place))
        self._fresh.clear()
        story = msgspec.structs.replace(self._story, path=path)
        covers, bills = {**self._covers, self._log: place}, {**self._bills}
        return msgspec.structs.replace(
            self._state, log=self._log, place=place, story=story, covers=covers, bills=bills
        )

    def take(self, event: Event) -> Folding | None:
        """Fold one event. Where other states are needed for that, return the generator that asks
        for them.
        """
        kind = event.kind
        if kind in LIFE_KINDS:
            self._replace(life=life_after_event(self._state.life, event))
        handler = _HANDLERS.get(kind)
        return handler(self, event, event.body) if handler is not None else None

    # ── the session ──────────────────────────────────────────────────────────────────────────

    def fold_opening(self, event: Event, body: SessionOpened) -> Folding | None:
        self._replace(
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

    def _take_over(self, place: LogPlace) -> Folding:
        source = yield place
        self._story = source.story
        self._replace(gates=source.gates)
        self._path = [msgspec.structs.replace(span, apart=True) for span in source.story.path]
        self._fresh.clear()
        return source

    def fold_fork(self, event: Event, body: ForkedFrom) -> None:
        self._add_up_bill()
        if self._first <= body.place:
            self._path.append(Span(self._log, self._first, body.place))
        if body.place:
            self._covers[self._log] = body.place
        self._log, self._first = event.log, event.seq
        self._replace(label=body.label, run=None, calls={}, delivered=0, opened=event.header.time)
        if body.budget is not None:
            self._replace(budget=body.budget, granted_at=self._state.spent)

    def fold_rewind(self, event: Event, body: Rewound) -> Folding:
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

    def fold_merge(self, event: Event, body: Merged) -> Folding:
        ours = self.state(event.seq)
        self._check_branches(event, body)
        places = needed_places(body)
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
            self._path.append(Span(self._log, self._first, event.seq))
            self._path.extend(
                msgspec.structs.replace(span, via=event.seq) for span in outcome.added
            )
            self._first = event.seq + 1
        spent = self._state.spent
        for log, bill in outcome.bills.items():
            self._covers[log] = outcome.covers[log]
            spent += bill - self._bills.get(log, NOTHING)
            if bill != NOTHING:
                self._bills[log] = bill
        self._replace(spent=spent)
        return ours

    def _check_branches(self, event: Event, body: Merged) -> None:
        """Check that the places of a merge are its parents: no hash vouches for others."""
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

    def fold_close(self, event: Event, body: SessionClosed) -> None:
        self._story = msgspec.structs.replace(self._story, scratch={})
        self._fresh.discard("scratch")

    # ── facts, open work and checks ──────────────────────────────────────────────────────────

    def fold_fact(self, event: Event, body: FactRecorded) -> None:
        text = msgspec.json.encode(body.value, order="deterministic").decode()
        self._own_map("facts")[body.key] = Fact(
            body.key, _ref(event), text, body.kind, body.review_by
        )

    def fold_retraction(self, event: Event, body: FactRetracted) -> None:
        before = self._story.facts.get(body.key)
        self._own_map("facts")[body.key] = Fact(
            body.key, _ref(event), None, before.kind if before else "fact"
        )

    def fold_pending(self, event: Event, body: PendingAdded) -> None:
        self._own_map("pending")[body.key] = Pending(body.key, _ref(event), body.what, body.kind)

    def fold_settlement(self, event: Event, body: PendingSettled) -> None:
        before = self._story.pending.get(body.key)
        what, kind = (before.what, before.kind) if before else ("", "step")
        self._own_map("pending")[body.key] = Pending(
            body.key, _ref(event), what, kind, settled=True
        )

    def fold_scratch(self, event: Event, body: ScratchSet) -> None:
        scratch = self._own_map("scratch")
        scratch.pop(body.key, None)
        if body.value is not None:
            scratch[body.key] = msgspec.json.encode(body.value, order="deterministic").decode()

    def fold_verdict(self, event: Event, body: ValidationRecorded) -> None:
        self._own_map("verdicts")[body.name] = Verdict(
            body.name, body.passed, _ref(event), body.tree
        )

    def fold_gate(self, event: Event, body: GateRequired) -> None:
        self._replace(gates={**self._state.gates, body.name: Gate(body.name, body.by, _ref(event))})

    def fold_placement(self, event: Event, body: PlacementChanged) -> None:
        self._story = msgspec.structs.replace(self._story, placement=body.placement)
        if body.tree:
            self._record_tree(event, body.tree)

    # ── calls and their cost ─────────────────────────────────────────────────────────────────

    def fold_budget(self, event: Event, body: BudgetSet) -> None:
        self._add_up_bill()
        self._replace(budget=body.budget, granted_at=self._state.spent)

    def fold_request(self, event: Event, body: ModelAsked | ToolRequested) -> None:
        if event.header.call is not None and event.header.call not in self._state.calls:
            self._replace(calls={**self._state.calls, event.header.call: event.seq})
        of_model = isinstance(body, ModelAsked)
        self._owed.append((None, 0, 0, 1, 0) if of_model else (None, 0, 0, 0, 1))

    def fold_outcome(
        self,
        event: Event,
        body: ModelReplied | ModelFailed | ToolReturned | ToolFailed | ToolResolved,
    ) -> None:
        if event.header.call in self._state.calls:
            self._replace(
                calls={
                    call: seq
                    for call, seq in self._state.calls.items()
                    if call != event.header.call
                }
            )
        if isinstance(body, (ModelReplied, ModelFailed)) and body.usage is not None:
            cost, unpriced = (body.price.cost_usd_nano, 0) if body.price else (0, 1)
            self._owed.append((body.usage, cost, unpriced, 0, 0))
        trees = getattr(body, "trees", None)
        if trees is not None:
            self._record_tree(event, trees.after)

    def _record_tree(self, event: Event, tree: Digest) -> None:
        """Set the tree, unless it is the same: an event that changes no file has not written it."""
        if self._story.tree is None or self._story.tree.digest != tree:
            self._story = msgspec.structs.replace(self._story, tree=Tree(tree, _ref(event)))

    def fold_run_start(self, event: Event, body: object) -> None:
        if not is_word_to_branch(event):
            self._replace(run=event.header.run or event.id)

    def fold_run_end(self, event: Event, body: object) -> None:
        self._replace(run=None, calls={})

    def fold_change(self, event: Event, body: ChangeAccepted) -> None:
        kept = {call: seq for call, seq in self._state.calls.items() if seq < body.at}
        self._replace(calls=kept)

    def fold_delivery(self, event: Event, body: Delivered) -> None:
        if body.upto > self._state.delivered and body.inbox == inbox_of(event.log):
            self._replace(delivered=body.upto)

    # ── the state in the making ──────────────────────────────────────────────────────────────

    def _add_up_bill(self) -> None:
        """Add the owed amounts to the bill of the log and to the sum of all."""
        if not self._owed:
            return
        if len(self._owed) == 1:  # as where every state is looked at
            used, *amounts = self._owed[0]
            spent = Spent(used or _UNUSED, *amounts)
        else:
            usages = [usage for usage, *_ in self._owed if usage is not None]
            sums = [sum([getattr(usage, name) for usage in usages]) for name in _USAGE_FIELDS]
            amounts = [sum(column) for column in list(zip(*self._owed, strict=True))[1:]]
            spent = Spent(Usage(*sums), *amounts)
        self._owed.clear()
        self._bills[self._log] = self._bills.get(self._log, NOTHING) + spent
        self._replace(spent=self._state.spent + spent)

    def _replace(self, **fields: Any) -> None:
        self._state = msgspec.structs.replace(self._state, **fields)

    def _own_map(self, name: str) -> dict[str, Any]:
        """Return one of the story's maps, copied if another state may share it."""
        if name not in self._fresh:
            self._story = msgspec.structs.replace(
                self._story, **{name: {**getattr(self._story, name)}}
            )
            self._fresh.add(name)
        return getattr(self._story, name)


_HANDLERS: dict[str, Callable[[EventFold, Event, Any], Folding | None]] = {
    kind.__name__: handler
    for kinds, handler in (
        ((SessionOpened,), EventFold.fold_opening),
        ((ForkedFrom,), EventFold.fold_fork),
        ((Rewound,), EventFold.fold_rewind),
        ((Merged,), EventFold.fold_merge),
        ((SessionClosed,), EventFold.fold_close),
        ((FactRecorded,), EventFold.fold_fact),
        ((FactRetracted,), EventFold.fold_retraction),
        ((PendingAdded,), EventFold.fold_pending),
        ((PendingSettled,), EventFold.fold_settlement),
        ((ScratchSet,), EventFold.fold_scratch),
        ((ValidationRecorded,), EventFold.fold_verdict),
        ((GateRequired,), EventFold.fold_gate),
        ((PlacementChanged,), EventFold.fold_placement),
        ((BudgetSet,), EventFold.fold_budget),
        ((ModelAsked, ToolRequested), EventFold.fold_request),
        (
            (ModelReplied, ModelFailed, ToolReturned, ToolFailed, ToolResolved),
            EventFold.fold_outcome,
        ),
        ((RunStarted, RunResumed, RunBranched), EventFold.fold_run_start),
        ((RunFinished, RunFailed, RunCancelled), EventFold.fold_run_end),
        ((Delivered,), EventFold.fold_delivery),
        ((ChangeAccepted,), EventFold.fold_change),
    )
    for kind in kinds
}

STATE_KINDS = frozenset(_HANDLERS) | LIFE_KINDS


def _ref(event: Event) -> EventRef:
    return EventRef(event.log, event.seq, event.id)
