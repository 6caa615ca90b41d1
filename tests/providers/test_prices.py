"""Prices come from a list that names its version; what is not on it has none."""

from __future__ import annotations

import re
import sys

import pytest

from plait.event.kinds import Usage
from plait.model.prices import FREE, price_of

KNOWN = [
    ("anthropic", "claude-sonnet-5-5"),
    ("anthropic", "claude-haiku-4-5"),
    ("anthropic", "claude-opus-4-5-20251101"),
    ("openai", "gpt-5"),
    ("openai", "gpt-5-mini"),
    ("openai", "gpt-4.1"),
]
USAGE = Usage(input_tokens=10_000, output_tokens=500)

known = pytest.mark.parametrize(("provider", "model"), KNOWN)


def cost(provider: str, model: str, usage: Usage, *, cache_written_tokens: int = 0) -> int:
    price = price_of(provider, model, usage, cache_written_tokens=cache_written_tokens)
    assert price is not None
    return price.cost_usd_nano


@known
def test_a_known_model_has_a_price_by_a_named_list(provider: str, model: str) -> None:
    price = price_of(provider, model, USAGE)
    assert price is not None and price.cost_usd_nano > 0
    assert re.fullmatch(r"genai-prices \d+\.\d+(\.\d+)*", price.source)


@known
def test_more_costs_more_and_what_was_cached_less(provider: str, model: str) -> None:
    plain = cost(provider, model, USAGE)
    assert cost(provider, model, Usage(20_000, 500)) > plain
    assert cost(provider, model, Usage(10_000, 1000)) > plain
    assert 0 < cost(provider, model, Usage(10_000, 500, cached_tokens=8000)) < plain


def test_cached_tokens_are_part_of_the_input_not_on_top() -> None:
    all_cached = Usage(10_000, 0, cached_tokens=10_000)
    assert cost("anthropic", "claude-haiku-4-5", all_cached) == 10_000 * 100  # 0.10 USD per million
    assert cost("anthropic", "claude-haiku-4-5", Usage(10_000)) == 10_000 * 1000


def test_writing_to_the_cache_costs_more_than_reading_anew() -> None:
    plain = cost("anthropic", "claude-haiku-4-5", USAGE)
    assert cost("anthropic", "claude-haiku-4-5", USAGE, cache_written_tokens=8000) > plain


@pytest.mark.parametrize(
    ("provider", "model"),
    [("anthropic", "claude-of-tomorrow"), ("openai", "nothing-of-theirs"), ("nobody", "gpt-5")],
)
def test_an_unknown_model_has_no_price(provider: str, model: str) -> None:
    assert price_of(provider, model, USAGE) is None


def test_counts_that_contradict_each_other_have_no_price() -> None:
    assert price_of("openai", "gpt-5", Usage(10, 0, cached_tokens=20)) is None


def test_without_the_list_there_is_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert price_of("openai", "gpt-5", USAGE) is None


def test_nothing_used_costs_nothing_and_free_is_known_to_be_free() -> None:
    assert cost("openai", "gpt-5", Usage()) == 0
    assert (FREE.cost_usd_nano, FREE.source) == (0, "free")
