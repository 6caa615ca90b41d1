"""A session whose files are on another machine: placed, used, forked, rewound, taken up again, and
replaced when its sandbox is gone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import Session
from plait.errors import MissingKey, SandboxError
from plait.event.kinds import PlacementChanged
from plait.runtime import places
from plait.sandbox import backend
from plait.tools import shell, write_file
from tests.sandbox.remote.loopback import Server
from tests.support import filled_folder


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return filled_folder(tmp_path / "repo", {"a.txt": "one\n"})


def test_files_travel_with_the_session(e2b_server: Server, repo: Path, tmp_path: Path) -> None:
    local = (
        Session("x", store=tmp_path / "store")
        .to("local", repo)
        .use(write_file, path="b.txt", content="two\n")
    )
    away = local.to("e2b", template="base")
    body = away.events[-1].body
    assert (
        isinstance(body, PlacementChanged)
        and body.placement.sandbox
        and body.placement.backend == "e2b"
    )
    assert len(e2b_server.cloud.machines) == 1  # it is made when the session is placed
    used = away.use(shell, command="cat a.txt b.txt; echo three > c.txt")
    assert used.result == "one\ntwo\n" and used.files.text("c.txt") == "three\n"
    fork = used.fork("f").use(shell, command="rm a.txt; ls")
    assert fork.result == "b.txt\nc.txt\n" and len(e2b_server.cloud.machines) == 2
    back = used.reload().rewind(away.seq).use(shell, command="ls")
    assert back.result == "a.txt\nb.txt\n"
    home = fork.to("local").use(shell, command="ls")
    assert home.result == "b.txt\nc.txt\n" and home.merge(used.fork("g")).files.paths() == [
        "b.txt",
        "c.txt",
    ]


def test_a_sandbox_is_found_again_or_replaced(
    e2b_server: Server, repo: Path, tmp_path: Path
) -> None:
    used = (
        Session("x", store=tmp_path / "store")
        .to("e2b", repo, template="base")
        .use(shell, command="echo two > b.txt")
    )
    first = used.effects[-1].placement
    places.drop_hands()  # as another process would come to it
    again = used.use(shell, command="ls")
    assert again.result == "a.txt\nb.txt\n" and again.effects[-1].placement == first
    places.drop_hands()
    for machine in list(e2b_server.cloud.machines):
        del e2b_server.cloud.machines[machine]
    replaced = again.use(shell, command="ls")
    assert replaced.result == "a.txt\nb.txt\n"
    (change,) = [
        event.body
        for event in replaced.events
        if event.seq > again.seq and isinstance(event.body, PlacementChanged)
    ]
    assert (
        first is not None
        and change.replaced == first.sandbox != change.placement.sandbox
        and change.tree == again.files.tree
    )


def test_what_is_wrong_is_said_when_it_is_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    fresh = Session("x", store=tmp_path / "store")
    with pytest.raises(MissingKey, match="E2B_API_KEY"):
        fresh.to("e2b", template="base")
    with pytest.raises(SandboxError):
        fresh.to("e2b", isolation="overlay")
    assert fresh.reload() == fresh and backend("e2b").probe().label.startswith("wire-tested")
