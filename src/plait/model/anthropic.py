"""Claude, by the Messages API, on Anthropic's own SDK.

The SDK does the wire: connections, keys, statuses, the framing of events. What comes is read here
from the bytes, because its readers mend or drop what they do not like, and a reply is kept as it
came: thinking with its signature, arguments that are no JSON. Each turn is rendered by itself, so
what was sent before is sent again byte for byte, and the provider finds it in its cache.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import msgspec

from plait import secrets
from plait.errors import InvalidInput, MissingExtra, MissingKey, PlaitError, UnknownBlob
from plait.event import Json
from plait.event.kinds import Data, File, Image, Parts, Price, Reasoning, Text, Usage
from plait.event.strict import parse
from plait.ids import Digest
from plait.model.base import (
    Answered,
    Call,
    Delta,
    Fault,
    OnDelta,
    ReasoningDelta,
    Reply,
    Request,
    Result,
    Returned,
    Said,
    Spec,
    TextDelta,
    ToolCall,
    ToolDelta,
    Turn,
)
from plait.model.prices import price_of

_missing = ""
if TYPE_CHECKING:
    import anthropic
    import httpx2
else:
    try:
        import anthropic
        import httpx2
    except ImportError as error:  # said on construction, when it is known what was wanted
        _missing = str(error)

PROVIDER = "anthropic"
CONNECT_S = 10.0
FINISH_S = 1.0
# tokens; an answer that may be longer is streamed in any case, since idle connections are cut on
# the way
WHOLE_MAX = 16_384

Block = dict[str, Any]
Blob = Callable[[Digest], bytes]
Content = Text | Reasoning | Image | File | Data


class AnthropicModel:
    """`AnthropicModel("claude-sonnet-5-5")`; the key is ANTHROPIC_API_KEY, the address
    ANTHROPIC_BASE_URL, unless given here.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = 600.0,  # of silence
        # of an answer, where the request does not say; thinking comes on top
        tokens_max: int = 8192,
    ) -> None:
        self.name = f"{PROVIDER}:{model}"
        if _missing:
            raise MissingExtra(self.name, "anthropic", _missing)
        self._key = (api_key or os.environ.get("ANTHROPIC_API_KEY", "")).strip()
        if not self._key:
            raise MissingKey(self.name, "ANTHROPIC_API_KEY")
        secrets.learn(self._key, "ANTHROPIC_API_KEY")
        self._base_url = (
            base_url or os.environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
        )
        self._model, self._timeout_s, self._tokens_max = model, timeout_s, tokens_max
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, anthropic.AsyncAnthropic] = (
            WeakKeyDictionary()
        )
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"AnthropicModel({self._model!r})"

    async def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        try:
            options = _options(request, self._model, self._tokens_max)
            whole = on_delta is None and options["max_tokens"] <= WHOLE_MAX
        # a blob that cannot be read, a parameter of a strange type
        except (PlaitError, TypeError, ValueError) as error:
            raise Fault("BadRequest", f"{type(error).__name__}: {error}") from error
        return await (self._whole(options) if whole else self._streamed(options, on_delta))

    async def aclose(self) -> None:
        """Close the connections of the running loop. Asking again opens new ones."""
        with self._lock:
            client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def _whole(self, options: Block) -> Reply:
        draft = _Draft(self._model)
        try:
            answer = await self._client().messages.with_raw_response.create(**options)
            draft.begun = True
            draft.take_whole(msgspec.json.decode(answer.http_response.content, type=_Message))
            return draft.reply()
        except Exception as error:
            # No chain: what the SDK raises holds the request, and with it the key.
            raise self._fault(error, draft) from None

    async def _streamed(self, options: Block, on_delta: OnDelta | None) -> Reply:
        draft = _Draft(self._model)
        async with aclosing(self._deltas(options, draft)) as deltas:
            async for delta in deltas:
                if on_delta is not None:
                    on_delta(delta)
        return draft.reply()

    async def _deltas(self, options: Block, draft: _Draft) -> AsyncGenerator[Delta]:
        """A generator, so that what `on_delta` raises is not taken for a fault of the provider."""
        try:
            async with await self._client().messages.create(**options, stream=True) as stream:
                draft.begun = True
                events = stream.raw_events(stream.response)
                async for event in events:
                    if event.data and (
                        delta := draft.take(msgspec.json.decode(event.data, type=_Event))
                    ):
                        yield delta
                    if draft.done:
                        await _finish(events)
                        return
            raise Fault("StreamCut", "the stream ended before the message did", retryable=True)
        except Exception as error:
            raise self._fault(error, draft) from None

    # untyped: what is rendered here is plain JSON, not the SDK's typed dicts
    def _client(self) -> Any:
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._clients:
                timeout = httpx2.Timeout(self._timeout_s, connect=min(self._timeout_s, CONNECT_S))
                self._clients[loop] = anthropic.AsyncAnthropic(
                    api_key=self._key, base_url=self._base_url, timeout=timeout, max_retries=0
                )
            return self._clients[loop]

    def _fault(self, error: Exception, draft: _Draft) -> Fault:
        """Any failure as a fault, with what had come, and without the key."""
        kind, message, again, wait_s = _explain(error, draft.begun)
        for form in (self._key, repr(self._key)[1:-1]):
            message = message.replace(form, "[key]")
        usage, price = draft.spent()
        return Fault(
            kind,
            message,
            retryable=again,
            retry_after_s=wait_s,
            partial=draft.text(),
            usage=usage,
            price=price,
        )


