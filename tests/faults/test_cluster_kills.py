"""Workers that are killed, stopped and drained while they execute runs of all kinds: every run
comes to its end, no event is lost or doubled, no effect is made outside of its class, and never two
processes have a run.

`CLUSTER_KILLS` says how often a worker is killed on each store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from plait import open_store
from plait.store import Store
from tests.faults.herd import (
    Answerer,
    Herd,
    check_logs,
    disturb,
    submit_all,
    wait_for_all,
)
from tests.faults.postgres_aftermath import made_store
from tests.support import dose, report, seed

KILLS = dose("CLUSTER_KILLS", short=6, long=500, ci=40)
RUNS_EACH = 6  # runs that are submitted at a time


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "postgres":
        yield made_store(request.getfixturevalue("postgres_address"))
    else:
        yield open_store(tmp_path / ".plait")


def test_workers_that_are_killed_at_random(store: Store, tmp_path: Path) -> None:
    start, out = seed(), tmp_path / "out"
    random, tasks, kills = Random(start), submit_all(store, out, RUNS_EACH), 0
    with Herd(store.address, tmp_path, 3) as herd, Answerer(tasks, out) as answerer:
        while kills < KILLS:
            done = disturb(herd, store, tasks, random, kills=KILLS - kills)
            kills += done
            if kills < KILLS:
                tasks += submit_all(store, out, RUNS_EACH)
        wait_for_all(herd, tasks)
    found = check_logs(store, tasks, out)
    report(
        f"workers of a cluster killed at random on {type(store).__name__}",
        f"{kills:,} kills, {found['runs']:,} runs of 6 kinds ended, {found['claims']:,} claims,"
        f" {found['events']:,} events, 0 lost or doubled, {found['effects']:,} effects,"
        f" {found['repeated']:,} repeated under their own key, {answerer.given_up} given up and"
        f" taken up by a person",
        start,
    )
