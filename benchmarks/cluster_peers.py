"""Queues beside each other, in one interleaved run: the CPU of a task of one step, from its
submission to its end, and the growth of a claim with the queue.

    python benchmarks/cluster_peers.py [--peers PYTHON] [--quick] [--only dispatch|claim]

Each has a process of its own. In every round each does the same number of tasks, in an order drawn
anew. CPU is that of clients and workers, not that of servers. Only Plait, DBOS and Ray with our
append keep a record of the step.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support import PostgresServer, free_port, private_postgres, wait_until

from measure import Row, percentile, print_table
from plait import migrate_store

HERE = Path(__file__).parent
TASKS = 20  # of a round
LENGTHS = [10, 1_000, 100_000]  # of a queue
TARGETS = {"dbos": "<= 1/3", "celery": "<= 1/3", "ray": "<= 1/2"}


class Contestant:
    """A queue in a process of its own."""

    def __init__(self, name: str, python: str, address: str, **environment: str) -> None:
        paths = [str(HERE.parent / "src"), str(HERE), str(HERE / "guests")]
        self.name = name
        self._process = subprocess.Popen(
            [python, "-W", "ignore", str(HERE / "guests" / f"queue_{name}.py"), address, *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
            cwd=HERE / "guests",
        )

    def ask(self, do: str, **what: object) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **what}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{self.name} ended"
        return json.loads(line)

    def close(self) -> None:
        try:
            self.ask("stop")
        except (AssertionError, OSError, AttributeError):
            pass
        self._process.kill()
        self._process.wait()


@contextmanager
def redis_server(folder: Path) -> Generator[str]:
    """A Redis of its own, which writes its log as often as PostgreSQL does."""
    port = free_port()
    line = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    process = subprocess.Popen(
        [*line, "--appendonly", "yes", "--appendfsync", "always", "--save", ""],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _answers(port))
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    done = subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True, text=True)
    return done.stdout.strip() == "PONG"


def database(server: PostgresServer, name: str) -> str:
    server.execute(f"CREATE DATABASE {name}")
    return server.address_for(database=name)


def start_all(stack: ExitStack, peers: str | None, folder: Path) -> list[Contestant]:
    server = stack.enter_context(private_postgres(18))
    address = database(server, "ours")
    migrate_store(address)
    asked: list[tuple[str, str, str, dict[str, str]]] = [("plait", sys.executable, address, {})]
    if peers is not None:
        other = database(server, "ray")
        migrate_store(other)
        asked += [
            ("dbos", peers, database(server, "dbos"), {}),
            ("procrastinate", peers, database(server, "procrastinate"), {}),
            ("ray", peers, other, {"RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"}),
        ]
        if shutil.which("redis-server"):
            redis = stack.enter_context(redis_server(folder))
            asked.append(("celery", peers, "", {"QUEUE_REDIS": redis}))
    found = list[Contestant]()
    for name, python, at, environment in asked:
        contestant = Contestant(name, python, at, **environment)
        stack.callback(contestant.close)
        try:
            told = contestant.ask("about")["value"]
        except AssertionError:
            print(f"{name} cannot be run here", file=sys.stderr)
            continue
        print(f"{name}: {told}", flush=True)
        found.append(contestant)
    return found


def dispatch(contestants: list[Contestant], rounds: int) -> list[Row]:
    """The CPU of a task of one step, from its submission to its end."""
    draw, cpu = random.Random(7), {each.name: list[float]() for each in contestants}
    for number in range(-2, rounds):
        draw.shuffle(contestants)
        for each in contestants:
            answer = each.ask("dispatch", count=TASKS)
            if number >= 0:
                cpu[each.name].append(answer["cpu"] / TASKS)
    ours = percentile(cpu["plait"], 50)
    rows = list[Row]()
    for name, found in cpu.items():
        theirs = percentile(found, 50)
        rows.append(
            Row(
                f"a task of one step, CPU of client and worker; raw: {name}",
                f"{ours * 1e3:.2f} ms",
                f"{theirs * 1e3:.2f} ms",
                f"{ours / theirs:.2f}",
                TARGETS.get(name, "-"),
            )
        )
    return rows


def claim_growth(contestants: list[Contestant], lengths: list[int], rounds: int) -> list[Row]:
    """A claim at a short queue and at longer ones, of those that claim by statements."""
    rows = list[Row]()
    for each in sorted(contestants, key=lambda each: each.name):
        if each.name not in ("plait", "procrastinate"):
            continue
        there, first = 0, dict[str, float]()
        for length in lengths:
            each.ask("fill", count=length - there)
            there = length
            for _ in range(5):
                each.ask("claim")
            found = [each.ask("claim") for _ in range(rounds)]
            # other work disturbs the first tenth less
            now = {name: percentile([one[name] for one in found], 10) for name in ("cpu", "wall")}
            first = first or now
            ratios = f"{now['cpu'] / first['cpu']:.2f} ({now['wall'] / first['wall']:.2f})"
            rows.append(
                Row(
                    f"claim at {length:,} queued over {lengths[0]}, CPU (wall), p10, {each.name}",
                    f"{now['cpu'] * 1e3:.2f} ({now['wall'] * 1e3:.2f}) ms",
                    f"{first['cpu'] * 1e3:.2f} ({first['wall'] * 1e3:.2f}) ms",
                    ratios,
                    "<= 1.5" if each.name == "plait" else "-",
                )
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", metavar="PYTHON", help="the Python that has the others")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["dispatch", "claim"])
    given = parser.parse_args()
    peers = str(Path(given.peers).absolute()) if given.peers else None
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm", ignore_cleanup_errors=True) as folder,
        ExitStack() as stack,
    ):
        contestants = start_all(stack, peers, Path(folder))
        rows = list[Row]()
        if given.only != "claim":
            rows += dispatch(contestants, 6 if given.quick else 30)
        if given.only != "dispatch":
            rows += claim_growth(contestants, [10, 200, 2_000] if given.quick else LENGTHS, 60)
    print_table(rows)


if __name__ == "__main__":
    main()
