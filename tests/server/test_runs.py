"""Runs started from a server: processes of their own, told as they go, which outlive it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from plait import Parked, Session
from plait.ids import Micros
from plait.server.live_shapes import RunShape
from plait.server.params import NewRun
from plait.server.runner import RUNNING, ProcessRunner
from plait.store import Store
from tests.outline import programs
from tests.server.clients import LiveServer, app_client, feed_events, live_server, now_s
from tests.server.programs import Slow
from tests.support.processes import wait_until


@pytest.fixture
def server(tmp_path: Path, store: Store) -> Iterator[LiveServer]:
    with live_server(tmp_path, RUN_FOLDER=str(tmp_path)) as server:
        yield server


def parked(workflow: Any, store: Store) -> Session:
    session = Session("Do it.", store=store)
    with pytest.raises(Parked):
        workflow(session)
    return session.reload()


def ended(server: LiveServer, id: str) -> Any:
    """Wait for the end of a run, and return it."""

    def find() -> Any:
        found = next(run for run in server.get("/api/runs")["runs"] if run["id"] == id)
        return found if found["state"] == "ended" else None

    return wait_until(find)


def started(server: LiveServer, **body: Any) -> Any:
    answer = server.post("/api/runs", **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_run_is_resumed_and_its_words_come_as_they_are_said(
    server: LiveServer, store: Store
) -> None:
    session = parked(programs.Pay(), store)
    session.inbox.approve(session.inbox.waiting[0], actor="human:ana")
    events = feed_events(server)
    next(events)
    run = started(server, verb="resume", session=session.id)
    assert run["state"] == "running" and run["command"].startswith("plait resume")
    told, states = "", list[str]()
    for event in events:
        if event.get("event") == "delta":
            delta = json.loads(event["data"])
            assert delta["run"] == run["id"] and delta["log"] == session.id
            told += delta["text"] if delta["type"] == "text" else ""
        if event.get("event") == "run":
            shape = json.loads(event["data"])
            states.append(shape["state"])
            if shape["exit_code"] is not None:
                break
    assert told == session.reload().messages[-1].text == "ACME is paid."
    assert states[0] == "running" and states[-1] == "ended"
    done = ended(server, run["id"])
    assert (done["exit_code"], done["status"], done["text"]) == (0, "finished", "ACME is paid.")


def test_a_what_if_runs_in_a_branch(server: LiveServer, store: Store) -> None:
    session = programs.Count()(Session("How many rows?", store=store))
    reply = next(event for event in session.events if event.kind == "ModelReplied")
    run = started(
        server,
        verb="whatif",
        session=f"{session.id}@{reply.seq}",
        replace={str(reply.seq): "@not-a-file: I count nothing."},
        label="other-words",
    )
    done = ended(server, run["id"])
    assert done["exit_code"] == 0, done["error"]
    branch = Session.open("other-words", store=store)
    assert done["branch"] == branch.id
    assert branch.messages[-1].text == "@not-a-file: I count nothing."
    assert session.reload() == session


def test_a_program_is_run_in_a_session(server: LiveServer, store: Store) -> None:
    """To change what was said before a run: fork, say it, and run the program there."""
    session = programs.Count()(Session("How many rows?", store=store))
    branch = session.fork("again", at=1).say("How many orders?", actor="human:ana")
    missing = server.post("/api/runs", verb="run", session=branch.id)
    assert missing.status_code == 422 and missing.json()["fields"]["where"] == "program"
    run = started(server, verb="run", session=branch.id, program="tests.outline.programs:Count")
    assert ended(server, run["id"])["status"] == "finished"
    assert branch.reload().messages[0].text == "How many orders?"
    assert branch.reload().messages[-1].text == session.messages[-1].text


def test_what_a_run_refuses_is_its_error(server: LiveServer, store: Store) -> None:
    session = Session("nothing ran here", store=store)
    done = ended(server, started(server, verb="resume", session=session.id)["id"])
    assert done["exit_code"] == 1 and done["status"] == "failed"
    assert done["error"]["error"] == "NothingToResume" and done["error"]["message"]
    parked_run = parked(Slow(), store)
    parked_run.inbox.answer(parked_run.inbox.waiting[0], "yes", actor="human:ana")
    wrong = started(server, verb="resume", session=parked_run.id, program="nowhere.py:Nothing")
    assert ended(server, wrong["id"])["exit_code"] not in (0, None)


@pytest.mark.parametrize(
    "body",
    [
        {"verb": "delete", "session": "@"},
        {"verb": "resume"},
        {"verb": "resume", "session": "@", "model": "x"},
        {"verb": "whatif", "session": "@", "accept": "because"},
        {"verb": "run", "session": "@", "program": "a:B", "label": "x"},
        {"verb": "whatif", "session": "@", "replace": {"x": "y"}},
        {"verb": "run", "session": "@", "program": "--approve=all"},
        {"verb": "resume", "session": "@", "program": "-x:Y"},
        {"verb": "run", "session": "@", "program": "a:B", "model": "x\0y"},
    ],
)
def test_bad_runs_are_refused(server: LiveServer, store: Store, body: dict[str, Any]) -> None:
    Session("hello", store=store)
    answer = server.post("/api/runs", **body)
    assert (answer.status_code, answer.json()["error"]) == (422, "InvalidValue"), answer.text
    assert server.get("/api/runs")["runs"] == []
    assert server.post("/api/runs", verb="resume", session="none").status_code == 404
    assert server.post("/api/runs/none/stop").status_code == 404


def test_a_run_is_stopped_and_can_be_resumed(
    server: LiveServer, store: Store, tmp_path: Path
) -> None:
    session = parked(Slow(), store)
    session.inbox.answer(session.inbox.waiting[0], "yes", actor="human:ana")
    run = started(server, verb="resume", session=session.id)
    wait_until((tmp_path / "began").exists)
    assert [each["log"] for each in server.get("/api/runs")["locked"]] == [session.id]
    server.post(f"/api/runs/{run['id']}/stop")
    done = ended(server, run["id"])
    assert (done["exit_code"], done["status"]) == (130, "interrupted")
    assert session.reload().status == "interrupted"
    (tmp_path / "go").touch()
    again = started(server, verb="resume", session=session.id)
    assert ended(server, again["id"])["status"] == "finished"


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_end_of_the_server_ends_no_run(
    tmp_path: Path, store: Store, sig: signal.Signals
) -> None:
    session = parked(Slow(), store)
    session.inbox.answer(session.inbox.waiting[0], "yes", actor="human:ana")
    first = LiveServer(tmp_path, RUN_FOLDER=str(tmp_path))
    try:
        run = started(first, verb="resume", session=session.id)
        wait_until((tmp_path / "began").exists)
        first.end(sig)
    finally:
        first.kill()
    os.kill(run["pid"], 0)  # it is there
    with live_server(tmp_path, RUN_FOLDER=str(tmp_path)) as second:
        assert second.base == first.base  # the port belongs to the store
        found = second.get("/api/runs")
        assert [(each["id"], each["state"]) for each in found["runs"]] == [(run["id"], "running")]
        assert [each["log"] for each in found["locked"]] == [session.id]
        (tmp_path / "go").touch()
        done = ended(second, run["id"])
        # nobody was there to be told its exit code
        assert (done["status"], done["exit_code"], done["text"]) == (
            "finished",
            None,
            "It is done.",
        )
    assert session.reload().status == "finished"


def test_a_server_that_only_reads_starts_nothing(tmp_path: Path, store: Store) -> None:
    session = Session("hello", store=store)
    with live_server(tmp_path, "--read-only") as server:
        assert server.get("/api/store")["can_run"] is False
        answer = server.post("/api/runs", verb="resume", session=session.id)
        assert (answer.status_code, answer.json()["error"]) == (403, "ReadOnly")
        path = f"{server.base}/api/sessions/{session.id}/acts/say"
        answer = httpx.post(path, json={"text": "x"}, headers=server.headers)
        assert answer.status_code == 403


# ── in this process ──────────────────────────────────────────────────────────────────────────


def known_run(state: Path, session: Session, id: str) -> Path:
    """Put the folder of a run there, as a server that has ended left it."""
    place = state / "runs" / id
    place.mkdir(parents=True)
    shape = RunShape(
        id, "resume", session.id, None, "plait", "running", 0, Micros(1), None, None, "", None, ""
    )
    (place / "run.json").write_bytes(msgspec.json.encode(shape))
    (place / "lock").touch()
    (place / "out.jsonl").touch()
    return place


def test_only_so_many_runs_go_on_at_once(store: Store, tmp_path: Path) -> None:
    session = Session("hello", store=store)
    places = [known_run(tmp_path, session, f"run-{at}") for at in range(RUNNING)]
    body = {"verb": "resume", "session": session.id}
    runner = ProcessRunner(store, tmp_path, tmp_path)
    with ExitStack() as held, app_client(store, runner=runner) as client:
        for place in places:
            fcntl.flock(held.enter_context((place / "lock").open("wb")), fcntl.LOCK_EX)
        refused = client.post("/api/runs", json=body)
        assert (refused.status_code, refused.json()["error"]) == (429, "TooManyRuns")
        assert "stop one" in refused.json()["next"]
        assert len(list((tmp_path / "runs").iterdir())) == RUNNING
    with app_client(store, runner=runner) as client:  # they have ended
        assert client.post("/api/runs", json=body).status_code == 200
        wait_until(lambda: all(run.state == "ended" for run in runner.runs()))


def test_the_end_of_a_run_is_when_it_ended_not_when_it_is_asked(
    store: Store, tmp_path: Path
) -> None:
    session = Session("nothing ran here", store=store)
    place = known_run(tmp_path, session, "of-an-earlier-server")
    os.utime(place / "out.jsonl", (1_700_000_000, 1_700_000_000))
    runner = ProcessRunner(store, tmp_path, tmp_path)
    (old,) = runner.runs()
    assert (old.state, old.ended) == ("ended", 1_700_000_000_000_000)
    wanted = NewRun(verb="resume", session=session.id)
    run = runner.start(wanted, session, "human:ana")

    def noted() -> bool:  # without a question to the runner
        kept = (tmp_path / "runs" / run.id / "run.json").read_bytes()
        return msgspec.json.decode(kept, type=RunShape).exit_code is not None

    wait_until(noted)
    before = now_s() * 1e6
    (done,) = [each for each in runner.runs() if each.id == run.id]
    assert done.ended is not None and run.began < done.ended <= before
    assert done.exit_code == 1
