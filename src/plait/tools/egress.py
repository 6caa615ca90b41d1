"""Egress: the addresses that a tool may reach.

A rule names hosts as `api.example.com`, `*.example.org` (all hosts below it) or `*` (any public
host), or addresses as `10.0.0.5` and `10.0.0.0/8`, each with `:8080` or `:*` behind it if another
port than 80 and 443 is meant. A name never leads to a loopback, private, link-local or multicast
address, however it resolves: those have to be named as addresses (`localhost` stands for loopback).
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from plait.errors import EgressRefused, InvalidValue

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Sequence[str]]  # the addresses of a host, for a port

_RULE = re.compile(
    r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\s]+|[0-9a-fA-F:.]+(?:/\d+)?)(?::(?P<port>\d{1,5}|\*))?\Z"
)
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?\.?\Z")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_INNER = [  # not public, though some versions of ipaddress say so
    ipaddress.ip_network(each)
    for each in ("192.0.0.0/24", "192.88.99.0/24", "100.64.0.0/10", "fec0::/10", "3fff::/20")
]
_PORTS = {"http": 80, "https": 443}


def look_up(host: str, port: int) -> list[str]:
    """Return the addresses that the system knows a host by."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class UrlTarget(NamedTuple):
    """A URL taken apart and allowed by the rules."""

    url: str
    scheme: str
    host: str  # in small letters, without brackets
    port: int
    path: str


class _HostRule(NamedTuple):
    host: str  # a name or pattern; "": a network
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None
    port: str  # "": 80 and 443; *: any

    def takes_port(self, port: int) -> bool:
        return self.port == "*" or (port in (80, 443) if not self.port else port == int(self.port))

    def takes_host(self, host: str) -> bool:
        if self.network is not None:
            address = address_of(host)
            return address is not None and address in self.network
        if self.host == "*":
            return host != "localhost"
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host

    def allows_inner(self, address: Address, host: str) -> bool:
        """Return True if the rule names this very address, which is not a public one."""
        if self.network is not None:
            return address in self.network
        return self.host == host == "localhost" and address.is_loopback


class Egress:
    """An allow-list of hosts and addresses; all others are refused."""

    def __init__(
        self, rules: Sequence[str], schemes: Sequence[str] = ("https", "http"), step: str = ""
    ) -> None:
        unknown = [scheme for scheme in schemes if scheme not in _PORTS]
        if unknown or isinstance(rules, str):
            raise InvalidValue(
                "schemes" if unknown else "hosts",
                "only http and https, and a list of hosts",
                "pass them as a list",
            )
        self._rules, self._schemes, self._step = (
            [_parse_rule(each) for each in rules],
            tuple(schemes),
            step,
        )

    def target(self, url: str) -> UrlTarget:
        """Take the URL apart, if its host is on the list."""
        parts, port = _split_url(url)
        host = (parts.hostname or "").rstrip(".")
        if parts.scheme not in self._schemes:
            raise EgressRefused(
                shown_url(url), f"only {' and '.join(self._schemes)} may be used", "Use another URL"
            )
        if parts.username is not None or parts.password is not None:
            raise EgressRefused(
                shown_url(url), "a URL may not hold a name or password", "Leave them out"
            )
        if address_of(host) is None and not _HOST.match(host):
            raise EgressRefused(
                shown_url(url), f"{host[:80]!r} is no name of a host", "Correct the URL"
            )
        if not any(rule.takes_host(host) and rule.takes_port(port) for rule in self._rules):
            raise EgressRefused(
                shown_url(url),
                f"{host}:{port} is not on the list of what may be reached",
                self._step,
            )
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return UrlTarget(parts._replace(fragment="").geturl(), parts.scheme, host, port, path)

    def addresses(self, target: UrlTarget, resolve: Resolve) -> list[str]:
        """Return the addresses to connect to, each of them allowed.

        If one is not, all are refused: an honest name has no inner address.
        """
        literal = address_of(target.host)
        found = (
            [str(literal)]
            if literal is not None
            else list(dict.fromkeys(resolve(target.host, target.port)))
        )
        for text in found:
            address = address_of(text)
            if address is None or not self._is_allowed(address, target):
                why = f"{target.host} leads to {text}, which is not a public address"
                raise EgressRefused(
                    shown_url(target.url),
                    why,
                    f"It may only be reached if it is allowed as an address, as in {text!r}",
                )
        return found

    def _is_allowed(self, address: Address, target: UrlTarget) -> bool:
        if is_public(address):
            return True
        inner = unwrapped_address(address)
        return any(
            rule.takes_port(target.port) and rule.allows_inner(inner, target.host)
            for rule in self._rules
        )


def _parse_rule(text: str) -> _HostRule:
    match = _RULE.match(text.strip().lower())
    host = match["host"] if match else ""
    bare, port = (host.strip("[]"), (match["port"] or "") if match else "")
    try:
        return _HostRule("", ipaddress.ip_network(bare), port)
    except ValueError:
        pass
    try:  # an address of IPv6 without brackets has colons of its own
        return _HostRule("", ipaddress.ip_network(text.strip()), "")
    except ValueError:
        pass
    name = bare.removeprefix("*.")
    if (
        not match
        or not (bare == "*" or _HOST.match(name))
        or "*" in name.replace("*", "", bare == "*")
    ):
        raise InvalidValue(
            "hosts",
            f"{text!r} names no host",
            "write api.example.com, *.example.org, 10.0.0.5 or 10.0.0.0/8, with :port",
        )
    return _HostRule(bare, None, port)


def _split_url(url: str) -> tuple[SplitResult, int]:
    """Return the parts of a URL, and its port."""
    if len(url) > 8_000 or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidValue(
            "url",
            "it is too long, or holds spaces or other characters that have to be written with %",
            "write it anew",
        )
    if "\\" in url:
        raise InvalidValue(
            "url", "it holds a backslash, which some take for a slash", "write it anew"
        )
    try:
        parts = urlsplit(url)
        return parts, parts.port if parts.port is not None else _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise InvalidValue("url", f"{url[:200]!r} is none: {error}", "write it anew") from error


def shown_url(url: str) -> str:
    """Return a URL without the name and password in it."""
    try:
        parts = urlsplit(url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    except ValueError:
        return "(no URL)"


# ── addresses ────────────────────────────────────────────────────────────────────────────────


def address_of(text: str) -> Address | None:
    """Return the address that a text spells; None: it spells none. A zone (%eth0) is left out."""
    try:
        return ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None


def unwrapped_address(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one only wraps, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return (
        address.ipv4_mapped
        or address.sixtofour
        or (address.teredo[1] if address.teredo else address)
    )


def is_public(address: Address) -> bool:
    """Return True for an ordinary address of the internet: not loopback, private, link-local,
    multicast or reserved.
    """
    inner = unwrapped_address(address)
    if any(inner in network for network in _INNER):
        return False
    return (
        inner.is_global
        and not inner.is_multicast
        and not inner.is_reserved
        and not inner.is_unspecified
    )
