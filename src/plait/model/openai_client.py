"""The client of OpenAI's SDK as the adapters use it: one per event loop, no retries, plain dicts,
and every error a `Fault`.

Bodies are ours and answers are read as they are: text to be kept verbatim must not pass through
models of the SDK, which fill in and leave out. The client does the rest: sockets, headers,
server-sent events.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec

from plait import secrets
from plait.errors import MissingExtra
from plait.event import Json
from plait.model.base import Fault

if TYPE_CHECKING:
    import openai

OFFICIAL = "https://api.openai.com/v1"
CONNECT_S, DRAIN_S = 10.0, 0.1
MESSAGE_MAX = 500
KEY_MIN = 8  # characters; a shorter header is no secret, and would blot out other words

Item = dict[str, Any]  # JSON as the provider has it


# ── the client ───────────────────────────────────────────────────────────────────────────────


class Endpoint:
    """One address, one key, and a client per event loop: its sockets belong to the loop they were
    opened on.
    """

    def __init__(
        self,
        what: str,
        base_url: str,
        api_key: str | None,
        timeout_s: float,
        *,
        foreign: bool = False,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        key_header: str = "",  # "": Authorization: Bearer
    ) -> None:
        try:
            import openai  # noqa: F401  # pyright: ignore[reportUnusedImport]
        except ImportError as error:
            raise MissingExtra(what, "openai", str(error)) from error
        secrets.learn_key(api_key, "API_KEY" if foreign else "OPENAI_API_KEY")
        self._headers, self._query, self._key_header = dict(headers or {}), query, key_header
        for value in self._headers.values():
            secrets.learn_key(value if len(value) >= KEY_MIN else None, "HEADER")
        self._base_url, self._key, self._timeout_s, self._foreign = (
            base_url,
            api_key,
            timeout_s,
            foreign,
        )
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = (
            WeakKeyDictionary()
        )
        self._lock = Lock()

    @property
    def is_official(self) -> bool:
        return urlsplit(self._base_url).hostname == urlsplit(OFFICIAL).hostname

    def _client(self) -> openai.AsyncOpenAI:
        loop = asyncio.get_running_loop()
        with self._lock:
            for other in [known for known in self._clients if known.is_closed()]:
                del self._clients[other]
            if loop not in self._clients:
                self._clients[loop] = self._make_client()
            return self._clients[loop]

    def _make_client(self) -> openai.AsyncOpenAI:
        import openai

        headers: dict[str, Any] = dict(self._headers)
        if self._key_header and self._key:
            headers[self._key_header] = self._key
        timeout = openai.Timeout(self._timeout_s, connect=min(CONNECT_S, self._timeout_s))
        client = openai.AsyncOpenAI(
            # without one the SDK would take OPENAI_API_KEY, and hand it to a stranger
            api_key=self._key or "not-needed",
            admin_api_key="",
            base_url=self._base_url,
            timeout=timeout,
            max_retries=0,
            default_headers=headers or None,
            default_query=self._query,
        )
        if self._foreign and not self.is_official:
            # from the environment, and for OpenAI only
            client.organization = client.project = None
        return client

    def _options(self) -> Any:
        """Return the options of a request: it goes with the key as a bearer, or in a header of its
        own, and not with both.
        """
        import openai

        if self._key_header and self._key:
            return {"headers": {"Authorization": openai.Omit()}}
        return {"security": {"bearer_auth": True}}

    async def aclose(self) -> None:
        """Close the connections of the running loop; the next `ask` opens new ones."""
        with self._lock:
            client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def get(self, path: str) -> Item:
        try:
            found = await self._client().get(path, cast_to=object, options=self._options())
        except Exception as error:
            self._raise(error)
        return an_object(found)

    async def post(self, path: str, body: Item) -> Item:
        try:
            found = await self._client().post(
                path, cast_to=object, body=body, options=self._options()
            )
        except Exception as error:
            self._raise(error)
        # the SDK returns a body that is not declared as JSON as a text
        if isinstance(found, str) and found.lstrip().startswith(_STREAM_STARTS):
            raise Fault("MalformedReply", _UNWANTED_STREAM)
        return an_object(found)

    async def events(
        self, path: str, body: Item, heard: Callable[[], str], last: frozenset[str] = frozenset()
    ) -> AsyncGenerator[Item]:
        """Yield the events of a stream, each a dict, up to one with a type among the `last`;
        `heard` returns the text so far, for the case that the stream breaks.
        """
        import openai

        began = False
        try:
            stream = await self._client().post(
                path,
                cast_to=object,
                body={**body, "stream": True},
                options=self._options(),
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            # The SDK's own iterator leaves its inner ones to the garbage collector when a stream
            # breaks; these are closed right here.
            async with stream, aclosing(stream.response.aiter_bytes()) as chunks:
                began = True
                async with aclosing(_read_events(chunks, last)) as events:
                    async for event in events:
                        self._check(event, heard)
                        yield event
                await _drain(chunks)
        except Exception as error:
            self._raise(error, heard() if began else None)

    def _check(self, event: Item, heard: Callable[[], str]) -> None:
        if event.get("error") or event.get("type") == "error":
            raise fault_from_data(
                item_in(event, "error") or {"message": event.get("error"), **event},
                heard(),
                self.scrub,
            )

    def _raise(self, error: Exception, heard: str | None = None) -> NoReturn:
        # Without its cause: a traceback prints the text of the cause, and a server may have quoted
        # our key.
        raise _fault(error, heard, self.scrub) from None

    def scrub(self, text: str) -> str:
        """Return a message without keys and passwords, on one line, at most MESSAGE_MAX long."""
        for secret in (self._key, urlsplit(self._base_url).password, *self._headers.values()):
            if secret and len(secret) >= KEY_MIN:
                text = text.replace(secret, "***")
        text = re.sub(r"(?i)\b(bearer|basic)\s+[\w.~+/*=-]+", r"\1 ***", text)
        text = " ".join(re.sub(r"\bsk-[\w*.-]{4,}", "sk-***", text).split())
        return whole_characters(text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…")


_STREAM_STARTS = ("data:", "event:", "id:", ": ")
_UNWANTED_STREAM = (
    "an event stream came, though none was asked for (content-type text/event-stream). Let the"
    " server answer whole, or stream the answer: agent.stream(session)"
)


async def _read_events(chunks: AsyncIterator[bytes], last: frozenset[str]) -> AsyncGenerator[Item]:
    """Yield server-sent events: lines of data up to an empty one. Half an event is left out."""
    rest, data = b"", list[bytes]()
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in map(bytes.rstrip, lines):
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
            elif not line and data:
                text, data = b"\n".join(data), []
                if text == b"[DONE]":
                    return
                event = an_object(json.loads(text))
                yield event
                if kind_of(event) in last:
                    return


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read the rest of a stream, briefly: a connection at its end can be used again."""
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in chunks:
                pass
    except Exception:
        pass  # all was said


