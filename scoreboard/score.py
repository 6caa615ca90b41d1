"""A row of the scoreboard: one check, one line, and an exit code.

0: it works; 1: it does not; 77: it cannot be tried here, and the line says why.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]  # of this checkout, before any that is installed


class CannotTry(Exception):
    """Says why a row cannot be tried on this machine."""


def print_row(number: int, system: str, check: Callable[[], str]) -> None:
    """Run the check of a row, print its line, and end with its exit code.

    The check returns figures in words, or raises.
    """
    try:
        code, line = 0, f"works: {check()}"
    except CannotTry as error:
        code, line = 77, f"not tried: {error}"
    except Exception as error:
        code, line = 1, f"fails: {type(error).__name__}: {error}"
    print(f"{number:2} {system:18} {' '.join(line.split())}")
    sys.exit(code)


def require(condition: object, what: str) -> None:
    """Raise if a condition does not hold. An `assert` would be left out by `python -O`."""
    if not condition:
        raise AssertionError(what)
