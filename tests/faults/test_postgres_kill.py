"""kill -9 of clients of a PostgreSQL store, and connections cut at any statement: what was
acknowledged stands, once, what was not stands whole or not at all, and others go on.

At random moments, many clients at a time, and at every statement of a client: before the server has
it, while nobody waits for the answer, and when the server has finished and the client does not
know it. Clients write and fold. `PG_KILLS`, `PG_CUTS` and `PG_EVERY` say how many.
"""

from __future__ import annotations

import random
import time

import pytest

from plait.ids import LogId
from tests.faults.postgres_aftermath import (
    IMPORTS,
    Follower,
    Running,
    Told,
    clients,
    judge,
    made_store,
    shared_log,
    wait_for_acts,
)
from tests.support import CutMoment, dose, import_in_server, proxied, report, seed

ACTS = 40  # of a client that is killed or cut at each of its statements


def test_clients_killed_at_random_moments(postgres_address: str) -> None:
    kills, chance = dose("PG_KILLS", short=12, ci=60, long=1000), seed()
    store, told = made_store(postgres_address), Told()
    shared, delays = shared_log(store), random.Random(chance)
    follower = Follower(store)
    done = 0
    while done < kills:
        together = min(4, kills - done)
        with clients(postgres_address, together, chance + done, shared) as running:
            wait_for_acts(running, 3 * together)
            for each in running:
                time.sleep(delays.random() * 0.03)  # a random moment is the point here
                told.add(each.kill())
        done += together
    judge(store, told, follower.end())
    report(
        "PostgreSQL, clients killed at random moments", f"{kills:,} kills, {told.counts}", chance
    )


def _statements(address: str, shared: LogId, chance: int) -> int:
    """The number of statements of an undisturbed client. The first client of a store makes more:
    nothing was folded before.
    """
    _count_statements(address, shared, chance)
    return _count_statements(address, shared, chance)


def _count_statements(address: str, shared: LogId, chance: int) -> int:
    with proxied(address) as proxy:
        client = Running(proxy.address, "count", chance, ACTS, shared)
        client.wait_ready()
        proxy.counts.reset()
        client.go()
        client.end()
        return proxy.counts.statements


@pytest.mark.parametrize("how", ["killed", "cut"])
def test_clients_stopped_at_every_statement(postgres_address: str, how: str) -> None:
    """Killed: no other statement of the client follows. Cut: it goes on by itself to its end."""
    import_in_server(*IMPORTS)
    every, chance = dose("PG_EVERY", short=60, ci=8, long=1), seed()
    store, told = made_store(postgres_address), Told()
    shared = shared_log(store)
    statements = _statements(postgres_address, shared, chance)
    points = [(nth, moment) for nth in range(1, statements + 1) for moment in CutMoment]
    chosen = random.Random(chance).sample(points, -(-len(points) // every))
    follower, stopped = Follower(store), 0
    for number, (nth, moment) in enumerate(chosen):
        with proxied(postgres_address) as proxy:
            client = Running(proxy.address, f"{how}{number}", chance, ACTS, shared)
            client.wait_ready()
            proxy.is_refusing = how == "killed"
            cut = proxy.cut(moment, nth=nth)
            client.go()
            if how == "killed":
                assert cut.done.wait(60) or client.is_done
                stopped += cut.done.is_set()
                told.add(client.kill())
            else:
                told.add(client.end())
                stopped += cut.done.is_set()
                assert client.is_done, "it does not go on by itself"
    judge(store, told, follower.end())
    if how == "cut":
        assert not told.unsure and not set(told.refused) - {"StaleHead"}
    assert stopped == len(chosen)
    report(
        f"PostgreSQL, clients {how} at one in {every} of {statements} statements x 3 moments",
        f"{stopped:,} {how}, {told.counts}",
        chance,
    )


def test_connections_cut_under_load(postgres_address: str) -> None:
    """All connections at once, and single ones at an append: nobody is told anything wrong."""
    cuts, chance = dose("PG_CUTS", short=15, ci=60, long=600), seed()
    store, told, moments = made_store(postgres_address), Told(), random.Random(chance)
    shared = shared_log(store)
    follower = Follower(store)
    with (
        proxied(postgres_address) as proxy,
        clients(proxy.address, 4, chance, shared) as running,
    ):
        for _ in range(cuts):
            if moments.random() < 0.3:
                proxy.cut_all()
            else:
                text = moments.choice(("moved AS", "COMMIT", "FOR UPDATE", ""))
                cut = proxy.cut(moments.choice(list(CutMoment)), nth=1, text=text)
                assert cut.done.wait(60)
            wait_for_acts(running, moments.randrange(4))
        wait_for_acts(running, 40)
        for each in running:
            told.add(each.kill())
    assert not set(told.refused) - {"StaleHead"}, told.refused
    judge(store, told, follower.end())
    report("PostgreSQL, connections cut under load", f"{cuts:,} cuts, {told.counts}", chance)
