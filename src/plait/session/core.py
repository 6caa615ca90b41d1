"""The inside of a session: its position, and memos of values computed for that position.

A session's content is folded from events when it is asked for, from the nearest position of the
same lineage whose state is known. That state is handed on from value to value and shared, so a
thousand branches cost little more than one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plait.event import Event
from plait.event.kinds import ForkedFrom, SessionOpened
from plait.ids import LogId, short
from plait.session.event_fold import EventFold
from plait.session.events import path_events
from plait.session.fold import state_at
from plait.session.life import Life
from plait.session.ports import Position, store_at
from plait.session.run_rows import run_of_branch
from plait.session.state import State
from plait.store import Store

_OPENINGS = frozenset({SessionOpened.__name__})


class Core:
    """A position and the memos that belong to it. Only functions of this room read it."""

    __slots__ = ("busy", "is_plain", "life_memo", "near", "position", "user_memo")

    def __init__(
        self,
        position: Position,
        near: State | None = None,
        life: Life | None = None,
        user: str | None = None,
        busy: bool | None = None,
        is_plain: bool = False,
    ) -> None:
        self.position = position
        # True: no event after `near` changes more of the state than its path
        self.is_plain = is_plain
        self.near = near  # the state here, or at an earlier place of this lineage
        self.life_memo = life  # None: not computed yet
        self.user_memo = user  # the user named when it was opened; None: not looked up yet
        self.busy = busy  # True if a run is open here; None: not computed yet

    @property
    def short(self) -> str:
        return short(self.position.id)

    @property
    def store(self) -> Store:
        return store_at(self.position.store)

    @property
    def state(self) -> State:
        near, position = self.near, self.position
        if near is None or near.place != position.seq:
            if near is not None and self.is_plain:
                near = EventFold(self.store, position.id, near).state(position.seq)
            else:
                near = state_at(self.store, position.id, position.seq, near=near)
            self.near = near
        return near

    @property
    def life(self) -> Life:
        if self.life_memo is None:
            self.life_memo = self.state.life
        return self.life_memo

    @property
    def user(self) -> str:
        """The user named in the event that opened the lineage, or ""."""
        if self.user_memo is None:
            self.user_memo = self.opening.user or ""
        return self.user_memo

    @property
    def opening(self) -> SessionOpened:
        """The event that opened its lineage; empty for a log that did not begin as a session."""
        first = next(self.store.read(self.position.id, 1, 1, kinds=_OPENINGS), None)
        opened = first.body if first is not None else None
        return opened if isinstance(opened, SessionOpened) else SessionOpened()

    @property
    def title(self) -> str:
        """Label or title, then the short id and the seq."""
        name = self.state.label or self.state.title
        here = f"{self.short}@{self.position.seq}"
        return f"{name} {here}" if name else here

    def is_busy(self) -> bool:
        """Return True if a run is open here: one that began on this log, or one that this log is a
        branch of.
        """
        if self.busy is None:
            state, id = self.state, self.position.id
            path = state.story.path
            # as most are, and a root is no branch of a run
            is_root = bool(path) and path[0].log == id
            self.busy = state.run is not None or (
                not is_root and run_of_branch(self.store, self.store.log(id)) is not None
            )
        return self.busy

    def lineage(self) -> list[Position]:
        """Return the positions from the root to here: each ancestor at the place it was forked."""
        here, store = self.position, self.store
        spans = [span for span in store.lineage(here.id) if span.first <= here.seq]
        if len(spans) == 1:
            return [Position(here.store, spans[0].log, here.seq, here.head)]
        forks = store.read(here.id, spans[1].first, here.seq, kinds={ForkedFrom.__name__})
        heads = [event.header.parents[0] for event in forks]
        found = zip(spans, [*heads, here.head], strict=True)
        return [
            Position(here.store, span.log, min(span.last, here.seq), head) for span, head in found
        ]

    def own_events(self, kinds: frozenset[str]) -> Iterator[Event]:
        """Yield the events of this branch alone; below the fork point, those of the ancestor that
        has this place.
        """
        log: LogId = self.lineage()[-1].id
        return self.store.read(log, self.store.log(log).place + 1, self.position.seq, kinds=kinds)

    def path_bodies(self, kind: type[Any]) -> list[tuple[Event, Any]]:
        """Return the events of one kind on the path and on those of merged branches, with their
        bodies.
        """
        return [
            (event, event.body)
            for _, event in path_events(
                self.store, self.state.story.path, frozenset((kind.__name__,))
            )
        ]
