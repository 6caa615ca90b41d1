"""A session as an immutable value, and the functions by which the runtime moves it.

A `Session` is a position in a log and nothing else. Its users read and write it through its
members; a run also has to place it at another position, walk its path and keep its snapshots. Those
functions are here, so that the value shows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from operator import attrgetter
from typing import Any, NoReturn, Self, TypeVar

from plait.errors import PlaitError
from plait.event import Event
from plait.event.kinds import StateDigest
from plait.ids import Digest, LogId, short
from plait.session import revision
from plait.session.core import Core
from plait.session.event_fold import EventFold
from plait.session.events import path_events
from plait.session.fold import SNAPSHOT_EVERY, keep_snapshot
from plait.session.life import LIFE_KINDS, Life, is_busy_after, life_after
from plait.session.ports import Position, notebook_html, writer_of
from plait.session.state import Span, Spent, State, state_digest
from plait.session.status import status_at
from plait.store import Log, Store


class SessionValue:
    """A place in a log: equal to another value at the same place, and never changed."""

    __slots__ = ("_core",)

    _core: Core

    @property
    def id(self) -> LogId:
        return self._core.position.id

    @property
    def short(self) -> str:
        """The start of the id's random tail, as it is typed in a shell."""
        return short(self._core.position.id)

    @property
    def seq(self) -> int:
        """The seq of its last event."""
        return self._core.position.seq

    @property
    def head(self) -> Digest:
        """The id of its last event."""
        return self._core.position.head

    @property
    def run(self) -> str | None:
        """The run that this is a value of. None: it is outside of any."""
        return self._core.position.run

    @property
    def store(self) -> str:
        """The address of its store."""
        return self._core.position.store

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionValue) and self._core.position == other._core.position

    def __hash__(self) -> int:
        return hash(self._core.position)

    def __reduce__(self) -> tuple[Callable[..., SessionValue], tuple[Any, ...]]:
        return value_at, (type(self), self._core.position)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"a Session never changes: {name} cannot be set. Operations return the next value."
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Session never changes: {name} cannot be deleted.")

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    def __repr__(self) -> str:
        try:
            state, status = self._core.state, status_at(self._core)
        except Exception as error:  # a repr must not raise, least of all in a traceback
            return f"<Session {self.short}@{self.seq} ({type(error).__name__})>"
        about = " ".join(f"{text[:40]!r}" for text in (state.label, state.title) if text)
        return f"<Session {self.short}@{self.seq}{' ' + about if about else ''} {status}>"


S = TypeVar("S", bound=SessionValue)

core_of: Callable[[SessionValue], Core] = attrgetter("_core")
position_of: Callable[[SessionValue], Position] = attrgetter("_core.position")


def value_with(kind: type[S], core: Core) -> S:
    session = object.__new__(kind)
    object.__setattr__(session, "_core", core)
    return session


def value_at(kind: type[S], position: Position) -> S:
    """Return the value at a position without reading or checking anything."""
    session = object.__new__(kind)
    object.__setattr__(session, "_core", Core(position))
    return session


# ── its state ────────────────────────────────────────────────────────────────────────────────


def state_of(session: SessionValue) -> State:
    return core_of(session).state


def store_of_session(session: SessionValue) -> Store:
    return core_of(session).store


def open_run_of(session: SessionValue) -> str | None:
    """Return the run that began on this log and has not ended. None: there is none."""
    return core_of(session).state.run


def delivered_seq(session: SessionValue) -> int:
    """Return the seq of the last event of its inbox that was delivered to it."""
    return core_of(session).state.delivered


def counted_logs(session: SessionValue) -> dict[LogId, int]:
    """Return every log whose events are counted here, with the last seq that is."""
    return {**core_of(session).state.covers}


def spent_of_budget(session: SessionValue) -> Spent:
    """Return the amounts spent since the budget was granted."""
    state = core_of(session).state
    return state.spent - state.granted_at


def state_digest_of(session: SessionValue, ahead: int = 0) -> StateDigest:
    """Return the digest of its state, or of that state after so many more events that fold
    nothing.
    """
    core = core_of(session)
    state = core.state
    if ahead:
        state = EventFold(core.store, state.log, state).state(state.place + ahead)
    return state_digest(state)


def walk_path(
    session: SessionValue, kinds: Collection[str] | None = None
) -> Iterator[tuple[Span, Event]]:
    """Yield the events of its path and of merged branches' paths, each with its span."""
    core = core_of(session)
    return path_events(core.store, core.state.story.path, kinds)


# ── another value of the same lineage ────────────────────────────────────────────────────────


def next_value(
    session: S,
    position: Position,
    life: Life | None = None,
    busy: bool | None = None,
    *,
    is_plain: bool = False,
) -> S:
    """Return the value of the same lineage at an earlier or later position, or of a branch from
    here.

    Without a life, nothing is known of the events between. `is_plain`: those after the nearest
    state that is known change no more of it than its path.
    """
    core = core_of(session)
    near = core.near
    if near is not None and near.place > position.seq:
        near = None
    return value_with(type(session), Core(position, near, life, core.user_memo, busy, is_plain))


def advance(session: S, position: Position, *kinds: str) -> S:
    """Return the value at a later position of the same log, reached by events of these kinds: life
    and busyness are computed from them, not read again.
    """
    core = core_of(session)
    life, busy = core.life_memo, core.busy if position.run == core.position.run else None
    for kind in kinds:
        if kind in LIFE_KINDS:
            life = life_after(life, kind) if life is not None else None
            busy = is_busy_after(busy, kind)
    return next_value(session, position, life, busy)


def value_at_seq(session: S, seq: int) -> S:
    """Return the value whose last event is this one; -1 is one event before the last."""
    core = core_of(session)
    here = core.position
    wanted = revision.place_in(here.id, seq, here.seq)
    if wanted == here.seq:
        return session
    event = next(core.store.read(here.id, wanted, wanted))
    return next_value(session, Position(here.store, here.id, wanted, event.id, here.run))


def reload(session: S) -> S:
    """Return the same session as it is now."""
    here = position_of(session)
    now = writer_of(here.run).latest(here)
    return session if now.head == here.head else next_value(session, now)


def value_at_end(session: S, log: Log) -> S:
    """Return the same session as it is at the end of its log, which was read just now."""
    here = position_of(session)
    if log.head == here.head:
        return session
    return next_value(session, Position(here.store, log.id, log.tip, log.head, here.run))


def keep_snapshot_if_due(session: SessionValue, *, since: int) -> None:
    """Keep a snapshot if one is due between that seq and this one.

    A snapshot is a cache: an error while it is written is ignored.
    """
    core = core_of(session)
    if core.position.seq // SNAPSHOT_EVERY != since // SNAPSHOT_EVERY:
        with suppress(PlaitError):
            keep_snapshot(core.store, core.state, core.position.head)
