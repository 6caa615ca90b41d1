"""Appending: logs, forks, and many writers at once."""

from __future__ import annotations

from plait.errors import (
    InvalidValue,
    LogExists,
    StaleHead,
    UnknownBlob,
    UnknownEvent,
    UnknownLog,
)
from plait.event.kinds import (
    ForkedFrom,
    RunStarted,
    ScratchSet,
    SessionOpened,
)
from plait.ids import Digest, LogId
from plait.store import HeadsQuestion
from plait.testing.projections import Tally
from plait.testing.seeded import Seeded
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
    run_threads,
    seal_events,
    texts,
    verify,
    wait_until_settled,
)


class AppendContract(DurablePart):
    def test_what_is_begun_can_be_read(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, message("one"), message("two"))
        events = list(store.read(log))
        assert [event.seq for event in events] == [1, 2, 3]
        assert texts(store, log) == ["one", "two"]
        assert store.log(log).head == events[-1].id
        assert store.log(log).tip == 3

    def test_an_append_moves_the_head(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        (event,) = extend(store, log, message("one"))
        assert store.log(log).head == event.id
        assert store.event(event.id).content == event.content

    def test_append_refuses_a_stale_head(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        stale = store.log(log).head
        extend(store, log, message("first"))
        late = seal_events([message("late")], log, 2, (stale,), source=Seeded(1))
        with check_refused(StaleHead, store):
            store.append(log, late, after=stale)
        assert texts(store, log) == ["first"]

    def test_the_same_append_twice_changes_nothing(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        head = store.log(log).head
        events = seal_events([message("once"), message("again")], log, 2, (head,))
        assert store.append(log, events, after=head) == events[-1].id
        number = wait_until_settled(store)
        assert store.append(log, events, after=head) == events[-1].id
        extend(store, log, message("later"))
        assert store.append(log, events, after=head) == events[-1].id
        wait_until_settled(store)
        assert len(list(store.feed(number))) == 1
        assert texts(store, log) == ["once", "again", "later"]

    def test_the_same_beginning_twice_changes_nothing(self, opened: Opened) -> None:
        store = opened()
        log = new_log()
        events = seal_events([SessionOpened(), message("one")], log)
        assert store.begin(log, events) == store.begin(log, events)
        assert len(numbers_of(store)) == 2

    def test_begin_refuses_an_id_that_is_taken(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, message("kept"))
        with check_refused(LogExists, store):
            store.begin(log, seal_events([SessionOpened(title="other")], log, source=Seeded(1)))
        assert texts(store, log) == ["kept"]

    def test_append_refuses_what_does_not_follow(self, opened: Opened) -> None:
        store = opened()
        log, other = begin(store), begin(store)
        head = store.log(log).head
        with check_refused(InvalidValue, store):
            store.append(log, [], after=head)
        with check_refused(InvalidValue, store):
            store.append(log, seal_events([message("gap")], log, 4, (head,)), after=head)
        with check_refused(InvalidValue, store):
            store.append(
                log, seal_events([message("stray")], log, 2, (store.log(other).head,)), after=head
            )
        with check_refused(InvalidValue, store):
            store.append(log, seal_events([message("foreign")], other, 2, (head,)), after=head)
        with check_refused(InvalidValue, store):
            pair = seal_events([message("a"), message("b"), message("c")], log, 2, (head,))
            store.append(log, [pair[0], pair[2]], after=head)

    def test_unknown_things_are_typed_errors(self, opened: Opened) -> None:
        store = opened()
        log, event = new_log(), Digest("0" * 64)
        for ask in (
            lambda: store.log(log),
            lambda: store.read(log),
            lambda: list(store.records(log)),
        ):
            with check_refused(UnknownLog, store):
                ask()
        with check_refused(UnknownLog, store):
            store.append(log, seal_events([message("x")], log, 2, (event,)), after=event)
        with check_refused(UnknownEvent, store):
            store.event(event)
        with check_refused(UnknownBlob, store):
            store.get_blob(event)
        with check_refused(InvalidValue, store):
            store.log(LogId("../../etc/passwd"))
        with check_refused(InvalidValue, store):
            store.event(Digest("' OR 1=1 --"))

    def test_a_fork_reads_through_its_lineage(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, message("one"), message("two"), message("three"))
        child = fork(store, log, 3)
        extend(store, child, message("mine"))
        extend(store, log, message("yours"))
        assert texts(store, child) == ["one", "two", "mine"]
        assert texts(store, log) == ["one", "two", "three", "yours"]
        assert [event.seq for event in store.read(child)] == [1, 2, 3, 4, 5]
        assert (store.log(child).parent, store.log(child).place) == (log, 3)

    def test_a_fork_below_the_fork_point(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, message("one"), message("two"), message("three"))
        child = fork(store, log, 4)
        extend(store, child, message("four"))
        low = fork(store, child, 2)
        extend(store, low, message("other"))
        assert texts(store, low) == ["one", "other"]

    def test_a_long_chain_of_forks(self, opened: Opened) -> None:
        store = opened()
        log = begin(store)
        for i in range(60):
            extend(store, log, message(str(i)))
            log = fork(store, log, store.log(log).tip)
        store.close()
        store = opened() if self.durable else store
        if self.durable:
            assert texts(store, log) == [str(i) for i in range(60)]
            assert [event.seq for event in store.read(log, 50, 70)] == list(range(50, 71))

    def test_begin_refuses_a_fork_from_nowhere(self, opened: Opened) -> None:
        store = opened()
        log, child = begin(store, message("one")), new_log()
        head = store.log(log).head
        for place, parents, parent in (
            (9, (head,), log),
            (1, (head,), log),
            (2, (head,), None),
            (2, (Digest("1" * 64),), log),
        ):
            with check_refused(InvalidValue, store):
                store.begin(
                    child,
                    seal_events([ForkedFrom(log, place)], child, place + 1, parents),
                    parent=parent,
                )
        with check_refused(UnknownLog, store):
            store.begin(
                child, seal_events([ForkedFrom(log, 2)], child, 3, (head,)), parent=new_log()
            )

    def test_a_fork_says_where_it_comes_from(self, opened: Opened) -> None:
        """A write that verify would call tampering is refused."""
        store = opened()
        log, other, child = begin(store, message("one")), begin(store, message("one")), new_log()
        head = store.log(log).head
        for body in (ForkedFrom(log, 1), ForkedFrom(other, 2), message("not a word of it")):
            with check_refused(InvalidValue, store):
                store.begin(child, seal_events([body], child, 3, (head,)), parent=log)
        with check_refused(InvalidValue, store):
            store.begin(child, seal_events([ForkedFrom(log, 2)], child))
        with check_refused(InvalidValue, store):
            extend(store, log, ForkedFrom(log, 2))

    def test_threads_on_logs_of_their_own(self, opened: Opened) -> None:
        store = opened()
        logs = [begin(store) for _ in range(16)]
        run_threads(
            [
                lambda log=log: [extend(store, log, message(str(i))) for i in range(25)]
                for log in logs
            ]
        )
        for log in logs:
            assert texts(store, log) == [str(i) for i in range(25)]
        numbers = numbers_of(store)
        assert numbers == sorted(set(numbers)) and len(numbers) == 16 * 26
        assert not self.dense or numbers == list(range(1, 16 * 26 + 1))
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
                    events = seal_events(
                        [message(f"{name}/{i}")], log, now.tip + 1, (now.head,), source=source
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
        if not self.folds_inside:
            return  # no append of others can fail in the same transaction
        store = opened(Tally())
        good, bad = begin(store), begin(store)
        failed: list[Exception] = []

        def spoil() -> None:
            for _ in range(20):
                try:
                    extend(store, bad, ScratchSet("poison", 1))
                except RuntimeError as error:
                    failed.append(error)

        run_threads([lambda: [extend(store, good, message(str(i))) for i in range(50)], spoil])
        assert texts(store, good) == [str(i) for i in range(50)]
        assert len(failed) == 20
        assert store.log(bad).tip == 1

    def test_an_append_may_say_how_logs_stand(self, opened: Opened) -> None:
        store = opened()
        log, other, unknown = begin(store), begin(store), new_log()
        child = fork(store, other, 1)
        extend(store, other, message("one"))
        question = HeadsQuestion([log, other, child, unknown, log])
        assert question.logs == (log, other, child, unknown)
        before = store.log(log)
        events = seal_events([RunStarted("w", Digest("0" * 64))], log, 2, (before.head,))
        store.append(log, events, after=before.head, question=question)
        if question.answer is not None:  # None: the store leaves it to `heads`
            assert dict(question.answer) == store.heads(question.logs)
            assert question.answer[log].epoch == 1
        refused = HeadsQuestion([log])
        late = seal_events([message("late")], log, 2, (before.head,))
        with check_refused(StaleHead, store):
            store.append(log, late, after=before.head, question=refused)
        assert refused.answer is None
