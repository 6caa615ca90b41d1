"""Sandboxes, measured: what a command costs on each rung over a bare subprocess of the same round.

Each round runs every contestant once, in an order drawn anew. The overheads are differences of
medians. The command does nothing, so that all there is to see is the start, the limits, the end of
every process, and the output's file.

    python benchmarks/sandbox.py [--quick] [--date YYYY-MM-DD]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from measure import Row, Timing, interleave, machine, percentile, print_table, write_json
from plait.runtime.live import Live
from plait.sandbox import Wanted
from plait.sandbox.local import LocalBackend, LocalSandbox
from plait.sandbox.rungs import RUNGS, find, version
from plait.store import SqliteStore
from plait.workspace.folder_snapshot import snapshot_folder

RESULTS = Path(__file__).parent / "results"
TARGETS = {"overlay": "≤ 15 ms", "bubblewrap": "≤ 6 ms"}
COMMAND = ["/bin/true"]
BARE_BWRAP = (
    "bwrap --unshare-user --disable-userns --unshare-all --cap-drop ALL --die-with-parent"
    " --new-session --clearenv --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib"
    " --symlink usr/lib64 /lib64 --proc /proc --dev /dev"
).split()


def bare() -> None:
    subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, env={}, check=True)


def bare_bwrap() -> None:
    """The least that bubblewrap itself takes for the same namespaces, without mounts, limits or a
    filter of ours.
    """
    subprocess.run(
        [*BARE_BWRAP, *COMMAND],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin"},
        check=True,
    )


def boxes(folder: Path) -> dict[str, LocalSandbox]:
    (folder / "repo").mkdir()
    for number in range(100):
        (folder / f"repo/file-{number}.txt").write_text("text\n" * number)
    store = SqliteStore(folder / "repo/.plait", source=Live())
    tree = snapshot_folder(store, folder / "repo").tree
    offered = [rung for rung in RUNGS if find(rung, str(folder)).offered]
    return {
        rung: (
            LocalBackend().create(
                Wanted(store, rung, tree, isolation=rung, folder=str(folder / "repo"))
            )
        )
        for rung in offered
    }


def overhead(folder: Path, rounds: int) -> list[Row]:
    made = boxes(folder)
    contestants: dict[str, Callable[[], object]] = {"bare subprocess": bare}
    if version():
        contestants["bwrap itself"] = bare_bwrap
    contestants |= {rung: lambda box=box: box.exec(COMMAND) for rung, box in made.items()}
    timings = interleave(contestants, rounds)
    base = percentile(timings["bare subprocess"].wall, 50)
    return [_row(name, timing, base) for name, timing in timings.items()]


def _row(name: str, timing: Timing, base: float) -> Row:
    own = percentile(timing.wall, 50)
    over = f"+{(own - base) * 1e3:.1f} ms" if own != base else "-"
    return Row(
        f"exec: {name}",
        f"{own * 1e3:.1f} ms",
        f"{base * 1e3:.1f} ms",
        over,
        TARGETS.get(name, "-"),
        dict(timing.facts()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--date", default="")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=Path(__file__).parent))
    try:
        facts, rows = machine(folder, asked.date), overhead(folder, 40 if asked.quick else 300)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_table(rows)
    write_json(RESULTS / "sandbox.json", facts, rows)


if __name__ == "__main__":
    main()
