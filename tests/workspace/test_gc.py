from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.errors import StoreCorrupt, UnknownBlob
from plait.event import Body
from plait.event.kinds import (
    Failure,
    Merged,
    Placement,
    PlacementChanged,
    SessionOpened,
    Text,
    ToolFailed,
    ToolReturned,
    Trees,
    ValidationRecorded,
)
from plait.ids import Digest, LogId
from plait.store import MemoryStore, SqliteStore, Store
from plait.testing import Seeded
from plait.testing.writing import begin, extend, message, new_log, run_threads, seal_events
from plait.workspace.base import TreeEntry
from plait.workspace.gc import Collected, collect, follow, reachable, roots_of
from plait.workspace.tree import EMPTY, encode, walk
from tests.planting import Blobs, Content

Files = dict[str, Content]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = (
        MemoryStore(source=Seeded())
        if request.param == "memory"
        else SqliteStore(tmp_path / "s.db", source=Seeded())
    )
    yield made
    made.close()


def placed(tree: Digest) -> PlacementChanged:
    return PlacementChanged(Placement("local"), tree)


def planted(files: Files) -> tuple[Digest, Blobs]:
    blobs = Blobs()
    return blobs.plant(files), blobs


def record(store: Store, log: LogId, files: Files) -> Digest:
    """As a session does it: the blobs come with the event."""
    tree, blobs = planted(files)
    now = store.log(log)
    store.append(
        log, seal_events([placed(tree)], log, now.tip + 1, (now.head,)), after=now.head, blobs=blobs
    )
    return tree


def read_whole(store: Store, tree: Digest) -> dict[str, bytes]:
    return {
        path: b"".join(map(store.get_blob, entry.blobs))
        for path, entry in walk(store, tree)
        if entry.kind == "file"
    }


def test_what_no_event_leads_to_goes(store: Store) -> None:
    lost = store.put_blob(b"never recorded")
    log = begin(store)
    tree = record(store, log, {"a": "1", "d/b": "2", "d/e/c": "3" * 10})
    extend(store, log, message("later"))
    found = collect(store, before=store.number)
    assert found.removed >= 1 and not found.missing
    assert read_whole(store, tree) == {"a": b"1", "d/b": b"2", "d/e/c": b"3" * 10}
    with pytest.raises(UnknownBlob):
        store.get_blob(lost)
    assert collect(store, before=store.number) == Collected(0, found.kept)


def test_what_came_after_a_number_stays(store: Store) -> None:
    old = store.put_blob(b"old")
    log = begin(store)
    number = store.number
    young = store.put_blob(b"young")
    extend(store, log, message("later"))
    assert collect(store, before=number).removed == 1
    assert store.get_blob(young) == b"young"
    assert collect(store, before=10**6).removed == 1
    for gone in (old, young):
        with pytest.raises(UnknownBlob):
            store.get_blob(gone)


class At(Seeded):
    """It is always the same minute."""

    def __init__(self, minute: int) -> None:
        super().__init__()
        self.minute = minute

    def now(self, log: LogId, seq: int) -> int:
        return (10**6 + self.minute) * 60_000_000


def said_at(store: Store, log: LogId, minute: int) -> None:
    now = store.log(log)
    store.append(
        log,
        seal_events([message("x")], log, now.tip + 1, (now.head,), source=At(minute)),
        after=now.head,
    )


def test_what_is_young_may_be_waiting_for_its_event(store: Store) -> None:
    """A first look at a large folder puts blobs long before it records their tree."""
    log = new_log()
    store.begin(log, seal_events([SessionOpened()], log, source=At(0)))
    old = store.put_blob(b"old")
    said_at(store, log, 30)
    said_at(store, log, 59)
    young = store.put_blob(b"young")
    assert collect(store).removed == 0
    said_at(store, log, 100)
    assert collect(store).removed == 1
    assert store.get_blob(young) == b"young"
    with pytest.raises(UnknownBlob):
        store.get_blob(old)


