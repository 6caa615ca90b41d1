"""Servers written by others, from PyPI, each set in a virtual environment of its own: some pin another mcp than ours."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(os.environ.get("PLAIT_GUESTS") or Path(__file__).parents[2] / ".venv-guests")


def guest(*packages: str) -> Path:
    """The folder with the programs of these packages. Installed once; a skip if that fails, or a failure where guests are required."""
    place = _ROOT / "-".join(package.replace("==", "-") for package in packages)
    _ROOT.mkdir(exist_ok=True)
    with (_ROOT / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "installed").exists() and (why := _install(place, packages)):
            assert not os.environ.get("PLAIT_REQUIRE_GUESTS"), f"{' '.join(packages)} is required here: {why}"
            pytest.skip(f"{' '.join(packages)} cannot be installed: {why}")
    return place / "bin"


def _install(place: Path, packages: tuple[str, ...]) -> str:
    for command in ([sys.executable, "-m", "venv", "--clear", str(place)], [str(place / "bin" / "pip"), "install", "-q", *packages]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode:
            return done.stderr.strip().rpartition("\n")[2]
    (place / "installed").touch()
    return ""
