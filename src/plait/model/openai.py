"""OpenAI, and servers that speak like it.

`OpenAIModel` uses the Responses API without its memory: nothing is stored there, the whole history is sent each time, and reasoning
items go back exactly as they came. `ChatModel` uses Chat Completions, which most other servers speak, by their address.

Both send bodies of their own through the SDK's client and read plain dicts: what is kept verbatim must not pass through models of the
SDK, which fill in and leave out. The client does the rest: sockets, headers, server-sent events, errors.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard, cast
from urllib.parse import urlsplit, urlunsplit
from weakref import WeakKeyDictionary

import msgspec

from plait.errors import InvalidInput, MissingExtra, MissingKey
from plait.event import Json
from plait.event.kinds import Data, File, Image, Parts, Price, Reasoning, Text, Usage
from plait.event.strict import parse
from plait.model.base import (
    Answered,
    Fault,
    OnDelta,
    ReasoningDelta,
    Reply,
    Request,
    Returned,
    Said,
    TextDelta,
    ToolCall,
    ToolDelta,
    Turn,
)
from plait.model.prices import price_of

if TYPE_CHECKING:
    import openai

OFFICIAL = "https://api.openai.com/v1"
CONNECT_S = 10.0
MESSAGE_MAX = 500

Part = Text | Reasoning | Image | File | Data
Item = dict[str, Any]  # JSON as the provider has it


# ── the client ───────────────────────────────────────────────────────────────────────────────


class _Endpoint:
    """One address, one key, and a client per event loop: its sockets belong to the loop they were opened on."""

    def __init__(self, name: str, base_url: str, api_key: str | None, timeout_s: float) -> None:
        try:
            import openai  # noqa: F401  # pyright: ignore[reportUnusedImport]
        except ImportError as error:
            raise MissingExtra(name, "openai", str(error)) from error
        self.name = name
        self._base_url, self._key, self._timeout_s = base_url, api_key, timeout_s
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = WeakKeyDictionary()
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def _official(self) -> bool:
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

        timeout = openai.Timeout(self._timeout_s, connect=min(CONNECT_S, self._timeout_s))
        client = openai.AsyncOpenAI(
            api_key=self._key or "not-needed",  # without one the SDK would take OPENAI_API_KEY, and hand it to a stranger
            admin_api_key="",
            base_url=self._base_url,
            timeout=timeout,
            max_retries=0,
        )
        if not self._official:
            client.organization = client.project = None  # taken from the environment, and nobody else's business
        return client

    async def aclose(self) -> None:
        """Close the connections of the running loop; the next `ask` opens new ones."""
        with self._lock:
            client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def _get(self, path: str) -> Item:
        try:
            found = await self._client().get(path, cast_to=object, options={"security": {"bearer_auth": True}})
        except Exception as error:
            self._raise(error)
        return _object(found)

    async def _post(self, path: str, body: Item) -> Item:
        try:
            found = await self._client().post(path, cast_to=object, body=body, options={"security": {"bearer_auth": True}})
        except Exception as error:
            self._raise(error)
        return _object(found)

    async def _events(self, path: str, body: Item, heard: Callable[[], str]) -> AsyncGenerator[Item]:
        """The events of a stream, each a dict; `heard` is asked for the text so far if it breaks."""
        import openai

        began = False
        try:
            stream = await self._client().post(
                path,
                cast_to=object,
                body={**body, "stream": True},
                options={"security": {"bearer_auth": True}},
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            async with stream:
                began = True
                async for event in stream:
                    yield _object(event)
        except Exception as error:
            self._raise(error, heard() if began else None)

    def _raise(self, error: Exception, heard: str | None = None) -> NoReturn:
        # Without its cause: a traceback prints what the cause says, and a server may have said our key.
        raise _fault(error, heard, self._scrub) from None

    def _scrub(self, text: str) -> str:
        """A message with nothing in it that opens a door."""
        for secret in (self._key, urlsplit(self._base_url).password):
            if secret:
                text = text.replace(secret, "***")
        text = re.sub(r"(?i)\b(bearer|basic)\s+[\w.~+/*=-]+", r"\1 ***", text)
        text = " ".join(re.sub(r"\bsk-[\w*.-]{4,}", "sk-***", text).split())
        return _mended(text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…")


class OpenAIModel(_Endpoint):
    """A model of OpenAI, by the Responses API. `timeout_s` is how long it may be silent."""

    def __init__(self, model: str, *, api_key: str | None = None, base_url: str | None = None, timeout_s: float = 600.0) -> None:
        name = f"openai:{model}"
        super().__init__(
            name, base_url or os.environ.get("OPENAI_BASE_URL") or OFFICIAL, api_key or os.environ.get("OPENAI_API_KEY"), timeout_s
        )
        if not self._key:
            raise MissingKey(name, "OPENAI_API_KEY")
        self._model = model

    async def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        body = self._body(request)
        if on_delta is None:
            found, streamed = await self._post("/responses", body), []
        else:
            found, streamed = await self._listen(body, on_delta)
        return self._reply(found, streamed)

    def _body(self, request: Request) -> Item:
        given = dict(request.parameters)
        body: Item = {"store": False, "model": self._model}
        if _reasons(self._model):
            given["include"] = list(dict.fromkeys([*cast("list[str]", given.get("include") or []), "reasoning.encrypted_content"]))
        _rename(given, "tokens_max", "max_output_tokens")
        if effort := given.pop("reasoning_effort", None):
            given["reasoning"] = {"effort": effort, **cast("Mapping[str, Json]", given.get("reasoning") or {})}
        if request.output is not None:
            asked = {"format": {"type": "json_schema", **_format(request.output)}}
            given["text"] = {**cast("Mapping[str, Json]", given.get("text") or {}), **asked}
        body |= given
        if request.instruction:
            body["instructions"] = request.instruction
        if request.tools:
            body["tools"] = [{"type": "function", **_function(spec.name, spec.description, spec.schema)} for spec in request.tools]
            body["tool_choice"] = _CHOICES[request.choice]
        return {**body, "input": [item for turn in request.turns for item in self._items(turn, request)]}

    def _items(self, turn: Turn, request: Request) -> list[Item]:
        match turn:
            case Said():
                return [{"type": "message", "role": "user", "content": [_input(part, request) for part in turn.parts]}]
            case Answered():
                return self._answered(turn, request)
            case Returned():
                return [
                    {"type": "function_call_output", "call_id": result.call, "output": _output(result.parts, result.failed, request)}
                    for result in turn.results
                ]

    def _answered(self, turn: Answered, request: Request) -> list[Item]:
        calls = [
            {"type": "function_call", "call_id": call.id, "name": call.tool, "arguments": _written(call.arguments)} for call in turn.calls
        ]
        items: list[Item] = []
        told = 0  # calls so far: a reasoning item that stood behind some stands there again
        for part in turn.parts:
            if isinstance(part, Reasoning):
                own = _own(part)
                if own is None or (own["item"].get("type") == "reasoning" and not _reasons(self._model)):
                    continue
                after = max(told, min(_count(own.get("after")), len(calls)))
                items += [*calls[told:after], own["item"]]
                told = after
            else:
                items.append({"type": "message", "role": "assistant", "content": _plain(part, request)})
        return items + calls[told:]

    async def _listen(self, body: Item, on_delta: OnDelta) -> tuple[Item, list[Item]]:
        """The final response, and the items as they were streamed: a final one may come without them."""
        said: list[str] = []
        items: dict[int, Item] = {}
        async with aclosing(self._events("/responses", body, lambda: "".join(said))) as events:
            async for event in events:
                if event.get("type") == "error":
                    raise _told(event, "".join(said), self._scrub)
                if event.get("type") in ("response.completed", "response.incomplete", "response.failed"):
                    final = _object(event.get("response"))
                    if event["type"] == "response.failed":
                        raise self._failed(final, "".join(said))
                    return final, [items[index] for index in sorted(items)]
                _follow(event, items, said, on_delta)
        raise Fault("StreamCut", "the stream ended without its last event", retryable=True, partial=_mended("".join(said)))

    def _failed(self, found: Item, heard: str | None = None) -> Fault:
        usage, written = _responses_usage(found)
        fault = _told(_sub(found, "error"), heard, self._scrub)
        fault.usage, fault.price = usage, self._price(found, usage, written)
        return fault

    def _reply(self, found: Item, streamed: list[Item]) -> Reply:
        status = found.get("status", "completed")
        if status in ("failed", "cancelled"):
            raise self._failed(found)
        if status not in ("completed", "incomplete") or not isinstance(found.get("output"), list):
            raise Fault("MalformedReply", f"this is not a finished response: its status is {status!r}", retryable=True)
        output = [_object(item) for item in found["output"]] or streamed
        if status == "incomplete":
            # What was cut in the middle may be missing from the end's list; it is kept, so that one sees what it was about to do.
            there = {item.get("call_id") for item in output}
            output += [item for item in streamed if item.get("type") == "function_call" and item.get("call_id") not in there]
        parts, calls, refused = _gather(output)
        usage, written = _responses_usage(found)
        reason: Any = _sub(found, "incomplete_details").get("reason")
        stop = _stop(str(reason or "incomplete") if status == "incomplete" else "stop", bool(calls), refused)
        return Reply(parts, calls, stop, usage, _named(found), self._price(found, usage, written))

    def _price(self, found: Item, usage: Usage, written: int) -> Price | None:
        price = price_of("openai", _named(found), usage, cache_written_tokens=written) if _named(found) else None
        return price or price_of("openai", self._model, usage, cache_written_tokens=written)


class ChatModel(_Endpoint):
    """Any server that speaks Chat Completions. `model` None: the first one it has; `timeout_s` is how long it may be silent."""

    def __init__(
        self, model: str | None, *, base_url: str, api_key: str | None = None, timeout_s: float = 600.0, name: str | None = None
    ) -> None:
        super().__init__(name or _address(base_url) + (f"#{model}" if model else ""), base_url, api_key, timeout_s)
        self._model = model

    async def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        if self._model is None:
            self._model = await self._first()
        body = self._body(request, self._model)
        if on_delta is None:
            found = await self._post("/chat/completions", body)
        else:
            found = await self._listen(body, on_delta)
        return self._reply(found)

    async def _first(self) -> str:
        found = (await self._get("/models")).get("data")
        if not isinstance(found, list) or not found:
            raise Fault("NotFound", f"{self.name} has no model to offer")
        return str(_object(cast("list[Any]", found)[0]).get("id"))

    def _body(self, request: Request, model: str) -> Item:
        given = dict(request.parameters)
        _rename(given, "tokens_max", "max_completion_tokens" if self._official else "max_tokens")
        if request.output is not None:
            given["response_format"] = {"type": "json_schema", "json_schema": _format(request.output)}
        body: Item = {"model": model, **given}
        if request.tools:
            functions = [_function(spec.name, spec.description, spec.schema) for spec in request.tools]
            body["tools"] = [{"type": "function", "function": function} for function in functions]
            body["tool_choice"] = _CHOICES[request.choice]
        system = [{"role": "system", "content": request.instruction}] if request.instruction else []
        return {**body, "messages": [*system, *(message for turn in request.turns for message in _messages(turn, request))]}

    async def _listen(self, body: Item, on_delta: OnDelta) -> Item:
        """The pieces put together again, as the answer would have been in one."""
        heard = _Pieces(on_delta)
        body = {**body, "stream_options": {"include_usage": True, **cast("Item", body.get("stream_options") or {})}}
        async with aclosing(self._events("/chat/completions", body, heard.text)) as events:
            async for event in events:
                heard.take(event)
        if heard.reason is None:
            raise Fault("StreamCut", "the stream ended without a reason to stop", retryable=True, partial=heard.text())
        return heard.whole()

    def _reply(self, found: Item) -> Reply:
        choices: Any = found.get("choices")
        if not isinstance(choices, list) or not choices:
            raise self._without_choices(found)
        choice = _object(cast("list[Any]", choices)[0])
        message = _sub(choice, "message")
        refusal, text = _text(message.get("refusal")), _text(message.get("content"))
        thought = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
        parts = (*((Reasoning(thought),) if thought else ()), *(Text(said) for said in (text, refusal) if said))
        calls = tuple([_call(_sub(call, "function"), call.get("id")) for call in _list(message, "tool_calls")])
        usage = _chat_usage(found)
        stop = _stop(str(choice.get("finish_reason") or "stop"), bool(calls), bool(refusal))
        price = price_of("openai", _named(found) or str(self._model), usage) if self._official else None
        return Reply(parts, calls, stop, usage, _named(found), price)

    def _without_choices(self, found: Item) -> Fault:
        # Some gateways answer 200 with an error inside.
        if _is_object(error := found.get("error")):
            return _told(error, None, self._scrub)
        return Fault("MalformedReply", "the answer has no choices", retryable=True)


# ── what we say ──────────────────────────────────────────────────────────────────────────────

_CHOICES = {"auto": "auto", "none": "none", "any": "required"}


def _reasons(model: str) -> bool:
    """Whether it may think first. Those that do not are known by name and refuse to be asked for it; new ones do."""
    return not re.match(r"(ft:)?(gpt-3|gpt-4|chatgpt|[\w.-]+-chat\b)", model)


def _rename(given: dict[str, Json], ours: str, theirs: str) -> None:
    if ours in given:
        given[theirs] = given.pop(ours)


def _function(name: str, description: str, schema: Json) -> Item:
    return {"name": name, "description": description, "parameters": schema, "strict": False}


def _format(schema: Json) -> Item:
    return {"name": "output", "schema": schema, "strict": _strict(schema)}


# What the strict mode is known to take; a schema that says more is sent too, but then only as a wish.
_STRICT = frozenset(
    "$defs $ref additionalProperties anyOf const description enum exclusiveMaximum exclusiveMinimum items maxItems maximum minItems "
    "minimum multipleOf pattern properties required title type".split()
)


def _strict(schema: Json) -> bool:
    """Whether every object in it names all its properties as required, and allows no others."""
    if not isinstance(schema, Mapping) or schema.keys() - _STRICT:
        return False
    properties = cast("Mapping[str, Json]", schema.get("properties") or {})
    required = cast("Sequence[str]", schema.get("required") or ())
    closed = schema.get("additionalProperties") is False and set(required) == set(properties)
    if ("properties" in schema or schema.get("type") == "object") and not closed:
        return False
    inner = [*properties.values(), *cast("Mapping[str, Json]", schema.get("$defs") or {}).values()]
    inner += [*cast("Sequence[Json]", schema.get("anyOf") or ()), *([schema["items"]] if "items" in schema else [])]
    return all(_strict(part) for part in inner)


def _input(part: Part, request: Request) -> Item:
    match part:
        case Image():
            return {"type": "input_image", "detail": "auto", "image_url": _data_url(part.media_type, request.blob(part.blob))}
        case File():
            return {"type": "input_file", "filename": part.name, "file_data": _data_url(part.media_type, request.blob(part.blob))}
        case _:
            return {"type": "input_text", "text": _plain(part, request)}


def _output(parts: Parts, failed: bool, request: Request) -> str | list[Item]:
    shown = [_input(part, request) for part in parts]
    if failed:
        shown.insert(0, {"type": "input_text", "text": _FAILED})
    if all(item["type"] == "input_text" for item in shown):
        return "\n".join(item["text"] for item in shown)
    return shown


_FAILED = "[the call failed]"


def _messages(turn: Turn, request: Request) -> list[Item]:
    match turn:
        case Said():
            return [{"role": "user", "content": _content(turn.parts, request)}]
        case Answered():
            text = "\n".join(_plain(part, request) for part in turn.parts if not isinstance(part, Reasoning))
            message: Item = {"role": "assistant", "content": text or (None if turn.calls else "")}
            if turn.calls:
                message["tool_calls"] = [
                    {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": _written(call.arguments, wrap=True)}}
                    for call in turn.calls
                ]
            return [message]
        case Returned():
            return _results(turn, request)


def _results(turn: Returned, request: Request) -> list[Item]:
    """A tool's message is text here: its images are shown by the user right after."""
    messages: list[Item] = []
    images: list[Image] = []
    for result in turn.results:
        lines = [_FAILED] if result.failed else []
        for part in result.parts:
            images += [part] if isinstance(part, Image) else []
            lines.append(f"[image {len(images)}, shown below]" if isinstance(part, Image) else _plain(part, request))
        messages.append({"role": "tool", "tool_call_id": result.call, "content": "\n".join(lines)})
    if images:
        label = Text("The images of the results above, in their order.")
        messages.append({"role": "user", "content": _content((label, *images), request)})
    return messages