# ── reading carefully: a server may say anything ─────────────────────────────────────────────


def is_object(value: object) -> TypeGuard[Item]:
    return isinstance(value, dict)


def an_object(value: object) -> Item:
    if not is_object(value):
        raise Fault(
            "MalformedReply",
            f"a {type(value).__name__} came where a JSON object was due",
            retryable=True,
        )
    return value


def kind_of(item: Item) -> str:
    kind = item.get("type")
    return kind if isinstance(kind, str) else ""


def item_in(item: Item, field: str) -> Item:
    found = item.get(field)
    return found if is_object(found) else {}


def objects(item: Item, field: str) -> list[Item]:
    found: Any = item.get(field)
    return (
        [each for each in cast("list[object]", found) if is_object(each)]
        if isinstance(found, list)
        else []
    )


def text_in(value: object, *, whole: bool = False) -> str:
    """Return a text; some servers give it in pieces, and arguments as an object."""
    if isinstance(value, list):
        return "".join(
            text_in(an_object(piece).get("text")) for piece in cast("list[object]", value)
        )
    if whole and is_object(value):
        return to_json(checked_json(value))
    return whole_characters(value) if isinstance(value, str) else ""


def whole_characters(text: str) -> str:
    """Return the text without half characters: no log could keep them."""
    return (
        text
        if text.isascii()
        else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )


def checked_json(value: Any, depth: int = 0) -> Any:
    """Return JSON that a log can keep: half characters are replaced, any other value that it cannot
    keep is refused.
    """
    if (
        depth > _DEPTH_MAX
        or (isinstance(value, float) and not math.isfinite(value))
        or (isinstance(value, int) and abs(value) > _INT_MAX)
    ):
        raise Fault(
            "MalformedReply",
            "something came that is no JSON: a number out of bounds, or nesting without end",
            retryable=True,
        )
    if isinstance(value, str):
        return whole_characters(value)
    if is_object(value):
        return {whole_characters(key): checked_json(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [checked_json(each, depth + 1) for each in cast("list[Any]", value)]
    return value


_DEPTH_MAX = 64  # an event holds a hundred, of which some are ours
_INT_MAX = 2**63 - 1


def count(value: object) -> int:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _INT_MAX
        else 0
    )


def model_name(found: Item) -> str:
    return text_in(found.get("model"))


def to_json(value: Json) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()


# ── faults ───────────────────────────────────────────────────────────────────────────────────

_RETRYABLE = frozenset(
    {
        "RateLimited",
        "Overloaded",
        "ServerError",
        "Timeout",
        "ConnectionLost",
        "StreamCut",
        "MalformedReply",
    }
)
_BY_STATUS = {
    401: "AuthFailed",
    403: "AuthFailed",
    404: "NotFound",
    408: "Timeout",
    429: "RateLimited",
    503: "Overloaded",
    529: "Overloaded",
}
_BY_CODE = {
    "context_length_exceeded": "ContextOverflow",
    "exceed_context_size_error": "ContextOverflow",
    "insufficient_quota": "QuotaExceeded",
    "billing_hard_limit_reached": "QuotaExceeded",
    "rate_limit_exceeded": "RateLimited",
    "server_error": "ServerError",
    "server_overloaded": "Overloaded",
    "overloaded_error": "Overloaded",
    "invalid_prompt": "BadRequest",
    "invalid_request_error": "BadRequest",
    "invalid_api_key": "AuthFailed",
}
_TOO_LONG = re.compile(
    r"(?i)(maximum|exceeds?) .{0,40}context|context (length|window|size)|prompt is too long|too"
    r" many tokens"
)


def _fault(error: Exception, heard: str | None, scrub: Callable[[str], str]) -> Fault:
    """Turn an error of the SDK into a fault; `heard`: the text so far of a stream that began."""
    import httpx2
    import openai

    if isinstance(error, Fault):
        error.partial = error.partial or heard or ""
        return error
    if isinstance(error, openai.APIStatusError):
        return _by_status(error, scrub)
    if isinstance(error, (openai.APITimeoutError, httpx2.TimeoutException)):
        why = (
            "no connection, or no word for too long"
            if heard is None
            else "the stream fell silent for too long"
        )
        return _make_fault("Timeout", why, heard)
    if isinstance(error, (openai.APIConnectionError, httpx2.TransportError)):
        return _make_fault(
            "ConnectionLost" if heard is None else "StreamCut",
            scrub(str(error.__cause__ or error)) or "it hung up",
            heard,
        )
    if isinstance(error, openai.APIError):
        return fault_from_data(
            error.body if is_object(error.body) else {"message": error.message}, heard, scrub
        )
    if isinstance(error, (ValueError, RecursionError)):
        return _make_fault("MalformedReply", scrub(f"not JSON: {error}"), heard)
    return _make_fault("ClientFailed", scrub(f"{type(error).__name__}: {error}"), heard)


def _by_status(error: openai.APIStatusError, scrub: Callable[[str], str]) -> Fault:
    said = (text_in(error.body.get("message")) if is_object(error.body) else "") or error.message
    status = error.status_code
    kind = _by_number(status)
    coded = _kind_of_code(error.code, error.type)
    if coded in ("ContextOverflow", "QuotaExceeded"):
        kind = coded
    elif status in (400, 413, 422) and _TOO_LONG.search(said):
        kind = "ContextOverflow"
    fault = _make_fault(kind, scrub(f"{status}: {said}"), None)
    fault.retry_after_s = _retry_after(error.response.headers) if fault.retryable else None
    return fault


def fault_from_data(error: Item, heard: str | None, scrub: Callable[[str], str]) -> Fault:
    """An error that came as data, in a stream or in an answer that is otherwise fine."""
    code, said = (
        error.get("code"),
        text_in(error.get("message")) or "the provider gave up, and did not say why",
    )
    coded = _kind_of_code(code, error.get("type"))
    if coded in (None, "BadRequest") and _TOO_LONG.search(said):
        coded = "ContextOverflow"
    if coded in (None, "ServerError") and heard is not None:
        coded = "StreamCut"
    return _make_fault(coded or "ServerError", scrub(f"{code}: {said}" if code else said), heard)


def _kind_of_code(*words: object) -> str | None:
    """Return the kind of fault for a code; gateways put the status there. None: not known."""
    for word in words:
        if isinstance(word, str) and word in _BY_CODE:
            return _BY_CODE[word]
        if isinstance(word, int) and 400 <= word < 600:
            return _by_number(word)
    return None


def _by_number(status: int) -> str:
    return _BY_STATUS.get(status, "ServerError" if status >= 500 else "BadRequest")


def _make_fault(kind: str, message: str, heard: str | None) -> Fault:
    return Fault(kind, message, retryable=kind in _RETRYABLE, partial=whole_characters(heard or ""))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait.

    A date is compared with the server's own clock, which is in the headers; ours may be wrong.
    """
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return max(0.0, seconds) if math.isfinite(seconds) else None
    try:
        until, now = (
            parsedate_to_datetime(headers.get(name, "")) for name in ("retry-after", "date")
        )
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):  # no date, or one without a zone
        return None
