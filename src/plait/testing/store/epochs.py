"""Epochs: a run that was taken, or ended, takes nothing more from its old holder."""

from __future__ import annotations

from plait.errors import (
    StaleEpoch,
    UnknownLog,
)
from plait.event import Event
from plait.event.kinds import (
    Failure,
    ForkedFrom,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    SessionOpened,
)
from plait.ids import LogId
from plait.store import Fence
from plait.testing.store.durable import DurablePart
from plait.testing.writing import (
    Opened,
    begin,
    check_refused,
    extend,
    fork,
    message,
    new_log,
    run_threads,
    seal_events,
    texts,
    verify,
    wait_until_settled,
)


class EpochContract(DurablePart):
    def test_a_log_is_at_the_epoch_that_its_own_events_say(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, message("one"))
        assert store.log(log).epoch == 0
        marks = (
            RunStarted("a:B"),
            RunResumed("b", 1),
            RunFailed(Failure("E", "e")),
            RunResumed("c", 2),
            RunFinished(),
            RunCancelled(),
        )
        for epoch, body in enumerate(marks, 1):
            extend(store, log, message("no mark"), body)
            assert store.log(log).epoch == epoch
        extend(store, log, RunStarted("a:B"), RunResumed("b", 1), RunFinished())
        child = fork(store, log, 5)
        extend(store, child, RunResumed("b", 1, branch=True))
        whole = new_log()
        store.begin(whole, seal_events([SessionOpened(), RunStarted("a:B"), RunFinished()], whole))
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
                seal_events([message("held")], each, now.tip + 1, (now.head,)),
                after=now.head,
                fences=[mine],
            )
        extend(store, log, RunResumed("b", 1))
        for each in (log, other):
            now = store.log(each)
            late = seal_events([message("late")], each, now.tip + 1, (now.head,))
            for stale in ([mine], [Fence(log, 3)], [Fence(log, 2), Fence(other, 1)], [mine, mine]):
                with check_refused(StaleEpoch, store):
                    store.append(each, late, after=now.head, fences=stale)
            with check_refused(StaleEpoch, store):  # also where the head is another
                gone = seal_events(
                    [message("late")], each, now.tip, (store.event(now.head).header.parents[0],)
                )
                store.append(each, gone, after=gone[0].header.parents[0], fences=[mine])
            store.append(each, late, after=now.head, fences=[Fence(log, 2), Fence(other, 0)])
            extend(store, each, message("by others, who hold nothing"))
        assert texts(store, other) == ["held", "late", "by others, who hold nothing"]

    def test_begin_refuses_another_epoch(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, RunStarted("a:B"))
        point, child, root = store.log(log).head, new_log(), new_log()
        events = seal_events([ForkedFrom(log, 2)], child, 3, (point,))
        opening = seal_events([SessionOpened()], root)
        extend(store, log, RunResumed("b", 1))
        with check_refused(StaleEpoch, store):
            store.begin(child, events, parent=log, fences=[Fence(log, 1)])
        with check_refused(StaleEpoch, store):
            store.begin(root, opening, fences=[Fence(log, 1)])
        store.begin(child, events, parent=log, fences=[Fence(log, 2)])
        store.begin(root, opening, fences=[Fence(log, 2), Fence(child, 0)])
        assert store.log(child).epoch == 0
        extend(store, log, RunResumed("c", 2))
        with check_refused(StaleEpoch, store):  # stands, by a replaced holder
            store.begin(child, events, parent=log, fences=[Fence(log, 2)])
        store.begin(child, events, parent=log, fences=[Fence(log, 3)])

    def test_of_two_who_take_a_run_one_has_it(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, RunStarted("a:B"))
        now = store.log(log)
        one, other = (seal_events([RunResumed(name, 1)], log, 3, (now.head,)) for name in "ab")
        store.append(log, one, after=now.head, fences=[Fence(log, 1)])
        with check_refused(StaleEpoch, store):
            store.append(log, other, after=now.head, fences=[Fence(log, 1)])
        again = seal_events([RunResumed("b", 1)], log, 4, (one[-1].id,))
        with check_refused(StaleEpoch, store):
            store.append(log, again, after=one[-1].id, fences=[Fence(log, 1)])
        assert store.log(log).epoch == 2

    def test_the_same_append_twice_under_a_fence(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, RunStarted("a:B"))
        head = store.log(log).head
        taken = seal_events([RunResumed("a", 1)], log, 3, (head,))
        held = seal_events([message("held")], log, 4, (taken[-1].id,))
        # an unknown outcome is settled, also that of the append that raised the epoch
        for _ in range(2):
            assert store.append(log, taken, after=head, fences=[Fence(log, 1)]) == taken[-1].id
        for _ in range(2):
            assert (
                store.append(log, held, after=taken[-1].id, fences=[Fence(log, 2)]) == held[-1].id
            )
        extend(store, log, RunResumed("b", 2))
        with check_refused(StaleEpoch, store):
            store.append(log, taken, after=head, fences=[Fence(log, 1)])
        with check_refused(StaleEpoch, store):
            store.append(log, held, after=taken[-1].id, fences=[Fence(log, 2)])
        assert store.log(log).epoch == 3 and store.log(log).tip == 5

    def test_a_fence_on_a_log_that_is_not_there(self, opened: Opened) -> None:
        store = opened()
        log, gone = begin(store), new_log()
        now = store.log(log)
        with check_refused(UnknownLog, store):
            store.append(
                log,
                seal_events([message("x")], log, 2, (now.head,)),
                after=now.head,
                fences=[Fence(gone, 0)],
            )
        with check_refused(UnknownLog, store):
            other = new_log()
            store.begin(other, seal_events([SessionOpened()], other), fences=[Fence(gone, 0)])

    def test_nothing_of_a_holder_is_committed_after_it_was_replaced(self, opened: Opened) -> None:
        store = opened()
        log = begin(store, RunStarted("a:B"))
        branches = [fork(store, log, 2) for _ in range(4)]
        written: list[Event] = []

        def hold(branch: LogId) -> None:
            for i in range(40):
                now = store.log(branch)
                events = seal_events([message(str(i))], branch, now.tip + 1, (now.head,))
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
        wait_until_settled(store)
        numbers = {event.id: number for number, event in store.feed()}
        ((taken, _),) = store.feed(kinds={"RunResumed"})
        assert all(numbers[event.id] < taken for event in written)
        assert len(written) == sum(len(texts(store, branch)) for branch in branches)