def _content(parts: Parts, request: Request) -> str | list[Item]:
    # A plain text wherever it will do: not every server takes a list.
    if not any(isinstance(part, Image) for part in parts):
        return "\n".join(_plain(part, request) for part in parts)
    return [
        {"type": "image_url", "image_url": {"url": _data_url(part.media_type, request.blob(part.blob))}}
        if isinstance(part, Image)
        else {"type": "text", "text": _plain(part, request)}
        for part in parts
    ]


def _plain(part: Part, request: Request) -> str:
    """A part as text; what text cannot show is at least named."""
    match part:
        case Text() | Reasoning():
            return part.text or (request.blob(part.blob).decode("utf-8", "replace") if part.blob else "")
        case Data():
            return request.blob(part.blob).decode("utf-8", "replace") if part.blob else _json(part.value)
        case Image():
            return f"[image: {part.alt or 'untitled'}, not shown: {part.media_type} cannot stand here]"
        case File():
            return f"[file: {part.name}, not shown: {part.media_type} cannot stand here]"


def _written(arguments: Json, *, wrap: bool = False) -> str:
    """A call's arguments as the model wrote them; `wrap`: as an object even if they were none, for servers that read them again."""
    if isinstance(arguments, str):
        return _json({"not_json": arguments}) if wrap else arguments
    return _json(arguments)


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(content).decode()}"


