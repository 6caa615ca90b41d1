"""Runs that are bound to a host or to an isolation by their files."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait import Session, replay
from plait.cluster import Cluster, Worker, drive
from plait.cluster.places import find_rungs, host_label
from plait.errors import InvalidValue
from plait.event import kinds as k
from plait.runtime import publish
from plait.session import verify
from plait.session.ask_rows import InboxRows
from plait.session.work_rows import read_wishes
from plait.store import Store
from tests.cluster.flows import Count, Moves, Publishes
from tests.support import claims_of, wait_until

Serve = Callable[..., Worker]
LONG_S = 120
HERE = socket.gethostname()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "repo"
    found.mkdir()
    (found / "a.txt").write_text("one\n")
    return found


def need_of(store: Store, session: Session) -> tuple[str, ...]:
    (row,) = store.rows(InboxRows.name, "work", {"log": session.id}, limit=1)
    return read_wishes(str(row["wishes"])).need


def test_a_run_needs_the_isolation_of_its_files(store: Store, serve: Serve, folder: Path) -> None:
    if "bubblewrap" not in find_rungs(store):
        pytest.skip("this machine has no bubblewrap")
    session = Session("Count.", store=store).to("local", str(folder))
    task = Cluster(store).submit(Count(), session, need={"linux"})
    assert need_of(store, session) == ("isolation:bubblewrap", "linux")
    low = serve(isolation="host", labels={"linux"})
    wait_until(lambda: "worker" in task.why and "no worker" not in task.why)
    assert "needs isolation bubblewrap; 1 worker is there, the best has host" in task.why
    assert low.rungs == ("host",)
    serve()
    wait_until(lambda: "2 workers are there" in task.why)
    assert "2 workers are there with its program, none has it all" in task.why
    able = serve(labels={"linux"})
    assert task.result(LONG_S).text == "counted"
    (claim,) = claims_of(task.session)
    assert (claim.worker, claim.labels) == (able.name, ("linux",))


def test_sessions_without_files_and_with_less_isolation_need_less(
    store: Store, serve: Serve, folder: Path
) -> None:
    serve(isolation="host")
    sessions = [
        Session("Count.", store=store),
        Session("Count.", store=store).to("local", str(folder), isolation="host"),
    ]
    tasks = [Cluster(store).submit(Count(), session) for session in sessions]
    assert [task.result(LONG_S).text for task in tasks] == ["counted"] * 2


def test_a_run_that_needs_its_heavy_folders_waits_for_their_host(
    store: Store, serve: Serve, folder: Path
) -> None:
    (folder / ".venv").mkdir()
    (folder / ".venv" / "tool").write_text("x")
    free = Session("Count.", store=store).to("local", str(folder), isolation="host")
    Cluster(store).submit(Count(), free)
    assert need_of(store, free) == ("isolation:host",), "else they are left out, on record"
    session = Session("Count.", store=store)
    session = session.to("local", str(folder), needs_heavy=True, isolation="host")
    session = session.to("local", network="on")  # the files stay, and so does the need
    task = Cluster(store).submit(Count(), session)
    assert need_of(store, session) == (host_label(HERE), "isolation:host")
    serve(host="elsewhere")
    wait_until(lambda: "1 worker" in task.why)
    assert f"bound to host {HERE}; 1 worker is there, none on that host" in task.why
    here = serve()
    assert task.result(LONG_S).text == "counted"
    assert [claim.worker for claim in claims_of(task.session)] == [here.name]


def test_a_need_for_heavy_folders_that_are_not_there_is_refused(store: Store, folder: Path) -> None:
    session = Session("Count.", store=store)
    for odd in (True, "yes", 1):
        with pytest.raises(InvalidValue, match="needs_heavy"):
            session.to("local", str(folder), needs_heavy=odd)
    with pytest.raises(InvalidValue, match="no heavy folder"):
        session.to("local", needs_heavy=True)
    assert session.reload().head == session.head


def test_a_run_in_place_waits_for_its_host(store: Store, serve: Serve, folder: Path) -> None:
    session = Session("Count.", store=store)
    session = session.to("local", str(folder), in_place=True, isolation="host")
    task = Cluster(store).submit(Count(), session)
    assert need_of(store, session) == (host_label(HERE), "isolation:host")
    serve(host="elsewhere")
    wait_until(lambda: "1 worker" in task.why)
    assert f"bound to host {HERE}; 1 worker is there, none on that host" in task.why
    here = serve()
    assert task.result(LONG_S).text == "counted"
    assert claims_of(task.session)[0].worker == here.name


def test_a_run_that_moved_its_files_is_left_to_their_host(
    store: Store, serve: Serve, folder: Path
) -> None:
    cluster = Cluster(store)
    task = cluster.submit(Moves(), Session("Move.", store=store), folder=str(folder))
    assert need_of(store, task.session) == ()
    assert drive(task.session.id, store=store).how == "parked"
    task.session.inbox.answer(task.session.inbox.waiting[0].event, "yes")
    other = serve(host="elsewhere")
    wait_until(lambda: "elsewhere" in other.ended)
    assert need_of(store, task.session) == (host_label(HERE),)  # the rung it has
    wait_until(lambda: "bound to host" in task.why)
    assert not (folder / "here").exists()
    serve()
    assert task.result(LONG_S).text == "worked"
    assert (folder / "here").exists()
    assert replay(task.session).head == task.session.head
    assert list(verify(store)) == []


def test_a_run_publishes_on_the_host_of_its_folder(
    store: Store, serve: Serve, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session("Publish.", store=store).to("local", str(folder), isolation="host")
    (folder / "a.txt").unlink()  # which the merge keeps
    task = Cluster(store).submit(Publishes(), session)
    with monkeypatch.context() as other:
        other.setattr(publish, "host_name", lambda: "elsewhere")
        outcome = drive(task.session.id, store=store)
    assert (outcome.how, outcome.why) == ("elsewhere", host_label(HERE))
    assert need_of(store, session) == (host_label(HERE), "isolation:host")
    bound = task.session.events[-1].body
    assert isinstance(bound, k.RunSubmitted) and bound.wishes.need == need_of(store, session)
    serve()
    assert task.result(LONG_S).text == "published"
    assert replay(task.session).head == task.session.head


def test_a_worker_says_its_places_itself(store: Store) -> None:
    odd: list[dict[str, Any]] = [
        {"labels": {"host:db"}},
        {"labels": {"isolation:overlay"}},
        {"isolation": "vm"},
    ]
    for each in odd:
        with pytest.raises(InvalidValue):
            Worker(store, ["tests.cluster.flows"], **each)
    assert host_label("a" * 400) != host_label("a" * 401)
    assert len(host_label("ä")) < 40 and host_label("web-1.example") == "host:web-1.example"
