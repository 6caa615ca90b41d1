"""The way the benchmarks measure: interleaved and shuffled rounds, and a table at the end.

An absolute time says more about the machine than about the program. So every contestant does one
operation per round, in an order drawn anew each time; whatever slows the machine down then slows
all of them, and their ratio stands.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import apsw
import msgspec

from plait.store.sqlite.database import PAGE_SIZE

WARM_UP = 0.1  # of the rounds, not counted
SETTLE_SIZE = 12_000_000  # more than SQLite lets a write-ahead log grow before it starts over


class Timing:
    """The time of one contestant, in seconds: wall clock and CPU of the thread that did it."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def run(self, operation: Callable[[], object]) -> None:
        cpu, wall = time.thread_time(), time.perf_counter()
        operation()
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.thread_time() - cpu)

    def forget(self) -> None:
        self.wall.clear()
        self.cpu.clear()

    def facts(self) -> dict[str, float]:
        """All in microseconds."""
        both = {"wall": self.wall, "cpu": self.cpu}
        marks = {
            f"{name}_p{part}": percentile(values, part)
            for name, values in both.items()
            for part in (50, 95)
        }
        means = {f"{name}_mean": statistics.fmean(values) for name, values in both.items()}
        return {f"{name}_us": round(value * 1e6, 2) for name, value in (marks | means).items()}


class Row(msgspec.Struct):
    """One line of the table. `facts` goes to the JSON alone."""

    what: str
    measured: str
    raw: str = "-"
    ratio: str = "-"
    target: str = "-"
    facts: dict[str, object] = {}


def interleave(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int,
    before: Callable[[], object] = lambda: None,
) -> dict[str, Timing]:
    """One operation of each per round, in shuffled order; `before` prepares a round and is not
    timed.
    """
    draw = random.Random(7)
    timings = {name: Timing() for name in contestants}
    order = list(contestants)
    warm_up = max(1, int(rounds * WARM_UP))
    for i in range(-warm_up, rounds):
        if i == 0:
            for timing in timings.values():
                timing.forget()
        before()
        draw.shuffle(order)
        for name in order:
            timings[name].run(contestants[name])
    return timings


def percentile(values: Iterable[float], part: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * part // 100)]


def folder_size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


# ── the raw limit ────────────────────────────────────────────────────────────────────────────


class Raw:
    """SQLite and nothing else: one table, the same settings for durability, the same bytes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.db = apsw.Connection(str(folder / "raw.db"))
        for pragma in (f"page_size = {PAGE_SIZE}", "journal_mode = WAL", "synchronous = FULL"):
            self.db.execute(f"PRAGMA {pragma}")
        self.db.execute(
            "CREATE TABLE event (number INTEGER PRIMARY KEY, header BLOB NOT NULL, body BLOB NOT"
            " NULL)"
        )

    def insert(self, header: bytes, body: bytes) -> None:
        """The durable operation that everything is compared with."""
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute("INSERT INTO event (header, body) VALUES (?, ?)", (header, body))
        self.db.execute("COMMIT")

    def settle(self) -> None:
        """Past the first checkpoint, as any store is after a while: until then each commit makes
        the log's file longer.
        """
        self.insert(b"", random.Random(0).randbytes(SETTLE_SIZE))

    def insert_all(self, events: Iterable[tuple[bytes, bytes]]) -> None:
        with self.db:
            self.db.executemany("INSERT INTO event (header, body) VALUES (?, ?)", events)

    def close(self) -> None:
        """Closing the last connection moves the write-ahead log into the file."""
        self.db.close()


# ── the report ───────────────────────────────────────────────────────────────────────────────


def machine(folder: Path, date: str) -> dict[str, object]:
    return {
        "date": date or time.strftime("%Y-%m-%d", time.gmtime(time.time())),
        "cpus": os.cpu_count(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "file_system": file_system(folder),
    }


def file_system(folder: Path) -> str:
    """The type of the file system a folder is on, where the system says so."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    fields = [line.split() for line in mounts.read_text().splitlines()]
    types = {Path(field[1]): field[2] for field in fields}
    return next(
        (types[place] for place in (folder.resolve(), *folder.resolve().parents) if place in types),
        "unknown",
    )


def print_table(rows: Iterable[Row]) -> None:
    lines = [("what", "measured", "raw, same run", "ratio", "target")]
    lines += [(row.what, row.measured, row.raw, row.ratio, row.target) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    for line in lines:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def write_json(path: Path, facts: Mapping[str, object], rows: Iterable[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"machine": facts, "rows": [msgspec.to_builtins(row) for row in rows]}, indent=2)
        + "\n"
    )