def _own(part: Reasoning) -> Item | None:
    """What we once put there; what another provider wants back is not ours to send."""
    raw: object = part.raw
    return raw if _is_object(raw) and raw.get("provider") == "openai" and _is_object(raw.get("item")) else None


# ── what we hear ─────────────────────────────────────────────────────────────────────────────


def _follow(event: Item, items: dict[int, Item], said: list[str], on_delta: OnDelta) -> None:
    """One event of a response on its way."""
    index, delta = _count(event.get("output_index")), _text(event.get("delta"))
    match event.get("type"):
        case "response.output_text.delta" | "response.refusal.delta":
            said.append(delta)
            on_delta(TextDelta(_mended(delta)))
        case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
            on_delta(ReasoningDelta(_mended(delta)))
        case "response.reasoning_summary_part.added" if _count(event.get("summary_index")):
            on_delta(ReasoningDelta("\n\n"))
        case "response.output_item.added":
            items[index] = dict(_object(event.get("item")))
            if items[index].get("type") == "function_call":
                on_delta(ToolDelta(_rank(items, index), _text(items[index].get("name"))))
        case "response.function_call_arguments.delta" if index in items:
            items[index]["arguments"] = _text(items[index].get("arguments")) + delta
            on_delta(ToolDelta(_rank(items, index), _text(items[index].get("name")), _mended(delta)))
        case "response.output_item.done":
            items[index] = _object(event.get("item"))
        case _:
            pass  # progress, annotations, what else they think of: the items say it all


