"""The verbs of a session, one by one, and their refusals."""

from __future__ import annotations

import copy
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from plait import Budget, Session, Store, file, image, open_store
from plait.errors import (
    GateUnmet,
    InvalidInput,
    InvalidValue,
    MergeConflict,
    NoCommonBase,
    NoHost,
    NoStore,
    NotSettled,
    StaleHead,
    UnknownEvent,
    UnknownKey,
    UnknownPlace,
    UnknownRevision,
    WrongStatus,
)
from plait.event.kinds import (
    ApprovalGranted,
    ApprovalRequested,
    BudgetSet,
    Data,
    Failure,
    File,
    Image,
    ModelAsked,
    ModelFailed,
    ModelReplied,
    Placement,
    PlacementChanged,
    Price,
    Reasoning,
    RunFinished,
    RunStarted,
    Text,
    ToolRequested,
    ToolReturned,
    Trees,
    Usage,
)
from plait.ids import Digest
from plait.session import ABSENT, verify
from plait.session.ports import BINDINGS, bind_host, store_at
from plait.session.session import session_at
from plait.session.value import position_of
from tests.support import record, tree

D = Digest("d" * 64)


@pytest.fixture
def session(store: Store) -> Session:
    return Session(
        "Why?",
        title="cart bug",
        user="u-17",
        project="shop",
        tags={"team": "web"},
        budget=Budget(tokens_max=100),
        store=store,
    )


# ── the value ────────────────────────────────────────────────────────────────────────────────


def test_opening_writes_two_events_at_once(session: Session) -> None:
    assert [event.kind for event in session.events] == ["SessionOpened", "MessageSaid"]
    assert (session.title, session.user, session.project, session.tags) == (
        "cart bug",
        "u-17",
        "shop",
        {"team": "web"},
    )
    assert {event.header.actor for event in session.events} == {"human:u-17"}
    assert session.status == "open" and session.text == "Why?" and session.seq == 2


def test_a_session_may_begin_in_silence(store: Store) -> None:
    session = Session(store=store)
    assert (
        session.seq == 1 and session.messages == [] and session.text == "" and session.title == ""
    )


def test_reopened_it_is_the_same(session: Session, store: Store) -> None:
    again = Session.open(session.id, store=store)
    assert again == session and hash(again) == hash(session) and again is not session
    assert copy.copy(session) is session and copy.deepcopy(session) is session
    assert session != "session"


def test_nothing_can_be_set(session: Session) -> None:
    with pytest.raises(AttributeError, match="never changes"):
        session.id = "x"  # type: ignore[misc,assignment]
    with pytest.raises(AttributeError, match="never changes"):
        del session.seq  # type: ignore[misc]


def test_a_repr_helps_and_never_raises(session: Session) -> None:
    assert repr(session) == f"<Session {session.short}@2 'cart bug' open>"
    assert repr(session.fork("strict")).endswith("@3 'strict' 'cart bug' open>")
    lost = session_at(type(position_of(session))(session.store, session.id, 99, session.head))
    assert repr(lost).startswith("<Session ") and str(lost).startswith("<Session ")


def test_printed_it_ends_with_the_transcript(session: Session) -> None:
    for number in range(9):
        session = session.say(f"line {number}\nand more", role="assistant", name="bo")
    lines = str(session).split("\n")
    assert lines[:2] == [repr(session), "(4 earlier messages: session.transcript())"]
    assert lines[-2:] == ["assistant bo: line 8", "  and more"]
    assert session.transcript().count("line") == 9
    hostile = session.say("a\x1b]0;owned\x07b\u202e\x9bc", role="assistant", name="e\x1b[1mve")
    assert hostile.transcript().endswith("assistant eve: ab")  # a terminal obeys the rest