async def _finish(events: AsyncIterator[Any]) -> None:
    """Read what is left, which is nothing: the connection can then be used again.

    Whatever happens now, the message is whole.
    """
    try:
        async with asyncio.timeout(FINISH_S):
            async for _ in events:
                pass
    except (TimeoutError, httpx2.HTTPError):
        pass


# ── what is sent ─────────────────────────────────────────────────────────────────────────────

_MARK = {"type": "ephemeral"}
_SAMPLING = {"temperature", "top_p", "top_k"}
# The version from 2026-10 on refuses them, the one before takes them; which models still do is for
# the provider to say.
_SAMPLING_VERSION = {"anthropic-version": "2023-06-01"}
_OUR_PARAMETERS = {"tokens_max", "stop", "thinking_tokens", "output_config"}
_IMAGES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
_TEXTS = {
    "application/json",
    "application/xml",
    "application/yaml",
    "application/toml",
    "application/javascript",
    "application/x-sh",
}


def _options(request: Request, model: str, tokens_max: int) -> Block:
    """The arguments of the SDK's `create`."""
    given = request.parameters
    thinking = cast("int | None", given.get("thinking_tokens"))
    options: Block = {
        "model": model,
        "max_tokens": given.get("tokens_max") or tokens_max + (thinking or 0),
        "messages": _messages(request),
        "extra_body": {name: value for name, value in given.items() if name not in _OUR_PARAMETERS},
    }
    if thinking:
        options["thinking"] = {"type": "enabled", "budget_tokens": thinking}
    if stop := given.get("stop"):
        options["stop_sequences"] = (
            [stop] if isinstance(stop, str) else list(cast("Sequence[str]", stop))
        )
    if _SAMPLING & given.keys():
        options["extra_headers"] = _SAMPLING_VERSION
    if request.tools:
        options["tools"] = _tools(request.tools)
    if request.choice != "auto" and (request.tools or request.choice == "any"):
        options["tool_choice"] = {"type": request.choice}
    _add_system_and_output(options, request)
    return options


def _add_system_and_output(options: Block, request: Request) -> None:
    system = _text(request.instruction)
    config = dict(cast("Mapping[str, Json]", request.parameters.get("output_config") or {}))
    if request.output is not None:
        if schema := _closed_schema(request.output):
            config["format"] = {"type": "json_schema", "schema": schema}
        else:
            system += _text(
                "Answer with one JSON object, and nothing around it. It must fit this JSON"
                f" schema:\n{_json(request.output)}"
            )
    if system:
        system[-1]["cache_control"] = _MARK
        options["system"] = system
    if config:
        options["output_config"] = config


def _closed_schema(schema: Json) -> Block | None:
    """As the API wants it; None: it cannot say it."""
    plain = msgspec.json.decode(msgspec.json.encode(schema), type=dict[str, Any])
    if not _is_closed(plain, plain.get("$defs", {})):
        return None
    try:
        return anthropic.transform_schema(plain)
    except (ValueError, TypeError, AttributeError, AssertionError):  # such as a value of any type
        return None