def _rank(items: Mapping[int, Item], index: int) -> int:
    return sum(1 for other, item in items.items() if other < index and item.get("type") == "function_call")


def _gather(output: Iterable[Item]) -> tuple[Parts, tuple[ToolCall, ...], bool]:
    """Parts, calls, and whether it declined."""
    parts: list[Part] = []
    calls: list[ToolCall] = []
    refused = False
    for item in output:
        match item.get("type"):
            case "message":
                for content in _list(item, "content"):
                    said = _text(content.get("text")) or _text(content.get("refusal"))
                    refused = refused or content.get("type") == "refusal"
                    parts += [Text(said)] if said else []
            case "function_call":
                calls.append(_call(item, item.get("call_id")))
            case _:
                # Reasoning, and whatever else is new to us: kept as it came, and sent back so.
                raw: Item = {"provider": "openai", "item": _safe(item), **({"after": len(calls)} if calls else {})}
                parts.append(Reasoning(_thought(item), raw))
    return tuple(parts), tuple(calls), refused


def _thought(item: Item) -> str:
    for field in ("summary", "content"):
        if text := "\n\n".join(_text(piece.get("text")) for piece in _list(item, field)):
            return text
    return ""


def _call(function: Item, ref: object) -> ToolCall:
    written = _text(function.get("arguments"), whole=True)
    arguments: Mapping[str, Json] | str = written
    if not written:
        arguments = {}
    else:
        try:
            read = parse(written.encode())
            arguments = read if isinstance(read, Mapping) else written
        except InvalidInput:
            pass  # the runtime says why, and the model sees it
    return ToolCall.of(_text(function.get("name")), arguments, ref=_text(ref))


