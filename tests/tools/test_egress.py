"""The addresses that may be reached: rules, names, and what only looks like a public address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import EgressRefused, InvalidValue
from plait.tools.egress import Egress, address_of, is_public, unwrapped_address

INNER = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1",
    "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:db8::1",
    "2001:0:0:0:0:0:80ff:fefe", "192.0.0.9", "192.0.0.170", "192.88.99.1", "fec0::1", "3fff::1", "100.127.255.254",
]  # fmt: skip
PUBLIC = ["93.184.216.34", "8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808"]


@pytest.mark.parametrize("text", INNER)
def test_inner_addresses_are_not_public(text: str) -> None:
    address = address_of(text)
    assert address is not None and not is_public(address)
    with pytest.raises(EgressRefused, match="not a public address"):
        egress = Egress(["*"])
        egress.addresses(
            egress.target("https://api.example.com/"), lambda host, port: [PUBLIC[0], text]
        )


@pytest.mark.parametrize("text", PUBLIC)
def test_public_ones_are(text: str) -> None:
    address = address_of(text)
    assert address is not None and is_public(address)


@given(st.ip_addresses(v=4))
def test_what_is_wrapped_is_judged_by_what_is_in_it(address: object) -> None:
    inner = address_of(str(address))
    wrapped = address_of(f"::ffff:{address}")
    assert (
        inner is not None
        and wrapped is not None
        and unwrapped_address(wrapped) == inner
        and is_public(wrapped) == is_public(inner)
    )


ALLOWED = [
    ("api.example.com", "https://api.example.com/x?y=1"),
    ("api.example.com", "https://API.EXAMPLE.com./"),
    ("api.example.com", "http://api.example.com"),
    ("*.example.org", "https://a.b.example.org/"),
    ("*", "https://anything.net/"),
    ("api.example.com:8443", "https://api.example.com:8443/"),
    ("api.example.com:*", "https://api.example.com:9/"),
    ("10.0.0.5", "http://10.0.0.5/"),
    ("10.0.0.0/8:8080", "http://10.1.2.3:8080/"),
    ("[::1]:8080", "http://[::1]:8080/"),
    ("::1", "http://[::1]/"),
    ("localhost:8080", "http://localhost:8080/"),
]
REFUSED = [
    ("api.example.com", "https://example.com/"),
    ("api.example.com", "https://api.example.com.evil.net/"),
    ("api.example.com", "https://evil-api.example.com/"),
    ("api.example.com", "https://api.example.com:8443/"),
    ("api.example.com", "https://user:pw@api.example.com/"),
    ("api.example.com", "https://api.example.com@evil.net/"),
    ("api.example.com", "ftp://api.example.com/"),
    ("api.example.com", "file:///etc/passwd"),
    ("api.example.com", "gopher://api.example.com/"),
    ("api.example.com", "//api.example.com/"),
    ("api.example.com", "https://evil.net#@api.example.com/"),
    ("api.example.com", "https://evil.net/?api.example.com"),
    ("*.example.org", "https://example.org/"),
    ("*.example.org", "https://evilexample.org/"),
    ("*", "http://localhost/"),
    ("localhost", "http://localhost:8080/"),
    ("10.0.0.5", "http://10.0.0.6/"),
    ("", "https://api.example.com/"),
]


@pytest.mark.parametrize(("rule", "url"), ALLOWED)
def test_allowed(rule: str, url: str) -> None:
    assert Egress([rule]).target(url).host


@pytest.mark.parametrize(("rule", "url"), REFUSED)
def test_refused(rule: str, url: str) -> None:
    with pytest.raises(EgressRefused) as caught:
        Egress([rule] if rule else [], step="Ask for it").target(url)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://a b/",
        "http://a\nb/",
        "http://[::1/",
        "http://a:99999/",
        "http://a\\@b/",
        "http://é.com/",
        "x" * 9_000,
    ],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises((InvalidValue, EgressRefused)):
        Egress(["*"]).target(url)


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "a b",
        "http://x.com",
        "*.*.com",
        "a*.com",
        "x.com:99999999",
        "x.com/path",
        "*.",
        "10.0.0.0/99",
        "-x",
    ],
)
def test_rules_that_are_none(rule: str) -> None:
    with pytest.raises(InvalidValue):
        Egress([rule])


def test_an_inner_address_has_to_be_named_itself() -> None:
    def inner(host: str, port: int) -> list[str]:
        return ["10.0.0.5"]

    named = Egress(["db.internal", "10.0.0.0/24"])
    assert named.addresses(named.target("http://db.internal/"), inner) == ["10.0.0.5"]
    for rules in (
        ["db.internal"],
        ["*"],
        ["db.internal", "10.0.1.0/24"],
        ["db.internal", "localhost"],
        ["db.internal", "10.0.0.0/24:81"],
    ):
        egress = Egress(rules)
        with pytest.raises(EgressRefused, match="not a public address"):
            egress.addresses(egress.target("http://db.internal/"), inner)
