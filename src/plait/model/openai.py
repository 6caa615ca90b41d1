"""OpenAI, and servers that speak like it.

`OpenAIModel` uses the Responses API without its memory: nothing is stored there, the whole history
is sent each time, and reasoning items go back exactly as they came. `ChatModel` uses Chat
Completions, which most other servers speak, by their address.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from plait.errors import InvalidInput, MissingKey
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
from plait.model.openai_client import (
    OFFICIAL,
    Endpoint,
    Item,
    an_object,
    count,
    fault_told,
    is_object,
    kind_of,
    mended,
    named,
    objects,
    safe,
    sub,
    text_in,
    to_json,
)
from plait.model.prices import TokenPrice, price_of, token_price

Part = Text | Reasoning | Image | File | Data


class OpenAIModel:
    """A model of OpenAI, by the Responses API. `timeout_s` is how long it may be silent."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        self.name = f"openai:{model}"
        key = api_key or os.environ.get("OPENAI_API_KEY")
        self._model = model
        self._server = Endpoint(
            self.name,
            base_url or os.environ.get("OPENAI_BASE_URL") or OFFICIAL,
            key or "",
            timeout_s,
        )
        if not key:
            raise MissingKey(self.name, "OPENAI_API_KEY")

    async def aclose(self) -> None:
        """Close the connections of the running loop; the next `ask` opens new ones."""
        await self._server.aclose()

    def __repr__(self) -> str:
        return f"OpenAIModel({self._model!r})"

    async def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        body = self._body(request)
        if on_delta is None:
            found, streamed = await self._server.post("/responses", body), []
        else:
            found, streamed = await self._listen(body, on_delta)
        return self._reply(found, streamed)

    def _body(self, request: Request) -> Item:
        given = dict(request.parameters)
        body: Item = {"store": False, "model": self._model}
        if _reasons(self._model):
            given["include"] = list(
                dict.fromkeys(
                    [*cast("list[str]", given.get("include") or []), "reasoning.encrypted_content"]
                )
            )
        _rename(given, "tokens_max", "max_output_tokens")
        if effort := given.pop("reasoning_effort", None):
            given["reasoning"] = {
                "effort": effort,
                **cast("Mapping[str, Json]", given.get("reasoning") or {}),
            }
        if request.output is not None:
            asked = {"format": {"type": "json_schema", **_format(request.output)}}
            given["text"] = {**cast("Mapping[str, Json]", given.get("text") or {}), **asked}
        body |= given
        if request.instruction:
            body["instructions"] = request.instruction
        if request.tools:
            body["tools"] = [
                {"type": "function", **_function(spec.name, spec.description, spec.schema)}
                for spec in request.tools
            ]
            body["tool_choice"] = _CHOICES[request.choice]
        return {
            **body,
            "input": [item for turn in request.turns for item in self._items(turn, request)],
        }

    def _items(self, turn: Turn, request: Request) -> list[Item]:
        match turn:
            case Said():
                return [
                    {
                        "type": "message",
                        "role": "user",
                        "content": [_input(part, request) for part in turn.parts],
                    }
                ]
            case Answered():
                return self._answered(turn, request)
            case Returned():
                return [
                    {
                        "type": "function_call_output",
                        "call_id": result.call,
                        "output": _output(result.parts, result.failed, request),
                    }
                    for result in turn.results
                ]

    def _answered(self, turn: Answered, request: Request) -> list[Item]:
        calls = [
            {
                "type": "function_call",
                "call_id": call.id,
                "name": call.tool,
                "arguments": _written(call.arguments),
            }
            for call in turn.calls
        ]
        items: list[Item] = []
        told = 0  # calls so far: a reasoning item that stood behind some stands there again
        for part in turn.parts:
            if isinstance(part, Reasoning):
                own = _own(part)
                if own is None or (
                    kind_of(own["item"]) == "reasoning" and not _reasons(self._model)
                ):
                    continue
                after = max(told, min(count(own.get("after")), len(calls)))
                items += [*calls[told:after], own["item"]]
                told = after
            else:
                items.append(
                    {"type": "message", "role": "assistant", "content": _plain(part, request)}
                )
        return items + calls[told:]

    async def _listen(self, body: Item, on_delta: OnDelta) -> tuple[Item, list[Item]]:
        """The final response, and the items as they were streamed: a final one may come without
        them.
        """
        said: dict[int, list[str]] = {}
        items: dict[int, Item] = {}
        final: Item | None = None

        def heard() -> str:
            return "".join(piece for _, pieces in sorted(said.items()) for piece in pieces)

        async with aclosing(self._server.events("/responses", body, heard, _FINAL)) as events:
            async for event in events:
                if kind_of(event) in _FINAL:
                    final = an_object(event.get("response"))
                else:
                    _follow(event, items, said, on_delta)
        if final is None:
            raise Fault(
                "StreamCut",
                "the stream ended without its last event",
                retryable=True,
                partial=heard(),
            )
        if final.get("status") == "failed":
            raise self._failed(final, heard())
        # what was said of a message that never came to its end
        for index in said.keys() & items.keys():
            if not items[index].get("content"):
                items[index]["content"] = [{"type": "output_text", "text": "".join(said[index])}]
        return final, [items[index] for index in sorted(items)]

    def _failed(self, found: Item, heard: str | None = None) -> Fault:
        usage, written = _responses_usage(found)
        fault = fault_told(sub(found, "error"), heard, self._server.scrub)
        fault.usage, fault.price = usage, self._price(found, usage, written)
        return fault

    def _reply(self, found: Item, streamed: list[Item]) -> Reply:
        status = found.get("status", "completed")
        if status in ("failed", "cancelled"):
            raise self._failed(found)
        if status not in ("completed", "incomplete") or not isinstance(found.get("output"), list):
            raise Fault(
                "MalformedReply",
                f"this is not a finished response: its status is {status!r}",
                retryable=True,
            )
        output = [an_object(item) for item in found["output"]] or streamed
        if status == "incomplete":
            # What was cut in the middle may be missing from the end's list; it is kept, so that one
            # sees what it was about to do.
            there = [item.get("call_id") or item.get("id") for item in output]
            kept = [item for item in streamed if kind_of(item) in ("function_call", "message")]
            output += [
                item for item in kept if (item.get("call_id") or item.get("id")) not in there
            ]
        parts, calls, refused = _gather(output)
        usage, written = _responses_usage(found)
        reason: Any = sub(found, "incomplete_details").get("reason")
        stop = _stop(
            str(reason or "incomplete") if status == "incomplete" else "stop", bool(calls), refused
        )
        return Reply(parts, calls, stop, usage, named(found), self._price(found, usage, written))

    def _price(self, found: Item, usage: Usage, written: int) -> Price | None:
        price = (
            price_of("openai", named(found), usage, cache_written_tokens=written)
            if named(found)
            else None
        )
        return price or price_of("openai", self._model, usage, cache_written_tokens=written)


