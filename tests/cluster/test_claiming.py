"""Claims: which run a worker takes, and what it asks the store for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plait import Session
from plait.cluster import Cluster, ProjectShare, drive
from plait.cluster.choosing import Ability, Shares
from plait.cluster.claiming import ClaimedWork, Claims, Look
from plait.cluster.driving import drive_claimed
from plait.cluster.submitting import now_in
from plait.cluster.sweeping import sweep
from plait.cluster.workers import WorkerNotice, all_workers, note_let_go, put_worker, read_board
from plait.errors import TaskFailed
from plait.store import Store
from tests.cluster.flows import Count
from tests.faults.postgres_aftermath import made_store

PROGRAM = "tests.cluster.flows:Count"


def claims_in(store: Store, **shares: ProjectShare) -> Claims:
    return Claims(store, "w", Ability(frozenset({PROGRAM})), Shares(shares))


def submit(store: Store, project: str = "p") -> str:
    return Cluster(store).submit(Count(), Session("Hi", store=store, project=project)).run


@pytest.mark.parametrize("how", ["drained", "killed"])
def test_a_run_is_given_up_after_deaths_and_not_after_drains(store: Store, how: str) -> None:
    """Neither leaves more on record than the claim; a drained worker says so beside the record."""
    task = Cluster(store).submit(Count(), Session("Hi", store=store))
    ends = list[str]()
    for number in range(5):
        claims = Claims(store, f"w{number}", Ability(frozenset({PROGRAM})), Shares())
        work, _ = claims.claim(now_in(store))
        if work is None:
            break
        if how == "drained":
            note_let_go(store, work.run.run)
        ends.append(drive_claimed(store, work, lambda run: run.stops.let_go()).how)
    if how == "drained":
        assert ends == ["let go"] * 5 and not task.is_over()
        assert drive(task.session, store=store).how == "finished"
    else:
        assert ends == ["let go"] * 3 + ["failed"]
        with pytest.raises(TaskFailed, match="w0, w1, w2"):
            task.result(0)


def test_a_run_that_another_worker_has_just_locked_makes_the_cluster_busy(store: Store) -> None:
    claims = claims_in(store)
    assert claims.claim(now_in(store))[1].is_busy is False
    lock = store.lock(submit(store), "")
    work, look = claims.claim(now_in(store))
    assert work is None and look.is_busy
    lock.release()
    work, _ = claims.claim(now_in(store))
    assert work is not None
    work.lock.release()


def test_runs_that_do_not_fit_a_worker_hide_none_behind_them(store: Store) -> None:
    runs, claims = [submit(store) for _ in range(22)], claims_in(store)
    now = now_in(store)
    claims.unfit = dict.fromkeys(runs[:21], now + 10**9)
    work, _ = claims.claim(now)
    assert work is not None and work.run.run == runs[21]
    work.lock.release()
    assert claims.claim(now + 2 * 10**9)[0] is not None and claims.unfit == {}


def test_a_full_project_hides_none_behind_it(store: Store) -> None:
    first, second = submit(store, "full"), submit(store, "other")
    claims = claims_in(store, full=ProjectShare(running_max=0))
    work, _ = claims.claim(now_in(store))
    assert work is not None and work.run.run == second != first
    work.lock.release()


def test_an_idle_look_asks_for_one_table(store: Store) -> None:
    submit(store, "another")
    claims = Claims(store, "w", Ability(frozenset({"others.flows:Other"})), Shares())
    asked, rows = list[str](), store.rows

    class Counted:
        def rows(self, projection: str, table: str, *more: object, **how: object) -> object:
            asked.append(table)
            return rows(projection, table, *more, **how)  # type: ignore[arg-type]  # pyright: ignore

    claims._store = Counted()  # type: ignore[assignment]  # pyright: ignore
    look = claims.look(now_in(store))
    assert asked == ["queue"] and look.runs == [] and not look.is_busy


def test_a_sweep_takes_no_more_runs_than_there_is_room_for(store: Store) -> None:
    runs = [submit(store) for _ in range(3)]
    dead = WorkerNotice("dead", "h", 1, (), (PROGRAM,), "", 4, tuple(runs))
    put_worker(store, dead)
    claims, taken = claims_in(store), list[ClaimedWork]()

    def sweep_while(has_room: Callable[[], bool]) -> None:
        for work in sweep(store, read_board(store, "w"), claims, now_in(store), has_room):
            taken.append(work)

    sweep_while(lambda: len(taken) < 2)
    assert [work.run.run for work in taken] == runs[:2]
    assert [notice.name for notice, _ in all_workers(store)] == ["dead"]
    sweep_while(lambda: True)
    assert [work.run.run for work in taken] == runs and all_workers(store) == []
    for work in taken:
        work.lock.release()


# ── runs that a look has left ────────────────────────────────────────────────────────────────


def finish(store: Store, claims: Claims, now: int) -> str:
    """Claim the next run, execute it, and return its id."""
    work, _ = claims.claim(now)
    assert work is not None
    claims.own.add(work.run.run)
    assert drive_claimed(store, work).how == "finished"
    claims.own.discard(work.run.run)
    return work.run.run


def count_looks(claims: Claims) -> list[int]:
    """Return a list that grows with each look of these claims."""
    looks, look = list[int](), claims.look

    def counted(now: int) -> Look:
        looks.append(now)
        return look(now)

    claims.look = counted  # type: ignore[method-assign]
    return looks


def test_the_runs_of_one_look_are_taken_one_after_another(postgres_address: str) -> None:
    store = made_store(postgres_address)
    runs, claims, now = [submit(store) for _ in range(5)], claims_in(store), now_in(store)
    looks = count_looks(claims)
    assert [finish(store, claims, now) for _ in runs] == runs
    assert len(looks) == 1
    assert claims.claim(now)[0] is None and len(looks) == 2, "there may be new ones"


def test_a_run_that_another_worker_has_executed_is_passed_over(postgres_address: str) -> None:
    store = made_store(postgres_address)
    runs, now = [submit(store) for _ in range(6)], now_in(store)
    first, second = claims_in(store), claims_in(store)
    looks = count_looks(first), count_looks(second)
    taken = [finish(store, each, now) for each in (first, second) * 3]
    assert taken == runs
    assert [len(each) for each in looks] == [1, 1]


def test_a_project_that_is_behind_comes_before_runs_that_a_look_has_left(
    postgres_address: str,
) -> None:
    store = made_store(postgres_address)
    large = [submit(store, "large") for _ in range(20)]
    small = [submit(store, "small") for _ in range(3)]
    claims, now = claims_in(store), now_in(store)
    taken = [finish(store, claims, now) for _ in range(7)]
    assert {*small} < {*taken} and len({*taken} & {*large}) == 4


def test_runs_that_were_left_a_while_ago_are_looked_at_again(postgres_address: str) -> None:
    store = made_store(postgres_address)
    low, claims, now = [submit(store) for _ in range(4)], claims_in(store), now_in(store)
    looks = count_looks(claims)
    assert finish(store, claims, now) == low[0]
    session = Session("Hi", store=store, project="p")
    urgent = Cluster(store).submit(Count(), session, priority=5).run
    assert finish(store, claims, now + 300_000) == urgent
    assert finish(store, claims, now + 300_000) == low[1] and len(looks) == 2


def test_limits_are_looked_at_for_each_claim(postgres_address: str) -> None:
    store = made_store(postgres_address)
    runs = [submit(store) for _ in range(3)]
    claims, now = claims_in(store, p=ProjectShare(running_max=1)), now_in(store)
    looks = count_looks(claims)
    assert [finish(store, claims, now) for _ in runs] == runs and len(looks) == 3
