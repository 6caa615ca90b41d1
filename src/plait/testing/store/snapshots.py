"""Snapshots: bytes kept about places of logs."""

from __future__ import annotations

from typing import Any

from plait.errors import (
    InvalidValue,
    UnknownLog,
)
from plait.store import visible_count
from plait.testing.store.durable import DurablePart
from plait.testing.writing import (
    Opened,
    begin,
    check_refused,
    extend,
    fork,
    message,
    new_log,
    texts,
    verify,
)


class SnapshotContract(DurablePart):
    def test_what_is_kept_comes_back(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, *(message(str(i)) for i in range(9)))
        assert store.nearest_snapshot(log, 10) is None
        for seq, data in ((8, b"state " * 1000), (3, b""), (5, bytes(range(256)))):
            store.keep_snapshot(log, seq, data)
        assert store.snapshots(log) == [(3, b""), (5, bytes(range(256))), (8, b"state " * 1000)]
        assert (
            store.nearest_snapshot(log, 10)
            == store.nearest_snapshot(log, 8)
            == store.nearest_snapshot(log, 10**9)
            == (log, 8, b"state " * 1000)
        )
        assert (
            store.nearest_snapshot(log, 7)
            == store.nearest_snapshot(log, 5)
            == (log, 5, bytes(range(256)))
        )
        assert store.nearest_snapshot(log, 3) == (log, 3, b"")
        assert (
            store.nearest_snapshot(log, 2)
            is store.nearest_snapshot(log, 0)
            is store.nearest_snapshot(log, -1)
            is None
        )
        store.keep_snapshot(log, 5, b"another")
        assert store.nearest_snapshot(log, 7) == (log, 5, b"another")
        assert [seq for seq, _ in store.snapshots(log)] == [3, 5, 8]
        store.close()
        if self.durable:
            assert opened().nearest_snapshot(log, 6) == (log, 5, b"another")

    def test_what_is_kept_is_found_through_the_lineage(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, *(message(str(i)) for i in range(9)))
        child = fork(store, log, 6)
        extend(store, child, message("mine"), message("too"))
        grandchild = fork(store, child, 8)
        low = fork(store, child, 4)
        for at, seq in ((log, 4), (log, 7), (log, 10), (child, 8), (child, 9)):
            store.keep_snapshot(at, seq, f"{seq}".encode())
        assert store.nearest_snapshot(child, 9) == (child, 9, b"9")
        assert (
            store.nearest_snapshot(grandchild, 9)
            == store.nearest_snapshot(child, 8)
            == (child, 8, b"8")
        )
        assert (
            store.nearest_snapshot(grandchild, 7)
            == store.nearest_snapshot(child, 6)
            == (log, 4, b"4")
        ), "never beyond the fork"
        assert store.nearest_snapshot(low, 5) == (log, 4, b"4")
        assert store.nearest_snapshot(low, 3) is None
        assert store.snapshots(grandchild) == store.snapshots(low) == []
        store.keep_snapshot(low, 5, b"low")
        assert store.nearest_snapshot(low, 5) == (low, 5, b"low")
        assert store.nearest_snapshot(child, 7) == (log, 4, b"4")

    def test_what_is_kept_can_be_dropped(self, opened: Opened) -> None:
        store = opened()
        one, two = begin(store, message("one")), begin(store, message("two"))
        for log, seq in ((one, 1), (one, 2), (two, 1), (two, 2)):
            store.keep_snapshot(log, seq, b"state")
        assert store.drop_snapshots(one) == 2
        assert store.drop_snapshots(one) == 0
        assert store.snapshots(one) == []
        assert store.nearest_snapshot(two, 2) == (two, 2, b"state")
        assert store.drop_snapshots() == 2
        assert store.drop_snapshots() == 0
        assert store.nearest_snapshot(two, 2) is None
        assert texts(store, two) == ["two"]
        assert verify(store) == []

    def test_only_own_places_are_kept(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, message("one"), message("two"))
        child = fork(store, log, 2)
        odd: Any
        for at, odd in (
            (log, 0),
            (log, 4),
            (log, -1),
            (log, "1"),
            (log, True),
            (log, 2**70),
            (child, 1),
            (child, 2),
            (child, 4),
        ):
            with check_refused(InvalidValue, store):
                store.keep_snapshot(at, odd, b"state")
        for odd in ("text", None):
            with check_refused(InvalidValue, store):
                store.keep_snapshot(log, 1, odd)
            with check_refused(InvalidValue, store):
                store.nearest_snapshot(log, odd)
        assert store.drop_snapshots() == 0
        unknown = new_log()
        for ask in (
            lambda: store.keep_snapshot(unknown, 1, b"state"),
            lambda: store.nearest_snapshot(unknown, 1),
            lambda: store.snapshots(unknown),
            lambda: store.drop_snapshots(unknown),
        ):
            with check_refused(UnknownLog, store):
                ask()

    def test_keeping_changes_nothing_else(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, message("one"))
        before = visible_count(store), store.log(log)
        store.keep_snapshot(log, 2, b"state")
        assert (visible_count(store), store.log(log)) == before
        extend(store, log, message("two"))
        assert store.nearest_snapshot(log, 3) == (log, 2, b"state")
        assert verify(store) == []
