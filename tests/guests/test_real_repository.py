"""A real project from PyPI: broken, repaired and tested by its own suite inside the sandbox,
forked, merged, published.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from plait import Agent, ScriptedModel, Session, ToolCall
from plait.tools import edit_file, read_file, search_files, shell, write_file

PROJECT = "pluggy==1.5.0"
TESTS = (
    "PYTHONPATH=src python3 -m pytest -q -x testing --ignore testing/benchmark.py -c /dev/null -p"
    " no:cacheprovider"
)
LINE = "if firstresult:  # halt further impl calls"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's own archive, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--dest",
        str(folder),
        PROJECT,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        assert not os.environ.get("PLAIT_REQUIRE_GUESTS"), done.stderr
        pytest.skip(f"{PROJECT} cannot be had: {done.stderr[-300:]}")
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())


@pytest.mark.slow
def test_broken_repaired_and_tested_inside(sdist: Path, tmp_path: Path) -> None:
    callers = sdist / "src" / "pluggy" / "_callers.py"
    whole = callers.read_text()
    assert whole.count(LINE) == 1
    # the bug to be found
    callers.write_text(whole.replace(LINE, LINE.replace("if firstresult", "if not firstresult")))
    script = [
        ToolCall("shell", command=TESTS, timeout_s=300),
        ToolCall("search_files", pattern="halt further impl calls", path="src"),
        ToolCall("read_file", path="src/pluggy/_callers.py", offset=100, limit=20),
        ToolCall(
            "edit_file",
            path="src/pluggy/_callers.py",
            old="if not firstresult:  # halt",
            new="if firstresult:  # halt",
        ),
        ToolCall("shell", command=TESTS, timeout_s=300),
        "Repaired: the first result did not halt the calls.",
    ]
    session = Session("Make the tests pass", store=tmp_path / "store").to("local", sdist)
    tools = [shell, read_file, edit_file, search_files]
    fixed = Agent("Repair it.", model=ScriptedModel(script), tools=tools)(session)
    assert [effect.exit_code for effect in fixed.effects if effect.tool == "shell"] == [1, 0]
    assert fixed.diff().files.changed_paths == ("src/pluggy/_callers.py",)
    assert fixed.files.text("src/pluggy/_callers.py") == whole

    noted = fixed.fork("noted").use(
        write_file, path="CHANGES.md", content="- the first result halts the calls again\n"
    )
    commented = fixed.fork("commented").use(
        shell, command=f"sed -i 's/{LINE}/{LINE}, as promised/' src/pluggy/_callers.py"
    )
    merged = noted.merge(commented)
    assert set(merged.diff(fixed).files.paths) == {"CHANGES.md", "src/pluggy/_callers.py"}
    number = next(n for n, line in enumerate(whole.splitlines(), 1) if LINE in line)
    assert merged.files.blame("src/pluggy/_callers.py")[number].event == commented.head
    # as a validator would
    checked = merged.to("local", clean=True).use(shell, command=TESTS, timeout_s=300)
    assert "passed" in str(checked.result) and checked.files.tree == merged.files.tree

    (sdist / "by-hand.txt").write_text("meanwhile\n")
    checked.files.apply()
    assert (
        LINE + ", as promised" in callers.read_text()
        and (sdist / "CHANGES.md").exists()
        and (sdist / "by-hand.txt").exists()
    )
    environ = {**os.environ, "PYTHONPATH": str(sdist / "src")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "testing",
        "--ignore",
        "testing/benchmark.py",
        "-c",
        "/dev/null",
    ]
    outside = subprocess.run(
        command, cwd=sdist, env=environ, capture_output=True, text=True, timeout=300
    )
    assert outside.returncode == 0, outside.stdout
