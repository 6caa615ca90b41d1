"""Errors about receivers of spans."""

from __future__ import annotations

from plait.errors.base import PlaitError, without_full_stop


class ReceiverUnreachable(PlaitError):
    """Nobody answers at the address. The same export can be made again: it adds no span twice."""

    def __init__(self, address: str, why: str) -> None:
        self.address, self.why = address, why
        super().__init__(
            f"no receiver of spans answers at {address}: {without_full_stop(why)}. Start it, or"
            " name another with --otlp URL; the same command sends the same spans."
        )
