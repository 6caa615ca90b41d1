"""Rollback: what falls, what comes back, who hears of it, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plait import Agent, Memory, ScriptedModel, Session, Store, Workflow, resume
from plait.errors import (
    InvalidValue,
    MayNotDecide,
    StalePlan,
    UnknownMemory,
)
from plait.event.kinds import MemoryProposed, MemoryRolledBack
from plait.memory.items import MemoryItem
from plait.session import verify
from tests.memory.test_remember import last_item
from tests.support import events_of, parked_session, record_reply

BASE = "The staging database is read-only."
WRONG = "wrong host"


def written(memory: Memory, session: Session, text: str, **how: Any) -> tuple[Session, MemoryItem]:
    """A memory that was just written, after which the session is as it was, and the memory."""
    session = memory.remember(session, text, **how)
    return session, last_item(memory, session)


def derived(
    memory: Memory, session: Session, text: str, *bases: MemoryItem, **how: Any
) -> tuple[Session, MemoryItem]:
    """A memory that an agent drew from others, and that a person has approved."""
    store = memory.get(bases[0]).store
    events = [Session.open(base.log, store=store).events[base.seq - 1] for base in bases]
    session, item = written(memory, session, text, evidence=events, actor="agent:a", **how)
    return session, memory.approve(item, actor="human:ben")


def states(memory: Memory, *items: MemoryItem) -> list[str]:
    return [memory.get(item.id).state for item in items]


def standings(memory: Memory) -> dict[str, Any]:
    """The standing of every memory, without the decision that led to it."""
    return {
        item.id: (item.state, set(item.standing.superseded_by), item.weakened)
        for item in memory.items(state=None)
    }


# ── what falls ───────────────────────────────────────────────────────────────────────────────


def test_what_rests_on_it_alone_falls_and_the_rest_has_less_evidence(
    memory: Memory, session: Session
) -> None:
    session, base = written(memory, session, BASE, scope="project")
    session, other = written(memory, session, "Backups run at night.", scope="project")
    session, alone = derived(memory, session, "Write tests need another host.", base)
    session, far = derived(memory, session, "The other host is billed to us.", alone)
    session, both = derived(memory, session, "Restore staging from backups.", base, other)
    session, pieces = derived(memory, session, "Staging is safe at night.", base)
    session = memory.remember(session, "Staging is safe at night.", evidence=2, actor="agent:b")
    before = standings(memory)
    plan = memory.rollback(base)
    assert plan.retracted == (base.id, alone.id, far.id)  # nearest first
    assert set(plan.weakened) == {both.id, pieces.id}
    assert [each.memory for each in plan.conflicts] == [alone.id, far.id]
    assert "human:ben approved it" in plan.conflicts[0].why
    assert standings(memory) == before, "a plan changes nothing"
    events = plan.apply(reason=WRONG)
    assert [event.kind for event in events] == ["MemoryRolledBack"] + ["MemoryRetracted"] * 3
    assert all(event.header.causes[0] in plan.retracted for event in events[1:])
    assert states(memory, base, alone, far) == ["retracted"] * 3
    assert states(memory, both, pieces) == ["active"] * 2
    assert [memory.get(each.id).weakened for each in (both, pieces)] == [1, 1]
    assert not memory.search("billed host", session=session)


def test_memories_do_not_hold_each_other_up_in_a_circle(memory: Memory, session: Session) -> None:
    session, base = written(memory, session, BASE)
    session, one = derived(memory, session, "Tests write elsewhere.", base)
    session, two = derived(memory, session, "Elsewhere is another host.", one)
    event = session.events[two.seq - 1]
    memory.remember(session, "Tests write elsewhere.", evidence=event, actor="agent:b")
    plan = memory.rollback(base)
    assert plan.retracted == (base.id, one.id, two.id) and not plan.weakened


def test_what_lost_its_evidence_before_and_rests_on_nothing_that_falls_stays(
    memory: Memory, session: Session
) -> None:
    session, base = written(memory, session, BASE)
    session, gone = written(memory, session, "Backups run at night.")
    session, middle = derived(memory, session, "Tests write elsewhere.", base)
    session, hits = memory.recall(session, "tests and backups", k=2)
    assert {hit.id for hit in hits} == {gone.id, middle.id}
    session = record_reply(session)
    session, drawn = written(memory, session, "Both are slow.", evidence=session, actor="agent:a")
    memory.forget(gone)  # and with it the only evidence that the last one has
    memory.remember(session, "Tests write elsewhere.")  # a person says so, too
    plan = memory.rollback(base)
    assert plan.retracted == (base.id,) and plan.weakened == (middle.id,)
    assert memory.rollback(gone).retracted == (drawn.id,)


def test_one_that_is_rolled_back_itself_is_not_held_by_one_that_stands(
    memory: Memory, session: Session, store: Store
) -> None:
    wide: dict[str, Any] = {"scope": "project"}  # others may cite it
    session, base = written(memory, session, BASE, **wide)
    other = Session("Hi", user="ann", project="shop", store=store)
    event = session.events[base.seq - 1]
    other, stands = written(memory, other, "I checked staging.", evidence=event, **wide)
    session, two = derived(memory, session, "Tests write elsewhere.", stands, **wide)
    other, three = derived(memory, other, "Elsewhere is far.", two, **wide)
    plan = memory.rollback(session=session)
    assert plan.retracted == (base.id, two.id, three.id) and plan.weakened == (stands.id,)


def test_what_a_person_wrote_or_a_verdict_confirmed_stays(memory: Memory, session: Session) -> None:
    session, base = written(memory, session, BASE)
    event = session.events[base.seq - 1]
    session, own = written(memory, session, "I checked staging.", evidence=event)
    session, checked = derived(memory, session, "Staging has replicas.", base)
    item = session.events[checked.seq - 1]
    session = session.checks.record("probe", True, because=item)
    session, said = derived(memory, session, "Staging has one disk.", base)
    session = memory.remember(session, "Staging has one disk.", evidence=event)  # by a person
    plan = memory.rollback(base)
    assert plan.retracted == (base.id,)
    assert set(plan.weakened) == {own.id, checked.id, said.id}


def test_words_of_a_model_rest_on_what_it_was_shown(memory: Memory, session: Session) -> None:
    session, base = written(memory, session, BASE)
    session, _ = memory.recall(session, "staging")
    session = record_reply(session)
    session, drawn = written(
        memory, session, "Writes go elsewhere.", evidence=session, actor="agent:a"
    )
    assert memory.rollback(base).retracted == (base.id, drawn.id)


# ── what comes back ──────────────────────────────────────────────────────────────────────────


def test_a_superseded_memory_is_back_once_its_superseder_is_rolled_back(
    memory: Memory, session: Session
) -> None:
    session, old = written(memory, session, "Staging is at host a.", scope="user", key="host")
    session, new = written(memory, session, "Staging is at host b.", scope="user", key="host")
    assert states(memory, old, new) == ["superseded", "active"]
    plan = memory.rollback(new)
    assert plan.restored == ((old.id, new.id),)
    plan.apply(reason=WRONG)
    assert states(memory, old, new) == ["active", "retracted"]
    assert [item.id for item, _ in memory.search("staging host", session=session)] == [old.id]


def test_it_stays_superseded_while_another_one_replaces_it(
    memory: Memory, session: Session
) -> None:
    session, old = written(memory, session, "Staging is at host a.", scope="user")
    session, one = written(memory, session, "Staging is at b.", scope="user", supersedes=old)
    session, two = written(memory, session, "Staging is at c.", scope="user", supersedes=old)
    plan = memory.rollback(one)
    assert plan.restored == () and plan.retracted == (one.id,)
    plan.apply(reason=WRONG)
    assert states(memory, old) == ["superseded"]
    memory.rollback(two).apply(reason=WRONG)
    assert states(memory, old, one, two) == ["active", "retracted", "retracted"]


def test_the_middle_of_a_chain_does_not_bring_the_oldest_back(
    memory: Memory, session: Session
) -> None:
    session, first = written(memory, session, "It is at a.", scope="user")
    session, middle = written(memory, session, "It is at b.", scope="user", supersedes=first)
    session, last = written(memory, session, "It is at c.", scope="user", supersedes=middle)
    plan = memory.rollback(middle)
    assert plan.restored == () and [each.memory for each in plan.conflicts] == [first.id]
    plan.apply(reason=WRONG)
    memory.rollback(last).apply(reason=WRONG)
    assert states(memory, first, middle, last) == ["active", "retracted", "retracted"]


def test_a_key_that_says_something_else_by_now_is_a_conflict(
    memory: Memory, session: Session
) -> None:
    session, old = written(memory, session, "Staging is at a.", scope="user", key="host")
    session, new = written(memory, session, "Staging is at b.", scope="user", key="host")
    memory.forget(new)
    session, now = written(memory, session, "Staging is at c.", scope="user", key="host")
    plan = memory.rollback(new)
    assert plan.is_empty and plan.conflicts[0].memory == old.id
    assert f"m:{now.short} has its key now" in str(plan)
    with pytest.raises(InvalidValue, match="nothing would change"):
        plan.apply(reason=WRONG)


def test_in_a_branch_without_the_other_superseder_it_comes_back(
    memory: Memory, session: Session
) -> None:
    session, old = written(memory, session, "Staging is at a.")
    left, one = written(memory, session.fork("left"), "Staging is at b.", supersedes=old)
    right, _ = written(memory, session.fork("right"), "Staging is at c.", supersedes=old)

    def seen() -> list[str]:
        return [memory.get(old, session=each).state for each in (left, right, session)]

    before = seen()
    assert before == ["superseded", "superseded", "active"]
    (event, *_) = memory.rollback(one).apply(reason=WRONG)
    assert seen() == ["active", "superseded", "active"]
    memory.rollback(undo=event).apply(reason="right")
    assert seen() == before, "the session that never knew the successor does not learn of it"


# ── plans ────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_whose_ground_has_moved_changes_nothing(
    memory: Memory, session: Session, store: Store
) -> None:
    session, base = written(memory, session, BASE)
    plan = memory.rollback(base)
    session, _ = derived(memory, session, "Write elsewhere.", base)
    before = store.number
    with pytest.raises(StalePlan):
        plan.apply(reason=WRONG)
    assert store.number == before
    session, _ = memory.recall(session, "staging")  # reading does not move it
    plan = memory.rollback(base)
    session, _ = memory.recall(session, "staging")
    plan.apply(reason=WRONG)
    before = store.number
    with pytest.raises(StalePlan):
        plan.apply(reason=WRONG)
    assert store.number == before and memory.rollback(base).is_empty


def test_people_alone_apply_it(memory: Memory, session: Session, store: Store) -> None:
    session, base = written(memory, session, BASE)
    plan = memory.rollback(base)
    before = store.number
    with pytest.raises(MayNotDecide):
        plan.apply(reason=WRONG, actor="agent:a")
    with pytest.raises(InvalidValue):
        plan.apply(reason=" ")

    class Program(Workflow):
        def forward(self, session: Session) -> Session:
            memory.rollback(base).apply(reason=WRONG)
            return session

    with pytest.raises(MayNotDecide):
        Program()(session)
    assert memory.get(base.id).state == "active" and before < store.number


def test_names_that_mean_nothing(memory: Memory, session: Session) -> None:
    session, base = written(memory, session, BASE)
    with pytest.raises(UnknownMemory):
        memory.rollback("0123456789abcdef")
    with pytest.raises(UnknownMemory):
        memory.rollback(source="notes.md")
    with pytest.raises(UnknownMemory):
        memory.rollback(author="agent:unknown")
    with pytest.raises(InvalidValue):
        memory.rollback()
    with pytest.raises(InvalidValue):
        memory.rollback(base, source="notes.md")
    with pytest.raises(InvalidValue, match="no rollback"):
        memory.rollback(undo=base.id)


def test_all_of_a_session_a_document_or_an_author(
    memory: Memory, session: Session, store: Store, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("Staging is at host a.\n\n" + "Backups run at night. " * 60)
    session = memory.ingest(session, notes)
    pieces = [event.id for event in events_of(session, MemoryProposed)]
    session, own = written(memory, session, "Hosts are rented.", evidence=2, actor="agent:a")
    other = Session("Hi", user="ann", store=store)
    other, there = written(memory, other, "Hosts are slow.", evidence=2, actor="agent:a")
    assert memory.rollback(source=str(notes)).retracted == tuple(pieces)
    assert memory.rollback(source="notes.md").retracted == tuple(pieces)
    assert memory.rollback(session=session).retracted == (*pieces, own.id)
    plan = memory.rollback(author="agent:a")
    assert set(plan.retracted) == {own.id, there.id}
    plan.apply(reason="it guesses")
    assert states(memory, own, there) == ["retracted", "retracted"]
    assert json.loads(json.dumps(plan.as_dict()))["retracted"] == list(plan.retracted)


# ── the way back ─────────────────────────────────────────────────────────────────────────────


def test_the_inverse_leaves_all_as_it_was(memory: Memory, session: Session, store: Store) -> None:
    session, old = written(memory, session, "Staging is at a.", scope="user", key="host")
    session, new = written(memory, session, "Staging is at b.", scope="user", key="host")
    session, other = written(memory, session, "Backups run.", scope="user")
    session, drawn = derived(memory, session, "Host b is slow.", new, scope="user")
    session, both = derived(memory, session, "Backups are at b.", new, other, scope="user")
    before = standings(memory)
    (event, *_) = memory.rollback(new).apply(reason=WRONG)
    assert states(memory, old, new, drawn, both) == ["active", "retracted", "retracted", "active"]
    undo = memory.rollback(undo=event.id[:8])
    assert undo.restored == ((new.id, None), (drawn.id, None))
    assert undo.superseded == ((old.id, new.id),) and undo.weakened == (both.id,)
    done = undo.apply(reason="it was right")
    assert standings(memory) == before
    with pytest.raises(StalePlan):
        undo.apply(reason="twice")
    with pytest.raises(InvalidValue, match="undone already"):
        memory.rollback(undo=event)
    with pytest.raises(InvalidValue, match="undoes a rollback itself"):
        memory.rollback(undo=done[0])
    memory.rollback(new).apply(reason="wrong after all")
    assert states(memory, old, new) == ["active", "retracted"]
    assert list(verify(store, state=True)) == []


def test_what_was_said_since_is_not_undone(memory: Memory, session: Session) -> None:
    session, old = written(memory, session, "Staging is at a.", scope="user", key="host")
    session, new = written(memory, session, "Staging is at b.", scope="user", key="host")
    session, drawn = derived(memory, session, "Host b is slow.", new, scope="user")
    (event, *_) = memory.rollback(new).apply(reason=WRONG)
    session, now = written(memory, session, "Staging is at c.", scope="user", key="host")
    undo = memory.rollback(undo=event)
    assert undo.is_empty and [each.memory for each in undo.conflicts] == [new.id, drawn.id]
    assert states(memory, old, new, drawn, now) == [
        "superseded",
        "retracted",
        "retracted",
        "active",
    ]


def test_a_branch_keeps_its_own_decision_through_a_rollback_and_back(
    memory: Memory, session: Session
) -> None:
    session, item = written(memory, session, BASE)
    branch = memory.forget(item, session=session.fork("branch"))
    assert isinstance(branch, Session)

    def both() -> list[str]:
        return [memory.get(item, session=each).state for each in (session, branch)]

    assert both() == ["active", "retracted"]
    (event, *_) = memory.rollback(item).apply(reason=WRONG)
    assert both() == ["retracted", "retracted"]
    memory.rollback(undo=event).apply(reason="right")
    assert both() == ["active", "retracted"]


# ── those who relied on it ───────────────────────────────────────────────────────────────────


def test_an_open_run_hears_through_its_inbox_and_its_model_reads_it(
    memory: Memory, session: Session, store: Store
) -> None:
    session, base = written(memory, session, BASE)
    model = ScriptedModel(["noted"])

    class Program(Workflow):
        def __init__(self) -> None:
            self.agent = Agent("Answer.", model=model)

        def forward(self, session: Session) -> Session:
            session, _ = memory.recall(session, "may I write to staging?")
            return self.agent(session.ask("Go on?"))

    parked = parked_session(lambda: Program()(session))
    plan = memory.rollback(base)
    (reader,) = plan.readers
    assert (reader.log, reader.state) == (session.id, "open") and "in an open run" in str(plan)
    events = plan.apply(reason=WRONG)
    assert events[-1].kind == "MessageSaid" and events[-1].header.causes == (events[0].id,)
    done = resume(parked.inbox.answer(parked.inbox.waiting[0], "yes"), Program())
    (notice,) = [message for message in done.messages if message.name == "memory"]
    assert f"[m:{base.short}]" in notice.text and WRONG in notice.text
    assert done.text == "noted" and notice.role == "user"
    assert memory.rollback(undo=events[0]).readers[0].state == "finished"


def test_a_finished_run_is_told_by_marks_and_no_message(
    memory: Memory, session: Session, store: Store
) -> None:
    session, base = written(memory, session, BASE)

    class Program(Workflow):
        def forward(self, session: Session) -> Session:
            return memory.recall(session, "may I write to staging?")[0].say("No.", role="assistant")

    done = Program()(session)
    assert memory.rollback(base).readers[0].state == "finished"
    events = memory.rollback(base).apply(reason=WRONG)
    assert [event.log for event in events] == [events[0].log] * 2
    (use,) = memory.used(done)
    assert use.taken_back.startswith("taken back by") and "TAKEN BACK" in str(use)
    assert "(taken back by" in str(memory.why(base))
    assert isinstance(events[0].body, MemoryRolledBack)
