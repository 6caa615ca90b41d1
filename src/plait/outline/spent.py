"""Amounts spent: counted in plain numbers while folding, and told as a shape."""

from __future__ import annotations

import msgspec

from plait.event.kinds import Usage
from plait.outline.shapes import SpentShape
from plait.session.state import Spent


class SpentCount(msgspec.Struct, array_like=True):
    """Amounts that are being added up."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated_tokens: int = 0
    cost_usd_nano: int = 0
    unpriced: int = 0
    model_calls: int = 0
    tool_calls: int = 0

    def add_usage(self, usage: Usage, nano: int | None) -> None:
        """Add the usage of one ask; None: its price is not known."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cached_tokens += usage.cached_tokens
        self.reasoning_tokens += usage.reasoning_tokens
        self.estimated_tokens += usage.estimated_tokens
        if nano is None:
            self.unpriced += 1
        else:
            self.cost_usd_nano += nano

    def add(self, other: SpentCount) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def subtract(self, other: SpentCount) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) - getattr(other, name))

    def shape(self) -> SpentShape:
        is_unknown = self.unpriced and not self.cost_usd_nano
        return SpentShape(
            self.input_tokens,
            self.output_tokens,
            self.cached_tokens,
            self.reasoning_tokens,
            self.estimated_tokens,
            None if is_unknown else self.cost_usd_nano / 1e9,
            self.unpriced,
            self.model_calls,
            self.tool_calls,
        )


def count_of(spent: Spent) -> SpentCount:
    """Return amounts that the session's own folds added up."""
    usage = spent.usage
    return SpentCount(
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.reasoning_tokens,
        usage.estimated_tokens,
        spent.cost_usd_nano,
        spent.unpriced,
        spent.model_calls,
        spent.tool_calls,
    )


def spent_shape(spent: Spent) -> SpentShape:
    return count_of(spent).shape()
