"""Recalling: the record of a read, its time, its scopes, its place in runs."""

from __future__ import annotations

from typing import Any

import pytest

from plait import Memory, Session, Store, Workflow, open_store, replay
from plait.errors import ReplayDiverged, StoreCorrupt, UnknownMemory
from plait.event.kinds import MemoryProposed, MemoryRecalled, RecallFailed
from plait.memory.items import hits_of
from plait.memory.recall import StoreFinder
from plait.memory.scopes import Viewer
from plait.store import Found
from tests.support import bodies, events_of, kinds
from tests.support.runs import set_clock_ahead

TEXT = "The staging database is read-only."
DAY = 86_400_000_000


def texts(hits: Any) -> list[str]:
    return [hit.text for hit in hits]


# ── the record ───────────────────────────────────────────────────────────────────────────────


def test_a_read_says_who_asked_what_was_found_and_what_was_left_out(
    store: Store, memory: Memory
) -> None:
    session = Session("Hi", user="ann", project="shop", store=store)
    session = memory.remember(session, TEXT, scope="project")
    session = memory.remember(session, "Staging is rebuilt at night.", scope="user")
    session = memory.remember(session, "Staging feels slow.", evidence=2, actor="agent:a")
    number = store.number
    session, hits = memory.recall(session, "What of staging?", k=1, purpose="plan")
    event = session.events[-1]
    body = event.body
    assert isinstance(body, MemoryRecalled)
    assert (body.query, body.k, body.purpose) == ("What of staging?", 1, "plan")
    assert body.scopes == ("session", "project", "user") and body.as_of == number
    assert event.actor == "human:ann"
    assert event.header.causes == (hits[0].id,)
    assert len(body.hits) == 1 and len(body.candidates) == 1
    assert all(score.score > 0 and score.parts for score in (*body.hits, *body.candidates))
    assert [each.why for each in body.left_out] == ["quarantined"]
    assert hits == hits_of(store, event)  # as it is read back


def test_no_match_is_no_hit_and_still_on_record(store: Store, memory: Memory) -> None:
    session = memory.remember(Session("Hi", user="ann", store=store), TEXT, scope="user")
    session, hits = memory.recall(session, "zebra crossing")
    assert hits == [] and kinds(session)[-1] == "MemoryRecalled"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("会议改到星期三下午三点。", "会议什么时候?"),
        ("会議は水曜日に変更されました。", "会議はいつ?"),
        ("การประชุมเลื่อนไปวันพุธ", "ประชุม"),
        ("Die Größe der Straße ist fünf Meter.", "grosse strasse"),
        ("Ｆｕｌｌｗｉｄｔｈ codes are accepted.", "fullwidth code"),
        ("Встреча перенесена на среду.", "встреча"),
    ],
)
def test_other_scripts_are_found(store: Store, memory: Memory, text: str, query: str) -> None:
    session = memory.remember(Session("Hi", user="ann", store=store), text, scope="user")
    assert texts(memory.recall(session, query)[1]) == [text]


def test_a_broken_memory_is_not_an_empty_one(store: Store) -> None:
    class Broken(StoreFinder):
        def find(self, store: Store, query: str, viewer: Viewer, limit: int) -> Found:
            raise StoreCorrupt("the index", "it is torn")

    class BrokenMemory(Memory):
        def finder(self, *, by_store: bool = False) -> StoreFinder:
            return Broken()

    session, hits = BrokenMemory().recall(Session("Hi", store=store), "anything")
    assert hits == []
    (failed,) = bodies(session, RecallFailed)
    assert failed.failure.kind == "StoreCorrupt"


def test_a_person_who_looks_leaves_no_event(store: Store, memory: Memory) -> None:
    session = memory.remember(Session("Hi", user="ann", store=store), TEXT, scope="user")
    before = store.number
    found = memory.search("staging", session=session)
    assert [item.text for item, _ in found] == [TEXT]
    assert [item.text for item, _ in memory.search("staging")] == [TEXT]
    assert memory.items(session) and memory.get(found[0][0].short) and memory.pending() == []
    assert store.number == before


# ── time ─────────────────────────────────────────────────────────────────────────────────────


def test_as_of_answers_what_was_believed_then(store: Store, memory: Memory) -> None:
    session = Session("Hi", user="ann", store=store)
    session = memory.remember(session, "Ann lives in Rome.", scope="user", key="home")
    then = session
    session = memory.remember(session, "Ann lives in Oslo.", scope="user", key="home")
    assert texts(memory.recall(session, "Ann lives")[1]) == ["Ann lives in Oslo."]
    session = session.reload()
    session, hits = memory.recall(session, "Ann lives", as_of=then)
    assert texts(hits) == ["Ann lives in Rome."]
    session, hits = memory.recall(session, "Ann lives", as_of=then.at(2))
    assert texts(hits) == []
    found = memory.search("Ann lives", as_of=then)
    assert [item.text for item, _ in found] == ["Ann lives in Rome."]


