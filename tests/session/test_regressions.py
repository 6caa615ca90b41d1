"""Faults that were there once, and must not come back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plait import Session, Store, open_store
from plait.errors import GateUnmet, InvalidValue, StoreFailed
from plait.event import Body
from plait.event.kinds import (
    ApprovalGranted,
    ApprovalRequested,
    Failure,
    Merged,
    Place,
    Placement,
    PlacementChanged,
    Text,
    ToolFailed,
    ToolRequested,
    ToolResolved,
    ToolReturned,
    ToolUnknown,
)
from plait.ids import Digest
from plait.session import verify
from plait.session.fold import Folds, state_at
from plait.session.ports import Act, Draft, store_at, writer_of
from plait.session.session import session_at
from plait.session.value import position_of
from tests.support import ForkedProgram, RawSql, growth, tree, wait_until


def put(session: Session, body: Body, call: str | None = None) -> Session:
    return session_at(
        writer_of(None).append(
            position_of(session), [Draft(body, Act("agent:x", "model", call=call))]
        )
    )


@pytest.fixture
def root(store: Store) -> Session:
    return Session("q", store=store)


def test_a_long_row_of_merges_opens_quickly(root: Session, store: Store) -> None:
    session, sessions = root, [root]
    for i in range(80):
        session = session.merge(session.fork(f"f{i}").say("b").fact(f"k{i}", i))
        sessions.append(session)

    def open_after(merges: int) -> None:
        store.drop_snapshots()
        assert (
            len(Session.open(str(sessions[merges].id), store=store).at(sessions[merges].seq).facts)
            == merges
        )

    assert growth(open_after, 40) < 2.5  # it once grew with the fourth power


def test_what_two_sides_said_alike_is_one_word(root: Session) -> None:
    a, b = root.fork("a").fact("db", "pg"), root.fork("b").fact("db", "pg")
    a, b = a.merge(b), b.fact("db", "mysql")
    assert a.fork().merge(b).facts["db"] == "mysql" == b.fork().merge(a).facts["db"]
    c, d = root.fork("c").todo("x", key="x"), root.fork("d").todo("x", key="x")
    assert c.merge(d).merge(d.settle("x")).pending == {}


def test_equal_words_passed_round_in_a_circle(root: Session) -> None:
    files = tree(store_at(root.store), a="1")
    a, b, c = (
        put(root.fork(name).todo("write a test"), PlacementChanged(Placement("local"), files))
        for name in "abc"
    )
    met = a.merge(c).merge(b.merge(a), c.merge(b))
    assert len(met.pending) == 1 and met.files.tree == files


def test_a_chosen_workspace_is_the_one_that_holds(root: Session) -> None:
    trees = {name: tree(store_at(root.store), x=name) for name in "ab"}
    a, b = (
        put(root.fork(name), PlacementChanged(Placement("local"), trees[name])) for name in "ab"
    )
    assert a.merge(b, resolve={"(workspace)": trees["b"]}).files.tree == trees["b"]
    with pytest.raises(InvalidValue):
        root.fact("(workspace)", 1)


def test_a_verdict_does_not_outlive_a_detachment(root: Session) -> None:
    long = root
    for i in range(8):
        long = long.say(str(i))
    apart = long.checks.require("tests").checks.record("tests", True).detach()
    assert apart.checks.unmet == {}
    with pytest.raises(GateUnmet):
        apart.say("rewrite everything").close()


def test_merging_against_a_base_is_the_same_both_ways(store: Store) -> None:
    base, one = (
        Session("b", store=store).fact("db", 1),
        Session("o", store=store).fact("db", 1).fact("o", 1),
    )
    other = Session("t", store=store).fact("t", 1)
    assert dict(one.fork().merge(other, base=base).facts) == {"o": 1, "t": 1}
    merged = other.merge(one, base=base)
    # what is gone stays gone
    assert dict(merged.facts) == {"t": 1, "o": 1} == dict(merged.merge(one.say("x")).facts)


def test_equal_values_act_alike(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Session("x", user="u", actor="service:ci", store=store)
    assert (
        made.fork().events[-1].actor
        == Session.open(made.id, store=store).fork().events[-1].actor
        == "human:u"
    )
    nobody = Session("x", store=store)
    monkeypatch.setenv("PLAIT_ACTOR", "service:later")
    assert nobody.fork().events[-1].actor == "service:later"


def test_a_whole_id_is_never_a_label(root: Session, store: Store) -> None:
    root.fork(root.id)
    assert Session.open(root.id, store=store) == root


def test_a_request_in_flight_is_listed_as_not_undone(root: Session) -> None:
    asked = put(root, ToolRequested("mail", {}, "at_most_once"), call="c1")
    assert asked.rewind(2).events[-1].body.not_undone == (asked.head,)  # type: ignore[attr-defined]


PAY, ASK = ToolRequested("pay", {}, "at_most_once"), Digest("0" * 64)


@pytest.mark.parametrize(
    ("bodies", "count"),
    [
        ([PAY, ToolReturned((Text("ok"),))], 1),
        ([PAY, ToolFailed(Failure("HTTPError", "503"))], 1),
        ([PAY, ToolFailed(Failure("Denied", "no"))], 0),
        ([PAY, ToolFailed(Failure("BudgetExceeded", "it was not run"))], 0),
        ([PAY, ToolFailed(Failure("Truncated", "it was not run"))], 0),
        ([replace(PAY, decision="ask")], 0),
        ([replace(PAY, decision="ask"), ApprovalRequested(ASK, None)], 0),
        ([replace(PAY, decision="ask"), ApprovalRequested(ASK, None), ApprovalGranted(ASK)], 1),
        ([PAY, ToolUnknown(ASK), ToolResolved(ASK, "did_not_happen")], 0),
        ([PAY, ToolUnknown(ASK), ToolResolved(ASK, "compensated")], 0),
        ([PAY, ToolUnknown(ASK), ToolResolved(ASK, "happened")], 1),
        ([PAY, ToolFailed(Failure("HTTPError", "503")), ToolUnknown(ASK)], 1),
        ([PAY, ToolFailed(Failure("X", "503")), replace(PAY, attempt=2), ToolReturned(())], 2),
    ],
)
def test_a_rewind_lists_effects_that_did_or_may_have_happened(
    root: Session, bodies: list[Any], count: int
) -> None:
    session = root
    for body in bodies:
        if isinstance(body, (ToolUnknown, ToolResolved)):
            requests = [event for event in session.events if event.kind == "ToolRequested"]
            body = replace(body, request=requests[-1].id)
        drafts = [Draft(body, Act("agent:x", "program", call="c1"))]
        session = session_at(writer_of(None).append(position_of(session), drafts))
    assert len(session.rewind(2).events[-1].body.not_undone) == count  # type: ignore[attr-defined]


def test_a_merge_whose_places_are_not_its_parents(root: Session, store: Store) -> None:
    branch, other = root.fork("b").say("x"), root.fork("c").say("y")
    for place in (Place(other.id, other.seq, other.head), Place(branch.id, 999, branch.head)):
        forged = Draft(Merged((place,)), Act("human:x"))
        writer_of(None).append(position_of(root.fork()), [forged], merges=(branch.head,))
    assert len([fault for fault in verify(store, state=True)]) >= 1


def test_what_is_shown_is_what_is_verified(sqlite: Store, tmp_path: Path) -> None:
    root = Session("alpha", store=sqlite)
    branch = root.fork("B").say("honest words")
    merged, apart = root.fork("A").merge(branch), branch.detach()
    sql = RawSql(tmp_path / ".plait" / "store.db")
    forged = "CAST(replace(CAST(plain_body(codec, body) AS TEXT), 'honest', 'forged') AS BLOB)"
    sql(f"UPDATE event SET body = {forged}, codec = codec & 8")
    sql.close()
    for session in (merged, apart):
        assert "forged words" in [each.text for each in session.messages]
        assert [fault.log for fault in verify(sqlite, [session.id])] == [branch.id]


def test_moved_commit_numbers_are_found(sqlite: Store, tmp_path: Path) -> None:
    Session("x", store=sqlite).say("y")
    sql = RawSql(tmp_path / ".plait" / "store.db")
    sql("UPDATE event SET number = 1000 WHERE seq = 3")
    sql.close()
    assert any("commit numbers run to 1000" in fault.what for fault in verify(sqlite))


def test_what_is_written_is_returned_though_a_cache_fails(
    root: Session, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise StoreFailed("store.db", "no")

    session = root
    while session.seq < 255:
        session = session.scratch("n", session.seq)
    branch = session.at(100).fork("b").say("x")
    branch.facts, session.facts  # pyright: ignore[reportUnusedExpression]  # known before it breaks  # noqa: B018
    with monkeypatch.context() as patch:
        patch.setattr(type(store), "read", broken)
        session = session.say("crosses a multiple of 256")
    assert session.seq == 256 and session.facts == {}
    with monkeypatch.context() as patch:
        patch.setattr(type(store), "read", broken)
        merged = session.merge(branch)
    assert merged.seq == 257 and merged.messages[-1].text == "x"


WRITES = """
import sys
from plait import Session
from plait.errors import StaleHead
s = Session.open(sys.argv[2], store=sys.argv[1])
while True:
    try:
        s = s.say("x" * 5000).merge(s.fork("b").todo("t")) if s.seq % 7 else s.say("y")
    except StaleHead:
        s = s.reload()
