"""The server of a store fails under load: killed and restarted, replaced by its standby, restored
from a dump. What was acknowledged stands, clients go on by themselves, runs come to their end.

`PG_OUTAGES` says how often the server is killed.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from plait import Session, Store, open_store
from plait.errors import StoreClosed, StoreReplaced, StoreRestored
from plait.event import Event
from plait.event.kinds import ScratchSet
from plait.ids import LogId
from plait.runs.replay import replay
from plait.runs.resume import resume
from plait.runtime.live import Live
from plait.session.value import open_run_of
from plait.store import Row, Rows
from plait.store.postgres.address import parse_address
from plait.store.postgres.migrate import migrate
from plait.testing.projections import Tally
from plait.testing.writing import begin, extend, message, texts
from tests.faults import outage_story
from tests.faults.outage_story import Steps
from tests.faults.postgres_aftermath import (
    Follower,
    Told,
    clients,
    judge,
    made_store,
    shared_log,
    wait_for_acts,
)
from tests.support import (
    CutMoment,
    ForkedProgram,
    PostgresServer,
    child_environment,
    dose,
    module_command,
    private_postgres,
    proxied,
    report,
    seed,
    standby_of,
    wait_until,
)

STORE = {"schema": "plait"}


def test_the_server_is_killed_again_and_again_under_load() -> None:
    outages, chance = dose("PG_OUTAGES", short=2, ci=8, long=60), seed()
    with private_postgres() as server:
        address = server.address_for(**STORE)
        store, told = made_store(address), Told()
        shared = shared_log(store)
        follower = Follower(store)
        with clients(address, 4, chance, shared) as running:
            for _ in range(outages):
                wait_for_acts(running, 20)
                server.kill()
                server.start()
            wait_for_acts(running, 20)
            for each in running:
                told.add(each.kill())
        assert not set(told.refused) - {"StaleHead"}, told.refused
        judge(store, told, follower.end())
        store.close()
    report("PostgreSQL, the server killed under load", f"{outages} times, {told.counts}", chance)


def test_rows_whose_fold_was_lost_in_a_crash_are_folded_again() -> None:
    """A fold need not be on disk: the server crashes after it, before the rows are read."""
    with private_postgres(wal_writer_delay="10s") as server:
        made_store(server.address_for(**STORE)).close()
        with proxied(server.address_for(**STORE)) as proxy:
            store = open_store(proxy.address, projections=[Tally()])
            begin(store, ScratchSet("a", 1))
            cut = proxy.cut(CutMoment.BEFORE, text='^SELECT "log".*p_tally.* LIMIT')
            proxy.is_refusing = True
            found = list[Row]()
            reader = threading.Thread(target=lambda: found.extend(store.rows("tally", "count")))
            reader.start()
            assert cut.done.wait(60)
            server.kill()
            server.start()
            proxy.is_refusing = False
            reader.join(60)
            assert [row["times"] for row in found] == [1]
            store.close()


class Linked(Tally):
    """Looks for a row whose key is told by another."""

    name = "linked"

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        body = event.body
        assert isinstance(body, ScratchSet)
        row = rows.get("count", event.log, body.key) or {"times": 0}
        rows.get("count", event.log, f"{body.key}{row['times']}")
        super().apply(rows, number, event)


def test_a_fold_whose_connection_is_lost_is_no_broken_fold(postgres_address: str) -> None:
    """It is tried again, like any other work: the projection is not at fault."""
    made_store(postgres_address).close()
    with proxied(postgres_address) as proxy:
        store = open_store(proxy.address, projections=[Linked()])
        log = begin(store, ScratchSet("a", 1))
        assert [row["times"] for row in store.rows("linked", "count")] == [1]
        extend(store, log, ScratchSet("a", 2))
        # rows are read ahead by the keys that are known, and this one inside of the fold
        cut = proxy.cut(CutMoment.BEFORE, nth=2, text="^SELECT t.*unnest.*JOIN .*p_linked")
        assert [row["times"] for row in store.rows("linked", "count")] == [2]
        assert cut.done.is_set()
        store.close()


# ── runs ─────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _story(folder: Path, address: str, **environment: str) -> Generator[ForkedProgram]:
    """A run in a process of its own, under way; it prints how it ended."""
    process = ForkedProgram(
        module_command(outage_story.__name__),
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(STORY_FOLDER=str(folder), STORY_STORE=address, **environment),
    )
    try:
        wait_until((folder / "half").exists)
        yield process
    finally:
        process.kill()
        process.communicate()


def _session(store: str) -> Session:
    (found,) = Session.list(store=store)
    return Session.open(found.id, store=store)


def test_a_run_waits_for_its_server_and_ends(tmp_path: Path) -> None:
    with private_postgres() as server:
        address = server.address_for(**STORE)
        store = made_store(address)
        with _story(tmp_path, address) as process:
            server.kill()
            (tmp_path / "go").touch()
            wait_until(lambda: outage_story.is_stuck(tmp_path))
            server.start()
            assert process.communicate(timeout=60)[0] == "done\n"
        session = _session(address)
        assert open_run_of(session) is None
        assert outage_story.steps(tmp_path) == list(range(outage_story.STEPS))
        assert replay(session, Steps()).head == session.head
        judge(store, Told())
        store.close()


def test_a_run_whose_server_stays_away_is_resumed_later(tmp_path: Path) -> None:
    """It says that the store cannot be reached; whether its last write stands is found out by who
    takes over.
    """
    with private_postgres() as server:
        address = server.address_for(**STORE)
        store = made_store(address)
        patience = {"PLAIT_STORE_WAIT_S": "0.5", "PLAIT_STORE_LEASE_S": "1.5"}
        with _story(tmp_path, address, **patience) as process:
            server.kill()
            (tmp_path / "go").touch()
            assert process.communicate(timeout=60)[0] == "StoreUnreachable\n"
            server.start()
        session = _session(address)
        run = open_run_of(session)
        assert run is not None
        wait_until(lambda: not store.is_locked(run))
        outage_story.folder = tmp_path
        ended = resume(session, Steps())
        assert sorted(set(outage_story.steps(tmp_path))) == list(range(outage_story.STEPS))
        assert replay(ended, Steps()).head == ended.head
        judge(store, Told())
        store.close()


# ── standbys ─────────────────────────────────────────────────────────────────────────────────


def _waits_for_standby(server: PostgresServer) -> set[int]:
    """The processes of the server that wait for a standby before they acknowledge."""
    sql = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    return {int(str(pid)) for (pid,) in server.execute(sql)}


def test_a_standby_is_promoted_under_load() -> None:
    promotions, chance = dose("PG_PROMOTIONS", short=1, ci=2, long=6), seed()
    for number in range(promotions):
        _promote_under_load(chance + number)


def _promote_under_load(chance: int) -> None:
    with (
        private_postgres() as primary,
        standby_of(primary) as standby,
        proxied(primary.address_for(**STORE)) as proxy,
    ):
        store, told = made_store(proxy.address), Told()
        shared, left = shared_log(store), open_store(primary.address_for(**STORE))
        old = begin(left)
        follower = Follower(store)
        with clients(proxy.address, 4, chance, shared) as running:
            wait_for_acts(running, 40)
            # the network leads to the standby before it is promoted
            proxy.lead_to(standby.address)
            proxy.cut_all()
            late = threading.Thread(target=_extend_late, args=(left, old), daemon=True)
            waited_before = _waits_for_standby(primary)
            standby.promote()
            wait_for_acts(running, 40)
            # the old primary takes a write, and never acknowledges it
            late.start()
            wait_until(lambda: _waits_for_standby(primary) - waited_before)
            assert late.is_alive()
            for each in running:
                told.add(each.kill())
        assert not set(told.refused) - {"StaleHead"}, told.refused
        judge(store, told, follower.end())
        assert texts(store, old) == []
        left.close()
        primary.kill()
        late.join(60)
        store.close()
    report("PostgreSQL, a standby promoted under load", told.counts, chance)


def _extend_late(store: Store, log: LogId) -> None:
    with suppress(StoreClosed):
        extend(store, log, message("late"))


def test_events_that_stand_are_not_acknowledged_before_a_standby_has_them() -> None:
    """A commit that is cut off while it waits for the standby is visible all the same. The same
    events again wait as well.
    """
    with private_postgres() as primary, standby_of(primary) as standby:
        store = made_store(primary.address_for(**STORE))
        log = begin(store)
        standby.kill()
        writer = threading.Thread(target=extend, args=(store, log, message("once")), daemon=True)
        writer.start()
        (waiting,) = wait_until(lambda: _waits_for_standby(primary))
        primary.execute("SELECT pg_terminate_backend(%s)", waiting)
        wait_until(lambda: _waits_for_standby(primary) - {waiting} or not writer.is_alive())
        assert writer.is_alive(), "acknowledged, and the standby does not have it"
        assert texts(store, log) == ["once"]
        standby.start()
        writer.join(60)
        assert not writer.is_alive() and texts(store, log) == ["once"]
        store.close()


# ── dumps ────────────────────────────────────────────────────────────────────────────────────

_BURN = "DO $$ BEGIN FOR i IN 1..%d LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"


def test_a_dump_is_restored_into_a_server_with_lower_transaction_ids(tmp_path: Path) -> None:
    chance = seed()
    with private_postgres() as old, private_postgres() as new:
        old.execute(_BURN % 5000)
        address = new.address_for(**STORE)
        store, told = made_store(old.address_for(**STORE)), Told()
        shared = shared_log(store)
        with clients(old.address_for(**STORE), 2, chance, shared, acts=60) as running:
            for each in running:
                told.add(each.end())
        with proxied(old.address_for(**STORE)) as proxy:
            stale = open_store(proxy.address, projections=[Tally()])
            before, last = len(list(stale.feed())), stale.number
            dump = str(old.folder / "dump")
            old.command("pg_dump", "-Fc", "-d", old.address, "-f", dump)
            new.command("pg_restore", "-d", new.address, dump)
            with pytest.raises(StoreRestored, match="plait migrate"):
                open_store(address)
            # a client that was there before does not go on with the old numbers
            proxy.lead_to(new.address)
            proxy.cut_all()
            with pytest.raises(StoreReplaced):
                extend(stale, shared, message("with an old number"))
        migrate(parse_address(address), source=Live())
        restored = open_store(address, projections=[Tally()])
        assert len(list(restored.feed())) == before
        follower = Follower(restored)
        with clients(address, 2, chance + 10, shared, acts=60) as running:
            for each in running:
                told.add(each.end())
        judge(restored, told, follower.end())
        assert [number for number, _ in restored.feed(last)][0] > last
        assert len(list(restored.feed(last))) == len(list(restored.feed())) - before
        for each in (store, restored):
            each.close()
    report("PostgreSQL, a dump restored under lower transaction ids", told.counts, chance)
