"""Simulated power loss: what a disk may hold when the current goes, and what a store has to make of
it.

A program runs once, over a file system that writes down everything it is asked to do
(`power_scenes.py`). From that trace any number of crashes can be computed without running the
program again: `Disk` knows at each step what is durable and what is only pending, and a `Fate`
decides which of the pending steps made it. The rules are those of POSIX, and harsher than most file
systems:

- bytes, and a file's length, are durable once that file was synced;
- a file's name, and the removal of one, are durable once the folder was synced: syncing the file
  alone does not do;
- of what is pending anything may survive, in any order, in sectors of 512 bytes. A sector is old or
  new, never a mixture, and where a file has grown its lost sectors may be absent, zero, or junk.

A sector does not lose bytes that were durable because its neighbours are written (SQLite calls it
powersafe overwrite).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeAlias

import msgspec

from plait.errors import PlaitError
from plait.ids import Digest, LogId, derive_id
from plait.session import GraphRows, SessionRows, verify
from plait.store import SqliteStore
from plait.testing import Seeded
from plait.testing.writing import extend, message, seal_events
from tests.support import RawSql

SECTOR = 512


# ── the trace ────────────────────────────────────────────────────────────────────────────────


class _Step(msgspec.Struct, frozen=True, tag=True):
    pass


class Found(_Step, frozen=True):
    """A file that was there before the program began."""

    name: str
    file: int
    data: bytes


class Named(_Step, frozen=True):
    """A file was made: its number is its identity, for its name may be given again."""

    name: str
    file: int


class Removed(_Step, frozen=True):
    name: str


class Written(_Step, frozen=True):
    file: int
    offset: int
    data: bytes


class Cut(_Step, frozen=True):
    file: int
    size: int


class Synced(_Step, frozen=True):
    file: int


class FolderSynced(_Step, frozen=True):
    pass


class Asked(_Step, frozen=True):
    """The store was asked to append these events, all or none."""

    number: int
    ids: list[str]


class Acknowledged(_Step, frozen=True):
    """The append with this number has returned. `durable`: with the promise that it is on disk."""

    number: int
    durable: bool


class Boundary(_Step, frozen=True):
    """The store promised that everything before is on disk."""


class Put(_Step, frozen=True):
    """A blob that no event points to is on disk."""

    blob: str


class Sweeping(_Step, frozen=True):
    """From here on such blobs may be gone."""


class Keeping(_Step, frozen=True):
    """From here on what was kept for that place may be replaced or gone. No log: for any place."""

    log: str | None
    seq: int


class Kept(_Step, frozen=True):
    log: str
    seq: int
    data: bytes


Pending: TypeAlias = Named | Removed | Written | Cut
Step: TypeAlias = (
    Pending
    | Found
    | Synced
    | FolderSynced
    | Asked
    | Acknowledged
    | Boundary
    | Put
    | Sweeping
    | Keeping
    | Kept
)


class Trace(msgspec.Struct, frozen=True):
    """The steps of a program, and the ids of all its events in the order of their
    commits.
    """

    steps: list[Step]
    history: list[str]
    first: int = 0  # how many of the steps stand for what was there before
    # how many acknowledged appends may be lost where none is promised to be on disk: boundaries
    # come by count
    ahead: int = 0


# ── the disk ─────────────────────────────────────────────────────────────────────────────────

Fate: TypeAlias = bool | frozenset[int]
"""What became of a pending step: all of it survived, nothing, or (of a write) these sectors."""

Image: TypeAlias = dict[str, bytes]
"""The files of the store's folder, by name."""


