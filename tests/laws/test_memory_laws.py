"""The laws of memories as state machines, against both stores: rollback and its inverse, rows that
follow from events, evidence, scopes, and recalls.

One machine writes, approves, rejects, forgets, judges, forks, rewinds, merges and rolls back, at
random. Each law is a subclass; `naive_memory.py` works out the slow way what must hold.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from itertools import count as counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from plait import Memory, Session, open_store
from plait.errors import (
    InvalidValue,
    MayNotDecide,
    NoCommonBase,
    NoOwner,
    StalePlan,
    UnknownMemory,
)
from plait.event import Event
from plait.event.kinds import MemoryRolledBack, MemorySuperseded
from plait.memory.recall import time_of
from plait.memory.rows import HOLDER, ITEM, LATE, READ, REST, REWIND, SUPPORT
from plait.session import verify
from plait.store import Store
from tests.laws.naive_memory import NaiveMemory
from tests.support import count, record_reply

NAMES = counter()
TEXTS = st.sampled_from(
    [f"The staging host is {name}." for name in "alpha beta gamma delta".split()]
)
SCOPES = st.sampled_from(["session", "user", "project"])
KEYS = st.sampled_from(["", "", "host"])
JUDGES = st.sampled_from([None, None, "agent:a"])
QUERY = "which staging host?"
EVIDENCE = frozenset({"MessageSaid", "ModelReplied", "ValidationRecorded", "MemoryProposed"})
PAST, FUTURE = 1, 2**61
TIMES = st.sampled_from(
    [{}, {}, {}, {"expires": PAST}, {"valid_until": PAST}, {"valid_from": FUTURE}]
)


class MemoryMachine(RuleBasedStateMachine):
    """Sessions of two users in one project, and everything that can be done with memories."""

    law = ""
    store: Store
    sessions = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        count(self.law, self.store)
        self.memory = Memory(store=self.store)
        self.tips: dict[str, Session] = {}
        self.first, self.project = self.store.number, f"project {next(NAMES)}"
        self.roots: list[Any] = []  # of the last plan

    def keep(self, session: Session) -> Session:
        self.tips[session.id] = session
        return session

    def tip(self, session: Session) -> Session:
        return self.tips[session.id]

    @property
    def naive(self) -> NaiveMemory:
        return NaiveMemory(self.store, self.first)

    def attempt(self, act: Callable[[], object], *errors: type[Exception]) -> object:
        """Do it; one that is refused must have written nothing."""
        before = self.store.number
        try:
            return act()
        except (*errors, InvalidValue, MayNotDecide):
            assert self.store.number == before
            return None

    # ── sessions ─────────────────────────────────────────────────────────────────────────────

    @initialize(target=sessions, data=st.data())
    def open_first(self, data: st.DataObject) -> Session:
        """Begin with some memories that rest on each other and replace each other."""
        session = self._open("ann")
        for _ in range(data.draw(st.sampled_from([0, 6, 9]))):
            text, scope = data.draw(TEXTS), data.draw(SCOPES)
            write = data.draw(st.sampled_from([self.derive, self.derive, self.replace]))
            if not self.naive.memories() or data.draw(st.integers(0, 4)) == 0:
                self.remember_as_person(session, text, scope, data.draw(KEYS), {})
            else:
                write(session, text, scope, data)
        return session

    @rule(target=sessions, user=st.sampled_from(["ann", "ben"]))
    def open_another(self, user: str) -> Session:
        return self._open(user)

    def _open(self, user: str) -> Session:
        project = self.project if user == "ann" or len(self.tips) % 2 else None
        name = f"{user} of {self.project}".replace(" ", "-")
        return self.keep(Session("Hi", user=name, project=project, store=self.store))

    @rule(session=sessions)
    def say(self, session: Session) -> None:
        self.keep(self.tip(session).say("It is so."))

    @rule(session=sessions)
    def reply(self, session: Session) -> None:
        self.keep(record_reply(self.tip(session)))

    @rule(target=sessions, session=sessions)
    def fork(self, session: Session) -> Session:
        return self.keep(self.tip(session).fork())

    @rule(session=sessions, data=st.data())
    def rewind(self, session: Session, data: st.DataObject) -> None:
        tip = self.tip(session)
        if tip.seq > 2:  # the first message stays: it is evidence
            self.keep(tip.rewind(data.draw(st.integers(max(2, tip.seq - 8), tip.seq - 1))))

    @rule(one=sessions, other=sessions)
    def merge(self, one: Session, other: Session) -> None:
        if one.id != other.id:
            merged = self.attempt(lambda: self.tip(one).merge(self.tip(other)), NoCommonBase)
            self.keep(merged if isinstance(merged, Session) else self.tip(one))

    @rule(session=sessions, texts=st.tuples(TEXTS, TEXTS), scope=SCOPES, data=st.data())
    def write_on_both_sides_and_merge(
        self, session: Session, texts: tuple[str, str], scope: Any, data: st.DataObject
    ) -> None:
        """Let two branches replace memories that both know, which drawn steps seldom do."""
        branch = self.keep(self.tip(session).fork())
        for each, text in zip((branch, session), texts, strict=True):
            if data.draw(st.booleans()):
                self.replace(each, text, scope, data)
            else:
                self.remember_as_person(each, text, scope, data.draw(KEYS), {})
        self.keep(self.tip(session).merge(self.tip(branch)))

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def write(self, session: Session, text: str, **how: Any) -> None:
        after = self.attempt(lambda: self.memory.remember(session, text, **how), NoOwner)
        self.keep(after if isinstance(after, Session) else session)

    @rule(session=sessions, text=TEXTS, scope=SCOPES, key=KEYS, times=TIMES)
    def remember_as_person(
        self, session: Session, text: str, scope: Any, key: str, times: dict[str, int]
    ) -> None:
        self.write(self.tip(session), text, scope=scope, key=key, **times)

    @rule(session=sessions, text=TEXTS, scope=SCOPES, key=KEYS, data=st.data())
    def remember_as_agent(
        self, session: Session, text: str, scope: Any, key: str, data: st.DataObject
    ) -> None:
        tip = self.tip(session)
        said = [event for event in tip.lineage.path if event.kind in EVIDENCE]
        wide = [event for event in self.naive.memories() if self.naive.sees(tip, event)]
        chosen = data.draw(st.lists(st.sampled_from([*said, *wide]), min_size=1, max_size=2))
        kind = data.draw(st.sampled_from(["fact", "reflection"]))
        how: dict[str, Any] = {"scope": scope, "key": key, "kind": kind, "evidence": chosen}
        self.write(tip, text, actor=data.draw(st.sampled_from(["agent:a", "agent:b"])), **how)

    @rule(session=sessions, text=TEXTS, scope=SCOPES, data=st.data())
    def derive(self, session: Session, text: str, scope: Any, data: st.DataObject) -> None:
        """Let an agent draw a memory from others, and a person approve it, perhaps."""
        tip, naive = self.tip(session), self.naive
        known = [event for event in naive.memories() if naive.sees(tip, event)]
        if not known:
            return
        bases = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=2))
        agent = data.draw(st.sampled_from(["agent:a", f"agent:{self.project}".replace(" ", "-")]))
        self.write(tip, text, scope=scope, evidence=bases, actor=agent)
        last = self.naive.memories()[-1]
        if data.draw(st.booleans()):
            self.attempt(lambda: self.memory.approve(last, actor="human:carla"))

    @rule(session=sessions, text=TEXTS, scope=SCOPES, data=st.data())
    def replace(self, session: Session, text: str, scope: Any, data: st.DataObject) -> None:
        tip = self.tip(session)
        known = self.memory.items(tip)
        if known:
            old = data.draw(st.sampled_from(known))
            self.write(tip, text, scope=scope, supersedes=old)

    @rule(session=sessions)
    def recall(self, session: Session) -> None:
        self.keep(self.memory.recall(self.tip(session), QUERY, k=3)[0])

    # ── deciding ─────────────────────────────────────────────────────────────────────────────

    def some_memory(self, data: st.DataObject) -> Event | None:
        known = self.naive.memories()
        return data.draw(st.sampled_from(known)) if known else None

    @rule(data=st.data(), verb=st.sampled_from(["approve", "reject", "forget"]))
    def decide(self, data: st.DataObject, verb: str) -> None:
        if (memory := self.some_memory(data)) is not None:
            self.attempt(lambda: getattr(self.memory, verb)(memory, actor="human:carla"))

    @rule(session=sessions, data=st.data())
    def forget_in_session(self, session: Session, data: st.DataObject) -> None:
        tip = self.tip(session)
        if known := self.memory.items(tip):
            item = data.draw(st.sampled_from(known))
            after = self.attempt(lambda: self.memory.forget(item, session=tip), NoOwner)
            self.keep(after if isinstance(after, Session) else tip)

    @rule(session=sessions, passed=st.booleans(), judge=JUDGES, data=st.data())
    def judge(self, session: Session, passed: bool, judge: str | None, data: st.DataObject) -> None:
        tip, memory = self.tip(session), self.some_memory(data)
        if memory is not None and self.naive.sees(tip, memory):
            self.keep(tip.checks.record("probe", passed, because=memory, actor=judge))

    @rule(session=sessions, texts=st.tuples(TEXTS, TEXTS), scope=SCOPES, data=st.data())
    def confirm_under_a_key(
        self, session: Session, texts: tuple[str, str], scope: Any, data: st.DataObject
    ) -> None:
        """Let an agent's memory wait beside the active one of its key, and confirm it."""
        self.remember_as_agent(session, texts[0], scope, "host", data)
        waiting = next(reversed(self.naive.memories()), None)
        self.remember_as_person(session, texts[1], scope, "host", {})
        tip = self.tip(session)
        if waiting is None:
            return
        if data.draw(st.booleans()) or not self.naive.sees(tip, waiting):
            self.attempt(lambda: self.memory.approve(waiting, actor="human:carla"))
        else:
            self.keep(tip.checks.record("probe", True, because=waiting))

    def plan(self, data: st.DataObject) -> Any:
        """A rollback of one memory, mostly; or of a session's, or an author's."""
        naive = self.naive
        # those that replaced others, or that others rest on, say more
        bases = {id for each in naive.memories() for some in naive.bases(each) for id in some}
        superseded = [event for event in naive.events if event.kind == MemorySuperseded.__name__]
        bases |= {event.header.causes[1] for event in superseded}
        known = naive.memories()
        rich = [each for each in known if each.id in bases]
        memory = data.draw(st.sampled_from(rich if rich and data.draw(st.booleans()) else known))
        self.roots = [memory.id]
        way = data.draw(st.sampled_from(["memory"] * 6 + ["session", "author"]))
        if way == "session":
            self.roots = [each.id for each in self.naive.memories() if each.log == memory.log]
            return self.memory.rollback(session=Session.open(memory.log, store=self.store))
        if way == "author":
            agent = f"agent:{self.project}".replace(" ", "-")
            self.roots = [each.id for each in self.naive.memories() if each.actor == agent]
            if self.roots:
                return self.memory.rollback(author=agent)
            self.roots = [memory.id]
        return self.memory.rollback(memory)

    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        if self.naive.memories():
            plan = self.plan(data)
            self.attempt(lambda: plan.apply(reason="law"))

    @rule(data=st.data())
    def roll_back_again(self, data: st.DataObject) -> None:
        """Do it as often as several other things together."""
        self.roll_back(data)

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        done = [event for event in self.naive.events if event.kind == MemoryRolledBack.__name__]
        if done:
            event = data.draw(st.sampled_from(done))
            self.attempt(lambda: self.memory.rollback(undo=event).apply(reason="law"))

    def teardown(self) -> None:
        for session in self.tips.values():
            assert session.reload() == session


