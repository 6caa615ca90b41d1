"""Placing, publishing and throwing away, on real folders and with the sandboxes of this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from plait import tool
from plait.cli import places
from plait.sandbox import Capability, Probe, Sandbox, SandboxInfo, Wanted, backend
from plait.session.ports import store_at
from plait.workspace.tree import EMPTY
from tests.cli.shell import Shell, on_a_terminal, shell
from tests.support import filled_folder

__all__ = ["shell"]

HOST = ["--isolation", "host"]  # there on every machine


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return filled_folder(
        tmp_path / "repo", {"src/cart.py": "one\ntwo\nthree\n", "README": "hello\n"}
    )


@pytest.fixture
def placed(shell: Shell, repo: Path) -> str:
    name = shell.new("fix it")
    shell("to", name, "local", str(repo), *HOST)
    return name


@tool(effect="workspace")
def put(path: str, text: str, sandbox: Sandbox) -> str:
    """Write a file where the session is placed."""
    sandbox.files.write(path, text.encode())
    return "written"


# ── to ───────────────────────────────────────────────────────────────────────────────────────


def test_to_records_a_folder(shell: Shell, repo: Path) -> None:
    name = shell.new("fix it")
    assert (
        shell("to", name, "local", str(repo), "--network", "on", *HOST)
        == f"{name}@3  placed in local, host, network on\n"
    )
    assert [each["path"] for each in shell.json("files", name)["files"]] == [
        "README",
        "src/cart.py",
    ]
    found = shell.json("to", name, "local", "--network", "off", "--clean", *HOST)
    # the host's own, whatever is wished
    assert found["place"] == 4 and shell.json("show", name)["placement"]["network"] == "on"
    assert len(shell.json("files", name)["files"]) == 2  # it keeps those it has


def test_to_says_what_is_not_on_record(shell: Shell, repo: Path) -> None:
    (repo / "node_modules").mkdir()
    (repo / "node_modules" / "x.js").write_text("x")
    (repo / "notes.tmp").write_text("x")
    said = shell("to", shell.new("x"), "local", str(repo), "--ignore", "*.tmp", *HOST)
    assert "without node_modules: it is there to read, and not on record" in said
    assert [each["path"] for each in shell.json("files", "@")["files"]] == ["README", "src/cart.py"]


def test_to_says_why_not(shell: Shell, tmp_path: Path) -> None:
    name = shell.new("x")
    assert "no sandbox backend is called 'moon'" in shell.error(2, "to", name, "moon")
    assert "no rung is called that" in shell.error(1, "to", name, "local", "--isolation", "magic")
    assert "is not there" in shell.error(2, "to", name, "local", str(tmp_path / "nowhere"), *HOST)
    assert shell.open(name).seq == 2


# ── apply ────────────────────────────────────────────────────────────────────────────────────


def test_apply_publishes(shell: Shell, placed: str, repo: Path) -> None:
    shell.open(placed).use(put, path="src/cart.py", text="one\nTWO\nthree\n").use(
        put, path="new.txt", text="new\n"
    )
    (repo / "README").write_text("changed meanwhile\n")
    patch = shell("apply", placed, "--dry-run")
    assert "+TWO\n" in patch and "+new\n" in patch and "README" not in patch
    assert (repo / "src" / "cart.py").read_text() == "one\ntwo\nthree\n"
    place = shell.open(placed).seq
    said = shell("apply", placed).splitlines()
    assert said[0].endswith(f"wrote 2 paths to {repo}") and said[1:] == [
        "  A new.txt +1 −0",
        "  M src/cart.py +1 −1",
    ]
    assert (repo / "src" / "cart.py").read_text() == "one\nTWO\nthree\n"
    assert (repo / "README").read_text() == "changed meanwhile\n"
    assert shell.open(placed).seq > place  # it is on record
    again = shell.json("apply", placed)
    assert (again["written"], again["folder"]) == ([], str(repo))
    assert shell("apply", placed, "--dry-run") == ""


@pytest.mark.parametrize(
    ("choice", "content"),
    [("session", "session\n"), ("folder", "folder\n"), ("@file", "third\n"), (None, None)],
)
def test_apply_where_both_changed(
    shell: Shell, placed: str, repo: Path, choice: str | None, content: str | None
) -> None:
    Path("file").write_text("third\n")
    shell.open(placed).use(put, path="README", text="session\n")
    (repo / "README").write_text("folder\n")
    place = shell.open(placed).seq
    said = shell.error(8, "apply", placed)
    assert "README" in said and f"plait apply {placed} --resolve README=session" in said
    assert "    folder   folder\n    session  session\n" in said
    assert (
        f"\n  plait diff {placed} --files\n  plait cat {placed}:README | diff {repo}/README -\n"
        in said
    )
    assert "README" in shell.error(8, "apply", placed, "--dry-run")
    error = json.loads(shell.run("apply", placed, "--json").stderr)["error"]
    assert error["exit_code"] == 8 and error["conflicts"]["README"] == {
        "the folder": "folder\n",
        placed: "session\n",
    }
    assert "is no side" in shell.error(2, "apply", placed, "--resolve", "README=mine")
    assert shell.open(placed).seq == place and (repo / "README").read_text() == "folder\n"
    shell("apply", placed, *(["--resolve", f"README={choice}"] if choice else ["--drop", "README"]))
    assert content == ((repo / "README").read_text() if (repo / "README").exists() else None)


def test_apply_says_why_not(shell: Shell, placed: str, repo: Path) -> None:
    assert "plait to" in shell.error(3, "apply", shell.new("not placed"))
    assert "in the past" in shell.error(2, "apply", f"{placed}@2")
    nowhere = shell.new("from nowhere")
    shell("to", nowhere, "local", *HOST)
    assert "plait checkout" in shell.error(1, "apply", nowhere) and "plait checkout" in shell.error(
        1, "apply", nowhere, "--dry-run"
    )
    shell("to", placed, "local", str(repo), "--in-place", *HOST)
    assert "works in place" in shell("apply", placed)
    assert shell("apply", placed, "--dry-run") == ""


# ── sandboxes ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no other backend were there."""
    monkeypatch.setattr(places, "backends", lambda: ["local"])


