"""Notices: small facts about the present moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread
from typing import Any

from plait.errors import InvalidValue, StoreClosed, TooLarge
from plait.testing.store.bells import GOOD_NAMES, ODD_NAMES
from plait.testing.store.durable import DurablePart
from plait.testing.store.processes import fork_process
from plait.testing.writing import Opened, check_refused, verify

_SIZE_MAX = 64 * 1024


class NoticeContract(DurablePart):
    def test_notices_are_put_replaced_and_dropped(self, opened: Opened) -> None:
        store = opened()
        assert store.notices("workers") == {}
        store.drop_notice("workers", "nobody")
        store.put_notice("workers", "b", b"two")
        store.put_notice("workers", "a", b"")
        store.put_notice("other", "a", bytes(range(256)))
        assert {key: each.data for key, each in store.notices("workers").items()} == {
            "a": b"",
            "b": b"two",
        }
        assert list(store.notices("workers")) == ["a", "b"]
        store.put_notice("workers", "b", b"three")
        assert store.notices("workers")["b"].data == b"three"
        store.drop_notice("workers", "b")
        store.drop_notice("workers", "b")
        assert list(store.notices("workers")) == ["a"]
        store.drop_notice("workers", "a")
        assert store.notices("workers") == {}
        assert store.notices("other")["a"].data == bytes(range(256))

    def test_boards_and_keys_have_any_name(self, opened: Opened) -> None:
        store = opened()
        for board in GOOD_NAMES[:4]:
            for key in GOOD_NAMES:
                store.put_notice(board, key, f"{board} {key}".encode())
        for board in GOOD_NAMES[:4]:
            found = store.notices(board)
            assert list(found) == sorted(GOOD_NAMES, key=str.encode)
            assert {key: each.data.decode() for key, each in found.items()} == {
                key: f"{board} {key}" for key in GOOD_NAMES
            }

    def test_an_age_grows_until_the_notice_is_replaced(self, opened: Opened) -> None:
        store = opened()
        store.put_notice("workers", "a", b"1")
        first = store.notices("workers")["a"].age_s
        assert first >= 0
        time.sleep(0.1)
        later = store.notices("workers")["a"].age_s
        assert later > first
        store.put_notice("workers", "b", b"1")
        assert store.notices("workers")["a"].age_s > store.notices("workers")["b"].age_s
        time.sleep(0.1)
        store.put_notice("workers", "a", b"2")
        found = store.notices("workers")
        assert found["a"].age_s < found["b"].age_s

    def test_odd_notices_are_refused(self, opened: Opened) -> None:
        store = opened()
        asks: list[Callable[[Any], object]] = [
            lambda name: store.put_notice(name, "a", b""),
            lambda name: store.put_notice("workers", name, b""),
            lambda name: store.drop_notice(name, "a"),
            lambda name: store.drop_notice("workers", name),
            store.notices,
        ]
        for odd in ODD_NAMES:
            for ask in asks:
                with check_refused(InvalidValue, store):
                    ask(odd)
        odd_data: list[Any] = ["text", None, bytearray(b"1")]
        for odd in odd_data:
            with check_refused(InvalidValue, store):
                store.put_notice("workers", "a", odd)
        with check_refused(TooLarge, store):
            store.put_notice("workers", "a", bytes(_SIZE_MAX + 1))
        assert store.notices("workers") == {}
        store.put_notice("workers", "a", bytes(_SIZE_MAX))
        assert store.notices("workers")["a"].data == bytes(_SIZE_MAX)

    def test_notices_are_seen_by_other_processes(self, opened: Opened) -> None:
        if not self.durable:
            return
        store = opened()
        store.put_notice("workers", "parent", b"1")

        def put() -> str:
            other = opened()
            other.put_notice("workers", "child", b"2")
            return " ".join(other.notices("workers"))

        with fork_process(put) as (_, text):
            assert text == "child parent"
            assert store.notices("workers")["child"].data == b"2"

    def test_threads_that_put_at_once_leave_whole_notices(self, opened: Opened) -> None:
        store = opened()
        sizes = [10, 10_000, 60_000]

        def put(digit: int) -> None:
            for i in range(20):
                store.put_notice("workers", "a", str(digit).encode() * sizes[i % 3])
                store.drop_notice("workers", f"none-{digit}")

        threads = [Thread(target=put, args=(digit,)) for digit in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            for notice in store.notices("workers").values():
                assert len(set(notice.data)) == 1 and len(notice.data) in sizes
        assert list(store.notices("workers")) == ["a"]

    def test_notices_are_not_on_record(self, opened: Opened) -> None:
        store = opened()
        store.put_notice("workers", "a", b"1")
        assert verify(store) == []
        store.close()
        for ask in (
            lambda: store.put_notice("workers", "a", b"1"),
            lambda: store.drop_notice("workers", "a"),
            lambda: store.notices("workers"),
        ):
            try:
                ask()
            except StoreClosed:
                continue
            raise AssertionError("a closed store takes notices")
