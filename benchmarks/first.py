"""The first five minutes: the waits of a newcomer, beside an empty `python -c ''` of the same run.

Each part starts real processes, in a folder of its own. A figure is the median over the rounds;
CPU is that of the process and of all that it waited for.

    python benchmarks/first.py [--rounds 5] [--only demo,terminal,help,clone]

| part | measures |
|---|---|
| demo | `plait demo --pace 0`: its first line, its end, and the time worked that it tells |
| terminal | `plait demo` on a terminal of 80 columns, answered at once |
| help | `plait --help` and `plait` alone |
| clone | a clone of this repository, and `make demo` in it; only if it is named: it installs |
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))

from measure import Row, print_table  # noqa: E402

PLAIT = [sys.executable, "-m", "plait"]
WORKED = re.compile(r"worked ([\d.]+) s, shown in ([\d.]+) s")


class Measured(NamedTuple):
    """One process, from its start to its end, in seconds."""

    first_s: float  # until its first line
    wall_s: float
    cpu_s: float
    output: str


def measure(command: list[str], folder: Path, *, terminal: bool = False) -> Measured:
    """Start a command and read what it shows; on a terminal, answer each question with yes."""
    began = time.perf_counter()
    ours, theirs = pty.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {**os.environ, "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}
    env.pop("PLAIT_STORE", None)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdin=theirs if terminal else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown, first_s, answered = b"", 0.0, False
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end of a terminal is closed
            piece = b""
        if not piece:
            break
        first_s = first_s or time.perf_counter() - began
        shown += piece
        if terminal and not answered and b"[e]dit: " in shown:
            os.write(ours, b"y\n")
            answered = True
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    os.close(ours)
    text = shown.decode(errors="replace")
    assert process.returncode in (0, 2), text
    wall_s = time.perf_counter() - began
    return Measured(first_s, wall_s, usage.ru_utime + usage.ru_stime, text)


def median(
    rounds: int, command: list[str], *, terminal: bool = False
) -> tuple[Measured, Measured, list[str]]:
    """Return the medians of a command and of an empty program, in turns, and all outputs."""
    runs, empty = list[Measured](), list[Measured]()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(measure(command, Path(folder), terminal=terminal))
        empty.append(measure([sys.executable, "-c", ""], ROOT))
    return _middle(runs), _middle(empty), [run.output for run in runs]


def _middle(runs: list[Measured]) -> Measured:
    middle = statistics.median
    return Measured(
        middle([run.first_s for run in runs]),
        middle([run.wall_s for run in runs]),
        middle([run.cpu_s for run in runs]),
        "",
    )


def _row(what: str, seconds: float, raw: float, target: str) -> Row:
    return Row(what, f"{seconds:.2f} s", f"{raw:.3f} s", f"{seconds / raw:.0f}", target)


# ── parts ────────────────────────────────────────────────────────────────────────────────────


def demo(rounds: int) -> list[Row]:
    run, empty, outputs = median(rounds, [*PLAIT, "demo", "--pace", "0"])
    worked = statistics.median(float(WORKED.findall(output)[0][0]) for output in outputs)
    return [
        _row("demo --pace 0: first line", run.first_s, empty.wall_s, "≤ 0.5 s"),
        _row("demo --pace 0: worked, as it tells", worked, empty.wall_s, "≤ 8 s"),
        _row("demo --pace 0: start to end", run.wall_s, empty.wall_s, "-"),
        _row("demo --pace 0: CPU of all processes", run.cpu_s, empty.cpu_s, "-"),
    ]


def terminal(rounds: int) -> list[Row]:
    run, empty, _ = median(rounds, [*PLAIT, "demo"], terminal=True)
    return [_row("demo on a terminal: start to end", run.wall_s, empty.wall_s, "≤ 20 s")]


def help(rounds: int) -> list[Row]:
    run, empty, _ = median(rounds, [*PLAIT, "--help"])
    alone, _, _ = median(rounds, PLAIT)
    return [
        _row("--help: CPU", run.cpu_s, empty.cpu_s, "≤ 0.15 s"),
        _row("plait alone: CPU", alone.cpu_s, empty.cpu_s, "≤ 0.25 s"),
    ]


def clone(rounds: int) -> list[Row]:
    """Clone, install and run the demo once: it takes the network, or a mirror of packages."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        there = f"{folder}/plait"
        subprocess.run(["git", "clone", "-q", str(ROOT), there], check=True)
        subprocess.run(["make", "demo"], cwd=there, check=True, capture_output=True)
        seconds = time.perf_counter() - began
    empty = measure([sys.executable, "-c", ""], ROOT)
    return [_row("clone to the end of the demo", seconds, empty.wall_s, "≤ 45 s")]


PARTS: dict[str, Callable[[int], list[Row]]] = {
    "demo": demo,
    "terminal": terminal,
    "help": help,
    "clone": clone,
}
BY_NAME_ALONE = {"clone"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", default=",".join(name for name in PARTS if name not in BY_NAME_ALONE)
    )
    given = parser.parse_args()
    rows = [row for name in given.only.split(",") for row in PARTS[name](given.rounds)]
    print_table(rows)


if __name__ == "__main__":
    main()
