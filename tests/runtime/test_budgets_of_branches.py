"""A budget bounds a session over all its runs and branches: what a branch spent is not given back
when the branch is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plait import Agent, Budget, ScriptedModel, Session, ToolCall, Workflow, resume, tool, whatif
from plait.errors import BudgetExceeded, InvalidValue
from plait.event.kinds import Price, Text, Usage
from plait.model.base import OnDelta, Reply, Request
from tests.support import RAN

_lock = threading.Lock()


@tool(effect="pure")
def look(n: int = 0) -> str:
    """Look at something."""
    with _lock:
        RAN.append(n)
    return "seen"


class Answering:
    """A model that answers at once, and says what that took."""

    name = "openai:gpt-4o"

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        self.asked += 1
        return Reply(
            (Text("an answer"),), (), "end", Usage(60, 40), self.name, Price(10_000_000, "test")
        )


class Dropping(Workflow):
    """Forks, uses a tool in each branch, and merges none."""

    def __init__(self, branches: int = 2, ends: str = "") -> None:
        self.branches, self.ends = branches, ends

    def forward(self, session: Session) -> Session:
        for n in range(self.branches):
            session.fork(f"try {n}").fork("deeper").use(look, n=n)
        if self.ends == "fails":
            raise ValueError("no use")
        return session


def attempt(act: Callable[[], object]) -> None:
    try:
        act()
    except (BudgetExceeded, ValueError):
        pass


@pytest.mark.parametrize("ends", ["", "fails"])
def test_branches_that_are_dropped_are_spent_in_the_next_run(ends: str) -> None:
    session = Session("go", budget=Budget(tool_calls_max=2))
    for _ in range(4):
        attempt(lambda: Dropping(2, ends)(session.reload()))
    assert len(RAN) == 2


def test_forks_made_outside_of_runs_share_what_is_left() -> None:
    session = Session("go", budget=Budget(tool_calls_max=2))
    for n in range(4):
        attempt(lambda n=n: Dropping(2)(session.fork(f"fork {n}")))
        attempt(lambda n=n: Dropping(2)(session.fork(f"deep {n}").fork("deeper")))
        attempt(lambda n=n: session.fork(f"use {n}").use(look, n=9))
    assert len(RAN) == 2


def test_shares_draw_on_what_they_are_a_share_of() -> None:
    session = Session("go", budget=Budget(tool_calls_max=3))
    share = Budget(tool_calls_max=2)
    Dropping(2)(session.fork("a", budget=share))
    assert len(RAN) == 2
    attempt(lambda: Dropping(5)(session.fork("b", budget=share)))
    assert len(RAN) == 3


def test_a_share_is_not_refunded_to_who_runs_it_again() -> None:
    share = Session("go", budget=Budget(tool_calls_max=9)).fork(
        "a", budget=Budget(tool_calls_max=2)
    )
    for _ in range(3):
        attempt(lambda: Dropping(2)(share.reload()))
    assert len(RAN) == 2


def test_a_rewind_gives_nothing_back() -> None:
    session = Session("go", budget=Budget(tool_calls_max=2))
    for _ in range(3):
        attempt(lambda: Dropping(1)(session.reload().rewind(1)))
    assert len(RAN) == 2


def test_forking_from_before_the_spend_gives_nothing_back() -> None:
    session = Session("go", budget=Budget(tool_calls_max=2))
    after = session.use(look, n=1).use(look, n=2)
    for place in (after.seq, 2, 3):
        attempt(lambda place=place: Dropping(1)(after.fork(at=place)))
        attempt(lambda: after.at(2).fork("early").fork("later").use(look))
    assert RAN == [1, 2]


def test_a_run_that_is_resumed_counts_its_branches_and_theirs() -> None:
    class Interrupted(Workflow):
        def forward(self, session: Session) -> Session:
            branch = session.fork("share", budget=Budget(tool_calls_max=2))
            branch.fork("a").use(look, n=1)
            branch.fork("b").use(look, n=2)
            session = session.use(stop)
            attempt(lambda: branch.fork("c").use(look, n=3))
            attempt(lambda: session.fork("d").use(look, n=4))
            attempt(lambda: session.fork("e").use(look, n=5))
            return session

    stops = [KeyboardInterrupt]

    @tool(effect="pure")
    def stop() -> str:
        """Stop the process, the first time."""
        if stops:
            raise stops.pop()
        return "on"

    start = Session("go", budget=Budget(tool_calls_max=4))
    with pytest.raises(KeyboardInterrupt):
        Interrupted()(start)
    resume(start, Interrupted())
    assert RAN == [1, 2, 4]


def test_a_what_if_spends_of_the_same_budget() -> None:
    agent = Agent("Look.", model=ScriptedModel([ToolCall("look", n=1), "done"]), tools=[look])
    session = agent(Session("go", budget=Budget(tool_calls_max=2)))
    for _ in range(3):
        whatif(
            session,
            agent,
            at=3,
            effects="live",
            model=ScriptedModel([ToolCall("look", n=2), "done"]),
        )
    assert RAN == [1, 2]


def test_a_what_if_can_be_given_a_budget_of_its_own() -> None:
    agent = Agent("Look.", model=ScriptedModel([ToolCall("look", n=1), "done"]), tools=[look])
    session = agent(Session("go", budget=Budget(tool_calls_max=1)))
    whatif(
        session, agent, at=3, effects="live", model=ScriptedModel([ToolCall("look", n=2), "done"])
    )
    assert RAN == [1]
    branch = whatif(
        session,
        agent,
        at=3,
        model=ScriptedModel([ToolCall("look", n=2), "done"]),
        budget=Budget(tool_calls_max=1),
    )
    assert RAN == [1, 2] and branch.budget.limits == Budget(tool_calls_max=1)


def test_a_grant_by_a_person_is_a_new_start() -> None:
    session = Session("go", budget=Budget(tool_calls_max=1))
    for _ in range(2):
        attempt(lambda: Dropping(1)(session.reload()))
    session = session.reload().budget.grant(Budget(tool_calls_max=2))
    for _ in range(4):
        attempt(lambda: Dropping(1)(session.reload()))
    assert len(RAN) == 3


def test_code_of_a_run_cannot_grant_itself_more() -> None:
    class Granting(Workflow):
        def forward(self, session: Session) -> Session:
            branch = session.fork("rich").budget.grant(Budget(tool_calls_max=100))
            attempt(lambda: branch.use(look))
            session = session.budget.grant(Budget(tool_calls_max=100))
            attempt(lambda: session.fork("more").use(look))
            return session

    session = Session("go", budget=Budget(tool_calls_max=2))
    for _ in range(3):
        attempt(lambda: Granting()(session.reload()))
    assert len(RAN) == 2


@pytest.mark.parametrize(
    ("budget", "most"),
    [(Budget(steps_max=3), 3), (Budget(tokens_max=1000), 10), (Budget(cost_usd_max=0.05), 5)],
)
def test_tokens_steps_and_dollars_are_bounded_alike(budget: Budget, most: int) -> None:
    model = Answering()

    class Asking(Workflow):
        def __init__(self) -> None:
            self.agent = Agent("Say.", model=model, parameters={"tokens_max": 40})

        def forward(self, session: Session) -> Session:
            self.agent(session.fork("lost"))
            return session

    session = Session("go", budget=budget)
    for n in range(20):
        attempt(lambda: Asking()(session.reload()))
        attempt(lambda n=n: Asking()(session.fork(f"f{n}")))
    assert 0 < model.asked <= most


def test_runs_on_forks_at_the_same_time_share_one_pool(tmp_path: Path) -> None:
    session = Session("go", budget=Budget(tool_calls_max=5), store=tmp_path / "store")
    forks = [session.fork(f"f{n}") for n in range(6)]
    with ThreadPoolExecutor(6) as threads:
        for fork in forks:
            threads.submit(attempt, lambda fork=fork: Dropping(3)(fork))
    assert len(RAN) == 5


def test_a_session_that_forward_opens_draws_on_the_budget_of_the_run_and_its_own() -> None:
    class Opening(Workflow):
        def forward(self, session: Session) -> Session:
            for n in range(4):
                attempt(lambda n=n: Session("other").use(look, n=n))
            return session

    Opening()(Session("go", budget=Budget(tool_calls_max=2)))
    assert RAN == [0, 1]
    other = Session("other", budget=Budget(tool_calls_max=1))

    class Reusing(Workflow):
        def forward(self, session: Session) -> Session:
            attempt(lambda: Dropping(1)(other.reload()))
            return session

    for _ in range(3):
        Reusing()(Session("go", budget=Budget(tool_calls_max=9)))
    assert RAN == [0, 1, 0]


def test_tools_used_outside_of_runs_are_bounded_and_the_refusal_is_on_record() -> None:
    session = Session("go", budget=Budget(tool_calls_max=1)).use(look, n=1)
    with pytest.raises(BudgetExceeded) as caught:
        session.use(look, n=2)
    assert RAN == [1] and [event.kind for event in caught.value.session.events][-2:] == [
        "BudgetRefused",
        "ToolFailed",
    ]


def test_a_successor_gets_what_all_branches_left() -> None:
    session = Session("go", budget=Budget(tool_calls_max=3, steps_max=5))
    Dropping(2)(session)
    after = session.reload()
    # of its own log alone: a value is a function of its place
    assert after.budget.left == Budget(tool_calls_max=3, steps_max=5)
    assert after.budget.left_now == Budget(tool_calls_max=1, steps_max=5)
    assert (
        after.successor().budget.limits
        == after.detach().budget.limits
        == Budget(tool_calls_max=1, steps_max=5)
    )


@pytest.mark.parametrize("hop", ["successor", "detach"])
def test_sessions_that_follow_one_spend_together_what_was_left(hop: str) -> None:
    session = Session("go", budget=Budget(tool_calls_max=3)).use(look)
    after = [getattr(session, hop)() for _ in range(3)]
    for each in after:
        assert each.budget.limits == Budget(tool_calls_max=2)
    for each in (
        *after,
        session,
        session.fork("side"),
        after[0].fork("side"),
        getattr(after[1].reload(), hop)(),
    ):
        attempt(lambda each=each: each.use(look).use(look))
    assert len(RAN) == 3
    assert (
        session.reload().budget.left_now
        == after[2].reload().budget.left_now
        == Budget(tool_calls_max=0)
    )
    assert getattr(session.reload(), hop)().budget.limits == Budget(tool_calls_max=0)


@pytest.mark.parametrize("hop", ["successor", "detach"])
def test_runs_on_sessions_that_follow_one_draw_on_one_pool(hop: str) -> None:
    session = Session("go", budget=Budget(tool_calls_max=4))
    after = [getattr(session, hop)() for _ in range(3)]
    for each in (*after, session):
        attempt(lambda each=each: Dropping(3)(each))
    assert len(RAN) == 4


def test_a_session_that_is_given_a_budget_has_that_and_no_more() -> None:
    session = Session("go", budget=Budget(tool_calls_max=1))
    rich = session.successor(budget=Budget(tool_calls_max=2))
    attempt(lambda: rich.use(look).use(look).use(look))
    assert len(RAN) == 2 and session.budget.left_now == Budget(tool_calls_max=1)
    poor = session.successor()
    granted = poor.budget.grant(Budget(tool_calls_max=5)).use(look)
    assert granted.budget.left_now == Budget(
        tool_calls_max=4
    ) and session.budget.left_now == Budget(tool_calls_max=1)


def test_what_a_successor_in_a_run_spends_stays_spent() -> None:
    class Following(Workflow):
        def forward(self, session: Session) -> Session:
            after = session.successor("go on", budget=Budget(tool_calls_max=100))
            attempt(lambda: after.use(look).use(look))
            return session

    session = Session("go", budget=Budget(tool_calls_max=3))
    for _ in range(3):
        attempt(lambda: Following()(session.reload()))
    assert len(RAN) == 3 and session.reload().budget.left_now == Budget(tool_calls_max=0)


def test_left_now_says_what_the_budget_allows() -> None:
    session = Session("go", budget=Budget(tool_calls_max=3))
    session.fork("dropped").use(look)
    assert (
        session.budget.left_now == Budget(tool_calls_max=2) == session.fork("other").budget.left_now
    )
    assert session.budget.left == Budget(tool_calls_max=3)  # what its own log leaves
    assert session.use(look).budget.left_now == Budget(tool_calls_max=1)
    assert Session("free").budget.left_now is None


@pytest.mark.parametrize("limit", ["cost_usd_max", "wall_s_max", "tokens_max"])
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), -1])
def test_what_is_no_limit_is_refused_with_the_word_for_none(limit: str, value: float) -> None:
    with pytest.raises(InvalidValue, match="None for no limit"):
        Session("go", budget=Budget(**{limit: value}))  # pyright: ignore[reportArgumentType]


def test_the_time_is_that_of_one_run() -> None:
    assert "one run" in (Budget.__doc__ or "")
