"""Prices of calls, by a price list that names its version.

A model that is not on the list has no price: never zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import cast

import msgspec

from plait.errors import InvalidValue
from plait.event.kinds import Price, Usage


class TokenPrice(msgspec.Struct, frozen=True):
    """The price of a model, in US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None  # of input tokens that were read from a cache; None: as other input

    def price_of(self, usage: Usage) -> Price:
        cached = min(usage.cached_tokens, usage.input_tokens)
        read = self.input if self.cached is None else self.cached
        micros = (
            (usage.input_tokens - cached) * self.input
            + cached * read
            + usage.output_tokens * self.output
        )
        return Price(
            round(micros * 1000), f"as given: ${self.input:g} in, ${self.output:g} out per million"
        )


def token_price(given: object) -> TokenPrice:
    """Read a price as a program writes it: a `TokenPrice`, (input, output), or a mapping with those
    names.
    """
    step = (
        "pass price=(0.5, 1.5), dollars per million input and output tokens, or"
        " TokenPrice(input=0.5, output=1.5, cached=0.1)"
    )
    values: object = given
    if isinstance(given, TokenPrice):
        values = msgspec.structs.asdict(given)
    elif isinstance(given, (tuple, list)):
        values = (
            dict(zip(("input", "output", "cached"), cast("Sequence[object]", given), strict=False))
            if len(given) <= 3  # pyright: ignore[reportUnknownArgumentType]
            else None
        )
    try:
        found = msgspec.convert(values, TokenPrice)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidValue("price", f"{given!r} is not a price: {error}", step) from None
    if not isinstance(values, Mapping) or not all(
        0 <= each < math.inf for each in msgspec.structs.astuple(found) if each is not None
    ):
        raise InvalidValue("price", f"{given!r} is not a price", step)
    if set(cast("Mapping[str, object]", values)) - set(TokenPrice.__struct_fields__):
        raise InvalidValue("price", f"{given!r} is not a price", step)
    return found


FREE = Price(0, "free")  # a script, a model on this machine


def price_of(
    provider: str, model: str, usage: Usage, *, cache_written_tokens: int = 0
) -> Price | None:
    """Return the price by genai-prices. None: it is not installed, or does not know the model."""
    from importlib import metadata  # slow to load, as is genai_prices

    try:
        import genai_prices
    except ImportError:
        return None
    counts = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=cache_written_tokens,
    )
    try:
        found = genai_prices.calc_price(counts, model_ref=model, provider_id=provider)
    except (LookupError, ValueError):
        return None
    return Price(
        int((Decimal(found.total_price) * 1_000_000_000).to_integral_value()),
        f"genai-prices {metadata.version('genai-prices')}",
    )
