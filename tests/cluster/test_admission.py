"""Shares of projects, and runs that are refused because a queue is full."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from plait import Session, open_store
from plait.cluster import Cluster, ProjectShare, Worker
from plait.errors import BadSettings, InvalidValue, QueueFull
from plait.model.settings import parse_settings
from plait.store import Store
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