def test_the_user_acts_unless_another_is_named(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Session.open(session.id, store=session.store)
    assert opened.say("x").events[-1].header.actor == "human:u-17"
    assert opened.reload().fact("k", 1, actor="service:ci").events[-1].header.actor == "service:ci"
    assert (
        opened.reload().say("x", role="assistant", name="judge").events[-1].header.actor
        == "agent:judge"
    )
    assert opened.reload().say("x", role="system").events[-1].header.actor == "service:program"
    monkeypatch.setenv("PLAIT_ACTOR", "service:night")
    assert Session(store=session.store).events[0].header.actor == "service:night"
    monkeypatch.setenv("PLAIT_ACTOR", "nobody")
    with pytest.raises(InvalidValue, match="PLAIT_ACTOR"):
        Session(store=session.store)
    spaced = Session(store=session.store, user="Ann B. \u202e")
    assert (
        spaced.events[0].header.actor == "human:Ann%20B.%20%E2%80%AE"
        and spaced.user == "Ann B. \u202e"
    )


# ── saying ───────────────────────────────────────────────────────────────────────────────────


def test_all_kinds_of_content_can_be_said(session: Session, tmp_path: Path) -> None:
    (tmp_path / "figure.png").write_bytes(b"\x89PNG")
    (tmp_path / "notes.txt").write_text("notes")
    said = session.say(
        "look",
        tmp_path / "figure.png",
        tmp_path / "notes.txt",
        image(b"GIF89a", "image/gif", alt="a cat"),
        file(b"1,2", "table.csv"),
        {"rows": 2},
        [1, 2],
        Reasoning("because"),
        Data({"x": "y" * 9000}),
    )
    parts = said.messages[-1].parts
    assert [type(part) for part in parts] == [
        Text,
        Image,
        File,
        Image,
        File,
        Data,
        Data,
        Reasoning,
        Data,
    ]
    assert said.files.blob(parts[1].blob) == b"\x89PNG"  # type: ignore[arg-type]
    assert parts[2].media_type == "text/plain" and parts[4].media_type == "text/csv"  # type: ignore[union-attr]
    assert parts[8].value == {"x": "y" * 9000}  # type: ignore[union-attr]
    assert said.messages[-1].text.startswith(
        'look\n[image: image/png]\n[file: notes.txt]\n[image: a cat]\n[file: table.csv]\n{"rows":2}'
    )


def test_a_long_text_is_kept_once_however_often_it_is_said(sqlite: Store) -> None:
    text = random.Random(7).randbytes(200_000).hex()  # hardly compresses: a copy would show
    before = sqlite.describe()["bytes"]
    session = Session(text, store=sqlite)
    for _ in range(20):
        session = session.say(text)
    assert session.text == text and session.messages[3].text == text
    size = sqlite.describe()["bytes"]
    assert isinstance(before, int) and isinstance(size, int) and size - before < 1_000_000
    assert list(verify(sqlite)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": 5},
        {"budget": Budget(tokens_max=-1)},
        {"budget": Budget(cost_usd_max=float("nan"))},
        {"tags": ["a"]},
        {"tags": {"a": 1}},
        {"title": 5},
    ],
)
def test_wrong_arguments_are_typed_errors(store: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Session("x", store=store, **wrong)
    session = Session("x", store=store)
    refused: list[Any] = [
        lambda: session.say("x", role="robot"),  # type: ignore[arg-type]
        lambda: session.say(""),
        lambda: Session("", store=store),
        lambda: session.diff("b"),  # type: ignore[arg-type]
        lambda: session.fork(budget=Budget(steps_max=-1)),
        lambda: Session.list(tag="t=db", store=store),  # type: ignore[arg-type]
        lambda: Session.list(before="zz", store=store),  # type: ignore[arg-type]
        lambda: session.merge(session.fork(), resolve={"nothing": 1}),
    ]
    for act in refused:
        with pytest.raises(InvalidInput):
            act()
    with pytest.raises(UnknownRevision, match="a Session is not a name"):
        Session.open(session, store=store)  # type: ignore[arg-type]


def test_looking_does_not_make_a_store(tmp_path: Path) -> None:
    for look in (
        lambda: Session.list(store=tmp_path / "none"),
        lambda: Session.open("@", store=tmp_path / "none"),
    ):
        with pytest.raises(NoStore, match="plait init"):
            look()
    assert not (tmp_path / "none").exists()


def test_influence_follows_branches_of_branches(session: Session) -> None:
    branch = session.fork("a")
    early = branch.fork("early", at=2)  # from an inherited place
    merged = early.say("x").merge(branch.say("y"))
    found = {(step.how, step.branch) for step in merged.lineage.influence(2)}
    assert {("carried into", "a"), ("carried into", "early"), ("merged into", "early")} <= found


@pytest.mark.parametrize(
    "content",
    [
        (),
        (b"bytes",),
        (3,),
        ("half \ud800",),
        ({"x": float("nan")},),
        (object(),),
        (Path("/nowhere/at.all"),),
        ({1: 2},),
        ("x" * 2000 + "\ud800",),
    ],
)
def test_what_cannot_be_said_is_refused_before_anything_is_written(
    session: Session, content: Any
) -> None:
    with pytest.raises(InvalidInput):
        session.say(*content)
    assert session.reload() == session


@pytest.mark.parametrize(
    "make",
    [
        lambda: image(b"?"),
        lambda: image("/nowhere.png"),
        lambda: file(b"?"),
        lambda: image(b"x", None),
    ],
)
def test_content_without_a_type_or_name_is_refused(make: Any) -> None:
    with pytest.raises(InvalidValue):
        make()


@pytest.mark.parametrize(
    "text", ["\u2028\u2029\x85", "\0", "مرحبا", "漢字", "👩‍🚀", "\r\n\t", "x" * 5000 + "\u2028"]
)
def test_every_legal_text_comes_back_exactly(session: Session, text: str) -> None:
    assert Session.open(session.say(text).id, store=session.store).text == text


# ── knowing ──────────────────────────────────────────────────────────────────────────────────


def test_facts_decisions_findings(session: Session) -> None:
    known = (
        session.fact("db", "postgres 15", review_by=5)
        .decide("verdict", {"reject": [1]})
        .note("it is slow")
        .note("it is slow")
    )
    assert dict(known.facts) == {
        "db": "postgres 15",
        "verdict": {"reject": [1]},
        next(iter(known.facts.findings)): "it is slow",
    }
    assert list(known.facts.decisions) == ["verdict"] and list(known.facts.findings.values()) == [
        "it is slow"
    ]
    assert known.facts.of("db").review_by == 5 and known.facts.of("db").at.seq == 3
    assert repr(known.facts.decisions) == "{'verdict': {'reject': [1]}}"
    gone = known.retract("db", reason="moved")
    assert "db" not in gone.facts and "db" in known.facts
    with pytest.raises(UnknownKey, match="verdict"):
        gone.retract("db")
    assert "db" in gone.fact("db", None).facts


@pytest.mark.parametrize("key", ["", " ", "k" * 201, 5, None])
def test_a_key_is_a_name(session: Session, key: Any) -> None:
    for act in (
        lambda: session.fact(key, 1),
        lambda: session.scratch(key, 1),
        lambda: session.checks.require(key),
    ):
        with pytest.raises(InvalidValue):
            act()


def test_pending_work(session: Session) -> None:
    work = session.todo("write a test").todo("is it the coupon?", kind="question", key="q")
    assert [each.what for each in work.pending.values()] == ["write a test", "is it the coupon?"]
    assert work.pending["q"].kind == "question"
    done = work.settle("write a test", "written").settle("q")
    assert done.pending == {} and len(work.pending) == 2
    with pytest.raises(UnknownKey):
        done.settle("q")
    with pytest.raises(InvalidValue):
        session.todo("x", kind="wish")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue):
        session.todo("  ")
    assert "q" in done.todo("again", key="q").pending


