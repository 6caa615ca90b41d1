"""Reading: ranges, the feed, lists of logs, and contents as they were written."""

from __future__ import annotations

from typing import Any

from plait.errors import (
    InvalidInput,
    InvalidValue,
    LogExists,
    UnknownLog,
)
from plait.event.kinds import (
    HouseOpened,
    MessageSaid,
    ScratchSet,
)
from plait.ids import Digest, LogId, house_of, inbox_of, short
from plait.store.blobs import digest_of
from plait.testing.projections import Tally
from plait.testing.store.durable import DurablePart
from plait.testing.writing import (
    Opened,
    begin,
    check_refused,
    extend,
    fork,
    message,
    new_log,
    numbers_of,
    seal_events,
    texts,
    verify,
)


class ReadContract(DurablePart):
    def test_reading_ranges(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, *(message(str(i)) for i in range(2, 21)))
        child = fork(store, log, 10)
        extend(store, child, *(message(str(i)) for i in range(12, 31)))

        def seqs(first: int = 1, last: int | None = None, reverse: bool = False) -> list[int]:
            return [event.seq for event in store.read(child, first, last, reverse=reverse)]

        assert seqs() == list(range(1, 31))
        assert seqs(5, 15) == list(range(5, 16))
        assert seqs(5, 15, reverse=True) == list(range(15, 4, -1))
        assert seqs(28) == [28, 29, 30]
        assert seqs(28, 99) == [28, 29, 30]
        assert seqs(-5, 2) == [1, 2]
        assert seqs(31) == seqs(9, 8) == []
        assert [
            event.seq for event in store.read(child, kinds={"ForkedFrom", "SessionOpened"})
        ] == [1, 11]
        assert [event.seq for event in store.read(child, kinds=())] == []

    def test_reading_ahead_changes_no_answer(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, *(message(str(i)) for i in range(2, 21)))
        child = fork(store, log, 10)
        extend(store, child, *(message(str(i)) for i in range(12, 31)))

        def answers() -> list[list[Digest]]:
            spans: list[tuple[int, int | None]] = [(1, None), (5, 25), (3, 3), (28, 99), (-5, 2)]
            kinds = (None, {"ForkedFrom", "SessionOpened"}, ())
            return [
                [event.id for event in store.read(child, *span, kinds=only, reverse=reverse)]
                for span in spans
                for only in kinds
                for reverse in (False, True)
            ]

        before = answers()
        with store.read_ahead(child, 4, 30), store.read_ahead(child, 8, 12):
            assert answers() == before
            extend(store, child, message("31"))
            extend(store, child, *(message(str(i)) for i in range(32, 90)))
            during = answers()
            assert during[0] == [event.id for event in store.read(child)] and during != before
        assert answers() == during

    def test_a_look_ahead_says_how_logs_stand(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, *(message(str(i)) for i in range(2, 9)))
        child = fork(store, log, 4)
        extend(store, child, message("more"))
        for first, limit in ((log, 100), (child, 100), (log, 2), (log, 0)):
            asked = [first, new_log(), child, log]
            before = [event.id for event in store.read(first)]
            with store.look_ahead(asked, limit) as heads:
                assert heads == store.heads(asked) and heads.keys() == {log, child}
                assert [event.id for event in store.read(first)] == before
                assert [event.id for event in store.read(first, 2, 3)] == before[1:3]
                extend(store, first, message("and more"))
                assert [event.id for event in store.read(first)][:-1] == before
                assert heads[first].tip + 1 == store.log(first).tip
        with store.look_ahead([new_log()], 100) as heads:
            assert heads == {}

    def test_odd_questions_are_typed_errors(self, opened: Opened) -> None:
        store = opened(Tally())
        log: Any = begin(store)
        odd: Any = "MessageSaid"
        for ask in (
            lambda: store.read(log, kinds=odd),
            lambda: store.read(log, kinds=[MessageSaid]),  # type: ignore[list-item]
            lambda: store.read(log, kinds=["Nope"]),
            lambda: store.read(log, "1"),  # type: ignore[arg-type]
            lambda: store.logs(limit=-1),
            lambda: store.rows("tally", "count", {"key": ["a", "b"]}),  # type: ignore[dict-item]
            lambda: store.append(log, message("not sealed"), after=store.log(log).head),  # type: ignore[arg-type]
            lambda: store.append(log, [message("not sealed")], after=store.log(log).head),  # type: ignore[list-item]
            lambda: store.put_blob("text"),  # type: ignore[arg-type]
            lambda: store.put_blobs(["text"]),  # type: ignore[arg-type]
            lambda: store.missing_blobs(["text"]),  # type: ignore[list-item]
            lambda: store.match(5),  # type: ignore[arg-type]
            lambda: store.rows("tally", "count", before=["a"]),  # type: ignore[arg-type]
            lambda: store.append(
                log,
                seal_events([message("x")], log, 2, (store.log(log).head,)),
                after=store.log(log).head,
                blobs=[1],  # pyright: ignore[reportArgumentType]
            ),
        ):
            with check_refused(InvalidInput, store):
                ask()

    def test_reading_more_than_a_page(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        extend(store, log, *(message(str(i)) for i in range(1500)))
        assert [event.seq for event in store.read(log)] == list(range(1, 1502))
        assert [event.seq for event in store.read(log, reverse=True)] == list(range(1501, 0, -1))
        numbers = numbers_of(store)
        assert numbers == sorted(set(numbers)) and len(numbers) == 1501
        assert not self.dense or numbers == list(range(1, 1502))
        assert verify(store) == []

    def test_a_read_sees_the_log_as_it_was_when_it_began(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        extend(store, log, *(message(str(i)) for i in range(1000)))
        reading = store.read(log)
        next(reading)
        extend(store, log, message("later"))
        assert len(list(reading)) == 1000

    def test_editing_what_was_read_does_not_edit_the_past(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, ScratchSet("plan", {"steps": ["a"]}))
        child = fork(store, log, 2)
        body = next(store.read(child, 2, 2)).body
        assert isinstance(body, ScratchSet)
        body.value["steps"].append("injected")  # type: ignore[index, call-overload]
        for reader in (log, child):
            assert next(store.read(reader, 2, 2)).body == ScratchSet("plan", {"steps": ["a"]})

    def test_the_feed_orders_everything_by_commit(self, opened: Opened) -> None:
        store = opened()
        one, two = begin(store), begin(store)
        extend(store, one, message("a"))
        extend(store, two, ScratchSet("b", 1))
        extend(store, one, message("c"))
        numbers = numbers_of(store)
        assert numbers == sorted(set(numbers)) and numbers[0] > 0
        assert not self.dense or numbers == [1, 2, 3, 4, 5]
        assert [(event.log, event.seq) for _, event in store.feed()] == [
            (one, 1),
            (two, 1),
            (one, 2),
            (two, 2),
            (one, 3),
        ]
        assert [number for number, _ in store.feed(numbers[1], limit=2)] == numbers[2:4]
        assert [number for number, _ in store.feed(kinds={"MessageSaid"}, limit=1)] == numbers[2:3]
        assert store.number == numbers[-1]

    def test_the_feed_backwards(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, ScratchSet("a", 1))
        extend(store, log, *(message(str(i)) for i in range(1200)), ScratchSet("b", 2))
        numbers = numbers_of(store)
        forward = [(number, event.id) for number, event in store.feed()]
        assert [(number, event.id) for number, event in store.feed(reverse=True)] == forward[::-1]
        down, after = numbers[::-1], numbers[-5]
        assert [number for number, _ in store.feed(after, reverse=True)] == down[:4]
        assert [number for number, _ in store.feed(after, reverse=True, limit=2)] == down[:2]
        assert [number for number, _ in store.feed(reverse=True, limit=700)] == down[:700]
        scratched = [number for number, _ in store.feed(kinds={"ScratchSet"}, reverse=True)]
        assert scratched == [numbers[-1], numbers[1]]
        assert (
            list(store.feed(down[0], reverse=True))
            == list(store.feed(down[0] + 9999, reverse=True))
            == list(store.feed(reverse=True, limit=0))
            == []
        )

    def test_the_feed_backwards_begins_where_it_began(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, *(message(str(i)) for i in range(1000)))
        down = [number for number, _ in store.feed(reverse=True)]
        feed = store.feed(reverse=True)
        assert next(feed)[0] == down[0] and len(down) == 1001
        extend(store, log, message("later"))
        assert [number for number, _ in feed] == down[1:]

    def test_listing_pages(self, opened: Opened) -> None:
        store = opened()
        logs = [begin(store) for _ in range(7)]
        page = store.logs(limit=3)
        rest = store.logs(before=page[-1][0], limit=10)
        assert [log.id for _, log in page + rest] == logs[::-1]
        assert store.logs(before=rest[-1][0]) == []

    def test_many_heads_at_once(self, opened: Opened) -> None:
        store = opened()
        roots = [begin(store, message("one")) for _ in range(600)]
        forks = [fork(store, log, 2) for log in roots[:5]]
        asked = [*forks, *roots[::-1], new_log(), roots[0]]
        heads = store.heads(asked)
        assert list(heads) == [*forks, *roots[::-1]]
        assert heads == {log: store.log(log) for log in heads}
        assert store.heads([]) == store.heads([new_log()]) == {}
        (event,) = extend(store, roots[3], message("two"))
        assert store.heads(roots[3:4])[roots[3]].head == event.id
        for odd in ("../../etc/passwd", roots[0].upper(), ""):
            with check_refused(InvalidValue, store):
                store.heads([roots[0], LogId(odd)])

    def test_matching_ids_by_either_end(self, opened: Opened) -> None:
        store = opened()
        logs = [begin(store) for _ in range(20)]
        for log in logs:
            assert store.match(log) == [log]
            assert store.match(short(log)) == [log]
            assert log in store.match(log[:4])
            assert log in store.match(log[-12:-9])
        assert store.match("") == store.match("zz") == store.match("%") == []
        assert len(store.match(logs[0][0], limit=1)) <= 1

    def test_events_at_places_are_those_of_the_log_itself(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        extend(store, log, *[message(f"m{i}") for i in range(4)])
        child = fork(store, log, 3)
        extend(store, child, message("mine"))
        own = [event for event in store.read(child) if event.log == child]
        places = [(child, own[-1].seq), (log, 2), (child, own[0].seq), (log, 2)]
        assert [event.id for event in store.events_at(places)] == [
            own[-1].id,
            (second := next(store.read(log, 2, 2))).id,
            own[0].id,
            second.id,
        ]
        absent = [(child, 1), (log, 99), (new_log(), 1), (log, 0)]
        assert store.events_at(absent) == [] == store.events_at([])

    def test_an_inbox_is_an_ordinary_log(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        name = inbox_of(log)
        store.begin(name, seal_events([message("hello")], name))
        extend(store, name, message("again"))
        assert texts(store, name) == ["hello", "again"]
        assert inbox_of(log) != house_of(store.id) != log
        assert verify(store) == []

    def test_the_house_log_comes_with_the_store_and_names_it(self, opened: Opened) -> None:
        store = opened()
        house = house_of(store.id)
        (first,) = store.read(house)
        assert first.body == HouseOpened(store.id) and store.event(first.id).id == first.id
        assert (store.number_of(first.id), store.number, list(store.feed()), store.logs()) == (
            0,
            0,
            [],
            [],
        )
        assert store.describe()["logs"] == store.describe()["events"] == 0
        assert verify(store) == []
        with check_refused(LogExists, store):
            store.begin(house, seal_events([message("mine")], house))
        (event,) = extend(store, house, message("an act that belongs to no session"))
        log = begin(store)
        numbers = numbers_of(store)
        assert [each.log for _, each in store.feed()] == [house, log]
        assert [log for _, log in store.logs()] == [store.log(log)]
        assert store.number_of(event.id) == numbers[0] > 0
        assert verify(store) == []
        store.close()
        if self.durable:
            again = opened()
            assert (
                texts(again, house) == ["an act that belongs to no session"] and verify(again) == []
            )

    def test_events_have_numbers_and_blobs_are_listed(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, message("one"))
        numbers = [store.number_of(event.id) for event in store.read(log)]
        assert numbers == numbers_of(store) and store.number_of(Digest("0" * 64)) is None
        assert not self.dense or numbers == [1, 2]
        contents = [b"%d" % i for i in range(1100)]
        store.put_blobs({digest_of(content): content for content in contents})
        assert sorted(store.blobs()) == sorted(map(digest_of, contents))

    def test_every_legal_text_comes_back_exactly(self, opened: Opened) -> None:
        store = opened()
        hard = [
            "",
            "\0",
            "a\x85b\u2028c\u2029d",
            "\r\n\n\r",
            "שלום",
            "漢字かな",
            "👩\u200d👩\u200d👧",
            "\ufeff",
            "\uffff\U0010ffff",
            "e\u0301",
            "é",
        ]
        hard += ["x" * 3000 + "\u2028", "\0" * 10_000, '\\"\\u0000', "\x7f\x1b[31m"]
        log = begin(store, *(message(text) for text in hard))
        store.close()
        if self.durable:
            assert texts(opened(), log) == hard

    def test_long_bodies_are_kept_apart_and_once(self, opened: Opened) -> None:
        store = opened()
        text = "".join(chr(0x4E00 + i % 5000) for i in range(50_000))
        log = begin(store, message(text))
        other = begin(store, message(text))
        assert texts(store, log) == texts(store, other) == [text]
        assert verify(store) == []

    def test_a_lineage_is_the_spans_that_a_log_is_read_through(self, opened: Opened) -> None:
        store = opened()
        root = begin(store, message("one"), message("two"), message("three"))
        child = fork(store, root, 3)
        extend(store, child, message("four"))
        low, high = fork(store, child, 2), fork(store, child, 5)
        for log, above in (
            (root, []),
            (child, [(root, 1, 3)]),
            (low, [(root, 1, 2)]),
            (high, [(root, 1, 3), (child, 4, 5)]),
        ):
            *found, own = store.lineage(log)
            assert [(span.log, span.first, span.last) for span in found] == above
            assert own.log == log and own.first == store.log(log).place + 1
        with check_refused(UnknownLog, store):
            store.lineage(new_log())
