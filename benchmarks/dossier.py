"""A dossier of a long family: the CPU time of `plait dossier`, and the sizes of its files.

The command runs in a process of its own, with and without the page of the run, beside an empty
Python of the same run.

    python benchmarks/dossier.py [--events 10000] [--branches 10] [--times 3]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.view_sessions import make_long_store  # noqa: E402


def cpu_of(command: list[str], folder: Path) -> tuple[float, str]:
    """Return the CPU seconds of a command, and its output."""
    before = os.times()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    after = os.times()
    used = after.children_user + after.children_system
    return used - before.children_user - before.children_system, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--branches", type=int, default=10)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-dossier-") as name:
        folder = Path(name)
        store, log = make_long_store(folder, given.events, given.branches)
        store.close()
        empty = min(cpu_of([sys.executable, "-c", ""], folder)[0] for _ in range(given.times))
        print(f"python -c ''               {empty:6.2f} s CPU")
        plait = [sys.executable, "-m", "plait", "dossier", log, "--json", "-o"]
        for title, more in (("dossier", []), ("dossier --no-run", ["--no-run"])):
            found = [
                cpu_of([*plait, f"evidence-{len(more)}", *more], folder) for _ in range(given.times)
            ]
            files = json.loads(found[0][1])["files"]
            sizes = ", ".join(f"{file} {size / 1e6:.2f} MB" for file, size in files.items())
            total = sum(files.values()) / 1e6
            used = min(seconds for seconds, _ in found)
            print(f"{title:<26} {used:6.2f} s CPU, {total:.2f} MB ({sizes})")


if __name__ == "__main__":
    main()