def test_scratch_is_forked_and_rewound_but_not_merged_and_dropped_at_close(
    session: Session,
) -> None:
    one = session.scratch("step", {"n": 1})
    two = one.fork("b").scratch("step", {"n": 2}).scratch("mine", 1)
    assert one.scratchpad == {"step": {"n": 1}} and two.scratchpad == {"step": {"n": 2}, "mine": 1}
    assert one.merge(two).scratchpad == {"step": {"n": 1}}
    assert two.rewind(3).scratchpad == {"step": {"n": 1}}
    assert two.reload().scratch("step", None).scratchpad == {}
    assert two.fork().close().scratchpad == {}


def test_evidence_verdicts_and_links(session: Session, tmp_path: Path) -> None:
    (tmp_path / "plot.png").write_bytes(b"png")
    attached = (
        session.attach("loss", 0.25)
        .attach("plot", tmp_path / "plot.png")
        .attach("raw", b"bytes")
        .attach("fig", b"gif", media_type="image/gif")
    )
    assert [each.name for each in attached.evidence] == ["loss", "plot", "raw", "fig"]
    assert attached.evidence[0].parts == (Data(0.25),)
    judged = attached.checks.record(
        "tests", True, evidence=[attached.events[2], attached], detail={"passed": 3}
    )
    assert judged.checks.verdicts[0].passed and judged.checks.verdicts[0].evidence == (
        attached.events[2].id,
        attached.head,
    )
    linked = judged.lineage.link("langfuse", "trace/9", digest=D, note="the old run")
    assert linked.lineage.links[0].ref == "trace/9" and linked.lineage.links[0].digest == D
    for bad in (
        lambda: judged.checks.record("tests", "yes"),  # pyright: ignore[reportArgumentType]
        lambda: judged.lineage.link("", "x"),
        lambda: judged.lineage.link("s", "r", digest="12"),
    ):
        with pytest.raises(InvalidValue):
            bad()


