"""The standing of memories, worked out the slow and obvious way: from whole events, in the order in
which they were committed.

Nothing here shares code with the rows, the scopes or the plans of rollbacks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from plait import Session
from plait.event import Event
from plait.event.kinds import (
    MemoryCommitted,
    MemoryProposed,
    MemoryQuarantined,
    MemoryRejected,
    MemoryRestored,
    MemoryRetracted,
    MemorySuperseded,
    MemorySupported,
    ValidationRecorded,
)
from plait.ids import Digest, house_of
from plait.store import Store
from tests.laws.naive import Naive

_LIFTED = {"reflection", "origin", "model", "unconfirmed"}  # by a verdict
_GATED = {MemoryCommitted: "active", MemoryQuarantined: "quarantined", MemoryRejected: "rejected"}


class Told(NamedTuple):
    """The standing of a memory for one reader."""

    state: str
    superseded_by: frozenset[Digest]


class NaiveMemory:
    """The naive reading of the memories of one store, after a commit."""

    def __init__(self, store: Store, after: int) -> None:
        self.store, self._naive = store, Naive(store)
        self._house = house_of(store.id)
        self.events = [event for _, event in store.feed(after)]

    def memories(self) -> list[Event]:
        return [event for event in self.events if event.kind == MemoryProposed.__name__]

    def sees(self, session: Session, memory: Event) -> bool:
        body: Any = memory.body
        if body.scope == "session":
            return memory.id in self._path(session)
        return body.owner == {"user": session.user, "project": session.project}[body.scope]

    def standing(self, memory: Event, session: Session | None = None) -> Told:
        """The standing for the reader that a session is; without one, by all decisions."""
        body: Any = memory.body
        path = self._path(session) if session is not None and body.scope == "session" else None
        state, rule, retracted = "proposed", "", 0
        superseders: dict[Digest, bool] = {}  # False: lifted
        for event in self.events:
            if not self._counts(event, path, session is not None) or memory.id not in (
                event.header.causes
            ):
                continue
            said: Any = event.body
            causes = event.header.causes
            if isinstance(said, ValidationRecorded):
                is_lifted = said.passed and state == "quarantined" and rule in _LIFTED
                state = "active" if is_lifted else state
                continue
            if causes[0] != memory.id:
                continue
            if type(said) in _GATED:
                state, rule = _GATED[type(said)], said.rule
            elif isinstance(said, MemoryRetracted):
                retracted += 1
            elif isinstance(said, MemorySuperseded):
                if said.rule != "undone" or causes[1] in superseders:
                    superseders[causes[1]] = True
            elif isinstance(said, MemoryRestored) and len(causes) > 1:
                if causes[1] in superseders:
                    superseders[causes[1]] = False
            elif isinstance(said, MemoryRestored):
                retracted = max(0, retracted - 1)
        standing = frozenset(other for other, holds in superseders.items() if holds)
        if state == "rejected":
            return Told("rejected", standing)
        if retracted:
            return Told("retracted", standing)
        return Told("superseded" if standing else state, standing)

    def _counts(self, event: Event, path: set[Digest] | None, is_reader: bool) -> bool:
        if event.log == self._house or not is_reader:
            return True
        if path is not None:
            return event.id in path
        is_branch = self.store.log(event.log).parent is not None
        return not (event.kind == ValidationRecorded.__name__ and is_branch)

    def _path(self, session: Session) -> set[Digest]:
        return {event.id for event in self._naive.story(session.id, session.seq)}

    def bases(self, memory: Event) -> list[tuple[Digest, ...]]:
        """The memories that each piece of evidence for a memory rests on; a person's word, or a
        passing verdict, rests on none.
        """
        body: Any = memory.body
        found = [ground.memories for ground in body.grounds] or [()]
        found += [()] if body.by_person else []
        for event in self.events:
            said: Any = event.body
            causes = event.header.causes
            if isinstance(said, ValidationRecorded) and said.passed and memory.id in causes:
                found.append(())
            elif isinstance(said, MemorySupported) and causes[:1] == (memory.id,):
                by_person = event.actor.startswith("human:")
                found += [()] if by_person else [ground.memories for ground in said.grounds]
        return found

    def is_held(self, memory: Event, gone: set[Digest]) -> bool:
        """True if a person wrote or approved a memory, a verdict passed, or it has evidence that
        rests on none of these memories.
        """
        for event in self.events:
            said: Any = event.body
            is_approval = isinstance(said, MemoryCommitted) and not said.rule
            if is_approval and event.header.causes[:1] == (memory.id,):
                return True
        return any(gone.isdisjoint(each) for each in self.bases(memory))

    def fall(self, roots: set[Digest]) -> set[Digest]:
        """Return the memories that a rollback of these takes back: they and all that rests on them,
        less what has evidence that rests, in the end, on none of that.
        """
        memories = {memory.id: memory for memory in self.memories()}
        bases = {id: self.bases(memory) for id, memory in memories.items()}
        dead = {
            id
            for id, memory in memories.items()
            if self.standing(memory).state in ("retracted", "rejected")
        }
        reached = self._reach(roots, {*memories}, bases)
        held = memories.keys() - reached - dead
        while True:
            more = {
                id
                for id in reached - roots - dead - held
                if any(held.issuperset(each) for each in bases[id])
            }
            # none of those that fall leads to it: its evidence was gone before
            more = more or reached - held - self._reach(roots, reached - held, bases)
            if not more:
                break
            held |= more
        return {id for id in reached - held if not self._is_gone(memories[id])}

    def _reach(
        self, roots: set[Digest], among: set[Digest], bases: dict[Digest, list[tuple[Digest, ...]]]
    ) -> set[Digest]:
        """Return all that rests on these memories, by way of memories among some."""
        reached, size = {*roots}, 0
        while len(reached) > size:
            size = len(reached)
            reached |= {id for id in among if reached & {*sum(bases[id], ())}}
        return reached

    def _is_gone(self, memory: Event) -> bool:
        """True if no reader is left who sees a memory in another state."""
        told, body = self.standing(memory), memory.body
        scope: Any = getattr(body, "scope", "")
        if told.state == "rejected":
            return True
        if scope != "session":
            return told.state == "retracted"
        acts = [event for event in self.events if event.header.causes[:1] == (memory.id,)]
        house = [type(event.body) for event in acts if event.log == self._house]
        lifted = [
            event
            for event in acts
            if isinstance(event.body, MemoryRestored) and len(event.header.causes) == 1
        ]
        rejected = MemoryRejected in house and house[-1] is MemoryRejected
        return rejected or house.count(MemoryRetracted) > len(lifted)

    def rolled_back(self) -> set[Digest]:
        """Return the memories that a rollback took back, and that are away since."""
        away = dict[Digest, int]()
        for event in self.events:
            said: Any = event.body
            if isinstance(said, MemoryRetracted) and said.rule == "rollback":
                away[event.header.causes[0]] = 1
            elif isinstance(said, MemoryRestored) and len(event.header.causes) == 1:
                away.pop(event.header.causes[0], None)
        return set(away)
