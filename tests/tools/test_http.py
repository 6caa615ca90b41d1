"""`http` against real servers on loopback: good ones, slow ones, endless ones, and ones that send
on to where nobody may go.
"""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from plait import Session
from plait.errors import EgressRefused, InvalidValue, RequestFailed
from plait.event.kinds import Placement, PlacementChanged
from plait.secrets import Secret, forget
from plait.session.content import Loose
from plait.session.ports import Act, Draft, writer_of
from plait.session.session import session_at
from plait.session.value import position_of
from plait.tool import Tool
from plait.tools import http, http_to
from plait.tools.egress import Egress
from plait.tools.web import BODY_MAX, Request, send
from tests.support import result_delta

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 30


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None: ...

    def answer(self) -> None:
        server: Any = self.server
        length = int(self.headers.get("Content-Length") or 0)
        server.seen.append(
            (self.command, self.path, dict(self.headers.items()), self.rfile.read(length).decode())
        )
        status, headers, body = server.pages.get(
            self.path.partition("?")[0], (404, {}, b"no such page")
        )
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = answer


class Site:
    """A server, its pages and what it was asked."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.port = server.server_address[1]
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.seen: list[tuple[str, str, dict[str, str], str]] = []
        server.pages, server.seen = self.pages, self.seen  # pyright: ignore[reportAttributeAccessIssue]

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def tool(self, **more: Any) -> Tool[..., Any]:
        return http_to(f"127.0.0.1:{self.port}", **more)


@pytest.fixture
def site() -> Generator[Site]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Site(server)
        server.shutdown()
        thread.join()


@contextmanager
def raw(
    *pieces: bytes, endless: bytes = b"", pause: float = 0.0, stay: bool = False
) -> Generator[int]:
    """A server that says these bytes, whatever it is asked."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            link, _ = listener.accept()
            with link:
                link.recv(65536)
                for piece in pieces:
                    link.sendall(piece)
                    if over.wait(pause):
                        return
                while endless and not over.wait(pause):
                    link.sendall(endless)
                if stay:
                    over.wait(20)
        except OSError:
            pass  # whoever asked went away

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        over.set()
        listener.close()
        thread.join(10)
        assert not thread.is_alive()


# ── what comes back ──────────────────────────────────────────────────────────────────────────


def test_a_request_and_its_evidence(site: Site) -> None:
    site.pages["/x"] = (
        201,
        {"Content-Type": "application/json", "Set-Cookie": "session=abc", "X-Id": "7"},
        b'{"a": 1}',
    )
    headers = {"Accept": "application/json", "Authorization": "Bearer abc", "X-Api-Key": "abc"}
    result = site.tool()("POST", site.url("/x?q=1"), headers, "sent é")
    assert (
        result.parts[0].startswith("HTTP 201 Created\n")
        and result.parts[0].endswith('\n\n{"a": 1}')
        and len(result.parts) == 1
    )
    assert "abc" not in result.parts[0] and "abc" not in str(result.delta)
    request, response = result_delta(result)["request"], result_delta(result)["response"]
    assert (
        request["method"] == "POST"
        and request["headers"]["Accept"] == "application/json"
        and request["bytes"] == 7
    )
    assert (
        response["status"] == 201
        and response["address"] == "127.0.0.1"
        and response["bytes"] == 8
        and len(response["digest"]) == 64
    )
    method, path, sent, body = site.seen[0]
    assert (method, path, body) == ("POST", "/x?q=1", "sent é")
    assert (
        sent["Authorization"] == "Bearer abc"
        and sent["Host"] == f"127.0.0.1:{site.port}"
        and sent["Accept-Encoding"] == "identity"
    )


def test_a_status_is_a_result(site: Site) -> None:
    result = site.tool()("GET", site.url("/nowhere"))
    assert result.parts[0].startswith("HTTP 404 Not Found") and "no such page" in result.parts[0]
    site.pages["/x"] = 200, {}, b"body"
    assert "body" not in site.tool()("HEAD", site.url("/x")).parts[0]


def test_a_long_body_is_shown_in_part_and_kept_whole(site: Site) -> None:
    body = "".join(f"{n} é\n" for n in range(50_000)).encode()
    site.pages["/x"] = 200, {"Content-Type": "text/plain; charset=utf-8"}, body
    shown, kept = site.tool()("GET", site.url("/x")).parts
    assert (
        isinstance(kept, Loose)
        and kept.content == body
        and len(shown) <= 16_000
        and "49999 é" in shown
    )


def test_what_is_packed_is_not_unpacked(site: Site) -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    site.pages["/x"] = 200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, bomb
    shown, kept = site.tool()("GET", site.url("/x")).parts
    assert "packed as gzip and was not unpacked" in shown and kept.content == bomb