def test_a_cause_must_exist(session: Session) -> None:
    with pytest.raises(UnknownEvent):
        session.fact("k", 1, because=D)
    with pytest.raises(UnknownPlace):
        session.fact("k", 1, because=17)
    known = session.fact("k", 1, because=[2, session.messages[0], session, session.head])
    assert known.events[-1].header.causes == (session.head,)


# ── events ───────────────────────────────────────────────────────────────────────────────────


def test_events_are_a_sequence(session: Session) -> None:
    grown = session.say("1").say("2").say("3")
    events = grown.events
    assert len(events) == 5 and [event.seq for event in events] == [1, 2, 3, 4, 5]
    assert [event.seq for event in events[1:4]] == [2, 3, 4]
    assert [event.seq for event in events[::-2]] == [5, 3, 1] and [
        event.seq for event in events[::2]
    ] == [1, 3, 5]
    assert events[-1].seq == 5 and events[4:2] == [] and events[10:] == []
    assert [event.seq for event in reversed(events)] == [5, 4, 3, 2, 1]
    assert session.events[1] in events and events[3] not in session.events and "x" not in events
    for index in (5, -6):
        with pytest.raises(IndexError):
            events[index]
    assert repr(events) == f"<5 events of {grown.short}@5>"


def test_events_by_what_they_are(session: Session) -> None:
    grown = session.say("1", role="assistant").fact("k", 1)
    events = grown.events
    assert [event.seq for event in events.where(kind="MessageSaid")] == [2, 3]
    assert [
        event.seq
        for event in events.where(kind={"MessageSaid", "FactRecorded"}, actor="human:u-17")
    ] == [2, 4]
    assert [event.seq for event in events.where(origin="model")] == [3]
    assert events.where(run="r") == [] and events.where(call="c") == []
    with pytest.raises(InvalidValue, match="MessageSaid"):
        events.where(kind="MesageSaid")


def test_events_by_time(session: Session) -> None:
    grown = session.say("1")
    last = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=grown.events[-1].header.time)
    assert (
        len(grown.events.where(since="10m"))
        == 3
        == len(grown.events.where(since=timedelta(hours=1)))
    )
    assert (
        len(grown.events.where(until=last)) == 3
        and grown.events.where(since=last + timedelta(seconds=1)) == []
    )
    assert grown.events["1h":] == grown.events[:] and grown.events[:"1h"] == []  # type: ignore[misc]
    assert len(grown.events.where(since="1999-12-31", until="2999-01-01T00:00:00+01:00")) == 3
    for bad in ("yesterday", "", "10 parsecs", 5):
        with pytest.raises(InvalidValue):
            grown.events.where(since=bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue):
        grown.events["1h"::2]  # type: ignore[misc]


# ── places ───────────────────────────────────────────────────────────────────────────────────


def test_places(session: Session) -> None:
    grown = session.say("1").say("2")
    assert grown.at(2) == session and grown.at(-2) == session and grown.at(4) is grown
    assert grown.at(2).text == "Why?"
    for place in (0, 5, -4, 10**9):
        with pytest.raises(UnknownPlace):
            grown.at(place)
    with pytest.raises(InvalidValue):
        grown.at("2")  # type: ignore[arg-type]
    with pytest.raises(StaleHead):
        grown.at(2).say("too late")
    assert grown.at(1).reload() == grown


def test_a_place_below_the_fork_is_a_place_of_the_lineage(session: Session) -> None:
    branch = session.say("1").fork("b").say("2")
    early = branch.at(2)
    assert (
        early.id == branch.id and early.head == session.head and early.messages == session.messages
    )
    assert early.status == "open" and early.fork("c").messages == session.messages
    assert list(early.lineage.sessions) == [session]


# ── branches ─────────────────────────────────────────────────────────────────────────────────


def test_forks(session: Session) -> None:
    a, b = session.fork("a"), session.fork("b", budget=Budget(tokens_max=7))
    assert (
        a.head != b.head
        and a.lineage.label == "a"
        and a.lineage.parent == session
        and session.lineage.parent is None
    )
    assert list(a.lineage.sessions) == [session, a]
    assert b.budget.left == Budget(tokens_max=7) and a.budget.left == Budget(tokens_max=100)
    assert a.fork(at=1).seq == 2 and a.fork(at=-1).lineage.parent == session
    for label in ("", "a@b", "a..b", " a", "a\n", "-x", "x" * 101, "a:b", 5):
        with pytest.raises(InvalidValue):
            session.fork(label)  # type: ignore[arg-type]


