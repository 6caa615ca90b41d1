"""Simulated power loss: at every step of what a store does, in many ways, and what is found
afterwards.

`CRASHES` says how many images are checked in all; a failure names the seed, the step and the fate
that reproduce it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import count
from math import ceil
from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.faults.power import (
    FATES,
    SECTOR,
    Asked,
    Corrupt,
    Cut,
    Disk,
    Due,
    Finding,
    FolderSynced,
    Found,
    Lost,
    Named,
    Removed,
    Step,
    Synced,
    Trace,
    Written,
    attempt,
    crash_often,
    image_after,
    lay_out,
    sectors,
)
from tests.support import dose, report, run_module, seed

SEED = seed()
# Short ones first: they have only so many different images, and those that follow make up for it.
BOTH = (
    "killed",
    "migration",
    "going_on",
    "two_connections",
    "threads",
    "blobs",
    "sessions",
    "appends",
)
SCENES = {"full": BOTH, "async": ("by_time", "durabilities", *BOTH)}
PLAYS = [f"{scene}:{mode}" for mode, scenes in SCENES.items() for scene in scenes]
SHARE = ceil(dose("CRASHES", short=108, long=3_000) / len(PLAYS))


@pytest.fixture(scope="module")
def fast() -> Iterator[Path]:
    """A folder in memory if there is one: each image is opened, written to and closed, and a disk
    would have to sync all that.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def traces(fast: Path) -> dict[str, Trace]:
    """Every scene, played once."""
    names = [*PLAYS, "appends:normal", "appends:off"]
    done = run_module(
        "tests.faults.power_scenes",
        str(fast / "traces"),
        str(SEED),
        *names,
        timeout=90,
        TMPDIR=str(fast),
    )
    assert done.returncode == 0, f"SEED={SEED}: {done.stderr}"
    played = msgspec.msgpack.decode((fast / "traces").read_bytes(), type=list[Trace])
    return dict(zip(names, played, strict=True))


@pytest.mark.parametrize("mode", SCENES)
def test_a_power_loss_loses_nothing_that_was_promised(
    mode: str, traces: dict[str, Trace], fast: Path, tmp_path: Path
) -> None:
    """In `full`, all that was acknowledged; in `async`, all up to the last boundary.

    What is there is how it began, in both.
    """
    images = steps = 0
    for place, scene in enumerate(SCENES[mode], 1):
        trace = traces[f"{scene}:{mode}"]
        steps += len(trace.steps) - trace.first
        for finding in crash_often(trace, SHARE * place - images, SEED, fast):
            images += 1
            if finding.wrong is not None:
                lay_out(finding.image, tmp_path / "image")
                raise AssertionError(
                    f"SEED={SEED}: {scene}, {explain(finding)}; see {tmp_path / 'image'}"
                ) from finding.wrong
    assert images == SHARE * len(SCENES[mode]), f"only {images} images differ"
    report(
        f"power loss, {mode}",
        f"{images:,} images of {len(SCENES[mode])} scenes in {steps:,} steps, 0 lost, 0 corrupt",
        SEED,
    )


def explain(finding: Finding) -> str:
    return (
        f"a crash after step {finding.step} with fate {finding.fate!r}:"
        f" {type(finding.wrong).__name__}: {finding.wrong}"
    )


# ── the harness ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("mode", "wanted"), [("normal", Lost), ("off", Corrupt)])
def test_a_store_that_syncs_less_is_found_out(
    mode: str, wanted: type, traces: dict[str, Trace], fast: Path
) -> None:
    """SQLite's own lesser modes: NORMAL loses what was acknowledged and corrupts nothing, OFF
    corrupts.
    """
    found = Counter[type]()
    for offset in range(20):
        found.update(
            type(finding.wrong)
            for finding in crash_often(
                traces[f"appends:{mode}"], min(SHARE, 100), SEED + offset, fast
            )
        )
        if found[wanted]:
            break
    assert found[wanted], f"SEED={SEED}: {mode} got away with it: {found}"
    assert mode == "off" or not found[Corrupt]
    counts = (
        f"{found.total()} images, {found[Lost]} lost, {found[Corrupt]} corrupt, as it should be"
    )
    report(f"power loss, synchronous={mode}", counts, SEED)