def _is_closed(
    schema: Any, definitions: Mapping[str, Any], inside: frozenset[str] = frozenset()
) -> bool:
    """Whether every object in it names its fields, and none contains itself: the API knows no
    other.
    """
    if isinstance(schema, list):
        return all(_is_closed(item, definitions, inside) for item in cast("list[Any]", schema))
    if not isinstance(schema, dict):
        return True
    found = cast("dict[str, Any]", schema)
    if isinstance(name := found.get("$ref"), str):
        name = name.rpartition("/")[2]
        return name not in inside and _is_closed(
            definitions.get(name), definitions, inside | {name}
        )
    if found.get("type") == "object" and (
        "properties" not in found or isinstance(found.get("additionalProperties"), dict)
    ):
        return False
    return all(
        _is_closed(item, definitions, inside) for key, item in found.items() if key != "$defs"
    )


def _tools(specs: Sequence[Spec]) -> list[Block]:
    tools: list[Block] = [
        {"name": spec.name, "description": spec.description, "input_schema": spec.schema}
        for spec in specs
    ]
    tools[-1]["cache_control"] = _MARK
    return tools


def _messages(request: Request) -> list[Block]:
    """One message per turn: the API itself joins neighbours of one role."""
    contents = [_content(turn, request.blob) for turn in request.turns]
    for place in _ends(request.turns):
        if contents[place]:
            contents[place][-1]["cache_control"] = _MARK
    roles = ["assistant" if isinstance(turn, Answered) else "user" for turn in request.turns]
    return [
        {"role": role, "content": content}
        for role, content in zip(roles, contents, strict=True)
        if content
    ]


def _ends(turns: Sequence[Turn]) -> set[int]:
    """Where this ask ends, to be cached, and where the one before ended, to be found: by itself the
    API looks back only 20 blocks.
    """
    ours = [place for place, turn in enumerate(turns) if isinstance(turn, Answered)]
    others = [place for place, turn in enumerate(turns) if not isinstance(turn, Answered)]
    before = [place for place in others if ours and place < ours[-1]]
    return {*others[-1:], *before[-1:]}


def _content(turn: Turn, blob: Blob) -> list[Block]:
    """The blocks of a turn, by the turn alone. Empty: nothing the API would take."""
    if isinstance(turn, Said):
        return _shown(turn.parts, blob) or _text("[an empty message]")
    if isinstance(turn, Returned):
        return [_result(result, blob) for result in turn.results]
    blocks = [block for part in turn.parts for block in _own(part, blob)] + [
        _call(call) for call in turn.calls
    ]
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        blocks.pop()  # a message that ends in a thought is refused
    return blocks


def _result(result: Result, blob: Blob) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": result.call}
    if result.failed:  # then it must say something, and in words only
        content = [block for part in result.parts for block in _told(part, blob)] or _text(
            "[failed, and said nothing]"
        )
        return {**block, "content": content, "is_error": True}
    content = _shown(result.parts, blob)
    return {**block, "content": content} if content else block


def _call(call: Call) -> Block:
    # An object is demanded, also where what the model wrote was none: its own words then stand in
    # one.
    whole = isinstance(call.arguments, Mapping)
    text = call.arguments if isinstance(call.arguments, str) else _json(call.arguments)
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.tool,
        "input": call.arguments if whole else {"INVALID_JSON": text},
    }


def _own(part: Content, blob: Blob) -> list[Block]:
    """A part of what the model itself replied. Thoughts of other providers mean nothing here."""
    if not isinstance(part, Reasoning):
        return _told(part, blob)
    raw = cast("Mapping[str, Any]", part.raw if isinstance(part.raw, Mapping) else {})
    return [raw["block"]] if raw.get("provider") == PROVIDER and "block" in raw else []


def _shown(parts: Parts, blob: Blob) -> list[Block]:
    """Parts with their images and documents."""
    return [block for part in parts for block in _show(part, blob)]


def _show(part: Content, blob: Blob) -> list[Block]:
    if isinstance(part, Image) and part.media_type in _IMAGES and (content := _bytes(part, blob)):
        return [
            {
                "type": "image",
                "source": {
                    "type": "base64",
                    "media_type": part.media_type,
                    "data": _base64(content),
                },
            }
        ]
    if isinstance(part, File) and (source := _document(part, blob)):
        return [{"type": "document", "source": source, "title": part.name[:500] or "file"}]
    return _told(part, blob)