class Disk:
    """The durable and the pending bytes after some steps of a trace."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.files: dict[int, bytearray] = {}
        self.pending: list[Pending] = []

    def take(self, step: Step) -> None:
        if isinstance(step, Found):
            self.names[step.name], self.files[step.file] = step.file, bytearray(step.data)
        elif isinstance(step, Named | Removed | Written | Cut):
            self.pending.append(step)
        elif isinstance(step, Synced):
            self._settle(
                [
                    each
                    for each in self.pending
                    if isinstance(each, Written | Cut) and each.file == step.file
                ]
            )
        elif isinstance(step, FolderSynced):
            self._settle([each for each in self.pending if isinstance(each, Named | Removed)])

    def _settle(self, steps: Sequence[Pending]) -> None:
        for step in steps:
            _apply(step, True, self.names, self.files)
        settled = set(map(id, steps))
        self.pending = [step for step in self.pending if id(step) not in settled]

    def names_now(self) -> dict[str, int]:
        """The folder as programs see it."""
        names = dict(self.names)
        for step in self.pending:
            if isinstance(step, Named | Removed):
                _apply(step, True, names, {})
        return names

    def image(self, fates: Sequence[Fate], blank: Callable[[int], bytes] | None = None) -> Image:
        """The folder after a crash.

        With `blank`, files have grown to their new length even where their bytes are lost.
        """
        names, files = (
            dict(self.names),
            {file: bytearray(data) for file, data in self.files.items()},
        )
        for step in self.pending if blank else ():
            if isinstance(step, Written):
                data = files.setdefault(step.file, bytearray())
                data += blank(max(0, step.offset + len(step.data) - len(data))) if blank else b""
        for step, fate in zip(self.pending, fates, strict=True):
            _apply(step, fate, names, files)
        return {name: bytes(files.get(file, b"")) for name, file in names.items()}


def _apply(step: Pending, fate: Fate, names: dict[str, int], files: dict[int, bytearray]) -> None:
    if fate is False:
        return
    if isinstance(step, Named):
        names[step.name] = step.file
    elif isinstance(step, Removed):
        names.pop(step.name, None)
    elif isinstance(step, Cut):
        data = files.setdefault(step.file, bytearray())
        del data[step.size :]
        data += bytes(step.size - len(data))
    else:
        data = files.setdefault(step.file, bytearray())
        for first, last in _stretches(step, fate):
            data += bytes(max(0, first - len(data)))
            data[first:last] = step.data[first - step.offset : last - step.offset]


def _stretches(step: Written, fate: Fate) -> Iterator[tuple[int, int]]:
    """From where to where the write reached the disk."""
    first, last = step.offset, step.offset + len(step.data)
    if not isinstance(fate, frozenset):
        yield first, last
        return
    for sector in sorted(fate):
        yield max(first, sector * SECTOR), min(last, (sector + 1) * SECTOR)


def sectors(step: Written) -> range:
    return range(step.offset // SECTOR, (step.offset + len(step.data) - 1) // SECTOR + 1)


# ── fates ────────────────────────────────────────────────────────────────────────────────────


def _nothing(chance: Random, pending: Sequence[Pending]) -> list[Fate]:
    return [False] * len(pending)


def _everything(chance: Random, pending: Sequence[Pending]) -> list[Fate]:
    return [True] * len(pending)


def _up_to_a_step(chance: Random, pending: Sequence[Pending]) -> list[Fate]:
    """In the order in which it was asked for, up to some moment."""
    survived = chance.randint(0, len(pending))
    return [place < survived for place in range(len(pending))]


def _up_to_a_torn_write(chance: Random, pending: Sequence[Pending]) -> list[Fate]:
    fates = _up_to_a_step(chance, pending)
    torn = fates.index(False) if False in fates else len(fates) - 1
    step = pending[torn] if pending else None
    if isinstance(step, Written):
        there = sectors(step)
        fates[torn] = frozenset(there[: chance.randint(0, len(there))])
    return fates


def _each_write(chance: Random, pending: Sequence[Pending]) -> list[Fate]:
    """Every write whole or lost, for itself."""
    named = iter(_each_name(chance, pending))
    return [
        chance.random() < 0.5 if isinstance(step, Written | Cut) else next(named)
        for step in pending
    ]


def _each_sector(chance: Random, pending: Sequence[Pending]) -> list[Fate]:
    """Every sector as it was at one moment since the last sync, each at its own."""
    times = Counter(
        (step.file, sector)
        for step in pending
        if isinstance(step, Written)
        for sector in sectors(step)
    )
    likely = chance.choice([0.1, 0.5, 0.9])  # that a sector has changed at all
    left = {
        key: chance.randint(1, count) if chance.random() < likely else 0
        for key, count in times.items()
    }
    named = iter(_each_name(chance, pending))
    fates: list[Fate] = []
    for step in pending:
        if isinstance(step, Written):
            there = [sector for sector in sectors(step) if left[step.file, sector] > 0]
            for sector in there:
                left[step.file, sector] -= 1
            fates.append(frozenset(there))
        else:
            fates.append(chance.random() < likely if isinstance(step, Cut) else next(named))
    return fates


def _each_name(chance: Random, pending: Sequence[Pending]) -> list[bool]:
    """For the steps of the folder: every name as it was at some moment."""
    steps = [step for step in pending if isinstance(step, Named | Removed)]
    left = {
        name: chance.randint(0, count)
        for name, count in Counter(step.name for step in steps).items()
    }
    fates: list[bool] = []
    for step in steps:
        fates.append(left[step.name] > 0)
        left[step.name] -= 1
    return fates


def _one_file(chance: Random, pending: Sequence[Pending]) -> list[Fate]:
    """One file as it was last written, the others as they were last synced: the database without
    its log, and the reverse.
    """
    files = [step.file for step in pending if isinstance(step, Written | Cut)]
    lucky = chance.choice(files) if files else None
    named = iter(_each_name(chance, pending))
    return [
        step.file == lucky if isinstance(step, Written | Cut) else next(named) for step in pending
    ]


FATES: dict[str, Callable[[Random, Sequence[Pending]], list[Fate]]] = {
    "nothing": _nothing,
    "everything": _everything,
    "up to a step": _up_to_a_step,
    "up to a torn write": _up_to_a_torn_write,
    "each write": _each_write,
    "each sector": _each_sector,
    "one file": _one_file,
}


def image_after(disk: Disk, chance: Random, fate: str) -> Image:
    """Return the files as they are found after a crash now."""
    blank = chance.choice([None, None, bytes, chance.randbytes])
    return disk.image(FATES[fate](chance, disk.pending), blank)


# ── what is due ──────────────────────────────────────────────────────────────────────────────


class Due:
    """The promises of the store after some steps of a trace."""

    def __init__(self, trace: Trace) -> None:
        self.history = trace.history
        self._ahead = trace.ahead
        self._places = {id: place for place, id in enumerate(trace.history, 1)}
        self._asked: dict[int, int] = {}
        self._acknowledged = [0]
        self.promised = 0  # events, from the first on
        self.ends = {0}  # where an append ends
        self.blobs: set[str] = set()
        self.kept: dict[tuple[str, int], bytes] = {}

    def take(self, step: Step) -> None:
        if isinstance(step, Asked):
            end = self._places[step.ids[-1]]
            assert self.history[end - len(step.ids) : end] == step.ids, (
                "the events of one append stand together"
            )
            self._asked[step.number] = end
            self.ends.add(end)
        elif isinstance(step, Acknowledged):
            end = self._asked[step.number]
            self._acknowledged += [end] if end not in self._acknowledged else []
            self.promised = max(
                [self.promised, *([end] if step.durable else self._acknowledged[: -self._ahead])]
            )
        elif isinstance(step, Boundary):
            self.promised = max(self._acknowledged)
        elif isinstance(step, Put):
            self.blobs.add(step.blob)
        elif isinstance(step, Sweeping):
            self.blobs.clear()
        elif isinstance(step, Keeping):
            self.kept = {
                place: data
                for place, data in self.kept.items()
                if step.log is not None and place != (step.log, step.seq)
            }
        elif isinstance(step, Kept):
            self.kept[step.log, step.seq] = step.data


class Lost(AssertionError):
    """Something the store had promised is not there, or something it never promised is there by
    half.
    """


class Corrupt(AssertionError):
    """The store cannot be opened, or contradicts itself."""


def check(folder: Path, due: Due) -> int:
    """Open what is left as anybody would, and compare. Returns how many events there are."""
    try:
        return _check(folder, due)
    except PlaitError as error:
        raise Corrupt(f"{type(error).__name__}: {error}") from error


def _check(folder: Path, due: Due) -> int:
    store = SqliteStore(folder, source=Seeded(), projections=(SessionRows(), GraphRows()))
    try:
        if faults := [str(fault) for fault in verify(store, state=True)]:
            raise Corrupt(f"verify says {faults}")
        there = [event.id for _, event in store.feed()]
        _compare(there, due)
        _compare_the_rest(store, due)
        _go_on(store)
        if (found := _whole(store)) != [("ok",)]:
            raise Corrupt(f"SQLite says {found}")
    finally:
        store.close()
    return len(there)


def _compare(there: Sequence[str], due: Due) -> None:
    if len(there) < due.promised:
        raise Lost(f"{due.promised} events were promised, {len(there)} are there")
    if list(there) != due.history[: len(there)]:
        raise Lost("what is there is not how it began")
    if len(there) not in due.ends:
        raise Lost(
            f"an append is there by half: {len(there)} events, and appends end at"
            f" {sorted(due.ends)}"
        )


def _compare_the_rest(store: SqliteStore, due: Due) -> None:
    for blob in due.blobs:
        try:
            store.get_blob(Digest(blob))
        except PlaitError as error:
            raise Lost(str(error)) from error
    for (log, seq), data in due.kept.items():
        if (seq, data) not in store.snapshots(LogId(log)):
            raise Lost(f"what was kept for {log}@{seq} is not there")


def _go_on(store: SqliteStore) -> None:
    for _, log in store.logs(limit=1):
        extend(store, log.id, message("after"))
    anew = derive_id("a log that no scene has begun")
    store.begin(anew, seal_events([message("anew"), message("x" * 5000)], anew))


def _whole(store: SqliteStore) -> list[object]:
    raw = RawSql(Path(store.path))
    try:
        return raw("PRAGMA integrity_check")
    finally:
        raw.close()


# ── many crashes ─────────────────────────────────────────────────────────────────────────────


class Finding(NamedTuple):
    """One image, and what was wrong with it."""

    step: int
    fate: str
    wrong: AssertionError | None
    image: Image


def crash_often(trace: Trace, images: int, seed: int, folder: Path) -> Iterator[Finding]:
    """Check so many different images, spread over all the steps of a trace, or as many different
    ones as there are.
    """
    seen, chance, rounds = set[int](), Random(seed), 0
    while len(seen) < images and rounds < 60:
        rounds += 1
        yield from _one_round(trace, images - len(seen), chance, seen, folder)


def _one_round(
    trace: Trace, images: int, chance: Random, seen: set[int], folder: Path
) -> Iterator[Finding]:
    """One image for each step, or for some steps drawn by lot if so many are not wanted."""
    every = range(trace.first + 1, len(trace.steps) + 1)
    chosen = set(every if images >= len(every) else chance.sample(every, images))
    disk, due = Disk(), Due(trace)
    for number, step in enumerate(trace.steps, 1):
        disk.take(step)
        due.take(step)
        if number not in chosen:
            continue
        fate = chance.choice(list(FATES)) if disk.pending else "nothing"
        image = image_after(disk, chance, fate)
        key = hash(
            (
                tuple(sorted(image.items())),
                due.promised,
                len(due.ends),
                len(due.blobs),
                len(due.kept),
            )
        )
        if key not in seen:
            seen.add(key)
            yield Finding(number, fate, attempt(image, due, folder / f"{len(seen)}"), image)


def attempt(image: Image, due: Due, folder: Path) -> AssertionError | None:
    """Lay the image out and check it; returns what is wrong with it."""
    lay_out(image, folder)
    try:
        check(folder, due)
    except AssertionError as wrong:
        return wrong
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    return None


def lay_out(image: Image, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, data in image.items():
        (folder / name).write_bytes(data)