def test_a_branch_inherits_outcomes_never_obligations(session: Session) -> None:
    running = record(
        session,
        RunStarted("x:Y"),
        ToolRequested("pay", {}, "at_most_once"),
        ApprovalRequested(D, {}),
        call="c-1",
    )
    assert running.status == "waiting"
    branch = running.fork()
    assert branch.status == "open" and branch.merge(session.fork()).status == "open"
    with pytest.raises(NotSettled):
        session.fork().merge(running)
    with pytest.raises(NotSettled):
        running.close()
    assert record(running, ApprovalGranted(D)).status == "interrupted"  # no process has it


def test_rewind_keeps_the_past_and_the_bill(session: Session) -> None:
    later = record(
        session,
        ModelReplied(
            (Text("4"),),
            Usage(input_tokens=9, output_tokens=1),
            "end",
            price=Price(2_000_000_000, "t"),
        ),
    ).fact("k", 1)
    back = later.rewind(2, reason="wrong track")
    assert back.id == session.id and back.seq == 5 and back.text == "Why?" and "k" not in back.facts
    assert (
        back.budget.usage == Usage(9, 1)
        and back.budget.cost.dollars == 2.0
        and back.budget.left == Budget(tokens_max=90)
    )
    assert [event.seq for event in back.lineage.path] == [1, 2, 5]
    assert back.rewind(4).facts["k"] == 1
    event = back.events[1]
    assert Session.open(session.id, store=session.store).rewind(event).lineage.path[-1].body.to == 2  # type: ignore[attr-defined]
    with pytest.raises(InvalidValue, match="already"):
        back.rewind(5)
    with pytest.raises(InvalidValue, match="not an event"):
        back.rewind(session.fork().events[-1])


def test_rewind_names_what_it_cannot_undo(session: Session) -> None:
    paid = record(
        session, ToolRequested("pay", {}, "at_most_once"), ToolReturned((Text("ok"),)), call="c-1"
    )
    read = record(paid, ToolRequested("read", {}, "pure"), ToolReturned((Text("ok"),)), call="c-2")
    assert read.rewind(2).events[-1].body.not_undone == (paid.head,)  # type: ignore[attr-defined]
    assert read.reload().rewind(4).events[-1].body.not_undone == ()  # type: ignore[attr-defined]


def test_rewinding_below_the_fork_point(session: Session) -> None:
    branch = session.say("later").fork("b").say("mine")
    back = branch.rewind(2)
    assert (
        back.id == branch.id
        and back.text == "Why?"
        and [event.seq for event in back.lineage.path] == [1, 2, 6]
    )


# ── merging ──────────────────────────────────────────────────────────────────────────────────


def test_merge_shows_one_named_block_per_branch_and_repeats_nothing(session: Session) -> None:
    a, b, c = (session.fork(name).say(f"I am {name}.") for name in "abc")
    m = a.merge(b, c)
    assert [(each.text, each.branch) for each in m.messages] == [
        ("Why?", None),
        ("I am a.", None),
        ("I am b.", "b"),
        ("I am c.", "c"),
    ]
    assert m.events[-1].header.parents == (a.head, b.head, c.head)
    assert m.merge(b) is m and m.merge(b, c) is m and m.merge(session) is m
    assert [each.text for each in m.merge(b.reload().say("more")).messages][-1] == "more"
    assert b.reload().merge(m).messages[-2:] != [] and len(b.reload().messages) == 5


def test_facts_merge_three_ways(session: Session) -> None:
    base = session.fact("same", 1).fact("ours", 1).fact("theirs", 1).fact("both", 1).fact("gone", 1)
    a = base.fork("a").fact("ours", 2).fact("both", 3)
    b = base.fork("b").fact("theirs", 2).fact("both", 3).retract("gone").fact("new", 1)
    assert dict(a.merge(b).facts) == {"same": 1, "ours": 2, "theirs": 2, "both": 3, "new": 1}


