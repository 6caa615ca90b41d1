"""Law: after a run was taken or ended, nothing of its old holder's is written, in any log, and no
effect of its starts.

Holders, takeovers (also by who looked long before it takes, and who dies half-way), ends, forks of
forks and appends in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from plait import Session, open_store
from plait.errors import RunLost, StaleEpoch, StaleHead
from plait.event import kinds as k
from plait.event.kinds import Place
from plait.ids import LogId
from plait.journal.recorded_run import unmerged_branches
from plait.journal.stops import Halted
from plait.journal.writer import direct_writer
from plait.runs.take_up import write_resumed
from plait.runtime.appends import append_around_run
from plait.runtime.drivers.blocking import Blocking
from plait.runtime.run import Run
from plait.runtime.run_writer import RunWriter
from plait.session.ports import Act, Draft, Position
from plait.store import Store
from plait.store.epochs import EPOCH_KINDS
from tests.support import count as counted

_names = count(1)


class Holders(RuleBasedStateMachine):
    """Each holder knows only what it has seen itself."""

    logs = Bundle("logs")

    def address(self) -> str:
        return f"memory:fence-{next(_names)}"

    def __init__(self) -> None:
        super().__init__()
        self.store: Store = open_store(self.address())
        self.session = Session("go", store=self.store)
        self.id = str(direct_writer().source(self.store.address).fresh("run"))
        self.ordinals = count(1)
        self.looks: list[tuple[Run, int]] = []  # who looked, and what epoch there was
        self.holders: list[Run] = []  # the last one has the run, unless it ended
        self.over: dict[str, int] = {}  # by holder: the last commit before it was replaced
        first = self.new_run()
        spot = Position(
            self.store.address, self.session.id, self.session.seq, self.session.head, self.id
        )
        first.journal.append(spot, [self.draft(first, k.RunStarted("a:B"))])
        first.journal.fence.hold(1)
        self.holders.append(first)

    def new_run(self) -> Run:
        run = Run(self.id, self.session, direct_writer(), Blocking(), behalf="human:u")
        run.holder = f"holder-{next(self.ordinals)}"
        run.taker = f"service:{run.holder}"
        return run

    def draft(self, run: Run, body: k.Body) -> Draft:
        return Draft(body, Act(run.taker, "program"))

    def spot(self, log: str) -> Position:
        end = self.store.log(LogId(log))
        return Position(self.store.address, end.id, end.tip, end.head, self.id)

    def replaced(self, *but: Run) -> None:
        for run in self.holders:
            if run not in but:
                self.over.setdefault(run.taker, self.store.number)

    @property
    def is_open(self) -> bool:
        last = list(self.store.read(self.session.id, kinds=EPOCH_KINDS))[-1]
        return last.kind not in ("RunFinished", "RunFailed", "RunCancelled")

    # ── what a holder does ───────────────────────────────────────────────────────────────────

    def attempt(self, run: Run, act: Callable[[], object]) -> bool:
        """True if it was allowed; a replaced holder is refused every time."""
        try:
            act()
        except Halted as halted:
            assert isinstance(halted.error, RunLost) and run.taker in self.over
            return False
        assert run.taker not in self.over, "it was replaced, and acts"
        return True

    @rule(target=logs, data=st.data(), label=st.sampled_from("ab"))
    def fork(self, data: st.DataObject, label: str) -> str:
        run = data.draw(st.sampled_from(self.holders))
        parent = data.draw(st.sampled_from([log.id for _, log in self.store.logs()]))
        at = self.spot(parent)
        body = k.ForkedFrom(at.id, at.seq, f"{label}{next(self.ordinals)}")
        found: list[Position] = []
        fork = Place(at.id, at.seq, at.head)
        self.attempt(
            run,
            lambda: found.append(
                RunWriter(run).begin(
                    self.store.address, [self.draft(run, body)], fork=fork, run=self.id
                )
            ),
        )
        return found[0].id if found else self.session.id

    @rule(data=st.data(), times=st.integers(1, 3))
    def write(self, data: st.DataObject, times: int) -> None:
        run = data.draw(st.sampled_from(self.holders))
        log = data.draw(st.sampled_from([log.id for _, log in self.store.logs()]))
        drafts = [self.draft(run, k.ScratchSet("n", n)) for n in range(times)]
        self.attempt(run, lambda: run.journal.append(self.spot(log), drafts))

    @rule(log=logs, data=st.data())
    def write_where_the_head_is_stale(self, log: str, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.holders))
        end = self.spot(log)
        append_around_run(end, [Draft(k.ScratchSet("by others", 1), Act("human:other", "human"))])
        try:
            allowed = self.attempt(
                run, lambda: run.journal.append(end, [self.draft(run, k.ScratchSet("n", 1))])
            )
        except StaleHead:
            allowed = True
            assert run.taker not in self.over, (
                "who was replaced is told so, not that its value is stale"
            )
        assert not allowed or run.taker not in self.over

    @rule(data=st.data())
    def start_an_effect(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.holders))
        self.attempt(run, run.journal.fence.check)

    @rule()
    @precondition(lambda self: self.is_open)
    def finish(self) -> None:
        run = self.holders[-1]
        if self.attempt(
            run,
            lambda: run.journal.append(
                self.spot(self.session.id), [self.draft(run, k.RunFailed(k.Failure("E", "e")))]
            ),
        ):
            self.replaced(run)

    # ── who takes it ─────────────────────────────────────────────────────────────────────────

    @rule()
    def look(self) -> None:
        self.looks.append((self.new_run(), self.store.log(self.session.id).epoch))

    @rule(data=st.data(), all_branches=st.booleans())
    @precondition(lambda self: self.looks)
    def take(self, data: st.DataObject, all_branches: bool) -> None:
        index = data.draw(st.integers(0, len(self.looks) - 1))
        run, epoch = self.looks.pop(index)
        run.journal.fence.hold(epoch)
        now = self.store.log(self.session.id).epoch
        if epoch != now:
            with pytest.raises(StaleEpoch):
                write_resumed(run, self.store, self.session.id, epoch)
            assert self.store.log(self.session.id).epoch == now
            return
        write_resumed(run, self.store, self.session.id, epoch)
        run.journal.fence.hold(epoch + 1)
        self.replaced()
        self.holders.append(run)
        if all_branches:  # else it dies here, and the branches never hear of it
            for log in list(unmerged_branches(self.session.reload(), self.id)):
                write_resumed(run, self.store, log, epoch, branch=True)

    @rule()
    @precondition(lambda self: self.is_open)
    def end_from_outside(self) -> None:
        append_around_run(
            self.spot(self.session.id),
            [Draft(k.RunCancelled("enough", "human:boss"), Act("human:boss", "human"))],
        )
        self.replaced()

    # ── the law ──────────────────────────────────────────────────────────────────────────────

    @invariant()
    def nothing_of_who_was_replaced_is_written(self) -> None:
        for number, event in self.store.feed():
            assert number <= self.over.get(event.actor, number), (
                f"{event!r} by {event.actor}, who was replaced"
            )

    @invariant()
    def epochs_are_what_the_events_say(self) -> None:
        for _, log in self.store.logs():
            own = self.store.read(log.id, log.place + 1, kinds=EPOCH_KINDS)
            assert log.epoch == len(list(own))

    def teardown(self) -> None:
        counted("fence", self.store)
        self.store.close()


def test_nothing_of_a_holder_is_written_after_it_was_replaced() -> None:
    run_state_machine_as_test(Holders, settings=settings(stateful_step_count=40))
