"""Keys and statements: of one owner and key one memory is active, by whatever path it became so,
and also if writers that do not know of each other write at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait import (
    Agent,
    Memory,
    ScriptedModel,
    Session,
    Store,
    ToolCall,
    Workflow,
    open_store,
    resume,
)
from plait.errors import StalePlan
from plait.event import Event
from plait.event.kinds import MemoryProposed, MemoryRetracted, PrincipalChanged
from plait.memory.items import MemoryItem
from plait.memory.rollback import BEARING, GroundCheck
from plait.session import verify
from plait.session.house import append_to_house
from plait.session.ports import Act, Draft
from tests.support import ForkedProgram, parked_session
from tests.support.processes import child_environment, module_command

OLD, NEW = "The host is alpha.", "The host is beta."


def active(memory: Memory, session: Session | None = None) -> list[str]:
    return [item.text for item in memory.items(session)]


def waiting(memory: Memory, session: Session, scope: Any, **more: Any) -> tuple[Session, Event]:
    """Have an agent state what waits beside the active memory of its key."""
    session = memory.remember(session, OLD, scope=scope, key="host")
    place = session.seq
    session = memory.remember(
        session, NEW, scope=scope, key="host", evidence=1, actor="agent:a", **more
    )
    event = session.events[place]
    assert isinstance(event.body, MemoryProposed) and active(memory, session) == [OLD]
    return session, event


def approve(memory: Memory, session: Session, event: Event) -> Session:
    memory.approve(event, actor="human:zoe")
    return session


def judge(memory: Memory, session: Session, event: Event) -> Session:
    return session.checks.record("probe", True, because=event)


def state_again(memory: Memory, session: Session, event: Event) -> Session:
    other = Session("Bye", user="ann", project="shop", store=session.store)
    memory.remember(other, NEW, scope="project", key="host", evidence=1, actor="agent:b")
    return session


WAYS: list[tuple[str, Callable[[Memory, Session, Event], Session]]] = [
    ("session", approve),
    ("session", judge),
    ("project", approve),
    ("project", judge),
    ("project", state_again),
]


@pytest.mark.parametrize(("scope", "act"), WAYS)
def test_a_memory_replaces_the_one_of_its_key_once_it_is_active(
    memory: Memory, session: Session, scope: str, act: Callable[..., Session]
) -> None:
    session, event = waiting(memory, session, scope)
    before = memory.items(session)[0]
    session = act(memory, session, event)
    assert active(memory, session) == active(memory) == [NEW]
    old = memory.get(before, session=session)
    assert (old.state, old.standing.superseded_by) == ("superseded", (event.id,))

    (rolled, *_) = memory.rollback(event).apply(reason="wrong", actor="human:zoe")
    assert active(memory, session) == active(memory) == [OLD]
    memory.rollback(undo=rolled).apply(reason="right", actor="human:zoe")
    assert active(memory, session) == [NEW]
    memory.rebuild()
    assert active(memory, session) == active(memory) == [NEW]

    session = memory.remember(session, "The host is gamma.", scope=scope, key="host")  # type: ignore[arg-type]
    assert active(memory, session) == ["The host is gamma."]


def test_a_key_is_replaced_when_a_branch_or_a_run_arrives(memory: Memory, session: Session) -> None:
    session = memory.remember(session, OLD, scope="project", key="host")
    branch = memory.remember(session.fork("try"), NEW, scope="project", key="host")
    # the session goes on meanwhile
    session = memory.remember(session, "The host is gamma.", scope="project", key="host")
    session = session.merge(branch)
    assert active(memory, session) == [NEW]


def test_a_session_forked_before_an_approval_keeps_its_own(
    memory: Memory, session: Session
) -> None:
    session = memory.remember(session, OLD, key="host")
    fork = session.fork("aside")
    session = memory.remember(session, NEW, key="host", evidence=1, actor="agent:a")
    memory.approve(session.events[-2], actor="human:zoe")
    assert active(memory, session) == [NEW] and active(memory, fork) == [OLD]
    # one who rewinds does not see it either
    assert active(memory, session.rewind(fork.seq - 1)) == [OLD]


# ── verdicts ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scope", ["session", "project"])
def test_a_failing_verdict_takes_the_confirmation_back(
    memory: Memory, session: Session, scope: str
) -> None:
    session, event = waiting(memory, session, scope)
    session = session.checks.record("probe", True, because=event)
    assert active(memory, session) == [NEW]
    session = session.checks.record("review", False, because=event)
    item = memory.get(event, session=session)
    assert item.state == "quarantined" and item.standing.by is not None
    assert item.standing.by.rule.startswith("verdict")
    assert active(memory, session) == [OLD], "what is not active replaces nothing"
    assert [each.id for each, _ in memory.pending(session)] == [event.id]
    memory.rebuild()
    assert active(memory, session) == active(memory) == [OLD]
    session = session.checks.record("review", True, because=event)
    assert active(memory, session) == [NEW]


def test_a_failing_verdict_leaves_an_approved_memory(memory: Memory, session: Session) -> None:
    session, event = waiting(memory, session, "project")
    memory.approve(event, actor="human:zoe")
    session = session.checks.record("probe", False, because=event)
    assert active(memory, session) == [NEW]


@pytest.mark.parametrize("scope", ["session", "project"])
def test_the_writer_of_a_memory_does_not_judge_it(
    memory: Memory, session: Session, scope: str
) -> None:
    session, event = waiting(memory, session, scope)
    session = session.checks.record("probe", True, because=event, actor="agent:a")
    assert active(memory, session) == [OLD]
    session = session.checks.record("probe", True, because=event, actor="agent:b")
    assert active(memory, session) == [NEW]


def test_a_verdict_of_another_judge_than_the_gate_names_does_not_count(
    memory: Memory, session: Session
) -> None:
    session, event = waiting(memory, session, "project")
    session = session.checks.require("probe", by="human:zoe")
    session = session.checks.record("probe", True, because=event, actor="human:bob")
    assert active(memory, session) == [OLD]
    session = session.checks.record("probe", True, because=event, actor="human:zoe")
    assert active(memory, session) == [NEW]


class Judging(Workflow):
    """An agent remembers; the workflow around it, or the agent's own tool, judges."""

    def __init__(self, memory: Memory, *verdicts: bool) -> None:
        note = ToolCall("remember", text=NEW, scope="project", key="host")
        model = ScriptedModel([note, "Noted."])
        self.coder = Agent("Note it.", name="coder", model=model, tools=[*memory.tools])
        self.verdicts = verdicts

    def forward(self, session: Session) -> Session:
        session = self.coder(session)
        proposed = [each for each in session.events if isinstance(each.body, MemoryProposed)]
        for passed in self.verdicts:
            session = session.checks.record("probe", passed, because=proposed[-1])
        return session