def make(shell: Shell, key: str) -> Any:
    """A sandbox that this process holds."""
    return backend("local").create(Wanted(store_at(shell.address), key, EMPTY, isolation="host"))


def test_sandboxes_are_listed_and_thrown_away(shell: Shell, placed: str, local: None) -> None:
    id = shell.open(placed).id
    assert shell("sandbox", "ls") == ""
    box = make(shell, id)
    [found] = shell.json("sandbox", "ls")["sandboxes"]
    assert (found["backend"], found["id"], found["session"], found["state"]) == (
        "local",
        id,
        id,
        "in use",
    )
    assert shell("sandbox", "ls").split()[:4] == ["local", id, placed, "in"]
    assert "another process works in the sandbox" in shell.error(75, "sandbox", "rm", id[:13])
    assert shell("sandbox", "prune").splitlines() == [
        "removed 0 local copies",
        f"kept {id}: a process works in it",
    ]
    box.begin()  # and is left behind in doubt
    box.close()
    assert shell.jsonl("sandbox", "ls")[0]["state"] == "in doubt"
    assert shell("sandbox", "rm", placed) == f"removed local {id}\n"
    assert shell.json("sandbox", "ls") == {"sandboxes": [], "silent": {}}
    assert "plait sandbox ls" in shell.error(3, "sandbox", "rm", id)


@pytest.mark.parametrize("name", ["@", "mine", "{short}", "{id}", "@@3"])
def test_sandboxes_are_named_by_their_session(
    shell: Shell, placed: str, local: None, name: str
) -> None:
    other, mine = shell.open(placed).id, shell.open(shell.json("fork", placed, "mine")["short"])
    for key in (other, mine.id):
        make(shell, key).close()
    make(shell, f"{mine.id}-clean4").close()
    removed = [
        each["id"]
        for each in shell.json("sandbox", "rm", name.format(short=mine.short, id=mine.id))[
            "removed"
        ]
    ]
    # a whole id is that sandbox alone
    assert removed == ([mine.id] if name == "{id}" else [mine.id, f"{mine.id}-clean4"])
    assert other in [each["id"] for each in shell.json("sandbox", "ls")["sandboxes"]]
    assert "plait sandbox ls" in shell.error(3, "sandbox", "rm", "nobody")


def test_prune_leaves_what_is_on_record(shell: Shell, placed: str, local: None) -> None:
    shell.open(placed).use(put, path="new.txt", text="new\n")
    for key in ("one", "two"):
        make(shell, key).close()
    states = {each["id"]: each["state"] for each in shell.json("sandbox", "ls")["sandboxes"]}
    # the runtime keeps its own in hand
    assert states == {"one": "at rest", "two": "at rest", shell.open(placed).id: "in use"}
    found = shell.json("sandbox", "prune")
    assert [each["id"] for each in found["removed"]] == ["one", "two"] and list(found["kept"]) == [
        shell.open(placed).id
    ]
    assert shell("cat", f"{placed}:new.txt") == "new\n"


class Odd:
    """A backend that somebody else brought."""

    def __init__(self, held: Sequence[SandboxInfo] | Exception, offered: bool = True) -> None:
        self._held, self._offered = held, offered

    def probe(self) -> Probe:
        return Probe(
            "odd", "1", "untested", (Capability("exec", self._offered, "no key", "set it"),)
        )

    def list_sandboxes(self, store: object) -> Sequence[SandboxInfo]:
        if isinstance(self._held, Exception):
            raise self._held
        return self._held


def test_a_backend_that_fails_does_not_hide_the_others(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.new("x")
    evil = SandboxInfo("odd", "box\x1b]0;owned\x07", "running", detail="a\x1b[2Jb")
    brought = {
        "down": Odd(OSError("no route\x1b[2J")),
        "keyless": Odd(OSError("asked"), offered=False),
        "odd": Odd([evil]),
    }
    monkeypatch.setattr(places, "backends", lambda: list(brought))
    monkeypatch.setattr(places, "backend", brought.__getitem__)
    said = shell("sandbox", "ls").splitlines()
    assert said == ["odd  box  running  ab", "down did not answer: OSError: no route"]
    found = shell.json("sandbox", "ls")
    assert list(found["silent"]) == ["down"] and found["sandboxes"][0]["session"] is None
    assert "down did not answer" in shell.error(3, "sandbox", "rm", "nowhere")


def test_sandboxes_on_a_terminal(shell: Shell, placed: str) -> None:
    box = make(shell, shell.open(placed).id)
    box.close()
    shown = on_a_terminal("sandbox", "ls", width=100, NO_COLOR="1").splitlines()
    assert shown[0].split() == ["backend", "sandbox", "session", "state", "detail"]
    assert max(map(len, shown)) <= 100 and "at rest" in shown[1]


def test_a_group_without_a_command(shell: Shell) -> None:
    assert "Missing command" in shell.error(2, "sandbox")
