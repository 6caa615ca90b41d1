"""A row of the scoreboard: one check, one line, and an exit code.

0: it works; 1: it does not, or a part of it is not built; 77: it cannot be tried here. The line
says which, and why.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]  # of this checkout, before any that is installed
TESTS_S_MAX = 900


class CannotTry(Exception):
    """Says why a row cannot be tried on this machine."""


class NotBuilt(Exception):
    """Says which part of a row is missing. The row is not green."""


def print_row(number: int, system: str, check: Callable[[], str]) -> None:
    """Run the check of a row, print its line, and end with its exit code.

    The check returns figures in words, or raises.
    """
    try:
        code, line = 0, f"works: {check()}"
    except CannotTry as error:
        code, line = 77, f"not tried: {error}"
    except NotBuilt as error:
        code, line = 1, f"missing: {error}"
    except BaseException as error:  # also the skip of a test's fixture
        code, line = 1, f"fails: {type(error).__name__}: {error}"
    print(f"{number:2} {system:20} {' '.join(line.split())}")
    sys.exit(code)


def require(condition: object, what: str) -> None:
    """Raise if a condition does not hold. An `assert` would be left out by `python -O`."""
    if not condition:
        raise AssertionError(what)


def run_tests(*ids: str, env: Mapping[str, str] | None = None, skips: int = 0) -> str:
    """Run tests of this checkout in a process of their own, and return what they printed.

    A test that skips says why the row cannot be tried; `skips` of them may.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *ids]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TESTS_S_MAX,
        env={**os.environ, "PYTHONPATH": path, "LONG": "1", **(env or {})},
    )
    if done.returncode != 0:
        raise AssertionError((done.stdout + done.stderr)[-400:])
    skipped = re.findall(r"^SKIPPED \[(\d+)\] .*?: (.*)$", done.stdout, re.MULTILINE)
    if sum(int(count) for count, _ in skipped) > skips:
        raise CannotTry(skipped[0][1])
    return done.stdout


def passed_in(printed: str) -> int:
    """Return how many tests passed, by the last line that they printed."""
    found = re.findall(r"(\d+) passed", printed)
    return int(found[-1]) if found else 0


def guest_programs(name: str) -> Path:
    """Return the folder with a guest's programs, which is made if need be."""
    import pytest
    from tests.guests.hosting import programs

    try:
        return programs(name)
    except pytest.skip.Exception as error:
        raise CannotTry(str(error)) from error


def ask_guest(name: str, script: str, document: Any) -> Any:
    """Return the report of a script in `tests/guests`, run by the guest's own Python."""
    from tests.guests.hosting import guest

    guest_programs(name)
    return guest(name, script, document)
