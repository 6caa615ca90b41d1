"""`http`: requests by an egress policy, with request and response as evidence.

The address that was checked is the one that is connected to, so a name that resolves differently a
moment later gains nothing; every redirect is checked anew. The request goes out from this process,
not from the sandbox, whose network can stay off.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Literal, NamedTuple, TypeVar, cast
from urllib.parse import urljoin

from plait.errors import EgressRefused, InvalidValue, RequestFailed
from plait.event import Json
from plait.event.kinds import EffectClass, Placement
from plait.secrets import Secret
from plait.session import Session, file, image
from plait.tool import Result, Tool, tool
from plait.tools.egress import Egress, Resolve, Target, look_up, shown
from plait.tools.text import SHOWN_MAX, bounded, digest_of, image_type, text_or_none

Method = Literal["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"]
T = TypeVar("T")

BODY_MAX = 8 << 20  # bytes of a response that are read
_REDIRECTS_MAX = 5
_TIME_MAX_S = 600.0
_REDIRECTS = (301, 302, 303, 307, 308)
# They say where a request goes and how it is framed, which is not for a model to say.
_RESERVED = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "keep-alive",
    }
)
_SECRETIVE = (
    "authorization",
    "cookie",
    "token",
    "secret",
    "api-key",
    "apikey",
    "password",
    "signature",
    "credential",
    "auth",
)
_STEP = (
    "Whoever runs the program allows hosts with session.to(…, egress=[…]), or hands you http_to(…)"
)


def class_of_requests(placement: Placement | None, arguments: Mapping[str, Any]) -> EffectClass:
    """By the method: what HTTP calls idempotent may be sent again."""
    return (
        "at_most_once"
        if str(arguments.get("method", "")).upper()
        not in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")
        else "idempotent"
    )


@tool(effect="at_most_once", effect_of=class_of_requests, taints="web", timeout_s=_TIME_MAX_S + 60)
def http(
    method: Method,
    url: str,
    session: Session,
    headers: dict[str, str] = {},  # noqa: B006
    body: str = "",
    timeout_s: float = 30.0,
) -> Result:
    """Send an HTTP request to a host that this session may reach. You get the status, the headers and the body.

    Redirects are followed for GET and HEAD, at most five. A body is read up to 8 MB; a long one is shown by its beginning and its end and
    kept whole as a file; what is compressed is not unpacked. A status such as 404 is a result, not a failure.

    Args:
        method: GET, HEAD, OPTIONS, PUT, DELETE, POST or PATCH
        url: an http or https URL, with the query in it
        headers: further headers, as in {"Accept": "application/json"}
        body: what to send, as text
        timeout_s: how many seconds it may take, redirects and body included
    """  # noqa: E501
    return send(_egress_of(session.files.placement), Request(method, url, headers, body, timeout_s))


def http_to(
    *hosts: str,
    schemes: Sequence[str] = ("https", "http"),
    headers: Mapping[str, str | Secret] | None = None,
    name: str = "http",
    resolve: Resolve = look_up,
) -> Tool[..., Any]:
    """An http tool that reaches these hosts and no others, wherever the session is placed.

    `headers` are sent along to these hosts and shown to nobody: a key, as Secret("API_KEY"). Rules
    for hosts: `plait.tools.egress`.
    """
    egress = Egress(hosts, schemes, f"Only these may be: {', '.join(hosts) or 'none'}")
    own = dict(headers or {})

    def request(
        method: Method,
        url: str,
        headers: dict[str, str] = {},  # noqa: B006
        body: str = "",
        timeout_s: float = 30.0,
    ) -> Result:
        return send(
            egress, Request(method, url, headers, body, timeout_s), own=own, resolve=resolve
        )

    reach = f"It reaches only: {', '.join(hosts)}."
    request.__doc__ = (http.function.__doc__ or "").replace(
        "that this session may reach.", f"on a list. {reach}"
    )
    made = tool(
        name=name,
        effect="at_most_once",
        effect_of=class_of_requests,
        taints="web",
        timeout_s=_TIME_MAX_S + 60,
    )
    return made(request)


def _egress_of(placement: Placement | None) -> Egress:
    detail: Json = placement.detail if placement is not None else None
    rules = (
        cast("Mapping[str, Json]", detail).get("egress") if isinstance(detail, Mapping) else None
    )
    listed = cast("Sequence[Json]", rules) if isinstance(rules, (list, tuple)) else ()
    return Egress([str(rule) for rule in listed], step=_STEP)


class Request(NamedTuple):
    method: Method
    url: str
    headers: Mapping[str, str] = {}
    body: str = ""
    timeout_s: float = 30.0


class _Answer(NamedTuple):
    """What came back from one address."""

    target: Target
    address: str
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes
    whole: bool

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


def send(
    egress: Egress,
    request: Request,
    *,
    own: Mapping[str, str | Secret] | None = None,
    resolve: Resolve = look_up,
) -> Result:
    """Send it, follow where it is sent on to, and tell what came of it."""
    _check(request)
    deadline = time.monotonic() + request.timeout_s
    target, via = egress.target(request.url), list[Json]()
    first, headers = target, dict(request.headers)
    while True:
        mine = {
            key: value.value if isinstance(value, Secret) else value
            for key, value in (own or {}).items()
        }
        answer = _ask(
            egress,
            request,
            target,
            {**headers, **(mine if _same_origin(first, target) else {})},
            deadline,
            resolve,
        )
        onward = (
            answer.header("location")
            if answer.status in _REDIRECTS and request.method in ("GET", "HEAD")
            else ""
        )
        if not onward:
            return _told(request, answer, via)
        via.append({"url": shown(target.url), "status": answer.status, "address": answer.address})
        if len(via) > _REDIRECTS_MAX:
            raise RequestFailed(
                request.method,
                shown(request.url),
                f"it was sent on more than {_REDIRECTS_MAX} times",
                sent=True,
            )
        target = _onward(egress, target, onward)
        if not _same_origin(first, target):
            # a key is for whom it was given
            headers = {key: value for key, value in headers.items() if not _is_secretive(key)}


def _onward(egress: Egress, target: Target, location: str) -> Target:
    url = urljoin(target.url, location)
    try:
        made = egress.target(url)
    except (EgressRefused, InvalidValue) as error:
        raise EgressRefused(
            shown(url),
            f"{shown(target.url)} sends on to it, and {error}",
            "Ask only what may be reached",
        ) from error
    if target.scheme == "https" and made.scheme == "http":
        raise EgressRefused(
            shown(url),
            f"{shown(target.url)} sends on to it, from https to http",
            "Ask it over https",
        )
    return made


def _same_origin(one: Target, other: Target) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def _check(request: Request) -> None:
    if not 0 < request.timeout_s <= _TIME_MAX_S:
        raise InvalidValue(
            "timeout_s",
            f"{request.timeout_s} is no time to wait",
            f"pass seconds, up to {_TIME_MAX_S:g}",
        )
    if request.body and request.method in ("GET", "HEAD"):
        raise InvalidValue(
            "body", f"a {request.method} has none", "leave it out, or use another method"
        )
    for name, value in request.headers.items():
        if name.lower() in _RESERVED or name.lower().startswith(("proxy-", "content-encoding")):
            raise InvalidValue("headers", f"{name!r} is set by the tool", "leave it out")
        if (
            not name
            or not name.isascii()
            or not all(char.isalnum() or char in "!#$%&'*+-.^_`|~" for char in name)
            or not value.isprintable()
        ):
            raise InvalidValue(
                "headers",
                f"{name[:80]!r} is no header that could be sent",
                "correct its name or value",
            )


# ── one request to one address ───────────────────────────────────────────────────────────────


def _ask(
    egress: Egress,
    request: Request,
    target: Target,
    headers: Mapping[str, str],
    deadline: float,
    resolve: Resolve,
) -> _Answer:
    watch = _Watch(request, target, deadline)
    with watch.errors():
        addresses = egress.addresses(
            target, lambda host, port: watch.within(lambda: resolve(host, port))
        )
        address, link = _connected(target, addresses, watch)
    connection = HTTPConnection(target.host, target.port)
    with watch.errors(), watch.over(link):
        if target.scheme == "https":
            # The name is checked against the certificate, though it is an address that was
            # connected to.
            link = ssl.create_default_context().wrap_socket(
                link, server_hostname=target.host, do_handshake_on_connect=False
            )
            watch.link = link
            link.do_handshake()
        connection.sock, connection.auto_open = link, 0
        watch.sent = True
        body = (
            request.body.encode()
            if request.body or request.method in ("POST", "PUT", "PATCH")
            else None
        )
        own = {
            "Host": _host(target),
            "Accept-Encoding": "identity",
            "User-Agent": "plait",
            "Connection": "close",
        }
        given = {name.lower() for name in headers}
        kept = {name: value for name, value in own.items() if name.lower() not in given}
        sent = {name: value.encode() for name, value in {**kept, **headers}.items()}
        connection.request(request.method, target.path, body, sent)  # pyright: ignore[reportArgumentType]  bytes are sent as they are
        response = connection.getresponse()
        content, whole = _body(response)
        return _Answer(
            target, address, response.status, response.reason, response.getheaders(), content, whole
        )


def _host(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return (
        host
        if target.port == {"http": 80, "https": 443}[target.scheme]
        else f"{host}:{target.port}"
    )


def _connected(
    target: Target, addresses: Sequence[str], watch: _Watch
) -> tuple[str, socket.socket]:
    """A connection to the first address that takes one."""
    error: OSError = OSError(f"{target.host} has no address")
    for address in addresses:
        try:
            return address, socket.create_connection((address, target.port), timeout=watch.left())
        except OSError as failed:
            error = failed
    raise error


def _body(response: HTTPResponse) -> tuple[bytes, bool]:
    """As much of it as is read, and whether that is all."""
    found = bytearray()
    while len(found) <= BODY_MAX:
        piece = response.read(1 << 16)
        if not piece:
            # what is left of the length that was announced
            return bytes(found), not response.length
        found += piece
    return bytes(found[:BODY_MAX]), False


class _Watch:
    """Ends a request at its deadline.

    A timeout on the socket would only bound each wait: a slow server could go on for ever.
    """

    def __init__(self, request: Request, target: Target, deadline: float) -> None:
        self._request, self._target, self._deadline = request, target, deadline
        self.link: socket.socket | None = None
        self.sent = False

    def left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def within(self, look: Callable[[], T]) -> T:
        """What a function returns, if it does in time.

        The system's own look-up cannot be ended, only left behind.
        """
        found: list[T] = []
        failed: list[Exception] = []

        def run() -> None:
            try:
                found.append(look())
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.left())
        if failed:
            raise failed[0]
        if not found:
            raise TimeoutError
        return found[0]

    @contextmanager
    def over(self, link: socket.socket) -> Generator[None]:
        """Closes the connection in the end, and cuts it at the deadline."""
        self.link = link
        timer = threading.Timer(self.left(), self._cut)
        timer.daemon = True
        timer.start()
        try:
            link.settimeout(self.left() + 1)
            yield
        finally:
            timer.cancel()
            self.link.close()

    def _cut(self) -> None:
        try:
            if self.link is not None:
                self.link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already

    @contextmanager
    def errors(self) -> Generator[None]:
        """Whatever goes wrong on the way, in words."""
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
                self._request.method, shown(self._target.url), why, sent=self.sent
            ) from error
        if late and self.sent:
            why = f"no whole answer within {self._request.timeout_s:g} s"
            raise RequestFailed(self._request.method, shown(self._target.url), why, sent=True)


# ── telling ──────────────────────────────────────────────────────────────────────────────────


def _told(request: Request, answer: _Answer, via: list[Json]) -> Result:
    head = [
        f"HTTP {answer.status} {answer.reason}".rstrip(),
        *([f"(after redirects, from {shown(answer.target.url)})"] if via else []),
    ]
    head += [f"{name}: {value[:500]}" for name, value in _open(answer.headers)[:60]]
    text, parts = _content(request, answer)
    return Result(
        [bounded("\n".join([*head, "", text]), SHOWN_MAX + 500), *parts],
        delta=_evidence(request, answer, via),
    )


def _content(request: Request, answer: _Answer) -> tuple[str, list[Any]]:
    """The body in words, and as parts where words are not all of it."""
    kind = (
        answer.header("content-type").partition(";")[0].strip().lower()
        or "application/octet-stream"
    )
    packed = answer.header("content-encoding").strip().lower()
    cut = "" if answer.whole else f"\n[only the first {len(answer.body):,} bytes were read]"
    if not answer.body:
        return ("[no body]" if request.method != "HEAD" else ""), []
    if packed and packed != "identity":
        words = (
            f"[the body is packed as {packed[:40]} and was not unpacked: {len(answer.body):,}"
            " bytes]"
        )
        return words + cut, [file(answer.body, "body.bin", "application/octet-stream")]
    if image_type(answer.body) and answer.whole:
        return f"[an image, {len(answer.body):,} bytes]", [
            image(answer.body, image_type(answer.body), alt=shown(answer.target.url))
        ]
    text = _decoded(answer)
    if text is None:
        return f"[no text: {kind}, {len(answer.body):,} bytes]{cut}", [
            file(answer.body, "body.bin", kind)
        ]
    if len(text) > SHOWN_MAX - 4_000 or not answer.whole:
        return bounded(text, SHOWN_MAX - 4_000) + cut, [file(answer.body, "body.txt", kind)]
    return text, []


def _decoded(answer: _Answer) -> str | None:
    """The body as text; None: it is none.

    A character that was cut in two at the end is left out.
    """
    charset = (
        answer.header("content-type")
        .lower()
        .partition("charset=")[2]
        .partition(";")[0]
        .strip(" \"'")
        or "utf-8"
    )
    if charset in ("utf-8", "utf8", "us-ascii", "ascii"):
        return (
            text_or_none(answer.body)
            if answer.whole
            else answer.body.decode("utf-8", "ignore")
            if b"\0" not in answer.body
            else None
        )
    try:
        return answer.body.decode(charset)
    except (UnicodeDecodeError, LookupError, ValueError):
        return None


def _evidence(request: Request, answer: _Answer, via: list[Json]) -> Json:
    asked = request.body.encode()
    return {
        "request": {
            "method": request.method,
            "url": shown(request.url),
            "headers": {
                name: "[hidden]" if _is_secretive(name) else value
                for name, value in request.headers.items()
            },
            "bytes": len(asked),
            "digest": digest_of(asked) if asked else None,
        },
        "response": {
            "status": answer.status,
            "url": shown(answer.target.url),
            "address": answer.address,
            "headers": [[name, value[:2_000]] for name, value in _open(answer.headers)[:100]],
            "bytes": len(answer.body),
            "whole": answer.whole,
            "digest": digest_of(answer.body),
        },
        "via": via,
    }


def _open(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers as UTF-8 can hold them, without what is only for whoever asked."""
    clean = [(name, value.encode("utf-8", "backslashreplace").decode()) for name, value in headers]
    return [(name, "[hidden]" if _is_secretive(name) else value) for name, value in clean]


def _is_secretive(name: str) -> bool:
    return any(word in name.lower() for word in _SECRETIVE) and name.lower() != "www-authenticate"
