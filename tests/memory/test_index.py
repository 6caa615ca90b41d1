"""Other indexes: the contract, and the filling of an index from the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from plait import Memory
from plait.event.kinds import RecallFailed
from plait.memory.index import STRIDE, Index
from plait.memory.plain_index import PlainIndex
from plait.testing.memory import MemoryContract, RecallContract
from plait.testing.memory.case import (
    CountingIndex,
    last_recall,
    new_session,
    proposals,
    recall,
    remember,
)


class TestStore(RecallContract):
    @pytest.fixture
    def index(self) -> None:
        return None


class TestPlain(MemoryContract):
    @pytest.fixture
    def index(self) -> PlainIndex:
        return PlainIndex()


class TestPlainFile(MemoryContract):
    @pytest.fixture
    def index(self, tmp_path: Path) -> PlainIndex:
        return PlainIndex(tmp_path / "index")


# ── filling ──────────────────────────────────────────────────────────────────────────────────


class Faulty(CountingIndex):
    """An index whose calls fail while `error` is set, or give `answer` while that is set."""

    def __init__(self, index: Index | None = None) -> None:
        super().__init__(index or PlainIndex())
        self.error: Exception | None = None
        self.failures = 0
        self.answer: list[Any] | None = None

    def put(self, id: str, text: str, owner: str) -> None:
        self._fail()
        super().put(id, text, owner)

    def search(self, query: str, owners: Sequence[str], limit: int) -> list[tuple[str, float]]:
        self._fail()
        return super().search(query, owners, limit) if self.answer is None else self.answer

    def _fail(self) -> None:
        if self.error is not None:
            self.failures += 1
            raise self.error


def test_a_new_process_puts_only_the_latest_texts_again(tmp_path: Path) -> None:
    session = new_session()
    first = CountingIndex(PlainIndex(tmp_path / "index"))
    session = remember(Memory(index=first), session, *[f"Fact {i}." for i in range(2 * STRIDE + 7)])
    assert first.calls == {"put": 2 * STRIDE + 7 + 2, "search": 1, "forget": 1}
    second = CountingIndex(PlainIndex(tmp_path / "index"))
    assert recall(Memory(index=second), session, "fact 3") != []
    assert second.calls == {"put": 7, "search": 2, "forget": 0}


def test_an_index_that_lost_its_contents_is_filled_again(tmp_path: Path) -> None:
    session = new_session()
    memory = Memory(index=PlainIndex(tmp_path / "index"))
    session = remember(memory, session, *[f"Fact {i}." for i in range(STRIDE + 1)])
    (tmp_path / "index").unlink()
    again = Memory(index=PlainIndex(tmp_path / "index"))
    assert len(recall(again, session, "fact", k=100)) == STRIDE + 1


def test_a_text_that_could_not_be_put_is_put_before_the_next_recall() -> None:
    index = Faulty()
    memory = Memory(index=index)
    session = remember(memory, new_session(), "The staging host is db-7.")
    index.error = ConnectionError("no route")
    session = remember(memory, session, "The staging port is 5432.", "The staging user is ann.")
    assert index.failures == 1, "the second write does not wait for it"
    failed, hits = memory.recall(session, "staging")
    body = failed.events[-1].body
    assert hits == [] and isinstance(body, RecallFailed)
    assert body.failure.message.startswith("the index plain failed: ConnectionError: no route.")
    index.error = None
    assert len(recall(memory, failed, "staging")) == 3


@pytest.mark.parametrize(
    "answer", [[("a" * 64, float("nan"))], [(7, 1.0)], [("a" * 64,)], [None], ["ab"]]
)
def test_an_answer_that_makes_no_sense_is_a_failed_recall(answer: list[Any]) -> None:
    index = Faulty()
    memory = Memory(index=index)
    session = remember(memory, new_session(), "The staging host is db-7.")
    index.answer = answer
    failed, hits = memory.recall(session, "staging")
    assert hits == [] and failed.events[-1].kind == RecallFailed.__name__
    assert failed.say("Go on.").text == "Go on."


def test_an_index_cannot_show_a_memory_to_another_reader() -> None:
    index = Faulty()
    memory = Memory(index=index)
    ann = remember(memory, new_session("ann"), "The code of the door is 7.")
    (secret,) = proposals(ann)
    index.answer = [(secret.id, 1.0), ("f" * 64, 0.9), (secret.id, 0.8)]
    assert recall(memory, ann, "anything") == ["The code of the door is 7."]
    bob, hits = memory.recall(new_session("bob", store=ann.store), "code of the door")
    body = last_recall(bob)
    assert hits == [] and (body.left_out, body.candidates, body.unknown) == ((), (), 1)


def test_two_stores_share_an_index() -> None:
    memory = Memory(index=PlainIndex())
    one = remember(memory, new_session(), "The staging host is db-1.")
    other = remember(memory, new_session(), "The staging host is db-2.")
    assert recall(memory, one, "staging host") == ["The staging host is db-1."]
    assert recall(memory, other, "staging host") == ["The staging host is db-2."]


def test_further_parts_of_a_score_count_with_an_index() -> None:
    def importance_of(row: Mapping[str, Any]) -> float:
        return row["importance"] / 10

    parts, weights = {"importance": importance_of}, {"importance": 2.0}
    memory = Memory(index=PlainIndex(), parts=parts, weights=weights)
    session = new_session()
    for importance, text in ((1, "The house burns, the house!"), (9, "The house is green.")):
        session = memory.remember(session, text, evidence=session, importance=importance)
    _, hits = memory.recall(session, "house")
    assert [hit.text for hit in hits] == ["The house is green.", "The house burns, the house!"]
    assert set(hits[0].parts) == {"plain", "importance"}
