"""The inbox: many writers, none of whom disturbs the session, and answers that count once, in time
and from the right people.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from plait import Session, Store, open_store
from plait.errors import (
    AlreadyAnswered,
    AmbiguousRevision,
    AskExpired,
    InvalidValue,
    MayNotApprove,
    NoRun,
    RunOpen,
    UnknownAsk,
    UnknownLog,
    WrongStatus,
)
from plait.event import Body
from plait.event.kinds import (
    ApprovalDenied,
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRequested,
    Delivered,
    MessageSaid,
    QuestionAsked,
    RunCancelled,
    RunFinished,
    RunStarted,
    Signalled,
    Text,
    TimerFired,
    TimerSet,
    ToolRequested,
    ToolResolved,
    ToolUnknown,
)
from plait.ids import Digest, LogId, inbox_of
from plait.session import InboxRows, verify
from plait.session.inbox import all_waiting, due_sessions, inbox_events, post, root_of
from plait.session.ports import Act, Draft, store_at, writer_of
from plait.session.session import session_at
from plait.session.value import position_of, state_of
from plait.store import RunLock
from tests.support import ForkedProgram, record

record_in_run = partial(record, run="run-1")
B, C = Digest("b" * 64), Digest("c" * 64)
FAR = 2**60


def ask(
    session: Session, binding: Digest = B, call: str = "call-1", expires: int | None = None
) -> Session:
    request = ToolRequested("delete", {"path": "a.txt"}, "at_most_once")
    return record_in_run(
        session, request, ApprovalRequested(binding, {"tool": "delete"}, expires), call=call
    )


@pytest.fixture
def lock(store: Store) -> Iterator[RunLock]:
    """The lock of the run that holds the session."""
    lock = store.lock("run-1", "the session")
    yield lock
    lock.release()


@pytest.fixture
def session(store: Store, lock: RunLock) -> Session:
    """A session that a run holds."""
    return record_in_run(Session("Clean up.", store=store), RunStarted("m:W"))


def copies(session: Session) -> Session:
    """Deliver as a run does at a safe point."""
    news = inbox_events(store_at(session.store), session.id, delivered(session))
    drafts = [Draft(Delivered(inbox_of(session.id), news[-1].seq), Act("service:run"))]
    # what counts: in its bracket
    calls = {
        each.id: "call-1" for each in news if each.kind in ("ApprovalGranted", "ApprovalDenied")
    }
    drafts += [
        Draft(
            each.body,
            Act(each.actor, each.header.origin, call=calls.get(each.id), causes=(each.id,)),
        )
        for each in news
    ]
    return session_at(
        writer_of(None).append(msgspec.structs.replace(position_of(session), run="run-1"), drafts)
    )


def delivered(session: Session) -> int:
    return state_of(session).delivered  # pyright: ignore[reportPrivateUsage]


# ── the lane ─────────────────────────────────────────────────────────────────────────────────


def test_what_is_sent_stands_in_the_inbox_and_leaves_the_session_alone(
    session: Session, store: Store
) -> None:
    assert session.inbox.events == [] and inbox_events(store, session.id, 0) == []
    assert session.inbox.send("Wait!", actor="human:ana") is session
    session.inbox.signal("deployed", {"ok": True}).inbox.cancel("enough")
    assert [event.kind for event in session.inbox.events] == [
        "MessageSaid",
        "Signalled",
        "CancelRequested",
    ]
    assert [event.kind for event in inbox_events(store, session.id, 1)] == [
        "Signalled",
        "CancelRequested",
    ]
    assert inbox_events(store, session.id, 3) == [] == inbox_events(store, session.id, 99)
    assert session.reload() == session and session.inbox.events[0].log == inbox_of(session.id)
    assert session.inbox.events[0].actor == "human:ana" and session.inbox.events[
        1
    ].header.parents == (session.inbox.events[0].id,)
    assert list(verify(store, state=True)) == []


def test_an_inbox_belongs_to_a_log_that_is_there(store: Store) -> None:
    with pytest.raises(UnknownLog):
        post(
            store.address,
            LogId("01890000-0000-7000-8000-000000000000"),
            [Draft(Signalled("x"), Act("human:a"))],
        )


def test_a_check_that_raises_leaves_nothing_behind(session: Session, store: Store) -> None:
    def refuse(_: object) -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        post(store.address, session.id, [Draft(Signalled("x"), Act("human:a"))], check=refuse)
    assert session.inbox.events == []


def test_a_rival_is_outwaited_and_the_check_sees_what_it_wrote(
    session: Session, store: Store
) -> None:
    seen: list[int] = []

    def rival(_: object) -> None:
        seen.append(len(inbox_events(store, session.id)))
        if len(seen) < 4:
            post(
                store.address, session.id, [Draft(Signalled(f"rival-{len(seen)}"), Act("human:b"))]
            )

    [event] = post(
        store.address, session.id, [Draft(Signalled("mine"), Act("human:a"))], check=rival
    )
    assert seen == [0, 1, 2, 3] and event.seq == 4  # at first there is not even a log
    assert [
        str(each.body.name) for each in session.inbox.events if isinstance(each.body, Signalled)
    ] == [
        "rival-1",
        "rival-2",
        "rival-3",
        "mine",
    ]


def test_what_a_message_carries_goes_along(session: Session, store: Store) -> None:
    long = "x" * 100_000
    session.inbox.send(long)
    body = session.inbox.events[0].body
    assert isinstance(body, MessageSaid)
    [part] = body.parts
    assert (
        isinstance(part, Text)
        and part.blob is not None
        and store.get_blob(part.blob).decode() == long
    )


POSTER = """
import sys
from plait import Session
session = Session.open(sys.argv[2], store=sys.argv[1])
for n in range(int(sys.argv[4])):
    session.inbox.send(f"{sys.argv[3]}-{n}", actor=f"human:{sys.argv[3]}")
    print(n, flush=True)
