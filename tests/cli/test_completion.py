"""Completion by name, label, place, path, ask and key; and the pager of long output."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from plait import Session
from tests.cli.shell import COMMAND, Shell, on_a_terminal, shell
from tests.support import run_forked

__all__ = ["shell"]


def completions(shell: Shell, line: str) -> list[str]:
    """The values that bash is offered at the end of a line."""
    words = len(line.split()) - (not line.endswith(" "))
    settings = {"_PLAIT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(words)}
    done = run_forked(COMMAND, env={**os.environ, **settings})
    assert not done.stderr, done.stderr
    return [each.partition(",")[2] for each in done.stdout.splitlines() if each]


def test_names_that_there_are_complete(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "cart.py").write_text("total = 0\n")
    name = shell.new("Why?", "--title", "cart bug")
    shell("fact", name, "db", "15")
    shell("fork", name, "strict")
    shell("to", name, "local", "shop")
    assert completions(shell, "plait sh") == ["show"]
    assert completions(shell, "plait show str") == ["strict"]
    assert {"@", "strict", name} <= set(completions(shell, "plait log "))
    assert completions(shell, f"plait log {name}@") == [f"{name}@2", f"{name}@3", f"{name}@4"]
    assert completions(shell, f"plait cat {name}:") == [f"{name}:cart.py"]
    assert completions(shell, f"plait retract {name} ") == ["db"]
    assert "--steps" in completions(shell, "plait log --st")
    assert completions(shell, "plait memory sh") == ["show"]
    assert completions(shell, "plait merge strict str") == ["strict"]


def test_where_there_is_no_store_nothing_is_offered_and_nothing_is_made(
    shell: Shell, tmp_path: Path
) -> None:
    assert completions(shell, "plait show ") == []
    assert not (tmp_path / ".plait").exists()


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: Shell, name: str) -> None:
    script = shell("completion", name)
    assert f"_PLAIT_COMPLETE={name}_complete" in script
    if name == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=60)


def test_a_shell_that_is_not_known_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert "plait completion bash|zsh|fish" in shell.error(2, "completion")


def test_bash_replaces_what_stands_after_the_last_break(shell: Shell) -> None:
    name = shell.new("x")
    (shell.folder.parent / "plait").write_text(
        f'#!/bin/sh\nexec {COMMAND[0]} -c "{COMMAND[2]}" "$@"\n'
    )
    (shell.folder.parent / "plait").chmod(0o755)
    line = f"plait log {name}@"
    script = f"""{shell("completion", "bash")}
compopt() {{ :; }}
COMP_LINE='{line}' COMP_POINT={len(line)} _plait_completion
echo "${{COMPREPLY[@]}}"
"""
    environ = {**os.environ, "PATH": f"{shell.folder.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash"], input=script, text=True, capture_output=True, env=environ, timeout=90
    )
    assert done.stdout == "2\n", done.stderr


# ── the pager ────────────────────────────────────────────────────────────────────────────────


def test_long_output_goes_through_the_pager_on_a_terminal_only(
    shell: Shell, tmp_path: Path
) -> None:
    session: Session = shell.open(shell.new("x"))
    for number in range(20):
        session = session.say(f"message {number}")
    pager = f"{tmp_path}/pager"
    Path(pager).write_text(f"#!/bin/sh\necho paged; cat > {tmp_path}/seen; exit 0\n")
    Path(pager).chmod(0o755)
    assert "message 19" not in on_a_terminal("log", PAGER=pager, NO_COLOR="1")
    assert "message 19" in (tmp_path / "seen").read_text()
    assert on_a_terminal("log", PAGER=pager) == "paged\n"
    assert "\x1b[" in (tmp_path / "seen").read_text(), "a pager shows colours"
    failed = on_a_terminal("log", PAGER="false", NO_COLOR="1")
    assert "message 19" in failed and "The pager failed: false" in failed
    for none in ("", "cat", "no-such-pager", "unclosed '"):
        assert "message 19" in on_a_terminal("log", NO_COLOR="1", PAGER=none), none
    assert "message 19" in on_a_terminal("log", PAGER=pager, PLAIT_PAGER="")
    assert "message 19" in on_a_terminal("log", "--no-pager", PAGER=pager)
    assert "message 19" in shell("log"), "a pipe has none"


def test_a_pager_that_is_left_early_is_no_error(shell: Shell, tmp_path: Path) -> None:
    shell.new("x\n" * 200_000)
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nhead -c 10 >/dev/null\n")
    pager.chmod(0o755)
    told = on_a_terminal("log", "--events", PAGER=str(pager))
    assert "Traceback" not in told and "plait:" not in told
