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
_DECISIONS = frozenset(
    kind.__name__
    for kind in (
        MemoryCommitted,
        MemoryQuarantined,
        MemoryRejected,
        MemoryRestored,
        MemoryRetracted,
        MemorySuperseded,
    )
)
_GATED = {MemoryCommitted: "active", MemoryQuarantined: "quarantined", MemoryRejected: "rejected"}


_WIDE_LIFTED = _LIFTED | {"verdict"}
_STATED = ("key", "speaker", "source", "importance", "valid_from", "valid_until", "expires")


class Told(NamedTuple):
    """The standing of a memory for one reader."""

    state: str
    superseded_by: frozenset[Digest]


class Case:
    """The decisions about one memory, taken in one by one."""

    def __init__(self, memory: Event) -> None:
        self.memory = memory
        self._gated, self._rule, self._retracted = "proposed", "", 0
        self.superseders: dict[Digest, bool] = {}  # False: lifted
        self.since, self.is_late = 0, False  # when it became active, and in which way

    @property
    def told(self) -> Told:
        standing = frozenset(other for other, holds in self.superseders.items() if holds)
        if self._gated == "rejected":
            return Told("rejected", standing)
        if self._retracted:
            return Told("retracted", standing)
        return Told("superseded" if standing else self._gated, standing)

    def judge(self, passed: bool, at: int) -> None:
        if passed and self._gated == "quarantined" and self._rule in _WIDE_LIFTED:
            self._gated, self._rule, self.since, self.is_late = "active", "verdict", at, True
        elif not passed and self._gated == "active" and self._rule == "verdict":
            self._gated = "quarantined"

    def take(self, event: Event, at: int, house: object) -> None:
        said: Any = event.body
        causes = event.header.causes
        if type(said) in _GATED:
            self._gated, self._rule = _GATED[type(said)], said.rule
            self.since, self.is_late = at, event.log == house
        elif isinstance(said, MemoryRetracted):
            self._retracted += 1
        elif isinstance(said, MemorySuperseded):
            if said.rule != "undone" or causes[1] in self.superseders:
                self.superseders[causes[1]] = True
        elif isinstance(said, MemoryRestored) and len(causes) > 1:
            if causes[1] in self.superseders:
                self.superseders[causes[1]] = False
        elif isinstance(said, MemoryRestored):
            self._retracted = max(0, self._retracted - 1)


class NaiveMemory:
    """The naive reading of the memories of one store, after a commit, and up to another."""

    def __init__(self, store: Store, after: int, upto: int | None = None) -> None:
        self.store, self._naive = store, Naive(store)
        self._house = house_of(store.id)
        self.events = [
            event for number, event in store.feed(after) if upto is None or number <= upto
        ]
        self.twins: list[tuple[Digest, Digest]] = []  # a memory, and another that supports it
        self._wide = self._wide_cases()

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
        if body.scope != "session":
            return self._wide[memory.id].told
        own = self._case(memory, session)
        if own.told.state != "active" or not body.key:
            return own.told
        late = [
            (case.since, self.memories().index(other), other.id)
            for other in self.memories()
            if other.id != memory.id and self._are_rivals(memory, other, session)
            if (case := self._case(other, session)).told.state == "active" and case.is_late
        ]
        since, place, id = max(late, default=(-1, 0, memory.id))
        if (since, place) > (own.since, self.memories().index(memory)):
            return Told("superseded", frozenset({id}))
        return own.told

    def _are_rivals(self, one: Event, other: Event, session: Session | None) -> bool:
        """True if two memories of session scope have one key, for a reader who sees both."""
        bodies: tuple[Any, Any] = one.body, other.body
        if bodies[1].scope != "session" or bodies[0].key != bodies[1].key:
            return False
        return one.log == other.log if session is None else self.sees(session, other)

    def _case(self, memory: Event, session: Session | None) -> Case:
        """Take in the decisions about a memory of session scope."""
        path = self._path(session) if session is not None else None
        case = Case(memory)
        for at, event in enumerate(self.events):
            if memory.id not in event.header.causes or not self._counts(event, path):
                continue
            if isinstance(event.body, ValidationRecorded):
                if event.actor != memory.actor:
                    case.judge(event.body.passed, at)
            elif event.header.causes[0] == memory.id and self._is_known(event, path):
                case.take(event, at, self._house)
        return case

    def _is_known(self, event: Event, path: set[Digest] | None) -> bool:
        """True unless a person approved a successor that the reader does not have."""
        body: Any = event.body
        if path is None or event.log != self._house or not isinstance(body, MemorySuperseded):
            return True
        other = event.header.causes[1]
        is_wide = other in self._wide
        return body.rule == "undone" or is_wide or other in path

    def _wide_cases(self) -> dict[Digest, Case]:
        """Take in the decisions about all memories of wider scopes, in their order. One that
        becomes active replaces the one that has its key, or supports the one that says the same.
        """
        cases: dict[Digest, Case] = {}
        for at, event in enumerate(self.events):
            body: Any = event.body
            if isinstance(body, MemoryProposed) and body.scope != "session":
                cases[event.id] = Case(event)
            case = cases.get(event.header.causes[0]) if event.header.causes else None
            if case is None or event.kind not in _DECISIONS:
                continue
            before = case.told.state
            case.take(event, at, self._house)
            if case.told.state == "active" != before:
                self._settle(case, [each for each in cases.values() if each is not case])
        return cases

    def _settle(self, case: Case, others: list[Case]) -> None:
        mine: Any = case.memory.body
        for other in others:
            body: Any = other.memory.body
            if other.told.state != "active" or (body.scope, body.owner) != (mine.scope, mine.owner):
                continue
            is_same = body.parts == mine.parts
            if is_same and all(getattr(body, name) == getattr(mine, name) for name in _STATED):
                case.superseders[other.memory.id] = True
                self.twins.append((other.memory.id, case.memory.id))
                return
        for other in others:
            body = other.memory.body
            is_beside = (body.scope, body.owner, body.key) == (mine.scope, mine.owner, mine.key)
            if mine.key and is_beside and other.told.state == "active":
                other.superseders[case.memory.id] = True

    def _counts(self, event: Event, path: set[Digest] | None) -> bool:
        return event.log == self._house or path is None or event.id in path

    def _path(self, session: Session) -> set[Digest]:
        return {event.id for event in self._naive.story(session.id, session.seq)}

    def bases(self, memory: Event) -> list[tuple[Digest, ...]]:
        """The memories that each piece of evidence for a memory rests on; a person's word, or a
        last verdict that passes, rests on none.
        """
        body: Any = memory.body
        found = [ground.memories for ground in body.grounds] or [()]
        found += [()] if body.by_person else []
        found += [(twin,) for first, twin in self.twins if first == memory.id]
        verdicts = [
            event.body.passed
            for event in self.events
            if isinstance(event.body, ValidationRecorded)
            and memory.id in event.header.causes
            and event.actor != memory.actor
        ]
        found += [()] if verdicts[-1:] == [True] else []
        for event in self.events:
            said: Any = event.body
            causes = event.header.causes
            if isinstance(said, MemorySupported) and causes[:1] == (memory.id,):
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
        apart = set[Digest]()  # fell before, and holds nothing
        while True:
            more = {
                id
                for id in reached - roots - dead - held
                if any(held.issuperset(each) for each in bases[id])
            }
            # none of those that fall leads to it: its evidence was gone before
            falling = reached - held - apart
            more = more or falling - self._reach(roots, falling, bases)
            if not more:
                break
            held |= more - dead
            apart |= more & dead
        return {id for id in reached - held - apart if not self._is_gone(memories[id])}

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
