"""Strategies of memory from the literature: their rows of the scoreboard, at full size."""

from __future__ import annotations

import sys

import pytest

from tests.support import ROOT, child_environment, run_forked


@pytest.mark.parametrize("row", ["10-memgpt", "11-reflexion", "12-generative-agents"])
def test_a_row_of_the_scoreboard_works(row: str) -> None:
    command = [sys.executable, str(ROOT / "scoreboard" / row)]
    done = run_forked(command, env=child_environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert " works: " in done.stdout and done.stdout.count("\n") == 1