def _document(part: File, blob: Blob) -> Block | None:
    """None: the API has no way to show it."""
    content = _bytes(part, blob) or b""
    if part.media_type == "application/pdf" and content:
        return {"type": "base64", "media_type": "application/pdf", "data": _base64(content)}
    kind = part.media_type.partition(";")[0]
    if content.strip() and (
        kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml"))
    ):
        try:
            return {"type": "text", "media_type": "text/plain", "data": content.decode()}
        except UnicodeDecodeError:
            pass
    return None


def _told(part: Content, blob: Blob) -> list[Block]:
    """A part in words; what cannot be shown is named, never left out."""
    if isinstance(part, Image):
        return _text(f"[image: {part.alt or part.media_type}, not shown: {_why_not(part, blob)}]")
    if isinstance(part, File):
        return _text(f"[file: {part.name}, not shown: {_why_not(part, blob)}]")
    if isinstance(part, Data):
        value = (
            _bytes(part, blob) if part.blob and part.value is None else _json(part.value).encode()
        )
        return _text("[data, not shown: it was erased]" if value is None else value.decode())
    if not part.text and part.blob:
        content = _bytes(part, blob)
        return _text("[text, not shown: it was erased]" if content is None else content.decode())
    return _text(part.text)


def _why_not(part: Image | File, blob: Blob) -> str:
    content = _bytes(part, blob)
    return (
        "it was erased"
        if content is None
        else f"{part.media_type}, {len(content)} bytes"
        if content
        else "it is empty"
    )


def _bytes(part: Content, blob: Blob) -> bytes | None:
    """None: erased."""
    try:
        return blob(part.blob) if part.blob else b""
    except UnknownBlob:
        return None


