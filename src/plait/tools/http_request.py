"""One HTTP request to one checked address, ended at its deadline."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Literal, NamedTuple, TypeVar

from plait.errors import InvalidValue, RequestFailed
from plait.tools.egress import Egress, Resolve, UrlTarget, shown_url

Method = Literal["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"]
T = TypeVar("T")

BODY_MAX = 8 << 20  # bytes of a response that are read


class HttpRequest(NamedTuple):
    method: Method
    url: str
    headers: Mapping[str, str] = {}
    body: str = ""
    timeout_s: float = 30.0


class HttpAnswer(NamedTuple):
    """The answer of one address."""

    target: UrlTarget
    address: str
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes
    whole: bool

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


def ask_address(
    egress: Egress,
    request: HttpRequest,
    target: UrlTarget,
    headers: Mapping[str, str],
    deadline: float,
    resolve: Resolve,
) -> HttpAnswer:
    timed = _TimedRequest(request, target, deadline)
    with timed.request_errors():
        addresses = egress.addresses(
            target, lambda host, port: timed.call_in_time(lambda: resolve(host, port))
        )
        address, link = _connect(target, addresses, timed)
    connection = HTTPConnection(target.host, target.port)
    with timed.request_errors(), timed.close_in_the_end(link):
        if target.scheme == "https":
            # The name is checked against the certificate, though it is an address that was
            # connected to.
            link = ssl.create_default_context().wrap_socket(
                link, server_hostname=target.host, do_handshake_on_connect=False
            )
            timed.link = link
            link.do_handshake()
        connection.sock, connection.auto_open = link, 0
        timed.sent = True
        body = (
            request.body.encode()
            if request.body or request.method in ("POST", "PUT", "PATCH")
            else None
        )
        own = {
            "Host": _host_header(target),
            "Accept-Encoding": "identity",
            "User-Agent": "plait",
            "Connection": "close",
        }
        given = {name.lower() for name in headers}
        kept = {name: value for name, value in own.items() if name.lower() not in given}
        sent = {name: value.encode() for name, value in {**kept, **headers}.items()}
        connection.request(request.method, target.path, body, sent)  # pyright: ignore[reportArgumentType]  bytes are sent as they are
        response = connection.getresponse()
        content, whole = _read_body(response)
        return HttpAnswer(
            target, address, response.status, response.reason, response.getheaders(), content, whole
        )


def _host_header(target: UrlTarget) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return (
        host
        if target.port == {"http": 80, "https": 443}[target.scheme]
        else f"{host}:{target.port}"
    )


def _connect(
    target: UrlTarget, addresses: Sequence[str], timed: _TimedRequest
) -> tuple[str, socket.socket]:
    """Connect to the first address that accepts a connection."""
    error: OSError = OSError(f"{target.host} has no address")
    for address in addresses:
        try:
            return address, socket.create_connection(
                (address, target.port), timeout=timed.seconds_left()
            )
        except OSError as failed:
            error = failed
    raise error


def _read_body(response: HTTPResponse) -> tuple[bytes, bool]:
    """Return the body up to BODY_MAX, and True if that is all of it."""
    found = bytearray()
    while len(found) <= BODY_MAX:
        piece = response.read(1 << 16)
        if not piece:
            # the rest of the announced length
            return bytes(found), not response.length
        found += piece
    return bytes(found[:BODY_MAX]), False


class _TimedRequest:
    """Ends a request at its deadline.

    A timeout on the socket would only bound each wait: a slow server could go on for ever.
    """

    def __init__(self, request: HttpRequest, target: UrlTarget, deadline: float) -> None:
        self._request, self._target, self._deadline = request, target, deadline
        self.link: socket.socket | None = None
        self.sent = False

    def seconds_left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def call_in_time(self, look: Callable[[], T]) -> T:
        """Return the result of a function, or raise TimeoutError at the deadline.

        The system's own look-up cannot be ended, only left behind.
        """
        found: list[T] = []
        failed: list[Exception] = []

        def call() -> None:
            try:
                found.append(look())
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(self.seconds_left())
        if failed:
            raise failed[0]
        if not found:
            raise TimeoutError
        return found[0]

    @contextmanager
    def close_in_the_end(self, link: socket.socket) -> Generator[None]:
        """Close the connection in the end, and cut it at the deadline."""
        self.link = link
        timer = threading.Timer(self.seconds_left(), self._cut_connection)
        timer.daemon = True
        timer.start()
        try:
            link.settimeout(self.seconds_left() + 1)
            yield
        finally:
            timer.cancel()
            self.link.close()

    def _cut_connection(self) -> None:
        try:
            if self.link is not None:
                self.link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already

    @contextmanager
    def request_errors(self) -> Generator[None]:
        """Turn every error on the way into RequestFailed, in words."""
        try:
            yield
            late = time.monotonic() > self._deadline
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, InvalidValue):
                raise
            late = isinstance(error, TimeoutError) or time.monotonic() >= self._deadline
            why = (
                f"no whole answer within {self._request.timeout_s:g} s"
                if late
                else f"{type(error).__name__}: {error}"
            )
            raise RequestFailed(
                self._request.method, shown_url(self._target.url), why, sent=self.sent
            ) from error
        if late and self.sent:
            why = f"no whole answer within {self._request.timeout_s:g} s"
            raise RequestFailed(self._request.method, shown_url(self._target.url), why, sent=True)
