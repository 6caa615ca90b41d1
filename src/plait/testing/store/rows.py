"""Rows: folded with each append, and rebuilt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.errors import InvalidValue, RowsBroken, UnknownRows
from plait.event.kinds import ScratchSet
from plait.store import Store, Wanted
from plait.testing.projections import Notes, Tally, Words
from plait.testing.store.durable import DurablePart
from plait.testing.writing import (
    Opened,
    begin,
    check_refused,
    extend,
)


class RowContract(DurablePart):
    def test_rows_are_kept_with_the_events(self, opened: Opened) -> None:
        store = opened(Tally())
        one, two = (
            begin(store, ScratchSet("a", 1)),
            begin(store, ScratchSet("a", 1), ScratchSet("b", 1)),
        )
        extend(store, one, ScratchSet("a", 2))
        down = [number for number, _ in store.feed(reverse=True)]
        assert store.rows("tally", "count", {"log": one}) == [
            {"log": one, "key": "a", "times": 2, "number": down[0]}
        ]
        assert [
            row["log"]
            for row in store.rows("tally", "count", {"key": "a"}, order="number", descending=True)
        ] == [one, two]
        newest = store.rows("tally", "count", order="number", descending=True, limit=1)
        assert [row["number"] for row in newest] == down[:1]
        older = store.rows(
            "tally", "count", order="number", descending=True, before=newest[0]["number"]
        )
        assert [row["number"] for row in older] == down[1:3]
        extend(store, two, ScratchSet("b", None))
        assert store.rows("tally", "count", {"key": "b"}) == []

    def test_rows_that_are_equal_in_a_column_come_by_the_key(self, opened: Opened) -> None:
        store = opened(Tally(), Notes())
        keys = ["c", "a", "d", "b"]
        log = begin(store, *[ScratchSet(key, {"owner": "o"}) for key in keys])
        store.rows("tally", "count")
        # a row that is written again need not lie where it lay
        for key in ("a", "c", "a"):
            extend(store, log, ScratchSet(key, {"owner": "o"}))
            for descending in (False, True):
                way: Any = {"descending": descending, "limit": 10}
                rows = store.rows("tally", "count", {"log": log}, **way)
                by_key = sorted(keys, reverse=descending)
                assert [row["key"] for row in rows] == by_key
                rows = store.rows("tally", "count", order="log", **way)
                assert [row["key"] for row in rows] == by_key
                notes = store.rows("notes", "note", order="owner", **way)
                by_order = keys[::-1] if descending else keys
                assert [row["key"] for row in notes] == by_order
        extend(store, log, ScratchSet("b", 1))
        rows = store.rows("tally", "count", order="times")
        assert [(row["key"], row["times"]) for row in rows] == [
            ("d", 1),
            ("b", 2),
            ("c", 2),
            ("a", 3),
        ]

    def test_rows_that_events_of_some_kinds_make(self, opened: Opened) -> None:
        store = opened(Tally())
        log = begin(store, ScratchSet("a", 1))
        for times in (1, 2, 3):
            rows = store.rows("tally", "count", {"log": log}, kinds={"ScratchSet"})
            assert [row["times"] for row in rows] == [times]
            extend(store, log, ScratchSet("a", times))
        # no event of that kind is there, so an answer from before the others will do
        rows = store.rows("tally", "count", {"log": log}, kinds={"ForkedFrom"})
        assert [row["times"] for row in rows] in ([3], [4])

    def test_any_lowercase_word_names_a_column(self, opened: Opened) -> None:
        store = opened(Words())
        log = begin(store, ScratchSet("a", 1), ScratchSet("b", 1), ScratchSet("gone", 1))
        gone, b, a, _ = [number for number, _ in store.feed(reverse=True)]
        assert store.rows("words", "table", {"into": log, "group": "b"}) == [
            {"into": log, "group": "b", "order": b}
        ]
        assert [
            row["group"]
            for row in store.rows("words", "table", order="order", descending=True, before=gone)
        ] == ["b", "a"]
        assert store.rows("words", "index") == [
            {"from": "a", "order": a},
            {"from": "b", "order": b},
        ]
        store.rebuild("words")
        assert store.rows("words", "index", {"from": "b"}) == [{"from": "b", "order": b}]

    def test_rows_are_rebuilt_from_the_events(self, opened: Opened) -> None:
        store = opened(Tally())
        for i in range(30):
            begin(store, ScratchSet(f"k{i % 7}", i), ScratchSet(f"k{i % 3}", i))
        before = store.rows("tally", "count", order="number", limit=1000)
        store.rebuild("tally")
        assert store.rows("tally", "count", order="number", limit=1000) == before

    def test_rows_with_one_of_several_values(self, opened: Opened) -> None:
        store = opened(Tally())
        for i in range(6):
            begin(store, ScratchSet(f"k{i}", i), ScratchSet("all", i))

        def keys(where: Mapping[str, Wanted]) -> list[str]:
            return sorted([str(row["key"]) for row in store.rows("tally", "count", where)])

        assert keys({"key": frozenset({"k1", "k4", "nothing"})}) == ["k1", "k4"]
        assert keys({"key": frozenset({"k1", "all"}), "times": frozenset({1, 7})}) == [
            *["all"] * 6,
            "k1",
        ]
        assert keys({"key": frozenset[str]()}) == []
        many = frozenset([f"k{number}" for number in range(40_000)])
        assert keys({"key": many}) == [f"k{i}" for i in range(6)]
        every = store.rows("tally", "count", {"key": many}, order="number")
        last = every[1]["number"]
        page = store.rows("tally", "count", {"key": many}, order="number", before=last, limit=2)
        assert page == every[2:4]
        bad: list[Any] = [frozenset({"a", 1}), frozenset({None}), frozenset({b"a"}), ["k1"], {"a"}]
        for wanted in bad:
            with check_refused(InvalidValue, store):
                keys({"key": wanted})

    def test_a_projection_that_fails_undoes_the_append_or_loses_its_rows(
        self, opened: Opened
    ) -> None:
        store = opened(Tally(), Notes())
        log = begin(store, ScratchSet("a", 1))
        assert store.folds_inside == self.folds_inside
        if not self.folds_inside:
            extend(store, log, ScratchSet("b", 2), ScratchSet("poison", 3))
            extend(store, log, ScratchSet("c", 2))
            for _ in range(2):
                broken = _broken_rows(store)
                assert (broken.projection, broken.log, broken.seq) == ("tally", log, 4)
                assert "cannot take poison" in str(broken)
            assert store.log(log).tip == 5
            assert len(store.rows("notes", "note")) == 8, "others answer"
            return
        with check_refused(RuntimeError, store):
            extend(store, log, ScratchSet("a", 2), ScratchSet("poison", 1))
        assert [row["times"] for row in store.rows("tally", "count")] == [1]
        extend(store, log, ScratchSet("a", 3))
        assert [row["times"] for row in store.rows("tally", "count")] == [2]

    def test_unknown_rows_are_typed_errors(self, opened: Opened) -> None:
        store = opened(Tally())
        for projection, table, where, order in (
            ("nope", "count", {}, None),
            ("tally", "nope", {}, None),
            ("tally", "count", {"nope": 1}, None),
            ("tally", "count", {}, "number; DROP TABLE event"),
        ):
            with check_refused(UnknownRows, store):
                store.rows(projection, table, where, order=order)
        with check_refused(UnknownRows, store):
            store.rebuild("nope")


def _broken_rows(store: Store) -> RowsBroken:
    try:
        store.rows("tally", "count")
    except RowsBroken as error:
        return error
    raise AssertionError("rows without an event that was not folded were given")
