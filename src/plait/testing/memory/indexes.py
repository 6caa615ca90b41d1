"""An index by itself: put, search and forget by our ids; and one that fails behind a `Memory`."""

from __future__ import annotations

from functools import partial

from plait import Memory
from plait.errors import IndexFailed
from plait.event.kinds import RecallFailed
from plait.ids import digest
from plait.memory.index import Index
from plait.testing.memory.case import last_recall, new_session, recall, remember
from plait.testing.sandbox.case import check_refused
from plait.testing.writing import run_threads

A, B, C = [digest(name.encode()) for name in "abc"]


def found_ids(index: Index, query: str, *owners: str, limit: int = 10) -> list[str]:
    return [id for id, _ in index.search(query, owners, limit)]


class IndexContract:
    def test_texts_are_found_by_their_ids_best_first(self, index: Index) -> None:
        index.put(A, "a red fish in the red sea", "user:ann")
        index.put(B, "one red dog and many other animals", "user:ann")
        index.put(C, "nothing of that kind", "user:ann")
        found = index.search("red fish", ["user:ann"], 10)
        assert [id for id, _ in found][:2] == [A, B]
        assert found[0][1] > found[1][1] > 0

    def test_a_text_put_again_replaces_the_earlier_one(self, index: Index) -> None:
        index.put(A, "a red fish", "user:ann")
        index.put(A, "a blue bird", "user:ann")
        index.put(A, "a blue bird", "user:ann")
        index.put(B, "a red fish in a bowl", "user:ann")
        assert found_ids(index, "blue bird", "user:ann")[:1] == [A]
        assert found_ids(index, "red fish", "user:ann")[:1] == [B]

    def test_a_search_stays_with_its_owners(self, index: Index) -> None:
        for id, owner in ((A, "user:ann"), (B, "user:ann:2"), (C, "project:user:ann/../ünï")):
            index.put(id, "a red fish", owner)
        assert found_ids(index, "red fish", "user:ann") == [A]
        assert found_ids(index, "red fish", "user:ann:2") == [B]
        assert found_ids(index, "red fish", "project:user:ann/../ünï") == [C]
        assert {*found_ids(index, "red fish", "user:ann", "user:ann:2")} == {A, B}
        assert found_ids(index, "red fish", "user") == found_ids(index, "red fish") == []

    def test_a_forgotten_text_is_not_found(self, index: Index) -> None:
        index.put(A, "a red fish", "user:ann")
        index.put(B, "a red fish", "user:ann")
        index.forget(A)
        assert found_ids(index, "red fish", "user:ann") == [B]
        index.forget(A)
        index.forget(C)
        index.put(A, "a red fish", "user:ann")
        assert {*found_ids(index, "red fish", "user:ann")} == {A, B}

    def test_a_search_has_a_limit(self, index: Index) -> None:
        ids = [digest(f"{i}".encode()) for i in range(12)]
        for id in ids:
            index.put(id, "a red fish", "user:ann")
        assert len({*found_ids(index, "fish", "user:ann", limit=5)}) == 5
        assert {*found_ids(index, "fish", "user:ann", limit=50)} == {*ids}

    def test_a_query_without_words_finds_nothing(self, index: Index) -> None:
        index.put(A, "a red fish", "user:ann")
        for query in ("", " ", "?!"):
            assert found_ids(index, query, "user:ann") == []

    def test_any_text_can_be_put(self, index: Index) -> None:
        texts = {
            A: 'quotes " and \' and `ticks`, # marks\n---\n{"json": [1]} <b>fish</b> 100% \\ fish',
            B: "fish " + "and more words " * 250,
            C: "🐟 fish\tin\r\nlines\u2028of all \u202ekinds",
        }
        for id, text in texts.items():
            index.put(id, text, "user:ann")
        assert {*found_ids(index, 'fish" OR * NEAR(', "user:ann")} == {*texts}

    def test_threads_put_and_search_at_once(self, index: Index) -> None:
        ids = [digest(f"{i}".encode()) for i in range(16)]

        def work(number: int) -> None:
            for id in ids[number::4]:
                index.put(id, f"fish {number}", "user:ann")
                assert id in found_ids(index, "fish", "user:ann", limit=50)

        run_threads([partial(work, number) for number in range(4)])
        assert {*found_ids(index, "fish", "user:ann", limit=50)} == {*ids}

    def test_ids_that_the_record_does_not_know_are_dropped_and_counted(self, index: Index) -> None:
        memory = Memory(index=index)
        for id in (A, B, C):
            index.put(id, "The staging database is a lie.", "user:u-1")
        session = remember(memory, new_session(), "The staging database is read-only.")
        session, hits = memory.recall(session, "staging database", k=1)
        assert [hit.text for hit in hits] == ["The staging database is read-only."]
        assert last_recall(session).unknown == 3

    def end_in_search(self, index: Index) -> None:
        """Make an index fail in the middle of the next search, and in later ones."""
        index.close()

    def test_an_index_that_fails_leaves_the_memory_and_a_failed_recall(self, index: Index) -> None:
        memory = Memory(index=index)
        session = remember(memory, new_session(), "The staging database is read-only.")
        self.end_in_search(index)
        failed, hits = memory.recall(session, "staging database")
        body = failed.events[-1].body
        assert hits == [] and isinstance(body, RecallFailed)
        assert (body.index, body.failure.kind) == (index.name, IndexFailed.__name__)
        with check_refused(IndexFailed):
            index.search("staging", ["user:u-1"], 5)
        # the session goes on, and no memory is lost
        later = remember(memory, failed.say("Go on."), "The staging host is db-7.")
        assert len(memory.items(later)) == 2
        assert len(recall(Memory(), later, "staging")) == 2