def test_valid_time_expiry_and_review(store: Store, memory: Memory) -> None:
    session = Session("Hi", user="ann", store=store)
    now = session.events[-1].time
    session = memory.remember(
        session, "The sale runs now.", valid_from=now - DAY, valid_until=now + DAY
    )
    session = memory.remember(session, "The sale code is blue.", expires=now + DAY)
    session = memory.remember(session, "The sale page is new.", review_by=now + DAY)
    session, hits = memory.recall(session, "sale", k=9)
    assert len(hits) == 3 and not any(hit.marks for hit in hits)
    session, hits = memory.recall(session, "sale", valid_at=now + 2 * DAY)
    assert "The sale runs now." not in texts(hits)
    assert [each.why for each in session.events[-1].body.left_out] == ["not valid any more"]  # type: ignore[attr-defined]
    set_clock_ahead(session, 2 * 86_400)
    session, hits = memory.recall(session, "sale", shown=True)
    assert [(hit.text, hit.marks) for hit in hits] == [("The sale page is new.", ("stale",))]
    shown = session.events[-1].body.shown[0].text  # type: ignore[attr-defined]
    assert "stale" in shown and "2 days old" in shown


def test_the_prompts_budget_leaves_the_rest_out(store: Store) -> None:
    memory = Memory(tokens_max=120)
    session = Session("Hi", user="ann", store=store)
    session = memory.remember(session, "Staging is small.")
    session = memory.remember(session, "Staging " + "is a long story " * 40)
    session, hits = memory.recall(session, "staging", shown=True)
    body = session.events[-1].body
    assert isinstance(body, MemoryRecalled)
    assert texts(hits) == ["Staging is small."]
    assert [each.why for each in body.left_out] == ["over the prompt's budget"]
    assert len(body.shown[0].text) <= 480 and "[m:" in body.shown[0].text  # type: ignore[union-attr]


# ── scopes ───────────────────────────────────────────────────────────────────────────────────


def test_a_memory_out_of_scope_is_answered_as_one_that_does_not_exist(
    store: Store, memory: Memory
) -> None:
    mine = memory.remember(Session("Hi", user="ann", store=store), TEXT, scope="user")
    (event,) = events_of(mine, MemoryProposed)
    other = Session("Hi", user="ben", store=store)
    assert memory.recall(other, TEXT)[1] == []
    assert memory.items(other, state=None) == []
    other = other.reload()
    messages: list[str] = []
    for name in (event.id, "f" * 64):
        for act in (
            lambda name=name: memory.get(name, session=other),
            lambda name=name: memory.why(name, session=other),
            lambda name=name: memory.forget(name, session=other),
            lambda name=name: memory.why_not(other, "staging", name),
        ):
            with pytest.raises(UnknownMemory) as error:
                act()
            messages.append(str(error.value).replace(name, "ID"))
    assert len(set(messages)) == 1
    body = other.events[-1].body
    assert isinstance(body, MemoryRecalled) and body.candidates == body.left_out == ()


def test_scores_tell_nothing_of_memories_that_a_reader_may_not_see(
    store: Store, memory: Memory
) -> None:
    """BM25 counts rows, but not those of other owners, of later commits, or off the path."""
    texts = ["Staging is slow on Mondays.", "The host of staging is red.", "Red hosts are slow."]
    query = "Which red host is slow on staging?"
    session = Session("Hi", user="ann", store=store)
    for number, text in enumerate(texts):
        session = memory.remember(session, text, scope="user" if number else "session")
    then, number = session, store.number

    def answer(reader: Session, **how: Any) -> list[Any]:
        return [(item.text, score) for item, score in memory.search(query, session=reader, **how)]

    before = answer(session)
    assert len(before) == 3
    other = Session("Hi", user="bob", project="shop", store=store)
    for count in range(12):
        text = f"Staging host {count} of red {'slow ' * count}racks."
        other = memory.remember(other, text, scope="user" if count % 3 else "session")
    assert answer(session) == before
    branch = session.fork("aside")
    branch = memory.remember(branch, "A red host of the branch.")
    assert answer(session) == before and answer(branch) != before
    session = memory.remember(session, "Another red host, on staging.")
    session = memory.remember(session, "Slow, slow staging of slow hosts.", scope="user")
    assert answer(session) != before
    assert answer(session, as_of=then) == answer(session, as_of=number) == before
    latest = answer(session)
    session = memory.remember(session, "A red host that is left behind.")
    assert answer(session) != latest
    session = session.rewind(session.seq - 2)
    assert answer(session) == latest