def test_trees_of_all_kinds_of_events_are_followed(store: Store) -> None:
    log = begin(store)
    trees = [planted({f"f{i}": f"{i}"}) for i in range(7)]
    for _, blobs in trees:
        for content in blobs.values():
            store.put_blob(content)
    one, two, three, four, five, six, seven = (tree for tree, _ in trees)
    bodies: list[Body] = [
        ToolReturned((Text("x"),), trees=Trees(one, two)),
        ToolFailed(Failure("failed", "x"), trees=Trees(three, four)),
        placed(five),
        Merged((), tree=six),
        ValidationRecorded("tests", True, tree=seven),
        ToolReturned((Text("no files"),)),
        ValidationRecorded("no files", True),
    ]
    extend(store, log, *bodies)
    assert roots_of(store) == {one, two, three, four, five, six, seven}
    collect(store, before=store.number)
    for number, (tree, _) in enumerate(trees):
        assert read_whole(store, tree) == {f"f{number}": f"{number}".encode()}


def test_trees_that_are_not_there_are_told(store: Store) -> None:
    made_up = Digest("ab" * 32)
    log = begin(
        store, placed(store.put_blob(encode([TreeEntry("gone", "folder", 0o755, 0, (made_up,))])))
    )
    tree = record(store, log, {"a": "1"})
    record(store, log, {})
    found = collect(store, before=store.number)
    assert found.missing == (made_up,)
    assert read_whole(store, tree) == {"a": b"1"}
    assert made_up not in reachable(store, roots_of(store))


def test_a_tree_that_is_damaged_stops_it(store: Store) -> None:
    lost, not_a_tree = store.put_blob(b"never recorded"), store.put_blob(b"not a tree")
    begin(store, placed(not_a_tree), message("more"))
    with pytest.raises(StoreCorrupt):
        collect(store, before=store.number)
    assert store.get_blob(lost) == b"never recorded"


def test_a_tree_is_read_once() -> None:
    blobs = Blobs()
    trees = [blobs.plant({"same/deep/x": "1", "other": f"{i}"}) for i in range(100)]
    blobs.asked = 0
    found = follow(blobs, [*trees, *trees, EMPTY])
    assert blobs.asked == 100 + 2 + 1  # each root, what they share, the empty tree
    assert found.there == {*trees, *blobs.keys()} and not found.missing


def test_sessions_go_on_meanwhile(store: Store) -> None:
    """Every tree that was recorded is whole in the end, whenever the collection came."""
    rounds, stop = 60, threading.Event()
    recorded: list[tuple[Digest, dict[str, bytes]]] = []
    removed: list[int] = []
    swept = threading.Event()

    def write(name: str) -> None:
        log = begin(store)
        files: Files = {}
        store.put_blob(f"{name} is left before the first sweep".encode())
        swept.clear()
        swept.wait()  # the sweeper gets a turn, however busy the machine is
        for step in range(rounds):
            store.put_blob(f"{name} {step} was never recorded".encode())
            if step % 3 == 2:  # what goes and comes again was put again with its event
                files = dict(list(files.items())[1:])
            files[f"d{step % 4}/{name}"] = f"{name if step % 2 else 'both'} {step % 8}"
            tree = record(store, log, files)
            recorded.append(
                (tree, {path: str(content).encode() for path, content in files.items()})
            )

    def sweep() -> None:
        while not stop.is_set():
            removed.append(collect(store, before=2**62).removed)
            swept.set()

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        run_threads([lambda name=name: write(name) for name in ("one", "two")])
    finally:
        stop.set()
        sweeper.join()
    assert sum(removed) > 0
    for tree, files in recorded:
        assert read_whole(store, tree) == files


class Interrupted:
    """A store to which others append while it is being followed: each time a tree is read,
    something is recorded.
    """

    def __init__(self, store: Store, between: list[Files]) -> None:
        self._store, self._between = store, between
        self.log, self.recorded = begin(store), list[Digest]()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def get_blob(self, digest: Digest) -> bytes:
        if self._between:
            self.recorded.append(record(self._store, self.log, self._between.pop()))
        return self._store.get_blob(digest)


def test_a_tree_that_is_recorded_after_the_mark_loses_nothing(store: Store) -> None:
    forgotten: Files = {"x": "put before, led to by nothing, wanted again", "d/y": "new"}
    for content in planted(forgotten)[1].values():
        store.put_blob(content)
    log = begin(store)
    record(store, log, {"x": "1"})
    busy = Interrupted(store, [forgotten])
    collect(busy, before=2**62)  # pyright: ignore[reportArgumentType]
    assert busy.recorded
    for tree in busy.recorded:
        assert len(read_whole(store, tree)) == 2