"""


def poster(store: Store, session: Session, name: str, count: int) -> subprocess.Popen[str]:
    return ForkedProgram(
        [sys.executable, "-c", POSTER, store.address, session.id, name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


def said(session: Session) -> list[str]:
    return [
        body.parts[0].text
        for event in session.inbox.events
        if isinstance(body := event.body, MessageSaid) and isinstance(body.parts[0], Text)
    ]


@pytest.mark.long
def test_eight_processes_at_once_lose_nothing_and_never_touch_the_head(sqlite: Store) -> None:
    session = record_in_run(Session("Go.", store=sqlite), RunStarted("m:W"))
    writers = [poster(sqlite, session, f"w{n}", 15) for n in range(8)]
    assert [writer.communicate(timeout=120) and writer.returncode for writer in writers] == [0] * 8
    assert sorted(said(session)) == sorted(f"w{w}-{n}" for w in range(8) for n in range(15))
    for w in range(8):  # of each writer, in its order
        assert [text for text in said(session) if text.startswith(f"w{w}-")] == [
            f"w{w}-{n}" for n in range(15)
        ]
    assert session.reload() == session and list(verify(sqlite)) == []


def test_what_was_acknowledged_survives_kill_9(sqlite: Store) -> None:
    session = record_in_run(Session("Go.", store=sqlite), RunStarted("m:W"))
    writers = [poster(sqlite, session, f"w{n}", 100_000) for n in range(3)]
    done: dict[int, int] = {}
    for n, writer in enumerate(writers):
        assert writer.stdout is not None
        for _ in range(5 + n):
            done[n] = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        done[n] = max([done[n], *(int(line) for line in writer.stdout.read().splitlines() if line)])
        writer.wait()
        writer.stdout.close()
    there = said(session)
    for n, last in done.items():
        mine = [text for text in there if text.startswith(f"w{n}-")]
        # What was acknowledged is there; at most one more had been written and not said.
        assert mine == [f"w{n}-{i}" for i in range(len(mine))] and last + 1 <= len(mine) <= last + 2
    assert session.reload() == session and list(verify(sqlite)) == []
    session.inbox.send("still open")


# ── what waits ───────────────────────────────────────────────────────────────────────────────


def test_what_waits_is_told_the_same_by_the_value_and_by_the_rows(
    session: Session, store: Store
) -> None:
    session = ask(session, expires=FAR)
    session = record_in_run(session, QuestionAsked("Which?", ("a", "b")), call="call-2")
    session = record_in_run(session, ToolUnknown(session.events[2 + 1].id, "killed"), call="call-1")
    session = record_in_run(session, TimerSet(1000, "deployed"), call="call-3")
    waiting = session.inbox.waiting
    assert waiting == all_waiting(store) and session.status == "waiting"
    assert [each.kind for each in waiting] == ["approval", "question", "unknown", "timer"]
    approval, question, unknown, timer = waiting
    assert (approval.binding, approval.shown, approval.expires, approval.call) == (
        B,
        {"tool": "delete"},
        FAR,
        "call-1",
    )
    assert (question.question, question.choices) == ("Which?", ("a", "b"))
    assert (unknown.tool, unknown.arguments, unknown.request) == (
        "delete",
        {"path": "a.txt"},
        session.events[3].id,
    )
    assert (timer.until, timer.name, timer.session, timer.log) == (
        1000,
        "deployed",
        session.short,
        session.id,
    )
    assert (
        approval.actor == "agent:coder"
        and approval.since == session.events[4].time
        and approval.event == session.events[4].id
    )
    assert [each.kind for each in session.at(5).inbox.waiting] == ["approval"]
    store.rebuild(InboxRows.name)
    assert all_waiting(store) == waiting
    assert list(verify(store)) == []


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (ApprovalGranted(B), "running"),
        (ApprovalDenied(B), "running"),
        (ApprovalExpired(B), "running"),
        (RunFinished(), "finished"),
        (RunCancelled(), "cancelled"),
    ],
)
def test_what_is_settled_waits_no_more(
    session: Session, store: Store, end: Body, status: str
) -> None:
    session = record_in_run(ask(session), end, call="call-1")
    assert (session.inbox.waiting, all_waiting(store), session.status) == ([], [], status)


def test_another_answer_settles_nothing(session: Session, store: Store) -> None:
    session = record_in_run(ask(session), ApprovalGranted(C))
    assert (
        [each.binding for each in session.inbox.waiting]
        == [B]
        == [each.binding for each in all_waiting(store)]
    )


@pytest.mark.parametrize(
    ("call", "run"), [(None, "run-1"), ("call-2", "run-1"), ("call-1", None), ("call-1", "run-2")]
)
def test_what_the_run_does_not_go_by_settles_nothing(
    session: Session, store: Store, call: str | None, run: str | None
) -> None:
    """A grant by somebody who may not give it is delivered, and counts for nothing: who may is
    still asked.
    """
    session = record_in_run(ask(session), ApprovalGranted(B), call=call, run=run)
    assert (
        [each.binding for each in session.inbox.waiting]
        == [B]
        == [each.binding for each in all_waiting(store)]
    )


def test_closing_leaves_nothing_that_waits(store: Store) -> None:
    session = record_in_run(Session("x", store=store), QuestionAsked("Which?"), run=None)
    assert len(all_waiting(store)) == 1
    closed = session.close()
    assert closed.inbox.waiting == [] == all_waiting(store)
    with pytest.raises(WrongStatus):
        closed.inbox.send("hello?")
    assert closed.inbox.events == []


def test_a_branch_has_an_inbox_of_its_own_and_waits_for_itself(
    session: Session, store: Store
) -> None:
    session.inbox.send("to the root")
    session = copies(ask(session))
    branch = session.fork("b")
    assert delivered(session) == 1 and delivered(branch) == 0
    assert branch.inbox.events == [] and branch.inbox.waiting == [] and branch.status == "open"
    branch = ask(branch, C, "call-9")
    assert [each.binding for each in branch.inbox.waiting] == [C] and [
        each.binding for each in session.inbox.waiting
    ] == [B, C]
    assert root_of(store, branch.inbox.waiting[0].run, branch.id) == session.id
    with pytest.raises(UnknownAsk):
        branch.inbox.approve(B)
    record_in_run(session, RunFinished())  # and with the run, whatever its branches waited for
    assert branch.inbox.waiting == [] == all_waiting(store)
    with pytest.raises(UnknownAsk, match="not open any more"):
        branch.inbox.approve(C)


def test_the_life_counts_each_kind_for_itself(session: Session) -> None:
    session = ask(session)
    request = session.events[3].id
    resolved = record_in_run(session, ToolResolved(request, "happened"), call="call-1")
    assert resolved.status == "waiting"  # the approval is still open
    unknown = record_in_run(resolved, ApprovalGranted(B), ApprovalGranted(B), ToolUnknown(request))
    assert unknown.status == "waiting"
    resolved = record_in_run(unknown, ToolResolved(request, "compensated"))
    assert resolved.status == "running"
    timer = record_in_run(resolved, TimerSet(1), call="t")
    assert (
        timer.status == "waiting"
        and record_in_run(timer, TimerFired("time"), call="t").status == "running"
    )


# ── delivering ───────────────────────────────────────────────────────────────────────────────


def test_what_is_delivered_is_counted_and_settles_the_ask(
    session: Session, store: Store, lock: RunLock
) -> None:
    session = ask(session)
    session.inbox.send("first")
    session.inbox.approve(
        session.inbox.waiting[0], edited={"path": "b.txt"}, note="not that one", actor="human:ana"
    )
    assert session.inbox.waiting == [] == all_waiting(store) and due_sessions(store, 0) == [
        session.id
    ]
    after = copies(session)
    assert delivered(after) == 2 and inbox_events(store, after.id, delivered(after)) == []
    assert [event.kind for event in after.events][-3:] == [
        "Delivered",
        "MessageSaid",
        "ApprovalGranted",
    ]
    body = after.events[-1].body
    assert isinstance(body, ApprovalGranted) and (body.binding, body.edited, body.note) == (
        B,
        {"path": "b.txt"},
        "not that one",
    )
    assert after.inbox.waiting == [] and after.status == "running" and due_sessions(store, 0) == []
    assert list(verify(store, state=True)) == []
    with pytest.raises(RunOpen, match="cannot be rewound"):  # somebody is at work on it
        after.rewind(2)
    lock.release()
    with pytest.raises(RunOpen, match="to before that run"):  # it would be open, and nowhere
        after.rewind(2)
    rewound = after.rewind(after.seq - 3)
    assert delivered(rewound) == 2  # the ledger never goes back


def test_pausing_a_run_goes_through_its_inbox(session: Session, store: Store) -> None:
    assert session.pause(reason="lunch") is session and session.reload() == session
    with pytest.raises(WrongStatus):
        session.pause()
    session.unpause()
    assert [event.kind for event in session.inbox.events] == ["SessionPaused", "SessionResumed"]
    idle = Session("x", store=store)
    assert idle.pause().status == "paused" and idle.inbox.events == []
    with pytest.raises(NoRun, match="no open run"):
        idle.inbox.cancel()


# ── answering ────────────────────────────────────────────────────────────────────────────────


def test_an_ask_takes_one_answer(session: Session, store: Store) -> None:
    session = ask(session)
    found = session.inbox.waiting[0]
    session.inbox.deny(found, "no", actor="human:ana")
    for again in (
        lambda: session.inbox.approve(found),
        lambda: session.inbox.deny(B[:8]),
        lambda: session.inbox.approve(session.events[4]),
    ):
        with pytest.raises(AlreadyAnswered, match="human:ana"):
            again()
    after = copies(session)
    with pytest.raises(AlreadyAnswered):
        after.inbox.approve(found)
    assert len(session.inbox.events) == 1


def test_two_who_answer_at_once_do_not_both_win(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = ask(session)
    direct = writer_of(None)
    real, first = direct.post, [True]

    def late(*arguments: object, **options: object) -> object:
        if first:
            first.clear()
            session.inbox.deny(B, actor="human:bob")  # between the look and the write
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(direct, "post", late)
    with pytest.raises(AlreadyAnswered, match="human:bob"):
        session.inbox.approve(B, actor="human:ana")
    assert [event.kind for event in session.inbox.events] == ["ApprovalDenied"]


def test_the_same_call_asked_for_again_wants_a_new_answer(session: Session, store: Store) -> None:
    session = ask(session)
    session.inbox.approve(B)
    again = record_in_run(
        session,
        ApprovalExpired(B),
        ApprovalRequested(B, {"tool": "delete"}, asked=2),
        call="call-1",
    )
    assert len(again.inbox.waiting) == 1 == len(all_waiting(store))
    again.inbox.approve(B)
    assert again.inbox.waiting == [] == all_waiting(store)


def test_an_answer_that_comes_too_late_is_refused(session: Session, store: Store) -> None:
    session = ask(session, expires=1)
    for answer in (lambda: session.inbox.approve(B), lambda: session.inbox.deny(B)):
        with pytest.raises(AskExpired):
            answer()
    assert (
        session.inbox.events == []
        and due_sessions(store, 0) == []
        and due_sessions(store, 1) == [session.id]
    )


@pytest.mark.parametrize("actor", ["agent:coder", "agent:reviewer"])
def test_no_agent_answers(session: Session, actor: str) -> None:
    session = record_in_run(ask(session), QuestionAsked("Which?"))
    session = record_in_run(session, ToolUnknown(session.events[3].id), call="call-1")
    approval, question, unknown = session.inbox.waiting
    for act in (
        lambda: session.inbox.approve(approval, actor=actor),
        lambda: session.inbox.deny(approval, actor=actor),
        lambda: session.inbox.answer(question, "a", actor=actor),
        lambda: session.inbox.resolve(unknown, "happened", actor=actor),
    ):
        with pytest.raises(MayNotApprove):
            act()
    assert session.inbox.events == []


def test_whoever_asks_does_not_answer(session: Session) -> None:
    session = record_in_run(session, ApprovalRequested(B, None), actor="service:deploy")
    with pytest.raises(MayNotApprove):
        session.inbox.approve(B, actor="service:deploy")
    session.inbox.approve(B, actor="service:review-board")


def test_an_answer_that_went_around_the_rules_does_not_count(
    session: Session, store: Store
) -> None:
    session = ask(session, expires=1)
    late = Draft(ApprovalGranted(B), Act("human:ana"))
    forged = Draft(ApprovalGranted(B), Act("agent:coder", "model"))
    post(store.address, session.id, [forged, late])
    assert (
        len(session.inbox.waiting) == 1 == len(all_waiting(store)) and due_sessions(store, 0) == []
    )


def test_everything_is_checked_before_anything_is_written(session: Session) -> None:
    session = record_in_run(ask(ask(session), C, "call-2"), QuestionAsked("Which?", ("a", "b")))
    edited: list[object] = [[1], "x", 3]
    for wrong in edited:
        with pytest.raises(InvalidValue):
            session.inbox.approve(B, edited=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidValue):
        session.inbox.approve(B, edited={"x": float("nan")})
    with pytest.raises(InvalidValue):
        session.inbox.answer(session.inbox.waiting[2], "c")
    with pytest.raises(InvalidValue):
        session.inbox.approve(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidValue):
        session.inbox.resolve("call-1", "perhaps")  # pyright: ignore[reportArgumentType]
    with pytest.raises(AmbiguousRevision):
        session.inbox.approve("call")
    for unknown in ("feed", "bbb", "", session.inbox.waiting[2]):
        with pytest.raises(UnknownAsk):
            session.inbox.approve(unknown)
    with pytest.raises(InvalidValue):
        session.inbox.send()
    with pytest.raises(InvalidValue):
        session.inbox.signal("")
    assert session.inbox.events == []


@pytest.mark.parametrize("name", ["ask", "request", "id", "call"])
def test_an_outcome_is_resolved_by_its_ask_its_request_or_its_call(
    session: Session, name: str
) -> None:
    session = record_in_run(
        session, ToolRequested("pay", {"sum": 3}, "at_most_once"), call="call-1"
    )
    session = record_in_run(session, ToolUnknown(session.events[-1].id, "killed"), call="call-1")
    names = {
        "ask": session.inbox.waiting[0],
        "request": session.events[-2],
        "id": session.events[-2].id[:8],
        "call": "call-1",
    }
    session.inbox.resolve(names[name], "happened", {"receipt": 17}, "the bank says so")
    body = session.inbox.events[0].body
    assert isinstance(body, ToolResolved) and (body.verdict, body.request) == (
        "happened",
        session.events[-2].id,
    )
    assert session.inbox.waiting == [] and copies(session).result == {"receipt": 17}


# ── who could go on ──────────────────────────────────────────────────────────────────────────


def test_who_is_due(session: Session, store: Store) -> None:
    timer = record_in_run(session, TimerSet(1000, "deployed"), call="t")
    assert due_sessions(store, 999) == [] and due_sessions(store, 1000) == [
        session.id
    ] == due_sessions(store, FAR)
    timer.inbox.signal("something else")
    assert due_sessions(store, 0) == []
    timer.inbox.signal("deployed")
    assert due_sessions(store, 0) == [session.id]
    fired = record_in_run(copies(timer), TimerFired("event"), call="t")
    assert due_sessions(store, FAR) == [] and fired.inbox.waiting == []


def test_a_signal_that_came_before_its_timer_is_not_missed(session: Session, store: Store) -> None:
    session.inbox.signal("deployed")
    timer = record_in_run(session, TimerSet(None, "deployed"), call="t")
    assert due_sessions(store, 0) == [session.id]
    store.rebuild(InboxRows.name)
    assert due_sessions(store, 0) == [session.id]
    after = record_in_run(copies(timer), TimerFired("event"), call="t")
    # it was heard: the next wait is for the next one
    again = record_in_run(after, TimerSet(None, "deployed"), call="t2")
    assert due_sessions(store, FAR) == [] and len(again.inbox.waiting) == 1


def test_whoever_is_to_be_cancelled_is_due(session: Session, store: Store) -> None:
    session = ask(session)
    session.inbox.cancel("never mind")
    assert due_sessions(store, 0) == [session.id] and len(session.inbox.waiting) == 1
    record_in_run(copies(session), RunCancelled("never mind"))
    assert due_sessions(store, FAR) == [] == all_waiting(store)


def test_no_ask_is_left_out_however_many_there_are(tmp_path: Path) -> None:
    store = open_store(f"memory:{tmp_path.name}-many")
    session = record_in_run(Session("x", store=store), RunStarted("m:W"))
    for n in range(300):
        session = record_in_run(session, QuestionAsked(f"q{n}"))
    assert (
        [each.question for each in all_waiting(store)]
        == [f"q{n}" for n in range(300)]
        == [each.question for each in session.inbox.waiting]
    )
    store.close()


def test_a_long_text_is_read_from_its_event(session: Session, store: Store) -> None:
    session = record_in_run(
        session, ApprovalRequested(B, {"diff": "x" * 50_000}, expires=2**80), call="call-1"
    )
    assert all_waiting(store) == session.inbox.waiting
    session.inbox.approve(B)
    assert all_waiting(store) == []


def test_an_ask_of_a_value_that_the_log_has_left_behind_names_the_next_step(store: Store) -> None:
    before = record(Session("Pay.", store=store), RunStarted("m:W"), run="run-1")
    asked = record(before, QuestionAsked("Which?", ()), run="run-1", call="c1")
    with pytest.raises(IndexError, match=r"has gone on to event 4 since.*session\.reload\(\)"):
        _ = before.inbox.waiting[0]
    assert before.inbox.waiting == [] and before.inbox.waiting[:1] == []
    assert before.reload().inbox.waiting[0].question == "Which?"
    asked.inbox.answer(asked.inbox.waiting[0], "7")
    with pytest.raises(IndexError, match=r"^list index out of range$"):
        _ = asked.inbox.waiting[0]  # it stands at the tip
