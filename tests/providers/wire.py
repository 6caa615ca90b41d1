"""A provider on loopback that says exactly what it is told to, byte by byte, and hangs up when it
is told to.

For what a mock with manners cannot do: half a JSON argument, a date in Retry-After, a reset in the
middle of a stream.

    with Wire() as wire:
        wire.play(sse({"type": "a"}, {"type": "b"}).cut(after=1), whole({"error": {…}}, 429, {"retry-after": "2"}))
        …                                  # the first request gets the cut stream, the second the 429
        wire.requests[0].json["stream"]    # what was asked
        wire.wait_gone()                   # after .hold(): the client closed its socket
"""  # noqa: E501

from __future__ import annotations

import json
import select
import socket
import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Literal

PATIENCE_S = 10.0  # a test that waits longer has failed


@dataclass(frozen=True)
class Answer:
    """A status, headers and a body in chunks; `after` so many of them (-1: not even the status
    line) comes `then`.
    """

    chunks: tuple[bytes, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    after: int | None = None  # None: all of them
    then: Literal["end", "close", "reset", "hold"] = "end"

    def cut(self, after: int = -1, *, reset: bool = False) -> Answer:
        """Hang up after so many chunks, with the body unfinished; `reset`: as a
        crashed peer does.
        """
        return replace(self, after=after, then="reset" if reset else "close")

    def hold(self, after: int = -1) -> Answer:
        """Say no more after so many chunks until `wire.release()`, or until the client has gone."""
        return replace(self, after=after, then="hold")


def whole(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """One body: bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer((data,), status, {"content-type": "application/json", **(headers or {})})


def sse(*events: Any, headers: Mapping[str, str] | None = None) -> Answer:
    """Server-sent events, a chunk each: an object (its `type` names the event), a text as data, or
    raw bytes.
    """
    return Answer(
        tuple(map(_frame, events)), 200, {"content-type": "text/event-stream", **(headers or {})}
    )


def _frame(event: Any) -> bytes:
    if isinstance(event, bytes):
        return event
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """Serves a queue of answers, one per request; a request too many gets a 418."""

    def __init__(self) -> None:
        self.requests: list[Asked] = []
        self._answers: deque[Answer] = deque()
        self._lock = Lock()
        self._open: set[socket.socket] = set()
        self._gone, self._released, self._held = Event(), Event(), Event()
        self._server = _Server(("127.0.0.1", 0), self)
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Without a path: add /v1 where the SDK wants it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def play(self, *answers: Answer) -> None:
        """Begin anew with these answers."""
        with self._lock:
            self.requests.clear()
            self._answers = deque(answers)
        for event in (self._gone, self._released, self._held):
            event.clear()

    def release(self) -> None:
        """Go on where an answer holds."""
        self._released.set()

    def wait_held(self) -> None:
        assert self._held.wait(PATIENCE_S), "no answer has come to where it holds"

    def lost(self) -> None:
        self._gone.set()

    def wait_gone(self) -> None:
        assert self._gone.wait(PATIENCE_S), "the client has not closed its socket"

    def __enter__(self) -> Wire:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)
        with self._lock:
            left = list(self._open)
        for connection in left:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it went by itself

    # ── for the handler ──────────────────────────────────────────────────────────────────────

    def next(self, asked: Asked) -> Answer:
        with self._lock:
            self.requests.append(asked)
            return (
                self._answers.popleft()
                if self._answers
                else whole({"error": {"message": "nothing left to say"}}, 418)
            )

    def track(self, connection: socket.socket, *, there: bool) -> None:
        with self._lock:
            (self._open.add if there else self._open.discard)(connection)

    def hold(self, connection: socket.socket) -> bool:
        """True if the client is still there when it goes on."""
        self._held.set()
        waiting = select.poll()  # select() takes no handle above 1,023
        waiting.register(connection, select.POLLIN)
        while not self._released.is_set():
            if waiting.poll(20) and _has_gone(connection):
                self._gone.set()
                return False
        return True


def _has_gone(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], wire: Wire) -> None:
        self.wire = wire
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each small chunk waits 40 ms for the one before
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def setup(self) -> None:
        super().setup()
        self.server.wire.track(self.connection, there=True)

    def finish(self) -> None:
        self.server.wire.track(self.connection, there=False)
        super().finish()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.wire.next(Asked(self.command, self.path, headers, body))
        if answer.after == -1 and self._stop_here(answer):
            return
        self._head(answer)
        upto = len(answer.chunks) if answer.after in (None, -1) else answer.after
        for chunk in answer.chunks[:upto]:
            self._chunk(chunk)
        if answer.after not in (None, -1):
            if self._stop_here(answer):
                return
            for chunk in answer.chunks[upto:]:
                self._chunk(chunk)
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST

    def _head(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        try:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()
        except OSError:  # it left before it heard all
            self.server.wire.lost()
            raise

    def _stop_here(self, answer: Answer) -> bool:
        if answer.then == "hold" and self.server.wire.hold(self.connection):
            return False
        if answer.then == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        self.close_connection = True
        return True

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
