"""Leftovers that hold no bytes: folders with nothing in them, pipes and sockets under any name.

The next command finds none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plait import Session
from plait.runtime.places import drop_hands
from plait.tools import shell
from tests.sandbox.rooms import Room, needs, on_every, room

PLANT = """
mkdir -p .venv node_modules .tox .git .nox deep/.git sub/venv .pytest_cache/x __pycache__ .plait
mkfifo pipe sub/.env deep/.git/pipe
rm a.txt; mkfifo a.txt
python3 -S -c 'import os, stat; os.mknod("sub/socket", stat.S_IFSOCK | 0o600)'
"""
LIST = "find . -mindepth 1 | sort"


def taken(here: Room) -> None:
    here.store.put_blobs(here.box.snapshot().blobs)


@on_every
def test_no_empty_folder_no_pipe_and_no_socket_is_there_for_the_next_command(
    tmp_path: Path, rung: str
) -> None:
    with room(tmp_path, rung, {"a.txt": "hello\n", "sub/b.txt": "b\n"}) as here:
        before = here.box.snapshot().tree
        here.box.begin()
        planted = here.sh(PLANT)
        assert planted.exit_code == 0, planted.output.view()
        found = here.box.snapshot()
        here.store.put_blobs(found.blobs)
        assert found.changed == ("a.txt", "deep") and found.skipped == (
            "a.txt",
            "pipe",
            "sub/.env",
            "sub/socket",
        )
        assert {
            ".venv",
            "node_modules",
            "deep/.git",
            "sub/venv",
            "pipe",
            "sub/.env",
            "sub/socket",
            "a.txt",
        } <= set(found.dropped)
        assert here.said(LIST).split() == ["./deep", "./sub", "./sub/b.txt"]
        assert here.box.snapshot().tree == found.tree
        here.box.restore(before)
        assert (
            here.said(LIST).split() == ["./a.txt", "./sub", "./sub/b.txt"]
            and here.said("cat a.txt") == "hello"
        )
        here.box.restore(found.tree)
        assert here.said(LIST).split() == ["./deep", "./sub", "./sub/b.txt"]


@on_every
def test_a_folder_in_the_place_of_a_file_of_the_tree_takes_the_file_along(
    tmp_path: Path, rung: str
) -> None:
    with room(tmp_path, rung, {"a.txt": "hello\n", "sub/venv": "a file\n"}) as here:
        here.box.begin()
        here.sh("rm sub/venv; mkdir -p sub/venv/bin; echo x > sub/venv/bin/python3")
        found = here.box.snapshot()
        here.store.put_blobs(found.blobs)
        assert found.changed == ("sub/venv",) and found.dropped == ("sub/venv",)
        assert here.said(LIST).split() == ["./a.txt", "./sub"]
        assert here.box.snapshot().tree == found.tree


def test_the_next_call_a_fork_and_a_validation_find_none(tmp_path: Path) -> None:
    needs("overlay", tmp_path)
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "a.txt").write_text("hello\n")
    placed = Session("x", store=tmp_path / "store").to("local", tmp_path / "repo")
    planted = placed.use(
        shell, command="mkdir -p .venv/bin; rmdir .venv/bin; mkdir node_modules; mkfifo pipe"
    )
    assert planted.files.tree == placed.files.tree
    for session in (
        planted.fork("branch"),
        planted.fork("checked").to("local", clean=True),
        planted,
    ):
        assert session.use(shell, command=LIST).result == "./a.txt\n"
    drop_hands()


@pytest.mark.parametrize("rung", ["overlay", "bubblewrap"])
def test_a_heavy_folder_of_the_user_is_mounted_again_and_is_no_leftover(
    tmp_path: Path, rung: str
) -> None:
    needs(rung, tmp_path)
    repo = tmp_path / "repo"
    for name in (".venv", "node_modules"):
        (repo / name).mkdir(parents=True)
        (repo / name / "own").write_text("own\n")
    placed = Session("x", store=tmp_path / "store").to("local", repo, isolation=rung)
    for _ in range(2):
        placed = placed.use(shell, command="cat .venv/own node_modules/own; mkdir -p venv")
        assert placed.result == "own\nown\n"
        detail = placed.events[-1].body.placement.detail  # type: ignore[union-attr]
        assert detail["dropped"] == ["venv"]
    drop_hands()