class ChatModel:
    """Any server that speaks Chat Completions. `model` None: the first one it has; `timeout_s` is
    how long it may be silent.

    `price` is in US dollars per million tokens, as in `(0.5, 1.5)` for input and output, or a
    `TokenPrice`. None: not known.
    """

    def __init__(
        self,
        model: str | None,
        *,
        base_url: str,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        name: str | None = None,
        price: TokenPrice | tuple[float, float] | Mapping[str, float] | None = None,
    ) -> None:
        self._token_price = token_price(price) if price is not None else None
        self.name = name or _address(base_url) + (f"#{model}" if model else "")
        self._model = model
        self._server = Endpoint(self.name, base_url, api_key, timeout_s, foreign=True)

    async def aclose(self) -> None:
        """Close the connections of the running loop; the next `ask` opens new ones."""
        await self._server.aclose()

    def __repr__(self) -> str:
        return f"ChatModel({self.name!r})"

    async def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        if self._model is None:
            self._model = await self._first()
        body = self._body(request, self._model)
        if on_delta is None:
            found = await self._server.post("/chat/completions", body)
        else:
            found = await self._listen(body, on_delta)
        return self._reply(found)

    async def _first(self) -> str:
        found = (await self._server.get("/models")).get("data")
        if not isinstance(found, list) or not found:
            raise Fault("NotFound", f"{self.name} has no model to offer")
        return str(an_object(cast("list[Any]", found)[0]).get("id"))

    def _body(self, request: Request, model: str) -> Item:
        given = dict(request.parameters)
        _rename(
            given, "tokens_max", "max_completion_tokens" if self._server.official else "max_tokens"
        )
        if request.output is not None:
            given["response_format"] = {
                "type": "json_schema",
                "json_schema": _format(request.output),
            }
        body: Item = {"model": model, **given}
        if request.tools:
            functions = [
                _function(spec.name, spec.description, spec.schema) for spec in request.tools
            ]
            body["tools"] = [{"type": "function", "function": function} for function in functions]
            body["tool_choice"] = _CHOICES[request.choice]
        system = [{"role": "system", "content": request.instruction}] if request.instruction else []
        return {
            **body,
            "messages": [
                *system,
                *(message for turn in request.turns for message in _messages(turn, request)),
            ],
        }

    async def _listen(self, body: Item, on_delta: OnDelta) -> Item:
        """The pieces put together again, as the answer would have been in one."""
        heard = _Pieces(on_delta)
        body = {
            **body,
            "stream_options": {
                "include_usage": True,
                **cast("Item", body.get("stream_options") or {}),
            },
        }
        async with aclosing(self._server.events("/chat/completions", body, heard.text)) as events:
            async for event in events:
                heard.take(event)
        if heard.reason is None:
            raise Fault(
                "StreamCut",
                "the stream ended without a reason to stop",
                retryable=True,
                partial=heard.text(),
            )
        return heard.whole()

    def _reply(self, found: Item) -> Reply:
        choices: Any = found.get("choices")
        if not isinstance(choices, list) or not choices:
            raise self._without_choices(found)
        choice = an_object(cast("list[Any]", choices)[0])
        message = sub(choice, "message")
        refusal, text = text_in(message.get("refusal")), text_in(message.get("content"))
        thought = text_in(message.get("reasoning_content")) or text_in(message.get("reasoning"))
        parts = (
            *((Reasoning(thought),) if thought else ()),
            *(Text(said) for said in (text, refusal) if said),
        )
        calls = tuple(
            [
                _call(sub(call, "function"), call.get("id"))
                for call in objects(message, "tool_calls")
            ]
        )
        usage = _chat_usage(found)
        stop = _stop(str(choice.get("finish_reason") or "stop"), bool(calls), bool(refusal))
        return Reply(parts, calls, stop, usage, named(found), self._price(usage, named(found)))

    def price_of(self, usage: Usage) -> Price | None:
        """Return what this costs: by the price given, else by the list of OpenAI's prices for its
        own server. None: not known.
        """
        return self._price(usage, "")

    def _price(self, usage: Usage, model: str) -> Price | None:
        if self._token_price is not None:
            return self._token_price.price_of(usage)
        return (
            price_of("openai", model or str(self._model), usage) if self._server.official else None
        )

    def _without_choices(self, found: Item) -> Fault:
        # Some gateways answer 200 with an error inside.
        if is_object(error := found.get("error")):
            return fault_told(error, None, self._server.scrub)
        return Fault("MalformedReply", "the answer has no choices", retryable=True)


