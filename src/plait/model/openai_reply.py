"""Replies of the Responses API and of Chat Completions, whole or in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plait.errors import InvalidInput
from plait.event import Json
from plait.event.kinds import Parts, Reasoning, Text, Usage
from plait.event.strict import parse
from plait.model.base import (
    OnDelta,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolDelta,
)
from plait.model.openai_client import (
    Item,
    an_object,
    checked_json,
    count,
    item_in,
    kind_of,
    objects,
    text_in,
    whole_characters,
)
from plait.model.openai_request import Part

FINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})


def follow_event(
    event: Item, items: dict[int, Item], said: dict[int, list[str]], on_delta: OnDelta
) -> None:
    """Take one event of a streamed response: collect items and texts, pass on deltas."""
    index, delta = count(event.get("output_index")), text_in(event.get("delta"))
    match kind_of(event):
        case "response.output_text.delta" | "response.refusal.delta":
            said.setdefault(index, []).append(delta)
            on_delta(TextDelta(whole_characters(delta)))
        case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
            on_delta(ReasoningDelta(whole_characters(delta)))
        case "response.reasoning_summary_part.added" if count(event.get("summary_index")):
            on_delta(ReasoningDelta("\n\n"))
        case "response.output_item.added":
            items[index] = dict(an_object(event.get("item")))
            if kind_of(items[index]) == "function_call":
                on_delta(ToolDelta(_rank(items, index), text_in(items[index].get("name"))))
        case "response.function_call_arguments.delta" if index in items:
            items[index]["arguments"] = text_in(items[index].get("arguments")) + delta
            on_delta(
                ToolDelta(
                    _rank(items, index), text_in(items[index].get("name")), whole_characters(delta)
                )
            )
        case "response.output_item.done":
            items[index] = an_object(event.get("item"))
        case _:
            pass  # progress, annotations, kinds to come: the items have it all


def _rank(items: Mapping[int, Item], index: int) -> int:
    return sum(
        1 for other, item in items.items() if other < index and kind_of(item) == "function_call"
    )


def gather_output(output: Iterable[Item]) -> tuple[Parts, tuple[ToolCall, ...], bool]:
    """Return the parts, the calls, and True if the model declined."""
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
                calls.append(tool_call(item, item.get("call_id")))
            case _:
                # Reasoning, and kinds of items to come: kept as it came, and sent back so.
                raw: Item = {
                    "provider": "openai",
                    "item": checked_json(item),
                    **({"after": len(calls)} if calls else {}),
                }
                parts.append(Reasoning(_reasoning_text(item), raw))
    return tuple(parts), tuple(calls), refused


def _reasoning_text(item: Item) -> str:
    for field in ("summary", "content"):
        if text := "\n\n".join(text_in(piece.get("text")) for piece in objects(item, field)):
            return text
    return ""


def tool_call(function: Item, ref: object) -> ToolCall:
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


class ChatPieces:
    """A chat completion that comes in pieces."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._said: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning": []}
        self._calls: dict[int, Item] = {}
        self._rest: Item = {}
        self.reason: str | None = None

    def text(self) -> str:
        return whole_characters("".join(self._said["content"]) or "".join(self._said["refusal"]))

    def take(self, event: Item) -> None:
        for field in ("model", "usage"):
            if event.get(field):
                self._rest[field] = event[field]
        for choice in objects(event, "choices")[:1]:
            self.reason = choice.get("finish_reason") or self.reason
            self._delta(item_in(choice, "delta"))

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
        function = item_in(piece, "function")
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
        """Return the index of a call. Some servers give none, or the same to all, and tell calls
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

    def whole_item(self) -> Item:
        calls = [self._calls[index] for index in sorted(self._calls)]
        message = {
            **{field: "".join(said) for field, said in self._said.items()},
            "tool_calls": calls,
        }
        return {**self._rest, "choices": [{"message": message, "finish_reason": self.reason}]}


def stop_reason(reason: str, calls: bool, refused: bool) -> str:
    if reason in ("length", "max_output_tokens"):
        return "length"
    if refused or reason == "content_filter":
        return "refusal"
    if reason in ("stop", "tool_calls", "function_call"):  # some servers say stop where they call
        return "calls" if calls else "end"
    return reason


def responses_usage(found: Item) -> tuple[Usage, int]:
    """Return the usage, and the number of tokens written to the provider's cache."""
    usage = item_in(found, "usage")
    before, after = item_in(usage, "input_tokens_details"), item_in(usage, "output_tokens_details")
    counts = (
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        before.get("cached_tokens"),
        after.get("reasoning_tokens"),
    )
    return Usage(*map(count, counts)), count(before.get("cache_write_tokens"))


def chat_usage(found: Item) -> Usage:
    usage = item_in(found, "usage")
    before, after = (
        item_in(usage, "prompt_tokens_details"),
        item_in(usage, "completion_tokens_details"),
    )
    counts = (
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        before.get("cached_tokens"),
        after.get("reasoning_tokens"),
    )
    return Usage(*map(count, counts))
