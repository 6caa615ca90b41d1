"""The choice of a run, without a store: shares, ties, and the order within a project."""

from __future__ import annotations

from collections import Counter

from plait.cluster.choosing import ProjectShare, QueuedRun, Shares, order_runs


def queued(project: str, number: int, rank: int = 0, host: str = "") -> QueuedRun:
    return QueuedRun(f"{project}/{number}", "log", "flows:Count", project, rank, host=host)


def serve(workers: list[Shares], queues: dict[str, int], rounds: int) -> Counter[str]:
    """Let the workers take runs in turn; return how many of each project they took."""
    got = Counter[str]()
    for _ in range(rounds):
        for shares in workers:
            waiting = [queued(name, 0) for name, left in queues.items() if left > got[name]]
            if not waiting:
                return got
            project = order_runs(waiting, shares, "")[0].project
            shares.charge(project)
            got[project] += 1
    return got


def test_workers_that_have_just_begun_do_not_begin_with_the_same_project() -> None:
    """A worker has taken two runs of fifty projects: whose turn it was must not be alike."""
    queues = {f"p{n}": 10 for n in range(50)}
    got = serve([Shares(worker=f"w{n}") for n in range(25)], queues, rounds=2)
    assert sum(got.values()) == 50 and max(got.values()) <= 5 and len(got) >= 25
    alike = serve([Shares(worker="w") for _ in range(25)], queues, rounds=2)
    assert len(alike) <= 6  # what it would be


def test_a_worker_keeps_its_order_among_equals() -> None:
    names = [f"p{n}" for n in range(30)]
    assert Shares(worker="w").order(names) == Shares(worker="w").order(reversed(names))
    assert Shares(worker="w").order(names) != Shares(worker="v").order(names)


def test_weights_are_kept_and_an_idle_project_does_not_save_up() -> None:
    weights = {"double": ProjectShare(weight=2)}
    shares = Shares(weights, "w")
    got = serve([shares], {"double": 1000, "single": 1000}, rounds=300)
    assert abs(got["double"] - 200) <= 1
    late = serve([shares], {"double": 1000, "single": 1000, "late": 1000}, rounds=40)
    assert late["late"] <= 11


def test_priority_then_place_then_age_decide_within_a_project() -> None:
    high, older = queued("p", 1, rank=0), queued("p", 2, 2 << 52)
    here, away = queued("p", 3, (2 << 52) + 5, "h"), queued("p", 4, 2 << 52, "elsewhere")
    found = order_runs([away, here, older, high], Shares(), "h")
    assert [run.run for run in found] == ["p/1", "p/2", "p/3", "p/4"]
