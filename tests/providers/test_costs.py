"""The cost of a session: in dollars where prices are known, unknown where not, an estimate where
a server does not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plait import Agent, Budget, ScriptedModel, Session, replay
from plait.calls.model_call import Retry
from plait.cli.progress import Progress
from plait.cli.run_totals import totals_of_last_run
from plait.errors import BudgetExceeded, InvalidValue
from plait.event import kinds as k
from plait.model.base import Fault, OnDelta, Reply, Request
from plait.model.openai import ChatModel
from plait.model.prices import TokenPrice
from plait.runtime import loop
from plait.session.state import Cost, Spent
from tests.providers.wire import Answer, Wire, sse, whole
from tests.support import bodies


def said(text: str, usage: dict[str, int] | None = None) -> Answer:
    body: dict[str, Any] = {
        "model": "m",
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
    }
    return whole({**body, **({"usage": usage} if usage is not None else {})})


Chat = Callable[..., ChatModel]


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Keep sessions without a store out of the project's own."""
    monkeypatch.setenv("PLAIT_STORE", str(tmp_path / ".plait"))


@pytest.fixture
def chat(wire: Wire) -> Iterator[Chat]:
    """Makes models that talk to the wire, and closes their connections."""
    models: list[ChatModel] = []

    def make(**more: Any) -> ChatModel:
        models.append(ChatModel("m", base_url=wire.url, **more))
        return models[-1]

    async def close() -> None:
        for model in models:
            await model.aclose()

    yield make
    loop.wait(loop.start(close()))


# ── how a cost looks ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("spent", "text", "dollars"),
    [
        (Spent(), "$0.0000", 0.0),
        (Spent(cost_usd_nano=12_300_000), "$0.0123", 0.0123),
        (Spent(cost_usd_nano=1234_500_000_000), "$1,234.5000", 1234.5),
        (Spent(cost_usd_nano=3_000), "$0.000003", 0.000003),
        (Spent(unpriced=2), "unknown", None),
        (Spent(cost_usd_nano=12_300_000, unpriced=1), "$0.0123 and 1 call unpriced", 0.0123),
        (Spent(cost_usd_nano=12_300_000, unpriced=2), "$0.0123 and 2 calls unpriced", 0.0123),
        (Spent(k.Usage(9, 1, estimated_tokens=10), 12_300_000), "~$0.0123", 0.0123),
    ],
)
def test_a_cost_is_plain_data_and_reads_well(
    spent: Spent, text: str, dollars: float | None
) -> None:
    assert str(spent.cost) == text and spent.cost.dollars == dollars
    document = json.loads(msgspec.json.encode(spent.cost))
    assert document["dollars"] == dollars and msgspec.convert(document, Cost) == spent.cost
    json.dumps(msgspec.to_builtins(spent.cost), allow_nan=False)


class Unpriced:
    name = "acme:mystery"

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        return Reply((k.Text("fine"),), usage=k.Usage(5, 1))


def test_diff_and_progress_say_unknown() -> None:
    progress = Progress(quiet=True)
    start = Session("go")
    session = Agent("x", model=Unpriced())(start, on_event=progress)
    assert session.budget.cost == Cost(None, 1)
    assert "6 tokens, unknown" in str(session.diff(start)) and "$0.0000" not in str(
        session.diff(session)
    )
    totals = totals_of_last_run(session)
    assert "cost unknown" in totals.text and totals.document()["cost_usd"] is None
    assert "unknown" in progress.line(80) and "$0.0000" not in progress.line(80)


# ── prices ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "price",
    [(0.5, 1.5), [0.5, 1.5], {"input": 0.5, "output": 1.5}, TokenPrice(0.5, 1.5), (0.5, 1.5, 0.5)],
)
def test_a_server_of_ones_own_has_the_price_it_is_given(price: Any, wire: Wire, chat: Chat) -> None:
    wire.play(said("Fine.", {"prompt_tokens": 1000, "completion_tokens": 200}))
    session = Agent("x", model=chat(price=price))(Session("go"))
    assert session.budget.cost == Cost(0.0008) and str(session.budget.cost) == "$0.0008"
    assert bodies(session, k.ModelReplied)[0].price.source.startswith("as given")


def test_cached_tokens_have_a_price_of_their_own() -> None:
    assert (
        TokenPrice(1.0, 2.0, cached=0.1)
        .price_of(k.Usage(1000, 10, cached_tokens=800))
        .cost_usd_nano
        == 300_000
    )


@pytest.mark.parametrize(
    "price",
    [
        1.0,
        "cheap",
        (1.0,),
        (1.0, -2.0),
        (1.0, 2.0, 3.0, 4.0),
        {"in": 1, "out": 2},
        (float("nan"), 1.0),
    ],
)
def test_what_is_no_price_is_refused_at_once(price: Any) -> None:
    with pytest.raises(InvalidValue, match="price"):
        ChatModel("m", base_url="http://127.0.0.1:1", price=price)


