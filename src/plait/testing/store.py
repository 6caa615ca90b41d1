"""The contract every store keeps, as tests that anybody can run on theirs.

    class TestMine(StoreContract):
        @pytest.fixture
        def opened(self, tmp_path):
            return lambda *projections: MyStore(tmp_path, source=Seeded(), projections=projections)

`opened(*projections)` opens the store at one place: called again after `close()`, it finds what was
there. A store that keeps nothing beyond its process says `durable = False`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from plait.errors import (
    CommitmentBroken,
    InvalidInput,
    InvalidValue,
    LogExists,
    StaleEpoch,
    StaleHead,
    StoreClosed,
    UnknownBlob,
    UnknownEvent,
    UnknownLog,
    UnknownRows,
)
from plait.event import Body, Event, seal_all
from plait.event.kinds import (
    Failure,
    File,
    ForkedFrom,
    HouseOpened,
    MessageSaid,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    ScratchSet,
    SessionOpened,
    Text,
)
from plait.ids import Digest, LogId, derived, house_of, inbox_of, short
from plait.store import Fence, Rows, Store, Table, verify_store
from plait.store.blobs import digest_of
from plait.testing.seeded import Seeded

Opened = Callable[..., Store]

_source = Seeded(0)
_ordinal = iter(range(10**9))


# ── writing, in as few words as possible ─────────────────────────────────────────────────────


def new_log() -> LogId:
    return derived("plait/testing/1", next(_ordinal))


def said(text: str) -> MessageSaid:
    return MessageSaid("user", (Text(text),))


def sealed(
    bodies: Sequence[Body],
    log: LogId,
    seq: int = 1,
    parents: tuple[Digest, ...] = (),
    source: Seeded = _source,
    actor: str = "human:tester",
) -> list[Event]:
    return seal_all(bodies, log=log, seq=seq, parents=parents, source=source, actor=actor)


def begin(store: Store, *bodies: Body) -> LogId:
    """A new root: opened, then these."""
    log = new_log()
    durability = None if store.durability == "memory" else store.durability
    store.begin(log, sealed([SessionOpened(durability=durability), *bodies], log))
    return log


def extend(store: Store, log: LogId, *bodies: Body) -> list[Event]:
    """Append to the log as it stands now."""
    now = store.log(log)
    events = sealed(bodies, log, now.tip + 1, (now.head,))
    store.append(log, events, after=now.head)
    return events


def fork(store: Store, parent: LogId, place: int, label: str | None = None) -> LogId:
    log = new_log()
    point = next(store.read(parent, place, place))
    store.begin(
        log, sealed([ForkedFrom(parent, place, label)], log, place + 1, (point.id,)), parent=parent
    )
    return log


def texts(store: Store, log: LogId) -> list[str]:
    """What was said in a log, lineage included."""
    return [_text(event) for event in store.read(log, kinds={"MessageSaid"})]


def _text(event: Event) -> str:
    body = event.body
    assert isinstance(body, MessageSaid)
    part = body.parts[0]
    assert isinstance(part, Text)
    return part.text


@contextmanager
def refused(error: type[Exception], store: Store) -> Generator[None]:
    """The block raises this error, and the store is as it was."""
    before = store.number, [log for _, log in store.logs(limit=10_000)]
    try:
        yield
    except error:
        assert (store.number, [log for _, log in store.logs(limit=10_000)]) == before, (
            "something was written all the same"
        )
    else:
        raise AssertionError(f"{error.__name__} was not raised")


class Tally:
    """A projection for tests: how often each scratch key was set in a log, and the last commit that
    did it.
    """

    name = "tally"
    version = 1
    kinds = frozenset({"ScratchSet"})
    tables = (
        Table(
            "count",
            key=("log", "key"),
            columns={"log": "text", "key": "text", "times": "integer", "number": "integer"},
            indexes=(("key", "number"), ("number",)),
        ),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        body = event.body
        assert isinstance(body, ScratchSet)
        if body.key == "poison":
            rows.put("count", {"log": event.log, "key": "half", "times": 0, "number": number})
            raise RuntimeError("this projection cannot take poison")
        if body.value is None:
            rows.delete("count", event.log, body.key)
            return
        row = rows.get("count", event.log, body.key) or {"times": 0}
        times = row["times"]
        assert isinstance(times, int)
        rows.put("count", {"log": event.log, "key": body.key, "times": times + 1, "number": number})


class Words:
    """A projection for tests whose columns are called what a query language calls its own words."""

    name = "words"
    version = 1
    kinds = frozenset({"ScratchSet"})
    tables = (
        Table(
            "table",
            key=("into", "group"),
            columns={"into": "text", "group": "text", "order": "integer"},
            indexes=(("group", "order"),),
        ),
        Table("index", key=("from",), columns={"from": "text", "order": "integer"}, order="order"),
    )

    def apply(self, rows: Rows, number: int, event: Event) -> None:
        body = event.body
        assert isinstance(body, ScratchSet)
        assert rows.get("table", event.log, body.key) is None
        rows.put("table", {"into": event.log, "group": body.key, "order": number})
        rows.put("index", {"from": body.key, "order": number})
        rows.delete("index", "gone")


# ── the contract ─────────────────────────────────────────────────────────────────────────────


class StoreContract:
    """What every store does, and above all what it refuses."""

    durable = True

    # logs and appending

    def test_what_is_begun_can_be_read(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, said("one"), said("two"))
        events = list(store.read(log))
        assert [event.seq for event in events] == [1, 2, 3]
        assert texts(store, log) == ["one", "two"]
        assert store.log(log).head == events[-1].id
        assert store.log(log).tip == 3

    def test_an_append_moves_the_head(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        (event,) = extend(store, log, said("one"))
        assert store.log(log).head == event.id
        assert store.event(event.id).content == event.content

    def test_append_refuses_a_stale_head(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        stale = store.log(log).head
        extend(store, log, said("first"))
        late = sealed([said("late")], log, 2, (stale,), source=Seeded(1))
        with refused(StaleHead, store):
            store.append(log, late, after=stale)
        assert texts(store, log) == ["first"]

    def test_the_same_append_twice_changes_nothing(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        head = store.log(log).head
        events = sealed([said("once"), said("again")], log, 2, (head,))
        assert store.append(log, events, after=head) == events[-1].id
        number = store.number
        assert store.append(log, events, after=head) == events[-1].id
        extend(store, log, said("later"))
        assert store.append(log, events, after=head) == events[-1].id
        assert store.number == number + 1
        assert texts(store, log) == ["once", "again", "later"]

    def test_the_same_beginning_twice_changes_nothing(self, opened: Opened) -> None:
        store = opened()
        log = new_log()
        events = sealed([SessionOpened(), said("one")], log)
        assert store.begin(log, events) == store.begin(log, events)
        assert store.number == 2

    def test_begin_refuses_an_id_that_is_taken(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, said("kept"))
        with refused(LogExists, store):
            store.begin(log, sealed([SessionOpened(title="other")], log, source=Seeded(1)))
        assert texts(store, log) == ["kept"]

    def test_append_refuses_what_does_not_follow(self, opened: Opened) -> None:
        store = opened()
        log, other = begin(store), begin(store)
        head = store.log(log).head
        with refused(InvalidValue, store):
            store.append(log, [], after=head)
        with refused(InvalidValue, store):
            store.append(log, sealed([said("gap")], log, 4, (head,)), after=head)
        with refused(InvalidValue, store):
            store.append(log, sealed([said("stray")], log, 2, (store.log(other).head,)), after=head)
        with refused(InvalidValue, store):
            store.append(log, sealed([said("foreign")], other, 2, (head,)), after=head)
        with refused(InvalidValue, store):
            pair = sealed([said("a"), said("b"), said("c")], log, 2, (head,))
            store.append(log, [pair[0], pair[2]], after=head)

    def test_unknown_things_are_typed_errors(self, opened: Opened) -> None:
        store = opened()
        log, event = new_log(), Digest("0" * 64)
        for ask in (
            lambda: store.log(log),
            lambda: store.read(log),
            lambda: list(store.records(log)),
        ):
            with refused(UnknownLog, store):
                ask()
        with refused(UnknownLog, store):
            store.append(log, sealed([said("x")], log, 2, (event,)), after=event)
        with refused(UnknownEvent, store):
            store.event(event)
        with refused(UnknownBlob, store):
            store.get_blob(event)
        with refused(InvalidValue, store):
            store.log(LogId("../../etc/passwd"))
        with refused(InvalidValue, store):
            store.event(Digest("' OR 1=1 --"))

    # forks

    def test_a_fork_reads_through_its_lineage(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, said("one"), said("two"), said("three"))
        child = fork(store, log, 3)
        extend(store, child, said("mine"))
        extend(store, log, said("yours"))
        assert texts(store, child) == ["one", "two", "mine"]
        assert texts(store, log) == ["one", "two", "three", "yours"]
        assert [event.seq for event in store.read(child)] == [1, 2, 3, 4, 5]
        assert (store.log(child).parent, store.log(child).place) == (log, 3)

    def test_a_fork_below_the_fork_point(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, said("one"), said("two"), said("three"))
        child = fork(store, log, 4)
        extend(store, child, said("four"))
        low = fork(store, child, 2)
        extend(store, low, said("other"))
        assert texts(store, low) == ["one", "other"]

    def test_a_long_chain_of_forks(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        for i in range(60):
            extend(store, log, said(str(i)))
            log = fork(store, log, store.log(log).tip)
        store.close()
        store = opened() if self.durable else store
        if self.durable:
            assert texts(store, log) == [str(i) for i in range(60)]
            assert [event.seq for event in store.read(log, 50, 70)] == list(range(50, 71))

    def test_begin_refuses_a_fork_from_nowhere(self, opened: Opened) -> None:
        store = opened()
        log, child = begin(store, said("one")), new_log()
        head = store.log(log).head
        for place, parents, parent in (
            (9, (head,), log),
            (1, (head,), log),
            (2, (head,), None),
            (2, (Digest("1" * 64),), log),
        ):
            with refused(InvalidValue, store):
                store.begin(
                    child,
                    sealed([ForkedFrom(log, place)], child, place + 1, parents),
                    parent=parent,
                )
        with refused(UnknownLog, store):
            store.begin(child, sealed([ForkedFrom(log, 2)], child, 3, (head,)), parent=new_log())

    def test_a_fork_says_where_it_comes_from(self, opened: Opened) -> None:
        """What verify would call tampering is refused when it is written."""
        store = opened()
        log, other, child = begin(store, said("one")), begin(store, said("one")), new_log()
        head = store.log(log).head
        for body in (ForkedFrom(log, 1), ForkedFrom(other, 2), said("not a word of it")):
            with refused(InvalidValue, store):
                store.begin(child, sealed([body], child, 3, (head,)), parent=log)
        with refused(InvalidValue, store):
            store.begin(child, sealed([ForkedFrom(log, 2)], child))
        with refused(InvalidValue, store):
            extend(store, log, ForkedFrom(log, 2))

    # reading

    def test_reading_ranges(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, *(said(str(i)) for i in range(2, 21)))
        child = fork(store, log, 10)
        extend(store, child, *(said(str(i)) for i in range(12, 31)))

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
            lambda: store.append(log, said("not sealed"), after=store.log(log).head),  # type: ignore[arg-type]
            lambda: store.append(log, [said("not sealed")], after=store.log(log).head),  # type: ignore[list-item]
            lambda: store.put_blob("text"),  # type: ignore[arg-type]
            lambda: store.put_blobs(["text"]),  # type: ignore[arg-type]
            lambda: store.missing_blobs(["text"]),  # type: ignore[list-item]
            lambda: store.match(5),  # type: ignore[arg-type]
            lambda: store.rows("tally", "count", before=["a"]),  # type: ignore[arg-type]
            lambda: store.append(
                log,
                sealed([said("x")], log, 2, (store.log(log).head,)),
                after=store.log(log).head,
                blobs=[1],  # pyright: ignore[reportArgumentType]
            ),
        ):
            with refused(InvalidInput, store):
                ask()

    def test_reading_more_than_a_page(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        extend(store, log, *(said(str(i)) for i in range(1500)))
        assert [event.seq for event in store.read(log)] == list(range(1, 1502))
        assert [event.seq for event in store.read(log, reverse=True)] == list(range(1501, 0, -1))
        assert [number for number, _ in store.feed()] == list(range(1, 1502))
        assert verify(store) == []

    def test_a_read_sees_the_log_as_it_was_when_it_began(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        extend(store, log, *(said(str(i)) for i in range(1000)))
        reading = store.read(log)
        next(reading)
        extend(store, log, said("later"))
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
        extend(store, one, said("a"))
        extend(store, two, ScratchSet("b", 1))
        extend(store, one, said("c"))
        assert [(number, event.log, event.seq) for number, event in store.feed()] == [
            (1, one, 1),
            (2, two, 1),
            (3, one, 2),
            (4, two, 2),
            (5, one, 3),
        ]
        assert [number for number, _ in store.feed(2, limit=2)] == [3, 4]
        assert [number for number, _ in store.feed(kinds={"MessageSaid"}, limit=1)] == [3]
        assert store.number == 5

    def test_the_feed_backwards(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, ScratchSet("a", 1))
        extend(store, log, *(said(str(i)) for i in range(1200)), ScratchSet("b", 2))
        forward = [(number, event.id) for number, event in store.feed()]
        assert [(number, event.id) for number, event in store.feed(reverse=True)] == forward[::-1]
        assert [number for number, _ in store.feed(1199, reverse=True)] == [1203, 1202, 1201, 1200]
        assert [number for number, _ in store.feed(1199, reverse=True, limit=2)] == [1203, 1202]
        assert [number for number, _ in store.feed(reverse=True, limit=700)] == list(
            range(1203, 503, -1)
        )
        assert [number for number, _ in store.feed(kinds={"ScratchSet"}, reverse=True)] == [1203, 2]
        assert (
            list(store.feed(1203, reverse=True))
            == list(store.feed(9999, reverse=True))
            == list(store.feed(reverse=True, limit=0))
            == []
        )

    def test_the_feed_backwards_begins_where_it_began(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, *(said(str(i)) for i in range(1000)))
        feed = store.feed(reverse=True)
        assert next(feed)[0] == 1001
        extend(store, log, said("later"))
        assert [number for number, _ in feed] == list(range(1000, 0, -1))

    def test_listing_pages(self, opened: Opened) -> None:
        store = opened()
        logs = [begin(store) for _ in range(7)]
        page = store.logs(limit=3)
        rest = store.logs(before=page[-1][0], limit=10)
        assert [log.id for _, log in page + rest] == logs[::-1]
        assert store.logs(before=rest[-1][0]) == []

    def test_many_heads_at_once(self, opened: Opened) -> None:
        store = opened()
        roots = [begin(store, said("one")) for _ in range(600)]
        forks = [fork(store, log, 2) for log in roots[:5]]
        asked = [*forks, *roots[::-1], new_log(), roots[0]]
        heads = store.heads(asked)
        assert list(heads) == [*forks, *roots[::-1]]
        assert heads == {log: store.log(log) for log in heads}
        assert store.heads([]) == store.heads([new_log()]) == {}
        (event,) = extend(store, roots[3], said("two"))
        assert store.heads(roots[3:4])[roots[3]].head == event.id
        for odd in ("../../etc/passwd", roots[0].upper(), ""):
            with refused(InvalidValue, store):
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

    def test_an_inbox_is_an_ordinary_log(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        name = inbox_of(log)
        store.begin(name, sealed([said("hello")], name))
        extend(store, name, said("again"))
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
        with refused(LogExists, store):
            store.begin(house, sealed([said("mine")], house))
        (event,) = extend(store, house, said("an act that belongs to no session"))
        log = begin(store)
        assert [(number, each.log) for number, each in store.feed()] == [(1, house), (2, log)]
        assert [log for _, log in store.logs()] == [store.log(log)] and store.number_of(
            event.id
        ) == 1
        assert verify(store) == []
        store.close()
        if self.durable:
            again = opened()
            assert (
                texts(again, house) == ["an act that belongs to no session"] and verify(again) == []
            )

    def test_events_have_numbers_and_blobs_are_listed(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, said("one"))
        numbers = [store.number_of(event.id) for event in store.read(log)]
        assert numbers == [1, 2] and store.number_of(Digest("0" * 64)) is None
        contents = [b"%d" % i for i in range(1100)]
        store.put_blobs({digest_of(content): content for content in contents})
        assert sorted(store.blobs()) == sorted(map(digest_of, contents))

    # content

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
        log = begin(store, *(said(text) for text in hard))
        store.close()
        if self.durable:
            assert texts(opened(), log) == hard

    def test_long_bodies_are_kept_apart_and_once(self, opened: Opened) -> None:
        store = opened()
        text = "".join(chr(0x4E00 + i % 5000) for i in range(50_000))
        log = begin(store, said(text))
        other = begin(store, said(text))
        assert texts(store, log) == texts(store, other) == [text]
        assert verify(store) == []

    # blobs

    def test_blobs_are_kept_by_content(self, opened: Opened) -> None:
        store = opened()
        for content in (b"", b"\0\xff", b"text " * 1000, bytes(range(256)) * 300):
            digest = store.put_blob(content)
            assert digest == digest_of(content) == store.put_blob(content)
            assert store.get_blob(digest) == content
            assert store.blob_info(digest).size == len(content)

    def test_blobs_are_counted_by_the_events_that_point_to_them(self, opened: Opened) -> None:
        store = opened()
        content = b"evidence " * 100
        digest = store.put_blob(content)
        assert store.blob_info(digest).refs == 0
        log = begin(
            store,
            MessageSaid(
                "user", (File("a.txt", "text/plain", digest), File("b.txt", "text/plain", digest))
            ),
        )
        assert store.blob_info(digest).refs == 1
        extend(store, log, MessageSaid("user", (File("c.txt", "text/plain", digest),)))
        assert store.blob_info(digest).refs == 2

    def test_append_refuses_a_blob_that_is_not_there(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        missing = digest_of(b"never put")
        with refused(UnknownBlob, store):
            extend(store, log, MessageSaid("user", (File("a", "text/plain", missing),)))

    def test_blobs_travel_with_their_event(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        head, content = store.log(log).head, b"carried"
        digest = digest_of(content)
        events = sealed([MessageSaid("user", (File("a", "text/plain", digest),))], log, 2, (head,))
        with refused(CommitmentBroken, store):
            store.append(log, events, after=head, blobs={digest: b"swapped"})
        store.append(log, events, after=head, blobs={digest: content})
        assert store.get_blob(digest) == content
        assert store.blob_info(digest).refs == 1

    def test_sweeping_takes_only_old_and_unused_blobs(self, opened: Opened) -> None:
        store = opened()
        used, unused = store.put_blob(b"used"), store.put_blob(b"unused")
        begin(store, MessageSaid("user", (File("a", "text/plain", used),)))
        young = store.put_blob(b"young")
        assert store.sweep_blobs(before=store.number) == 1
        assert store.get_blob(used) == b"used"
        assert store.get_blob(young) == b"young"
        with refused(UnknownBlob, store):
            store.get_blob(unused)

    def test_many_blobs_are_put_at_once_or_not_at_all(self, opened: Opened) -> None:
        store = opened()
        contents = {digest_of(content): content for content in (b"", b"one", b"text " * 1000)}
        store.put_blob(b"one")
        with refused(CommitmentBroken, store):
            store.put_blobs({**contents, digest_of(b"two"): b"swapped"})
        assert store.missing_blobs([*contents, digest_of(b"two")]) == {
            digest_of(b""),
            digest_of(b"text " * 1000),
            digest_of(b"two"),
        }
        store.put_blobs(contents)
        store.put_blobs(contents)
        store.put_blobs({})
        assert {digest: store.get_blob(digest) for digest in contents} == contents
        assert store.missing_blobs(contents) == store.missing_blobs([]) == set()

    def test_sweeping_leaves_what_is_to_be_kept(self, opened: Opened) -> None:
        store = opened()
        kept, unused = store.put_blob(b"kept"), store.put_blob(b"unused")
        begin(store)
        assert store.sweep_blobs(before=store.number, keep={kept}) == 1
        assert store.missing_blobs([kept, unused]) == {unused}

    def test_asking_for_blobs_makes_them_young(self, opened: Opened) -> None:
        store = opened()
        asked, put, old = store.put_blob(b"asked"), store.put_blob(b"put"), store.put_blob(b"old")
        begin(store)
        assert store.missing_blobs([asked]) == set()
        store.put_blobs({put: b"put"})
        assert store.sweep_blobs(before=store.number) == 1
        assert store.missing_blobs([asked, put, old]) == {old}

    # snapshots

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
            with refused(InvalidValue, store):
                store.keep(at, odd, b"state")
        for odd in ("text", None):
            with refused(InvalidValue, store):
                store.keep(log, 1, odd)
            with refused(InvalidValue, store):
                store.kept(log, odd)
        assert store.forget_kept() == 0
        unknown = new_log()
        for ask in (
            lambda: store.keep(unknown, 1, b"state"),
            lambda: store.kept(unknown, 1),
            lambda: store.all_kept(unknown),
            lambda: store.forget_kept(unknown),
        ):
            with refused(UnknownLog, store):
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

    # projections

    def test_rows_are_kept_with_the_events(self, opened: Opened) -> None:
        store = opened(Tally())
        one, two = (
            begin(store, ScratchSet("a", 1)),
            begin(store, ScratchSet("a", 1), ScratchSet("b", 1)),
        )
        extend(store, one, ScratchSet("a", 2))
        assert store.rows("tally", "count", {"log": one}) == [
            {"log": one, "key": "a", "times": 2, "number": 6}
        ]
        assert [
            row["log"]
            for row in store.rows("tally", "count", {"key": "a"}, order="number", descending=True)
        ] == [one, two]
        newest = store.rows("tally", "count", order="number", descending=True, limit=1)
        assert [row["number"] for row in newest] == [6]
        older = store.rows(
            "tally", "count", order="number", descending=True, before=newest[0]["number"]
        )
        assert [row["number"] for row in older] == [5, 4]
        extend(store, two, ScratchSet("b", None))
        assert store.rows("tally", "count", {"key": "b"}) == []

    def test_any_lowercase_word_names_a_column(self, opened: Opened) -> None:
        store = opened(Words())
        log = begin(store, ScratchSet("a", 1), ScratchSet("b", 1), ScratchSet("gone", 1))
        assert store.rows("words", "table", {"into": log, "group": "b"}) == [
            {"into": log, "group": "b", "order": 3}
        ]
        assert [
            row["group"]
            for row in store.rows("words", "table", order="order", descending=True, before=4)
        ] == ["b", "a"]
        assert store.rows("words", "index") == [
            {"from": "a", "order": 2},
            {"from": "b", "order": 3},
        ]
        store.rebuild("words")
        assert store.rows("words", "index", {"from": "b"}) == [{"from": "b", "order": 3}]

    def test_rows_are_rebuilt_from_the_events(self, opened: Opened) -> None:
        store = opened(Tally())
        for i in range(30):
            begin(store, ScratchSet(f"k{i % 7}", i), ScratchSet(f"k{i % 3}", i))
        before = store.rows("tally", "count", order="number", limit=1000)
        store.rebuild("tally")
        assert store.rows("tally", "count", order="number", limit=1000) == before

    def test_a_projection_that_fails_undoes_the_append(self, opened: Opened) -> None:
        store = opened(Tally())
        log = begin(store, ScratchSet("a", 1))
        with refused(RuntimeError, store):
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
            with refused(UnknownRows, store):
                store.rows(projection, table, where, order=order)
        with refused(UnknownRows, store):
            store.rebuild("nope")

    # many at once

    def test_threads_on_logs_of_their_own(self, opened: Opened) -> None:
        store = opened()
        logs = [begin(store) for _ in range(16)]
        run_threads(
            [lambda log=log: [extend(store, log, said(str(i))) for i in range(25)] for log in logs]
        )
        for log in logs:
            assert texts(store, log) == [str(i) for i in range(25)]
        assert sorted(number for number, _ in store.feed()) == list(range(1, 16 * 26 + 1))
        assert verify(store) == []

    def test_threads_on_one_log_have_one_winner_per_place(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        won: list[str] = []

        def write(name: str) -> None:
            source = Seeded(hash(name))
            for i in range(20):
                while True:
                    now = store.log(log)
                    events = sealed(
                        [said(f"{name}/{i}")], log, now.tip + 1, (now.head,), source=source
                    )
                    try:
                        store.append(log, events, after=now.head)
                    except StaleHead:
                        continue
                    won.append(f"{name}/{i}")
                    break

        run_threads([lambda name=name: write(name) for name in "abcdefgh"])
        assert sorted(texts(store, log)) == sorted(won)
        assert store.log(log).tip == 161
        assert verify(store) == []

    def test_a_neighbour_in_the_same_round_does_not_suffer(self, opened: Opened) -> None:
        store = opened(Tally())
        good, bad = begin(store), begin(store)
        failed: list[Exception] = []

        def spoil() -> None:
            for _ in range(20):
                try:
                    extend(store, bad, ScratchSet("poison", 1))
                except RuntimeError as error:
                    failed.append(error)

        run_threads([lambda: [extend(store, good, said(str(i))) for i in range(50)], spoil])
        assert texts(store, good) == [str(i) for i in range(50)]
        assert len(failed) == 20
        assert store.log(bad).tip == 1

    # epochs: a run that was taken, or ended, takes nothing more from who held it

    def test_a_log_is_at_the_epoch_that_its_own_events_say(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, said("one"))
        assert store.log(log).epoch == 0
        turns = (
            RunStarted("a:B"),
            RunResumed("b", 1),
            RunFailed(Failure("E", "e")),
            RunResumed("c", 2),
            RunFinished(),
            RunCancelled(),
        )
        for epoch, body in enumerate(turns, 1):
            extend(store, log, said("nothing turns"), body)
            assert store.log(log).epoch == epoch
        extend(store, log, RunStarted("a:B"), RunResumed("b", 1), RunFinished())
        child = fork(store, log, 5)
        extend(store, child, RunResumed("b", 1, branch=True))
        whole = new_log()
        store.begin(whole, sealed([SessionOpened(), RunStarted("a:B"), RunFinished()], whole))
        found = {log: 9, child: 1, whole: 2}
        assert {each: store.log(each).epoch for each in found} == found
        assert {each.id: each.epoch for each in store.heads([log, child, whole]).values()} == found
        assert {each.id: each.epoch for _, each in store.logs()} == found
        assert verify(store) == []
        if self.durable:
            store.close()
            assert {each.id: each.epoch for _, each in opened().logs()} == found

    def test_append_refuses_another_epoch(self, opened: Opened) -> None:
        store = opened()
        log, other = begin(store, RunStarted("a:B")), begin(store)
        mine = Fence(log, 1)
        for each in (log, other):
            now = store.log(each)
            store.append(
                each,
                sealed([said("held")], each, now.tip + 1, (now.head,)),
                after=now.head,
                fences=[mine],
            )
        extend(store, log, RunResumed("b", 1))
        for each in (log, other):
            now = store.log(each)
            late = sealed([said("late")], each, now.tip + 1, (now.head,))
            for stale in ([mine], [Fence(log, 3)], [Fence(log, 2), Fence(other, 1)], [mine, mine]):
                with refused(StaleEpoch, store):
                    store.append(each, late, after=now.head, fences=stale)
            with refused(StaleEpoch, store):  # also where the head is another
                gone = sealed(
                    [said("late")], each, now.tip, (store.event(now.head).header.parents[0],)
                )
                store.append(each, gone, after=gone[0].header.parents[0], fences=[mine])
            store.append(each, late, after=now.head, fences=[Fence(log, 2), Fence(other, 0)])
            extend(store, each, said("by others, who hold nothing"))
        assert texts(store, other) == ["held", "late", "by others, who hold nothing"]

    def test_begin_refuses_another_epoch(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, RunStarted("a:B"))
        point, child, root = store.log(log).head, new_log(), new_log()
        events = sealed([ForkedFrom(log, 2)], child, 3, (point,))
        opening = sealed([SessionOpened()], root)
        extend(store, log, RunResumed("b", 1))
        with refused(StaleEpoch, store):
            store.begin(child, events, parent=log, fences=[Fence(log, 1)])
        with refused(StaleEpoch, store):
            store.begin(root, opening, fences=[Fence(log, 1)])
        store.begin(child, events, parent=log, fences=[Fence(log, 2)])
        store.begin(root, opening, fences=[Fence(log, 2), Fence(child, 0)])
        assert store.log(child).epoch == 0
        extend(store, log, RunResumed("c", 2))
        with refused(StaleEpoch, store):  # it stands, and whoever asks has been replaced since
            store.begin(child, events, parent=log, fences=[Fence(log, 2)])
        store.begin(child, events, parent=log, fences=[Fence(log, 3)])

    def test_of_two_who_take_a_run_one_has_it(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, RunStarted("a:B"))
        now = store.log(log)
        one, other = (sealed([RunResumed(name, 1)], log, 3, (now.head,)) for name in "ab")
        store.append(log, one, after=now.head, fences=[Fence(log, 1)])
        with refused(StaleEpoch, store):
            store.append(log, other, after=now.head, fences=[Fence(log, 1)])
        again = sealed([RunResumed("b", 1)], log, 4, (one[-1].id,))
        with refused(StaleEpoch, store):
            store.append(log, again, after=one[-1].id, fences=[Fence(log, 1)])
        assert store.log(log).epoch == 2

    def test_the_same_append_twice_under_a_fence(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, RunStarted("a:B"))
        head = store.log(log).head
        taken = sealed([RunResumed("a", 1)], log, 3, (head,))
        held = sealed([said("held")], log, 4, (taken[-1].id,))
        # an unknown outcome is settled, also that of the append that raised the epoch
        for _ in range(2):
            assert store.append(log, taken, after=head, fences=[Fence(log, 1)]) == taken[-1].id
        for _ in range(2):
            assert (
                store.append(log, held, after=taken[-1].id, fences=[Fence(log, 2)]) == held[-1].id
            )
        extend(store, log, RunResumed("b", 2))
        with refused(StaleEpoch, store):
            store.append(log, taken, after=head, fences=[Fence(log, 1)])
        with refused(StaleEpoch, store):
            store.append(log, held, after=taken[-1].id, fences=[Fence(log, 2)])
        assert store.log(log).epoch == 3 and store.log(log).tip == 5

    def test_a_fence_on_a_log_that_is_not_there(self, opened: Opened) -> None:
        store = opened()
        log, gone = begin(store), new_log()
        now = store.log(log)
        with refused(UnknownLog, store):
            store.append(
                log,
                sealed([said("x")], log, 2, (now.head,)),
                after=now.head,
                fences=[Fence(gone, 0)],
            )
        with refused(UnknownLog, store):
            other = new_log()
            store.begin(other, sealed([SessionOpened()], other), fences=[Fence(gone, 0)])

    def test_nothing_of_a_holder_is_committed_after_it_was_replaced(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, RunStarted("a:B"))
        branches = [fork(store, log, 2) for _ in range(4)]
        written: list[Event] = []

        def hold(branch: LogId) -> None:
            for i in range(40):
                now = store.log(branch)
                events = sealed([said(str(i))], branch, now.tip + 1, (now.head,))
                try:
                    store.append(branch, events, after=now.head, fences=[Fence(log, 1)])
                except StaleEpoch:
                    return
                written.extend(events)

        run_threads(
            [
                *[lambda branch=branch: hold(branch) for branch in branches],
                lambda: extend(store, log, RunResumed("b", 1)),
            ]
        )
        numbers = {event.id: number for number, event in store.feed()}
        ((taken, _),) = store.feed(kinds={"RunResumed"})
        assert all(numbers[event.id] < taken for event in written)
        assert len(written) == sum(len(texts(store, branch)) for branch in branches)

    # durability

    def test_a_log_is_written_one_way_and_its_forks_likewise(self, opened: Opened) -> None:
        store = opened()
        for wanted in ("full", "async"):
            log = new_log()
            store.begin(log, sealed([SessionOpened(durability=wanted)], log))
            child = fork(store, log, 1)
            found = {store.log(each).durability for each in (log, child)} | {
                store.heads([log])[log].durability
            }
            assert found == ({wanted} if self.durable else {"memory"})
        assert {log.durability for _, log in store.logs()} == (
            {"full", "async"} if self.durable else {"memory"}
        )

    def test_what_is_not_yet_durable_is_there_all_the_same(self, opened: Opened) -> None:
        store, log = opened(), new_log()
        store.begin(log, sealed([SessionOpened(durability="async")], log))
        now = store.log(log)
        head = store.append(log, sealed([said("a")], log, 2, (now.head,)), after=now.head)
        store.append(log, sealed([said("b")], log, 3, (head,)), after=head, flush=True)
        store.flush()
        assert texts(store, log) == ["a", "b"] and verify(store) == [] and store.check() == []
        if self.durable:
            assert texts(opened(), log) == ["a", "b"]

    # the end

    def test_a_closed_store_says_so(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        store.close()
        for ask in (
            lambda: store.log(log),
            lambda: list(store.read(log)),
            lambda: store.put_blob(b"x"),
            lambda: store.put_blobs({digest_of(b"x"): b"x"}),
            lambda: store.missing_blobs([]),
            lambda: store.heads([log]),
            lambda: list(store.feed(reverse=True)),
            lambda: store.keep(log, 1, b"x"),
            lambda: store.kept(log, 1),
            lambda: store.all_kept(log),
            lambda: store.forget_kept(),
            lambda: extend(store, log, said("x")),
        ):
            try:
                ask()
            except StoreClosed:
                continue
            raise AssertionError("a closed store answered")

    def test_reopening_finds_everything(self, opened: Opened) -> None:
        if not self.durable:
            return
        store = opened(Tally())
        log = begin(store, said("kept"), ScratchSet("a", 1))
        blob, id = store.put_blob(b"kept"), store.id
        facts = store.log(log), store.rows("tally", "count")
        store.close()
        store = opened(Tally())
        assert (store.log(log), store.rows("tally", "count")) == facts
        assert store.id == id
        assert texts(store, log) == ["kept"]
        assert store.get_blob(blob) == b"kept"
        assert verify(store) == []

    def test_rows_missed_while_a_projection_was_away_are_made_up(self, opened: Opened) -> None:
        if not self.durable:
            return
        store = opened(Tally())
        log = begin(store, ScratchSet("a", 1))
        store.close()
        store = opened()  # somebody without the projection
        extend(store, log, ScratchSet("a", 2))
        store.close()
        assert [row["times"] for row in opened(Tally()).rows("tally", "count")] == [2]


def verify(store: Store) -> list[str]:
    return [str(fault) for fault in verify_store(store)]


def run_threads(jobs: Sequence[Callable[[], object]]) -> None:
    """Run the jobs at the same time, and raise what any of them raised."""
    errors: list[BaseException] = []
    gate = threading.Barrier(len(jobs))

    def run(job: Callable[[], object]) -> None:
        gate.wait()
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
