"""The track of a log: where its state changes, and to what, in one pass over a chunk of events.

With a chunk, a page shows the state at any of its places and asks nobody. The state is that of the
session's own folds (`session/event_fold.py`); here it is only compared from event to event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from plait.errors import InvalidValue
from plait.event import Event
from plait.event.kinds import (
    Budget,
    Merged,
    MessageSaid,
    ModelReplied,
    Rewound,
    SessionOpened,
    ValidationRecorded,
)
from plait.ids import LogId
from plait.outline.shapes import (
    FactShape,
    SeqRef,
    TrackChange,
    TrackShape,
    TrackState,
)
from plait.outline.spent import spent_shape
from plait.outline.texts import body_of
from plait.session.event_fold import STATE_KINDS, EventFold, LogPlace
from plait.session.event_text import place_text
from plait.session.events import path_events
from plait.session.fold import Folds
from plait.session.state import Fact, Pending, Span, State
from plait.store import Log, Store

CHUNK = 500  # events: a page that jumps waits for one
_WORDS = frozenset(kind.__name__ for kind in (MessageSaid, ModelReplied))
_BACK = frozenset(kind.__name__ for kind in (Rewound, SessionOpened))  # the path may be another
_VERDICTS = frozenset((ValidationRecorded.__name__,))
_TO_VERDICTS = _BACK | _VERDICTS | {Merged.__name__}  # after these others may stand


def track_shape(
    store: Store, log: LogId, seq: int, after: int = 0, size: int = CHUNK
) -> TrackShape:
    """Return the chunk of a log's track that holds one of its own places; of a chunk that is known
    up to `after`, what comes then.
    """
    info = store.log(log)
    if not max(info.place, 1) <= seq <= info.tip:
        raise InvalidValue(
            "seq",
            f"event {seq} is none of this log's own",
            f"ask for one from {max(info.place, 1)} to {info.tip}",
        )
    start, last = chunk_of(info, seq, size)
    return _TrackFold(store, info, min(max(start, after), last)).shape(last)


def chunk_of(info: Log, seq: int, size: int = CHUNK) -> tuple[int, int]:
    """Return the place that the chunk of a place starts from, and the last one that it has."""
    number = max(0, seq - info.place - 1) // size
    start = info.place + number * size
    return max(start, 1), min(start + size, info.tip)


def state_shape(store: Store, state: State, last_message: int) -> TrackState:
    """Return a state in short."""
    story = state.story
    return TrackState(
        seq=state.place,
        tree=story.tree.digest if story.tree is not None else None,
        facts={key: _fact(fact) for key, fact in story.facts.items() if fact.json is not None},
        pending={key: each.what for key, each in story.pending.items() if not each.settled},
        verdicts=standing_verdicts(store, state),
        placement_text=place_text(story.placement) if story.placement is not None else "",
        status=state.life.status,
        spent=spent_shape(state.spent),
        budget=_limits(state.budget),
        budget_left=_limits(state.budget_left),
        last_message_seq=last_message,
    )


def standing_verdicts(store: Store, state: State) -> dict[str, bool]:
    """Return the last verdict of each name on the path, those of merged branches among them, as
    `session.checks.verdicts` has them. True: it passed.
    """
    path = state.story.path
    if any([span.via or span.apart for span in path]):  # a merge leaves the state's verdicts alone
        return _verdicts_of(store, path)
    return {name: each.passed for name, each in state.story.verdicts.items()}


def _verdicts_of(store: Store, path: Sequence[Span]) -> dict[str, bool]:
    return {name: passed for name, (_, passed) in verdicts_on(store, path).items()}


def verdicts_on(store: Store, path: Sequence[Span]) -> dict[str, tuple[Event, bool]]:
    """Return the last verdict of each name on a path: its event, and whether it passed."""
    given = [(event, body_of(event)) for _, event in path_events(store, path, _VERDICTS)]
    return {
        body.name: (event, body.passed)
        for event, body in given
        if isinstance(body, ValidationRecorded)
    }


class _TrackFold:
    """Folds a chunk, and notes what each event changes."""

    def __init__(self, store: Store, info: Log, start: int) -> None:
        self._store, self._log = store, info.id
        self._folds = Folds(store)
        self._start = self._state = self._folds.state(info.id, start)
        self._last_message = self._first_message = last_message_seq(store, self._state)
        self._verdicts = standing_verdicts(store, self._state)

    def shape(self, last: int) -> TrackShape:
        changes = list[TrackChange]()
        start = self._start.place
        fold = EventFold(self._store, self._log, self._start)
        for event in self._store.read(self._log, start + 1, last, kinds=STATE_KINDS | _WORDS):
            before, message = self._state, self._last_message
            if body_of(event) is None:  # erased or damaged: the state is told without it
                continue
            if event.kind in STATE_KINDS:
                needs = fold.take(event)
                if needs is not None:
                    self._answer(needs)
                self._state = fold.state(event.seq)
                self._folds.remember(self._state)
            if event.kind in _WORDS:
                if _is_message(event.body):
                    self._last_message = event.seq
            elif event.kind in _BACK:
                self._last_message = last_message_seq(self._store, self._state)
            fields = _changes(before, self._state)
            if event.kind in _TO_VERDICTS and (changed := self._verdict_changes(event)):
                fields["verdicts"] = changed
            if self._last_message != message:
                fields["last_message_seq"] = self._last_message
            if fields:
                changes.append(TrackChange(event.seq, **fields))
        begin = state_shape(self._store, self._start, self._first_message)
        return TrackShape(self._log, begin, last, tuple(changes))

    def _verdict_changes(self, event: Event) -> dict[str, bool | None]:
        before, body = self._verdicts, event.body
        if isinstance(body, ValidationRecorded):
            self._verdicts = {**before, body.name: body.passed}
        elif isinstance(body, Merged):
            path = self._state.story.path
            came = _verdicts_of(self._store, [span for span in path if span.via == event.seq])
            self._verdicts = {**before, **came}
        else:
            self._verdicts = standing_verdicts(self._store, self._state)
        return _map_changes(before, self._verdicts, bool)

    def _answer(self, needs: Any) -> None:
        """Give a fold the states of other places that it asks for."""
        answer: State | None = None
        while True:
            try:
                place: LogPlace = needs.send(answer)
            except StopIteration:
                return
            answer = self._folds.state(*place)


def last_message_seq(store: Store, state: State) -> int:
    """Return the seq of the last message or reply on the path, branches that were merged left out.

    0: there is none.
    """
    for span in reversed(state.story.path):
        if span.branch is not None or span.via or span.apart:
            continue
        for event in store.read(span.log, span.first, span.last, kinds=_WORDS, reverse=True):
            if _is_message(body_of(event)):
                return event.seq
    return 0


def _is_message(body: object) -> bool:
    return isinstance(body, (MessageSaid, ModelReplied)) and not body.aside


def _changes(before: State, after: State) -> dict[str, Any]:
    """Return the fields of a change. Maps that are the same object did not change."""
    fields: dict[str, Any] = {}
    old, new = before.story, after.story
    if old.facts is not new.facts and (changed := _map_changes(old.facts, new.facts, _told_fact)):
        fields["facts"] = changed
    if old.pending is not new.pending and (
        changed := _map_changes(old.pending, new.pending, _told_pending)
    ):
        fields["pending"] = changed
    if old.tree is not new.tree:
        tree = new.tree.digest if new.tree is not None else None
        if tree != (old.tree.digest if old.tree is not None else None):
            fields["tree"] = tree
    if old.placement is not new.placement and old.placement != new.placement:
        fields["placement_text"] = place_text(new.placement) if new.placement is not None else ""
    if before.life.status != after.life.status:
        fields["status"] = after.life.status
    if before.spent is not after.spent and before.spent != after.spent:
        fields["spent"] = spent_shape(after.spent)
    if before.budget is not after.budget and before.budget != after.budget:
        fields["budget"] = _limits(after.budget)
    if after.budget is not None or before.budget is not None:
        left = _limits(after.budget_left)
        if left != _limits(before.budget_left):
            fields["budget_left"] = left
    return fields


def _map_changes(before: dict[str, Any], after: dict[str, Any], told: Any) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for key, value in after.items():
        if before.get(key) is not value:
            new, old = told(value), told(before[key]) if key in before else None
            if new != old:
                changed[key] = new
    gone = [key for key in before if key not in after and told(before[key]) is not None]
    return {**changed, **dict.fromkeys(gone)}


def _told_fact(fact: Fact) -> FactShape | None:
    return None if fact.json is None else _fact(fact)


def _told_pending(pending: Pending) -> str | None:
    return None if pending.settled else pending.what


def _fact(fact: Fact) -> FactShape:
    return FactShape(fact.key, fact.kind, fact.value, SeqRef(fact.at.log, fact.at.seq))


def _limits(budget: Budget | None) -> dict[str, Any] | None:
    """Return the limits of a budget by name, without those that are none."""
    return None if budget is None else msgspec.to_builtins(budget)


def state_after(track: TrackShape, seq: int) -> TrackState:
    """Return the state at a place of a chunk: its start, with the changes up to there. A page does
    the same.
    """
    state: dict[str, Any] = msgspec.structs.asdict(track.start)
    maps = ("facts", "pending", "verdicts")
    for name in maps:
        state[name] = dict(state[name])
    for change in track.changes:
        if change.seq > seq:
            break
        for name in maps:
            for key, value in getattr(change, name).items():
                state[name].pop(key, None)
                if value is not None:
                    state[name][key] = value
        for name in TrackChange.__struct_fields__:
            value = getattr(change, name)
            if name not in (*maps, "seq") and value is not msgspec.UNSET:
                state[name] = value
    state["seq"] = seq
    return TrackState(**state)