def test_the_scenes_do_what_they_are_for(traces: dict[str, Trace]) -> None:
    """The store went through the file system that takes notes; the log was begun anew, copied,
    removed; commits were shared.
    """
    for name in PLAYS:
        steps = traces[name].steps
        names = {step.file: step.name for step in steps if isinstance(step, Named | Found)}
        written = Counter(names[step.file] for step in steps if isinstance(step, Written))
        assert written["store.db"] > 3 and written["store.db-wal"] > 20, name
        assert Removed("store.db-wal") in steps and any(isinstance(step, Cut) for step in steps), (
            name
        )
    steps = traces["appends:full"].steps
    assert any(isinstance(step, Asked) and len(step.ids) > 1 for step in steps)
    begun = Counter(
        step.file
        for step in steps
        if isinstance(step, Written) and step.offset == 0 and len(step.data) == 32
    )
    assert max(begun.values()) > 1, "the write-ahead log was begun once only"
    assert syncs(traces["threads:full"].steps) < syncs(steps) - 4, "no commit was shared"


def syncs(steps: list[Step]) -> int:
    return sum(isinstance(step, Synced) for step in steps)


def test_bytes_are_durable_once_their_file_was_synced() -> None:
    disk = disk_after(
        Named("a", 1), FolderSynced(), Written(1, 0, b"old"), Synced(1), Written(1, 0, b"new")
    )
    assert outcomes(disk) == {b"old", b"new"}
    disk.take(Synced(1))
    assert outcomes(disk) == {b"new"}
    disk.take(Cut(1, 1))
    assert outcomes(disk) == {b"new", b"n"}


def test_a_name_is_durable_once_its_folder_was_synced() -> None:
    disk = disk_after(Named("a", 1), Written(1, 0, b"synced"), Synced(1))
    assert outcomes(disk) == {None, b"synced"}
    disk.take(FolderSynced())
    assert outcomes(disk) == {b"synced"}
    for step in (Removed("a"), Named("a", 2), Written(2, 0, b"again"), Synced(2)):
        disk.take(step)
    assert outcomes(disk) == {b"synced", None, b"again"}


def test_a_sector_is_as_it_was_at_one_moment() -> None:
    versions = [bytes([version]) * 4 * SECTOR for version in range(4)]
    disk = disk_after(
        Named("a", 1),
        FolderSynced(),
        Written(1, 0, versions[0]),
        Synced(1),
        *[Written(1, 0, new) for new in versions[1:]],
    )
    seen = set[tuple[int, ...]]()
    for chance in map(Random, range(200)):
        image = image_after(disk, chance, "each sector")["a"]
        pieces = [image[start : start + SECTOR] for start in range(0, len(image), SECTOR)]
        assert all(len(set(piece)) == 1 for piece in pieces)
        seen.add(tuple(piece[0] for piece in pieces))
    assert {0, 1, 2, 3} == {version for pieces in seen for version in pieces} and len(seen) > 50


def test_a_torn_write_in_the_middle_of_a_sector_leaves_its_neighbours() -> None:
    disk = disk_after(
        Named("a", 1),
        FolderSynced(),
        Written(1, 0, b"." * 700),
        Synced(1),
        Written(1, 700, b"!" * 700),
    )
    assert list(sectors(Written(1, 700, b"!" * 700))) == [1, 2]
    for image in outcomes(disk):
        assert image is not None and image.startswith(b"." * 700)


def disk_after(*steps: Step) -> Disk:
    disk = Disk()
    for step in steps:
        disk.take(step)
    return disk


def outcomes(disk: Disk) -> set[bytes | None]:
    """Return the contents that the file may have after a crash; None: it is not there.

    (Grown with nothing or junk in it, it is neither old nor new.)
    """
    return {
        disk.image(FATES[fate](Random(number), disk.pending)).get("a")
        for fate in FATES
        for number in range(40)
    }


def test_the_check_notices(traces: dict[str, Trace], fast: Path) -> None:
    """Too few events, others, an append by half, a blob and a snapshot that are gone, a file that
    was damaged.
    """
    trace = traces["blobs:full"]
    disk, due = disk_after(*trace.steps), Due(trace)
    for step in trace.steps:
        due.take(step)
    image, folders = (
        disk.image([True] * len(disk.pending)),
        (fast / f"{number}" for number in count()),
    )
    assert attempt(image, due, next(folders)) is None
    for change in (
        {"promised": due.promised + 1},
        {"history": [*due.history[:-1], "0" * 64]},
        {"ends": due.ends - {due.promised}},
        {"blobs": {*due.blobs, "0" * 64}},
        {"kept": due.kept | {next(iter(due.kept)): b"something else"}},
    ):
        other = Due(trace)
        vars(other).update(vars(due) | change)
        assert isinstance(attempt(image, other, next(folders)), Lost), change
    data = image["store.db"]
    damaged = data[:-2000] + bytes(1000) + data[-1000:]
    assert isinstance(attempt({"store.db": damaged}, due, next(folders)), Corrupt)