@pytest.mark.parametrize(
    ("verdicts", "text"), [((True,), NEW), ((True, False), OLD), ((False, True), NEW), ((), OLD)]
)
def test_the_last_verdict_of_a_run_counts_when_it_ends(
    memory: Memory, session: Session, verdicts: tuple[bool, ...], text: str
) -> None:
    session = memory.remember(session, OLD, scope="project", key="host")
    session = Judging(memory, *verdicts)(session)
    assert active(memory, session) == [text]


class Asking(Workflow):
    """Waits for a person; what others say meanwhile goes to the inbox."""

    def forward(self, session: Session) -> Session:
        return session.ask("Go on?")


def test_a_verdict_through_the_inbox_counts_when_the_run_ends(
    memory: Memory, session: Session
) -> None:
    session, event = waiting(memory, session, "project")
    parked = parked_session(lambda: Asking()(session))
    ask = parked.inbox.waiting[0]
    parked.checks.record("probe", True, because=event, actor="human:zoe")
    assert active(memory, session) == [OLD]
    parked.inbox.answer(ask, "yes", actor="human:zoe")
    session = resume(parked, Asking())
    assert active(memory, session) == [NEW]


# ── writers at once ──────────────────────────────────────────────────────────────────────────

ROUNDS, WRITERS = 25, 3


def write_all(store: Store, writer: int, start: Callable[[], object]) -> None:
    """State other values under the same keys, and the same sentences, as other writers do."""
    memory = Memory(store=store)
    session = Session("Hi", user="ann", project="shop", store=store)
    for number in range(ROUNDS):
        start()
        wide: dict[str, Any] = {"scope": "project"}
        session = memory.remember(
            session, f"Host {number} is {writer}.", key=f"host {number}", **wide
        )
        session = memory.remember(session, f"Door {number} is red.", evidence=1, **wide)