class _Pieces:
    """A chat completion that comes in pieces."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._said: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning": []}
        self._calls: dict[int, Item] = {}
        self._rest: Item = {}
        self.reason: str | None = None

    def text(self) -> str:
        return _mended("".join(self._said["content"]) or "".join(self._said["refusal"]))

    def take(self, event: Item) -> None:
        for field in ("model", "usage"):
            if event.get(field):
                self._rest[field] = event[field]
        for choice in _list(event, "choices")[:1]:
            self.reason = choice.get("finish_reason") or self.reason
            self._delta(_sub(choice, "delta"))

    def _delta(self, delta: Item) -> None:
        for field in ("content", "refusal"):
            if piece := _text(delta.get(field)):
                self._said[field].append(piece)
                self._on_delta(TextDelta(piece))
        if thought := _text(delta.get("reasoning_content")) or _text(delta.get("reasoning")):
            self._said["reasoning"].append(thought)
            self._on_delta(ReasoningDelta(thought))
        for piece in _list(delta, "tool_calls"):
            self._tool(piece)

    def _tool(self, piece: Item) -> None:
        index = self._place(piece)
        function = _sub(piece, "function")
        name, written = _text(function.get("name")), _text(function.get("arguments"))
        if index not in self._calls:
            self._calls[index] = {"id": _text(piece.get("id")), "function": {"name": name, "arguments": ""}}
            self._on_delta(ToolDelta(index, name))
        call = self._calls[index]["function"]
        call["name"] = call["name"] or name
        call["arguments"] += written
        if written:
            self._on_delta(ToolDelta(index, call["name"], written))

    def _place(self, piece: Item) -> int:
        """Its index; some servers give none, or the same to all, and tell calls apart by their id."""
        ref, index = _text(piece.get("id")), piece.get("index")
        known = next((place for place, call in self._calls.items() if ref and call["id"] == ref), None)
        if known is not None:
            return known
        last = max(self._calls, default=-1)
        if not isinstance(index, int):
            return last + 1 if ref or not self._calls else last
        taken = index in self._calls and ref and self._calls[index]["id"]
        return last + 1 if taken else index

    def whole(self) -> Item:
        calls = [self._calls[index] for index in sorted(self._calls)]
        message = {**{field: "".join(said) for field, said in self._said.items()}, "tool_calls": calls}
        return {**self._rest, "choices": [{"message": message, "finish_reason": self.reason}]}


def _stop(reason: str, calls: bool, refused: bool) -> str:
    if reason in ("length", "max_output_tokens"):
        return "length"
    if refused or reason == "content_filter":
        return "refusal"
    if reason in ("stop", "tool_calls", "function_call"):  # some servers say stop where they call
        return "calls" if calls else "end"
    return reason


def _responses_usage(found: Item) -> tuple[Usage, int]:
    """What was used, and how much of it was written to the provider's cache."""
    usage = _sub(found, "usage")
    before, after = _sub(usage, "input_tokens_details"), _sub(usage, "output_tokens_details")
    counts = (usage.get("input_tokens"), usage.get("output_tokens"), before.get("cached_tokens"), after.get("reasoning_tokens"))
    return Usage(*map(_count, counts)), _count(before.get("cache_write_tokens"))


