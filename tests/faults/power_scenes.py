"""Scenes that a power loss interrupts, over a file system that writes down what it is asked
to do.

They run in a process of their own, `python power_scenes.py OUTPUT SEED SCENE:MODE …`, because the
file system becomes SQLite's default there: the store opens its file as it always does. Writes are
passed on, so that the program sees them; syncs are only written down, which is what makes this
fast.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeAlias

import apsw
import msgspec

from plait import Session
from plait.event import Event
from plait.event.kinds import SessionOpened
from plait.ids import Digest, LogId
from plait.journal.writer import DirectWriter, bind_direct_writer
from plait.session import GraphRows, SessionRows, file
from plait.store import Fence, HeadsQuestion, LogAppend, ReadMark, SqliteStore, TipsMark
from plait.store.blobs import digest_of
from plait.store.sqlite import connections, database
from plait.testing import Seeded
from plait.testing.writing import begin, extend, fork, message, run_threads, seal_events
from tests.faults.folders import old_store
from tests.faults.power import (
    Acknowledged,
    Asked,
    Boundary,
    Cut,
    Disk,
    FolderSynced,
    Found,
    Keeping,
    Kept,
    Named,
    Put,
    Removed,
    Step,
    Sweeping,
    Synced,
    Trace,
    Written,
    image_after,
    lay_out,
)
from tests.support import RawSql, unsynced_count, wait_until

UNSYNCED_MAX = 6  # small, so that it is met often

# ── the file system ──────────────────────────────────────────────────────────────────────────


Send: TypeAlias = Callable[[SqliteStore], Digest]
"""An append or a beginning, to be made once more."""


class Recording:
    """The trace of one folder, while it is made."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.names: dict[str, int] = {}
        self.first = 0  # how many steps stand for what was there before
        self.ahead = UNSYNCED_MAX
        self.numbers = count(1)  # of appends
        self.sent: dict[int, Send] = {}
        # how long the disk takes; threads only meet in one commit if it takes any time
        self.sync_s = 0.0

    def found(self, folder: Path) -> None:
        """Begin with the files in a folder, and the events in them."""
        for path in folder.iterdir():
            number = self.names[path.name] = len(self.steps)
            self.steps.append(Found(path.name, number, path.read_bytes()))
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(folder, copy, dirs_exist_ok=True)
            store = SqliteStore(copy, source=source)
            ids = [str(event.id) for _, event in store.feed()]
            store.close()
        self.steps += [Asked(0, ids), Acknowledged(0, durable=True)] if ids else []
        self.first = len(self.steps)

    def opened(self, path: str) -> int:
        name = os.path.basename(path)
        if name not in self.names:
            number = self.names[name] = len(self.steps)
            self.steps.append(Named(name, number))
        return self.names[name]

    def removed(self, path: str) -> None:
        name = os.path.basename(path)
        self.names.pop(name, None)
        self.steps.append(Removed(name))


recordings: dict[str, Recording] = {}
"""By the folder they are about."""


class RecordedFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], recording: Recording, number: int) -> None:
        super().__init__("unix", name, flags)
        self._recording = recording
        self._number = number
        # As SQLite does on Unix: the first sync of a journal or log that it may have made syncs the
        # folder, too.
        journal = flags[0] & (apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL)
        self._folder_too = bool(journal and flags[0] & apsw.SQLITE_OPEN_CREATE)

    def xWrite(self, data: Any, offset: int) -> None:
        self._recording.steps.append(Written(self._number, offset, bytes(data)))
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]  apsw's stubs need types of Python 3.12

    def xTruncate(self, newsize: int) -> None:
        self._recording.steps.append(Cut(self._number, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self._recording.steps.append(Synced(self._number))
        time.sleep(self._recording.sync_s)
        if self._folder_too:
            self._recording.steps.append(FolderSynced())
            self._folder_too = False


class RecordedFiles(apsw.VFS):
    """SQLite's own file system for Unix, with a trace of what is asked of it, and chance from a
    seed.
    """

    def __init__(self, seed: int) -> None:
        super().__init__("recorded", "unix", makedefault=True)
        self._chance = Random(seed)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        # a temporary file has no name
        path = str(name.filename() if isinstance(name, apsw.URIFilename) else name)
        recording = recordings.get(os.path.dirname(path))
        if recording is None:
            return apsw.VFSFile("unix", name, flags)
        return RecordedFile(name, flags, recording, recording.opened(path))

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, False)
        recording = recordings.get(os.path.dirname(filename))
        if recording is not None:
            recording.removed(filename)
            if syncdir:
                recording.steps.append(FolderSynced())

    def xRandomness(self, numbytes: int) -> bytes:
        return self._chance.randbytes(numbytes)


# ── the store ────────────────────────────────────────────────────────────────────────────────


class Counted(Seeded):
    """A source that never gives out the same id twice."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._count = 0

    def fresh(self, *about: str | int) -> LogId:
        self._count += 1
        return super().fresh(*about, self._count)


class WitnessedStore(SqliteStore):
    """A store that puts on record what it was asked for and what it promised."""

    def __init__(self, folder: Path) -> None:
        self.recording = recordings[os.path.realpath(folder)]
        self._last = 0  # the number of its last append
        super().__init__(
            folder, source=source, projections=(SessionRows(), GraphRows()), durability=durability
        )

    def begin(
        self,
        log: LogId,
        events: Sequence[Event],
        *,
        parent: LogId | None = None,
        blobs: Mapping[Digest, bytes] | None = None,
        fences: Sequence[Fence] = (),
    ) -> Digest:
        return self._witness(
            events,
            lambda store: SqliteStore.begin(
                store, log, events, parent=parent, blobs=blobs, fences=fences
            ),
        )

    def append(
        self,
        log: LogId,
        events: Sequence[Event],
        *,
        after: Digest,
        blobs: Mapping[Digest, bytes] | None = None,
        flush: bool = False,
        fences: Sequence[Fence] = (),
        question: HeadsQuestion | None = None,
    ) -> Digest:
        def send(store: SqliteStore) -> Digest:
            return SqliteStore.append(
                store, log, events, after=after, blobs=blobs, flush=flush, fences=fences
            )

        return self._witness(events, send, flush)

    def append_all(
        self,
        parts: Sequence[LogAppend],
        *,
        blobs: Mapping[Digest, bytes] | None = None,
        fences: Sequence[Fence] = (),
        reading: ReadMark | TipsMark | None = None,
    ) -> list[Digest]:
        def send(store: SqliteStore) -> Digest:
            return SqliteStore.append_all(
                store, parts, blobs=blobs, fences=fences, reading=reading
            )[-1]

        self._witness([event for part in parts for event in part.events], send)
        return [part.events[-1].id for part in parts]

    def _witness(self, events: Sequence[Event], send: Send, flush: bool = False) -> Digest:
        recording, number = self.recording, next(self.recording.numbers)
        recording.sent[number] = send
        recording.steps.append(Asked(number, [event.id for event in events]))
        head = send(self)
        recording.steps.append(
            Acknowledged(number, durable=flush or self.log(events[0].log).durability == "full")
        )
        self._last = max(self._last, number)
        return head

    def send_again(self, number: int) -> None:
        """An append once more: nobody knows what became of it."""
        head = self.recording.sent[number](self)
        self.recording.steps.append(
            Acknowledged(number, durable=self.log(self.event(head).log).durability == "full")
        )

    def flush(self) -> None:
        super().flush()
        self.recording.steps.append(Boundary())

    def close(self) -> None:
        """Close it: its writes are on disk then, and all before them."""
        super().close()
        if self._last:
            self.recording.steps.append(Acknowledged(self._last, durable=True))

    def put_blob(self, content: bytes) -> Digest:
        blob = super().put_blob(content)
        self.recording.steps.append(Put(blob))
        return blob

    def put_blobs(self, contents: Mapping[Digest, bytes]) -> None:
        super().put_blobs(contents)
        self.recording.steps += [Put(blob) for blob in contents]

    def sweep_blobs(self, *, before: int, keep: Container[Digest] = frozenset()) -> int:
        self.recording.steps.append(Sweeping())
        return super().sweep_blobs(before=before, keep=keep)

    def keep(self, log: LogId, seq: int, data: bytes) -> None:
        self.recording.steps.append(Keeping(log, seq))
        super().keep_snapshot(log, seq, data)
        if self.log(log).durability == "full":
            self.recording.steps.append(Kept(log, seq, data))

    def forget_kept(self, log: LogId | None = None) -> int:
        self.recording.steps.append(Keeping(None, 0))
        return super().drop_snapshots(log)


source = Counted(0)
chance = Random(0)
durability: Literal["full", "async"] = "full"


# ── scenes: each leaves its store open ───────────────────────────────────────────────────────


def appends(folder: Path) -> SqliteStore:
    """A store is made; short and long events, alone and several at once, in two logs; checkpoints
    and boundaries on the way.
    """
    store = WitnessedStore(folder)
    one, two = begin(store, message("one")), begin(store)
    for i in range(12):
        extend(store, one, message(f"{i}"))
        extend(store, two, *[message(f"{i} of {place}") for place in range(1 + i % 4)])
        if i % 4 == 1:
            extend(store, one, message(f"{i} long " * 1500), message("and short"))
        if i % 5 == 3:
            store.flush()
        if i == 6:
            now = store.log(one)
            store.append(
                one,
                seal_events([message("now")], one, now.tip + 1, (now.head,)),
                after=now.head,
                flush=True,
            )
    fork(store, two, 5)
    return store


def durabilities(folder: Path) -> SqliteStore:
    """Logs of both kinds in one store.

    They stay what they are when it is opened by somebody who says nothing of the kind.
    """
    store = WitnessedStore(folder)
    lazy, strict = [begin_as(store, each) for each in ("async", "full")]
    for i in range(5):
        for _ in range(i):
            extend(store, lazy, message(f"{i} lazily"), message("x" * 700 * i))
        extend(store, strict, message(f"{i} at once"))
    extend(store, fork(store, lazy, 2), message("on a branch"))
    store.close()
    set_mode("full")
    store = WitnessedStore(folder)
    for i in range(5):
        extend(store, lazy, message(f"{i} later"))
    return store


def begin_as(store: SqliteStore, durability: Literal["full", "async"]) -> LogId:
    log = source.fresh()
    store.begin(log, seal_events([SessionOpened(durability=durability), message("first")], log))
    return log


def by_time(folder: Path) -> SqliteStore:
    """Nobody writes for a while: what was written is brought to the disk all the same."""
    store = WitnessedStore(folder)
    log = begin(store)
    for i in range(4):
        extend(store, log, *[message(f"{i}")] * (1 + i))
        wait_until(lambda: not unsynced_count(store))
        store.recording.steps.append(Boundary())
    return store


def sessions(folder: Path) -> SqliteStore:
    """A session is forked, merged and rewound; its rows are folded anew."""
    store = WitnessedStore(folder)
    bind_direct_writer(DirectWriter(source, lambda address: store, lambda: store.address))
    session = Session("Why does checkout fail?", title="cart bug", user="u-17", store=store.address)
    session = session.say("Only with coupons.", file(b"log " * 3000, name="checkout.log")).fact(
        "db", "postgres 15"
    )
    strict, lenient = session.fork("strict"), session.fork("lenient")
    strict = strict.say("I would reject the coupon.", role="assistant").decide("verdict", "reject")
    lenient = lenient.say("I would clamp the discount.", role="assistant").decide(
        "verdict", "clamp"
    )
    merged = strict.merge(lenient, resolve={"verdict": "reject"})
    store.rebuild("session")
    back = merged.rewind(3, reason="wrong track").todo("write tests", key="tests")
    back.successor("go on").say("I go on.")
    back.pause().unpause().settle("tests", "done").close()
    store.rebuild("graph")
    return store


def blobs(folder: Path) -> SqliteStore:
    """Blobs that nothing points to are put and swept; snapshots are kept, replaced
    and forgotten.
    """
    store, chance = WitnessedStore(folder), Random(1)
    log = begin(store)
    for i in range(6):
        store.put_blob(chance.randbytes(1500 * i + 10))
        extend(store, log, message(f"{i} " + chance.randbytes(1500 * i).hex()))
        store.keep(log, 1 + i // 2, chance.randbytes(700 * i + 10))
        many = [chance.randbytes(300 * i), chance.randbytes(40)]
        store.put_blobs({digest_of(each): each for each in many})
        if i == 3:
            store.sweep_blobs(before=store.number, keep={digest_of(many[1])})
    store.forget_kept(log)
    store.put_blob(b"the last one")
    store.keep(log, 3, b"the last one")
    return store


def two_connections(folder: Path) -> SqliteStore:
    """Two stores write the same file in turns; a reader holds the log open; one closes, both close,
    one comes back.
    """
    one, two = WitnessedStore(folder), WitnessedStore(folder)
    one.recording.ahead *= 2  # each counts its own
    log = begin(one)
    for i in range(6):
        extend(one, log, message(f"{i} from one"))
        extend(two, log, message(f"{i} from two"), message("and again"))
    with one._connections.reading() as reader:  # pyright: ignore[reportPrivateUsage]
        rows = reader.execute("SELECT number FROM event")
        next(rows)  # a read has begun: the write-ahead log can be copied but not begun anew
        for i in range(6):
            extend(two, log, message(f"{i} while somebody reads " + "x" * 3000))
        del rows
    one.close()
    extend(two, log, message("alone"))
    two.close()
    one = WitnessedStore(folder)
    for i in range(4):
        extend(one, log, message(f"{i} after reopening"))
    return one


def migration(folder: Path) -> SqliteStore:
    """A store of the first schema is brought up to date."""
    old_store(folder, 1)
    recordings[os.path.realpath(folder)].found(folder)
    store = WitnessedStore(folder)
    log = store.logs()[-1][1].id
    extend(store, log, message("new"), message("long " * 1200))
    store.keep(log, 2, b"kept in the new table")
    return store


def threads(folder: Path) -> SqliteStore:
    """Several write at once, so that one transaction holds the appends of many."""
    store = WitnessedStore(folder)
    logs = [begin(store) for _ in range(4)]
    store.recording.sync_s = 0.001
    store.recording.ahead += len(logs)  # all that meet in one commit
    run_threads(
        [
            lambda log=log: [extend(store, log, *[message(f"{i}")] * (1 + i % 3)) for i in range(8)]
            for log in logs
        ]
    )
    store.recording.sync_s = 0.0
    return store


@cache
def _appended(durability: str) -> tuple[Trace, dict[int, Send]]:
    with tempfile.TemporaryDirectory() as folder:
        return record("appends", Path(folder)), recordings[os.path.realpath(folder)].sent


def going_on(folder: Path) -> SqliteStore:
    """What one power loss has left, torn writes and all, is opened and written to, until the next
    one.
    """
    trace, disk = _appended(durability)[0], Disk()
    for step in trace.steps[: chance.randint(len(trace.steps) // 3, len(trace.steps))]:
        disk.take(step)
    lay_out(
        image_after(
            disk, chance, chance.choice(["everything", "up to a torn write", "each sector"])
        ),
        folder,
    )
    recordings[os.path.realpath(folder)].found(folder)
    store = WitnessedStore(folder)
    log = begin(store, message("again"))
    for i in range(8):
        extend(store, log, *[message(f"{i} again " * 50)] * (1 + i % 3))
    return store


def killed(folder: Path) -> SqliteStore:
    """A process is killed before its commit is synced; the next one sees it, and settles it by
    appending it again.

    What the killed process wrote is with the system still, but not on disk: saying that it stands
    is not enough. A bystander has the file open all the time; without one, opening it would bring
    everything to the disk.
    """
    trace, sent = _appended(durability)
    recording = recordings[os.path.realpath(folder)]
    recording.steps, disk = (
        trace.steps[: chance.choice(_before_syncs_of_appends(trace.steps))],
        Disk(),
    )
    for step in recording.steps:
        disk.take(step)
    lay_out(disk.image([True] * len(disk.pending)), folder)
    recording.names = disk.names_now()
    recording.first = len(recording.steps)
    recording.ahead *= 2  # what the killed process left is not counted by the next one
    last = max(step.number for step in recording.steps if isinstance(step, Asked))
    recording.sent, recording.numbers = sent, count(last + 1)
    bystander = RawSql(folder / "store.db")
    bystander("SELECT count(*) FROM log")
    store = WitnessedStore(folder)
    store.send_again(last)
    for _, log in store.logs():
        extend(store, log.id, message("after the kill"))
    bystander.close()
    return store


def _before_syncs_of_appends(steps: Sequence[Step]) -> list[int]:
    """After how many steps an append is under way and about to be synced."""
    under_way, found = set[int](), list[int]()
    for place, step in enumerate(steps):
        if isinstance(step, Asked):
            under_way.add(step.number)
        elif isinstance(step, Acknowledged):
            under_way.discard(step.number)
        elif isinstance(step, Synced) and under_way:
            found.append(place)
    return found


_ALL = (
    appends,
    sessions,
    blobs,
    two_connections,
    migration,
    threads,
    going_on,
    killed,
    durabilities,
    by_time,
)
SCENES: dict[str, Callable[[Path], SqliteStore]] = {scene.__name__: scene for scene in _ALL}


def record(scene: str, folder: Path) -> Trace:
    """Play a scene to its end, the closing of its store included."""
    recording = recordings[os.path.realpath(folder)] = Recording()
    for module in (database, connections):
        vars(module)["UNSYNCED_S"] = 0.02 if scene == "by_time" else 1000
    store = SCENES[scene](folder)
    history = [str(event.id) for _, event in store.feed()]
    store.close()
    return Trace(recording.steps, history, recording.first, recording.ahead)


def set_mode(mode: str) -> None:
    """`full` and `async` as the store has them; `normal` and `off` are less than it promises, by
    SQLite's names for them.
    """
    global durability
    durability = "async" if mode == "async" else "full"
    database.PRAGMAS["synchronous"] = {"off": 0, "normal": 1}.get(mode, 2)
    database.PRAGMAS["wal_autocheckpoint"] = 40
    database.UNSYNCED_MAX = UNSYNCED_MAX


def main(output: str, seed: str, *wanted: str) -> None:
    """Play these scenes, each given as SCENE:MODE, and write down their traces."""
    chance.seed(int(seed))
    files = RecordedFiles(int(seed))  # in force as long as it lives
    traces: list[Trace] = []
    for each in wanted:
        with tempfile.TemporaryDirectory() as folder:
            scene, mode = each.split(":")
            set_mode(mode)
            traces.append(record(scene, Path(folder)))
    Path(output).write_bytes(msgspec.msgpack.encode(traces))
    files.unregister()


if __name__ == "__main__":
    main(*sys.argv[1:])