def check_all(store: Store) -> None:
    memory = Memory(store=store)
    items = memory.items()
    keys = [item.key for item in items if item.key]
    assert sorted(keys) == sorted({f"host {number}" for number in range(ROUNDS)})
    doors = [item for item in items if not item.key]
    assert len(doors) == len({item.text for item in doors}) == ROUNDS
    # a statement that others made, too, has their evidence
    assert all(item.supports >= WRITERS - 1 for item in doors)
    for item in items:
        last = max(memory.items(state=None), key=lambda each: (each.key == item.key, each.time))
        assert item.key == "" or last.key == item.key
    before = {item.id: item.standing for item in memory.items(state=None)}
    memory.rebuild()
    assert {item.id: item.standing for item in memory.items(state=None)} == before
    assert list(verify(store, state=True)) == []


def test_threads_that_write_at_once_leave_one_memory_for_each_key(store: Store) -> None:
    gate = threading.Barrier(WRITERS, timeout=60)
    failed: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            write_all(store, writer, gate.wait)
        except BaseException as error:
            failed.append(error)
            gate.abort()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    check_all(store)


def test_processes_that_write_at_once_leave_one_memory_for_each_key(tmp_path: Path) -> None:
    store = open_store(tmp_path / ".plait")
    command = module_command("tests.memory.rival_writers", str(tmp_path))
    rivals = [
        ForkedProgram([*command, str(writer)], env=child_environment()) for writer in range(WRITERS)
    ]
    assert [rival.wait(timeout=120) for rival in rivals] == [0] * WRITERS
    check_all(store)
    store.close()


# ── a rollback while others write ────────────────────────────────────────────────────────────


def test_a_rollback_takes_a_memory_along_that_was_written_meanwhile(store: Store) -> None:
    """All that rests on what fell and was committed before the rollback fell with it."""
    memory = Memory(store=store)
    session = Session("Hi", user="ann", project="shop", store=store)
    bases: list[MemoryItem] = []
    for number in range(30):
        session = memory.remember(session, f"Base {number} holds.", scope="project")
        bases.append(memory.items()[0])
    done = threading.Event()

    def draw() -> None:
        """Draw memories from all the bases, until they are rolled back."""
        other = Session("Ho", user="ann", project="shop", store=store)
        for number in range(300):
            if done.is_set():
                return
            base = store.event(bases[number % len(bases)].id)
            other = memory.remember(
                other, f"Door {number} is red.", scope="project", evidence=base, actor="agent:a"
            )

    def roll_back(base: MemoryItem) -> Event:
        while True:
            try:
                return memory.rollback(base).apply(reason="wrong", actor="human:zoe")[0]
            except StalePlan:
                continue

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for base in bases:
            _check_nothing_left(store, base, roll_back(base))
    finally:
        done.set()
        thread.join()


def test_a_memory_of_the_same_session_moves_the_ground_of_its_rollback(
    memory: Memory, session: Session
) -> None:
    session = memory.remember(session, OLD)
    plan = memory.rollback(session=session)
    done: list[Session] = []

    def write(_: object) -> None:
        check(_)
        if not done:
            done.append(memory.remember(session, NEW))

    check = GroundCheck(plan)
    drafts = [Draft(PrincipalChanged("x", "added"), Act("human:zoe", "human"))]
    with pytest.raises(StalePlan):
        append_to_house(session.store, drafts, check=write, kinds=BEARING)
    assert len(memory.items(done[0])) == 2


def _check_nothing_left(store: Store, base: MemoryItem, rolled: Event) -> None:
    number = store.number_of(rolled.id) or 0
    events = [event for at, event in store.feed(0) if at < number]
    drawn = {
        event.id
        for event in events
        if isinstance(event.body, MemoryProposed) and base.id in event.header.causes
    }
    fallen = {
        event.header.causes[0]
        for _, event in store.feed(0)
        if isinstance(event.body, MemoryRetracted)
    }
    assert drawn <= fallen
