"""Workers that are killed at every statement of their life, and workers whose statements arrive
when others have their runs already.

`CLUSTER_EVERY` says at which of the statements: 1 for all.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from plait import Session, open_store
from plait.cluster import Cluster, Worker
from plait.cluster.cluster import Task
from plait.store import Store
from tests.cluster.flows import Forks, Slow
from tests.faults.herd import FLOWS, PATIENCE_S, all_ended, check_logs
from tests.faults.postgres_aftermath import made_store
from tests.support import (
    CutMoment,
    ForkedProgram,
    Proxy,
    child_environment,
    claims_of,
    dose,
    import_in_server,
    module_command,
    proxied,
    report,
    seed,
    wait_until,
)

STORY = "tests.faults.worker_story"
BEATS = {"PLAIT_STORE_LEASE_S": "0.9"}  # a heartbeat every 0.3 seconds
STOPPED = {"PLAIT_STORE_LEASE_S": "1.5"}


def _submit(store: Store, out: Path) -> list[Task]:
    """Submit runs that fork, take a while, and have effects."""
    cluster = Cluster(store)
    return [
        cluster.submit(Forks(), Session("Go.", store=store), path=str(out)),
        cluster.submit(Slow(), Session("Go.", store=store), path=str(out), steps=2, seconds=0.35),
    ]


def _finish(store: Store, tasks: Sequence[Task]) -> None:
    """Have workers of this process execute what is left. A worker that died may have its run for
    another moment.
    """

    def end_all() -> bool:
        Worker(store, [FLOWS], slots=2, until_empty=True).serve()
        return all_ended(tasks)

    wait_until(end_all, PATIENCE_S, lambda: str([task.why for task in tasks]))


def _sample(count: int, every: int, chance: random.Random) -> list[int]:
    return sorted(chance.sample(range(1, count + 1), -(-count // every)))


# ── killed ───────────────────────────────────────────────────────────────────────────────────


def _live_on_sqlite(store: Store, folder: Path, name: str, last: int) -> int:
    """Let a worker live until a moment; return its exit code."""
    command = module_command(STORY, store.address, name, str(folder), str(last))
    with (folder / "workers.txt").open("a") as said:
        process = ForkedProgram(command, stderr=said, env=child_environment(), cwd=folder)
    return process.wait(PATIENCE_S)


def test_a_worker_killed_at_every_statement_on_sqlite(tmp_path: Path) -> None:
    import_in_server("tests.faults.herd_code")
    store, out, start = open_store(tmp_path / ".plait"), tmp_path / "out", seed()
    out.touch()
    every, chance = dose("CLUSTER_EVERY", short=90, ci=20, long=1), random.Random(start)
    tasks = _submit(store, out)
    assert _live_on_sqlite(store, tmp_path, "first", 0) == 0
    moments, killed = int((tmp_path / "moments").read_text()), 0
    for last in _sample(moments, every, chance):
        tasks += (here := _submit(store, out))
        code = _live_on_sqlite(store, tmp_path, f"w{last}", last)
        assert code in (0, -signal.SIGKILL), (tmp_path / "workers.txt").read_text()[-2000:]
        killed += code != 0
        _finish(store, here)
    found = check_logs(store, tasks, out)
    assert killed
    report(
        f"workers killed at one in {every} of {moments} statements and locks, SQLite",
        f"{killed} kills, {found['runs']} runs ended, {found['claims']} claims,"
        f" {found['effects']} effects, {found['repeated']} repeated under their own key",
        start,
    )


def _worker(address: str, folder: Path, name: str, **environment: str) -> ForkedProgram:
    command = [sys.executable, "-m", "plait", "worker", FLOWS, "--store", address, "--slots", "2"]
    with (folder / "workers.txt").open("a") as said:
        return ForkedProgram(
            [*command, "--name", name, "--until-empty"],
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=child_environment(**environment),
            cwd=folder,
        )


def _count_statements(address: str, folder: Path) -> int:
    with proxied(address) as proxy:
        assert _worker(proxy.address, folder, "counted", **BEATS).wait(PATIENCE_S) == 0
        return proxy.counts.statements


def test_a_worker_killed_at_every_statement_on_postgres(
    postgres_address: str, tmp_path: Path
) -> None:
    """Of a claim, a release, a heartbeat and all others: before the server has it, while it is at
    it, and when it has finished.
    """
    import_in_server("plait.store.postgres.store", "tests.faults.herd_code")
    store, out, start = made_store(postgres_address), tmp_path / "out", seed()
    out.touch()
    every, chance = dose("CLUSTER_EVERY", short=150, ci=30, long=1), random.Random(start)
    tasks = _submit(store, out)
    statements, killed = _count_statements(postgres_address, tmp_path), 0
    for number in _sample(statements * 3, every, chance):
        nth, moment = -(-number // 3), list(CutMoment)[number % 3]
        tasks += (here := _submit(store, out))
        with proxied(postgres_address) as proxy:
            killed += _kill_at(proxy, tmp_path, f"w{number}", nth, moment)
        _finish(store, here)
    found = check_logs(store, tasks, out)
    assert killed
    report(
        f"workers killed at one in {every} of {statements} statements x 3 moments, PostgreSQL",
        f"{killed} kills, {found['runs']} runs ended, {found['claims']} claims,"
        f" {found['effects']} effects, {found['repeated']} repeated under their own key",
        start,
    )


def _kill_at(proxy: Proxy, folder: Path, name: str, nth: int, moment: CutMoment) -> bool:
    """Kill a worker at its nth statement. False: it came to its end before that."""
    process: ForkedProgram | None = None

    def kill() -> None:
        if process is not None:
            os.kill(process.pid, signal.SIGKILL)

    proxy.is_refusing = True  # until the worker is known
    cut = proxy.cut(moment, nth=nth, act=kill)
    process = _worker(proxy.address, folder, name, **BEATS)
    proxy.is_refusing = False
    code = process.wait(PATIENCE_S)
    assert code in (0, -signal.SIGKILL), (folder / "workers.txt").read_text()[-2000:]
    return cut.done.is_set()


# ── stopped ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["anywhere", "append"])
def test_a_statement_that_arrives_after_the_run_was_taken_over(
    postgres_address: str, tmp_path: Path, where: str
) -> None:
    """A worker is stopped with a statement on its way, for longer than its lease. Another worker
    has ended its runs when the statement arrives, and the first goes on.
    """
    import_in_server("plait.store.postgres.store", "tests.faults.herd_code")
    store, out, start = made_store(postgres_address), tmp_path / "out", seed()
    out.touch()
    stops, chance = dose("CLUSTER_LATE", short=1, ci=4, long=40), random.Random(start)
    text = "" if where == "anywhere" else "moved AS"
    tasks = _submit(store, out)
    with proxied(postgres_address) as proxy:
        assert _worker(proxy.address, tmp_path, "counted").wait(PATIENCE_S) == 0
        statements = sum(1 for each in proxy.counts.texts if text in each)
    assert statements > 5, "the pattern finds no append"
    late_ones = 0
    for number in range(stops):
        tasks += (here := _submit(store, out))
        with proxied(postgres_address) as proxy:
            nth = chance.randrange(1, statements)
            late_ones += _stop_at(store, proxy, tmp_path, f"w{number}", nth, text, here)
    found = check_logs(store, tasks, out)
    report(
        f"workers stopped with a statement on its way ({where}), PostgreSQL",
        f"{stops} stops, {late_ones} statements arrived after another had the run,"
        f" {found['runs']} runs ended, {found['claims']} claims, {found['effects']} effects,"
        f" {found['repeated']} repeated under their own key",
        start,
    )


def _stop_at(
    store: Store, proxy: Proxy, folder: Path, name: str, nth: int, text: str, tasks: list[Task]
) -> bool:
    """Stop a worker at its nth statement, and let it go on when another has ended its runs.
    False: it came to its end before that.
    """
    process: ForkedProgram | None = None

    def stop() -> None:
        if process is not None:
            os.kill(process.pid, signal.SIGSTOP)

    proxy.is_refusing = True
    late = proxy.delay(nth=nth, text=text, act=stop)
    process = _worker(proxy.address, folder, name, **STOPPED)
    proxy.is_refusing = False
    try:
        wait_until(lambda: late.done.is_set() or process.poll() is not None, PATIENCE_S)
        if not late.done.is_set():
            return False
        had = any(claims_of(task.session) for task in tasks)
        _finish(store, tasks)
        process.send_signal(signal.SIGCONT)
        late.arrive()
        assert process.wait(PATIENCE_S) == 0, (folder / "workers.txt").read_text()[-2000:]
        return had
    finally:
        late.arrive()
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