# ── what we say ──────────────────────────────────────────────────────────────────────────────

_CHOICES = {"auto": "auto", "none": "none", "any": "required"}


def _reasons(model: str) -> bool:
    """Whether it may think first.

    Those that do not are known by name and refuse to be asked for it; new ones do.
    """
    return not re.match(r"(.*/)?(ft:)?(gpt-3|gpt-4|chatgpt|[\w.-]+-chat\b)", model)


def _rename(given: dict[str, Json], ours: str, theirs: str) -> None:
    if ours in given:
        given[theirs] = given.pop(ours)


def _function(name: str, description: str, schema: Json) -> Item:
    return {"name": name, "description": description, "parameters": schema, "strict": False}


def _format(schema: Json) -> Item:
    return {"name": "output", "schema": schema, "strict": _strict(schema)}


# What the strict mode is known to take; a schema that says more is sent too, but then only as a
# wish.
_STRICT = frozenset(
    "$defs $ref additionalProperties anyOf const description enum exclusiveMaximum exclusiveMinimum"
    " items maxItems maximum minItems minimum multipleOf pattern properties required title type".split()  # noqa: E501
)


def _strict(schema: Json) -> bool:
    """Whether every object in it names all its properties as required, and allows no others."""
    if not isinstance(schema, Mapping) or schema.keys() - _STRICT:
        return False
    properties = cast("Mapping[str, Json]", schema.get("properties") or {})
    required = cast("Sequence[str]", schema.get("required") or ())
    closed = schema.get("additionalProperties") is False and set(required) == set(properties)
    if (
        "properties" in schema or "object" in cast("Sequence[str]", schema.get("type") or ())
    ) and not closed:
        return False
    inner = [*properties.values(), *cast("Mapping[str, Json]", schema.get("$defs") or {}).values()]
    inner += [
        *cast("Sequence[Json]", schema.get("anyOf") or ()),
        *([schema["items"]] if "items" in schema else []),
    ]
    return all(_strict(part) for part in inner)


