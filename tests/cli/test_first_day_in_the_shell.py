"""Commands as they are mistyped on a first day: each is refused with the right spelling."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import Shell, shell

__all__ = ["shell"]


def test_a_number_that_is_no_place_may_be_a_text(shell: Shell) -> None:
    name = shell.new("Who was born in 1911?")
    told = shell.error(3, "why", name, "1911")
    step = f"plait why {name} '\"1911\"'"
    assert "its events are 1 to 2" in told and step in told
    assert "born in 1911?" in shell("why", name, '"1911"')
    assert f"plait influence {name}" in shell.error(3, "influence", name, "1911")


def test_a_grant_names_its_own_argument(shell: Shell) -> None:
    told = shell.error(2, "grant", shell.new("x"), "steps")
    assert "LIMITS" in told and "--budget" not in told
    assert "LIMITS" in shell.error(2, "grant", "@", "stepz=3")


@pytest.mark.parametrize("words", [("new", "x"), ("run", "flow.py:Flow", "-i", "x")])
def test_a_mistyped_store_makes_no_folders(
    shell: Shell, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "flow.py").write_text(
        "from plait import Workflow\nclass Flow(Workflow):\n    def forward(self, session):\n"
        "        return session.say('Done.', role='assistant')\n"
    )
    told = shell.error(2, *words, "--store", str(tmp_path / "typo" / "store"))
    assert f"there is no folder {tmp_path / 'typo'}" in told and not (tmp_path / "typo").exists()
    shell(*words, "--store", str(tmp_path / "store"))


def test_a_chat_with_a_file_asks_for_the_name_in_it(shell: Shell) -> None:
    assert "write flow.py:Workflow" in shell.error(2, "chat", "flow.py")


def test_a_session_without_files_says_how_to_place_it(shell: Shell) -> None:
    session = shell.open(shell.new("x"))
    told = shell.error(3, "files", session.id)
    assert session.id not in told and f"plait to {session.short} local FOLDER" in told


def test_python_m_plait_is_plait(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(
        "from plait import Workflow\nclass Flow(Workflow):\n    def forward(self, session):\n"
        "        return session.say('Done.', role='assistant')\n"
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "plait", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    done = run("run", "flow:Flow", "-i", "x")
    assert done.returncode == 0 and "Done." in done.stdout
    assert run("show", "@").stdout == shell("show", "@")
    refused = run("shwo")
    assert refused.returncode == 2 and "Usage: plait " in refused.stderr
