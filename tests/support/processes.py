"""Other processes: how they are started, and how a test waits for them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

Found = TypeVar("Found")

ROOT = Path(__file__).parents[2]


def child_environment(**more: str) -> dict[str, str]:
    """The environment of a child process that imports `tests`, and whatever else this process can
    import.
    """
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        **more,
    }


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of the tests as a program: start it in a
    `child_environment`.
    """
    return [sys.executable, "-m", module, *arguments]


def python(
    code: str, *arguments: str | Path, prefix: tuple[str, ...] = (), check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a piece of Python in a process of its own."""
    command = [*prefix, sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(
        command, check=check, capture_output=True, text=True, timeout=90, env=child_environment()
    )


def wait_until(
    condition: Callable[[], Found | None],
    within_s: float = 60.0,
    evidence: Callable[[], object] = str,
) -> Found:
    """Return the first true value of the condition.

    `within_s` only keeps a test from hanging: then it fails, and the evidence says more.
    """
    end = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {within_s:g} s. {evidence()}"
        time.sleep(0.005)
    return found


def free_port() -> int:
    """A port of this machine that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def needs_strace() -> str:
    """The path of strace, or a skip; where it is required (in CI), its absence is a failure."""
    found = shutil.which("strace")
    if found is None:
        assert not os.environ.get("PLAIT_REQUIRE_STRACE"), (
            "strace is required here but not installed"
        )
        pytest.skip("strace is not installed")
    works = subprocess.run([found, "-o", os.devnull, "true"], capture_output=True)
    if works.returncode:
        assert not os.environ.get("PLAIT_REQUIRE_STRACE"), (
            f"strace does not work here: {works.stderr.decode()}"
        )
        pytest.skip("strace may not trace here")
    return found
