"""Budgets in runs: enforced before the spend, one pool for all branches, ended well, and never
given back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from plait import (
    Agent,
    Budget,
    Parallel,
    Parked,
    ScriptedModel,
    Session,
    ToolCall,
    Workflow,
    resume,
    tool,
)
from plait.errors import BudgetExceeded
from plait.event.kinds import (
    BudgetRefused,
    ModelAsked,
    ModelFailed,
    Price,
    Text,
    ToolRequested,
    Usage,
)
from plait.inside import Stop
from plait.model.base import OnDelta, Reply, Request
from plait.policy import Ask, Policy
from plait.runtime import spend
from plait.runtime.drivers.blocking import Blocking
from plait.runtime.invoke import invoke
from plait.runtime.sent import rebuild_prompt
from plait.runtime.spend import MORE_WORDS
from plait.session.value import open_run_of
from tests.support import RAN, assert_replays, bodies, turn_text


@tool(effect="pure")
def look(n: int = 0) -> str:
    """Look at something."""
    RAN.append(n)
    return "seen"


class Counting:
    """A model that never has enough, answers at length, and says what that took."""

    def __init__(
        self, output: int = 40, name: str = "scripted:counting", price: Price | None = None
    ) -> None:
        self.name, self.output, self.price = name, output, price
        self.asked: list[Request] = []
        self._lock = threading.Lock()

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        with self._lock:
            self.asked.append(request)
        used = Usage(len(msgspec.json.encode(request.turns)) // 8, self.output)
        if request.choice == "none":
            return Reply((Text("that is all"),), (), "end", used, self.name, self.price)
        return Reply(
            (), (ToolCall("look", n=len(request.turns)),), "calls", used, self.name, self.price
        )


def searcher(model: Any, **more: Any) -> Agent:
    return Agent(
        "Look.", model=model, tools=[look], name="searcher", parameters={"tokens_max": 40}, **more
    )


def tokens(session: Session) -> int:
    return session.budget.usage.input_tokens + session.budget.usage.output_tokens


# ── each limit ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [2, 3, 7])
def test_steps_are_never_more_and_the_last_is_an_answer(limit: int) -> None:
    model = Counting()
    session = searcher(model)(Session("go", budget=Budget(steps_max=limit)))
    assert len(model.asked) == limit == len(bodies(session, ModelAsked))
    assert session.budget.left is not None and session.budget.left.steps_max == 0
    assert session.text == "that is all" and model.asked[-1].choice == "none"
    (refused,) = bodies(session, BudgetRefused)
    assert (refused.limit, refused.final) == ("steps", False)
    assert "budget" in msgspec.json.encode(rebuild_prompt(session).turns).decode()
    assert_replays(session, searcher(model))
    assert len(model.asked) == limit


def note_texts(request: Request) -> list[str]:
    texts = [turn_text(turn) for turn in request.turns]
    return [text for text in texts if text.startswith("[plait]")]


def test_a_grant_takes_the_notes_to_answer_now_back() -> None:
    model, limit = Counting(), Budget(steps_max=2)
    made = searcher(model)
    session = made(Session("go", budget=limit))
    (told,) = note_texts(model.asked[-1])
    assert "nearly used up" in told and "Answer now" in told
    before = len(model.asked)
    session = made(session.budget.grant(Budget(steps_max=3)).say("more"))
    assert note_texts(model.asked[before]) == [f"[plait] {MORE_WORDS}"]
    assert model.asked[before].choice == "auto" and "nearly used up" in session.transcript()
    assert note_texts(model.asked[-1])[-1] == told, "it is told again when it is so again"
    asked = [event for event in session.events if event.kind == "ModelAsked"]
    assert rebuild_prompt(session, asked[before]).turns == model.asked[before].turns
    assert_replays(session, made)
    # a rewind gives no budget back, and takes no grant back
    before = len(model.asked)
    session = made(session.budget.grant(limit).rewind(asked[1].seq + 1).say("other"))
    assert note_texts(model.asked[before]) == [f"[plait] {MORE_WORDS}"]
    assert_replays(session, made)


def no_words(_: object) -> None:
    return None


def test_runs_replay_in_which_the_note_stayed_after_a_grant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Counting()
    made = searcher(model)
    session = made(Session("go", budget=Budget(steps_max=2)))
    with monkeypatch.context() as patch:  # as it was recorded before
        patch.setattr(spend, "_more_words", no_words)
        session = made(session.budget.grant(Budget(steps_max=3)).say("more"))
    assert "Answer now" in note_texts(model.asked[2])[0]
    assert_replays(session, made)


def test_a_single_step_that_wants_more_is_over() -> None:
    model = Counting()
    with pytest.raises(BudgetExceeded) as caught:
        searcher(model)(Session("go", budget=Budget(steps_max=1)))
    assert len(model.asked) == 1 and caught.value.limit == "steps"


@pytest.mark.parametrize("limit", [3000, 6000])
def test_tokens_are_never_more(limit: int) -> None:
    model = Counting()
    session = searcher(model)(Session("go", budget=Budget(tokens_max=limit)))
    assert session.text == "that is all" and 0 < tokens(session) <= limit
    assert bodies(session, BudgetRefused)[0].limit == "tokens"
    assert all(
        asked.reserved is not None and asked.reserved.output_tokens == 40
        for asked in bodies(session, ModelAsked)
    )
    assert_replays(session, searcher(model))


def test_money_is_never_more() -> None:
    model = Counting(name="openai:gpt-4o", price=Price(5_000_000, "test"))
    session = searcher(model)(Session("go", budget=Budget(cost_usd_max=0.05)))
    assert session.text == "that is all" and 0 < (session.budget.cost.dollars or 0) <= 0.05
    assert bodies(session, BudgetRefused)[0].limit == "cost_usd"


def test_a_price_that_nobody_knows_is_refused() -> None:
    model = Counting(name="acme:mystery")
    with pytest.raises(BudgetExceeded) as caught:
        searcher(model)(Session("go", budget=Budget(cost_usd_max=100)))
    assert model.asked == [] and caught.value.limit == "cost_usd"
    assert bodies(caught.value.session, ModelAsked) == []


def test_tool_calls_are_never_more_and_the_model_is_told() -> None:
    calls = [[ToolCall("look", n=n) for n in range(3)], ToolCall("look", n=9), "done"]
    agent = Agent("Look.", model=ScriptedModel(calls), tools=[look])
    session = agent(Session("go", budget=Budget(tool_calls_max=2)))
    assert sorted(RAN) == [0, 1] and session.text == "done"
    assert [each.failure and each.failure.kind for each in session.effects] == [
        None,
        None,
        "BudgetExceeded",
        "BudgetExceeded",
    ]
    assert "BudgetExceeded" in msgspec.json.encode(rebuild_prompt(session).turns).decode()
    assert len(bodies(session, BudgetRefused)) == 2
    assert_replays(session, agent)


def test_a_refusal_says_who_needs_what_and_where_the_rest_is() -> None:
    agent = Agent("Look.", model=Counting(), name="searcher", parameters={"tokens_max": 40})
    with pytest.raises(BudgetExceeded) as caught:
        agent(Session("go", budget=Budget(tokens_max=30)))
    told = str(caught.value)
    (refused,) = bodies(caught.value.session, BudgetRefused)
    prompt = int(refused.asked) - 40
    assert f"searcher needs {prompt + 40} tokens ({prompt} for its prompt, 40 for its" in told
    assert "27 of 30 tokens are left: 3 kept for a final answer" in told
    assert 'a smaller parameters={"tokens_max": …}' in told and "plait grant" in told
    assert refused.why in told and refused.final


class Uses(Workflow):
    def forward(self, session: Session) -> Session:
        for n in range(3):
            session = session.use(look, n=n)
        return session


def test_what_the_program_itself_does_is_counted_too() -> None:
    with pytest.raises(BudgetExceeded) as caught:
        Uses()(Session("go", budget=Budget(tool_calls_max=2)))
    assert RAN == [0, 1] and caught.value.limit == "tool_calls"
    session = caught.value.session
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            resume(session, Uses())
    assert RAN == [0, 1]
    session = resume(session.reload().budget.grant(Budget(tool_calls_max=5)), Uses())
    assert RAN == [0, 1, 2]
    assert_replays(session, Uses())


class Ticking(Blocking):
    """A clock that moves when a model is asked."""

    def __init__(self, seconds: float) -> None:
        self._each, self._now = int(seconds * 1e6), 0

    def clock(self) -> int:
        return self._now

    def ask(self, op: Any) -> Any:
        self._now += self._each
        return super().ask(op)


def test_time_is_up_before_the_next_ask() -> None:
    model, waiter = Counting(), Ticking(11)
    agent = searcher(model)
    call = agent.invocation(Session("go", budget=Budget(wall_s_max=60)))
    session = invoke(msgspec.structs.replace(call, waiter=waiter))
    # after 54 s only the answer is left
    assert session.text == "that is all" and len(model.asked) == 6
    assert bodies(session, BudgetRefused)[0].limit == "wall_s"
    assert_replays(session, agent)


# ── one pool ─────────────────────────────────────────────────────────────────────────────────


class Crowd(Workflow):
    def __init__(self, model: Any, size: int = 8) -> None:
        self.all = Parallel({f"w{n}": searcher(model) for n in range(size)})

    def forward(self, session: Session) -> Session:
        return self.all(session)


@pytest.mark.parametrize(
    "budget", [Budget(steps_max=20), Budget(tokens_max=4000), Budget(tool_calls_max=11)]
)
def test_branches_draw_on_one_pool(budget: Budget) -> None:
    model = Counting()
    session = Session("go", budget=budget, store="memory:pool")
    try:
        session = Crowd(model)(session)
    except Exception as error:
        assert isinstance(error.__cause__ or error, BudgetExceeded), error
        session = session.reload()
    if budget.steps_max is not None:
        assert len(model.asked) <= budget.steps_max
    if budget.tool_calls_max is not None:
        assert len(RAN) == budget.tool_calls_max
    if budget.tokens_max is not None:
        spent = sum(
            len(msgspec.json.encode(request.turns)) // 8 + model.output for request in model.asked
        )
        assert 0 < spent <= budget.tokens_max


class Forked(Workflow):
    def __init__(self, model: Any, of_branch: Budget) -> None:
        self.a, self.b, self._of_branch = searcher(model), searcher(model), of_branch

    def forward(self, session: Session) -> Session:
        branch = self.a(session.fork("side", budget=self._of_branch))
        return self.b(session.merge(branch))


def test_a_fork_has_a_budget_of_its_own_and_draws_on_the_runs() -> None:
    model = Counting()
    session = Forked(model, Budget(steps_max=3))(Session("go", budget=Budget(steps_max=10)))
    assert len(model.asked) == 10 and session.text == "that is all"  # 3 there, 7 here
    assert_replays(session, Forked(model, Budget(steps_max=3)))
    tight = Counting()
    with pytest.raises(BudgetExceeded):
        Forked(tight, Budget(steps_max=100))(Session("go", budget=Budget(steps_max=6)))
    assert len(tight.asked) == 6  # its grant is no way around the run's


class Back(Workflow):
    def __init__(self, model: Any) -> None:
        self.a, self.b = searcher(model, steps_max=2), searcher(model)

    def forward(self, session: Session) -> Session:
        start = session.seq
        session = self.a(session)
        return self.b(session.rewind(start, reason="again"))


def test_going_back_gives_nothing_back() -> None:
    model = Counting()
    session = Back(model)(Session("go", budget=Budget(steps_max=6)))
    assert (
        len(model.asked) == 6
        and session.budget.left is not None
        and session.budget.left.steps_max == 0
    )
    assert_replays(session, Back(model))


# ── resumed ──────────────────────────────────────────────────────────────────────────────────


class Ended(Stop):
    """The process ended, as it were.

    An interrupt that a model raises by itself, in whatever thread, is a fault of the model.
    """


class Breaking(Counting):
    """Ends the process, as it were, at these asks."""

    def __init__(self, *at: int) -> None:
        super().__init__()
        self._at = set(at)

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        reply = super().ask(request, on_delta)
        if len(self.asked) in self._at:
            raise Ended
        return reply


def until_done(
    begin: Callable[[], Session], session: Session, workflow: Workflow
) -> tuple[Session, int]:
    """Take it up as often as it breaks off."""
    times = 0
    while True:
        try:
            return (begin() if times == 0 else resume(session, workflow)), times
        except Ended:
            times += 1


@pytest.mark.parametrize("at", [(1,), (2,), (3, 4), (2, 4)])
def test_a_budget_survives_whoever_spends_it(at: tuple[int, ...]) -> None:
    model = Breaking(*at)
    start = Session("go", budget=Budget(steps_max=6))
    session, times = until_done(lambda: searcher(model)(start), start, searcher(model))
    assert times == len(at)
    # lost asks are spent
    assert (
        len(model.asked) == 6
        and session.budget.left is not None
        and session.budget.left.steps_max == 0
    )
    assert [each.failure.kind for each in bodies(session, ModelFailed)] == ["ProcessEnded"] * len(
        at
    )
    assert_replays(session, searcher(model))


def test_an_ask_that_was_lost_counts_what_was_set_aside() -> None:
    model = Breaking(2)
    start = Session("go", budget=Budget(tokens_max=5000))
    session, _ = until_done(lambda: searcher(model)(start), start, searcher(model))
    lost = next(body for body in bodies(session, ModelAsked)[1:2])
    (failed,) = bodies(session, ModelFailed)
    assert failed.usage == lost.reserved and lost.reserved.output_tokens == 40
    assert tokens(session) <= 5000
    assert_replays(session, searcher(model))


def test_branches_are_counted_when_they_are_taken_up_again() -> None:
    model = Breaking(9)
    start = Session("go", budget=Budget(steps_max=20))
    try:
        until_done(lambda: Crowd(model, 4)(start), start, Crowd(model, 4))
    except Exception as error:
        assert isinstance(error.__cause__ or error, BudgetExceeded), error
    assert 9 < len(model.asked) <= 20


def test_waiting_for_consent_spends_nothing() -> None:
    agent = Agent(
        "Look.",
        model=ScriptedModel([ToolCall("look", n=1), "done"]),
        tools=[look],
        policy=Policy(Ask("look")),
        parameters={"tokens_max": 9},
    )
    start = Session("go", budget=Budget(tool_calls_max=1, steps_max=3, tokens_max=1000))
    with pytest.raises(Parked) as caught:
        agent(start)
    session = caught.value.session
    for _ in range(3):
        with pytest.raises(Parked):
            resume(session, agent)
    session = resume(
        session.reload().inbox.approve(session.reload().inbox.waiting[0], actor="human:boss"), agent
    )
    assert RAN == [1] and session.text == "done" and len(bodies(session, ToolRequested)) == 1
    assert session.budget.left is not None and (
        session.budget.left.tool_calls_max,
        session.budget.left.steps_max,
    ) == (
        0,
        1,
    )


def test_when_nothing_is_left_it_is_over_until_more_is_granted() -> None:
    model = Counting()
    with pytest.raises(BudgetExceeded) as caught:
        searcher(model)(Session("go", budget=Budget(tokens_max=5)))
    session = caught.value.session
    assert (
        model.asked == []
        and bodies(session, BudgetRefused)[0].final
        and open_run_of(session) is None
    )
    with pytest.raises(BudgetExceeded):
        resume(session, searcher(model))
    assert model.asked == []
    session = resume(session.reload().budget.grant(Budget(tokens_max=1000)), searcher(model))
    assert session.text == "that is all" and tokens(session) <= 1000
    assert_replays(session, searcher(model))


def test_a_session_goes_on_with_what_the_run_before_left() -> None:
    model = Counting()
    session = searcher(model, steps_max=2)(Session("go", budget=Budget(steps_max=7)))
    assert len(model.asked) == 3
    session = searcher(model)(session.say("more"))
    assert len(model.asked) == 7
    with pytest.raises(BudgetExceeded):
        searcher(model)(session.say("and more"))
    assert len(model.asked) == 7


# ── what it cost ─────────────────────────────────────────────────────────────────────────────


class Paid:
    name = "scripted:paid"

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        return Reply(
            (Text("an answer"),), (), "end", Usage(30, 12), self.name, Price(7_000_000, "test")
        )


def test_what_it_cost_is_the_same_when_it_is_streamed() -> None:
    called = Agent("Say.", model=Paid())(Session("go"))
    streamed = [item for item in Agent("Say.", model=Paid()).stream(Session("go"))][-1]
    assert isinstance(streamed, Session)
    assert (
        called.budget.usage == streamed.budget.usage == Usage(30, 12)
        and called.budget.cost == streamed.budget.cost
        and streamed.budget.cost.dollars == 0.007
    )
