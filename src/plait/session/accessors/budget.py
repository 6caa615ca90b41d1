"""The budget of a session: its limits, the amounts used, and the amounts left."""

from __future__ import annotations

from plait.event.kinds import Budget, BudgetSet, Usage
from plait.session.accessors.view import SessionView
from plait.session.appending import append_to
from plait.session.arguments import check_budget
from plait.session.grants import budget_left
from plait.session.state import Cost, Spent
from plait.session.value import S


class SessionBudget(SessionView[S]):
    """Limits, amounts used and amounts left of a session."""

    __slots__ = ()

    @property
    def limits(self) -> Budget | None:
        """The budget that was granted. None: unlimited."""
        return self._core.state.budget

    @property
    def used(self) -> Spent:
        """Tokens, calls and cost of every event counted here once: its own log, rewound parts too,
        and merged branches.
        """
        return self._core.state.spent

    @property
    def usage(self) -> Usage:
        """The tokens of `used`, by kind."""
        return self._core.state.spent.usage

    @property
    def cost(self) -> Cost:
        """The cost of asking models, in US dollars.

        `dollars` is None where no price is known; `unpriced` counts calls without one.
        """
        return self._core.state.spent.cost

    @property
    def left(self) -> Budget | None:
        """The budget that the session's own log and its merges leave at this place. None:
        unlimited.

        A value cannot know of branches that were never merged: `left_now` counts them.
        """
        return self._core.state.budget_left

    @property
    def left_now(self) -> Budget | None:
        """The budget that may still be spent, in the store as it is now. None: unlimited.

        Branches that were never merged and sessions that follow this one count, as they do when a
        call is charged.
        """
        core = self._core
        return budget_left(core.store, core.position.id, core.position.seq, core.state.budget_left)

    def grant(self, budget: Budget, *, actor: str | None = None) -> S:
        """Grant a budget from here on, in place of the rest of the one before."""
        check_budget(budget)
        return append_to(self._session, BudgetSet(budget), "be granted a budget", actor=actor)