def _input(part: Part, request: Request) -> Item:
    match part:
        case Image():
            return {
                "type": "input_image",
                "detail": "auto",
                "image_url": _data_url(part.media_type, request.blob(part.blob)),
            }
        case File():
            return {
                "type": "input_file",
                "filename": part.name,
                "file_data": _data_url(part.media_type, request.blob(part.blob)),
            }
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
            text = "\n".join(
                _plain(part, request) for part in turn.parts if not isinstance(part, Reasoning)
            )
            message: Item = {"role": "assistant", "content": text or (None if turn.calls else "")}
            if turn.calls:
                message["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {
                            "name": call.tool,
                            "arguments": _written(call.arguments, wrap=True),
                        },
                    }
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
            lines.append(
                f"[image {len(images)}, shown below]"
                if isinstance(part, Image)
                else _plain(part, request)
            )
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
        (
            {
                "type": "image_url",
                "image_url": {"url": _data_url(part.media_type, request.blob(part.blob))},
            }
            if isinstance(part, Image)
            else {"type": "text", "text": _plain(part, request)}
        )
        for part in parts
    ]


def _plain(part: Part, request: Request) -> str:
    """A part as text; what text cannot show is at least named."""
    match part:
        case Text() | Reasoning():
            return part.text or (
                request.blob(part.blob).decode("utf-8", "replace") if part.blob else ""
            )
        case Data():
            return (
                request.blob(part.blob).decode("utf-8", "replace")
                if part.blob
                else to_json(part.value)
            )
        case Image():
            return (
                f"[image: {part.alt or 'untitled'}, not shown: {part.media_type} cannot stand here]"
            )
        case File():
            return f"[file: {part.name}, not shown: {part.media_type} cannot stand here]"


def _written(arguments: Json, *, wrap: bool = False) -> str:
    """A call's arguments as the model wrote them; `wrap`: as an object even if they were none, for
    servers that read them again.
    """
    if isinstance(arguments, str):
        return to_json({"not_json": arguments}) if wrap else arguments
    return to_json(arguments)


def _data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(content).decode()}"


def _own(part: Reasoning) -> Item | None:
    """What we once put there; what another provider wants back is not ours to send."""
    raw: object = part.raw
    return (
        raw
        if is_object(raw) and raw.get("provider") == "openai" and is_object(raw.get("item"))
        else None
    )


# ── what we hear ─────────────────────────────────────────────────────────────────────────────


_FINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


def _follow(
    event: Item, items: dict[int, Item], said: dict[int, list[str]], on_delta: OnDelta
) -> None:
    """One event of a response on its way."""
    index, delta = count(event.get("output_index")), text_in(event.get("delta"))
    match kind_of(event):
        case "response.output_text.delta" | "response.refusal.delta":
            said.setdefault(index, []).append(delta)
            on_delta(TextDelta(mended(delta)))
        case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
            on_delta(ReasoningDelta(mended(delta)))
        case "response.reasoning_summary_part.added" if count(event.get("summary_index")):
            on_delta(ReasoningDelta("\n\n"))
        case "response.output_item.added":
            items[index] = dict(an_object(event.get("item")))
            if kind_of(items[index]) == "function_call":
                on_delta(ToolDelta(_rank(items, index), text_in(items[index].get("name"))))
        case "response.function_call_arguments.delta" if index in items:
            items[index]["arguments"] = text_in(items[index].get("arguments")) + delta
            on_delta(
                ToolDelta(_rank(items, index), text_in(items[index].get("name")), mended(delta))
            )
        case "response.output_item.done":
            items[index] = an_object(event.get("item"))
        case _:
            pass  # progress, annotations, what else they think of: the items say it all


def _rank(items: Mapping[int, Item], index: int) -> int:
    return sum(
        1 for other, item in items.items() if other < index and kind_of(item) == "function_call"
    )


