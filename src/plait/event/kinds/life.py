"""Kinds about the life of a session: opened, forked, merged, closed; and its messages."""

from __future__ import annotations

from typing import Literal

from plait.event.kinds.base import Body
from plait.event.kinds.values import Budget, Parts, Place, StateDigest, Value, blobs_of
from plait.event.strict import Json
from plait.ids import Digest, LogId


class SessionOpened(Body, frozen=True):
    title: str = ""
    user: str | None = None
    project: str | None = None
    tags: dict[str, str] = {}
    budget: Budget | None = None
    continues: Place | None = None  # the session this one succeeds or was detached from
    # True: the story up to there is its own too; False: its story begins with its own events
    detached: bool = False
    # of its log and of all forks of it; None: full
    durability: Literal["full", "async"] | None = None
    # True: its budget is the remainder of that of the session it continues, and draws on that as
    # well
    draws: bool = False


class ForkedFrom(Body, frozen=True):
    parent: LogId
    place: int
    label: str | None = None
    budget: Budget | None = None  # None: the remainder at the fork


class Rewound(Body, frozen=True):
    to: int
    reason: str = ""
    # outcomes of external effects that the rewind leaves in the world
    not_undone: tuple[Digest, ...] = ()


class Resolution(Value, frozen=True):
    """The value chosen for a fact on which branches disagreed."""

    value: Json = None
    absent: bool = False  # True: the fact is gone instead


class Merged(Body, frozen=True):
    branches: tuple[Place, ...]
    # log: its last place that is now counted here, for those that went forward
    covers: dict[str, int] = {}
    resolved: dict[str, Resolution] = {}
    base: Place | None = None  # given by the caller, for sessions that share no place
    tree: Digest | None = None

    def refs(self) -> tuple[Digest, ...]:
        return (self.tree,) if self.tree else ()


class HandedOff(Body, frozen=True):
    to: str
    reason: str = ""


class SessionPaused(Body, frozen=True):
    reason: str = ""


class SessionResumed(Body, frozen=True):
    reason: str = ""


class SessionClosed(Body, frozen=True):
    reason: str = ""
    state: StateDigest | None = None


class SessionArchived(Body, frozen=True):
    reason: str = ""


class SessionMoved(Body, frozen=True):
    """The last event of a session in a store: it goes on in another one."""

    store: LogId  # the id of that store
    address: str  # the canonical one of that store, without a password


class SessionArrived(Body, frozen=True):
    """The first event of a session in the store that it moved to."""

    store: LogId  # the id of the store that it came from
    address: str  # the canonical one of that store, without a password


class MessageSaid(Body, frozen=True):
    role: Literal["user", "system", "assistant"]
    parts: Parts
    name: str = ""
    aside: bool = False  # between a selector and its model: not part of the conversation
    instead_of: Place | None = None  # the message that agents see no more, but this one

    def refs(self) -> tuple[Digest, ...]:
        return blobs_of(self.parts)
