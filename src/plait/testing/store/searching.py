"""Search by words: the rows found, their order, and the figures of BM25."""

from __future__ import annotations

import math
from typing import Any

from plait.errors import InvalidValue, RowsBroken, UnknownRows
from plait.event.kinds import ScratchSet
from plait.store import Found, Region, Store
from plait.testing.projections import Notes
from plait.testing.store.durable import DurablePart
from plait.testing.writing import Opened, begin, check_refused, extend, run_threads, verify

MANY = 20_001


def found_keys(found: Found) -> list[str]:
    return [str(hit.row["key"]) for hit in found.rows]


def find_notes(store: Store, words: str, **options: Any) -> list[str]:
    return found_keys(store.search("notes", "note", words.split(), **options))


def naive_scores(texts: dict[str, str], asked: list[str]) -> list[tuple[str, float]]:
    """Return the keys of texts by BM25, best first, as a textbook would compute it."""
    words = {key: text.split() for key, text in texts.items()}
    candidates = [len(row) for row in words.values() if {*asked}.intersection(row)]
    mean = sum(candidates) / len(candidates) if candidates else 1.0
    total = sum(bool(row) for row in words.values())
    scores: dict[str, float] = {}
    for key, row in words.items():
        score = 0.0
        for word in {*asked}.intersection(row):
            having = sum(word in each for each in words.values())
            weight = math.log(1 + (total - having + 0.5) / (having + 0.5))
            count = row.count(word)
            score += weight * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(row) / mean))
        if score > 0:
            scores[key] = score
    return sorted(scores.items(), key=lambda pair: -round(pair[1], 9))


