"""Files, measured: what snapshots, rewinds and forks of a workspace cost beside `git add -A` in the
same run.

One part per size. The files are small and lie 50 to a folder. Changes are made through `Files`; a
snapshot is timed with the writing of its blobs. Wall time is what a person waits for and is the
figure shown; CPU of the thread goes to the JSON, because it does not suffer from who else uses the
machine.

    python benchmarks/workspace.py [--quick] [--only NAME] [--date YYYY-MM-DD]
"""

from __future__ import annotations

import random
import statistics
import subprocess
from itertools import count

from log import RESULTS, Bench, ms, serve
from measure import Row, Timing, interleave
from plait.ids import Digest
from plait.runtime.live import Live
from plait.store import SqliteStore
from plait.workspace.bases import base_of
from plait.workspace.copies import Copy, open_copy
from plait.workspace.copy_state import cache_folder
from plait.workspace.diff import changes
from plait.workspace.folder_snapshot import snapshot_folder

CHANGED = 10
_ROUNDS = 15


class Ground:
    """A folder with many small files, a store, and a repository of git beside it."""

    def __init__(self, bench: Bench, files: int) -> None:
        self.place = bench.folder / str(files)
        self.folder = self.place / "folder"
        self.paths = [
            f"p{number // 1000}/q{number // 50 % 20}/f{number}.py" for number in range(files)
        ]
        self.rounds = bench.some(_ROUNDS)
        self._draw = random.Random(files)
        self._fill()
        self.store = SqliteStore(self.place / "store", source=Live())
        self.cache = cache_folder(self.store.address)
        self._numbers = count()

    def _fill(self) -> None:
        words = [f"word{number}" for number in range(500)]
        for path in self.paths:
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"# {path}\n" + " ".join(self._draw.choices(words, k=120)))

    def changes(self) -> list[tuple[str, bytes]]:
        number = next(self._numbers)
        return [(path, b"changed %d" % number) for path in self._draw.sample(self.paths, CHANGED)]

    def git(self, *arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "core.fsync=none", "-C", str(self.folder), *arguments],
            check=True,
            capture_output=True,
        )

    def recorded(self, copy: Copy) -> Digest:
        snapshot = copy.snapshot()
        self.store.put_blobs(snapshot.blobs)
        return snapshot.tree


def small(bench: Bench) -> list[Row]:
    return _size(Ground(bench, bench.some(5_000)), 60)


def large(bench: Bench) -> list[Row]:
    return _size(Ground(bench, bench.some(50_000)), 600)


def _size(ground: Ground, scan_ms: int) -> list[Row]:
    files = f"{len(ground.paths):,} files"
    tree, rows = _first(ground, files)
    base, plain = Timing(), Timing()
    base.run(lambda: base_of(ground.store, ground.cache, tree))
    layered = open_copy(ground.store, ground.cache, "layered", tree, layered=True)
    plain.run(lambda: open_copy(ground.store, ground.cache, "plain", tree, layered=False).close())
    scanned = open_copy(ground.store, ground.cache, "plain", tree, layered=False)
    rows.append(_row(f"checkout of a base, {files}", base))
    rows.append(_row(f"plain copy made, {files}", plain))
    return rows + _changes(ground, files, layered, scanned, tree, scan_ms)


def _first(ground: Ground, files: str) -> tuple[Digest, list[Row]]:
    """The first snapshot, and the second, each with git's own after it."""
    ours, git, ours_again, git_again = Timing(), Timing(), Timing(), Timing()
    found: list[Digest] = []
    ours.run(lambda: found.append(snapshot_folder(ground.store, ground.folder).tree))
    ground.git("init", "-q")
    git.run(lambda: ground.git("add", "-A"))
    for _ in range(3):
        ours_again.run(lambda: snapshot_folder(ground.store, ground.folder))
        git_again.run(lambda: ground.git("add", "-A"))
    return found[0], [
        _row(f"first snapshot, {files}", ours, git),
        _row(f"second snapshot of the same folder, {files}", ours_again, git_again),
    ]


def _changes(
    ground: Ground, files: str, layered: Copy, scanned: Copy, tree: Digest, scan_ms: int
) -> list[Row]:
    """Ten files change: found, undone, and taken over by a fork."""
    names, other = count(), _changed_once(ground, tree)

    def prepare() -> None:
        changed = ground.changes()
        for copy in (layered, scanned):
            ground.recorded(copy)  # whatever the round before left
            copy.begin()
            for path, content in changed:
                copy.files.write(path, content)
        for path, content in changed:
            (ground.folder / path).write_bytes(content)

    def fork() -> None:
        forks.append(
            open_copy(
                ground.store, ground.cache, f"fork{next(names)}", other, layered=True, base=tree
            )
        )

    forks: list[Copy] = []
    took = interleave(
        {
            "layered": lambda: ground.recorded(layered),
            "scan": lambda: ground.recorded(scanned),
            "git": lambda: ground.git("add", "-A"),
        },
        ground.rounds,
        prepare,
    )

    def change() -> None:
        for copy in (layered, scanned):
            copy.switch(tree)
            copy.begin()
            for path, content in ground.changes():
                copy.files.write(path, content)
            ground.recorded(copy)

    back = interleave(
        {
            "layered": lambda: layered.switch(tree),
            "scan": lambda: scanned.switch(tree),
            "fork": fork,
            "diff": lambda: changes(ground.store, tree, other),
        },
        ground.rounds,
        change,
    )
    for copy in (*forks, layered, scanned):
        copy.close()
    return [
        _row(
            f"snapshot after {CHANGED} changed, overlay, {files}",
            took["layered"],
            took["git"],
            "≤ 15 ms",
        ),
        _row(
            f"snapshot after {CHANGED} changed, scan, {files}",
            took["scan"],
            took["git"],
            f"≤ {scan_ms} ms",
        ),
        _row(f"rewind of {CHANGED} files, overlay, {files}", back["layered"], target="≤ 30 ms"),
        _row(f"rewind of {CHANGED} files, plain, {files}", back["scan"], target="≤ 30 ms"),
        _row(f"fork with {CHANGED} changed files, {files}", back["fork"], target="≤ 40 ms"),
        _row(f"diff of two trees, {files}", back["diff"], target="≤ 10 ms"),
    ]


def _changed_once(ground: Ground, tree: Digest) -> Digest:
    """The tree with ten files changed."""
    other = open_copy(ground.store, ground.cache, "other", tree, layered=True)
    other.begin()
    for path, content in ground.changes():
        other.files.write(path, content)
    changed = ground.recorded(other)
    other.close()
    return changed


def _row(what: str, ours: Timing, git: Timing | None = None, target: str = "-") -> Row:
    mine = statistics.median(ours.wall)
    theirs = statistics.median(git.wall) if git else None
    facts: dict[str, object] = {
        "median_s": mine,
        "min_s": min(ours.wall),
        "cpu_s": statistics.median(ours.cpu),
        "git_s": theirs,
        "rounds": len(ours.wall),
    }
    shown = f"{ms(mine)} (min {ms(min(ours.wall))}, cpu {ms(statistics.median(ours.cpu))})"
    return Row(
        what,
        shown,
        f"git {ms(theirs)}" if theirs else "-",
        f"{mine / theirs:.2f}x" if theirs else "-",
        target,
        facts,
    )


PARTS = (small, large)


if __name__ == "__main__":
    serve(__doc__ or "", PARTS, RESULTS / "workspace.json")
