"""The budgets that the branches of a run draw on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plait.event import Event
from plait.event import kinds as k
from plait.event.kinds import ForkedFrom
from plait.ids import LogId
from plait.journal.journal import Journal
from plait.journal.standing import Standing
from plait.runtime.budgets import SharedBudget
from plait.session.grants import Grant, is_share, spent_under
from plait.session.state import NOTHING


class RunBudgets:
    """A budget for each log of a run that has a budget of its own."""

    def __init__(self, journal: Journal, clock: Callable[[], int]) -> None:
        self._journal = journal
        self._budgets: dict[LogId, SharedBudget] = {}
        self._outer: SharedBudget | None = None  # of the run by which this one was started
        self._clock = clock

    def seconds(self) -> float:
        return self._clock() / 1e6

    def of(self, log: LogId) -> SharedBudget | None:
        """Return the budget that a branch draws on: its own, else that of the nearest ancestor."""
        if not self._budgets:  # as in most runs
            return None
        for each in self._journal.branches.lineage(log):
            if each in self._budgets:
                return self._budgets[each]
        return self._budgets.get(self._journal.root)

    def set_root(self, budget: SharedBudget | None) -> None:
        if budget is not None:
            self._budgets[self._journal.root] = budget

    def draw_on(self, outer: SharedBudget) -> None:
        """Let the run draw on a second budget, that of the run by which it was started."""
        self._outer = outer
        own = self._budgets.get(self._journal.root)
        above = (own, outer) if own is not None else outer
        self._budgets[self._journal.root] = SharedBudget(None, above=above, clock=self.seconds)

    def add_branch(self, forked: Event, address: str, parent: LogId) -> None:
        """Give a branch its share, less the recorded spend of it and its branches."""
        body = forked.body
        if not isinstance(body, ForkedFrom) or body.budget is None:
            return
        spent, wall_s = NOTHING, 0.0
        if self._journal.standing_of(forked) is not Standing.LIVE:
            grant = Grant(forked.id, forked.log, forked.seq, body.budget)
            spent = spent_under(self._journal.writer.store(address), grant)
            wall_s = self._journal.held_s(forked.log)
        self._budgets[forked.log] = SharedBudget(
            body.budget, spent=spent, wall_s=wall_s, above=self.of(parent), clock=self.seconds
        )

    def take_grants(self, events: Sequence[Event]) -> None:
        """Bound a log by a budget that was just granted.

        A grant from outside replaces the old budget; one of the run's own code also draws on it.
        """
        for event in events:
            if event.kind != k.BudgetSet.__name__:
                continue
            body = event.body
            assert isinstance(body, k.BudgetSet)
            store = self._journal.writer.store(self._journal.tips[event.log].store)
            above = self.of(event.log) if is_share(store, event) else self._outer
            self._budgets[event.log] = SharedBudget(body.budget, above=above, clock=self.seconds)