def test_images_and_other_bytes(site: Site) -> None:
    site.pages["/i"] = 200, {"Content-Type": "text/plain"}, PNG
    site.pages["/b"] = 200, {"Content-Type": "application/zip"}, b"PK\0\1"
    site.pages["/l"] = 200, {"Content-Type": "text/html; charset=iso-8859-1"}, b"caf\xe9"
    assert site.tool()("GET", site.url("/i")).parts[1].media_type == "image/png"
    shown, kept = site.tool()("GET", site.url("/b")).parts
    assert "no text: application/zip, 4 bytes" in shown and kept.content == b"PK\0\1"
    assert "café" in site.tool()("GET", site.url("/l")).parts[0]


def test_endless_bodies_end() -> None:
    with raw(b"HTTP/1.1 200 OK\r\n\r\n", endless=b"x" * 65536) as port:
        shown, kept = http_to(f"127.0.0.1:{port}")("GET", f"http://127.0.0.1:{port}/").parts
    assert len(kept.content) == BODY_MAX and f"only the first {BODY_MAX:,} bytes were read" in shown


def test_a_body_that_breaks_off_says_so() -> None:
    with raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf") as port:
        result = http_to(f"127.0.0.1:{port}")("GET", f"http://127.0.0.1:{port}/")
    assert (
        "only the first 4 bytes" in result.parts[0]
        and result_delta(result)["response"]["whole"] is False
    )


@pytest.mark.parametrize(
    ("pieces", "endless"),
    [
        ((), b""),  # says nothing
        ((b"HTTP/1.1 200 OK\r\n",), b"X-A: b\r\n"[:1]),  # a header that never ends
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",), b"x"),  # a byte at a time
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",), b"1\r\nx\r\n"),
        ((), b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_slow_servers_are_left(pieces: tuple[bytes, ...], endless: bytes) -> None:
    with raw(*pieces, endless=endless, pause=0.02, stay=True) as port:
        with pytest.raises(
            RequestFailed, match="no whole answer within 0.5 s. It was sent"
        ) as caught:
            http_to(f"127.0.0.1:{port}")("GET", f"http://127.0.0.1:{port}/", timeout_s=0.5)
        assert caught.value.sent


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"hello\r\n\r\n",
        b"HTTP/1.1 banana\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_nonsense_is_a_failure(said: bytes) -> None:
    with raw(said) as port, pytest.raises(RequestFailed):
        http_to(f"127.0.0.1:{port}")("GET", f"http://127.0.0.1:{port}/")


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(RequestFailed, match="Nothing was sent") as caught:
        http_to(f"127.0.0.1:{port}")("POST", f"http://127.0.0.1:{port}/")
    assert not caught.value.sent


def test_a_look_up_that_never_ends_is_left() -> None:
    over = threading.Event()
    try:
        with pytest.raises(RequestFailed, match="no whole answer within 0.2 s. Nothing was sent"):
            http_to("slow.example.com", resolve=lambda host, port: [str(over.wait(20))])(
                "GET", "http://slow.example.com/", timeout_s=0.2
            )
    finally:
        over.set()


def test_tls_is_checked_by_name() -> None:
    with raw(b"this is no TLS") as port, pytest.raises(RequestFailed, match="SSL"):
        http_to(f"127.0.0.1:{port}")("GET", f"https://127.0.0.1:{port}/")


# ── where it may go ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "onward",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://localhost/",
        "http://[::1]/",
        "file:///etc/passwd",
        "http://0x7f.1/",
        "//evil.example.com/",
        "http://user:pw@127.0.0.1/",
    ],
)
def test_redirects_are_checked(site: Site, onward: str) -> None:
    site.pages["/go"] = 302, {"Location": onward}, b""
    with pytest.raises(EgressRefused, match="sends on to it") as caught:
        site.tool()("GET", site.url("/go"))
    assert "pw" not in str(caught.value) and len(site.seen) == 1


def test_a_redirect_to_an_allowed_name_with_an_inner_address_is_refused(site: Site) -> None:
    site.pages["/go"] = 302, {"Location": "http://fine.example.com/"}, b""
    tool = http_to(
        f"127.0.0.1:{site.port}", "fine.example.com", resolve=lambda host, port: ["169.254.169.254"]
    )
    with pytest.raises(EgressRefused, match="fine.example.com leads to 169.254.169.254"):
        tool("GET", site.url("/go"))


def test_redirects_are_followed_and_told(site: Site) -> None:
    site.pages["/a"] = 302, {"Location": "b?x=1"}, b""
    site.pages["/b"] = 301, {"Location": site.url("/c")}, b""
    site.pages["/c"] = 200, {}, b"there"
    result = site.tool()("GET", site.url("/a"))
    assert "(after redirects" in result.parts[0] and result_delta(result)["response"][
        "url"
    ] == site.url("/c")
    assert [via["url"] for via in result_delta(result)["via"]] == [
        site.url("/a"),
        site.url("/b?x=1"),
    ]
    assert site.tool()("POST", site.url("/a"), {}, "x").parts[0].startswith("HTTP 302")


def test_redirects_without_end_are_left(site: Site) -> None:
    site.pages["/a"] = 302, {"Location": "/a"}, b""
    with pytest.raises(RequestFailed, match="sent on more than 5 times"):
        site.tool()("GET", site.url("/a"))
    assert len(site.seen) == 6


def test_keys_stay_with_whom_they_were_given_to(site: Site) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        other = Site(server)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        other.pages["/"] = 200, {}, b"fine"
        site.pages["/a"] = 302, {"Location": "/b"}, b""
        site.pages["/b"] = 302, {"Location": other.url()}, b""
        try:
            tool = http_to(
                "127.0.0.1:*", headers={"X-Key": Secret("HTTP_TEST_KEY", "canary-value-4711")}
            )
            result = tool("GET", site.url("/a"), {"Authorization": "mine", "X-Plain": "1"})
        finally:
            server.shutdown()
            thread.join()
            forget("HTTP_TEST_KEY")
    assert [sent.get("X-Key") for _, _, sent, _ in site.seen] == [
        "canary-value-4711"
    ] * 2 and "canary" not in str(result)
    (_, _, sent, _), *_ = other.seen
    assert "X-Key" not in sent and "Authorization" not in sent and sent["X-Plain"] == "1"


def test_a_name_that_resolves_differently_a_moment_later_gains_nothing(site: Site) -> None:
    """The first answer is checked and connected to.

    A second look-up, which would lead elsewhere, never takes place.
    """
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return next(answers)

    site.pages["/"] = 200, {}, b"checked"
    tool = http_to(f"rebind.example.com:{site.port}", f"127.0.0.1:{site.port}", resolve=resolve)
    result = tool("GET", f"http://rebind.example.com:{site.port}/")
    assert (
        asked == ["rebind.example.com"]
        and result_delta(result)["response"]["address"] == "127.0.0.1"
    )
    assert site.seen[0][2]["Host"] == f"rebind.example.com:{site.port}"
    with pytest.raises(EgressRefused, match="169.254.169.254"):
        tool("GET", f"http://rebind.example.com:{site.port}/")
    assert len(site.seen) == 1


def test_one_inner_address_among_public_ones_refuses_all(site: Site) -> None:
    tool = http_to("mixed.example.com", resolve=lambda host, port: ["93.184.216.34", "127.0.0.1"])
    with pytest.raises(EgressRefused):
        tool("GET", "http://mixed.example.com/")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil"},
        {"content-length": "5"},
        {"Transfer-Encoding": "chunked"},
        {"X": "a\r\nY: b"},
        {"X\r\nY": "b"},
        {"a b": "c"},
        {"Proxy-Authorization": "x"},
        {"": "x"},
    ],
)
def test_headers_that_say_where_it_goes_are_refused(site: Site, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidValue, match="headers"):
        site.tool()("GET", site.url(), headers)
    assert not site.seen