def _text(text: str) -> list[Block]:
    """A text block; none for blank text, which is refused."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


# ── what comes back ──────────────────────────────────────────────────────────────────────────

_STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
_PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


class _Error(msgspec.Struct):
    type: str = ""
    message: str = ""


class _Message(msgspec.Struct):
    type: str = ""
    model: str = ""
    content: list[msgspec.Raw] | None = None
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: _Error | None = None


class _Piece(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    """Any event of a stream. What is not named here is of no use, or of a kind to come."""

    type: str
    index: int = 0
    message: _Message | None = None
    content_block: dict[str, Any] | None = None
    delta: _Piece | None = None
    usage: dict[str, Any] | None = None
    error: _Error | None = None


class _Typed(msgspec.Struct):
    """What every block has, and the arguments of a call as they are written."""

    type: str
    input: msgspec.Raw = msgspec.Raw(b"")


class _Told(Exception):
    """The provider said what is wrong inside an answer that began well."""

    def __init__(self, error: _Error | None) -> None:
        self.type, self.message = (error.type, error.message) if error else ("", "")
        super().__init__(self.message)


class _Growing:
    """A content block, and the pieces that came after its start, by field."""

    def __init__(self, start: Block, call: int) -> None:
        self.start, self.call = start, call  # call: its number among the calls
        self.pieces: dict[str, list[str]] = {}

    def whole(self) -> tuple[Block, str]:
        """The block, and its arguments as they came."""
        joined = {field: "".join(pieces) for field, pieces in self.pieces.items()}
        arguments = joined.pop("partial_json", "")
        block = {
            **self.start,
            **{field: (self.start.get(field) or "") + text for field, text in joined.items()},
        }
        given = self.start.get("input")
        if not arguments and given:
            arguments = _json(given)
        elif arguments and self.start["type"] != "tool_use":
            # of a tool on the server's side: goes back as a whole
            block["input"] = _arguments(arguments)
        return block, arguments


class _Draft:
    """A reply as far as it has come."""

    def __init__(self, asked: str) -> None:
        self.asked, self.model = asked, ""
        self.begun = self.done = False
        self.stop_reason: str | None = None
        self.counts: dict[str, int] = {}
        self.growing: dict[int, _Growing] = {}
        self.blocks: list[tuple[Block, str]] | None = None  # None: they are still growing

    def take_whole(self, message: _Message) -> None:
        if message.error is not None or message.content is None:
            raise _Told(message.error) if message.error else ValueError("a message without content")
        self.model, self.stop_reason = message.model, message.stop_reason
        self._count(message.usage)
        self.blocks = [
            (
                msgspec.json.decode(raw, type=dict[str, Any]),
                bytes(msgspec.json.decode(raw, type=_Typed).input).decode(),
            )
            for raw in message.content
        ]

    def take(self, event: _Event) -> Delta | None:
        if event.type == "error":
            raise _Told(event.error)
        if event.type == "message_stop":
            self.done = True
        if event.message is not None:
            self.model = event.message.model
            self._count(event.message.usage)
        self._count(event.usage)
        if event.type == "content_block_start" and event.content_block is not None:
            return self._start(event.index, event.content_block)
        if event.type == "content_block_delta" and event.delta is not None:
            return self._grow(self.growing[event.index], event.delta)
        if event.delta is not None:
            self.stop_reason = event.delta.stop_reason or self.stop_reason
        return None

    def _start(self, index: int, block: Block) -> Delta | None:
        is_call = block["type"] == "tool_use"
        call = sum(known.start["type"] == "tool_use" for known in self.growing.values())
        self.growing[index] = _Growing(block, call)
        if is_call:
            return ToolDelta(call, block["name"])
        return TextDelta(block["text"]) if block.get("text") else None

    def _grow(self, block: _Growing, delta: _Piece) -> Delta | None:
        field = _PIECES.get(delta.type)
        # citations and kinds to come have no place in a reply
        piece: str = getattr(delta, field) if field else ""
        if not field or not piece:
            return None
        block.pieces.setdefault(field, []).append(piece)
        if field == "text":
            return TextDelta(piece)
        if field == "thinking":
            return ReasoningDelta(piece)
        return (
            ToolDelta(block.call, block.start["name"], piece)
            if field == "partial_json" and block.start["type"] == "tool_use"
            else None
        )

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        """Counts are cumulative: the last one holds."""
        known = dict(usage or {})
        details = known.pop("output_tokens_details", None)
        if isinstance(details, Mapping):
            known.update(cast("Mapping[str, Any]", details))
        self.counts |= {name: count for name, count in known.items() if type(count) is int}

    def _all(self) -> list[tuple[Block, str]]:
        if self.blocks is not None:
            return self.blocks
        return [block.whole() for _, block in sorted(self.growing.items())]

    def text(self) -> str:
        return "".join(
            [block.get("text") or "" for block, _ in self._all() if block["type"] == "text"]
        )

    def spent(self) -> tuple[Usage | None, Price | None]:
        """None: not known, or no price for it."""
        if not self.counts:
            return None, None
        read, written = (
            self.counts.get("cache_read_input_tokens", 0),
            self.counts.get("cache_creation_input_tokens", 0),
        )
        input_tokens = self.counts.get("input_tokens", 0) + read + written
        usage = Usage(
            input_tokens,
            self.counts.get("output_tokens", 0),
            read,
            self.counts.get("thinking_tokens", 0),
        )
        prices = (
            price_of(PROVIDER, name, usage, cache_written_tokens=written)
            for name in (self.model, self.asked)
            if name
        )
        return usage, next((price for price in prices if price), None)

    def reply(self) -> Reply:
        blocks, usage, price = self._all(), *self.spent()
        stop = _STOPS.get(self.stop_reason or "end_turn", self.stop_reason or "")
        calls = tuple(_calls(blocks, cut=stop == "length"))
        if stop == "end" and calls:
            stop = "calls"  # servers that imitate the API are lax here
        return Reply(tuple(_parts(blocks)), calls, stop, usage or Usage(), self.model, price)


def _parts(blocks: Iterable[tuple[Block, str]]) -> Iterable[Content]:
    for block, _ in blocks:
        if block["type"] == "text":
            if block.get("text"):
                yield Text(block["text"])
        elif block["type"] == "thinking" and not block.get("signature"):
            if block.get("thinking"):
                # cut before it was signed: it would not be taken back
                yield Reasoning(block["thinking"])
        elif block["type"] != "tool_use":
            yield Reasoning(block.get("thinking") or "", {"provider": PROVIDER, "block": block})


def _calls(blocks: Sequence[tuple[Block, str]], *, cut: bool) -> Iterable[ToolCall]:
    for place, (block, text) in enumerate(blocks, 1):
        if block["type"] == "tool_use":
            # Nothing yet, of a call that was cut, is not the same as nothing.
            unfinished = cut and place == len(blocks) and not text.strip()
            yield ToolCall.of(
                block["name"], text if unfinished else _arguments(text), ref=block.get("id") or ""
            )


def _arguments(text: str) -> Mapping[str, Json] | str:
    if not text.strip():
        return {}
    try:
        found = parse(text.encode())
    except InvalidInput:
        return text
    return cast("Mapping[str, Json]", found) if isinstance(found, dict) else text


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────

_KINDS = {  # by status, and by the name that the API gives it: inside a stream there is no status
    "401": "AuthFailed",
    "402": "AuthFailed",
    "403": "AuthFailed",
    "404": "NotFound",
    "408": "Timeout",
    "409": "Conflict",
    "413": "ContextOverflow",
    "429": "RateLimited",
    "529": "Overloaded",
    "authentication_error": "AuthFailed",
    "billing_error": "AuthFailed",
    "permission_error": "AuthFailed",
    "not_found_error": "NotFound",
    "timeout_error": "Timeout",
    "request_too_large": "ContextOverflow",
    "rate_limit_error": "RateLimited",
    "overloaded_error": "Overloaded",
    "invalid_request_error": "BadRequest",
}
_PASSING = {
    "Timeout",
    "Conflict",
    "RateLimited",
    "Overloaded",
    "ServerError",
    "ConnectionLost",
    "StreamCut",
    "MalformedReply",
}
_OVERFLOW = re.compile(
    r"prompt is too long|exceeds? (the )?(model's )?(maximum )?context", re.IGNORECASE
)
_MESSAGE_MAX = 2000

Explained = tuple[str, str, bool, float | None]


def _explain(error: Exception, begun: bool) -> Explained:
    """Kind, message, whether to ask again, and after how many seconds."""
    if isinstance(error, anthropic.APIStatusError):
        return _explain_status(error)
    if isinstance(error, _Told):
        return _explained(_kind("", error.type, error.message), error.message or error.type)
    if isinstance(error, Fault):
        return _explained(error.kind, error.message)
    cause = (
        error.__cause__
        if isinstance(error, anthropic.APIConnectionError) and error.__cause__
        else error
    )
    message = f"{type(cause).__name__}: {cause}"
    if isinstance(error, (anthropic.APITimeoutError, httpx2.TimeoutException)):
        return _explained("Timeout", message)
    if isinstance(error, anthropic.APIConnectionError):
        return _explained("ConnectionLost", message)
    if isinstance(error, httpx2.TransportError):
        return _explained("StreamCut" if begun else "ConnectionLost", message)
    # Before an answer began the SDK refused to send; after that, what came is not what the API
    # promises.
    return _explained("MalformedReply" if begun else "BadRequest", message)


def _explained(kind: str, message: str, wait_s: float | None = None) -> Explained:
    return kind, message[:_MESSAGE_MAX], kind in _PASSING, wait_s


def _explain_status(error: anthropic.APIStatusError) -> Explained:
    headers = cast("Mapping[str, str]", error.response.headers)
    message = str(error.api_message or error.message)
    kind, message, again, wait_s = _explained(
        _kind(str(error.status_code), str(error.type), message), message, _wait_s(headers)
    )
    advice = headers.get("x-should-retry")
    return kind, message, again if advice is None else advice == "true", wait_s


def _kind(status: str, name: str, message: str) -> str:
    kind = (
        _KINDS.get(status)
        or _KINDS.get(name)
        or ("BadRequest" if status.startswith("4") else "ServerError")
    )
    return "ContextOverflow" if kind == "BadRequest" and _OVERFLOW.search(message) else kind


def _wait_s(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds.

    A date is read against the server's own clock, not ours, which may be off.
    """
    asked = headers.get("retry-after", "").strip()
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        if re.fullmatch(r"[0-9.]+", asked):
            return float(asked)
        wait = parsedate_to_datetime(asked) - parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, wait.total_seconds())
    except (ValueError, TypeError):
        return None