def test_a_conflict_writes_nothing_and_names_both_sides(session: Session) -> None:
    a, b = (
        session.fork("strict").decide("verdict", "reject"),
        session.fork("lenient").decide("verdict", "clamp"),
    )
    with pytest.raises(MergeConflict, match="strict says 'reject', lenient says 'clamp'") as caught:
        a.merge(b)
    assert caught.value.conflicts == {"verdict": {"strict": "reject", "lenient": "clamp"}}
    assert a.reload() == a
    m = a.merge(b, resolve={"verdict": "reject"})
    assert m.facts.decisions["verdict"] == "reject" and m.facts.of("verdict").at.seq == m.seq
    assert (
        a.fork().merge(b, resolve=lambda key, sides: sides["lenient"]).facts["verdict"] == "clamp"
    )
    assert "verdict" not in a.fork().merge(b, resolve={"verdict": ABSENT}).facts
    with pytest.raises(InvalidValue, match="'other' needs no choice"):
        a.fork().merge(b, resolve={"verdict": 1, "other": 2})
    assert b.merge(m).facts["verdict"] == "reject"  # settled there, so known there
    with pytest.raises(InvalidInput):
        a.fork().merge(b, resolve={"verdict": float("nan")})


def test_equal_names_are_told_apart_in_a_conflict(session: Session) -> None:
    a, b = session.fork("x").fact("k", 1), session.fork("x").fact("k", 2)
    with pytest.raises(MergeConflict) as caught:
        a.merge(b)
    assert list(caught.value.conflicts["k"]) == [f"x ({a.short}@4)", f"x ({b.short}@4)"]


def test_sessions_without_a_common_place(session: Session, store: Store) -> None:
    stranger = Session("stranger", store=store).fact("k", 2)
    with pytest.raises(NoCommonBase):
        session.merge(stranger)
    merged = session.fact("k", 1).merge(stranger, base=session, resolve={"k": 3})
    assert merged.facts["k"] == 3 and merged.messages[-1].text == "stranger"
    # from now on they share a place
    assert merged.merge(stranger.say("more")).messages[-1].text == "more"
    elsewhere = Session("x", store="memory:elsewhere")
    for bad in (
        lambda: session.reload().merge(elsewhere),
        lambda: session.merge(),
        lambda: session.merge("x"),  # type: ignore[arg-type]
        lambda: session.reload().merge(stranger, stranger),
    ):
        with pytest.raises(InvalidValue):
            bad()


def test_costs_are_counted_once_however_branches_are_merged(session: Session) -> None:
    spent = ModelReplied((Text("r"),), Usage(input_tokens=10), "end")
    base = record(session, spent)
    a, b = record(base.fork("a"), spent), record(base.fork("b"), spent)
    ab, ba = a.merge(b), b.merge(a)
    assert ab.budget.usage.input_tokens == ba.budget.usage.input_tokens == 30
    assert ab.merge(ba).budget.usage.input_tokens == 30
    assert ab.reload().rewind(3).merge(ba).budget.usage.input_tokens == 30
    assert ba.budget.left == Budget(tokens_max=70) and ba.budget.used.unpriced == 3


def test_detach_and_successor(session: Session) -> None:
    known = record(
        session.fact("db", 1).decide("v", 2).todo("x", key="x").checks.require("tests"),
        ModelReplied((Text("r"),), Usage(input_tokens=10), "end"),
    )
    files = tree(store_at(session.store), a="1")
    known = record(known, PlacementChanged(Placement("local"), tree=files))
    apart = known.detach()
    assert (
        apart.lineage.parent is None and apart.id != known.id and apart.lineage.continues == known
    )
    assert (
        [each.text for each in apart.messages] == ["Why?", "r"]
        and apart.facts == known.facts
        and list(apart.pending) == ["x"]
    )
    assert (
        apart.budget.usage == Usage()
        and apart.budget.limits == Budget(tokens_max=90)
        and list(apart.checks.gates) == ["tests"]
    )
    assert apart.say("on").messages[-1].text == "on" and apart.seq == 1
    with pytest.raises(NoCommonBase):
        session.fork().merge(apart)
    heir = known.successor("go on with the test")
    assert [each.text for each in heir.messages] == [
        "go on with the test"
    ] and heir.lineage.continues == known
    assert (
        dict(heir.facts) == {"db": 1, "v": 2}
        and heir.facts.of("v").kind == "decision"
        and list(heir.pending) == ["x"]
    )
    assert (
        heir.files.tree == files
        and heir.user == "u-17"
        and heir.budget.limits == Budget(tokens_max=90)
        and heir.checks.gates == {}
    )
    assert [step.says for step in heir.why("db")][1] == "fact db = 1"
    assert known.successor().messages == [] and known.successor(title="new").title == "new"