def test_session_scope_rides_on_the_path(store: Store, memory: Memory) -> None:
    root = memory.remember(Session("Hi", store=store), "Cats purr.")
    left = memory.remember(root.fork("left"), "Cats climb.")
    right = memory.remember(root.fork("right"), "Cats sleep.")
    assert texts(memory.recall(left, "cats", k=9)[1]) == ["Cats purr.", "Cats climb."]
    assert texts(memory.recall(root.fork(at=2), "cats", k=9)[1]) == []
    merged = root.reload().merge(left.reload(), right.reload())
    assert set(texts(memory.recall(merged, "cats", k=9)[1])) == {
        "Cats purr.",
        "Cats climb.",
        "Cats sleep.",
    }
    back = merged.reload().rewind(2)
    assert memory.recall(back, "cats")[1] == []
    assert memory.recall(Session("Ho", store=store), "cats")[1] == []


def test_two_branches_that_superseded_the_same_are_disputed_until_one_is_chosen(
    store: Store, memory: Memory
) -> None:
    root = memory.remember(Session("Hi", store=store), "The port is 80.", key="port")
    left = memory.remember(root.fork("left"), "The port is 81.", key="port")
    right = memory.remember(root.fork("right"), "The port is 82.", key="port")
    session, hits = memory.recall(root.merge(left, right), "which port?")
    assert {(hit.text, hit.marks) for hit in hits} == {
        ("The port is 81.", ("disputed",)),
        ("The port is 82.", ("disputed",)),
    }
    session = memory.remember(session, "The port is 83.", key="port")
    session, hits = memory.recall(session, "which port?")
    assert [(hit.text, hit.marks) for hit in hits] == [("The port is 83.", ())]


def test_a_successor_starts_with_the_memories_of_its_predecessor(
    store: Store, memory: Memory
) -> None:
    session = memory.remember(Session("Hi", store=store), "Cats purr.")
    assert texts(memory.recall(session.successor("Go on."), "cats")[1]) == ["Cats purr."]


# ── runs ─────────────────────────────────────────────────────────────────────────────────────


class Asker(Workflow):
    """Recalls, remembers the number of hits, and recalls again."""

    def __init__(self) -> None:
        self.memory, self.query = Memory(), "staging"

    def forward(self, session: Session) -> Session:
        session, hits = self.memory.recall(session, self.query)
        session = self.memory.remember(session, f"Found {len(hits)}.", evidence=2)
        session, _ = self.memory.recall(session, "found staging", purpose="validate")
        return session.say(f"{len(hits)} {hits[0].text if hits else ''}", role="assistant")


def test_replay_and_resume_make_no_search(store: Store, memory: Memory) -> None:
    other = memory.remember(Session("Hi", project="shop", store=store), TEXT, scope="project")
    session = Asker()(Session("Ask", project="shop", store=store))
    assert session.text == f"1 {TEXT}"
    # the record answers, whatever has become of memory
    memory.forget(events_of(other, MemoryProposed)[0], actor="human:ben")
    memory.remember(other.reload(), "Staging is new.", scope="project")

    blind = Asker()
    blind.memory = _NoSearch()
    assert replay(session, blind).head == session.head


class _NoSearchFinder(StoreFinder):
    def find(self, store: Store, query: str, viewer: Viewer, limit: int) -> Found:
        raise AssertionError("a search was made")


class _NoSearch(Memory):
    def finder(self, *, by_store: bool = False) -> StoreFinder:
        return _NoSearchFinder()


def test_another_query_than_the_recorded_one_diverges(store: Store) -> None:
    session = Asker()(Session("Ask", project="shop", store=store))
    other = Asker()
    other.query = "production"
    with pytest.raises(ReplayDiverged) as error:
        replay(session, other)
    assert "production" in str(error.value)


def test_the_rows_are_as_new_after_a_rebuild(sqlite: Store) -> None:
    memory = Memory(store=sqlite)
    session = Session("Hi", user="ann", store=sqlite)
    for number in range(30):
        session = memory.remember(session, f"Cat {number} of {number % 7} sleeps.", scope="user")
    before = memory.search("cat 3 sleeps", session=session, k=9)
    memory.rebuild()
    assert memory.search("cat 3 sleeps", session=session, k=9) == before
    again = open_store(sqlite.address)
    assert Memory(store=again).search("cat 3 sleeps", session=session, k=9) == before
