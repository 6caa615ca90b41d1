"""OpenAI, and servers that speak like it.

`OpenAIModel` uses the Responses API without its memory: nothing is stored there, the whole history
is sent each time, and reasoning items go back exactly as they came. `ChatModel` uses Chat
Completions, which most other servers speak, by their address.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from plait.errors import MissingKey
from plait.event import Json
from plait.event.kinds import Price, Reasoning, Text, Usage
from plait.model.base import (
    Answered,
    Fault,
    OnDelta,
    Reply,
    Request,
    Returned,
    Said,
    Turn,
)
from plait.model.files import IMAGES, PDF
from plait.model.openai_client import (
    OFFICIAL,
    Endpoint,
    Item,
    an_object,
    count,
    fault_from_data,
    is_object,
    item_in,
    kind_of,
    model_name,
    objects,
    text_in,
)
from plait.model.openai_reply import (
    FINAL,
    ChatPieces,
    chat_usage,
    follow_event,
    gather_output,
    responses_usage,
    stop_reason,
    tool_call,
)
from plait.model.openai_request import (
    TAKEN,
    arguments_text,
    can_reason,
    chat_messages,
    function_item,
    input_item,
    output_format,
    output_item,
    own_item,
    plain_text,
    rename_parameter,
    tool_choice,
)
from plait.model.prices import FREE, TokenPrice, price_of, token_price
from plait.model.providers import OWN, Provider
from plait.model.shared_limits import account_of


class OpenAIModel:
    """A model of OpenAI, by the Responses API. `timeout_s` is the longest silence allowed."""

    takes = TAKEN

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = 600.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"openai:{model}"
        key = api_key or os.environ.get("OPENAI_API_KEY")
        self._model, self.account = model, account_of(key)
        self._server = Endpoint(
            self.name,
            base_url or os.environ.get("OPENAI_BASE_URL") or OFFICIAL,
            key or "",
            timeout_s,
            headers=headers,
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
        if can_reason(self._model):
            given["include"] = list(
                dict.fromkeys(
                    [*cast("list[str]", given.get("include") or []), "reasoning.encrypted_content"]
                )
            )
        rename_parameter(given, "tokens_max", "max_output_tokens")
        if effort := given.pop("reasoning_effort", None):
            given["reasoning"] = {
                "effort": effort,
                **cast("Mapping[str, Json]", given.get("reasoning") or {}),
            }
        if request.output is not None:
            asked = {"format": {"type": "json_schema", **output_format(request.output)}}
            given["text"] = {**cast("Mapping[str, Json]", given.get("text") or {}), **asked}
        body |= given
        if request.instruction:
            body["instructions"] = request.instruction
        if request.tools:
            body["tools"] = [
                {"type": "function", **function_item(spec.name, spec.description, spec.schema)}
                for spec in request.tools
            ]
            body["tool_choice"] = tool_choice(request, is_nested=False)
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
                        "content": [input_item(part, request) for part in turn.parts],
                    }
                ]
            case Answered():
                return self._answer_items(turn, request)
            case Returned():
                return [
                    {
                        "type": "function_call_output",
                        "call_id": result.call,
                        "output": output_item(result.parts, result.failed, request),
                    }
                    for result in turn.results
                ]

    def _answer_items(self, turn: Answered, request: Request) -> list[Item]:
        calls = [
            {
                "type": "function_call",
                "call_id": call.id,
                "name": call.tool,
                "arguments": arguments_text(call.arguments),
            }
            for call in turn.calls
        ]
        items: list[Item] = []
        told = 0  # calls so far: a reasoning item that stood behind some stands there again
        for part in turn.parts:
            if isinstance(part, Reasoning):
                own = own_item(part)
                if own is None or (
                    kind_of(own["item"]) == "reasoning" and not can_reason(self._model)
                ):
                    continue
                after = max(told, min(count(own.get("after")), len(calls)))
                items += [*calls[told:after], own["item"]]
                told = after
            else:
                items.append(
                    {"type": "message", "role": "assistant", "content": plain_text(part, request)}
                )
        return items + calls[told:]

    async def _listen(self, body: Item, on_delta: OnDelta) -> tuple[Item, list[Item]]:
        """Return the final response, and the items as they were streamed: a final one may come
        without them.
        """
        said: dict[int, list[str]] = {}
        items: dict[int, Item] = {}
        final: Item | None = None

        def text_so_far() -> str:
            return "".join(piece for _, pieces in sorted(said.items()) for piece in pieces)

        async with aclosing(self._server.events("/responses", body, text_so_far, FINAL)) as events:
            async for event in events:
                if kind_of(event) in FINAL:
                    final = an_object(event.get("response"))
                else:
                    follow_event(event, items, said, on_delta)
        if final is None:
            raise Fault(
                "StreamCut",
                "the stream ended without its last event",
                retryable=True,
                partial=text_so_far(),
            )
        if final.get("status") == "failed":
            raise self._failure(final, text_so_far())
        # the text of a message that was cut
        for index in said.keys() & items.keys():
            if not items[index].get("content"):
                items[index]["content"] = [{"type": "output_text", "text": "".join(said[index])}]
        return final, [items[index] for index in sorted(items)]

    def _failure(self, found: Item, heard: str | None = None) -> Fault:
        usage, written = responses_usage(found)
        fault = fault_from_data(item_in(found, "error"), heard, self._server.scrub)
        fault.usage, fault.price = usage, self._price(found, usage, written)
        return fault

    def _reply(self, found: Item, streamed: list[Item]) -> Reply:
        status = found.get("status", "completed")
        if status in ("failed", "cancelled"):
            raise self._failure(found)
        if status not in ("completed", "incomplete") or not isinstance(found.get("output"), list):
            raise Fault(
                "MalformedReply",
                f"this is not a finished response: its status is {status!r}",
                retryable=True,
            )
        output = [an_object(item) for item in found["output"]] or streamed
        if status == "incomplete":
            # An item that was cut may be missing from the final list; it is kept to show the
            # intent.
            there = [item.get("call_id") or item.get("id") for item in output]
            kept = [item for item in streamed if kind_of(item) in ("function_call", "message")]
            output += [
                item for item in kept if (item.get("call_id") or item.get("id")) not in there
            ]
        parts, calls, refused = gather_output(output)
        usage, written = responses_usage(found)
        reason: Any = item_in(found, "incomplete_details").get("reason")
        stop = stop_reason(
            str(reason or "incomplete") if status == "incomplete" else "stop", bool(calls), refused
        )
        return Reply(
            parts, calls, stop, usage, model_name(found), self._price(found, usage, written)
        )

    def _price(self, found: Item, usage: Usage, written: int) -> Price | None:
        price = (
            price_of("openai", model_name(found), usage, cache_written_tokens=written)
            if model_name(found)
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
        headers: Mapping[str, str] | None = None,
        provider: Provider = OWN,
    ) -> None:
        self._token_price = token_price(price) if price is not None else None
        self.name = name or _address(base_url) + (f"#{model}" if model else "")
        self._model, self._provider = model, provider
        self.account = account_of(api_key)
        self._server = Endpoint(
            self.name,
            base_url,
            api_key,
            timeout_s,
            foreign=True,
            headers=headers,
            query={"api-version": provider.version} if provider.version else None,
            key_header=provider.key_header,
        )

    @property
    def takes(self) -> frozenset[str]:
        """The media types of images and files that it is sent; text files it is sent as text."""
        return IMAGES | (PDF if self._server.is_official else self._provider.files)

    @property
    def has_own_price(self) -> bool:
        """True if the program gave a price."""
        return self._token_price is not None

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
        rename_parameter(
            given,
            "tokens_max",
            "max_completion_tokens"
            if self._server.is_official
            else self._provider.tokens_parameter,
        )
        if request.output is not None:
            given["response_format"] = {
                "type": "json_schema",
                "json_schema": output_format(request.output),
            }
        body: Item = {"model": model, **given}
        if request.tools:
            functions = [
                function_item(spec.name, spec.description, spec.schema) for spec in request.tools
            ]
            body["tools"] = [{"type": "function", "function": function} for function in functions]
            body["tool_choice"] = tool_choice(request, is_nested=True)
        system = [{"role": "system", "content": request.instruction}] if request.instruction else []
        return {
            **body,
            "messages": [
                *system,
                *(
                    message
                    for turn in request.turns
                    for message in chat_messages(turn, request, self.takes)
                ),
            ],
        }

    async def _listen(self, body: Item, on_delta: OnDelta) -> Item:
        """Return the pieces put together, as the answer would have been in one."""
        heard = ChatPieces(on_delta)
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
        return heard.whole_item()

    def _reply(self, found: Item) -> Reply:
        choices: Any = found.get("choices")
        if not isinstance(choices, list) or not choices:
            raise self._without_choices(found)
        choice = an_object(cast("list[Any]", choices)[0])
        message = item_in(choice, "message")
        refusal, text = text_in(message.get("refusal")), text_in(message.get("content"))
        thought = text_in(message.get("reasoning_content")) or text_in(message.get("reasoning"))
        parts = (
            *((Reasoning(thought),) if thought else ()),
            *(Text(said) for said in (text, refusal) if said),
        )
        calls = tuple(
            [
                tool_call(item_in(call, "function"), call.get("id"))
                for call in objects(message, "tool_calls")
            ]
        )
        usage = chat_usage(found)
        stop = stop_reason(str(choice.get("finish_reason") or "stop"), bool(calls), bool(refusal))
        return Reply(
            parts, calls, stop, usage, model_name(found), self._price(usage, model_name(found))
        )

    def price_of(self, usage: Usage) -> Price | None:
        """Return the price of this usage: by the given price, else by the list of OpenAI's prices
        for its own server. None: not known.
        """
        return self._price(usage, "")

    def _price(self, usage: Usage, model: str) -> Price | None:
        if self._token_price is not None:
            return self._token_price.price_of(usage)
        if self._provider.is_free:
            return FREE
        listed = "openai" if self._server.is_official else self._provider.priced_as
        return price_of(listed, model or str(self._model), usage) if listed else None

    def _without_choices(self, found: Item) -> Fault:
        # Some gateways answer 200 with an error inside.
        if is_object(error := found.get("error")):
            return fault_from_data(error, None, self._server.scrub)
        return Fault("MalformedReply", "the answer has no choices", retryable=True)


def _address(url: str) -> str:
    """An address without the name, password and query that may stand in it: it is recorded, and
    they may be keys.
    """
    split = urlsplit(url)
    return urlunsplit(split._replace(netloc=split.netloc.rpartition("@")[2], query=""))
