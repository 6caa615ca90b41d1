"""A folder of the user: no mode in it is changed, and what its owner locked is neither copied nor
opened.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plait import Session
from plait.errors import WorkspaceError
from plait.sandbox import Sandbox
from plait.tool import tool
from tests.support import child_environment

# As any user, root or not: place a folder with locked parts, work there, publish, and tell what was
# seen and what the modes are.
PROGRAM = """
import json, os, stat, sys, tempfile
from pathlib import Path
from plait import Session
from plait.sandbox import Sandbox
from plait.tool import tool

@tool(effect="workspace")
def warm(sandbox: Sandbox) -> str:
    "Load what acts, while it can be read."
    sandbox.files.write("x", sandbox.files.read("y"))
    return "done"

with tempfile.TemporaryDirectory() as folder:
    Path(folder, "repo", "d").mkdir(parents=True)
    Path(folder, "repo", "y").write_text("y")
    Session("x", store=folder + "/store").to("local", folder + "/repo", isolation=sys.argv[3]).use(warm).files.apply().files.paths()
if sys.argv[2] != "0":
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
top = Path(sys.argv[1])
repo = top / "repo"
for name in ("open", "closed", "blind", "stuck", ".venv/locked"):
    (repo / name).mkdir(parents=True)
for name in ("README", "key", "open/key", "closed/file", "blind/file", "stuck/file", "write-only", ".venv/key", ".venv/locked/file"):
    (repo / name).write_text("SECRET of " + name)
modes = {"key": 0, "open/key": 0o077, "write-only": 0o222, ".venv/key": 0, ".venv/locked": 0, "closed": 0, "blind": 0o311, "stuck": 0o600}
for name, mode in modes.items():
    (repo / name).chmod(mode)
seen = []
chmod, fchmod = os.chmod, os.fchmod
def note(path, mode, *rest, **more):
    real = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.path.realpath(path)
    if str(repo) in real and ".plait-" not in real:  # what is being written is ours
        seen.append(real)
    return chmod(path, mode, *rest, **more)
os.chmod = os.fchmod = note

@tool(effect="workspace")
def work(sandbox: Sandbox) -> str:
    "Work."
    found = []
    for path in ("key", "open/key", "closed/file", ".venv/key", ".venv/locked/file"):
        try:
            found.append(sandbox.files.read(path).decode())
        except Exception as error:
            found.append(type(error).__name__)
    sandbox.files.write("new", b"new")
    return json.dumps(found)

kinds = {"isolation": sys.argv[3], **({"in_place": True} if sys.argv[4] == "in place" else {})}
placed = Session("x", store=top / "store").to("local", repo, **kinds)
used = placed.use(work)
if sys.argv[4] != "in place":
    used.files.apply()
os.chmod, os.fchmod = chmod, fchmod
now = {name: stat.S_IMODE(os.lstat(repo / name).st_mode) for name in modes}
print(json.dumps({
    "files": placed.files.paths(), "withheld": placed.files.placement.detail.get("withheld"), "read": json.loads(used.result),
    "same": now == modes, "changed": seen, "new": (repo / "new").exists(),
}))
"""  # noqa: E501


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("how", ["copy", "in place"])
@pytest.mark.parametrize("uid", [0, 65534])
def test_placing_changes_no_mode_and_copies_nothing_that_is_locked(uid: int, how: str) -> None:
    top = Path(os.path.realpath("/tmp")) / f"plait-locked-{os.getpid()}-{uid}"
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir()
    try:
        os.chown(top, uid, uid)
        command = [sys.executable, "-c", PROGRAM, str(top), str(uid), "host", how]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=child_environment(HOME=str(top)),
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
    finally:
        shutil.rmtree(top, ignore_errors=True)
    assert (
        found["files"] == ["README"] and found["same"] and found["changed"] == [] and found["new"]
    )
    assert found["withheld"] == ["blind", "closed", "key", "open/key", "stuck", "write-only"]
    assert not any("SECRET" in each for each in found["read"])


def test_a_folder_that_is_locked_itself_is_not_placed(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir(mode=0)
    with pytest.raises(WorkspaceError, match="may not be read"):
        Session("x", store=tmp_path / "store").to("local", tmp_path / "repo", isolation="host")
    assert (tmp_path / "repo").stat().st_mode & 0o777 == 0


def test_a_locked_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "key").write_text("locked")
    (tmp_path / "repo" / "key").chmod(0)

    @tool(effect="workspace")
    def write(sandbox: Sandbox) -> str:
        """Write."""
        sandbox.files.write("key", b"mine")
        return "done"

    used = (
        Session("x", store=tmp_path / "store")
        .to("local", tmp_path / "repo", isolation="host")
        .use(write)
    )
    with pytest.raises(Exception, match="changed while it was being published"):
        used.files.apply()
    assert (tmp_path / "repo" / "key").read_text() == "locked"
