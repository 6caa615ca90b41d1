"""Acts over several logs: all of it or nothing."""

from __future__ import annotations

from plait.errors import (
    InvalidValue,
    LogExists,
    StaleEpoch,
    StaleHead,
    StaleReading,
    UnknownBlob,
    UnknownLog,
)
from plait.event import Event
from plait.event.kinds import FactRecorded, File, MessageSaid, RunStarted, ScratchSet
from plait.ids import LogId, house_of, inbox_of
from plait.store import Fence, LogAppend, ReadMark, Store, TipsMark, read_mark
from plait.store.blobs import digest_of
from plait.testing.projections import Tally
from plait.testing.store.durable import DurablePart
from plait.testing.writing import (
    Opened,
    begin,
    check_refused,
    extend,
    message,
    new_log,
    run_threads,
    seal_events,
    texts,
    verify,
    wait_until_settled,
)


def next_part(store: Store, log: LogId, *texts: str) -> LogAppend:
    """Return messages for the end of a log, which begins if it is not there."""
    now = store.heads([log]).get(log)
    bodies = [message(text) for text in texts]
    if now is None:
        return LogAppend(log, seal_events(bodies, log), None)
    return LogAppend(log, seal_events(bodies, log, now.tip + 1, (now.head,)), now.head)


class ActContract(DurablePart):
    def test_an_act_over_several_logs_is_one(self, opened: Opened) -> None:
        store = opened(Tally())
        one, two = begin(store), begin(store)
        inbox, house = inbox_of(one), house_of(store.id)
        before = wait_until_settled(store)
        parts = [next_part(store, log, f"to {log}", "more") for log in (house, two, inbox, one)]
        heads = store.append_all(parts)
        assert heads == [part.events[-1].id for part in parts]
        assert [store.log(part.log).head for part in parts] == heads
        wait_until_settled(store)
        feed = [event.id for _, event in store.feed(after=before)]
        assert feed == [event.id for part in parts for event in part.events]
        assert store.append_all(parts) == heads, "the very same act again"
        wait_until_settled(store)
        assert len(list(store.feed(after=before))) == 8
        extend(store, two, message("later"))
        assert store.append_all(parts) == heads, "also after others have written"
        assert texts(store, two) == [f"to {two}", "more", "later"]
        assert texts(store, inbox) == [f"to {inbox}", "more"]
        assert {log.id for _, log in store.logs()} == {one, two, inbox}
        assert verify(store) == []

    def test_a_log_may_have_several_parts_of_an_act(self, opened: Opened) -> None:
        store = opened(Tally())
        one, new = begin(store), new_log()
        before, now = wait_until_settled(store), store.log(one)
        own = seal_events([message(text) for text in "abcd"], one, now.tip + 1, (now.head,))
        begun = seal_events([message(text) for text in "wxyz"], new)
        blob = store.put_blob(b"attached")
        file = MessageSaid("user", (File("x", "text/plain", blob),))
        own += seal_events([file], one, own[-1].seq + 1, (own[-1].id,))
        merging = seal_events([message("m")], new, 5, (begun[-1].id, own[0].id))
        order = [own[:1], begun[:2], own[1:3], begun[2:], merging, own[3:]]
        ends = {one: now.head}
        parts: list[LogAppend] = []
        for events in order:
            log = events[0].log
            parts.append(LogAppend(log, events, ends.get(log)))
            ends[log] = events[-1].id
        with check_refused(InvalidValue, store):
            store.append_all([parts[0], parts[5]])
        for _ in range(2):
            assert store.append_all(parts) == [events[-1].id for events in order]
            wait_until_settled(store)
            feed = [event.id for _, event in store.feed(after=before)]
            assert feed == [event.id for events in order for event in events]
        assert (store.log(one).head, store.log(new).head) == (ends[one], ends[new])
        assert store.blob_info(blob).refs == 1
        late = seal_events([message("late")], one, own[-1].seq + 1, (own[-1].id,))
        extend(store, one, message("first"))
        other = next_part(store, new, "other")
        with check_refused(StaleHead, store):
            store.append_all([other, LogAppend(one, late, own[-1].id)])
        assert verify(store) == []

    def test_a_part_that_cannot_be_written_refuses_the_act(self, opened: Opened) -> None:
        store = opened(Tally())
        one, two = begin(store), begin(store)
        good, stale = next_part(store, one, "good"), next_part(store, two, "stale")
        extend(store, two, message("first"))
        for parts in ([good, stale], [stale, good]):
            with check_refused(StaleHead, store):
                store.append_all(parts)
        fresh = next_part(store, two, "good")
        begun = next_part(store, new_log(), "begins")
        store.begin(begun.log, seal_events([message("first")], begun.log))
        for parts in ([good, begun], [begun, good], [next_part(store, new_log(), "x"), begun]):
            with check_refused(LogExists, store):
                store.append_all(parts)
        missing = digest_of(b"missing")
        file = MessageSaid("user", (File("x", "text/plain", missing),))
        lacking = LogAppend(
            two,
            seal_events([file], two, fresh.events[0].seq, (fresh.after or missing,)),
            fresh.after,
        )
        with check_refused(UnknownBlob, store):
            store.append_all([good, lacking])
        poison = seal_events(
            [ScratchSet("a", 1), ScratchSet("poison", 1)],
            two,
            fresh.events[0].seq,
            (fresh.after or missing,),
        )
        if self.folds_inside:
            with check_refused(RuntimeError, store):
                store.append_all([good, LogAppend(two, poison, fresh.after)])
            assert store.rows("tally", "count") == []
        # half of an act that stands is another act
        store.append_all([good])
        with check_refused(StaleHead, store):
            store.append_all([good, fresh])
        assert store.append_all([lacking], blobs={missing: b"missing"})
        assert verify(store) == []

    def test_blobs_of_an_act_serve_all_its_parts(self, opened: Opened) -> None:
        store = opened()
        one, two = begin(store), begin(store)
        blob = digest_of(b"shared")
        file = MessageSaid("user", (File("x", "text/plain", blob),))

        def part(log: LogId) -> LogAppend:
            head = store.log(log).head
            return LogAppend(log, seal_events([file], log, 2, (head,)), head)

        store.append_all([part(one), part(two)], blobs={blob: b"shared"})
        assert store.get_blob(blob) == b"shared" and store.blob_info(blob).refs == 2
        assert verify(store) == []

    def test_the_fences_of_an_act(self, opened: Opened) -> None:
        store = opened()
        one, two = begin(store), begin(store)
        parts = [next_part(store, two, "a"), next_part(store, inbox_of(two), "b")]
        extend(store, one, RunStarted("m:W"))
        with check_refused(StaleEpoch, store):
            store.append_all(parts, fences=[Fence(one, 0)])
        store.append_all(parts, fences=[Fence(one, 1)])
        head, tip = store.log(one).head, store.log(one).tip
        start = LogAppend(one, seal_events([RunStarted("m:W")], one, tip + 1, (head,)), head)
        act = [start, next_part(store, two, "c")]
        store.append_all(act, fences=[Fence(one, 1)])
        store.append_all(act, fences=[Fence(one, 1)])  # its own events raised the epoch
        assert store.log(one).epoch == 2
        with check_refused(StaleEpoch, store):
            store.append_all([next_part(store, two, "d")], fences=[Fence(one, 1)])
        assert verify(store) == []

    def test_the_reading_of_an_act(self, opened: Opened) -> None:
        """An act may rest on there being no event of some kinds, in any log, that it has not
        read.
        """
        store = opened()
        one, two = begin(store), begin(store)
        number, facts = wait_until_settled(store), frozenset({FactRecorded.__name__})
        extend(store, two, message("of another kind"))
        parts = [next_part(store, one, "a")]
        store.append_all(parts, reading=ReadMark(number, facts))
        extend(store, two, FactRecorded("k", 1, "fact"))
        assert store.append_all(parts, reading=ReadMark(number, facts)), "it stands"
        late = [next_part(store, one, "b")]
        with check_refused(StaleReading, store):
            store.append_all(late, reading=ReadMark(number, facts))
        mark = read_mark(store, facts)
        store.append_all(late, reading=mark)
        assert verify(store) == []

    def test_a_reading_names_what_was_seen_and_not_settled(self, opened: Opened) -> None:
        store = opened()
        one, two = begin(store), begin(store)
        number, facts = wait_until_settled(store), frozenset({FactRecorded.__name__})
        seen = [extend(store, two, FactRecorded(f"k{i}", i, "fact"))[0].id for i in range(3)]
        numbers = frozenset([store.number_of(id) or 0 for id in seen])
        store.append_all([next_part(store, one, "a")], reading=ReadMark(number, facts, numbers))
        for some in (numbers - {min(numbers)}, numbers - {max(numbers)}, frozenset[int]()):
            with check_refused(StaleReading, store):
                store.append_all(
                    [next_part(store, one, "b")], reading=ReadMark(number, facts, some)
                )
        extend(store, two, FactRecorded("later", 1, "fact"))
        with check_refused(StaleReading, store):
            store.append_all([next_part(store, one, "b")], reading=ReadMark(number, facts, numbers))
        assert verify(store) == []

    def test_a_reading_of_some_logs_alone(self, opened: Opened) -> None:
        store = opened()
        one, two, three = begin(store), begin(store), begin(store)
        facts = frozenset({FactRecorded.__name__})
        tips = {one: store.log(one).tip, two: store.log(two).tip}
        mark = TipsMark(facts, {**tips, inbox_of(one): 0})
        extend(store, three, FactRecorded("elsewhere", 1, "fact"))
        extend(store, two, message("of another kind"))
        parts = [next_part(store, one, "a")]
        store.append_all(parts, reading=mark)
        extend(store, two, FactRecorded("here", 1, "fact"))
        assert store.append_all(parts, reading=mark), "it stands"
        with check_refused(StaleReading, store):
            store.append_all([next_part(store, one, "b")], reading=mark)

    def test_a_reading_of_logs_that_are_all_there(self, opened: Opened) -> None:
        """One that finds the same tips is the common one, and may be asked in another way."""
        store = opened()
        one, two = begin(store), begin(store)
        facts = frozenset({FactRecorded.__name__})

        def mark_now() -> TipsMark:
            return TipsMark(facts, {log: store.log(log).tip for log in (one, two)})

        mark, parts = mark_now(), [next_part(store, one, "a")]
        store.append_all(parts, reading=mark)
        assert store.append_all(parts, reading=mark), "it stands"
        late = [next_part(store, one, "b")]
        extend(store, one, message("first"))
        with check_refused(StaleHead, store):
            store.append_all(late, reading=mark)
        mark = mark_now()
        extend(store, two, message("of another kind"))
        store.append_all([next_part(store, one, "c")], reading=mark)
        start = next_part(store, one, "d")
        extend(store, two, FactRecorded("here", 1, "fact"))
        with check_refused(StaleReading, store):
            store.append_all([start], reading=mark)
        with check_refused(StaleEpoch, store):
            store.append_all([start], reading=mark_now(), fences=[Fence(two, 7)])
        store.append_all([start], reading=mark_now(), fences=[Fence(two, 0)])
        assert verify(store) == []

    def test_a_reading_of_a_log_that_began_meanwhile(self, opened: Opened) -> None:
        store = opened()
        one = begin(store)
        facts, inbox = frozenset({FactRecorded.__name__}), inbox_of(one)
        mark = TipsMark(facts, {inbox: 0})
        fact = seal_events([FactRecorded("k", 1, "fact")], inbox)
        store.append_all([LogAppend(inbox, fact, None)])
        with check_refused(StaleReading, store):
            store.append_all([next_part(store, one, "a")], reading=mark)

    def test_of_two_acts_that_read_each_other_one_is_refused(self, opened: Opened) -> None:
        """Each act writes the kind that the other one must not find."""
        store = opened()
        facts, notes = frozenset({FactRecorded.__name__}), frozenset({ScratchSet.__name__})
        for _ in range(10):
            log = begin(store)
            inbox, done = inbox_of(log), list[str]()
            now = store.log(log)
            tips = {log: now.tip, inbox: 0}
            marks = TipsMark(facts, tips), TipsMark(notes, tips)
            fact = seal_events([FactRecorded("k", 1, "fact")], log, now.tip + 1, (now.head,))
            note = seal_events([ScratchSet("k", 1)], inbox)

            def act(part: LogAppend, mark: TipsMark, done: list[str] = done) -> None:
                try:
                    store.append_all([part], reading=mark)
                    done.append(part.log)
                except StaleReading:
                    pass

            acts = [
                (LogAppend(inbox, note, None), marks[0]),
                (LogAppend(log, fact, now.head), marks[1]),
            ]
            run_threads([lambda each=each, act=act: act(*each) for each in acts])
            assert len(done) == 1

    def test_acts_that_make_no_sense_are_refused(self, opened: Opened) -> None:
        store = opened()
        one = begin(store)
        good = next_part(store, one, "good")
        unsealed: list[Event] = []
        wrong_place = seal_events([message("x")], one, 9, (good.after or good.events[0].id,))
        for parts in (
            [],
            [good, good],
            [LogAppend(one, unsealed, good.after)],
            [LogAppend(new_log(), good.events, None)],
            [LogAppend(one, wrong_place, good.after)],
        ):
            with check_refused(InvalidValue, store):
                store.append_all(parts)
        unknown = new_log()
        events = seal_events([message("x")], unknown, 2, (good.events[0].id,))
        with check_refused(UnknownLog, store):
            store.append_all([good, LogAppend(unknown, events, good.events[0].id)])

    def test_acts_of_many_threads_cross_without_loss(self, opened: Opened) -> None:
        store = opened()
        logs = [begin(store) for _ in range(3)]

        def act(name: str) -> None:
            for i in range(15):
                order = logs if i % 2 else logs[::-1]
                while True:
                    try:
                        store.append_all([next_part(store, log, f"{name} {i}") for log in order])
                        break
                    except StaleHead:
                        continue

        run_threads([lambda name=name: act(name) for name in ("a", "b", "c")])
        said = [texts(store, log) for log in logs]
        assert said[0] == said[1] == said[2] and len(said[0]) == 45
        assert verify(store) == []
