"""Shares of projects, and runs that are refused because a queue is full."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from plait import Session, migrate_store, open_store
from plait.cluster import Cluster, ProjectShare, Worker, shares
from plait.errors import BadSettings, InvalidValue, QueueFull, StoreBusy
from plait.model.settings import parse_settings
from plait.session.ask_rows import InboxRows
from plait.store import Store
from plait.testing.store.processes import fork_all
from plait.testing.writing import run_threads
from tests.cli.shell import Shell, shell
from tests.cluster.flows import Count

__all__ = ["shell"]

FLOWS = "tests.cluster.flows"
Serve = Callable[..., Worker]


def test_a_project_may_have_a_full_queue(store: Store) -> None:
    cluster = Cluster(store, shares={"*": ProjectShare(queued_max=2)})
    for _ in range(2):
        cluster.submit(Count(), Session("Hi", store=store))
    session = Session("Hi", store=store)
    with pytest.raises(QueueFull) as refused:
        cluster.submit(Count(), session)
    assert 60 >= refused.value.retry_after_s > 0 and session.reload().head == session.head


def test_the_shares_of_projects_are_settings(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "plait.toml"
    file.write_text("[projects.shop]\nqueued_max = 1\nweight = 0.5\n")
    monkeypatch.setenv("PLAIT_SETTINGS", str(file))
    cluster = Cluster(store)

    def submit(project: str, cluster: Cluster = cluster) -> None:
        cluster.submit(Count(), Session("Hi", store=store, project=project))

    for project in ("shop", "other", "other"):
        submit(project)
    with pytest.raises(QueueFull, match="project shop has 1 runs in the queue, and may have 1"):
        submit("shop")
    submit("shop", Cluster(store, shares={"shop": ProjectShare(2)}))


def test_a_command_that_is_refused_opens_no_session(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[projects."*"]\nqueued_max = 1\n')
    monkeypatch.setenv("PLAIT_SETTINGS", str(file))
    shell("submit", f"{FLOWS}:Count", "-i", "Hi")
    store = open_store(shell.folder)
    before = store.number
    assert "submit it again in" in shell.error(75, "submit", f"{FLOWS}:Count", "-i", "Hi")
    assert store.number == before


def submit_many(address: str, count: int) -> int:
    """Submit so many runs of one project, which may have 5 in the queue; return how many were."""
    store, done = open_store(address), 0
    cluster = Cluster(store, shares={"*": ProjectShare(queued_max=5)})
    for _ in range(count):
        with suppress(QueueFull):
            cluster.submit(Count(), Session("Hi", store=store, project="shop"))
            done += 1
    return done


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "many")
    found: str = request.getfixturevalue("postgres_address")
    migrate_store(found)
    return found


def test_threads_that_submit_at_once_do_not_exceed_the_queue(address: str) -> None:
    counts = list[int]()
    run_threads([lambda: counts.append(submit_many(address, 4))] * 6)
    assert sum(counts) == 5
    queues = open_store(address).rows(InboxRows.name, "queue")
    assert [row["queued"] for row in queues] == [5]


def test_processes_that_submit_at_once_do_not_exceed_the_queue(address: str) -> None:
    open_store(address).close()
    with fork_all(4, lambda: str(submit_many(address, 4))) as answers:
        assert sum(map(int, answers)) == 5


def test_a_submit_of_another_process_that_does_not_end_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "_TURN_S", 0.05)
    cluster = Cluster(store, shares={"*": ProjectShare(queued_max=5)})
    session = Session("Hi", store=store, project="shop")
    lock = store.lock("admission/shop", "")
    with pytest.raises(StoreBusy, match="submit of project 'shop', by this process"):
        cluster.submit(Count(), session)
    assert session.reload().head == session.head
    Cluster(store).submit(Count(), Session("Hi", store=store, project="shop"))  # without a limit
    lock.release()
    cluster.submit(Count(), session)


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        ("[projects]\nshop = 1", "projects.shop", "not a table"),
        ("projects = 1", "projects", "not a table"),
        ("[projects.shop]\nqueued = 1", "projects.shop.queued", "no such setting"),
        ("[projects.shop]\nweight = 0", "projects.shop.weight", "above 0"),
        ("[projects.shop]\nqueued_max = 1.5", "projects.shop.queued_max", "int"),
        ("[projects.shop]\nqueued_max = true", "projects.shop.queued_max", "int"),
        ("[projects.shop]\nrunning_max = -1", "projects.shop.running_max", "above 0"),
        ("[models.m]\nshared = 1", "models.m.shared", "bool"),
    ],
)
def test_settings_that_are_none_are_refused(text: str, key: str, why: str) -> None:
    with pytest.raises(BadSettings, match=why) as refused:
        parse_settings(text, "plait.toml")
    assert refused.value.key == key and refused.value.line == text.count("\n") + 1


def test_shares_that_are_none_are_refused(store: Store) -> None:
    odd: list[Any] = [
        ProjectShare(0),
        ProjectShare(-1),
        ProjectShare(float("nan")),
        ProjectShare(running_max=0),
        ProjectShare(queued_max=-1),
        ProjectShare(queued_max=cast("Any", True)),
        (1.0, 2, 3),
        None,
    ]
    for share in odd:
        with pytest.raises(InvalidValue, match="shop"):
            Cluster(store, shares={"shop": share})
        with pytest.raises(InvalidValue, match="shop"):
            Worker(store, [FLOWS], shares={"shop": share})


def test_a_map_waits_for_its_own_runs_if_the_queue_is_full(store: Store, serve: Serve) -> None:
    serve(slots=1)
    cluster = Cluster(store, shares={"*": ProjectShare(queued_max=1)})
    sessions = [Session(f"Hi {n}", store=store) for n in range(4)]
    assert len(list(cluster.map(Count(), sessions, parallelism=3))) == 4
