"""Copies of sessions that have moved to another host. Two hosts are two cache folders and two names
of the machine, each in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait import Session, Workflow, migrate_store, open_store
from plait.cluster import Cluster, Worker, drive
from plait.cluster import pruning as cluster_pruning
from plait.cluster.pruning import CopyPruner
from plait.runtime import sandboxes
from plait.sandbox import local
from plait.session import verify
from plait.store import Store
from plait.testing.store.processes import fork_process
from plait.workspace.copy_state import cache_folder, list_copies
from plait.workspace.locks import Lock
from plait.workspace.pruning import prune_copy
from tests.cluster.flows import Writes, WritesInBranch, write_file

LONG_S = 120


def on_host(name: str, caches: Path, act: Callable[[], str]) -> str:
    """Do it in a process on this host; return what it says."""

    def work() -> str:
        os.environ["XDG_CACHE_HOME"] = str(caches / name)
        modules: list[Any] = [local, cluster_pruning]
        for module in modules:
            module.host_name = lambda: name
        said = act()
        sandboxes.close_sandboxes()
        return said

    with fork_process(work) as (_, text):
        return text


def copies_on(caches: Path, name: str) -> list[str]:
    return sorted(each.name for each in (caches / name).glob("plait/*/copies/*") if each.is_dir())


@pytest.fixture
def moved(postgres_address: str, tmp_path: Path) -> tuple[str, Session, Path]:
    """A session that wrote a file on host one, and then on host two."""
    return move(postgres_address, tmp_path, Writes())


def move(postgres_address: str, tmp_path: Path, program: Workflow) -> tuple[str, Session, Path]:
    """Have a run work on host one until it waits, and end on host two."""
    migrate_store(postgres_address)
    store = open_store(postgres_address)
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "a.txt").write_text("one\n")
    caches = tmp_path / "caches"
    session = Session("Write.", store=store)

    def place() -> str:
        placed = Session.open(session.id, store=open_store(postgres_address)).to(
            "local", str(tmp_path / "repo"), isolation="host"
        )
        Cluster(placed.store).submit(program, placed)
        return drive(placed.id, store=placed.store).how

    def go_on() -> str:
        return drive(session.id, store=open_store(postgres_address)).how

    assert on_host("one", caches, place) == "parked"
    now = session.reload()
    now.inbox.answer(now.inbox.waiting[0].event, "yes")
    assert on_host("two", caches, go_on) == "finished"
    return postgres_address, session.reload(), caches


def test_a_copy_that_a_session_left_behind_is_removed(
    moved: tuple[str, Session, Path],
) -> None:
    address, session, caches = moved
    assert session.files.read("first.txt") == session.files.read("second.txt") == b"written"
    assert copies_on(caches, "one") == copies_on(caches, "two") == [session.id]

    def prune() -> str:
        return ",".join(CopyPruner(open_store(address)).prune())

    assert on_host("two", caches, prune) == ""
    assert on_host("one", caches, prune) == session.id
    assert copies_on(caches, "one") == [] and copies_on(caches, "two") == [session.id]
    assert (caches.parent / "repo" / "a.txt").read_text() == "one\n"
    assert session.reload().files.read("first.txt") == b"written"
    assert list(verify(open_store(address))) == []


def test_copies_of_branches_are_removed_with_that_of_their_session(
    postgres_address: str, tmp_path: Path
) -> None:
    address, session, caches = move(postgres_address, tmp_path, WritesInBranch())
    side = str(session.facts["side"])
    assert copies_on(caches, "one") == sorted([session.id, side])

    def prune(*own: str) -> str:
        def work() -> str:
            return ",".join(sorted(CopyPruner(open_store(address)).prune(own)))

        return on_host("one", caches, work)

    assert prune(session.id) == "", "the run is at work here again"
    assert prune() == ",".join(sorted([session.id, side]))
    assert copies_on(caches, "one") == []


def test_the_copy_of_a_fork_that_a_person_made_stays(moved: tuple[str, Session, Path]) -> None:
    address, session, caches = moved

    def fork() -> str:
        at = Session.open(session.id, store=open_store(address))
        return at.fork("mine").use(write_file, path="third.txt", content="written").id

    other = on_host("one", caches, fork)

    def prune() -> str:
        return ",".join(CopyPruner(open_store(address)).prune())

    assert on_host("one", caches, prune) == session.id
    assert copies_on(caches, "one") == [other]


def test_a_worker_prunes_when_it_looks_around(moved: tuple[str, Session, Path]) -> None:
    address, _, caches = moved

    def serve() -> str:
        worker = Worker(open_store(address), ["tests.cluster.flows"])
        worker._sweep(worker._stores[0])  # pyright: ignore[reportPrivateUsage]
        return "swept"

    assert on_host("one", caches, serve) == "swept"
    assert copies_on(caches, "one") == []


def test_copies_in_use_and_those_of_own_runs_stay(moved: tuple[str, Session, Path]) -> None:
    address, session, caches = moved
    (home,) = (caches / "one").glob(f"plait/*/copies/{session.id}")
    cache = home.parent.parent

    def prune(own: tuple[str, ...] = ()) -> str:
        store = open_store(address)
        return on_host("one", caches, lambda: ",".join(CopyPruner(store).prune(own)))

    lock = Lock(home.with_name(f"{home.name}.lock"), home.name)
    assert prune() == ""
    lock.release()
    assert prune((session.id,)) == ""
    program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    for folder, output in ((home / "files", None), (None, home / "files" / "log.txt")):
        with open(output or os.devnull, "w") as file:
            process = subprocess.Popen(program, cwd=folder, stdin=subprocess.PIPE, stdout=file)
        try:
            assert not prune_copy(cache, home.name) and home.is_dir()
        finally:
            process.communicate()
    assert prune() == session.id and not home.exists()


def test_only_copies_of_the_cache_are_removed(store: Store, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "kept.txt").write_text("kept")
    cache = cache_folder(store)
    (cache / "copies").mkdir(parents=True)
    name = Session("Hi", store=store).id
    (cache / "copies" / name).symlink_to(mine)
    assert not prune_copy(cache, name)
    for odd in ("..", ".", "../../mine", "", "none", f"{name}/.."):
        assert not prune_copy(cache, odd)
    assert (mine / "kept.txt").read_text() == "kept"
    assert CopyPruner(store).prune() == []
    assert [each.name for each in list_copies(cache)] == [name]