# ── gates, life ──────────────────────────────────────────────────────────────────────────────


def test_gates_hold_merge_and_close(session: Session) -> None:
    named = session.fork().checks.require("tests", by=test_gates_hold_merge_and_close)
    assert named.checks.gates["tests"].by == "test_gates_hold_merge_and_close"
    gated = session.checks.require("tests")
    with pytest.raises(GateUnmet, match="nobody gave a verdict"):
        gated.close()
    with pytest.raises(GateUnmet):
        gated.merge(session.fork("b").say("x"))
    with pytest.raises(GateUnmet):
        session.fork("c").merge(gated.fork("b").say("x"))
    failed = gated.checks.record("tests", False)
    with pytest.raises(GateUnmet, match="failed"):
        failed.close()
    passed = failed.checks.record("tests", True)
    stale = passed.fork().say("one more thing")
    with pytest.raises(GateUnmet, match="came after"):
        stale.close()
    assert stale.rewind(passed.seq).close().status == "closed"
    files = tree(store_at(session.store), a="1")
    assert record(passed.fork(), PlacementChanged(Placement("local"), tree=files)).checks.gates
    with pytest.raises(GateUnmet, match="files have changed"):
        record(passed.fork(), PlacementChanged(Placement("local"), tree=files)).close()
    assert passed.close().status == "closed"
    with pytest.raises(GateUnmet):
        gated.fork().rewind(1).close()  # a rewind lifts no gate


def test_life(session: Session) -> None:
    paused = session.pause(reason="lunch")
    assert paused.say("while paused").status == "paused"
    over = paused.reload().unpause().close(reason="done").archive()
    assert [(change.status, change.reason) for change in over.lineage.statuses] == [
        ("open", ""), ("paused", "lunch"), ("open", ""), ("closed", "done"), ("archived", "")
    ]  # fmt: skip
    assert {change.actor for change in over.lineage.statuses} == {"human:u-17"}
    done = record(session.fork(), RunStarted("x:Y"), RunFinished())
    assert done.status == "finished" and done.pause().unpause().status == "finished"


def test_illegal_transitions(session: Session) -> None:
    with pytest.raises(WrongStatus, match="close"):
        session.archive()
    with pytest.raises(WrongStatus):
        session.unpause()
    with pytest.raises(WrongStatus):
        session.fork().pause().pause()
    closed = session.close()
    for act in (
        lambda: closed.say("x"),
        lambda: closed.fact("k", 1),
        lambda: closed.rewind(1),
        lambda: closed.merge(session.fork()),
        closed.pause,
        closed.unpause,
        closed.close,
        lambda: Session.open(closed.id, store=closed.store).say("x"),
    ):
        with pytest.raises(WrongStatus):
            act()
    assert closed.reload() == closed and closed.fork("go on").say("x").status == "open"
    with pytest.raises(WrongStatus, match="over already"):
        closed.archive().archive()


# ── money ────────────────────────────────────────────────────────────────────────────────────


def test_budgets(session: Session) -> None:
    asked = record(
        session,
        ModelAsked("m", D),
        ModelReplied((), Usage(40, 10), "end", price=Price(500_000_000, "t")),
        call="c",
    )
    asked = record(
        asked, ModelAsked("m", D), ModelFailed(Failure("Timeout", "late"), usage=Usage(5)), call="d"
    )
    assert (
        asked.budget.used.tokens == 55
        and asked.budget.used.model_calls == 2
        and asked.budget.left == Budget(tokens_max=45)
    )
    share = asked.fork(
        "share",
        budget=Budget(
            tokens_max=10, cost_usd_max=1.0, steps_max=5, tool_calls_max=2, wall_s_max=3.0
        ),
    )
    used = record(share, ToolRequested("t", {}, "pure"), ToolReturned(()), call="e")
    assert used.budget.left == Budget(
        tokens_max=10, cost_usd_max=1.0, steps_max=5, tool_calls_max=1, wall_s_max=3.0
    )
    assert record(used, BudgetSet(Budget(tokens_max=1))).budget.left == Budget(tokens_max=1)
    assert Session(store=session.store).budget.left is None


