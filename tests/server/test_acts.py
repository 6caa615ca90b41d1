"""Every act of the server: it writes what `Session` writes, in the name of the person served."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from plait import Parked, Session, resume
from plait.errors import AlreadyAnswered
from plait.store import Store
from tests.outline import programs
from tests.server.clients import app_client
from tests.support.processes import child_environment, module_command


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with app_client(store) as client:
        yield client


def act(
    client: TestClient, session: Session | str, verb: str, status: int = 200, /, **body: Any
) -> Any:
    name = session if isinstance(session, str) else session.id
    answer = client.post(f"/api/sessions/{name}/acts/{verb}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def parked(workflow: Any, session: Session) -> Session:
    with pytest.raises(Parked) as stopped:
        workflow(session)
    return stopped.value.session.reload()


def waiting_payment(store: Store) -> Session:
    return parked(programs.Pay(), Session("Pay ACME 120.", store=store))


# ── in the log ───────────────────────────────────────────────────────────────────────────────


def test_words_notes_and_verdicts_are_recorded(client: TestClient, store: Store) -> None:
    session = Session("hello", store=store)
    said = act(client, session, "say", text="more")
    now = session.reload()
    assert (said["seq"], said["head"], said["is_new"]) == (now.seq, now.head, True)
    assert now.messages[-1].text == "more" and now.events[-1].actor == "human:ana"
    act(client, session, "note", text="it is so", key="finding")
    assert session.reload().facts["finding"] == "it is so"
    act(client, session, "validate", name="tests", passed=True, detail={"count": 3})
    verdict = session.reload().checks.verdicts[-1]
    assert (verdict.name, verdict.passed, verdict.detail) == ("tests", True, {"count": 3})


def test_a_session_rests_goes_on_and_ends(client: TestClient, store: Store) -> None:
    session = Session("hello", store=store)
    assert act(client, session, "pause", reason="lunch")["status"] == "paused"
    assert act(client, session, "unpause")["status"] == "open"
    assert act(client, session, "close", reason="done")["status"] == "closed"
    refused = act(client, session, "say", 409, text="too late")
    assert refused["error"] == "WrongStatus" and refused["next"]
    assert refused["fields"]["now"]["status"] == "closed"


def test_a_place_that_others_wrote_after_is_refused(client: TestClient, store: Store) -> None:
    session = Session("hello", store=store)
    later = session.say("by another")
    refused = act(client, f"{session.id}@{session.seq}", "say", 409, text="mine")
    assert refused["error"] == "StaleHead"
    assert refused["fields"]["now"]["head"] == later.head
    assert session.reload() == later


def test_acts_at_once_on_a_session_as_it_is_now_all_stand(store: Store) -> None:
    """Who names no place means the session as it is: that others write as well refuses nobody."""
    session = Session("hello", store=store)
    with app_client(store) as client, ThreadPoolExecutor(6) as pool:

        def note(at: int) -> int:
            path = f"/api/sessions/{session.id}/acts/note"
            return client.post(path, json={"text": "so", "key": f"key-{at}"}).status_code

        assert set(pool.map(note, range(24))) == {200}
    assert len(session.reload().facts) == 24


def test_a_fork_begins_at_the_place(client: TestClient, store: Store) -> None:
    session = Session("hello", store=store).say("more")
    made = act(client, f"{session.id}@2", "fork", label="other")
    branch = Session.open("other", store=store)
    assert made["log"] == branch.id and branch.lineage.parent == session.at(2)
    assert branch.events[-1].actor == "human:ana"
    again = act(client, session, "fork", 422, label="a@b")
    assert again["error"] == "InvalidValue"


def test_a_rewind_lists_what_it_does_not_undo(client: TestClient, store: Store) -> None:
    session = waiting_payment(store)
    ask = session.inbox.waiting[0]
    session.inbox.approve(ask, actor="human:bob")
    paid = resume(session)
    found = act(client, f"{paid.id}@2", "rewind", reason="again")
    assert [row["tool"] for row in found["not_undone"]] == ["wire"]
    assert found["not_undone"][0]["arguments"]["amount"] == 120
    assert paid.reload().seq == found["seq"] == paid.seq + 1


def test_a_merge_asks_for_choices_and_takes_them(client: TestClient, store: Store) -> None:
    session = Session("hello", store=store)
    left, right = session.fork("left"), session.fork("right")
    left = left.fact("verdict", "reject").fact("same", 1)
    right = right.fact("verdict", "clamp").fact("gone", 2)
    into = session.merge(left)
    refused = act(client, into, "merge", 422, others=[right.id])
    assert refused["error"] == "MergeConflict"
    sides = refused["fields"]["conflicts"]["verdict"]
    assert set(sides.values()) == {"reject", "clamp"} and into.reload() == into
    side = next(name for name, value in sides.items() if value == "clamp")
    wrong = act(
        client, into, "merge", 422, others=[right.id], choices={"verdict": {"side": "nobody"}}
    )
    assert wrong["error"] == "InvalidValue"
    act(client, into, "merge", others=[right.id], choices={"verdict": {"side": side}})
    assert session.reload().facts["verdict"] == "clamp"
    assert act(client, into, "merge", others=[right.id])["is_new"] is False


@pytest.mark.parametrize(
    ("choice", "expected"), [({"value": "both"}, "both"), ({"drop": True}, None)]
)
def test_a_conflict_is_settled_by_another_value_or_by_none(
    client: TestClient, store: Store, choice: dict[str, Any], expected: object
) -> None:
    session = Session("hello", store=store)
    left, right = session.fork().fact("k", 1), session.fork().fact("k", 2)
    into = session.merge(left)
    act(client, into, "merge", others=[right.id], choices={"k": choice})
    assert dict(session.reload().facts).get("k") == expected


# ── through the inbox ────────────────────────────────────────────────────────────────────────


def test_an_approval_is_given_once(client: TestClient, store: Store) -> None:
    session = waiting_payment(store)
    ask = session.inbox.waiting[0]
    granted = act(client, session, "approve", ask=ask.event[:12], note="fine")
    assert granted["posted"]["kind"] == "ApprovalGranted"
    assert granted["posted"]["actor"] == "human:ana" and granted["resume"] == session.short
    refused = act(client, session, "deny", 409, ask=ask.event, reason="no")
    assert refused["error"] == "AlreadyAnswered" and refused["fields"]["actor"] == "human:ana"
    assert resume(session).status == "finished"
    late = act(client, session, "deny", 409, ask=ask.event)
    assert late["error"] == "AlreadyAnswered"
    unknown = act(client, session, "deny", 404, ask="0123456789")
    assert unknown["error"] == "UnknownAsk" and unknown["next"]


def test_an_answer_that_no_run_has_taken_is_told(client: TestClient, store: Store) -> None:
    session = waiting_payment(store)
    ask = session.inbox.waiting[0]
    query = {"session": session.id, "all": "true"}
    assert client.get("/api/inbox", params=query).json()["asks"][0]["answered"] is None
    assert standings(client, session) == [("waiting", "waiting", False)] * 3
    act(client, session, "approve", ask=ask.event)
    (found,) = client.get("/api/inbox", params=query).json()["asks"]
    assert found["id"] == ask.event and found["resume"] == session.short
    assert found["answered"]["kind"] == "ApprovalGranted"
    assert found["answered"]["actor"] == "human:ana"
    assert standings(client, session) == [("waiting", "waiting, due", True)] * 3
    (due,) = client.get("/api/sessions", params={"q": "is:due"}).json()["sessions"]
    assert due["log"] == session.id
    resume(session)
    assert client.get("/api/inbox", params=query).json()["asks"] == []
    assert standings(client, session) == [("finished", "finished", False)] * 3


def standings(client: TestClient, session: Session) -> list[tuple[str, str, bool]]:
    """Return how a session stands by its row in the list, in its family and in its head."""
    row = client.get("/api/sessions").json()["sessions"][0]
    branch = client.get(f"/api/sessions/{session.id}/family").json()["branches"][0]
    head = client.get(f"/api/sessions/{session.id}").json()
    return [
        *[(each["status"], each["standing"], each["is_due"]) for each in (row, branch)],
        (head["status"], head["standing"], head["due"]),
    ]


def test_why_shows_a_word_of_an_inbox_at_its_session(client: TestClient, store: Store) -> None:
    session = waiting_payment(store)
    act(client, session, "approve", ask=session.inbox.waiting[0].event)
    paid = resume(session)
    wire = next(event for event in paid.events if event.kind == "ToolReturned")
    steps = client.get(f"/api/sessions/{paid.id}@{wire.seq}/why").json()["steps"]
    told = [step for step in steps if step["session"] != paid.id]
    assert told and told[0]["actor"] == "human:ana"
    for step in steps:
        assert step["at"]["log"] == paid.id
        assert client.get(f"/api/sessions/{step['at']['log']}@{step['at']['seq']}").is_success


def test_a_verdict_tells_whether_its_gate_waits_on(store: Store) -> None:
    session = parked(programs.Release(), Session("Release it.", store=store))
    with app_client(store, actor="human:root") as client:
        other = act(client, session, "validate", name="review", passed=True)
    assert other["still_waits"].endswith("that needs human:ann.") and other["resume"] == ""
    with app_client(store, actor="human:ann") as client:
        failed = act(client, session, "validate", name="review", passed=False)
        assert "waits on" in failed["still_waits"]
        passed = act(client, session, "validate", name="review", passed=True)
        assert passed["still_waits"] == "" and passed["resume"] == session.short
        query = {"session": session.id, "all": "true"}
        (found,) = client.get("/api/inbox", params=query).json()["asks"]
        assert found["answered"]["actor"] == "human:ann"


def test_an_approval_is_corrected(client: TestClient, store: Store) -> None:
    session = waiting_payment(store)
    ask = session.inbox.waiting[0]
    wrong = act(client, session, "approve", 422, ask=ask.event, edited=[1])
    assert wrong["error"] == "InvalidValue"
    act(client, session, "approve", ask=ask.event, edited={"to": "ACME", "amount": 12})
    assert resume(session).effects[-1].arguments == {"to": "ACME", "amount": 12}


def test_a_denial_is_heard(client: TestClient, store: Store) -> None:
    session = waiting_payment(store)
    act(client, session, "deny", ask=session.inbox.waiting[0].event, reason="too much")
    done = resume(session)
    assert all(effect.state != "returned" for effect in done.effects)


def test_the_one_who_asks_may_not_approve(store: Store) -> None:
    session = waiting_payment(store)
    ask = session.inbox.waiting[0]
    with app_client(store, actor=ask.actor) as client:
        refused = act(client, session, "approve", 403, ask=ask.event)
        assert refused["error"] == "MayNotApprove"
    assert [each.event for each in session.reload().inbox.waiting] == [ask.event]


def test_messages_and_signals_reach_an_open_run(client: TestClient, store: Store) -> None:
    session = waiting_payment(store)
    sent = act(client, session, "send", text="hurry")
    assert sent["posted"]["kind"] == "MessageSaid" and sent["seq"] == session.seq
    said = act(client, session, "say", text="please")  # a run is open: it goes to the inbox
    assert said["posted"]["kind"] == "MessageSaid" and said["resume"] == session.short
    act(client, session, "signal", name="go", value=[1, 2])
    kinds = [event.kind for event in session.inbox.events]
    assert kinds == ["MessageSaid", "MessageSaid", "Signalled"]


def test_a_run_is_cancelled(client: TestClient, store: Store) -> None:
    session = waiting_payment(store)
    found = act(client, session, "cancel", reason="not now")
    assert found["status"] == session.reload().status == "cancelled"  # no process had the run
    none = act(client, Session("x", store=store), "cancel", 409)
    assert none["error"] == "NoRun"


def test_a_question_is_answered(client: TestClient, store: Store) -> None:
    session = parked(programs.Ship(), Session("Ship it.", store=store))
    ask = session.inbox.waiting[0]
    wrong = act(client, session, "approve", 422, ask=ask.event)
    assert wrong["error"] == "WrongAskKind"
    other = act(client, session, "answer", 422, ask=ask.event, value="Bremen")
    assert other["error"] == "InvalidValue" and "Kiel" in other["next"]
    act(client, session, "answer", ask=ask.event, value="Kiel")
    assert resume(session).facts["port"] == "Kiel"


def test_an_unknown_outcome_is_resolved(client: TestClient, tmp_path: Path, store: Store) -> None:
    session = Session("Pay ACME 90.", store=store)
    address = session.store.removeprefix("sqlite:")
    command = module_command("tests.outline.programs", "Settle", address, session.id)
    subprocess.run(command, env=child_environment(VIEW_KILL="wire"), timeout=90)
    with pytest.raises(Parked):
        resume(session)
    ask = session.reload().inbox.waiting[0]
    assert ask.kind == "unknown"
    bad = act(client, session, "resolve", 422, ask=ask.event, verdict="maybe")
    assert bad["error"] == "InvalidValue"
    misfit = act(client, session, "resolve", 422, ask=ask.event, verdict="happened", value=7)
    assert misfit["error"] == "InvalidValue"
    body = {"ask": ask.event, "verdict": "happened", "value": "90 sent", "note": "the bank says so"}
    act(client, session, "resolve", **body)
    assert resume(session).facts["paid"] == "90 sent"


@pytest.mark.parametrize("_", range(3))
def test_of_answers_at_once_one_wins(client: TestClient, store: Store, _: int) -> None:
    """Two pages and a program answer one ask at the same moment."""
    session = waiting_payment(store)
    ask = session.inbox.waiting[0]
    results = list[str]()
    start = threading.Barrier(3)

    def by_page(verb: str) -> None:
        start.wait()
        body = {"ask": ask.event}
        answer = client.post(f"/api/sessions/{session.id}/acts/{verb}", json=body)
        results.append("done" if answer.status_code == 200 else answer.json()["error"])

    def by_hand() -> None:
        start.wait()
        try:
            Session.open(session.id, store=store).inbox.approve(ask, actor="human:bob")
            results.append("done")
        except AlreadyAnswered:
            results.append("AlreadyAnswered")

    threads = [
        threading.Thread(target=by_page, args=("approve",)),
        threading.Thread(target=by_page, args=("deny",)),
        threading.Thread(target=by_hand),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["AlreadyAnswered", "AlreadyAnswered", "done"]
    answers = [each for each in session.inbox.events if ask.event in each.header.causes]
    assert len(answers) == 1
