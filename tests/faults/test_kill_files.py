"""kill -9 at every write, and inside every tool call, of a run that changes files: as if never
killed.
"""

from __future__ import annotations

import json

import pytest

from tests.support import dose, report, run_module, seed


@pytest.mark.ci
def test_killed_at_every_moment_of_a_run_with_files() -> None:
    """MOMENTS_EVERY=1: at every moment, as in CI; else at every third, from a random one on."""
    stride, start = dose("MOMENTS_EVERY", short=3, long=1, ci=1), seed()
    done = run_module("tests.faults.file_nursery", str(start % stride), str(stride), timeout=400)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (
        found["killed"] >= found["moments"] // stride
        and found["told"]["facts"] == {"end": True}
        and found["told"]["applied"] == 1
    )
    assert (
        found["told"]["folder"]["all"] == "one\ntwo\nside\none\nagain\n"
        and "old" not in found["told"]["folder"]
    )
    report(
        "a run with files killed with -9",
        f"{found['killed']} kills, 0 trees changed, 0 folders changed",
        start,
    )
