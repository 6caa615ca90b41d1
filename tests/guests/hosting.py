"""Guests: other frameworks and servers, each in an environment of its own, since their pins clash
with ours.

An environment is made on the first use, in `.venv-guests/` (git-ignored), by whoever holds its
lock; later runs find it there. It is complete when it has a stamp of the requirements it was made
from.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INSTALL_S_MAX, RUN_S_MAX = 900, 120


def guest(name: str, script: str, document: Any) -> Any:
    """Return the report of a script on a document, run by the guest's own Python."""
    python = programs(name) / "python"
    env = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", ""),
        "LANGSMITH_TRACING": "false",
        "PYTHONIOENCODING": "utf-8",
    }
    done = subprocess.run(
        [str(python), "-W", "ignore", str(HERE / script)],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        env=env,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def programs(name: str) -> Path:
    """The folder with a guest's programs; a skip if it cannot be had, or a failure where guests are
    required.
    """
    python = _python(name)
    if isinstance(python, str):
        assert not os.environ.get("PLAIT_REQUIRE_GUESTS"), f"{name} is required here: {python}"
        pytest.skip(f"{name} cannot be installed: {python}")
    return python.parent


@cache
def _python(name: str) -> Path | str:
    """The Python of a guest's environment, which is made if need be; a text: why there is none."""
    home, requirements = ROOT / ".venv-guests" / name, HERE / f"{name}.txt"
    python, stamp = home / "bin" / "python", home / "ready"
    made_from = sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    home.parent.mkdir(exist_ok=True)
    with (home.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers wait, and find it made
        if stamp.exists() and stamp.read_text() == made_from:
            return python
        # What is there without its stamp was given up halfway: --clear.
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(home)],
            [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--requirement",
                str(requirements),
            ],
        ):
            if (why := _failure(command)) is not None:
                return why
        stamp.write_text(made_from)
    return python


def _failure(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    return (done.stderr or done.stdout).strip().rpartition("\n")[
        2
    ] or f"exit code {done.returncode}"
