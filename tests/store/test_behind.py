"""A store whose numbers are not dense and settle late, and that folds behind, keeps the contract;
and whoever reads the present sees what is visible, settled or not.
"""

from __future__ import annotations

import pytest

from plait import Memory, Session
from plait.event.kinds import FactRecorded, ValidationRecorded
from plait.memory.plain_index import PlainIndex
from plait.memory.rows import MemoryRows
from plait.session import EffectRows, GraphRows, InboxRows, SessionRows, TurnRows, verify
from plait.store import read_mark, visible_events
from plait.testing import Seeded, StoreContract
from plait.testing.writing import Opened, begin, extend, message
from plait.workspace.gc import collect, roots_of
from tests.store.behind import BehindStore
from tests.support.stores import tree

BUILT_IN = (SessionRows(), GraphRows(), InboxRows(), TurnRows(), EffectRows(), MemoryRows())


class TestBehind(StoreContract):
    durable = False
    dense = False
    folds_inside = False

    @pytest.fixture
    def opened(self) -> Opened:
        return lambda *projections: BehindStore(source=Seeded(), projections=projections)


@pytest.fixture
def store() -> BehindStore:
    """A store in which another transaction has been open from the beginning."""
    found = BehindStore("behind", source=Seeded(), projections=BUILT_IN)
    found.lag = 10**6
    return found


def test_a_reader_of_the_present_sees_what_is_not_settled(store: BehindStore) -> None:
    log = begin(store, message("one"))
    (fact,) = extend(store, log, FactRecorded("k", 1, "fact"))
    assert store.number == 0 and list(store.feed()) == []
    assert [event.id for _, event in visible_events(store)][-1] == fact.id
    mark = read_mark(store, frozenset({"FactRecorded"}))
    assert (mark.number, mark.seen) == (0, {store.number_of(fact.id)})


@pytest.mark.parametrize("index", [None, PlainIndex()])
def test_a_memory_is_found_at_once(store: BehindStore, index: PlainIndex | None) -> None:
    memory = Memory(store=store, index=index) if index is not None else Memory(store=store)
    session = Session("Hi", user="ann", project="p", store=store)
    session = memory.remember(session, "The staging database is db-2.", scope="project")
    session, hits = memory.recall(session, "staging database")
    assert [hit.text for hit in hits] == ["The staging database is db-2."]
    assert memory.search("staging database", session=session)
    plan = memory.rollback(hits[0].id)
    plan.apply(reason="wrong")
    assert memory.recall(session, "staging database")[1] == []
    assert list(verify(store, state=True)) == []
    store.lag = 0
    assert list(verify(store, state=True)) == []


def test_trees_of_events_that_are_not_settled_are_kept(store: BehindStore) -> None:
    root = tree(store, a="x")
    log = begin(store, ValidationRecorded("tests", True, tree=root))
    assert roots_of(store) == {root}
    store.lag = 0
    extend(store, log, message("later"))
    assert collect(store, before=store.number).removed == 0