class SearchContract(DurablePart):
    def test_rows_are_found_by_their_words_best_first(self, opened: Opened) -> None:
        store = opened(Notes())
        texts = {
            f"k{i}": " ".join([*["red"] * (i % 3), *["blue"] * (i % 5 == 0), *["w"] * (i % 7), "x"])
            for i in range(60)
        }
        begin(store, *[ScratchSet(key, text) for key, text in texts.items()])
        for asked in (["red"], ["blue", "red"], ["w", "blue", "none"], ["x", "blue", "x"]):
            found = store.search("notes", "note", asked, limit=100)
            wanted = naive_scores(texts, asked)
            assert found_keys(found) == [key for key, _ in wanted]
            assert all(
                math.isclose(hit.score, score)
                for hit, (_, score) in zip(found.rows, wanted, strict=True)
            )
            assert find_notes(store, " ".join(asked), limit=7) == found_keys(found)[:7]
        assert found.total == 60
        assert found.mean == sum(len(text.split()) for text in texts.values()) / 60
        assert found.weights == {"x": math.log(1 + 0.5 / 60.5), "blue": math.log(1 + 48.5 / 12.5)}
        assert find_notes(store, "none") == []

    def test_an_empty_table_is_searched(self, opened: Opened) -> None:
        store = opened(Notes())
        assert store.search("notes", "note", ["a"]) == Found((), {"a": math.log(2)}, 0, 0.0)
        begin(store, ScratchSet("empty", ""), ScratchSet("none", {"owner": "me"}))
        assert store.search("notes", "note", ["a"]).total == 0, "no row has words"
        assert find_notes(store, "a", within=[Region("me"), Region("nobody")]) == []

    def test_equal_rows_come_in_the_order_of_the_table(self, opened: Opened) -> None:
        store = opened(Notes())
        notes = [ScratchSet(key, "same words") for key in "zyxa"]
        log = begin(store, *notes, ScratchSet("b", "other"))
        assert find_notes(store, "same") == ["z", "y", "x", "a"]
        assert find_notes(store, "same", limit=2) == ["z", "y"]
        extend(store, log, *[ScratchSet(key, {"owner": "me"}) for key in "azy"])
        assert find_notes(store, "words same", within=[Region("me")], limit=2) == ["z", "y"]

    def test_rows_outside_of_a_search_are_neither_found_nor_neighbours(
        self, opened: Opened
    ) -> None:
        store = opened(Notes())
        owners = ["me", "you", "me", None, "me", "them"]
        begin(
            store,
            *[
                ScratchSet(f"k{i}", {"from": f"word n{i}", "owner": owner, "source": "s"})
                for i, owner in enumerate(owners)
            ],
            ScratchSet("other", {"from": "filler", "owner": "me", "source": "t"}),
        )

        def find(*regions: Region) -> list[str]:
            return find_notes(store, "word", within=regions)

        places = [int(str(row["order"])) for row in store.rows("notes", "note", order="order")]
        assert find(Region("me")) == ["k0", "k2", "k4"]
        assert find(Region("you"), Region("them")) == ["k1", "k5"]
        assert find(Region("me", places[1], places[4])) == ["k2", "k4"]
        assert find(Region("me", last=places[0]), Region("me", places[3])) == ["k0", "k4"]
        assert find(Region("me", places[2]), Region("me", last=places[2])) == ["k0", "k2", "k4"]
        assert find(Region("me", places[4], places[0])) == find() == find(Region("nobody")) == []
        upto = places[2]
        assert find_notes(store, "word", upto=upto) == ["k0", "k1", "k2"]
        assert find_notes(store, "word", upto=upto, within=[Region("me")]) == ["k0", "k2"]
        assert find_notes(store, "word", upto=0) == []

        def beside(**options: Any) -> tuple[list[object], list[object]]:
            found = store.search("notes", "note", ["n2"], near=("source", 2), **options)
            (hit,) = found.rows
            return [row["key"] for row in hit.before], [row["key"] for row in hit.after]

        assert beside() == (["k0"], ["k4"]), "neighbours are of the same group"
        assert beside(upto=upto) == (["k0"], [])
        assert beside(within=[Region("me"), Region("you")]) == (["k0"], ["k4"])
        assert beside(within=[Region("me", places[1])]) == ([], ["k4"])

    def test_rows_outside_of_a_search_count_in_no_figure(self, opened: Opened) -> None:
        """The answer is the one that a store without those rows gives."""
        store = opened(Notes())
        mine = [
            ScratchSet(f"m{i}", {"from": f"red w{i % 3} w{i % 4}", "owner": "me", "source": "s"})
            for i in range(9)
        ]
        others = [
            ScratchSet(f"y{i}", {"from": "red red red w1 long", "owner": owner, "source": "s"})
            for i, owner in enumerate(["you", None, "them", "you"])
        ]
        log = begin(store, *mine)
        asked: dict[str, Any] = {"near": ("source", 2), "limit": 5}
        alone = store.search("notes", "note", ["red", "w1", "w2"], **asked)
        last = max(int(str(row["order"])) for row in store.rows("notes", "note"))
        extend(store, log, *others)
        for within in ([Region("me")], [Region("me", last=last)], [Region("me"), Region("none")]):
            asked["within"] = within
            assert store.search("notes", "note", ["red", "w1", "w2"], **asked) == alone
        extend(store, log, ScratchSet("late", {"from": "red w1 w2", "owner": "me", "source": "s"}))
        assert store.search("notes", "note", ["red", "w1", "w2"], **asked, upto=last) == alone
        assert store.search("notes", "note", ["red", "w1", "w2"], **asked) != alone
        store.rebuild("notes")
        assert store.search("notes", "note", ["red", "w1", "w2"], **asked, upto=last) == alone

    def test_a_row_without_a_value_has_no_neighbours(self, opened: Opened) -> None:
        store = opened(Notes())
        begin(store, *[ScratchSet(f"k{i}", {"from": "word", "source": ""}) for i in range(3)])
        begin(store, *[ScratchSet(f"l{i}", "word") for i in range(3)])
        found = store.search("notes", "note", ["word"], near=("source", 3))
        assert [(hit.before, hit.after) for hit in found.rows] == [((), ())] * 6
        found = store.search("notes", "note", ["word"], near=("source", 0))
        assert len(found.rows) == 6

    def test_a_search_follows_every_change(self, opened: Opened) -> None:
        store = opened(Notes())
        log = begin(store, ScratchSet("a", "red fish"), ScratchSet("b", "red"), ScratchSet("c", ""))
        extend(store, log, ScratchSet("a", {"owner": "me"}))
        assert find_notes(store, "fish", within=[Region("me")]) == ["a"]
        extend(store, log, ScratchSet("a", {"owner": "you"}))
        assert find_notes(store, "fish", within=[Region("me")]) == []
        assert find_notes(store, "fish", within=[Region("you")]) == ["a"]
        extend(store, log, ScratchSet("a", "blue"), ScratchSet("c", "fish"))
        assert (find_notes(store, "fish"), find_notes(store, "blue")) == (["c"], ["a"])
        extend(store, log, ScratchSet("b", None), ScratchSet("c", None), ScratchSet("c", "red red"))
        assert (find_notes(store, "red"), find_notes(store, "fish")) == (["c"], [])
        extend(store, log, ScratchSet("c", {"order": 5, "from": "red last"}))
        found = store.search("notes", "note", ["red", "last", "blue"])
        assert (found_keys(found), found.total, found.mean) == (["c", "a"], 2, 1.5)
        assert store.check_words() == [] and verify(store) == []

    def test_a_rebuild_gives_the_same_answers(self, opened: Opened) -> None:
        store = opened(Notes())
        log = begin(store, *[ScratchSet(f"k{i}", f"w{i % 7} w{i % 11}") for i in range(50)])
        extend(store, log, *[ScratchSet(f"k{i}", f"w{i % 5} new") for i in range(0, 50, 4)])
        extend(store, log, *[ScratchSet(f"k{i}", None) for i in range(0, 50, 9)])
        asked = ["w3", "w4", "new"]
        before = store.search("notes", "note", asked, limit=50)
        store.rebuild("notes")
        assert store.search("notes", "note", asked, limit=50) == before
        assert store.check_words() == []

    def test_an_append_that_fails_leaves_no_words(self, opened: Opened) -> None:
        store = opened(Notes())
        log = begin(store, ScratchSet("a", "red"))
        if not self.folds_inside:
            extend(store, log, ScratchSet("b", "blue"), ScratchSet("c", "Red"))
            with check_refused(RowsBroken, store):
                store.search("notes", "note", ["red"])
            return
        for bad in ("Red", "two  blanks", " red", "red\n", "rêd", "red-fish"):
            with check_refused(InvalidValue, store):
                extend(store, log, ScratchSet("b", "blue"), ScratchSet("c", bad))
        assert find_notes(store, "red blue") == ["a"]
        assert store.check_words() == []

    def test_common_words_of_many_rows_rank_and_do_not_choose(self, opened: Opened) -> None:
        store = opened(Notes())
        log = begin(store, ScratchSet("few", MANY - 4), ScratchSet("a", "rare other"))
        extend(store, log, ScratchSet("b", "rare fourth"), ScratchSet("c", "other"))
        found = store.search("notes", "note", ["fourth"])
        assert found.total == MANY - 1 and len(found.rows) == 20, "a common word alone chooses"
        few = [Region("few"), Region("none")]
        assert store.search("notes", "note", ["fourth"], within=few).total == 0
        extend(store, log, ScratchSet("d", "fourth"))
        found = store.search("notes", "note", ["fourth", "rare", "all"])
        assert found_keys(found) == ["b", "a"]
        assert found.rows[0].score > found.rows[1].score
        assert found.weights["all"] == math.log(1 + (MANY - (MANY - 4) + 0.5) / (MANY - 4 + 0.5))
        assert found.weights["fourth"] == math.log(1 + (MANY - 5002 + 0.5) / 5002.5)
        # the other words choose as many rows as were asked for, and all words rank those
        assert find_notes(store, "fourth rare", limit=1) == ["a"]
        assert find_notes(store, "fourth all", limit=1) == ["d"], "if all are common, all choose"

    def test_a_search_that_makes_no_sense_is_refused(self, opened: Opened) -> None:
        store = opened(Notes())
        begin(store, ScratchSet("a", "red"))
        for words in ([], [""], ["Red"], ["red fish"], ["rêd"], ['"'], ["x" * 30_001], "red"):
            with check_refused(InvalidValue, store):
                store.search("notes", "note", words)
        senseless: list[dict[str, Any]] = [
            {"limit": 0},
            {"limit": 1.5},
            {"limit": None},
            {"upto": "last"},
            {"upto": 2**63},
            {"within": ["me"]},
            {"within": [Region("me", "first")]},  # pyright: ignore[reportArgumentType]
            {"near": ("source", -1)},
            {"near": ("key", 2)},
        ]
        for options in senseless:
            with check_refused(InvalidValue, store):
                store.search("notes", "note", ["red"], **options)
        unknown: list[tuple[tuple[str, str], dict[str, Any]]] = [
            (("nope", "note"), {}),
            (("notes", "nope"), {}),
            (("notes", "plain"), {}),
            (("notes", "note"), {"near": ("nope", 2)}),
        ]
        for place, options in unknown:
            with check_refused(UnknownRows, store):
                store.search(*place, ["red"], **options)

    def test_a_search_sees_one_state_while_others_write(self, opened: Opened) -> None:
        """Each append changes a note, and its words never stand twice or not at all."""
        store = opened(Notes())
        log = begin(store, ScratchSet("a", "word n0"), ScratchSet("b", "filler"))

        def write() -> None:
            for i in range(40):
                extend(store, log, ScratchSet("a", f"word n{i}"), ScratchSet("b", f"filler n{i}"))

        def search() -> None:
            for _ in range(80):
                (hit,) = store.search("notes", "note", ["word"], limit=5).rows
                word = str(hit.row["from"]).split()[1]
                both = store.search("notes", "note", [word, "word", "filler"]).rows
                numbers = {str(hit.row["from"]).split()[-1] for hit in both} - {"filler"}
                assert len(numbers) == 1, "half an append was seen"

        run_threads([write, search, search])