class InverseMachine(MemoryMachine):
    """A rollback and its inverse leave every standing as it was, for every reader; in between, what
    was superseded by what fell is back, or something else replaces it, or a conflict says why.
    """

    law = "memory: a rollback and its inverse"

    def standings(self) -> dict[Any, Any]:
        known = self.naive.memories()
        found: dict[Any, Any] = {}
        for memory in known:
            item = self.memory.get(memory)
            found["all", memory.id] = (
                item.state,
                frozenset(item.standing.superseded_by),
                item.weakened,
            )
            for session in self.tips.values():
                try:
                    mine = self.memory.get(memory, session=session)
                except UnknownMemory:
                    continue
                seen = mine.state, frozenset(mine.standing.superseded_by)
                found[session.id, memory.id] = seen
        return found

    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        if not self.naive.memories():
            return
        before, plan = self.standings(), self.plan(data)
        assert self.standings() == before, "a plan changes nothing"
        assert str(plan) and {*plan.retracted} == self.naive.fall({*self.roots})
        if plan.is_empty:
            return
        (event, *_) = plan.apply(reason="law")
        self._check_fallen(plan, before)
        with pytest.raises(StalePlan):
            plan.apply(reason="law")
        if data.draw(st.booleans()):
            undo = self.memory.rollback(undo=event)
            assert not undo.conflicts
            undo.apply(reason="law")
            assert self.standings() == before

    def _check_fallen(self, plan: Any, before: dict[Any, Any]) -> None:
        after = self.standings()
        explained = {conflict.memory for conflict in plan.conflicts}
        # whom a key displaces on a path follows from the standing of both
        keyed = {item.id for item in self.memory.items(state=None) if item.key}
        displaced = {id for id in keyed if self.memory.get(id).scope == "session"}
        for (reader, memory), (state, superseders, *_) in after.items():
            if memory in plan.retracted:
                assert state in ("retracted", "rejected")
                continue
            was = before[reader, memory]
            if memory not in {older for older, _ in plan.restored} | displaced:
                assert (state, superseders) == was[:2]
            if reader == "all" and state == "superseded" and memory not in explained:
                holding = [after["all", each][0] for each in superseders]
                fell = {*plan.retracted} & superseders
                assert not fell or any(each not in ("retracted", "rejected") for each in holding)


