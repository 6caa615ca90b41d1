"""Memories through an index: found, kept apart, taken back, and on record."""

from __future__ import annotations

from typing import Any

from plait import Memory, Session, Workflow, replay
from plait.errors import InvalidValue
from plait.memory.index import Index
from plait.testing.memory.case import (
    SCRIPTS,
    CountingIndex,
    hits_of,
    last_recall,
    new_session,
    proposals,
    recall,
    remember,
)
from plait.testing.sandbox.case import check_refused

STAGING = "The staging database is read-only."
TEA = "Ann drinks green tea with honey."
CAR = "The blue car stands behind the house."


class RecallContract:
    def new_memory(self, index: Index | None, **options: Any) -> Memory:
        """Return a memory on this index; None: on the way of finding that the class is about."""
        return Memory(index=index, **options)

    def test_a_memory_is_found_and_the_recall_is_on_record(self, index: Index | None) -> None:
        memory = self.new_memory(index)
        session = remember(memory, new_session(), STAGING, TEA, CAR)
        session, hits = memory.recall(session, "which database is for staging?")
        assert [hit.text for hit in hits][:1] == [STAGING]
        assert hits[0].id in [event.id for event in proposals(session)]
        body = last_recall(session)
        assert body.index == memory.finder().name
        assert body.hits[0].score > 0 and body.unknown == 0
        if index is not None:
            assert set(body.hits[0].parts) == {index.name}

    def test_owners_are_never_mixed(self, index: Index | None) -> None:
        memory = self.new_memory(index)
        ann = remember(memory, new_session("ann"), *[f"The code of door {i}." for i in range(5)])
        bob = new_session("bob", "other", store=ann.store)
        bob = remember(memory, bob, *[f"The code of gate {i}." for i in range(5)])
        bob = remember(memory, bob, "The code of the project.", scope="project")
        assert sorted(recall(memory, ann, "code", k=50)) == [
            f"The code of door {i}." for i in range(5)
        ]
        assert len(recall(memory, bob, "code", k=50)) == 6
        assert recall(memory, bob, "code", k=50, scopes=["project"]) == ["The code of the project."]
        stranger = new_session("eve", "none", store=ann.store)
        assert recall(memory, stranger, "code", k=50) == []

    def test_a_fork_believes_what_its_parent_took_back(self, index: Index | None) -> None:
        memory = self.new_memory(index)
        session = remember(memory, new_session(), STAGING, scope="session")
        fork = session.fork()
        session, hits = memory.recall(session, "staging")
        session = memory.forget(hits[0], session=session)
        assert isinstance(session, Session)
        assert recall(memory, session, "staging") == []
        assert recall(memory, fork, "staging") == [STAGING]
        assert recall(memory, session, "staging", as_of=fork) == [STAGING]

    def test_a_memory_that_was_taken_back_is_not_returned(self, index: Index | None) -> None:
        memory = self.new_memory(index)
        session = remember(memory, new_session(), STAGING, "The staging host is db-7.")
        session, hits = memory.recall(session, "staging database")
        taken = memory.forget(hits[0], session=session)
        assert isinstance(taken, Session)
        assert recall(memory, taken, "staging database") == ["The staging host is db-7."]
        assert recall(memory, taken, "staging database", as_of=session)[0] == STAGING

    def test_a_memory_that_was_replaced_is_not_returned(self, index: Index | None) -> None:
        memory, session = self.new_memory(index), new_session()
        for host in ("db-7", "db-8"):
            text = f"The staging host is {host}."
            session = memory.remember(session, text, scope="user", evidence=session, key="host")
        assert recall(memory, session, "staging host") == ["The staging host is db-8."]

    def test_a_text_in_quarantine_is_not_returned(self, index: Index | None) -> None:
        calls = CountingIndex(index) if index is not None else None
        memory = self.new_memory(calls)
        session = new_session().say("a page", origin="web", actor="tool:fetch")
        session = memory.remember(
            session, "The staging host is evil.", evidence=session, actor="agent:a", origin="web"
        )
        assert recall(memory, session, "staging host") == []
        assert calls is None or calls.calls["put"] == 0

    def test_an_approved_text_is_returned(self, index: Index | None) -> None:
        session = new_session()
        memory = self.new_memory(index, store=session.store)
        session = memory.remember(session, STAGING, evidence=session, actor="agent:a")
        assert recall(memory, session, "staging") == []
        ((item, _),) = memory.pending(session)
        memory.approve(item, actor="human:ann")
        assert recall(memory, session, "staging") == [STAGING]

    def test_a_rollback_and_its_inverse_decide_on_what_is_returned(
        self, index: Index | None
    ) -> None:
        session = new_session()
        memory = self.new_memory(index, store=session.store)
        session = remember(memory, session, STAGING, TEA)
        (hit, *_) = hits_of(memory, session, "staging database")
        (event, *_) = memory.rollback(hit).apply(reason="wrong", actor="human:ann")
        assert STAGING not in recall(memory, session, "staging database")
        if index is not None:
            assert hit.id not in [id for id, _ in index.search("staging", [f"user:{hit.owner}"], 9)]
        memory.rollback(undo=event).apply(reason="right", actor="human:ann")
        assert recall(memory, session, "staging database")[0] == STAGING

    def test_texts_in_other_scripts_come_back(self, index: Index | None) -> None:
        memory = self.new_memory(index)
        session = remember(memory, new_session(), *[text for text, _, _ in SCRIPTS])
        session = remember(memory, session, *[other for _, _, other in SCRIPTS])
        for text, question, _ in SCRIPTS:
            assert recall(memory, session, question)[:1] == [text]

    def test_a_memory_is_found_by_its_speaker(self, index: Index | None) -> None:
        memory, session = self.new_memory(index), new_session()
        said = {"Gertrude": "I moved to Oslo.", "Wilbur": "I moved to Rome."}
        for speaker, text in said.items():
            session = memory.remember(session, text, evidence=session, speaker=speaker)
            session = remember(memory, session, STAGING, TEA, CAR, f"{text} So he said.")
        assert recall(memory, session, "Gertrude")[:1] == ["I moved to Oslo."]

    def test_no_more_than_k_are_returned(self, index: Index | None) -> None:
        memory = self.new_memory(index)
        session = remember(memory, new_session(), *[f"Item {i} of the list." for i in range(30)])
        assert len(recall(memory, session, "item of the list", k=3)) == 3
        assert len(recall(memory, session, "item of the list", k=25)) == 25

    def test_a_question_without_words_is_refused(self, index: Index | None) -> None:
        memory = self.new_memory(index)
        session = remember(memory, new_session(), STAGING)
        for query in ("", "  \n"):
            with check_refused(InvalidValue):
                memory.recall(session, query)
        assert session.reload() == session
        assert recall(memory, session, "?!") == []

    def test_one_of_500_is_found(self, index: Index | None) -> None:
        memory = self.new_memory(index)
        places = ["house", "garden", "cellar", "attic", "garage"]
        texts = [
            f"Box n{i:03} with part p{i * 7 % 500} is in the {places[i % 5]}." for i in range(500)
        ]
        session = remember(memory, new_session(), *texts)
        for i in range(0, 500, 25):
            assert texts[i] in recall(memory, session, f"where is box n{i:03}?", k=5)
        assert len(recall(memory, session, "box", k=500)) == 500

    def test_an_index_made_again_gives_the_same_answers(self, index: Index | None) -> None:
        session = new_session()
        memory = self.new_memory(index, store=session.store)
        session = remember(memory, session, *[f"Door {i} has code {i * i}." for i in range(12)])
        session, hits = memory.recall(session, "code of door 3")
        forgotten = memory.forget(hits[0], session=session)
        assert isinstance(forgotten, Session)
        asked = ["door 5 code", "code 64", "door"]
        before = [hits_of(memory, forgotten, query, k=20) for query in asked]
        memory.rebuild()
        assert [hits_of(memory, forgotten, query, k=20) for query in asked] == before
        again = self.new_memory(index)
        assert [hits_of(again, forgotten, query, k=20) for query in asked] == before

    def test_a_replay_makes_no_calls(self, index: Index | None) -> None:
        calls = CountingIndex(index) if index is not None else None
        memory = self.new_memory(calls)

        class Asks(Workflow):
            def forward(self, session: Session) -> Session:
                session = memory.remember(session, TEA, evidence=session)
                session, hits = memory.recall(session, "green tea")
                return session.say(f"{len(hits)} found")

        session = Asks()(remember(memory, new_session(), STAGING))
        counted = dict(calls.calls) if calls is not None else {}
        assert replay(session, Asks()).head == session.head
        assert calls is None or calls.calls == counted
