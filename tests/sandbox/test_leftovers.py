"""Leftovers: a command finds the session's tree and nothing that another command left beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from plait import Session, secrets
from plait.errors import NoSuchFile
from plait.runtime.sandboxes import close_sandboxes
from plait.sandbox import Sandbox
from plait.sandbox.resident import ResidentHost
from plait.tool import tool
from plait.tools import shell, write_file
from tests.sandbox.rooms import RUNGS, Room, needs, on_every, room
from tests.support import filled_folder

CAP = f"{sys.version_info[0]}{sys.version_info[1]}"

# Leaves something in every place that is no part of the tree, from which a later command could take
# code.
PLANT = f"""
mkdir -p __pycache__ .mypy_cache .pytest_cache .tox/bin node_modules/.cache node_modules/.bin .venv/bin
mkdir -p sub/__pycache__ mine .git/hooks .plait
python3 - <<'END'
import importlib.util, marshal, os, struct
code = compile('print("planted")', "mod.py", "exec")
unchecked = importlib.util.MAGIC_NUMBER + struct.pack("<I", 1) + bytes(8) + marshal.dumps(code)
info = os.stat("mod.py")
stale = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, int(info.st_mtime), info.st_size) + marshal.dumps(code)
for name, data in (("mod", unchecked), ("sub/other", stale)):
    head, _, last = name.rpartition("/")
    with open(os.path.join(head, "__pycache__", last + ".cpython-{CAP}.pyc"), "wb") as file:
        file.write(data)
with open("gone.pyc", "wb") as file:
    file.write(unchecked)
