"""The guard: which requests are let in.

A server that listens on loopback is reachable by every page that the user's browser has open, and
by every process of the machine. So it answers to its own names alone (a page of another name that
resolves to 127.0.0.1 has another Host), takes acts from its own page alone (Origin), and wants a
secret: the token of this start, handed over in the fragment of an address, which no server is sent.
The page exchanges it for a cookie that no script reads and no other site sends.

The cookie outlives the server: its key is kept beside the store, closed to other users, so that an
open page goes on when the server is started again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Protocol

from plait.server.refusals import refusal

COOKIE_S = 7 * 24 * 3600
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_OWN_SITES = ("same-origin", "none")


class RequestGuard(Protocol):
    """Lets requests in, or raises `RequestRefusal`."""

    @property
    def read_only(self) -> bool: ...

    def check_place(self, method: str, headers: Mapping[str, str]) -> None:
        """Check Host and Origin, of every request."""
        ...

    def check_reader(self, headers: Mapping[str, str]) -> None:
        """Check that the sender of a request for data is known."""
        ...

    def check_act(self) -> None:
        """Check that something may be written."""
        ...

    def hello(self, token: str) -> str:
        """Return the value of a Set-Cookie header for a token."""
        ...


class LocalGuard:
    """The guard of a server on loopback, for the one person who started it."""

    def __init__(
        self, port: int, token: str, key: bytes, now_s: Callable[[], float], *, read_only: bool
    ) -> None:
        self._hosts = frozenset(f"{name}:{port}" for name in LOOPBACK)
        self._cookie = f"plait-{port}"
        self._token, self._key, self._now_s = token, key, now_s
        self._read_only = read_only

    @property
    def read_only(self) -> bool:
        return self._read_only

    def check_place(self, method: str, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            raise refusal(
                421,
                "WrongHost",
                f"this server is not called {host[:100]!r}",
                "use the address that `plait serve` printed",
            )
        origin = headers.get("origin")
        is_foreign = origin is not None and origin.lower() != f"http://{host}"
        # absent: no browser, or an old one, which sends an Origin with every POST
        site = headers.get("sec-fetch-site", "none")
        if is_foreign or (site not in _OWN_SITES and _is_data(method, headers)):
            raise refusal(
                403,
                "WrongOrigin",
                f"the request comes from another page, {(origin or site)[:100]!r}",
                "use the page of this server",
            )

        is_own = origin is not None or site == "same-origin"
        if method != "GET" and not is_own and not self._has_token(headers) and "cookie" in headers:
            # browsers send cookies to every port of a host: a cookie alone is no proof of our page
            raise refusal(
                403,
                "NoOrigin",
                "the request has a cookie, and does not say from which page it comes",
                "use the page of this server, or send `Authorization: Bearer TOKEN`",
            )

    def check_reader(self, headers: Mapping[str, str]) -> None:
        if self._has_token(headers):
            return
        if self._has_cookie(headers.get("cookie", "")):
            return
        raise refusal(
            401,
            "NoToken",
            "the request has no token of this server",
            "open the address that `plait serve` printed, or type `plait view`",
        )

    def check_act(self) -> None:
        if self._read_only:
            raise refusal(
                403,
                "ReadOnly",
                "this server only reads",
                "start it without --read-only, or use the shell",
            )

    def hello(self, token: str) -> str:
        if not _equal(token, self._token):
            raise refusal(
                401,
                "NoToken",
                "that is not the token of this server",
                "open the address that `plait serve` printed, or type `plait view`",
            )
        until = int(self._now_s()) + COOKIE_S
        value = f"{until}.{self._sign(until)}"
        return f"{self._cookie}={value}; Max-Age={COOKIE_S}; Path=/; HttpOnly; SameSite=Strict"

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and _equal(given.strip(), self._token)

    def _has_cookie(self, header: str) -> bool:
        try:
            found = SimpleCookie(header).get(self._cookie)
        except CookieError:
            return False
        until, _, sign = found.value.partition(".") if found is not None else ("", "", "")
        if not (until.isascii() and until.isdecimal() and len(until) < 16):
            return False
        return _equal(sign, self._sign(int(until))) and int(until) > self._now_s()

    def _sign(self, until: int) -> str:
        text = f"{self._cookie}:{until}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def _is_data(method: str, headers: Mapping[str, str]) -> bool:
    """True if the request is no navigation: pages of others may link here, and not read."""
    is_link = headers.get("sec-fetch-mode") == "navigate" and method == "GET"
    return not is_link


def _equal(one: str, two: str) -> bool:
    return hmac.compare_digest(one.encode(), two.encode())