def _gather(output: Iterable[Item]) -> tuple[Parts, tuple[ToolCall, ...], bool]:
    """Parts, calls, and whether it declined."""
    parts: list[Part] = []
    calls: list[ToolCall] = []
    refused = False
    for item in output:
        match kind_of(item):
            case "message":
                for content in objects(item, "content"):
                    said = text_in(content.get("text")) or text_in(content.get("refusal"))
                    refused = refused or kind_of(content) == "refusal"
                    parts += [Text(said)] if said else []
            case "function_call":
                calls.append(_call(item, item.get("call_id")))
            case _:
                # Reasoning, and whatever else is new to us: kept as it came, and sent back so.
                raw: Item = {
                    "provider": "openai",
                    "item": safe(item),
                    **({"after": len(calls)} if calls else {}),
                }
                parts.append(Reasoning(_thought(item), raw))
    return tuple(parts), tuple(calls), refused


def _thought(item: Item) -> str:
    for field in ("summary", "content"):
        if text := "\n\n".join(text_in(piece.get("text")) for piece in objects(item, field)):
            return text
    return ""


def _call(function: Item, ref: object) -> ToolCall:
    written = text_in(function.get("arguments"), whole=True)
    arguments: Mapping[str, Json] | str = written
    if not written:
        arguments = {}
    else:
        try:
            read = parse(written.encode())
            arguments = read if isinstance(read, Mapping) else written
        except InvalidInput:
            pass  # the runtime says why, and the model sees it
    return ToolCall.of(text_in(function.get("name")), arguments, ref=text_in(ref))


class _Pieces:
    """A chat completion that comes in pieces."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._said: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning": []}
        self._calls: dict[int, Item] = {}
        self._rest: Item = {}
        self.reason: str | None = None

    def text(self) -> str:
        return mended("".join(self._said["content"]) or "".join(self._said["refusal"]))

    def take(self, event: Item) -> None:
        for field in ("model", "usage"):
            if event.get(field):
                self._rest[field] = event[field]
        for choice in objects(event, "choices")[:1]:
            self.reason = choice.get("finish_reason") or self.reason
            self._delta(sub(choice, "delta"))

    def _delta(self, delta: Item) -> None:
        for field in ("content", "refusal"):
            if piece := text_in(delta.get(field)):
                self._said[field].append(piece)
                self._on_delta(TextDelta(piece))
        if thought := text_in(delta.get("reasoning_content")) or text_in(delta.get("reasoning")):
            self._said["reasoning"].append(thought)
            self._on_delta(ReasoningDelta(thought))
        for piece in objects(delta, "tool_calls"):
            self._tool(piece)

    def _tool(self, piece: Item) -> None:
        index = self._place(piece)
        function = sub(piece, "function")
        name, written = text_in(function.get("name")), text_in(function.get("arguments"))
        if index not in self._calls:
            self._calls[index] = {
                "id": text_in(piece.get("id")),
                "function": {"name": name, "arguments": ""},
            }
            self._on_delta(ToolDelta(index, name))
        call = self._calls[index]["function"]
        call["name"] = call["name"] or name
        call["arguments"] += written
        if written:
            self._on_delta(ToolDelta(index, call["name"], written))

    def _place(self, piece: Item) -> int:
        """Its index; some servers give none, or the same to all, and tell calls
        apart by their id.
        """
        ref, index = text_in(piece.get("id")), piece.get("index")
        known = next(
            (place for place, call in self._calls.items() if ref and call["id"] == ref), None
        )
        if known is not None:
            return known
        last = max(self._calls, default=-1)
        if not isinstance(index, int):
            return last + 1 if ref or not self._calls else last
        taken = index in self._calls and ref and self._calls[index]["id"]
        return last + 1 if taken else index

    def whole(self) -> Item:
        calls = [self._calls[index] for index in sorted(self._calls)]
        message = {
            **{field: "".join(said) for field, said in self._said.items()},
            "tool_calls": calls,
        }
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
    usage = sub(found, "usage")
    before, after = sub(usage, "input_tokens_details"), sub(usage, "output_tokens_details")
    counts = (
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        before.get("cached_tokens"),
        after.get("reasoning_tokens"),
    )
    return Usage(*map(count, counts)), count(before.get("cache_write_tokens"))


def _chat_usage(found: Item) -> Usage:
    usage = sub(found, "usage")
    before, after = sub(usage, "prompt_tokens_details"), sub(usage, "completion_tokens_details")
    counts = (
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        before.get("cached_tokens"),
        after.get("reasoning_tokens"),
    )
    return Usage(*map(count, counts))


def _address(url: str) -> str:
    """An address without the name, password and query that may stand in it: it is recorded, and
    they may be keys.
    """
    split = urlsplit(url)
    return urlunsplit(split._replace(netloc=split.netloc.rpartition("@")[2], query=""))