def _chat_usage(found: Item) -> Usage:
    usage = _sub(found, "usage")
    before, after = _sub(usage, "prompt_tokens_details"), _sub(usage, "completion_tokens_details")
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"), before.get("cached_tokens"), after.get("reasoning_tokens"))
    return Usage(*map(_count, counts))


# ── reading carefully: a server may say anything ─────────────────────────────────────────────


def _is_object(value: object) -> TypeGuard[Item]:
    return isinstance(value, dict)


def _object(value: object) -> Item:
    if not _is_object(value):
        raise Fault("MalformedReply", f"a {type(value).__name__} came where a JSON object was due", retryable=True)
    return value


def _sub(item: Item, field: str) -> Item:
    found = item.get(field)
    return found if _is_object(found) else {}


def _list(item: Item, field: str) -> list[Item]:
    found: Any = item.get(field)
    return [each for each in cast("list[object]", found) if _is_object(each)] if isinstance(found, list) else []


def _text(value: object, *, whole: bool = False) -> str:
    """A text; some servers give it in pieces, and arguments as an object."""
    if isinstance(value, list):
        return "".join(_text(_object(piece).get("text")) for piece in cast("list[object]", value))
    if whole and _is_object(value):
        return _json(_safe(value))
    return _mended(value) if isinstance(value, str) else ""


