"""Requests to the Responses API and to Chat Completions: turns, tools and schemas as JSON."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import cast

from plait.event import Json
from plait.event.kinds import Data, File, Image, Parts, Reasoning, Text
from plait.model.base import (
    Answered,
    Request,
    Returned,
    Said,
    Turn,
)
from plait.model.files import DOCUMENTS, IMAGES, can_take, left_out_text, shown_file
from plait.model.grammar import without_keyword
from plait.model.openai_client import (
    Item,
    is_object,
    to_json,
)

Part = Text | Reasoning | Image | File | Data


TAKEN = IMAGES | DOCUMENTS  # by the Responses API
_CHOICES = {"auto": "auto", "none": "none", "any": "required"}


def tool_choice(request: Request, *, is_nested: bool) -> Json:
    """Return the choice of tools that a request leaves: Chat Completions nests the name of a tool
    that has to be called, Responses does not.
    """
    if not request.forced:
        return _CHOICES[request.choice]
    name: Json = {"name": request.forced}
    return {"type": "function", "function": name} if is_nested else {"type": "function", **name}


def can_reason(model: str) -> bool:
    """Return True if a model reasons before it answers.

    Those that do not are known by name and refuse to be asked for it; new ones do.
    """
    return not re.match(r"(.*/)?(ft:)?(gpt-3|gpt-4|chatgpt|[\w.-]+-chat\b)", model)


def rename_parameter(given: dict[str, Json], ours: str, theirs: str) -> None:
    if ours in given:
        given[theirs] = given.pop(ours)


def function_item(name: str, description: str, schema: Json) -> Item:
    return {"name": name, "description": description, "parameters": schema, "strict": False}


def output_format(schema: Json) -> Item:
    schema = without_keyword(schema, "discriminator")  # not of JSON schema; `anyOf` says the same
    return {"name": "output", "schema": schema, "strict": _is_strict(schema)}


# The keywords that the strict mode is known to take; a schema with others is sent too, but then
# only as a wish.
_STRICT = frozenset(
    "$defs $ref additionalProperties anyOf const description enum exclusiveMaximum exclusiveMinimum"
    " items maxItems maximum minItems minimum multipleOf pattern properties required title"
    " type".split()
)


def _is_strict(schema: Json) -> bool:
    """Return True if every object in it requires all its properties, and allows no others."""
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
    return all(_is_strict(part) for part in inner)


def input_item(part: Part, request: Request) -> Item:
    content = can_take(part, TAKEN, request.blob) if isinstance(part, (Image, File)) else None
    if content is not None and isinstance(part, Image):
        url = _data_url(part.media_type, content)
        return {"type": "input_image", "detail": "auto", "image_url": url}
    if content is not None and isinstance(part, File):
        data = _data_url(part.media_type, content)
        return {"type": "input_file", "filename": part.name, "file_data": data}
    return {"type": "input_text", "text": plain_text(part, request)}


def output_item(parts: Parts, failed: bool, request: Request) -> str | list[Item]:
    shown = [input_item(part, request) for part in parts]
    if failed:
        shown.insert(0, {"type": "input_text", "text": _FAILED})
    if all(item["type"] == "input_text" for item in shown):
        return "\n".join(item["text"] for item in shown)
    return shown


_FAILED = "[the call failed]"


def chat_messages(turn: Turn, request: Request, takes: frozenset[str]) -> list[Item]:
    match turn:
        case Said():
            return [{"role": "user", "content": _content(turn.parts, request, takes)}]
        case Answered():
            text = "\n".join(
                plain_text(part, request) for part in turn.parts if not isinstance(part, Reasoning)
            )
            message: Item = {"role": "assistant", "content": text or (None if turn.calls else "")}
            if turn.calls:
                message["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {
                            "name": call.tool,
                            "arguments": arguments_text(call.arguments, wrap=True),
                        },
                    }
                    for call in turn.calls
                ]
            return [message]
        case Returned():
            return _results(turn, request, takes)


def _results(turn: Returned, request: Request, takes: frozenset[str]) -> list[Item]:
    """Return the messages of results. A tool's message is text here: its images and documents
    follow in a message of the user.
    """
    messages: list[Item] = []
    shown: list[Image | File] = []
    for result in turn.results:
        lines = [_FAILED] if result.failed else []
        for part in result.parts:
            if _chat_item(part, request, takes) is None:
                lines.append(plain_text(part, request))
            else:
                assert isinstance(part, (Image, File))
                shown.append(part)
                kind = "image" if isinstance(part, Image) else f"file {part.name},"
                lines.append(f"[{kind} {len(shown)}, shown below]")
        messages.append({"role": "tool", "tool_call_id": result.call, "content": "\n".join(lines)})
    if shown:
        is_all_images = all(isinstance(part, Image) for part in shown)
        what = "images" if is_all_images else "images and files"
        label = Text(f"The {what} of the results above, in their order.")
        messages.append({"role": "user", "content": _content((label, *shown), request, takes)})
    return messages


def _content(parts: Parts, request: Request, takes: frozenset[str]) -> str | list[Item]:
    items = [_chat_item(part, request, takes) for part in parts]
    # A plain text wherever it will do: not every server takes a list.
    if not any(items):
        return "\n".join(plain_text(part, request) for part in parts)
    return [
        item or {"type": "text", "text": plain_text(part, request)}
        for part, item in zip(parts, items, strict=True)
    ]


def _chat_item(part: Part, request: Request, takes: frozenset[str]) -> Item | None:
    """Return an image or a document as it is sent to a server that takes it. None: it is words."""
    content = can_take(part, takes, request.blob) if isinstance(part, (Image, File)) else None
    if content is None:
        return None
    data = _data_url(part.media_type, content) if isinstance(part, (Image, File)) else ""
    if isinstance(part, File):
        return {"type": "file", "file": {"filename": part.name, "file_data": data}}
    return {"type": "image_url", "image_url": {"url": data}}


def plain_text(part: Part, request: Request) -> str:
    """Return a part as text: also a file that is text; any other is at least named."""
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
            return left_out_text(part, request.blob)
        case File():
            return shown_file(part, request.blob)


def arguments_text(arguments: Json, *, wrap: bool = False) -> str:
    """Return a call's arguments as the model wrote them; `wrap`: as an object even if they were
    none, for servers that parse them again.
    """
    if isinstance(arguments, str):
        return to_json({"not_json": arguments}) if wrap else arguments
    return to_json(arguments)


def _data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(content).decode()}"


def own_item(part: Reasoning) -> Item | None:
    """Return the item that this adapter put there. None: it is of another provider."""
    raw: object = part.raw
    return (
        raw
        if is_object(raw) and raw.get("provider") == "openai" and is_object(raw.get("item"))
        else None
    )
