"""Replies of the Messages API, whole or in pieces, read from the bytes as they came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from plait.errors import InvalidInput
from plait.event import Json
from plait.event.kinds import Price, Reasoning, Text, Usage
from plait.event.strict import parse
from plait.model.anthropic_request import PROVIDER, Block, Content, json_text
from plait.model.base import (
    Delta,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCall,
    ToolDelta,
)
from plait.model.prices import price_of

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


class WireError(msgspec.Struct):
    type: str = ""
    message: str = ""


class WireMessage(msgspec.Struct):
    type: str = ""
    model: str = ""
    content: list[msgspec.Raw] | None = None
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: WireError | None = None


class _Piece(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class StreamEvent(msgspec.Struct):
    """Any event of a stream, with the fields that are of use here."""

    type: str
    index: int = 0
    message: WireMessage | None = None
    content_block: dict[str, Any] | None = None
    delta: _Piece | None = None
    usage: dict[str, Any] | None = None
    error: WireError | None = None


class _TypedBlock(msgspec.Struct):
    """The type of a block, and the arguments of a call as they are written."""

    type: str
    input: msgspec.Raw = msgspec.Raw(b"")


class ErrorInReply(Exception):
    """The provider reported an error inside an answer that began well."""

    def __init__(self, error: WireError | None) -> None:
        self.type, self.message = (error.type, error.message) if error else ("", "")
        super().__init__(self.message)


class _GrowingBlock:
    """A content block, and the pieces that came after its start, by field."""

    def __init__(self, start: Block, call: int) -> None:
        self.start, self.call = start, call  # call: its number among the calls
        self.pieces: dict[str, list[str]] = {}

    def whole_block(self) -> tuple[Block, str]:
        """Return the block, and its arguments as they came."""
        joined = {field: "".join(pieces) for field, pieces in self.pieces.items()}
        arguments = joined.pop("partial_json", "")
        block = {
            **self.start,
            **{field: (self.start.get(field) or "") + text for field, text in joined.items()},
        }
        given = self.start.get("input")
        if not arguments and given:
            arguments = json_text(given)
        elif arguments and self.start["type"] != "tool_use":
            # of a tool on the server's side: goes back as a whole
            block["input"] = _arguments(arguments)
        return block, arguments


class ReplyDraft:
    """A reply as far as it has come."""

    def __init__(self, asked: str) -> None:
        self.asked, self.model = asked, ""
        self.begun = self.done = False
        self.stop_reason: str | None = None
        self.counts: dict[str, int] = {}
        self.growing: dict[int, _GrowingBlock] = {}
        self.blocks: list[tuple[Block, str]] | None = None  # None: they are still growing

    def take_whole(self, message: WireMessage) -> None:
        if message.error is not None or message.content is None:
            raise (
                ErrorInReply(message.error)
                if message.error
                else ValueError("a message without content")
            )
        self.model, self.stop_reason = message.model, message.stop_reason
        self._count(message.usage)
        self.blocks = [
            (
                msgspec.json.decode(raw, type=dict[str, Any]),
                bytes(msgspec.json.decode(raw, type=_TypedBlock).input).decode(),
            )
            for raw in message.content
        ]

    def take(self, event: StreamEvent) -> Delta | None:
        if event.type == "error":
            raise ErrorInReply(event.error)
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
        self.growing[index] = _GrowingBlock(block, call)
        if is_call:
            return ToolDelta(call, block["name"])
        return TextDelta(block["text"]) if block.get("text") else None

    def _grow(self, block: _GrowingBlock, delta: _Piece) -> Delta | None:
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

    def _all_blocks(self) -> list[tuple[Block, str]]:
        if self.blocks is not None:
            return self.blocks
        return [block.whole_block() for _, block in sorted(self.growing.items())]

    def text(self) -> str:
        return "".join(
            [block.get("text") or "" for block, _ in self._all_blocks() if block["type"] == "text"]
        )

    def usage_and_price(self) -> tuple[Usage | None, Price | None]:
        """Return the usage so far and its price. None: not known."""
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
        blocks, usage, price = self._all_blocks(), *self.usage_and_price()
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