END
for place in .venv/bin node_modules/.bin .tox/bin; do printf '#!/bin/sh\\necho planted\\n' > $place/python3; chmod +x $place/python3; done
cp .venv/bin/python3 .venv/bin/tool
echo x > mine/lib.so; echo x > .mypy_cache/x; echo x > .pytest_cache/x; echo x > node_modules/.cache/x; echo x > .git/hooks/pre-commit
site=$(python3 -c 'import site; print(site.getusersitepackages())')
mkdir -p $site $HOME/.config/pip
echo 'print("planted")' > $site/usercustomize.py; echo 'import sys; print("planted")' > $site/x.pth
for name in .bashrc .profile .bash_profile .gitconfig .config/pip/pip.conf; do echo 'echo planted' > $HOME/$name; done
for place in $TMPDIR $([ $HOME = /tmp ] && echo /var/tmp /dev/shm); do echo planted > $place/left 2>/dev/null; done
(setsid sh -c 'while sleep 0.05; do mkdir -p __pycache__; cp gone.pyc late.pyc; done' &)
true
"""  # noqa: E501

# Tries to run what was left, and lists what is there beside the tree.
TRY = """
export PYTHONDONTWRITEBYTECODE=1
python3 -c 'import mod, sub.other'
python3 -c 'import gone' 2>/dev/null
python3 -c 'import late' 2>/dev/null
tool 2>/dev/null; command -v tool
bash -lc true 2>/dev/null; find $HOME \\( -name repo -o -path 'OURS' \\) -prune -o -type f -print; git config --global --list 2>/dev/null
find . -mindepth 1 -not -empty \\( -name '*.pyc' -o -path './mine/*' -o -path './.*' -o -path './node_modules/*' \\)
cat /var/tmp/left /dev/shm/left $TMPDIR/left 2>/dev/null
true
""".replace("OURS", sys.prefix)  # noqa: E501
FILES = {"mod.py": "print('own!!')  \n", "sub/other.py": "print('own!!')\n#\n"}
OWN = "own!!\nown!!"


def taken(here: Room) -> Any:
    found = here.box.snapshot()
    here.store.put_blobs(found.blobs)
    return found


@on_every
def test_nothing_that_a_command_leaves_beside_the_tree_is_there_for_the_next(
    tmp_path: Path, rung: str
) -> None:
    with room(tmp_path, rung, FILES, ignore=("mine",)) as here:
        before = here.box.snapshot().tree
        here.box.begin()
        planted = here.sh(PLANT)
        assert planted.exit_code == 0, planted.output.view()
        # so that what follows can fail
        assert "planted" in here.said("python3 -c 'import gone'; tool")
        found = taken(here)
        assert found.tree == before and found.changed == ()
        assert {
            "gone.pyc",
            "__pycache__",
            ".venv",
            "node_modules",
            "mine",
            ".git",
            "sub/__pycache__",
        } <= set(found.dropped)
        assert here.said(TRY) == OWN
        here.box.restore(before)
        assert here.said(TRY) == OWN


@on_every
def test_a_tool_that_writes_files_leaves_nothing_either(tmp_path: Path, rung: str) -> None:
    with room(tmp_path, rung) as here:
        here.box.begin()
        here.box.files.write("__pycache__/a.pyc", b"x")
        here.box.files.write("deep/.tox/bin/tool", b"x")
        assert taken(here).dropped == ("__pycache__", "deep/.tox")
        with pytest.raises(NoSuchFile):
            here.box.files.read("__pycache__/a.pyc")


@pytest.mark.parametrize("rung", RUNGS)
def test_no_folder_is_too_deep_and_no_mode_too_narrow_to_be_removed(
    tmp_path: Path, rung: str
) -> None:
    deep = (
        "import os\nfor name in ('__pycache__', os.environ['HOME']):\n    os.makedirs(name,"
        " exist_ok=True)\n    os.chdir(name)\n"
    )
    deep += "    for _ in range(400):\n        os.mkdir('d'); os.chdir('d')\n    os.chdir(start)\n"
    with room(tmp_path, rung) as here:
        here.box.begin()
        ran = here.box.exec(["python3", "-S", "-c", "import os; start = os.getcwd()\n" + deep])
        assert ran.exit_code == 0, ran.output.view()
        here.sh("mkdir -p .tox/shut; echo x > .tox/shut/x; chmod 000 .tox/shut .tox; chmod 500 .")
        assert set(taken(here).dropped) == {"__pycache__", ".tox"}
        assert here.said("ls -A; ls -A $HOME/d 2>/dev/null") == "a.txt"


@on_every
def test_a_withheld_file_is_in_no_copy(tmp_path: Path, rung: str) -> None:
    """Its content is on no record, so no later command may run it; where the tree had another
    content before, that is not back either.
    """
    secrets.register("hush-7a41-canary", "HUSH")
    try:
        with room(tmp_path, rung, {"sub/tool.sh": "echo own\n"}) as here:
            here.box.begin()
            here.sh(
                "echo 'echo hush-7a41-canary' | tee sub/tool.sh > sub/new.sh; echo x >"
                " hush-7a41-canary"
            )
            found = taken(here)
            assert found.withheld == (
                "[secret HUSH]",
                "sub/new.sh",
                "sub/tool.sh",
            ) and found.dropped == ("[secret HUSH]",)
            assert here.said("ls -A . sub") == ".:\nsub\n\nsub:"
            assert here.box.snapshot().tree == found.tree
            here.box.begin()
            here.sh("echo mended > sub/tool.sh")
            assert (
                taken(here).changed == ("sub/tool.sh",) and here.said("cat sub/tool.sh") == "mended"
            )
    finally:
        secrets.forget("HUSH")


# ── through a session ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def placed(tmp_path: Path) -> Iterator[Session]:
    needs("overlay", tmp_path)
    repo = filled_folder(tmp_path / "repo", FILES)
    yield Session("x", store=tmp_path / "store").to("local", repo, ignore=["mine"])
    close_sandboxes()  # ends processes that stay


def said(session: Session) -> str:
    return str(session.use(shell, command=TRY).result).strip()


def test_the_next_call_a_rewind_a_fork_and_a_validation_run_the_tree(placed: Session) -> None:
    planted = placed.use(shell, command=PLANT)
    detail = cast("Mapping[str, Any]", planted.events[-1].body.placement.detail)  # type: ignore[union-attr]
    assert "gone.pyc" in detail["dropped"] and ".venv" in detail["dropped"]
    assert planted.files.tree == placed.files.tree
    assert said(planted.fork("branch")) == OWN
    assert said(planted.fork("checked").to("local", clean=True)) == OWN
    once = planted.use(shell, command=TRY)
    assert str(once.result).strip() == OWN
    back = once.rewind(placed.seq)
    assert said(back) == OWN


def test_an_edit_is_what_runs(placed: Session) -> None:
    """Also if the bytecode of what was there before claims to be of the same size and time."""
    compiled = placed.use(
        shell, command="python3 -c 'import mod'; touch -d @1 mod.py; python3 -m compileall -q ."
    )
    edited = compiled.use(write_file, path="mod.py", content="print('new!!')  \n")
    assert (
        str(edited.use(shell, command="touch -d @1 mod.py; python3 -c 'import mod'").result)
        == "new!!\n"
    )


def test_in_place_the_scratch_folder_is_empty_and_the_owners_caches_stay(tmp_path: Path) -> None:
    needs("bubblewrap", tmp_path)
    repo = tmp_path / "repo"
    (repo / "__pycache__").mkdir(parents=True)
    (repo / "__pycache__" / "own.pyc").write_bytes(b"own")
    placed = Session("x", store=tmp_path / "store").to("local", repo, in_place=True)
    used = placed.use(shell, command="echo x > $HOME/.profile; echo x > a")
    assert str(used.use(shell, command="ls $HOME/.profile 2>/dev/null; ls -A").result).split() == [
        "__pycache__",
        "a",
    ]
    assert (repo / "__pycache__" / "own.pyc").read_bytes() == b"own"


@tool(effect="workspace")
def stay(sandbox: Sandbox) -> str:
    """Start a process that stays, or say that it is there."""
    assert isinstance(sandbox, ResidentHost)
    if (found := sandbox.resident("stays")) is None:
        found = sandbox.start(
            "stays", ["sh", "-c", 'echo up; while read line; do eval "$line"; echo done; done']
        )
        assert found.receive(10) == b"up"
        return "started"
    return "there"


@tool(effect="workspace")
def ask(line: str, sandbox: Sandbox) -> str:
    """Let the process that stays do something."""
    assert isinstance(sandbox, ResidentHost)
    found = sandbox.resident("stays")
    assert found is not None
    found.send(line.encode())
    answer: list[bytes] = []
    while (heard := found.receive(10)) not in (b"done", b""):
        answer.append(heard)
    return b"\n".join(answer).decode()


@pytest.mark.parametrize("rung", ["overlay", "bubblewrap"])
def test_beside_a_process_that_stays_commands_find_the_tree_alone(
    placed: Session, rung: str
) -> None:
    here = placed.to("local", isolation=rung).use(stay)
    assert here.result == "started"
    asked = here.use(ask, line="ls __pycache__ 2>/dev/null; echo kept > /tmp/own")
    planted = asked.use(shell, command=PLANT)
    assert said(planted) == OWN
    listed = planted.reload().use(ask, line="cat /tmp/own; ls -A __pycache__ gone.pyc 2>/dev/null")
    assert listed.result == "kept"
    again = listed.use(ask, line="mkdir -p __pycache__; cp mod.py __pycache__/x")
    seen = again.use(shell, command="ls -A __pycache__ 2>/dev/null; true")
    assert str(seen.result).strip() == "[no output; exit code 0]"
    assert seen.use(stay).result == "there"


def test_a_rewind_ends_a_process_that_stays_though_the_files_are_the_same(placed: Session) -> None:
    here = placed.use(stay)
    assert here.use(stay).result == "there"
    assert here.reload().rewind(placed.seq).use(stay).result == "started"
