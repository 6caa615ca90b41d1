"""The sources of the page: their types and their unit tests, where Node and the packages are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

VIEWER = Path(__file__).parents[2] / "viewer"


def run_script(name: str) -> None:
    if shutil.which("npm") is None or not (VIEWER / "node_modules").is_dir():
        pytest.skip("the packages of the page are not installed: make viewer")
    done = subprocess.run(
        ["npm", "run", "--silent", name], cwd=VIEWER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_types_fit() -> None:
    run_script("check")


def test_unit_tests_pass() -> None:
    run_script("test")


def test_the_lock_file_names_no_registry() -> None:
    text = (VIEWER / "package-lock.json").read_text()
    assert '"resolved"' not in text
