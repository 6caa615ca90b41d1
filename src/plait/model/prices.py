"""What a call cost, by a price list that names its version. A model that is not on the list has no price: never zero."""

from __future__ import annotations

from decimal import Decimal

from plait.event.kinds import Price, Usage

FREE = Price(0, "free")  # a script, a model on this machine: it is known that nobody is paid


def price_of(provider: str, model: str, usage: Usage, *, cache_written_tokens: int = 0) -> Price | None:
    """The price by genai-prices; None: it is not installed, or does not know the model."""
    from importlib import metadata  # slow to load, and so is what follows

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
    return Price(int((Decimal(found.total_price) * 1_000_000_000).to_integral_value()), f"genai-prices {metadata.version('genai-prices')}")