def test_other_requests_that_make_no_sense(site: Site) -> None:
    for given in (
        Request("GET", site.url(), body="x"),
        Request("GET", site.url(), timeout_s=0),
        Request("GET", site.url("/\r\nX: y")),
    ):
        with pytest.raises(InvalidValue):
            send(http_egress(site), given)


def http_egress(site: Site) -> Egress:
    return Egress([f"127.0.0.1:{site.port}"])


# ── as a tool ────────────────────────────────────────────────────────────────────────────────


def placed(session: Session, placement: Placement) -> Session:
    """As a backend would record it."""
    draft = Draft(PlacementChanged(placement), Act("service:test", "program"))
    return session_at(writer_of(None).append(position_of(session), [draft]))


def test_the_plain_tool_reaches_what_the_placement_allows_and_says_how(site: Site) -> None:
    site.pages["/"] = 200, {}, b"fine"
    session = Session("Ask.", store="memory:tools")
    with pytest.raises(EgressRefused, match=r"not on the list.*egress=\[…\]"):
        http("GET", site.url(), session)
    local = Placement("local", network="off", detail={"egress": [f"127.0.0.1:{site.port}"]})
    there = placed(session, local)
    assert "fine" in http("GET", site.url(), there).parts[0]
    with pytest.raises(EgressRefused):
        http("GET", "http://169.254.169.254/", there)


def test_its_class_is_by_method() -> None:
    for method, effect in {
        "GET": "idempotent",
        "HEAD": "idempotent",
        "OPTIONS": "idempotent",
        "PUT": "idempotent",
        "DELETE": "idempotent",
        "POST": "at_most_once",
        "PATCH": "at_most_once",
        "": "at_most_once",
    }.items():
        for tool in (http, http_to("x.example.com")):
            assert tool.effect_in(None, {"method": method}) == effect
            assert tool.taints == "web"
    assert http.effect_in(None, {}) == "at_most_once"


def test_a_model_is_told_which_hosts() -> None:
    tool = http_to("api.example.com", name="api")
    assert tool.name == "api" and "It reaches only: api.example.com." in tool.description
    assert set(tool.schema["properties"]) == {"method", "url", "headers", "body", "timeout_s"}  # pyright: ignore[reportArgumentType]