def test_a_budget_in_dollars_over_an_unpriced_model_says_what_to_do_before_the_spend(
    wire: Wire, chat: Chat
) -> None:
    agent = Agent("x", model=chat())
    with pytest.raises(
        BudgetExceeded, match=r"no price is known.*ChatModel\(…, price=.*tokens_max"
    ) as caught:
        agent(Session("go", budget=Budget(cost_usd_max=1)))
    assert wire.requests == [] and "grant more" not in str(caught.value)
    (refused,) = bodies(caught.value.session, k.BudgetRefused)
    assert refused.final and "no price is known" in refused.why
    assert replay(caught.value.session, agent).head == caught.value.session.head


def test_a_budget_in_dollars_binds_a_server_with_a_price(wire: Wire, chat: Chat) -> None:
    wire.play(*[said("Fine.", {"prompt_tokens": 1000, "completion_tokens": 0})] * 5)
    agent = Agent("x", model=chat(price=(10.0, 10.0)), parameters={"tokens_max": 10})
    session = Session("go", budget=Budget(cost_usd_max=0.025))
    with pytest.raises(BudgetExceeded, match="US dollars are left"):
        for _ in range(5):
            session = agent(session.say("more"))
    assert len(wire.requests) == 3


# ── servers that do not count ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 0, "completion_tokens": 0}])
@pytest.mark.parametrize("price", [None, (1.0, 1.0)])
def test_a_server_that_sends_no_usage_is_counted_by_an_estimate(
    usage: Any, price: Any, wire: Wire, chat: Chat
) -> None:
    wire.play(said("word " * 400, usage))
    session = Agent("Say much.", model=chat(price=price))(Session("go " * 400))
    used = session.budget.usage
    assert (
        used.output_tokens == 500
        and used.input_tokens >= 300
        and used.estimated_tokens == used.input_tokens + used.output_tokens
    )
    assert bodies(session, k.ModelReplied)[0].usage == used
    assert (
        str(session.budget.cost).startswith("~$0.00")
        if price
        else str(session.budget.cost) == "unknown"
    )
    assert "~" in str(session.diff())


def test_what_a_server_counts_is_kept_and_only_the_rest_estimated(wire: Wire, chat: Chat) -> None:
    wire.play(said("word " * 400, {"prompt_tokens": 77, "completion_tokens": 0}))
    session = Agent("x", model=chat())(Session("go"))
    assert session.budget.usage == k.Usage(77, 500, estimated_tokens=500)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 1000},
        {"prompt_tokens": 1000, "completion_tokens": 0},
        {"prompt_tokens": 1000, "completion_tokens": None},
        {"prompt_tokens": 1000, "completion_tokens": "many"},
        {"completion_tokens": 100},
        {"prompt_tokens": 0, "completion_tokens": 100},
    ],
)
def test_the_estimated_half_is_priced_too(usage: Any, wire: Wire, chat: Chat) -> None:
    wire.play(said("x" * 400, usage))
    model = chat(price=(1.0, 10.0))
    (replied,) = bodies(Agent("x", model=model)(Session("go " * 400)), k.ModelReplied)
    assert (
        replied.usage.estimated_tokens > 0
        and replied.usage.input_tokens > 0
        and replied.usage.output_tokens == 100
    )
    assert (
        replied.price == model.price_of(replied.usage) and replied.price.cost_usd_nano > 1_000_000
    )


def test_a_stream_without_usage_and_one_that_breaks_off_are_estimated(
    wire: Wire, chat: Chat
) -> None:
    piece: Any = {
        "model": "m",
        "choices": [{"delta": {"content": "word " * 400}, "finish_reason": None}],
    }
    end: Any = {
        "model": "m",
        "choices": [{"delta": {"role": "assistant"}, "finish_reason": "stop"}],
    }
    wire.play(sse(piece, piece).cut(after=1), sse(piece, end, "[DONE]"))
    agent = Agent("x", model=chat(), retry=Retry(attempts=2, wait_s=0.0))
    session = agent(Session("go"), on_event=lambda _: None)
    (failed,) = bodies(session, k.ModelFailed)
    assert failed.usage.output_tokens == 500 and failed.usage.estimated_tokens > 500
    assert (
        session.budget.usage.output_tokens == 1000 and session.budget.usage.estimated_tokens > 1000
    )


def test_a_budget_in_tokens_binds_on_estimates(wire: Wire, chat: Chat) -> None:
    wire.play(*[said("word " * 400)] * 10)
    agent = Agent("x", model=chat())
    session = Session("go", budget=Budget(tokens_max=2500))
    with pytest.raises(BudgetExceeded, match="tokens"):
        for _ in range(10):
            session = agent(session.say("more"))
    assert 2 <= len(wire.requests) <= 4


def test_an_attempt_that_was_turned_away_costs_nothing() -> None:
    model = ScriptedModel(
        [Fault("RateLimited", "slow down", retryable=True, retry_after_s=0.0), "Four."]
    )
    session = Agent("x", model=model)(Session("go"))
    assert (
        bodies(session, k.ModelFailed)[0].usage is None
        and session.budget.usage.estimated_tokens == 0
    )