def _mended(text: str) -> str:
    """Without half characters: no log could keep them."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return _mended(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise Fault("MalformedReply", f"{value} is not a JSON number", retryable=True)
    if _is_object(value):
        return {_mended(key): _safe(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_safe(each) for each in cast("list[Any]", value)]
    return value


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _named(found: Item) -> str:
    return _text(found.get("model"))


def _address(url: str) -> str:
    """An address without the name and password that may stand in it: it is recorded."""
    split = urlsplit(url)
    return urlunsplit(split._replace(netloc=split.netloc.rpartition("@")[2]))


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────

_RETRYABLE = frozenset({"RateLimited", "Overloaded", "ServerError", "Timeout", "ConnectionLost", "StreamCut", "MalformedReply"})
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
_TOO_LONG = re.compile(r"(?i)(maximum|exceeds?) .{0,40}context|context (length|window|size)|prompt is too long|too many tokens")


def _fault(error: Exception, heard: str | None, scrub: Callable[[str], str]) -> Fault:
    """What the SDK raised, in our words; `heard`: the text so far of a stream that had begun."""
    import httpx2
    import openai

    if isinstance(error, Fault):
        error.partial = error.partial or heard or ""
        return error
    if isinstance(error, openai.APIStatusError):
        return _by_status(error, scrub)
    if isinstance(error, (openai.APITimeoutError, httpx2.TimeoutException)):
        why = "no connection, or no word for too long" if heard is None else "the stream fell silent for too long"
        return _made("Timeout", why, heard)
    if isinstance(error, (openai.APIConnectionError, httpx2.TransportError)):
        return _made("ConnectionLost" if heard is None else "StreamCut", scrub(str(error.__cause__ or error)) or "it hung up", heard)
    if isinstance(error, openai.APIError):
        return _told(error.body if _is_object(error.body) else {"message": error.message}, heard, scrub)
    if isinstance(error, ValueError):
        return _made("MalformedReply", scrub(f"not JSON: {error}"), heard)
    return _made("ClientFailed", scrub(f"{type(error).__name__}: {error}"), heard)


def _by_status(error: openai.APIStatusError, scrub: Callable[[str], str]) -> Fault:
    said = (_text(error.body.get("message")) if _is_object(error.body) else "") or error.message
    status = error.status_code
    kind = _BY_STATUS.get(status, "ServerError" if status >= 500 else "BadRequest")
    coded = next((_BY_CODE[code] for code in (error.code, error.type) if code in _BY_CODE), None)
    if coded in ("ContextOverflow", "QuotaExceeded"):
        kind = coded
    elif status in (400, 413, 422) and _TOO_LONG.search(said):
        kind = "ContextOverflow"
    fault = _made(kind, scrub(f"{status}: {said}"), None)
    fault.retry_after_s = _retry_after(error.response.headers) if fault.retryable else None
    return fault


def _told(error: Item, heard: str | None, scrub: Callable[[str], str]) -> Fault:
    """An error that came as data, in a stream or in an answer that is otherwise fine."""
    code, said = error.get("code"), _text(error.get("message")) or "the provider gave up, and did not say why"
    coded = next((_BY_CODE[word] for word in (code, error.get("type")) if isinstance(word, str) and word in _BY_CODE), None)
    if coded in (None, "BadRequest") and _TOO_LONG.search(said):
        coded = "ContextOverflow"
    if coded in (None, "ServerError") and heard is not None:
        coded = "StreamCut"
    return _made(coded or "ServerError", scrub(f"{code}: {said}" if code else said), heard)


def _made(kind: str, message: str, heard: str | None) -> Fault:
    return Fault(kind, message, retryable=kind in _RETRYABLE, partial=_mended(heard or ""))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds. A date is taken against the server's own clock, which stands beside it; ours may go wrong."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return max(0.0, seconds) if math.isfinite(seconds) else None
    try:
        until, now = (parsedate_to_datetime(headers.get(name, "")) for name in ("retry-after", "date"))
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):  # no date, or one without a zone
        return None
