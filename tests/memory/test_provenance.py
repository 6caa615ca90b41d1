"""Provenance: why a memory was present, why it was not, which were used, and how far that goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plait import Agent, Memory, ScriptedModel, Session, Store, ToolCall
from plait.errors import InvalidValue, UnknownMemory
from plait.event.kinds import MemoryUsed
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.value import position_of
from tests.memory.test_remember import last_item, tool_result
from tests.support import count_calls, set_clock_ahead

TEXT = "The staging database is read-only."


def written(memory: Memory, session: Session, text: str = TEXT, **how: Any) -> tuple[Session, Any]:
    session = memory.remember(session, text, **how)
    return session, last_item(memory, session)


def test_a_memory_is_present_by_recalls_a_rule_and_evidence(
    memory: Memory, session: Session
) -> None:
    session = tool_result(session)
    event = session.effects[-1].outcome
    session, item = written(memory, session, evidence=event, actor="service:ci")
    session, other = written(memory, session, "The staging host is slow.")
    session, hits = memory.recall(session, "is the staging database read-only?", purpose="plan")
    session, _ = memory.recall(session, "the slow staging host")
    presence = memory.why_present(session, hits[0])
    assert [(each.seq, each.rank, each.purpose) for each in presence.recalls] == [
        (session.seq - 1, 1, "plan"),
        (session.seq, 2, None),
    ]
    assert presence.recalls[0].score == hits[0].score and presence.recalls[0].actor == "human:ann"
    assert presence.decision is not None and presence.decision.rule == "own tool"
    (piece,) = presence.evidence
    assert event is not None
    assert (piece.event, piece.sort, piece.trust) == (event.id, "result", "observed")
    text = str(presence)
    assert "rank 1 of 2" in text and "own tool" in text and "result (observed)" in text
    assert "never recalled here" not in str(memory.why_present(session, other))
    before = memory.why_present(session.at(session.seq - 2), item)
    assert before.recalls == () and "never recalled here" in str(before)


def test_a_reply_that_cites_it_is_named_and_a_run_without_it_is_counted(
    memory: Memory, session: Session
) -> None:
    session, item = written(memory, session)
    model = ScriptedModel([f"No, see [m:{item.short}]."])
    session = Agent("Answer.", model=model, memory=memory, name="ann")(
        session.say("May I write to staging?")
    )
    (reply,) = [event for event in session.events if event.kind == "ModelReplied"]
    presence = memory.why_present(session, item)
    assert presence.replies == ((session.id, reply.seq),)
    assert presence.recalls[0].shown and presence.recalls[0].workflow
    (use,) = memory.used(session)
    assert use.cited == ((session.id, reply.seq),) and "cited" in str(use)
    found = MemoryUsed("ablation", runs=3, differs={"text": 2, "calls": 0})
    act = Act("service:memory", causes=(item.id,))
    session = session_at(writer_of(None).append(position_of(session), [Draft(found, act)]))
    (use,) = memory.used(session)
    assert use.ablations == (found,) and "without it, 3 runs: text 2" in str(use)
    (reader,) = memory.rollback(item).readers
    assert reader.replies == (reply.seq,) and "cited at" in str(reader)


def test_an_absent_memory_has_one_reason(memory: Memory, session: Session) -> None:
    def reason(query: str = "staging database", **how: Any) -> Any:
        return memory.why_not(session, query, how.get("of", item))

    session, item = written(memory, session, key="staging")
    assert reason().reason == "present"
    away = reason("giraffes in the zoo")
    assert away.reason == "no common word" and "giraff" in away.query_words
    assert "databas" in away.memory_words and "giraff" in str(away)
    session, new = written(memory, session, "Staging is writable now.", key="staging")
    assert reason().reason == "superseded" and new.short in str(reason())
    session, held = written(memory, session, "Staging melts.", evidence=2, actor="agent:a")
    assert reason(of=held).reason == "quarantined" and "'model'" in str(reason(of=held))
    memory.reject(held, actor="human:ben")
    assert reason(of=held).reason == "rejected"
    memory.forget(new)
    assert reason(of=new).reason == "retracted"
    session, late = written(memory, session, "Staging is new.", valid_from=2**60)
    assert reason(of=late).reason == "not valid then"
    session, brief = written(memory, session, "Staging is old.", expires=2**60)
    assert reason(of=brief).reason == "present"
    set_clock_ahead(session, 2**60 / 1e6)
    assert reason(of=brief).reason == "expired"
    branch = session.fork("side")
    branch, proposed = written(memory, branch, "Staging is blue.", scope="project", evidence=2)
    session = branch
    assert reason(of=proposed).reason == "proposed"


def test_a_rejected_memory_that_a_person_approves_after_all_is_found_again(
    memory: Memory, session: Session
) -> None:
    session, item = written(memory, session, evidence=2, actor="agent:a", speaker="Zoe")
    memory.reject(item, actor="human:ben")
    assert memory.why_not(session, "staging", item).reason == "rejected"
    memory.approve(item, actor="human:ben")
    assert memory.why_not(session, "staging", item).reason == "present"
    assert memory.why_not(session, "zoe", item).reason == "present"


def test_a_memory_below_k_is_told_its_rank_and_the_score_to_beat(
    memory: Memory, session: Session
) -> None:
    for number in range(30):
        session = memory.remember(session, f"Staging note {number} " + "staging " * (number + 1))
    session, item = written(memory, session, "Somewhere far down is a note on staging hosts.")
    absence = memory.why_not(session, "staging", item)
    assert absence.reason == "below k" and absence.rank is not None and absence.rank > 5
    assert absence.score is not None and absence.last is not None and absence.score < absence.last
    assert item.id not in [found.id for found, _ in memory.search("staging", session=session)]


def test_a_memory_out_of_scope_is_one_that_does_not_exist(
    memory: Memory, session: Session, store: Store
) -> None:
    session, item = written(memory, session, scope="user")
    other = Session("Hi", user="ben", store=store)
    unknown = "0" * 64
    asks: list[Callable[[str], object]] = [
        lambda name: memory.why_present(other, name),
        lambda name: memory.why_not(other, "staging", name),
        lambda name: memory.why(name, session=other),
        lambda name: memory.influence(name, session=other),
    ]
    for ask in asks:
        answers: list[str] = []
        for name in (item.id, unknown):
            with pytest.raises(UnknownMemory) as found:
                ask(name)
            answers.append(str(found.value).replace(name, "NAME"))
        assert answers[0] == answers[1]
    with pytest.raises(InvalidValue):
        memory.why_not(session, " ", item)


def test_what_an_agents_own_scope_gave_is_explained_to_whoever_has_the_session(
    memory: Memory, session: Session, store: Store
) -> None:
    own = Memory(store=store, agent="coder")
    session, item = written(own, session, scope="agent")
    session, _ = own.recall(session, "staging")
    assert memory.why_present(session, item).recalls[0].rank == 1
    with pytest.raises(UnknownMemory):
        memory.why_present(session.at(session.seq - 1), item)


def test_looking_leaves_no_event(memory: Memory, session: Session, store: Store) -> None:
    session, item = written(memory, session)
    session, _ = memory.recall(session, "staging")
    before = store.number
    memory.why_present(session, item)
    memory.why_not(session, "staging", item)
    memory.used(session)
    memory.rollback(item)
    assert store.number == before


def test_a_remembering_tool_is_in_the_way_back(memory: Memory, session: Session) -> None:
    model = ScriptedModel([ToolCall("remember", text="Staging sleeps at night."), "done"])
    session = Agent("Note it.", model=model, tools=[*memory.tools], name="ann")(session)
    (event,) = [event for event in session.events if event.kind == "MemoryProposed"]
    steps = memory.why(event).steps
    assert any(step.kind == "ToolRequested" and step.how == "asked by" for step in steps)


def test_the_work_of_a_question_follows_what_rests_on_a_memory_and_not_the_store(
    sqlite: Store,
) -> None:
    memory, session = Memory(store=sqlite), Session("Hi", user="ann", store=sqlite)

    def calls(item: Any) -> int:
        for ask in (memory.rollback, memory.why, memory.influence):
            ask(item)  # fills caches
        return count_calls(
            lambda: (memory.rollback(item), memory.why(item), memory.influence(item))
        )

    def read_five_times(session: Session) -> tuple[Session, Any]:
        session, item = written(memory, session, f"The host of day {session.seq} is grey.")
        for _ in range(5):
            session, _ = memory.recall(session, "which host is grey?", k=1)
        return session, item

    session, first = read_five_times(session)
    few = calls(first)
    for number in range(40):
        session = memory.remember(session, f"Fact {number} is about number {number}.")
    other = Session("Hi", user="ann", store=sqlite)
    other, last = read_five_times(other)
    assert calls(last) <= few * 1.1


def test_a_session_is_shown_no_events_that_it_may_not_see(store: Store, memory: Memory) -> None:
    """A memory of the project leads to a query, a memory and evidence that are another user's."""
    alone = Session("Ann alone.", user="ann", store=store).say("My doctor broke staging.")
    ann = Session("Ann", user="ann", project="shop", store=store)
    ann, item = written(memory, ann, scope="project", evidence=alone)
    ann, _ = memory.recall(ann, "is staging down as my divorce is?")
    recalled = ann.events[-1]
    ann, own = written(memory, ann, "Bob broke it.", scope="user", evidence=item.id)
    ann, common = written(memory, ann, "Staging lags.", scope="project", evidence=item.id)
    memory.forget(common, actor="human:zoe")
    bob = Session("Bob", user="bob", project="shop", store=store)
    back, forth = memory.why(item, session=bob), memory.influence(item, session=bob)
    assert [step.id for step in back if step.kind == "MemoryProposed"] == [item.id]
    shown = {step.id for step in forth}
    assert {item.id, common.id} <= shown and not {recalled.id, own.id} & shown
    assert "MemoryRetracted" in {step.kind for step in forth}, "a person's word is for all"
    for secret in ("doctor", "divorce", "Bob broke"):
        assert secret not in f"{back}{forth}{memory.why_present(bob, item)}"
    assert memory.why_present(bob, item).evidence == ()
    # what is left out takes no place of what is shown, and does not tell of itself
    few = memory.influence(item, session=bob, limit=len(forth))
    assert few == forth and few.complete
    # her own session, and the person who has the store, see all of it
    for reader in (ann, None):
        steps = {step.id for step in memory.influence(item, session=reader)}
        assert {recalled.id, own.id, common.id} <= steps
        assert "doctor" in str(memory.why(item, session=reader))
    assert "doctor" in str(memory.why_present(ann, item))


def test_a_memory_of_a_session_is_shown_along_its_path_alone(
    memory: Memory, session: Session
) -> None:
    session, base = written(memory, session, scope="project")
    session, item = written(memory, session, "Staging sleeps.", evidence=base.id)
    other = Session("Ho", user="ann", project="shop", store=session.store)
    assert item.id not in {step.id for step in memory.influence(base, session=other)}
    fork = session.fork("side")
    assert item.id in {step.id for step in memory.influence(base, session=fork)}