"""


def test_an_honest_store_is_clean_while_others_write(sqlite: Store) -> None:
    session = Session("x", tags={"a": "b"}, store=sqlite)
    writers = [
        ForkedProgram([sys.executable, "-c", WRITES, sqlite.address, session.id]) for _ in range(2)
    ]
    try:
        wait_until(lambda: sqlite.number >= 60)
        for state in (False, True):
            assert list(verify(sqlite, state=state)) == []
            assert list(verify(sqlite, [session.id], state=state)) == []
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert sqlite.number >= 60 and list(verify(sqlite, state=True)) == []


def test_a_fork_costs_the_same_whatever_it_is_of(tmp_path: Path) -> None:
    sizes: list[float] = []
    for tags in ({}, {f"tag-{i}": "value" for i in range(100)}):
        store = open_store(tmp_path / f"tags-{len(tags)}" / ".plait")
        session = Session("x", title="t" * 100, user="u", project="p", tags=tags, store=store)
        path = tmp_path / f"tags-{len(tags)}" / ".plait" / "store.db"
        before = _used(path)
        for _ in range(300):
            session.fork("label")
        store.close()
        sizes.append((_used(path) - before) / 300)
    assert max(sizes) <= 1024 and abs(sizes[0] - sizes[1]) < 100, sizes


def _used(path: Path) -> int:
    sql = RawSql(path)
    sql("PRAGMA wal_checkpoint(TRUNCATE)")
    sql.close()
    return path.stat().st_size


def test_a_branch_below_its_parents_own_fork_knows_nothing_of_what_came_after_it(
    sqlite: Store,
) -> None:
    """Its lineage ends at 2, whatever was merged at 3 into the log that its parent was forked from
    at 5.
    """
    root = Session("first", store=sqlite)
    late = root.merge(root.fork("a").fact("k", 1)).say("on").fork("late")
    below = late.at(2).fork("below").scratch("x", 1)
    folds = Folds(sqlite, cached=False)
    folds.state(late.id, late.seq)  # meets the merge on its way
    assert folds.state(below.id, below.seq) == state_at(sqlite, below.id, below.seq, cached=False)
    assert below.merge(late).close().facts["k"] == 1
    assert list(verify(sqlite, state=True)) == []