class RowsMachine(MemoryMachine):
    """Rows that are dropped and folded again are the same, and give the same answers."""

    law = "memory: rows follow from events"

    def picture(self) -> Any:
        tables = {
            name: sorted(map(repr, self.store.rows("memory", name, limit=2**31)))
            for name in (ITEM, REST, SUPPORT, READ, REWIND, HOLDER, LATE)
        }
        answers = [
            [(item.id, score) for item, score in self.memory.search(QUERY, session=tip, k=100)]
            for tip in self.tips.values()
        ]
        return tables, answers

    @rule()
    def rebuild(self) -> None:
        before = self.picture()
        self.memory.rebuild()
        assert self.picture() == before

    def teardown(self) -> None:
        self.rebuild()
        super().teardown()


class ReadingMachine(MemoryMachine):
    """Every way to read shows what the naive model says, and nothing outside of scope or time;
    nothing is active whose evidence was rolled back.
    """

    law = "memory: scopes, time and evidence"

    @rule(session=MemoryMachine.sessions)
    def look(self, session: Session) -> None:
        tip, naive = self.tip(session), self.naive
        memories = naive.memories()
        visible = {memory.id for memory in memories if naive.sees(tip, memory)}
        states = {each.id: naive.standing(each, tip) for each in memories if each.id in visible}
        for memory in memories:
            self._check_access(tip, memory, states.get(memory.id))
        active = {id for id, told in states.items() if told.state == "active"}
        listed = self.memory.items(tip)
        assert {item.id for item in listed} == active and len(listed) == len(active)
        held = {item.id: item.state for item in self.memory.items(tip, state=None)}
        assert held == {id: told.state for id, told in states.items()}
        waiting = {item.id for item, _ in self.memory.pending(tip)}
        assert waiting <= visible
        self._check_keys(tip, listed)
        self._check_recall(tip, active, visible)

    def _check_keys(self, tip: Session, listed: list[Any]) -> None:
        """Beyond the session a key names one memory, and no statement is active twice."""
        wide = [item for item in listed if item.scope != "session"]
        keys = [(item.owner, item.key) for item in wide if item.key]
        assert len(keys) == len(set(keys)), listed

    @rule(session=MemoryMachine.sessions, data=st.data())
    def look_back(self, session: Session, data: st.DataObject) -> None:
        """Ask for what was believed at an earlier commit: as the events up to then have it."""
        tip = self.tip(session)
        numbers = [number for number, _ in self.store.feed(self.first)]
        number = numbers[data.draw(st.integers(0, len(numbers) - 1))]
        naive = NaiveMemory(self.store, self.first, number)
        found = [item for item, _ in self.memory.search(QUERY, session=tip, as_of=number, k=100)]
        assert all(item.state == "active" for item in found)
        active: set[Any] = set()
        for memory in naive.memories():
            body: Any = memory.body
            limits = (body.expires, body.valid_until, body.valid_from)
            if body.scope != "session" and limits == (None, None, None):
                is_active = naive.standing(memory).state == "active"
                active |= {memory.id} if is_active and naive.sees(tip, memory) else set()
        limited = ("expires", "valid_until", "valid_from")
        wide = [item for item in found if item.scope != "session"]
        assert active == {
            item.id for item in wide if not any(getattr(item, each) for each in limited)
        }

    def _check_access(self, tip: Session, memory: Event, told: Any) -> None:
        if told is None:
            with pytest.raises(UnknownMemory) as refused:
                self.memory.get(memory, session=tip)
            unknown = "0" * 64
            with pytest.raises(UnknownMemory) as missing:
                self.memory.get(unknown, session=tip)
            named = str(refused.value).replace(memory.id, unknown)
            assert named == str(missing.value)
            return
        item = self.memory.get(memory.id[:24], session=tip)
        assert (item.state, frozenset(item.standing.superseded_by)) == told

    def _check_recall(self, tip: Session, active: set[Any], visible: set[Any]) -> None:
        now, naive = time_of(tip), self.naive
        in_time = set[Any]()
        for memory in naive.memories():
            body: Any = memory.body
            ends = [time for time in (body.expires, body.valid_until) if time is not None]
            if all(time > now for time in ends) and (body.valid_from or 0) <= now:
                in_time.add(memory.id)
        after, hits = self.memory.recall(tip, QUERY, k=100)
        self.keep(after)
        assert {hit.id for hit in hits} == active & in_time
        recalled: Any = after.events[-1].body
        assert {each.memory for each in (*recalled.left_out, *recalled.candidates)} <= visible
        assert after.events[-1].header.causes == tuple(hit.id for hit in hits)

    @rule()
    def stand_by_evidence(self) -> None:
        naive = self.naive
        gone = naive.rolled_back()
        for memory in naive.memories():
            if naive.standing(memory).state == "active":
                assert naive.is_held(memory, gone), self.memory.get(memory)

    def teardown(self) -> None:
        self.stand_by_evidence()
        for session in list(self.tips.values()):
            self.look(session)
        super().teardown()


LAWS = [InverseMachine, RowsMachine, ReadingMachine]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.law)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_law_holds(law: type[MemoryMachine], kind: str) -> None:
    folder = Path(tempfile.mkdtemp())
    name = law.__name__
    store = open_store(f"memory:law-{name}" if kind == "memory" else folder / ".plait")
    machine = type(name, (law,), {"store": store})
    current = settings.get_profile(settings._current_profile)  # type: ignore[attr-defined]  # pyright: ignore
    try:
        examples = current.max_examples if kind == "memory" else max(10, current.max_examples // 3)
        run_state_machine_as_test(
            machine, settings=settings(max_examples=examples, stateful_step_count=30)
        )
        assert list(verify(store, state=True)) == []
    finally:
        store.close()
        shutil.rmtree(folder, ignore_errors=True)