def test_the_tree_follows_effects(session: Session) -> None:
    none, one, two = (
        tree(store_at(session.store), **files) for files in ({}, {"a__py": "1\n"}, {"a__py": "2\n"})
    )
    moved = record(
        session,
        ToolRequested("shell", {}, "workspace"),
        ToolReturned((), trees=Trees(none, two)),
        call="c",
    )
    assert moved.files.tree == two and moved.rewind(2).files.tree is None
    placed = record(session.fork("p"), PlacementChanged(Placement("local"), tree=one))
    assert placed.files.placement == Placement("local") and placed.files.tree == one
    with pytest.raises(MergeConflict, match="a.py") as caught:
        moved.fork("x").merge(placed)
    assert caught.value.conflicts["a.py"] == {"x": "2\n", "p": "1\n"}
    assert moved.fork("z").merge(placed, resolve={"a.py": "1\n"}).files.tree == one
    merged = session.fork("y").merge(placed)
    assert merged.files.tree == one and merged.events[-1].body.tree == one  # type: ignore[attr-defined]


# ── finding and listing ──────────────────────────────────────────────────────────────────────


def test_listing(store: Store) -> None:
    made = [
        Session(
            title=f"s{i}",
            user="u-1" if i % 2 else "u-2",
            project="p",
            tags={"team": "web", "n": str(i)},
            store=store,
        )
        for i in range(10)
    ]
    assert Session.list(store=store) == made[::-1]
    assert Session.list(user="u-1", limit=2, store=store) == [made[9], made[7]]
    assert Session.list(user="u-1", limit=2, before=made[7], store=store) == [made[5], made[3]]
    assert (
        Session.list(tag={"team": "web", "n": "4"}, store=store)
        == [made[4]]
        == Session.list(tag={"n": "4"}, user="u-2", store=store)
    )
    assert (
        Session.list(tag={"n": "4"}, user="u-1", store=store) == []
        and len(Session.list(tag={"team": "web"}, limit=3, store=store)) == 3
    )
    closed, branch = made[0].close(), made[1].fork("b")
    assert Session.list(status="closed", store=store) == [closed] and Session.list(
        project="p", label="b", store=store
    ) == [branch]
    assert Session.list(parent=made[1], store=store) == [branch] and branch.tags == made[1].tags
    # tags are the root's: a fork costs the same whatever it is of
    assert Session.list(tag={"n": "1"}, store=store) == [made[1]]
    wrong: list[dict[str, Any]] = [{"status": "active"}, {"limit": -1}, {"tag": {"team": 1}}]
    for bad in wrong:
        with pytest.raises(InvalidValue):
            Session.list(store=store, **bad)


def test_the_default_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # no store is looked for above it
    monkeypatch.delenv("PLAIT_STORE", raising=False)
    session = Session("hello")
    assert (tmp_path / ".plait" / "store.db").exists() and Session.open(session.short) == session
    open_store(session.store).close()
    assert session.text == "hello"  # a session holds an address: the store is opened again


# ── ports ────────────────────────────────────────────────────────────────────────────────────


def test_tools_and_places_come_through_the_host(session: Session) -> None:
    before, BINDINGS.host = BINDINGS.host, None
    for act in (
        lambda: session.use(len, x=1),
        lambda: session.to("local", "."),
        session.files.apply,
    ):
        with pytest.raises(NoHost):
            act()

    class Host:
        def use(self, session: Any, tool: Any, arguments: Any) -> Any:
            return position_of(session.fact("used", [tool.__name__, arguments]))

        async def ause(self, session: Any, tool: Any, arguments: Any) -> Any:
            return self.use(session, tool, arguments)

        def ask(self, session: Any, question: str, choices: Any) -> Any:
            return position_of(session.fact("asked", question))

        def sleep(self, session: Any, seconds: float) -> Any:
            return position_of(session.fact("slept", seconds))

        def wait_for(self, session: Any, name: str, timeout_s: float | None) -> Any:
            return position_of(session.fact("waited", name))

        def cancel(self, session: Any, reason: str) -> None:
            session.fact("cancelled", reason)

        def place(self, session: Any, backend: str, where: Any, options: Any) -> Any:
            return position_of(session.fact("placed", [backend, where]))

        def publish(self, session: Any, resolve: Any) -> Any:
            return position_of(session.fact("published", True))

        def prompt(self, session: Any, asked: Any) -> Any:
            return None

        def is_held(self, session: Any, run: str) -> bool:
            return False

        def past_gates(self, into: Any, gated: Any, verb: str) -> Any:
            return gated

    bind_host(Host())
    try:
        done = session.use(len, x=1).to("local", Path("repo")).files.apply()
        assert dict(done.facts) == {
            "used": ["len", {"x": 1}],
            "placed": ["local", "repo"],
            "published": True,
        }
    finally:
        BINDINGS.host = before
