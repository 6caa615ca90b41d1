"""The state of kept sessions: a fold of the log of their keeper."""

from __future__ import annotations

from typing import Literal

import msgspec

from plait.event import Event
from plait.event import kinds as k
from plait.ids import Digest, LogId, Micros, derive_id
from plait.session.ports import Position
from plait.store import Store

KeptStatus = Literal["keeping", "ending", "ended"]


def keeper_of(store: LogId, name: str) -> LogId:
    """The log of the keeper of this name in a store."""
    return derive_id("plait/keeper/1", store, name)


def kept_session(store: LogId, name: str, ordinal: int) -> LogId:
    """The session of this ordinal: the same for as long as the store lives."""
    return derive_id("plait/kept/1", store, name, ordinal)


class KeptOrdinal(msgspec.Struct):
    """One kept session."""

    ordinal: int
    session: LogId
    round: int = 0  # how many runs it had, this one included
    is_active: bool = False  # True: a run of it was started, and did not end
    failures: int = 0  # one after another
    after: int = 0
    due: Micros = 0  # the next run starts not before
    why: str = ""  # of the last end


class KeepFold:
    """Kept sessions as the log of their keeper tells, up to an event."""

    def __init__(self, log: LogId) -> None:
        self.log, self.seq, self.head = log, 0, Digest("")
        self.order: k.KeeperSet | None = None  # the last one
        self.ordinals = dict[int, KeptOrdinal]()
        self.is_expired = False

    @property
    def replicas(self) -> int:
        return self.order.replicas if self.order is not None else 0

    @property
    def active(self) -> list[KeptOrdinal]:
        """Those with a run that did not end, the highest first."""
        found = [each for each in self.ordinals.values() if each.is_active]
        return sorted(found, key=lambda each: -each.ordinal)

    @property
    def status(self) -> KeptStatus:
        if self.replicas:
            return "keeping"
        return "ending" if self.active else "ended"

    def read(self, store: Store) -> Position:
        """Take the events that the log has by now; return the place of the last one."""
        for event in store.read(self.log, self.seq + 1):
            self.take(event)
        return Position(store.address, self.log, self.seq, self.head)

    def take(self, event: Event) -> None:
        """Take the next event of the log."""
        self.seq, self.head = event.seq, event.id
        body = event.body
        if isinstance(body, k.KeeperSet):
            self.order = body
        elif isinstance(body, k.KeptStarted):
            kept = self.ordinals.setdefault(body.ordinal, KeptOrdinal(body.ordinal, body.session))
            kept.round, kept.after, kept.is_active = body.round, body.after, True
        elif isinstance(body, k.KeptEnded):
            kept = self.ordinals[body.ordinal]
            kept.is_active = False
            kept.failures, kept.due, kept.why = body.failures, body.due, body.why
