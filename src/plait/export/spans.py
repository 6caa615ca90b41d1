"""Spans as plain values, with ids that follow from the record."""

from __future__ import annotations

from typing import Literal

import msgspec

from plait.ids import Digest, LogId, Micros, digest

Operation = Literal["invoke_workflow", "invoke_agent", "chat", "execute_tool", "retrieval"]
Connection = Literal["fork", "merge", "whatif"]
Attribute = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Attribute]

_TRACE_BYTES, _SPAN_BYTES = 16, 8


class SpanLink(msgspec.Struct, frozen=True):
    """The span of another place that a span has to do with."""

    connection: Connection
    trace: str
    span: str


class CallSpan(msgspec.Struct, frozen=True):
    """A call that has ended, as OpenTelemetry tells it."""

    trace: str  # 32 hexadecimal digits
    id: str  # 16 hexadecimal digits
    parent: str | None  # the id of a span of the same trace. None: the outermost call
    operation: Operation
    name: str
    start: Micros
    end: Micros
    attributes: Attributes
    links: tuple[SpanLink, ...] = ()
    error: str = ""  # the kind of its failure, or why there is no outcome. "": it succeeded
    message: str = ""  # of the failure: content


class SpanSet(msgspec.Struct, frozen=True):
    """The spans of a session, in the order in which their calls began."""

    spans: tuple[CallSpan, ...]
    open_count: int  # calls that have not ended, and are left out


def trace_id(run: str | None, log: LogId) -> str:
    """Return the id of the trace of a run; of what was done outside of runs, that of its log."""
    name = run.partition("/")[0] if run is not None else log
    return digest(b"plait/trace/1", name.encode())[: 2 * _TRACE_BYTES]


def span_id(event: Digest) -> str:
    """Return the id of the span that begins with an event."""
    return digest(b"plait/span/1", event.encode())[: 2 * _SPAN_BYTES]
