"""kill -9 at every moment of a run with forks, branches, agents as tools, an approval, a selector
and a compaction: as if never killed, no effect twice.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import dose, report, run_module, seed

PARTS = 2


def _raised(request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    done = run_module("tests.faults.forward_nursery", json.dumps(request), timeout=timeout_s)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert "wrong" not in answer, answer["wrong"]
    return answer


def test_the_story_has_all_that_a_run_can_have() -> None:
    found = _raised({}, 60)
    assert found["story"]["effects"] == [
        "mail 2",
        "mail 4",
        "mail 7",
        "mail 8",
        "put 1",
        "put 3",
        "put 6",
        "put 9",
        "wire 5",
    ]
    assert (
        found["story"]["facts"] == {"side": 7, "end": True}
        and found["story"]["status"] == "finished"
    )
    assert len(found["moments"]) == 2, "one life up to the approval, one after it"


@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_every_moment(part: int) -> None:
    """MOMENTS_EVERY=1: at every moment, as in CI; else at every eighth, from a random one on."""
    stride, start = dose("MOMENTS_EVERY", short=8, long=1, ci=1), seed()
    found = _raised({"every": [part + PARTS * (start % stride), PARTS * stride]}, 300)
    assert found["killed"] >= sum(found["moments"]) // (PARTS * stride) - 1
    of = f"part {part + 1} of {PARTS}, one moment in {stride}"
    report(
        "a run killed with -9 at every moment",
        f"{of}: {found['killed']} kills, 0 effects twice, 0 stories changed",
        start,
    )


def test_killed_at_random_moments() -> None:
    begun, kills = seed(), dose("RUN_KILLS", 5, 1000, ci=20)
    found = _raised({"kills": kills, "seed": begun}, 60 + kills * 5)
    report(
        "a run killed with -9 at random",
        f"{found['killed']} kills, 0 effects twice, 0 stories changed",
        begun,
    )
