"""Errors about receivers of spans."""

from __future__ import annotations

from plait.errors.base import PlaitError, without_full_stop


class ExportError(PlaitError):
    """Spans did not reach their receiver. The same export can be made again: it adds no span
    twice.
    """


class ReceiverUnreachable(ExportError):
    """Nobody answers at the address."""

    def __init__(self, address: str, why: str) -> None:
        self.address, self.why = address, why
        super().__init__(
            f"no receiver of spans answers at {address}: {without_full_stop(why)}. Start it, or"
            " name another with --otlp URL; the same command sends the same spans."
        )


class ReceiverRefused(ExportError):
    """It answers, and does not take the spans."""

    def __init__(self, address: str, why: str) -> None:
        self.address, self.why = address, why
        super().__init__(
            f"the receiver at {address} does not take spans: {without_full_stop(why)}. Name its"
            " address for OTLP over HTTP (…/v1/traces); a key goes into"
            " OTEL_EXPORTER_OTLP_HEADERS."
        )
