"""A receiver of spans on this machine, which decodes what it is sent."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class SpanServer(ThreadingHTTPServer):
    """Keeps the requests that it is sent; `status` is its answer to each."""

    def __init__(self, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def resources(self) -> list[Any]:
        return [each for request in self.requests for each in request.resource_spans]

    @property
    def spans(self) -> list[Any]:
        """All spans, as often as they were sent."""
        scopes = [scope for each in self.resources for scope in each.scope_spans]
        return [span for scope in scopes for span in scope.spans]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, SpanServer)
        content = self.rfile.read(int(self.headers["Content-Length"]))
        server.paths.append(self.path)
        if server.status == 200:
            server.requests.append(ExportTraceServiceRequest.FromString(content))
        self.send_response(server.status)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def span_server(status: int = 200) -> Generator[SpanServer]:
    with SpanServer(status) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def attributes_of(thing: Any) -> dict[str, Any]:
    """Return the attributes of a decoded span, link or resource as plain values."""
    return {each.key: _plain(each.value) for each in thing.attributes}


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(each) for each in value.array_value.values]
    return getattr(value, kind)
