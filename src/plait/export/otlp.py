"""Sending spans to a receiver, by OTLP over HTTP. Written for opentelemetry-sdk 1.45."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from importlib.metadata import version
from urllib.parse import urlsplit

from plait.errors import InvalidValue, MissingExtra, ServerUnreachable
from plait.export.spans import CallSpan

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.semconv.schemas import Schemas
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ImportError as error:
    raise MissingExtra("plait export --otlp", "otel", str(error)) from error

BATCH = 500  # spans in one request
ANSWER_S_MAX = 5.0
_PATH = "/v1/traces"
_REFUSED = (
    "name an address for OTLP over HTTP (…/v1/traces); a key goes into OTEL_EXPORTER_OTLP_HEADERS"
)
_SCHEMA = Schemas.V1_44_0.value
_CONVENTIONS = "opentelemetry-semantic-conventions"
_LOGGER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class Receiver:
    """A receiver of spans, at an address of this machine or another one.

    Keys, certificates and compression are taken from the OTEL_EXPORTER_OTLP_… variables.
    """

    def __init__(self, address: str) -> None:
        self.address = traces_address(address)
        self._exporter = OTLPSpanExporter(endpoint=self.address, timeout=ANSWER_S_MAX)
        self._resource = Resource(
            {
                "service.name": "plait",
                "service.version": version("plait"),
                "plait.conventions": f"{_CONVENTIONS} {version(_CONVENTIONS)}",
            },
            _SCHEMA,
        )
        self._scope = InstrumentationScope("plait", version("plait"), _SCHEMA)

    def send(self, spans: Sequence[CallSpan]) -> None:
        """Send spans, or raise at the first request that is not taken."""
        for first in range(0, len(spans), BATCH):
            batch = [self._readable(span) for span in spans[first : first + BATCH]]
            heard = _Heard()
            with heard:
                result = self._exporter.export(batch)
            if result is not SpanExportResult.SUCCESS:
                is_answer = "code: " in heard.last and "code: None" not in heard.last
                if is_answer:
                    why = f"{self.address} does not take spans: {heard.why}"
                    raise InvalidValue("--otlp", why, _REFUSED)
                raise ServerUnreachable(f"the receiver of spans at {self.address}", heard.why)

    def close(self) -> None:
        self._exporter.shutdown()

    def _readable(self, span: CallSpan) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            _context(span.trace, span.id),
            _context(span.trace, span.parent) if span.parent is not None else None,
            self._resource,
            span.attributes,
            links=[
                Link(_context(link.trace, link.span), {"plait.link": link.connection})
                for link in span.links
            ],
            kind=SpanKind.CLIENT if span.operation == "chat" else SpanKind.INTERNAL,
            status=_status(span),
            start_time=span.start * 1000,
            end_time=span.end * 1000,
            instrumentation_scope=self._scope,
        )


def traces_address(address: str) -> str:
    """Return the address that spans are sent to; one without a path gets the usual one."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidValue(
            "--otlp", f"{address!r} is no address", "name one as http://127.0.0.1:4318"
        )
    return address if parts.path.strip("/") else f"{address.rstrip('/')}{_PATH}"


def _context(trace: str, span: str) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=flags)


def _status(span: CallSpan) -> Status:
    return Status(StatusCode.ERROR, span.message or None) if span.error else Status()


class _Heard(logging.Handler):
    """Hears why the exporter failed: it says so in its log alone."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._texts: list[str] = []
        self._logger = logging.getLogger(_LOGGER)
        self._propagates = self._logger.propagate

    @property
    def last(self) -> str:
        return self._texts[-1] if self._texts else ""

    @property
    def why(self) -> str:
        """The first thing that it said: the later ones tell of attempts and time."""
        text = self._texts[0] if self._texts else "it gives no reason"
        errno = re.search(r"\[Errno -?\d+\] ([^\"')]+)", text)
        code = re.search(r"code: (\d+), reason: (.+)", text)
        if errno is not None:
            return errno[1]
        return f"{code[1]} {code[2]}" if code is not None else text

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())

    def __enter__(self) -> None:
        self._logger.addHandler(self)
        self._logger.propagate = False

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagates
