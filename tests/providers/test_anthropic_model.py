"""The Anthropic adapter over real HTTP with the real SDK: aimock where manners will do, the wire
where bytes matter.
"""

from __future__ import annotations

import asyncio
import json
import socket
import traceback
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import formatdate
from hashlib import sha256
from time import time
from typing import Any, Literal, cast

import msgspec
import pytest

from plait.errors import MissingKey, StoreClosed, UnknownBlob
from plait.event import Json
from plait.event.kinds import Data, File, Image, Part, Parts, Reasoning, Text, Usage
from plait.ids import Digest
from plait.model import (
    Delta,
    Fault,
    Model,
    ReasoningDelta,
    Reply,
    Request,
    Spec,
    TextDelta,
    ToolDelta,
    find,
)
from plait.model.anthropic import AnthropicModel
from plait.model.base import Answered, AnsweredCall, CallResult, Returned, Said, Turn
from plait.session import Session
from tests.providers.aimock import AIMock
from tests.providers.wire import Answer, Wire, sse, whole
from tests.support import python

KEY = "sk-ant-not-to-be-told-0123456789"
MODEL = "claude-sonnet-5-5"
BLOBS: dict[Digest, bytes] = {}

both_ways = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def blob(content: bytes) -> Digest:
    digest = Digest(sha256(content).hexdigest())
    BLOBS[digest] = content
    return digest


def get_blob(digest: Digest) -> bytes:
    if digest not in BLOBS:
        raise UnknownBlob(digest)
    return BLOBS[digest]


def request(
    *turns: Turn | str, instruction: str = "Be brief.", tools: tuple[Spec, ...] = (), **more: Any
) -> Request:
    told = [Said((Text(turn),)) if isinstance(turn, str) else turn for turn in turns or ("hello",)]
    return Request(instruction, tools, told, cast("Session", None), get_blob, **more)


def run(
    model: AnthropicModel, asked: Request, on_delta: Callable[[Delta], None] | None = None
) -> Reply:
    async def go() -> Reply:
        try:
            return await model.ask(asked, on_delta)
        finally:
            await model.aclose()

    return asyncio.run(go())


def ignore(_: Delta) -> None:
    """A listener, so that it streams."""


@dataclass(frozen=True)
class Heard:
    reply: Reply
    deltas: list[Delta]


def ask(url: str, asked: Request | None = None, *, streamed: bool = False, **options: Any) -> Heard:
    deltas: list[Delta] = []
    model = AnthropicModel(MODEL, api_key=KEY, base_url=url, **options)
    return Heard(run(model, asked or request(), deltas.append if streamed else None), deltas)


def ask_wire(
    wire: Wire,
    answer: Answer | Mapping[str, Any],
    asked: Request | None = None,
    *,
    streamed: bool = False,
    **options: Any,
) -> Heard:
    """Ask for this answer, once: one ask is one request, whatever comes."""
    wire.play(
        answer
        if isinstance(answer, Answer)
        else sse(*events(answer))
        if streamed
        else whole(answer)
    )
    try:
        return ask(wire.url, asked, streamed=streamed, **options)
    finally:
        assert len(wire.requests) == 1


def fault_of(
    wire: Wire, answer: Answer | Mapping[str, Any], *, streamed: bool, **options: Any
) -> Fault:
    with pytest.raises(Fault) as caught:
        ask_wire(wire, answer, streamed=streamed, **options)
    return caught.value


def sent(wire: Wire, asked: Request) -> Any:
    """The body of the request that this becomes."""
    ask_wire(wire, message(text("ok")), asked)
    return wire.requests[0].json


# ── what the provider says ───────────────────────────────────────────────────────────────────


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def use(id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


USAGE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 200,
    "cache_read_input_tokens": 3000,
    "output_tokens": 40,
}


def message(
    *content: Mapping[str, Any], stop: str = "end_turn", usage: Mapping[str, Any] = USAGE
) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": f"{MODEL}-20261001",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }


def start(usage: Mapping[str, Any] = USAGE) -> dict[str, Any]:
    return {
        "type": "message_start",
        "message": {**message(usage={**usage, "output_tokens": 1}), "stop_reason": None},
    }


def begin(index: int, block: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, kind: str, field: str, value: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, field: value}}


def end(stop: str, output_tokens: int = 40) -> tuple[dict[str, Any], ...]:
    delta = {
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": None},
        "usage": {"output_tokens": output_tokens},
    }
    return delta, {"type": "message_stop"}


def cut_up(said: str, size: int = 5) -> list[str]:
    return [said[at : at + size] for at in range(0, len(said), size)]


def events(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A message as the API streams it, in small pieces."""
    told = [start(whole["usage"]), {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        told += block_events(index, block)
    return [*told, *end(whole["stop_reason"], whole["usage"]["output_tokens"])]


def block_events(index: int, block: Mapping[str, Any]) -> list[dict[str, Any]]:
    stop = {"type": "content_block_stop", "index": index}
    if block["type"] == "text":
        return [
            begin(index, text("")),
            *[piece(index, "text_delta", "text", said) for said in cut_up(block["text"])],
            stop,
        ]
    if block["type"] == "thinking":
        thoughts = [
            piece(index, "thinking_delta", "thinking", said) for said in cut_up(block["thinking"])
        ]
        empty = {**block, "thinking": "", "signature": ""}
        return [
            begin(index, empty),
            *thoughts,
            piece(index, "signature_delta", "signature", block["signature"]),
            stop,
        ]
    if block["type"] == "tool_use":
        arguments = json.dumps(block["input"]) if block["input"] else ""
        pieces = [
            piece(index, "input_json_delta", "partial_json", said)
            for said in ["", *cut_up(arguments)]
        ]
        return [begin(index, {**block, "input": {}}), *pieces, stop]
    return [begin(index, block), stop]


# ── answers ──────────────────────────────────────────────────────────────────────────────────


@both_ways
def test_a_text(aimock: AIMock, streamed: bool) -> None:
    usage = {"input_tokens": 12, "output_tokens": 7}
    aimock.play(
        {
            "match": {"userMessage": "hello"},
            "response": {"content": "Good day to you, whoever you are.", "usage": usage},
        }
    )
    heard = ask(aimock.url, streamed=streamed)
    assert heard.reply.parts == (Text("Good day to you, whoever you are."),)
    assert (heard.reply.calls, heard.reply.stop, heard.reply.model) == ((), "end", MODEL)
    assert heard.reply.usage.output_tokens == 7
    assert heard.reply.usage.input_tokens == 12
    assert heard.reply.price is not None and heard.reply.price.cost_usd_nano > 0
    assert "".join(delta.text for delta in heard.deltas if isinstance(delta, TextDelta)) == (
        "Good day to you, whoever you are." * streamed
    )
    assert len(aimock.requests("/v1/messages")) == 1


THOUGHT: dict[str, Any] = {
    "type": "thinking",
    "thinking": "Weigh it: ünïcode, \n and more.",
    "signature": "EqQBCgIYAg==/+abc",
    "new_field": {"kept": [1, None]},
}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4a"}


def turns_after(reply: Reply, results: Mapping[str, str]) -> tuple[Turn, ...]:
    """As the runtime goes on: its own ids, the parts as they came."""
    calls = tuple(
        [
            AnsweredCall(f"call_{place}", call.tool, call.arguments)
            for place, call in enumerate(reply.calls)
        ]
    )
    return Answered(reply.parts, calls), Returned(
        tuple([CallResult(call.id, call.tool, (Text(results[call.tool]),)) for call in calls])
    )


@both_ways
def test_thoughts_go_back_as_they_came(wire: Wire, streamed: bool) -> None:
    reply = ask_wire(
        wire,
        message(
            THOUGHT,
            REDACTED,
            text("Let me look."),
            use("toolu_1", "look", {"at": "sky"}),
            stop="tool_use",
        ),
        streamed=streamed,
    )
    first, second, said = reply.reply.parts
    assert first == Reasoning(THOUGHT["thinking"], {"provider": "anthropic", "block": THOUGHT})
    assert second == Reasoning("", {"provider": "anthropic", "block": REDACTED})
    assert said == Text("Let me look.")
    if streamed:
        assert (
            "".join(delta.thought for delta in reply.deltas if isinstance(delta, ReasoningDelta))
            == THOUGHT["thinking"]
        )
    body = sent(wire, request("hello", *turns_after(reply.reply, {"look": "blue"})))
    assert body["messages"][1] == {
        "role": "assistant",
        "content": [THOUGHT, REDACTED, text("Let me look."), use("call_0", "look", {"at": "sky"})],
    }
    assert body["messages"][2]["content"][0]["tool_use_id"] == "call_0"


@both_ways
def test_thoughts_go_back_to_a_server_that_insists(
    aimock: AIMock, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aimock, when strict, refuses a tool loop whose thinking lost its place or its signature."""
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-aimock-strict: true")
    call = {"name": "look", "arguments": '{"at": "sky"}'}
    thinking = {
        "reasoning": "Look first.",
        "reasoningSignature": "c2lnbmVk",
        "redactedThinking": ["aGlkZGVu"],
    }
    aimock.play(
        {"match": {"hasToolResult": True}, "response": {"content": "It is blue."}},
        {"match": {"userMessage": "hello"}, "response": {"toolCalls": [call], **thinking}},
    )
    parameters = {"thinking_tokens": 2048}
    tools = (
        Spec("look", "Look at it", {"type": "object", "properties": {"at": {"type": "string"}}}),
    )
    first = ask(
        aimock.url, request("hello", tools=tools, parameters=parameters), streamed=streamed
    ).reply
    assert first.stop == "calls"
    assert [(call.tool, call.arguments) for call in first.calls] == [("look", {"at": "sky"})]
    turns = turns_after(first, {"look": "blue"})
    second = ask(
        aimock.url, request("hello", *turns, tools=tools, parameters=parameters), streamed=streamed
    ).reply
    assert second.parts == (Text("It is blue."),)
    # Without them it is refused: the mock does insist.
    with pytest.raises(Fault, match="must begin with a `thinking` block") as caught:
        bare = Answered((), (AnsweredCall("call_0", "look", {"at": "sky"}),))
        ask(
            aimock.url,
            request("hello", bare, turns[1], tools=tools, parameters=parameters),
            streamed=streamed,
        )
    assert (caught.value.kind, caught.value.retryable) == ("BadRequest", False)


def test_only_thoughts_of_this_provider_go_back_and_never_as_the_last_word(wire: Wire) -> None:
    foreign = Reasoning("elsewhere", {"provider": "openai", "item": {"id": "rs_1"}})
    ours = Reasoning("here", {"provider": "anthropic", "block": THOUGHT})
    body = sent(
        wire,
        request(
            "a",
            Answered((foreign, Text("b"))),
            "c",
            Answered((ours,)),
            "d",
            Answered((ours, Text("e"))),
            "f",
        ),
    )
    assert [[block["type"] for block in told["content"]] for told in body["messages"]] == [
        ["text"],
        ["text"],
        ["text"],
        ["text"],  # the turn with nothing but a thought is not told: it would be refused
        ["thinking", "text"],
        ["text"],
    ]


def test_a_thought_that_was_cut_before_it_was_signed_is_kept_as_text(wire: Wire) -> None:
    told = [
        start(),
        begin(0, {"type": "thinking", "thinking": "", "signature": ""}),
        piece(0, "thinking_delta", "thinking", "Well"),
    ]
    reply = ask_wire(wire, sse(*told, *end("max_tokens")), streamed=True).reply
    assert (reply.parts, reply.stop) == ((Reasoning("Well"),), "length")


def test_blocks_of_other_kinds_are_kept_and_go_back(wire: Wire) -> None:
    searched: dict[str, Any] = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {},
    }
    told = [
        start(),
        begin(0, searched),
        piece(0, "input_json_delta", "partial_json", '{"query":'),
        piece(0, "input_json_delta", "partial_json", '"x"}'),
    ]
    reply = ask_wire(
        wire, sse(*told, *block_events(1, text("Found.")), *end("end_turn")), streamed=True
    ).reply
    assert reply.calls == ()
    body = sent(wire, request("hello", Answered(reply.parts), "go on"))
    assert body["messages"][1]["content"] == [{**searched, "input": {"query": "x"}}, text("Found.")]


@both_ways
def test_parallel_calls(aimock: AIMock, streamed: bool) -> None:
    calls = [
        {"name": "add", "arguments": '{"a": 1, "b": [2, {"c": "ü"}]}'},
        {"name": "now", "arguments": "{}"},
    ]
    aimock.play(
        {
            "match": {"userMessage": "hello"},
            "response": {"content": "Both.", "toolCalls": calls},
            "chunkSize": 3,
        }
    )
    heard = ask(aimock.url, streamed=streamed)
    assert heard.reply.parts == (Text("Both."),)
    assert [(call.tool, call.arguments) for call in heard.reply.calls] == [
        ("add", {"a": 1, "b": [2, {"c": "ü"}]}),
        ("now", {}),
    ]
    assert all(call.ref for call in heard.reply.calls)
    assert heard.reply.stop == "calls"
    if streamed:
        told = [delta for delta in heard.deltas if isinstance(delta, ToolDelta)]
        assert [(delta.index, delta.tool) for delta in told if not delta.arguments] == [
            (0, "add"),
            (1, "now"),
        ]
        assert (
            json.loads("".join(delta.arguments for delta in told if delta.index == 0))
            == heard.reply.calls[0].arguments
        )


def test_pieces_of_several_calls_may_come_mixed(wire: Wire) -> None:
    told = [
        start(),
        begin(1, use("toolu_b", "second", {})),
        begin(0, use("toolu_a", "first", {})),
        piece(0, "input_json_delta", "partial_json", '{"n"'),
        piece(1, "input_json_delta", "partial_json", '{"m": 2'),
        piece(0, "input_json_delta", "partial_json", ": 1}"),
        piece(1, "input_json_delta", "partial_json", "}"),
    ]
    reply = ask_wire(wire, sse(*told, *end("tool_use")), streamed=True).reply
    assert [(call.tool, call.arguments, call.ref) for call in reply.calls] == [
        ("first", {"n": 1}, "toolu_a"),
        ("second", {"m": 2}, "toolu_b"),
    ]


@both_ways
def test_a_call_without_arguments(wire: Wire, streamed: bool) -> None:
    reply = ask_wire(
        wire, message(use("toolu_1", "now", {}), stop="tool_use"), streamed=streamed
    ).reply
    assert [call.arguments for call in reply.calls] == [{}]


@pytest.mark.parametrize(
    "written",
    [
        '{"path": "a',
        "[1, 2]",
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
        "path=a",
        '"text"',
        "{" * 3 + '"deep"',
    ],
)
def test_arguments_that_are_no_object_are_kept_as_they_came(wire: Wire, written: str) -> None:
    told = [
        start(),
        begin(0, use("toolu_1", "open", {})),
        *[piece(0, "input_json_delta", "partial_json", p) for p in cut_up(written, 3)],
    ]
    reply = ask_wire(
        wire,
        sse(*told, {"type": "content_block_stop", "index": 0}, *end("tool_use")),
        streamed=True,
    ).reply
    assert [call.arguments for call in reply.calls] == [written]
    # Told back in an object, since the API takes nothing else.
    body = sent(wire, request("hello", *turns_after(reply, {"open": "that was no JSON object"})))
    assert body["messages"][1]["content"] == [use("call_0", "open", {"INVALID_JSON": written})]


@pytest.mark.parametrize("written", ["[1, 2]", '{"a": 1, "a": 2}', '"text"'])
def test_the_same_when_it_comes_whole(wire: Wire, written: str) -> None:
    body = json.dumps(message(use("toolu_1", "open", "HERE"), stop="tool_use")).replace(
        '"HERE"', written
    )
    reply = ask_wire(wire, whole(body.encode())).reply
    assert [call.arguments for call in reply.calls] == [written]


@both_ways
def test_a_refusal(wire: Wire, streamed: bool) -> None:
    reply = ask_wire(wire, message(text("I will not."), stop="refusal"), streamed=streamed).reply
    assert (reply.parts, reply.stop) == ((Text("I will not."),), "refusal")


@pytest.mark.parametrize("written", ["", '{"path": "a.txt", "text": "half of'])
def test_a_call_that_was_cut_has_no_arguments_to_run_with(wire: Wire, written: str) -> None:
    told = [start(), *block_events(0, text("Writing.")), begin(1, use("toolu_1", "write", {}))]
    told += [piece(1, "input_json_delta", "partial_json", p) for p in cut_up(written)]
    reply = ask_wire(wire, sse(*told, *end("max_tokens")), streamed=True).reply
    assert reply.stop == "length"
    assert [(call.tool, call.arguments) for call in reply.calls] == [("write", written)]


@both_ways
@pytest.mark.parametrize(
    ("said", "stop"),
    [
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "pause_turn"),
    ],
)
def test_why_it_stopped(wire: Wire, streamed: bool, said: str, stop: str) -> None:
    assert ask_wire(wire, message(text("So"), stop=said), streamed=streamed).reply.stop == stop


@both_ways
def test_an_empty_reply_is_a_reply(wire: Wire, streamed: bool) -> None:
    for content in ([], [text("")]):
        reply = ask_wire(wire, message(*content), streamed=streamed).reply
        assert (reply.parts, reply.calls, reply.stop) == ((), (), "end")


@both_ways
def test_usage_counts_what_was_read_from_the_cache_and_written_to_it(
    wire: Wire, streamed: bool
) -> None:
    detailed = {
        **USAGE,
        "output_tokens_details": {"thinking_tokens": 9},
        "service_tier": "standard",
    }
    dear = ask_wire(
        wire,
        message(
            text("a"),
            usage={
                **USAGE,
                "input_tokens": 3210,
                "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": None,
            },
        ),
    ).reply
    reply = ask_wire(wire, message(text("a"), usage=detailed), streamed=streamed).reply
    assert reply.usage == Usage(3210, 40, 3000, 9)
    assert reply.model == f"{MODEL}-20261001"
    assert reply.price and dear.price and 0 < reply.price.cost_usd_nano < dear.price.cost_usd_nano
    assert reply.price.source.startswith("genai-prices ")


def test_a_long_answer_is_streamed_in_any_case(wire: Wire) -> None:
    wire.play(sse(*events(message(text("long")))))
    reply = ask(wire.url, request(parameters={"tokens_max": 64_000})).reply
    assert (reply.parts, wire.requests[0].json["stream"], len(wire.requests)) == (
        (Text("long"),),
        True,
        1,
    )


# ── what is sent ─────────────────────────────────────────────────────────────────────────────

TOOLS = tuple(
    [
        Spec(name, f"To {name}", {"type": "object", "properties": {}})
        for name in ("add", "look", "write")
    ]
)
MARK = {"type": "ephemeral"}


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: unmarked(item)
            for key, item in cast("dict[str, Any]", value).items()
            if key != "cache_control"
        }
    return (
        [unmarked(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value
    )


def marks(body: Any) -> list[str]:
    """Return the paths of the marks."""
    found: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            if "cache_control" in value:
                assert value["cache_control"] == MARK
                found.append(path)
            for key, item in cast("dict[str, Any]", value).items():
                walk(item, f"{path}/{key}")
        elif isinstance(value, list):
            for index, item in enumerate(cast("list[Any]", value)):
                walk(item, f"{path}/{index}")

    walk(body, "")
    return sorted(found)


def conversation() -> list[Turn]:
    calls = (AnsweredCall("call_0", "add", {"b": 1, "a": 2}), AnsweredCall("call_1", "look", {}))
    results = (
        CallResult("call_0", "add", (Text("3"),)),
        CallResult("call_1", "look", (Text("no"),), failed=True),
    )
    ours = Reasoning(THOUGHT["thinking"], {"provider": "anthropic", "block": THOUGHT})
    return [
        Said((Text("Count, then look."), Data({"z": 1, "a": [True, None]}))),
        Answered((ours, Text("I add.")), calls),
        Returned(results),
        Answered((Text("Three."),)),
        Said((Text("And?"),)),
        Said((Text("Somebody else: and?"),)),
        Answered((), (AnsweredCall("call_2", "write", "no json"),)),
        Returned((CallResult("call_2", "write", ()),)),
    ]


def test_the_prefix_is_the_same_bytes_as_turns_are_added(wire: Wire) -> None:
    turns, before = conversation(), None
    for upto in [1, 3, 5, 6, 8]:
        body = unmarked(sent(wire, request(*turns[:upto], tools=TOOLS)))
        told = json.dumps(
            {key: value for key, value in body.items() if key != "messages"}
        ) + json.dumps(body["messages"])
        assert before is None or told.startswith(before.removesuffix("]"))
        # neighbours of one role stay apart: the API joins them
        assert len(body["messages"]) == upto
        before = told


def test_the_marks_are_where_the_cache_is_found_again(wire: Wire) -> None:
    turns = conversation()
    fixed = ["/system/0", "/tools/2"]
    assert marks(sent(wire, request(*turns[:1], tools=TOOLS))) == ["/messages/0/content/1", *fixed]
    assert marks(sent(wire, request(*turns[:3], tools=TOOLS))) == [
        "/messages/0/content/1",
        "/messages/2/content/1",
        *fixed,
    ]
    assert marks(sent(wire, request(*turns[:5], tools=TOOLS))) == [
        "/messages/2/content/1",
        "/messages/4/content/0",
        *fixed,
    ]
    assert marks(sent(wire, request(*turns[:6], tools=TOOLS))) == [
        "/messages/2/content/1",
        "/messages/5/content/0",
        *fixed,
    ]
    assert marks(sent(wire, request(*turns, tools=TOOLS))) == [
        "/messages/5/content/0",
        "/messages/7/content/0",
        *fixed,
    ]
    assert marks(sent(wire, request(*turns[:1]))) == ["/messages/0/content/1", "/system/0"]
    assert marks(sent(wire, request(*turns[:1], instruction=" "))) == ["/messages/0/content/1"]


def test_results_are_one_message_in_their_order(wire: Wire) -> None:
    body = unmarked(sent(wire, request(*conversation(), tools=TOOLS)))
    assert body["messages"][2] == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "call_0", "content": [text("3")]},
            {
                "type": "tool_result",
                "tool_use_id": "call_1",
                "content": [text("no")],
                "is_error": True,
            },
        ],
    }
    assert body["messages"][7]["content"] == [{"type": "tool_result", "tool_use_id": "call_2"}]
    assert body["messages"][0]["content"] == [
        text("Count, then look."),
        text('{"z":1,"a":[true,null]}'),
    ]
    assert body["tools"][0] == {
        "name": "add",
        "description": "To add",
        "input_schema": {"type": "object", "properties": {}},
    }
    assert body["system"] == [text("Be brief.")]
    assert "tool_choice" not in body and "stream" not in body


def test_images_and_files_are_shown(wire: Wire) -> None:
    png, pdf = b"\x89PNG\r\n", b"%PDF-1.4"
    parts: Parts = (
        Image("image/png", blob(png), "a dot"),
        File("paper.pdf", "application/pdf", blob(pdf)),
        File("notes.md", "text/markdown", blob("# Ü".encode())),
        File("data.json", "application/json", blob(b"{}")),
    )
    documents = [
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": "image/png",
                "data": b64encode(png).decode(),
            },
        },
        {
            "type": "document",
            "source": {
                "type": "base64",
                "media_type": "application/pdf",
                "data": b64encode(pdf).decode(),
            },
            "title": "paper.pdf",
        },
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "# Ü"},
            "title": "notes.md",
        },
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "{}"},
            "title": "data.json",
        },
    ]
    asked = request(
        Said(parts),
        Answered((), (AnsweredCall("call_0", "look", {}),)),
        Returned((CallResult("call_0", "look", parts),)),
    )
    told = unmarked(sent(wire, asked))["messages"]
    assert told[0]["content"] == documents
    assert told[2]["content"][0]["content"] == documents


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (
            Image("image/tiff", blob(b"II*"), "a scan"),
            "[image: a scan, left out: image/tiff, 3 bytes, cannot be read here]",
        ),
        (Image("image/png", Digest("0" * 64)), "[image: image/png, left out: it was erased]"),
        (
            File("a.zip", "application/zip", blob(b"PK")),
            "[file: a.zip, left out: application/zip, 2 bytes, cannot be read here]",
        ),
        (
            File("a.txt", "text/plain", blob(b"\xff\xfe")),
            "[file: a.txt, left out: text/plain, 2 bytes, cannot be read here]",
        ),
        (File("a.txt", "text/plain", blob(b"")), "[file: a.txt, left out: it is empty]"),
        (Text("", Digest("0" * 64)), "[text, not shown: it was erased]"),
        (Text("", blob(b"long")), "long"),
        (Data(None, Digest("0" * 64)), "[data, not shown: it was erased]"),
        (Data(None, blob(b"[1]")), "[1]"),
        (Data(None), "null"),
        (Text(" \n"), "[an empty message]"),
    ],
)
def test_no_part_is_left_out_silently_and_no_text_is_blank(
    wire: Wire, part: Part, told: str
) -> None:
    assert unmarked(sent(wire, request(Said((cast("Text", part),)))))["messages"] == [
        {"role": "user", "content": [text(told)]}
    ]


def test_what_the_api_takes_in_words_only_is_told_in_words(wire: Wire) -> None:
    image = Image("image/png", blob(b"\x89PNG"), "a dot")
    told = "[image: a dot, left out: image/png, 4 bytes, cannot be read here]"
    failed = Returned(
        (
            CallResult("call_0", "look", (image,), failed=True),
            CallResult("call_1", "look", (), failed=True),
        )
    )
    body = unmarked(
        sent(
            wire,
            request(
                "a",
                Answered(
                    (image,),
                    (AnsweredCall("call_0", "look", {}), AnsweredCall("call_1", "look", {})),
                ),
                failed,
            ),
        )
    )
    assert body["messages"][1]["content"][0] == text(told)
    assert [result["content"] for result in body["messages"][2]["content"]] == [
        [text(told)],
        [text("[failed, and said nothing]")],
    ]


def test_parameters(wire: Wire) -> None:
    parameters: dict[str, Json] = {
        "tokens_max": 100,
        "stop": "END",
        "metadata": {"user_id": "u"},
        "new_knob": [1],
        "output_config": {"effort": "low"},
    }
    body = sent(wire, request(parameters=parameters))
    assert (body["max_tokens"], body["stop_sequences"], body["metadata"], body["new_knob"]) == (
        100,
        ["END"],
        {"user_id": "u"},
        [1],
    )
    assert body["output_config"] == {"effort": "low"}
    assert body["model"] == MODEL
    assert not {"tokens_max", "stop", "temperature", "thinking"} & body.keys()
    newest = wire.requests[0].headers["anthropic-version"]
    body = sent(
        wire,
        request(
            parameters={
                "temperature": 0.5,
                "top_p": 0.9,
                "stop": ["a", "b"],
                "thinking_tokens": 1024,
                "tokens_max": 3000,
            }
        ),
    )
    assert (body["temperature"], body["top_p"], body["stop_sequences"]) == (0.5, 0.9, ["a", "b"])
    assert (body["thinking"], body["max_tokens"]) == (
        {"type": "enabled", "budget_tokens": 1024},
        3000,
    )
    # Newer versions of the API refuse sampling parameters on every model.
    assert wire.requests[0].headers["anthropic-version"] == "2023-06-01" < newest
    assert sent(wire, request(parameters={"thinking_tokens": 2048}))["max_tokens"] == 8192 + 2048


def test_whether_tools_may_be_called(wire: Wire) -> None:
    assert sent(wire, request(tools=TOOLS, choice="any"))["tool_choice"] == {"type": "any"}
    given = {"thinking_tokens": 2000}
    body = sent(wire, request(tools=TOOLS, choice="any", forced=TOOLS[0].name, parameters=given))
    assert body["tool_choice"] == {"type": "tool", "name": TOOLS[0].name}
    assert "thinking" not in body, "refused together with a forced call"
    body = sent(wire, request(tools=TOOLS, choice="none"))
    # they stay: the cache begins with them
    assert body["tool_choice"] == {"type": "none"} and len(body["tools"]) == 3
    assert "tool_choice" not in sent(wire, request(choice="none"))


VERDICT = {
    "type": "object",
    "properties": {"passed": {"type": "boolean"}, "score": {"type": "integer", "minimum": 0}},
    "required": ["passed", "score"],
}


@both_ways
def test_structured_output(wire: Wire, streamed: bool) -> None:
    heard = ask_wire(
        wire,
        message(text('{"passed":true,"score":3}')),
        request(output=VERDICT, parameters={"output_config": {"effort": "low"}}),
        streamed=streamed,
    )
    assert heard.reply.parts == (Text('{"passed":true,"score":3}'),)
    config = wire.requests[0].json["output_config"]
    assert config["effort"] == "low" and config["format"]["type"] == "json_schema"
    assert config["format"]["schema"]["additionalProperties"] is False
    assert config["format"]["schema"]["required"] == ["passed", "score"]
    # refused by the API, so it is in the description
    assert "minimum" not in config["format"]["schema"]["properties"]["score"]


NODE: dict[str, Any] = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
}


@pytest.mark.parametrize(
    "field",
    [
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object"},
        {},
        {"$ref": "#/$defs/Node"},
    ],
)
def test_a_schema_that_the_api_cannot_say_is_told_in_words(wire: Wire, field: Json) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": field},
        "required": ["b"],
        "$defs": {"Node": NODE},
    }
    body = sent(wire, request(output=schema))
    assert "output_config" not in body
    assert json.loads(body["system"][1]["text"].partition("\n")[2]) == schema
    assert marks(body) == ["/messages/0/content/0", "/system/1"]


class Point(msgspec.Struct):
    x: int
    label: str | None = None


class Line(msgspec.Struct):
    start: Point
    points: list[Point]
    colour: Literal["red", "blue"] = "red"


def test_schemas_as_msgspec_writes_them_can_be_said(wire: Wire) -> None:
    schema = sent(wire, request(output=msgspec.json.schema(Line)))["output_config"]["format"][
        "schema"
    ]
    assert schema["$defs"]["Point"]["additionalProperties"] is False
    assert schema["$defs"]["Line"]["properties"]["points"]["items"] == {"$ref": "#/$defs/Point"}


# ── faults ───────────────────────────────────────────────────────────────────────────────────


def refused(
    status: int, kind: str, said: str = "no", headers: Mapping[str, str] | None = None
) -> Answer:
    return whole(
        {"type": "error", "error": {"type": kind, "message": said}, "request_id": "req_1"},
        status,
        headers,
    )


@both_ways
@pytest.mark.parametrize(
    ("status", "type", "kind", "retryable"),
    [
        (400, "invalid_request_error", "BadRequest", False),
        (401, "authentication_error", "AuthFailed", False),
        (403, "permission_error", "AuthFailed", False),
        (404, "not_found_error", "NotFound", False),
        (413, "request_too_large", "ContextOverflow", False),
        (422, "invalid_request_error", "BadRequest", False),
        (429, "rate_limit_error", "RateLimited", True),
        (500, "api_error", "ServerError", True),
        (503, "api_error", "ServerError", True),
        (529, "overloaded_error", "Overloaded", True),
    ],
)
def test_statuses(
    wire: Wire, streamed: bool, status: int, type: str, kind: str, retryable: bool
) -> None:
    fault = fault_of(wire, refused(status, type, "because of this"), streamed=streamed)
    assert (fault.kind, fault.retryable, fault.message) == (kind, retryable, "because of this")
    assert (fault.retry_after_s, fault.usage, fault.partial) == (None, None, "")


@both_ways
def test_the_same_from_a_mock_of_others(aimock: AIMock, streamed: bool) -> None:
    error = {"message": "slow down", "type": "rate_limit_error"}
    aimock.play(
        {
            "match": {"userMessage": "hello"},
            "response": {"error": error, "status": 429, "retryAfter": 7},
        }
    )
    with pytest.raises(Fault, match="slow down") as caught:
        ask(aimock.url, streamed=streamed)
    assert (caught.value.kind, caught.value.retryable, caught.value.retry_after_s) == (
        "RateLimited",
        True,
        7.0,
    )
    assert len(aimock.requests("/v1/messages")) == 1


@both_ways
def test_how_long_to_wait(wire: Wire, streamed: bool) -> None:
    def wait_s(**headers: str) -> float | None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return fault_of(
            wire, refused(429, "rate_limit_error", headers=named), streamed=streamed
        ).retry_after_s

    assert wait_s(retry_after="12") == 12.0
    assert wait_s(retry_after="1.5") == 1.5
    assert wait_s(retry_after_ms="250") == 0.25
    assert wait_s(retry_after=formatdate(time() + 90, usegmt=True)) == pytest.approx(90, abs=3)
    assert wait_s(retry_after=formatdate(time() - 90, usegmt=True)) == 0.0
    assert wait_s(retry_after="soon") is None


def test_the_server_may_say_that_asking_again_is_no_use(wire: Wire) -> None:
    assert not fault_of(
        wire, refused(429, "rate_limit_error", headers={"x-should-retry": "false"}), streamed=False
    ).retryable
    assert fault_of(
        wire,
        refused(400, "invalid_request_error", headers={"x-should-retry": "true"}),
        streamed=False,
    ).retryable


@both_ways
@pytest.mark.parametrize(
    "said",
    [
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    ],
)
def test_context_overflow(wire: Wire, streamed: bool, said: str) -> None:
    fault = fault_of(wire, refused(400, "invalid_request_error", said), streamed=streamed)
    assert (fault.kind, fault.retryable) == ("ContextOverflow", False)


@both_ways
@pytest.mark.parametrize(
    "body",
    [
        b"<html>busy</html>",
        b"",
        b"[]",
        b"{}",
        b'{"content": [{"type": 7}]}',
        b'{"content": [{}]}',
        b'{"type": "mes',
    ],
)
def test_a_body_that_is_no_message(wire: Wire, streamed: bool, body: bytes) -> None:
    answer = (
        sse(b"event: message_start\ndata: " + (body or b"{") + b"\n\n") if streamed else whole(body)
    )
    fault = fault_of(wire, answer, streamed=streamed)
    assert (fault.kind, fault.retryable) in {("MalformedReply", True), ("StreamCut", True)}
    assert streamed or fault.kind == "MalformedReply"


def test_an_error_of_a_proxy_in_html(wire: Wire) -> None:
    fault = fault_of(
        wire, whole(b"<html>502</html>", 502, {"content-type": "text/html"}), streamed=True
    )
    assert (fault.kind, fault.retryable) == ("ServerError", True)


STORY = message(
    text("Once upon a time"), use("toolu_1", "write", {"path": "a.txt"}), stop="tool_use"
)


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("after", [0, 1, 5, 8, 10, 13])
def test_a_stream_that_is_cut(wire: Wire, after: int, reset: bool) -> None:
    told = events(STORY)
    assert after < len(told)
    fault = fault_of(wire, sse(*told).cut(after, reset=reset), streamed=True)
    assert (fault.kind, fault.retryable) == ("StreamCut", True)
    said = "".join(
        event["delta"].get("text", "")
        for event in told[:after]
        if event["type"] == "content_block_delta"
    )
    # A reset may overtake what was sent before it.
    assert said.startswith(fault.partial) if reset else fault.partial == said
    if after and not reset:
        assert fault.usage == Usage(3210, 1, 3000)
        assert fault.price is not None and fault.price.cost_usd_nano > 0


def test_a_stream_that_ends_politely_but_early(wire: Wire) -> None:
    for upto in (0, 4, -1):
        fault = fault_of(wire, sse(*events(STORY)[:upto]), streamed=True)
        assert (fault.kind, fault.retryable) == ("StreamCut", True)


def test_the_message_stands_whatever_happens_after_its_end(wire: Wire) -> None:
    told = events(STORY)
    assert (
        ask_wire(
            wire, sse(*told, b"event: x\ndata: {broken\n\n").cut(len(told) + 1), streamed=True
        ).reply.stop
        == "calls"
    )


@both_ways
def test_no_answer_at_all(wire: Wire, streamed: bool) -> None:
    fault = fault_of(wire, whole({}).cut(), streamed=streamed)
    assert (fault.kind, fault.retryable) == ("ConnectionLost", True)


@both_ways
def test_nobody_there(streamed: bool) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with pytest.raises(Fault) as caught:
            ask(f"http://127.0.0.1:{reserved.getsockname()[1]}", streamed=streamed)
    assert (caught.value.kind, caught.value.retryable) == ("ConnectionLost", True)


@both_ways
def test_a_body_that_is_cut(wire: Wire, streamed: bool) -> None:
    half = Answer((b'{"type": "mess', b'age"}')).cut(1)
    assert fault_of(wire, half, streamed=streamed).kind == (
        "StreamCut" if streamed else "ConnectionLost"
    )


@both_ways
def test_connecting_takes_too_long(streamed: bool) -> None:
    """A full backlog answers no one."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for client in (first, second):
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        with pytest.raises(Fault) as caught:
            ask(f"http://127.0.0.1:{full.getsockname()[1]}", streamed=streamed, timeout_s=0.2)
    assert (caught.value.kind, caught.value.retryable) == ("Timeout", True)


@both_ways
def test_an_answer_takes_too_long(wire: Wire, streamed: bool) -> None:
    fault = fault_of(wire, whole({}).hold(), streamed=streamed, timeout_s=0.2)
    assert (fault.kind, fault.retryable) == ("Timeout", True)
    wire.wait_gone()


def test_a_stream_falls_silent(wire: Wire) -> None:
    fault = fault_of(wire, sse(*events(STORY)).hold(5), streamed=True, timeout_s=0.2)
    assert (fault.kind, fault.retryable, fault.partial) == ("Timeout", True, "Once upon ")
    wire.wait_gone()


@pytest.mark.parametrize(
    ("type", "kind", "retryable"),
    [
        ("overloaded_error", "Overloaded", True),
        ("rate_limit_error", "RateLimited", True),
        ("api_error", "ServerError", True),
        ("timeout_error", "Timeout", True),
        ("never_heard_of", "ServerError", True),
        ("invalid_request_error", "BadRequest", False),
        ("authentication_error", "AuthFailed", False),
    ],
)
def test_an_error_in_the_stream(wire: Wire, type: str, kind: str, retryable: bool) -> None:
    error = {"type": "error", "error": {"type": type, "message": "in the middle"}}
    fault = fault_of(wire, sse(*events(STORY)[:5], error), streamed=True)
    assert (fault.kind, fault.retryable, fault.message, fault.partial) == (
        kind,
        retryable,
        "in the middle",
        "Once upon ",
    )
    assert fault.usage == Usage(3210, 1, 3000)


def test_an_error_as_a_good_answer(wire: Wire) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    assert fault_of(wire, whole(error), streamed=False).kind == "Overloaded"


@pytest.mark.parametrize(
    "broken",
    [
        b"event: content_block_delta\ndata: {broken\n\n",
        b"event: content_block_delta\ndata: []\n\n",
        {
            "type": "content_block_delta",
            "index": 9,
            "delta": {"type": "text_delta", "text": "lost"},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 7}},
        {"type": "content_block_start", "index": 1, "content_block": {}},
    ],
)
def test_events_that_make_no_sense(wire: Wire, broken: Any) -> None:
    fault = fault_of(wire, sse(*events(STORY)[:5], broken, *end("end_turn")), streamed=True)
    assert (fault.kind, fault.retryable, fault.partial) == ("MalformedReply", True, "Once upon ")


def test_events_of_kinds_to_come_are_passed_over(wire: Wire) -> None:
    told = events(message(text("Fine")))
    news: Sequence[Any] = [
        {"type": "novelty", "x": 1},
        piece(0, "novel_delta", "novel", "x"),
        b": a comment\n\n",
    ]
    assert ask_wire(wire, sse(*told[:4], *news, *told[4:]), streamed=True).reply.parts == (
        Text("Fine"),
    )


@both_ways
def test_no_key_in_a_fault(wire: Wire, streamed: bool) -> None:
    echo = f"invalid x-api-key: Bearer {KEY}"
    answers = [
        refused(401, "authentication_error", echo),
        whole(echo.encode(), 500, {"content-type": "text/plain"}),
        whole(echo.encode()),
        sse(start(), {"type": "error", "error": {"type": "api_error", "message": echo}}),
        whole({}).cut(),
    ]
    for answer in answers:
        fault = fault_of(wire, answer, streamed=streamed)
        told = [repr(fault), fault.message, *traceback.format_exception(fault)]
        assert not any(KEY in line for line in told)
    assert wire.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_key_that_no_header_can_hold(wire: Wire) -> None:
    key = "sk-ant-first\nsecond"
    wire.play(whole({}))
    with pytest.raises(Fault) as caught:
        run(AnthropicModel(MODEL, api_key=key, base_url=wire.url), request())
    told = "".join(traceback.format_exception(caught.value))
    assert "first" not in told and "second" not in told
    assert len(wire.requests) == 0


def test_a_part_that_cannot_be_read_is_a_fault(wire: Wire) -> None:
    def closed(_: Digest) -> bytes:
        raise StoreClosed("memory:")

    wire.play()
    image = Said((Image("image/png", blob(b"x"), "dot"),))
    with pytest.raises(Fault, match="memory: was closed") as caught:
        ask(wire.url, Request("", (), [image], cast("Session", None), closed))
    assert (caught.value.kind, caught.value.retryable, len(wire.requests)) == (
        "BadRequest",
        False,
        0,
    )
    with pytest.raises(Fault) as caught:
        ask(wire.url, request(parameters={"tokens_max": "many"}))
    assert (caught.value.kind, len(wire.requests)) == ("BadRequest", 0)


# ── running ──────────────────────────────────────────────────────────────────────────────────


@both_ways
@pytest.mark.parametrize("after", [-1, 5])
def test_cancelling_closes_the_socket(wire: Wire, streamed: bool, after: int) -> None:
    answer = (
        sse(*events(STORY)).hold(after)
        if streamed
        else replace(whole(STORY), chunks=(b" ",) * 9).hold(after)
    )
    wire.play(answer)
    model = AnthropicModel(MODEL, api_key=KEY, base_url=wire.url)

    async def go() -> None:
        task = asyncio.create_task(model.ask(request(), ignore if streamed else None))
        await asyncio.to_thread(wire.wait_held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wire.wait_gone)
        await model.aclose()

    asyncio.run(go())
    assert len(wire.requests) == 1


def test_what_the_listener_raises_is_its_own(wire: Wire) -> None:
    def listen(_: Delta) -> None:
        raise ZeroDivisionError

    wire.play(sse(*events(STORY)).hold(6))
    with pytest.raises(ZeroDivisionError):
        run(AnthropicModel(MODEL, api_key=KEY, base_url=wire.url), request(), listen)
    wire.wait_gone()


def test_one_model_serves_many_asks_and_several_loops(wire: Wire) -> None:
    model = AnthropicModel(MODEL, api_key=KEY, base_url=wire.url)

    async def go() -> list[Reply]:
        try:
            return await asyncio.gather(*[model.ask(request(), ignore) for _ in range(4)])
        finally:
            await model.aclose()

    for _ in range(2):
        wire.play(*[sse(*events(STORY)) for _ in range(4)])
        assert [reply.stop for reply in asyncio.run(go())] == ["calls"] * 4


def test_a_model_says_what_it_is_and_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, wire: Wire
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(
        MissingKey,
        match="anthropic:claude-x needs a key. Set the environment variable ANTHROPIC_API_KEY",
    ):
        AnthropicModel("claude-x")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", wire.url)
    model = find(f"anthropic:{MODEL}-by-name")
    assert isinstance(model, Model) and isinstance(model, AnthropicModel)
    assert model.name == f"anthropic:{MODEL}-by-name"
    assert repr(model) == f"AnthropicModel('{MODEL}-by-name')"
    wire.play(whole(message(text("ok"))))
    assert run(model, request()).parts == (Text("ok"),)
    assert (wire.requests[0].path, wire.requests[0].json["model"]) == (
        "/v1/messages",
        f"{MODEL}-by-name",
    )


def test_without_the_sdk_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['anthropic'] = None\n"
        "from plait.errors import MissingExtra\n"
        "from plait.model import find\n"
        "try: find('anthropic:claude-x')\n"
        "except MissingExtra as error: print(error, file=sys.stderr)\n"
    )
    said = python(code).stderr
    assert (
        "anthropic:claude-x needs a package that is not installed" in said
        and "pip install 'plait[anthropic]'" in said
    )
