"""The budgets that the branches of a run draw on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import ForkedFrom
from plait.ids import LogId
from plait.journal.journal import Journal
from plait.runtime.pool import Pool
from plait.session.grants import Grant, is_share, spent_under
from plait.session.state import NOTHING


class RunBudgets:
    """A pool for each log of a run that has a budget of its own."""

    def __init__(self, journal: Journal, clock: Callable[[], int]) -> None:
        self._journal = journal
        self._pools: dict[LogId, Pool] = {}
        self._outer: Pool | None = None  # of the run whose code started this one
        self._clock = clock

    def seconds(self) -> float:
        return self._clock() / 1e6

    def of(self, log: LogId) -> Pool | None:
        """Return the pool that a branch draws on: its own, else that of the nearest ancestor."""
        if not self._pools:  # as in most runs
            return None
        for each in self._journal.branches.lineage(log):
            if each in self._pools:
                return self._pools[each]
        return self._pools.get(self._journal.root)

    def set_root(self, pool: Pool | None) -> None:
        if pool is not None:
            self._pools[self._journal.root] = pool

    def draw_on(self, outer: Pool) -> None:
        """Let the run draw on the pool of the run whose code started it, too."""
        self._outer = outer
        own = self._pools.get(self._journal.root)
        above = (own, outer) if own is not None else outer
        self._pools[self._journal.root] = Pool(None, above=above, clock=self.seconds)

    def add_branch(self, forked: Event, address: str, parent: LogId) -> None:
        """Give a branch its share, less what it and its branches have spent on record."""
        body = forked.body
        if not isinstance(body, ForkedFrom) or body.budget is None:
            return
        spent, wall_s, recording = NOTHING, 0.0, self._journal.recording
        if not recording.is_live:
            grant = Grant(forked.id, forked.log, forked.seq, body.budget)
            spent = spent_under(self._journal.writer.store(address), grant)
            wall_s = recording.held_s(forked.log)
        self._pools[forked.log] = Pool(
            body.budget, spent=spent, wall_s=wall_s, above=self.of(parent), clock=self.seconds
        )

    def take_grants(self, events: Sequence[Event]) -> None:
        """Bound a log by a budget that was just granted.

        One from outside replaces what was left; one of the run's own code draws on it as well.
        """
        for event in events:
            if event.kind != k.BudgetSet.__name__:
                continue
            body = event.body
            assert isinstance(body, k.BudgetSet)
            store = self._journal.writer.store(self._journal.tips[event.log].store)
            above = self.of(event.log) if is_share(store, event) else self._outer
            self._pools[event.log] = Pool(body.budget, above=above, clock=self.seconds)
