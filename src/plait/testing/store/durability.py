"""Durability: written events stand, and a closed store raises."""

from __future__ import annotations

from plait.errors import (
    StoreClosed,
)
from plait.event.kinds import (
    ScratchSet,
    SessionOpened,
)
from plait.store.blobs import digest_of
from plait.testing.projections import Tally
from plait.testing.store.durable import DurablePart
from plait.testing.writing import (
    Opened,
    begin,
    extend,
    fork,
    message,
    new_log,
    seal_events,
    texts,
    verify,
)


class DurabilityContract(DurablePart):
    def test_a_log_is_written_one_way_and_its_forks_likewise(self, opened: Opened) -> None:
        store = opened()
        for wanted in ("full", "async"):
            log = new_log()
            store.begin(log, seal_events([SessionOpened(durability=wanted)], log))
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
        store.begin(log, seal_events([SessionOpened(durability="async")], log))
        now = store.log(log)
        head = store.append(log, seal_events([message("a")], log, 2, (now.head,)), after=now.head)
        store.append(log, seal_events([message("b")], log, 3, (head,)), after=head, flush=True)
        store.flush()
        assert texts(store, log) == ["a", "b"] and verify(store) == [] and store.check() == []
        if self.durable:
            assert texts(opened(), log) == ["a", "b"]

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
            lambda: store.keep_snapshot(log, 1, b"x"),
            lambda: store.nearest_snapshot(log, 1),
            lambda: store.snapshots(log),
            lambda: store.drop_snapshots(),
            lambda: extend(store, log, message("x")),
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
        log = begin(store, message("kept"), ScratchSet("a", 1))
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
        store = opened()  # a process without the projection
        extend(store, log, ScratchSet("a", 2))
        store.close()
        assert [row["times"] for row in opened(Tally()).rows("tally", "count")] == [2]
