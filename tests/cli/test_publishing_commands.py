"""What `plait apply`, `plait inbox` and `plait approve` say of files that a user's
own tools run.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import Shell, shell
from tests.cli.test_places import placed, put, repo
from tests.cli.test_running import at_a_terminal

__all__ = ["placed", "repo", "shell"]

FLOW = """
from plait import Workflow
from plait.policy import Ask, Policy
from plait.tools import shell

class Publish(Workflow):
    policy = Policy(Ask("apply"))

    def forward(self, session):
        session = session.to("local", "./repo", isolation="host")
        plant = r"printf 'x = \\042\\033[2J\\042\\n' > conftest.py; echo 'gitdir: x' > .git; "
        return session.use(shell, command=plant + "seq 1 100 > numbers").files.apply()
"""


def _changed(shell: Shell, placed: str) -> None:
    shell.open(placed).use(put, path="conftest.py", text="import evil\n").use(
        put, path=".git", text="gitdir: x\n"
    )


def test_apply_names_what_is_run_and_what_is_not_published(
    shell: Shell, placed: str, repo: Path
) -> None:
    _changed(shell, placed)
    named = [
        "run by your own tools: conftest.py (pytest runs it before any test)",
        "not published: .git (git keeps what it runs there)",
    ]
    patch = shell("apply", placed, "--dry-run")
    assert (
        "+import evil" in patch
        and "gitdir" not in patch
        and patch.splitlines()[-2:] == [f"# {line}" for line in named]
    )
    found = shell.json("apply", placed, "--dry-run")
    assert list(found["executable"]) == ["conftest.py"] and list(found["unpublished"]) == [".git"]
    said = shell("apply", placed).splitlines()
    assert said[0].endswith(f"wrote 1 path to {repo}") and said[1:] == [
        "  A conftest.py +1 −0",
        *(f"  {line}" for line in named),
    ]
    assert (repo / "conftest.py").exists() and not (repo / ".git").exists()


def test_apply_as_json_names_them(shell: Shell, placed: str) -> None:
    _changed(shell, placed)
    found = shell.json("apply", placed)
    assert (
        found["written"] == ["conftest.py"]
        and list(found["executable"]) == ["conftest.py"]
        and list(found["unpublished"]) == [".git"]
    )


@pytest.mark.parametrize(
    ("key", "code"),
    [(b"y\n", 0), (b"\n", 1), (b"n\n", 1), (b"\x04", 1)],
    ids=["yes", "nothing", "no", "end of input"],
)
def test_at_a_terminal_one_is_asked(
    shell: Shell, placed: str, repo: Path, monkeypatch: pytest.MonkeyPatch, key: bytes, code: int
) -> None:
    monkeypatch.setattr("tests.cli.test_running.PROMPT", b"else is no: ")
    _changed(shell, placed)
    ended, text = at_a_terminal("apply", placed, keys=[key])
    assert (
        ended == code
        and "+import evil" in text
        and "conftest.py (pytest runs it before any test)" in text
    )
    assert (repo / "conftest.py").exists() == (code == 0)


def test_at_a_terminal_nothing_is_asked_about_other_files(
    shell: Shell, placed: str, repo: Path
) -> None:
    shell.open(placed).use(put, path="a.txt", text="a\n")
    assert at_a_terminal("apply", placed, keys=[])[0] == 0 and (repo / "a.txt").exists()
    _changed(shell, placed)
    assert (
        at_a_terminal("apply", placed, "--yes", keys=[])[0] == 0 and (repo / "conftest.py").exists()
    )


def test_the_inbox_shows_the_patch(shell: Shell, repo: Path, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    assert shell.run("run", "flow.py:Publish", "-i", "go", "--approve", "park").exit_code == 4
    said = shell("inbox")
    assert r'+x = "\u001b[2J"' in said and "\x1b" not in said
    assert (
        "CAUTION     conftest.py: pytest runs it before any test" in said
        and "kept back   .git: git keeps" in said
    )
    assert (
        f"publishes   2 paths to {repo}" in said
        and "more; --full shows them" in said
        and "+99" not in said.split()
    )
    assert "+99" in shell("inbox", "--full").split()
    (ask,) = shell.json("inbox")["waiting"]
    assert (
        list(ask["shown"]["executable"]) == ["conftest.py"] and "numbers" in ask["shown"]["patch"]
    )
    assert "CAUTION     conftest.py" in shell("approve", ask["id"])
    assert shell.run("resume", ask["resume"]).exit_code == 0
    assert (repo / "conftest.py").exists() and not (repo / ".git").exists()
    assert json.loads(json.dumps(ask)) == ask


def test_the_terminal_shows_the_patch_before_it_asks(
    shell: Shell, repo: Path, tmp_path: Path
) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    code, text = at_a_terminal("run", "flow.py:Publish", "-i", "go", keys=[b"n\n"])
    assert (
        code != 0
        and r'+x = "\u001b[2J"' in text
        and "+99" in text.split()
        and not (repo / "conftest.py").exists()
    )
    assert (
        "CAUTION     conftest.py: pytest runs it before any test"
        in text.split("Allow it?")[0][-300:]
    )
