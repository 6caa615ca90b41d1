"""Workers whose server is killed, replaced by its standby, or cut off from them; whose clocks are
days apart; and that hear no bell. Every run comes to its end, by the same judgement of the logs.

`CLUSTER_OUTAGES` says how often a server is killed, `CLUSTER_CUTS` how often links are cut.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from plait import Session
from plait.cluster import Cluster
from plait.cluster.workers import live_workers
from plait.store import Store
from tests.cluster.flows import Slow
from tests.faults.herd import (
    PATIENCE_S,
    Answerer,
    Herd,
    all_ended,
    busy_workers,
    check_logs,
    disturb,
    submit_all,
    wait_for_all,
)
from tests.faults.postgres_aftermath import made_store
from tests.support import (
    CutMoment,
    claims_of,
    dose,
    private_postgres,
    proxied,
    report,
    seed,
    standby_of,
    wait_until,
)

RUNS_EACH = 8
DAY_S = 86_400
SCHEMA = {"schema": "plait"}


def _counts(found: Counter[str]) -> str:
    return (
        f"{found['runs']} runs ended, {found['claims']} claims, {found['events']:,} events,"
        f" {found['effects']} effects, {found['repeated']} repeated under their own key"
    )


def _wait_for_work(herd: Herd, store: Store) -> None:
    wait_until(lambda: busy_workers(herd, store), PATIENCE_S)


def test_the_server_is_killed_again_and_again_under_workers(tmp_path: Path) -> None:
    outages, start, out = dose("CLUSTER_OUTAGES", short=1, ci=4, long=40), seed(), tmp_path / "out"
    chance = Random(start)
    with private_postgres() as server:
        store = made_store(server.address_for(**SCHEMA))
        tasks = submit_all(store, out, RUNS_EACH)
        with Herd(store.address, tmp_path, 2) as herd, Answerer(tasks, out):
            for _ in range(outages):
                if all_ended(tasks[-RUNS_EACH:]):
                    tasks += submit_all(store, out, RUNS_EACH)
                _wait_for_work(herd, store)
                time.sleep(chance.random() * 0.2)  # a random moment is the point here
                server.kill()
                server.start()
            wait_for_all(herd, tasks)
        found = check_logs(store, tasks, out)
        store.close()
    report("the server killed under workers", f"{outages} times, {_counts(found)}", start)


def test_a_standby_is_promoted_under_workers(tmp_path: Path) -> None:
    promotions, found = dose("PG_PROMOTIONS", short=1, ci=2, long=6), Counter[str]()
    for number in range(promotions):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        found += _promote_under_workers(folder)
    report("a standby promoted under workers", f"{promotions} times, {_counts(found)}")


def _promote_under_workers(folder: Path) -> Counter[str]:
    out = folder / "out"
    with (
        private_postgres() as primary,
        standby_of(primary) as standby,
        proxied(primary.address_for(**SCHEMA)) as proxy,
    ):
        store = made_store(proxy.address)
        tasks = submit_all(store, out, RUNS_EACH)
        with Herd(store.address, folder, 2) as herd, Answerer(tasks, out):
            _wait_for_work(herd, store)
            proxy.lead_to(standby.address)
            proxy.cut_all()
            primary.kill()
            standby.promote()
            tasks += submit_all(store, out, RUNS_EACH)
            wait_for_all(herd, tasks)
        found = check_logs(store, tasks, out)
        store.close()
    return found


def test_links_are_cut_delayed_and_partitioned_under_workers(
    postgres_address: str, tmp_path: Path
) -> None:
    """A worker behind a link that is cut off for longer than its lease loses its runs to another
    that is not.
    """
    cuts, start, out = dose("CLUSTER_CUTS", short=4, ci=15, long=200), seed(), tmp_path / "out"
    store, chance, done = made_store(postgres_address), Random(start), Counter[str]()
    lease: dict[str, Any] = {"PLAIT_STORE_LEASE_S": "1.5", "PLAIT_STORE_WAIT_S": "3"}
    tasks = submit_all(store, out, RUNS_EACH)
    with (
        proxied(postgres_address) as proxy,
        Herd(proxy.address, tmp_path, 2, prefix="far", **lease) as far,
        Herd(store.address, tmp_path, 1, prefix="near", **lease) as near,
        Answerer(tasks, out),
    ):
        for number in range(cuts):
            if all_ended(tasks[-RUNS_EACH:]):
                tasks += submit_all(store, out, RUNS_EACH)
            last = tasks[-RUNS_EACH:]
            wait_until(
                lambda last=last: busy_workers(far, store) or all_ended(last),
                PATIENCE_S,
                lambda: far.said,
            )
            how = ("all", "one", "delay", "partition")[number % 4]
            done[how] += 1
            if how == "all":
                proxy.cut_all()
            elif how == "one":
                proxy.cut(chance.choice(list(CutMoment)), nth=chance.randrange(1, 20))
            elif how == "delay":
                proxy.delay_s = 0.02
                time.sleep(chance.random())
                proxy.delay_s = 0.0
            else:
                with proxy.partition():
                    time.sleep(1.0 + chance.random())  # shorter or longer than a lease
        wait_for_all(near, tasks)
    found = check_logs(store, tasks, out)
    report(
        "links of workers cut, delayed and partitioned", f"{dict(done)}, {_counts(found)}", start
    )


def test_workers_whose_clocks_are_days_apart(store: Store, tmp_path: Path) -> None:
    out, start = tmp_path / "out", seed()
    kills, chance, done = dose("CLUSTER_CLOCK_KILLS", short=2, ci=8, long=60), Random(start), 0
    tasks = submit_all(store, out, RUNS_EACH)
    with ExitStack() as stack:
        herds = [
            stack.enter_context(
                Herd(
                    store.address,
                    tmp_path,
                    1,
                    prefix=f"day{days}.",
                    program="tests.faults.clock_worker",
                    CLOCK_AHEAD_S=str(days * DAY_S),
                )
            )
            for days in (-3, 0, 5)
        ]
        stack.enter_context(Answerer(tasks, out))
        while done < kills:
            if all_ended(tasks[-RUNS_EACH:]):
                tasks += submit_all(store, out, RUNS_EACH)
            done += disturb(chance.choice(herds), store, tasks, chance, kills=1, may_rest_s=3)
        wait_for_all(herds[1], tasks)
    found = check_logs(store, tasks, out)
    days = {claim.worker.split(".")[0] for task in tasks for claim in claims_of(task.session)}
    report(
        f"workers whose clocks are 8 days apart on {type(store).__name__}",
        f"{done} kills, {_counts(found)}, by the clocks {sorted(days)}",
        start,
    )


def test_a_worker_whose_clock_is_ahead_ends_no_run_before_its_deadline(
    postgres_address: str, tmp_path: Path
) -> None:
    """Deadlines and times to begin are kept by the clock of the server."""
    store, out = made_store(postgres_address), tmp_path / "out"
    cluster = Cluster(store)
    ahead: dict[str, Any] = {"CLOCK_AHEAD_S": str(5 * DAY_S)}
    with Herd(store.address, tmp_path, 1, program="tests.faults.clock_worker", **ahead) as herd:
        wait_until(lambda: live_workers(store), PATIENCE_S, lambda: herd.said)
        later = cluster.submit(
            Slow(), Session("Go.", store=store), path=str(out), delay_s=3600, steps=1
        )
        task = cluster.submit(
            Slow(), Session("Go.", store=store), path=str(out), deadline_s=3600, steps=2
        )
        assert task.result(PATIENCE_S).text == "rested"
        assert not claims_of(later.session), "it was begun before its time"


def test_bells_that_are_lost_delay_answers_and_no_more(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(store, "ring", str)  # of submitters and people: it does nothing
    with Herd(store.address, tmp_path, 1) as herd:
        tasks = submit_all(store, out, RUNS_EACH)
        with Answerer(tasks, out) as answerer:
            wait_for_all(herd, tasks)
    assert answerer.answers
    report(
        f"bells of submitters and people lost on {type(store).__name__}",
        _counts(check_logs(store, tasks, out)),
    )
