"""Snapshots: bytes kept about places of logs."""

from __future__ import annotations

from typing import Any

from plait.errors import (
    InvalidValue,
    UnknownLog,
)
from plait.testing.store.durable import DurablePart
from plait.testing.writing import (
    Opened,
    begin,
    check_refused,
    extend,
    fork,
    new_log,
    said,
    texts,
    verify,
)


class SnapshotContract(DurablePart):
    def test_what_is_kept_comes_back(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, *(said(str(i)) for i in range(9)))
        assert store.kept(log, 10) is None
        for seq, data in ((8, b"state " * 1000), (3, b""), (5, bytes(range(256)))):
            store.keep(log, seq, data)
        assert store.all_kept(log) == [(3, b""), (5, bytes(range(256))), (8, b"state " * 1000)]
        assert (
            store.kept(log, 10)
            == store.kept(log, 8)
            == store.kept(log, 10**9)
            == (log, 8, b"state " * 1000)
        )
        assert store.kept(log, 7) == store.kept(log, 5) == (log, 5, bytes(range(256)))
        assert store.kept(log, 3) == (log, 3, b"")
        assert store.kept(log, 2) is store.kept(log, 0) is store.kept(log, -1) is None
        store.keep(log, 5, b"another")
        assert store.kept(log, 7) == (log, 5, b"another")
        assert [seq for seq, _ in store.all_kept(log)] == [3, 5, 8]
        store.close()
        if self.durable:
            assert opened().kept(log, 6) == (log, 5, b"another")

    def test_what_is_kept_is_found_through_the_lineage(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, *(said(str(i)) for i in range(9)))
        child = fork(store, log, 6)
        extend(store, child, said("mine"), said("too"))
        grandchild = fork(store, child, 8)
        low = fork(store, child, 4)
        for at, seq in ((log, 4), (log, 7), (log, 10), (child, 8), (child, 9)):
            store.keep(at, seq, f"{seq}".encode())
        assert store.kept(child, 9) == (child, 9, b"9")
        assert store.kept(grandchild, 9) == store.kept(child, 8) == (child, 8, b"8")
        assert store.kept(grandchild, 7) == store.kept(child, 6) == (log, 4, b"4"), (
            "never beyond the fork"
        )
        assert store.kept(low, 5) == (log, 4, b"4")
        assert store.kept(low, 3) is None
        assert store.all_kept(grandchild) == store.all_kept(low) == []
        store.keep(low, 5, b"low")
        assert store.kept(low, 5) == (low, 5, b"low")
        assert store.kept(child, 7) == (log, 4, b"4")

    def test_what_is_kept_can_be_dropped(self, opened: Opened) -> None:
        store = opened()
        one, two = begin(store, said("one")), begin(store, said("two"))
        for log, seq in ((one, 1), (one, 2), (two, 1), (two, 2)):
            store.keep(log, seq, b"state")
        assert store.forget_kept(one) == 2
        assert store.forget_kept(one) == 0
        assert store.all_kept(one) == []
        assert store.kept(two, 2) == (two, 2, b"state")
        assert store.forget_kept() == 2
        assert store.forget_kept() == 0
        assert store.kept(two, 2) is None
        assert texts(store, two) == ["two"]
        assert verify(store) == []

    def test_only_own_places_are_kept(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, said("one"), said("two"))
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
                store.keep(at, odd, b"state")
        for odd in ("text", None):
            with check_refused(InvalidValue, store):
                store.keep(log, 1, odd)
            with check_refused(InvalidValue, store):
                store.kept(log, odd)
        assert store.forget_kept() == 0
        unknown = new_log()
        for ask in (
            lambda: store.keep(unknown, 1, b"state"),
            lambda: store.kept(unknown, 1),
            lambda: store.all_kept(unknown),
            lambda: store.forget_kept(unknown),
        ):
            with check_refused(UnknownLog, store):
                ask()

    def test_keeping_changes_nothing_else(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, said("one"))
        before = store.number, store.log(log)
        store.keep(log, 2, b"state")
        assert (store.number, store.log(log)) == before
        extend(store, log, said("two"))
        assert store.kept(log, 3) == (log, 2, b"state")
        assert verify(store) == []
