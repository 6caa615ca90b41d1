"""The demo where something is missing: a sentence with the next step, and an exit code."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from plait import Session
from plait.cli import main
from plait.demo.folder import (
    NAME,
    DemoFolder,
    DemoRefused,
    Isolation,
    demo_folder,
    files_of_others,
    make_folder,
)
from plait.event import kinds as k
from tests.cli.dialogue import dialogue
from tests.demo.runs import run_demo


def demo(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    monkeypatch.chdir(folder)
    return CliRunner().invoke(main, ["demo", *options], catch_exceptions=False)


def test_a_folder_that_is_there_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DemoFolder(tmp_path / NAME)
    make_folder(folder, Isolation("overlay"))
    before = sorted(folder.path.rglob("*"))
    result = demo(tmp_path, monkeypatch)
    assert result.exit_code == 2
    assert result.stderr == (
        f"plait: {NAME}/ is there from an earlier demo. Go on in it: cd {NAME} && plait log @"
        " --steps.\nBegin anew: plait demo --again\n"
    )
    assert sorted(folder.path.rglob("*")) == before


@pytest.mark.parametrize("options", [(), ("--again",)])
def test_a_folder_of_somebody_else_is_never_removed(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "thesis.txt").write_text("years of work\n")
    result = demo(tmp_path, monkeypatch, *options)
    assert result.exit_code == 2 and "was not made by `plait demo`" in result.stderr
    assert (tmp_path / NAME / "thesis.txt").read_text() == "years of work\n"


@pytest.mark.parametrize("name", ["mine.py", "shop/notes/todo.txt", "demo.py", "shop/cart.py"])
def test_work_of_the_user_is_not_removed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DemoFolder(tmp_path / NAME)
    make_folder(folder, Isolation("bare", "a kernel without landlock"))
    (folder.path / "tracker.txt").write_text("clamp: It stops at zero.\n")
    (folder.path / "__pycache__").mkdir()
    (folder.path / "__pycache__" / "demo.pyc").write_bytes(b"")
    assert files_of_others(folder) == []
    path = folder.path / name
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write("# an evening of work\n")
    before = {each: each.stat().st_mtime_ns for each in folder.path.rglob("*")}
    result = demo(tmp_path, monkeypatch, "--again")
    assert result.exit_code == 2
    assert f"changed since: {name}. Nothing was removed." in result.stderr
    assert f"mv {NAME} my-shop" in result.stderr
    assert {each: each.stat().st_mtime_ns for each in folder.path.rglob("*")} == before


def test_a_link_to_a_demo_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(DemoFolder(tmp_path / "elsewhere"), Isolation("overlay"))
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    result = demo(tmp_path, monkeypatch, "--again")
    assert result.exit_code == 2 and (tmp_path / "elsewhere" / "demo.py").exists()


def test_a_folder_that_takes_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    result = demo(Path("/sys"), monkeypatch)  # where not even root makes one
    assert result.exit_code == 1
    assert re.fullmatch(
        rf"plait: {NAME}/ cannot be made here: .+\. Go to a folder in which you may write, and try"
        r" again\.\n",
        result.stderr,
    )


def test_an_unknown_model_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = demo(tmp_path, monkeypatch, "--model", "nonsense")
    assert result.exit_code == 1 and "nonsense" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_pace_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert demo(tmp_path, monkeypatch, "--pace", "-1").exit_code == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that is full before the demo is over."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_full_half_way(small_disk: Path) -> None:
    run = run_demo(small_disk)
    assert run.code == 75 and "Traceback" not in run.errors
    assert "no space left for" in run.errors
    assert re.search(r"When the cause is gone: cd plait-demo && plait resume [0-9a-f]{8}$",
                     run.errors.strip())  # fmt: skip


@pytest.mark.parametrize(("typed", "reason"), [("n", ""), ("n it is needed", "it is needed")])
def test_a_narrow_terminal_without_colour_and_a_denial(
    typed: str, reason: str, tmp_path: Path
) -> None:
    where = os.getcwd()
    os.chdir(tmp_path)
    try:
        with dialogue("demo", "--pace", "0.01", width=60, COLUMNS="60") as talk:
            talk.expect("The script waits 0.01 s before each reply")
            talk.expect("repair/tidy wants to run: rm ISSUE.md")
            talk.expect("[y]es / [n]o / [e]dit: ")
            talk.type(f"{typed}\n")
            talk.expect("1 asked, 0 allowed")
            talk.expect("look at it: ")
            talk.expect("plait view @")
            assert talk.end() == 0
            shown = talk.text
    finally:
        os.chdir(where)
    assert "\x1b" not in shown
    assert [line for line in shown.splitlines() if len(line) > 60] == []
    assert re.search(r"worked \d+\.\d s, shown in \d+\.\d s; waits: \d+\.\d s to read", shown)
    # the person said no and nothing else; what nobody was asked about is in nobody's name
    session = Session.open("@", store=tmp_path / NAME / ".plait")
    said = [event for event in session.inbox.events if isinstance(event.body, k.ApprovalDenied)]
    assert [msgspec.to_builtins(event.body).get("reason", "") for event in said] == [reason]
    assert said[0].actor.startswith("human:")


def test_a_folder_that_another_demo_made_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """Both looked, and found none: the second must not remove what the first has made."""
    folder = demo_folder(tmp_path)
    make_folder(folder, Isolation("host"))
    (folder.path / "precious").write_text("mine")
    with pytest.raises(DemoRefused, match="Nothing was touched") as refused:
        make_folder(folder, Isolation("host"))
    assert refused.value.code == 2 and (folder.path / "precious").read_text() == "mine"
