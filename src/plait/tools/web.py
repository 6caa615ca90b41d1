"""`http`: requests by an egress policy, with request and response as evidence.

The address that was checked is the one that is connected to, so a name that resolves differently a
moment later gains nothing; every redirect is checked anew. The request goes out from this process,
not from the sandbox, whose network can stay off.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urljoin

from plait.errors import EgressRefused, InvalidValue, RequestFailed
from plait.event import Json
from plait.event.kinds import EffectClass, Placement
from plait.secrets import Secret
from plait.session import Session, file, image
from plait.tool import Result, Tool, tool
from plait.tools.egress import Egress, Resolve, UrlTarget, look_up, shown_url
from plait.tools.http_request import HttpAnswer, HttpRequest, Method, ask_address
from plait.tools.text import SHOWN_MAX, bounded_text, digest_of, image_type, text_or_none

_REDIRECTS_MAX = 5
_TIME_MAX_S = 600.0
_REDIRECTS = (301, 302, 303, 307, 308)
# They decide the receiver and the framing of a request, which a model must not.
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
    """Return the class by the method: requests that HTTP calls idempotent may be sent again."""
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
    return send(
        _egress_of(session.files.placement), HttpRequest(method, url, headers, body, timeout_s)
    )


def http_to(
    *hosts: str,
    schemes: Sequence[str] = ("https", "http"),
    headers: Mapping[str, str | Secret] | None = None,
    name: str = "http",
    resolve: Resolve = look_up,
) -> Tool[..., Any]:
    """Return an http tool that reaches these hosts and no others, wherever the session is placed.

    `headers` are sent along to these hosts and never shown: a key, as Secret("API_KEY"). Rules for
    hosts: `plait.tools.egress`.
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
            egress, HttpRequest(method, url, headers, body, timeout_s), own=own, resolve=resolve
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


def send(
    egress: Egress,
    request: HttpRequest,
    *,
    own: Mapping[str, str | Secret] | None = None,
    resolve: Resolve = look_up,
) -> Result:
    """Send the request, follow redirects, and return the result."""
    _check_request(request)
    deadline = time.monotonic() + request.timeout_s
    target, via = egress.target(request.url), list[Json]()
    first, headers = target, dict(request.headers)
    while True:
        mine = {
            key: value.value if isinstance(value, Secret) else value
            for key, value in (own or {}).items()
        }
        answer = ask_address(
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
            return _http_result(request, answer, via)
        via.append(
            {"url": shown_url(target.url), "status": answer.status, "address": answer.address}
        )
        if len(via) > _REDIRECTS_MAX:
            raise RequestFailed(
                request.method,
                shown_url(request.url),
                f"it was sent on more than {_REDIRECTS_MAX} times",
                sent=True,
            )
        target = _redirect_target(egress, target, onward)
        if not _same_origin(first, target):
            # a key is only for the host it was given to
            headers = {key: value for key, value in headers.items() if not _is_secretive(key)}


def _redirect_target(egress: Egress, target: UrlTarget, location: str) -> UrlTarget:
    url = urljoin(target.url, location)
    try:
        made = egress.target(url)
    except (EgressRefused, InvalidValue) as error:
        raise EgressRefused(
            shown_url(url),
            f"{shown_url(target.url)} sends on to it, and {error}",
            "Ask only what may be reached",
        ) from error
    if target.scheme == "https" and made.scheme == "http":
        raise EgressRefused(
            shown_url(url),
            f"{shown_url(target.url)} sends on to it, from https to http",
            "Ask it over https",
        )
    return made


def _same_origin(one: UrlTarget, other: UrlTarget) -> bool:
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def _check_request(request: HttpRequest) -> None:
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


# ── telling ──────────────────────────────────────────────────────────────────────────────────


def _http_result(request: HttpRequest, answer: HttpAnswer, via: list[Json]) -> Result:
    head = [
        f"HTTP {answer.status} {answer.reason}".rstrip(),
        *([f"(after redirects, from {shown_url(answer.target.url)})"] if via else []),
    ]
    head += [f"{name}: {value[:500]}" for name, value in _shown_headers(answer.headers)[:60]]
    text, parts = _body_parts(request, answer)
    return Result(
        [bounded_text("\n".join([*head, "", text]), SHOWN_MAX + 500), *parts],
        delta=_evidence(request, answer, via),
    )


def _body_parts(request: HttpRequest, answer: HttpAnswer) -> tuple[str, list[Any]]:
    """Return the body in words, and as parts where words are not all of it."""
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
            image(answer.body, image_type(answer.body), alt=shown_url(answer.target.url))
        ]
    text = _body_text(answer)
    if text is None:
        return f"[no text: {kind}, {len(answer.body):,} bytes]{cut}", [
            file(answer.body, "body.bin", kind)
        ]
    if len(text) > SHOWN_MAX - 4_000 or not answer.whole:
        return bounded_text(text, SHOWN_MAX - 4_000) + cut, [file(answer.body, "body.txt", kind)]
    return text, []


def _body_text(answer: HttpAnswer) -> str | None:
    """Return the body as text; None: it is none.

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


def _evidence(request: HttpRequest, answer: HttpAnswer, via: list[Json]) -> Json:
    asked = request.body.encode()
    return {
        "request": {
            "method": request.method,
            "url": shown_url(request.url),
            "headers": {
                name: "[hidden]" if _is_secretive(name) else value
                for name, value in request.headers.items()
            },
            "bytes": len(asked),
            "digest": digest_of(asked) if asked else None,
        },
        "response": {
            "status": answer.status,
            "url": shown_url(answer.target.url),
            "address": answer.address,
            "headers": [
                [name, value[:2_000]] for name, value in _shown_headers(answer.headers)[:100]
            ],
            "bytes": len(answer.body),
            "whole": answer.whole,
            "digest": digest_of(answer.body),
        },
        "via": via,
    }


def _shown_headers(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers as UTF-8 can hold them, secret ones hidden."""
    clean = [(name, value.encode("utf-8", "backslashreplace").decode()) for name, value in headers]
    return [(name, "[hidden]" if _is_secretive(name) else value) for name, value in clean]


def _is_secretive(name: str) -> bool:
    return any(word in name.lower() for word in _SECRETIVE) and name.lower() != "www-authenticate"
