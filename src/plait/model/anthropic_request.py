"""Requests to the Messages API: each turn rendered by itself, images, documents and tools."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from plait.errors import UnknownBlob
from plait.event import Json
from plait.event.kinds import Data, File, Image, Parts, Reasoning, Text
from plait.model.base import (
    Answered,
    AnsweredCall,
    CallResult,
    Request,
    Returned,
    Said,
    Spec,
    Turn,
)
from plait.model.files import (
    IMAGES,
    PDF,
    Blob,
    can_take,
    left_out_text,
    shown_file,
    text_of_file,
)
from plait.model.grammar import without_keyword

PROVIDER = "anthropic"
Block = dict[str, Any]
Content = Text | Reasoning | Image | File | Data


_MARK = {"type": "ephemeral"}
_SAMPLING = {"temperature", "top_p", "top_k"}
# The version from 2026-10 on refuses them, the one before takes them; which models still do is for
# the provider to say.
_SAMPLING_VERSION = {"anthropic-version": "2023-06-01"}
_OUR_PARAMETERS = {"tokens_max", "stop", "thinking_tokens", "output_config"}
TAKEN = IMAGES | PDF


def request_options(request: Request, model: str, tokens_max: int) -> Block:
    """Return the arguments of the SDK's `create`."""
    given = request.parameters
    # the provider does not let a model think that has to call a tool
    thinks = request.choice != "any"
    thinking = cast("int | None", given.get("thinking_tokens")) if thinks else None
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
        named: Block = {"type": "tool", "name": request.forced}
        options["tool_choice"] = named if request.forced else {"type": request.choice}
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
                f" schema:\n{json_text(request.output)}"
            )
    if system:
        system[-1]["cache_control"] = _MARK
        options["system"] = system
    if config:
        options["output_config"] = config


def _closed_schema(schema: Json) -> Block | None:
    """Return the schema in the form that the API takes. None: it takes no such schema."""
    import anthropic

    known = without_keyword(schema, "discriminator")
    plain = msgspec.json.decode(msgspec.json.encode(known), type=dict[str, Any])
    if not _is_closed(plain, plain.get("$defs", {})):
        return None
    try:
        return anthropic.transform_schema(plain)
    except (ValueError, TypeError, AttributeError, AssertionError):  # such as a value of any type
        return None


def _is_closed(
    schema: Any, definitions: Mapping[str, Any], inside: frozenset[str] = frozenset()
) -> bool:
    """Return True if every object in it names its fields, and none contains itself: the API takes
    no others.
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
    """Return one message per turn: the API itself joins neighbours of one role."""
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
    """Return the last turn of this request, to be cached, and that of the request before, to be
    found in the cache: by itself the API looks back only 20 blocks.
    """
    ours = [place for place, turn in enumerate(turns) if isinstance(turn, Answered)]
    others = [place for place, turn in enumerate(turns) if not isinstance(turn, Answered)]
    before = [place for place in others if ours and place < ours[-1]]
    return {*others[-1:], *before[-1:]}


def _content(turn: Turn, blob: Blob) -> list[Block]:
    """Return the blocks of a turn, by the turn alone. Empty: nothing that the API would take."""
    if isinstance(turn, Said):
        return _visible_blocks(turn.parts, blob) or _text("[an empty message]")
    if isinstance(turn, Returned):
        return [_result(result, blob) for result in turn.results]
    blocks = [block for part in turn.parts for block in _own_blocks(part, blob)] + [
        _call(call) for call in turn.calls
    ]
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        blocks.pop()  # a message that ends in a thought is refused
    return blocks


def _result(result: CallResult, blob: Blob) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": result.call}
    if result.failed:  # then it must say something, and in words only
        content = [block for part in result.parts for block in _text_blocks(part, blob)] or _text(
            "[failed, and said nothing]"
        )
        return {**block, "content": content, "is_error": True}
    content = _visible_blocks(result.parts, blob)
    return {**block, "content": content} if content else block


def _call(call: AnsweredCall) -> Block:
    # An object is demanded, also where the model wrote none: its own text is then put into one.
    whole = isinstance(call.arguments, Mapping)
    text = call.arguments if isinstance(call.arguments, str) else json_text(call.arguments)
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.tool,
        "input": call.arguments if whole else {"INVALID_JSON": text},
    }


def _own_blocks(part: Content, blob: Blob) -> list[Block]:
    """Return the blocks for a part of an own reply. Reasoning of other providers is left out."""
    if not isinstance(part, Reasoning):
        return _text_blocks(part, blob)
    raw = cast("Mapping[str, Any]", part.raw if isinstance(part.raw, Mapping) else {})
    return [raw["block"]] if raw.get("provider") == PROVIDER and "block" in raw else []


def _visible_blocks(parts: Parts, blob: Blob) -> list[Block]:
    """Return the blocks for parts with their images and documents."""
    return [block for part in parts for block in _visible_block(part, blob)]


def _visible_block(part: Content, blob: Blob) -> list[Block]:
    content = can_take(part, TAKEN, blob) if isinstance(part, Image) else None
    if content is not None and isinstance(part, Image):
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
    return _text_blocks(part, blob)


def _document(part: File, blob: Blob) -> Block | None:
    """Return the source of a document block. None: the API has no way to show it."""
    if (content := can_take(part, TAKEN, blob)) is not None:
        return {"type": "base64", "media_type": "application/pdf", "data": _base64(content)}
    text = text_of_file(part, blob)
    return None if text is None else {"type": "text", "media_type": "text/plain", "data": text}


def _text_blocks(part: Content, blob: Blob) -> list[Block]:
    """Return a part as text; images and files are named, never left out."""
    if isinstance(part, Image):
        return _text(left_out_text(part, blob))
    if isinstance(part, File):
        return _text(shown_file(part, blob))
    if isinstance(part, Data):
        value = (
            _bytes(part, blob)
            if part.blob and part.value is None
            else json_text(part.value).encode()
        )
        return _text("[data, not shown: it was erased]" if value is None else value.decode())
    if not part.text and part.blob:
        content = _bytes(part, blob)
        return _text("[text, not shown: it was erased]" if content is None else content.decode())
    return _text(part.text)


def _bytes(part: Content, blob: Blob) -> bytes | None:
    """Return the content of a part. None: it was erased."""
    try:
        return blob(part.blob) if part.blob else b""
    except UnknownBlob:
        return None


def _text(text: str) -> list[Block]:
    """Return a text block; none for blank text, which is refused."""
    return [{"type": "text", "text": text}] if text.strip() else []


def json_text(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
