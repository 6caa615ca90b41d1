"""Both OpenAI dialects, whole and streamed, over real HTTP with the real SDK."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import traceback
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from plait.errors import MissingExtra, MissingKey
from plait.event.kinds import Data, File, Image, Parts, Reasoning, Text, Usage
from plait.ids import Digest
from plait.model.base import (
    Answered,
    AnsweredCall,
    CallResult,
    Delta,
    Fault,
    Model,
    ReasoningDelta,
    Reply,
    Request,
    Returned,
    Said,
    Spec,
    TextDelta,
    ToolDelta,
    Turn,
)
from plait.model.openai import ChatModel, OpenAIModel
from tests.providers.aimock import AIMock
from tests.providers.wire import Answer, Wire, sse, whole
from tests.support import dose, seed

pytest.importorskip("openai")

KEY = "sk-very-secret-0123456789"
SCHEMA = {
    "type": "object",
    "properties": {"q": {"type": "string"}},
    "required": ["q"],
    "additionalProperties": False,
}
TOOLS = (Spec("count", "Counts.", SCHEMA), Spec("look", "Looks.", SCHEMA))
PIXEL = b"\x89PNG"
Calls = Sequence[tuple[str, str]]  # name, arguments as text


def request(*turns: Turn, **given: Any) -> Request:
    fields: dict[str, Any] = {
        "instruction": "Be brief.",
        "tools": TOOLS,
        "turns": turns or (Said((Text("hello"),)),),
    }
    fields |= {
        "session": None,
        "blob": {Digest("d" * 64): PIXEL, Digest("e" * 64): PIXEL}.__getitem__,
        **given,
    }
    return Request(**fields)


# ── the two dialects ─────────────────────────────────────────────────────────────────────────


class Responses:
    path = "/v1/responses"
    turns = "input"

    def model(self, url: str, **given: Any) -> OpenAIModel:
        return OpenAIModel(given.pop("model", "gpt-5"), api_key=KEY, base_url=f"{url}/v1", **given)

    def items(self, text: str, calls: Calls, refusal: str, thought: Any) -> list[Any]:
        content: list[Any] = (
            [{"type": "output_text", "text": text, "annotations": []}] if text else []
        )
        content += [{"type": "refusal", "refusal": refusal}] if refusal else []
        found: list[Any] = [thought] if thought else []
        found += (
            [
                {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "status": "completed",
                    "content": content,
                }
            ]
            if content
            else []
        )
        return found + [
            {
                "type": "function_call",
                "id": f"fc_{n}",
                "call_id": f"call_{n}",
                "name": name,
                "arguments": written,
            }
            for n, (name, written) in enumerate(calls)
        ]

    def body(self, items: list[Any], stop: str = "") -> Any:
        usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
        usage |= {
            "input_tokens_details": {"cached_tokens": 64},
            "output_tokens_details": {"reasoning_tokens": 7},
        }
        state = (
            {"status": "incomplete", "incomplete_details": {"reason": stop}}
            if stop
            else {"status": "completed"}
        )
        return {
            "id": "resp_1",
            "object": "response",
            "model": "gpt-5-2025-08-07",
            "output": items,
            "usage": usage,
            **state,
        }

    def whole(
        self,
        text: str = "",
        calls: Calls = (),
        refusal: str = "",
        thought: Any = None,
        stop: str = "",
    ) -> Answer:
        return whole(
            self.body(
                self.items(text, calls, refusal, thought),
                stop and {"length": "max_output_tokens"}.get(stop, stop),
            )
        )

    def stream(
        self,
        text: str = "",
        calls: Calls = (),
        refusal: str = "",
        thought: Any = None,
        stop: str = "",
    ) -> Answer:
        items = self.items(text, calls, refusal, thought)
        events: list[Any] = [{"type": "response.created", "response": {"status": "in_progress"}}]
        for index, item in enumerate(items):
            events.append(
                {
                    "type": "response.output_item.added",
                    "output_index": index,
                    "item": {**item, "arguments": "", "content": []},
                }
            )
        for index, item in enumerate(items):
            if item["type"] == "message":
                kind = "refusal" if refusal else "output_text"
                pieces = _split(text or refusal)
                events += [
                    {"type": f"response.{kind}.delta", "output_index": index, "delta": piece}
                    for piece in pieces
                ]
            elif item["type"] == "reasoning":
                events.append(
                    {
                        "type": "response.reasoning_summary_text.delta",
                        "output_index": index,
                        "delta": "hm",
                    }
                )
        # Arguments come in turns, the last call's first: nothing promises an order.
        places = [
            (index, _split(item["arguments"]))
            for index, item in enumerate(items)
            if item["type"] == "function_call"
        ]
        for round in range(max((len(pieces) for _, pieces in places), default=0)):
            for index, pieces in reversed(places):
                if round < len(pieces):
                    events.append(
                        {
                            "type": "response.function_call_arguments.delta",
                            "output_index": index,
                            "delta": pieces[round],
                        }
                    )
        if not stop:
            events += [
                {"type": "response.output_item.done", "output_index": index, "item": item}
                for index, item in enumerate(items)
            ]
        reason = stop and {"length": "max_output_tokens"}.get(stop, stop)
        # what was cut need not be in the list of the end
        final = self.body([] if stop == "length" else items, reason)
        return sse(*events, {"type": f"response.{final['status']}", "response": final})

    def error_in_stream(self, code: str, message: str) -> Any:
        return {"type": "error", "code": code, "message": message, "param": None}


class Chat:
    path = "/v1/chat/completions"
    turns = "messages"

    def model(self, url: str, **given: Any) -> ChatModel:
        return ChatModel(
            given.pop("model", "some-model"), base_url=f"{url}/v1", api_key=KEY, **given
        )

    usage: Any = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }

    def reason(self, calls: Calls, stop: str) -> str:
        return stop or ("tool_calls" if calls else "stop")

    def whole(
        self,
        text: str = "",
        calls: Calls = (),
        refusal: str = "",
        thought: Any = None,
        stop: str = "",
    ) -> Answer:
        message: Any = {"role": "assistant", "content": text or None, "refusal": refusal or None}
        message |= {"reasoning_content": thought["summary"][0]["text"]} if thought else {}
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{n}",
                    "type": "function",
                    "function": {"name": name, "arguments": written},
                }
                for n, (name, written) in enumerate(calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": self.reason(calls, stop)}
        return whole(
            {
                "id": "c",
                "object": "chat.completion",
                "model": "some-model-1",
                "choices": [choice],
                "usage": self.usage,
            }
        )

    def stream(
        self,
        text: str = "",
        calls: Calls = (),
        refusal: str = "",
        thought: Any = None,
        stop: str = "",
    ) -> Answer:
        deltas: list[Any] = [{"role": "assistant", "content": ""}]
        deltas += (
            [{"reasoning_content": piece} for piece in _split(thought["summary"][0]["text"])]
            if thought
            else []
        )
        deltas += [{"content": piece} for piece in _split(text)] + [
            {"refusal": piece} for piece in _split(refusal)
        ]
        for n, (name, _) in enumerate(calls):
            head = {
                "index": n,
                "id": f"call_{n}",
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }
            deltas.append({"tool_calls": [head]})
        pieces = [_split(written) for _, written in calls]
        for round in range(max(map(len, pieces), default=0)):
            for n in reversed(range(len(calls))):
                if round < len(pieces[n]):
                    deltas.append(
                        {"tool_calls": [{"index": n, "function": {"arguments": pieces[n][round]}}]}
                    )
        chunks = [self.chunk({"delta": delta, "finish_reason": None}) for delta in deltas]
        chunks.append(self.chunk({"delta": {}, "finish_reason": self.reason(calls, stop)}))
        return sse(*chunks, {**self.chunk(), "usage": self.usage}, "[DONE]")

    def chunk(self, *choices: Any) -> Any:
        return {
            "id": "c",
            "object": "chat.completion.chunk",
            "model": "some-model-1",
            "choices": [{"index": 0, **each} for each in choices],
        }

    def error_in_stream(self, code: str, message: str) -> Any:
        return {"error": {"code": code, "message": message}}


def _split(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


Dialect = Responses | Chat


@pytest.fixture(params=[Responses(), Chat()], ids=["responses", "chat"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param


def answer(dialect: Dialect, streamed: bool, **given: Any) -> Answer:
    return dialect.stream(**given) if streamed else dialect.whole(**given)


def ask(
    model: OpenAIModel | ChatModel, asked: Request | None = None, *, streamed: bool = False
) -> tuple[Reply, list[Delta]]:
    deltas: list[Delta] = []

    async def run() -> Reply:
        try:
            return await model.ask(asked or request(), deltas.append if streamed else None)
        finally:
            await model.aclose()

    return asyncio.run(run()), deltas


def fault_of(
    model: OpenAIModel | ChatModel, asked: Request | None = None, *, streamed: bool = False
) -> Fault:
    with pytest.raises(Fault) as caught:
        ask(model, asked, streamed=streamed)
    fault = caught.value
    told = "".join(traceback.format_exception(fault)) + repr(vars(fault)) + str(fault)
    assert KEY not in told and "Authorization" not in told
    return fault


def texts(reply: Reply) -> list[Any]:
    """Without what it thought: aimock's gpt-5 always thinks."""
    return [part for part in reply.parts if not isinstance(part, Reasoning)]


def delta_text(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


# ── answers ──────────────────────────────────────────────────────────────────────────────────


def test_a_text_with_its_usage(dialect: Dialect, wire: Wire, streamed: bool) -> None:
    wire.play(answer(dialect, streamed, text="Hello, wörld 🙂."))
    reply, deltas = ask(dialect.model(wire.url), streamed=streamed)
    assert reply.parts == (Text("Hello, wörld 🙂."),)
    assert (reply.calls, reply.stop, reply.usage) == ((), "end", Usage(100, 20, 64, 7))
    assert delta_text(deltas) == ("Hello, wörld 🙂." if streamed else "")
    assert len(deltas) > 1 or not streamed
    assert isinstance(dialect.model(wire.url), Model)
    [asked] = wire.requests
    assert (asked.path, asked.headers["authorization"]) == (dialect.path, f"Bearer {KEY}")
    assert asked.json.get("stream", False) is streamed
    assert [tool.get("function", tool)["name"] for tool in asked.json["tools"]] == ["count", "look"]
    if isinstance(dialect, Responses):
        assert (
            reply.model == "gpt-5-2025-08-07"
            and reply.price is not None
            and reply.price.cost_usd_nano > 0
        )
        assert (asked.json["store"], asked.json["include"]) == (
            False,
            ["reasoning.encrypted_content"],
        )
        assert asked.json["instructions"] == "Be brief."
    else:
        assert (reply.model, reply.price) == ("some-model-1", None)
        assert asked.json["messages"][0] == {"role": "system", "content": "Be brief."}
        assert asked.json.get("stream_options") == ({"include_usage": True} if streamed else None)


def test_parallel_calls(dialect: Dialect, wire: Wire, streamed: bool) -> None:
    written = [
        ("count", '{"q": "a long argument"}'),
        ("look", ""),
        ("count", '{"q": "broken'),
        ("look", '["no object"]'),
    ]
    wire.play(answer(dialect, streamed, text="Wait.", calls=written))
    reply, deltas = ask(dialect.model(wire.url), streamed=streamed)
    assert reply.parts == (Text("Wait."),) and reply.stop == "calls"
    assert [(call.tool, call.arguments, call.ref) for call in reply.calls] == [
        ("count", {"q": "a long argument"}, "call_0"),
        ("look", {}, "call_1"),
        ("count", '{"q": "broken', "call_2"),
        ("look", '["no object"]', "call_3"),
    ]
    if streamed:
        pieces = [delta for delta in deltas if isinstance(delta, ToolDelta)]
        assert [(piece.index, piece.tool) for piece in pieces[:4]] == [
            (0, "count"),
            (1, "look"),
            (2, "count"),
            (3, "look"),
        ]
        assert [
            "".join(piece.arguments for piece in pieces if piece.index == n) for n in range(4)
        ] == [text for _, text in written]


@pytest.mark.parametrize(
    "written", ['{"a":1,"a":2}', '{"a":NaN}', '{"a":"\\ud800"}', "nonsense", "null"]
)
def test_arguments_that_mean_two_things_stay_text(wire: Wire, written: str) -> None:
    wire.play(Chat().whole(calls=[("count", written)]))
    reply, _ = ask(Chat().model(wire.url))
    assert reply.calls[0].arguments == written


def test_a_refusal(dialect: Dialect, wire: Wire, streamed: bool) -> None:
    wire.play(
        answer(dialect, streamed, refusal="I will not."),
        answer(dialect, streamed, text="So", stop="content_filter"),
    )
    model = dialect.model(wire.url)
    reply, deltas = ask(model, streamed=streamed)
    assert (reply.parts, reply.stop) == ((Text("I will not."),), "refusal")
    assert delta_text(deltas) == ("I will not." if streamed else "")
    assert ask(model, streamed=streamed)[0].stop == "refusal"


def test_cut_at_the_limit_in_the_middle_of_a_call(
    dialect: Dialect, wire: Wire, streamed: bool
) -> None:
    wire.play(answer(dialect, streamed, calls=[("count", '{"q": "to b')], stop="length"))
    reply, _ = ask(dialect.model(wire.url), streamed=streamed)
    assert reply.stop == "length"
    assert [(call.tool, call.arguments) for call in reply.calls] == [("count", '{"q": "to b')]


def test_a_reason_to_stop_we_do_not_know(dialect: Dialect, wire: Wire, streamed: bool) -> None:
    wire.play(answer(dialect, streamed, text="x", stop="steered"))
    assert ask(dialect.model(wire.url), streamed=streamed)[0].stop == "steered"


def test_an_empty_reply_is_handed_on(dialect: Dialect, wire: Wire, streamed: bool) -> None:
    wire.play(answer(dialect, streamed))
    reply, _ = ask(dialect.model(wire.url), streamed=streamed)
    assert (reply.parts, reply.calls, reply.stop) == ((), (), "end")


THOUGHT: Any = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "gAAAA+/=é",
    "new_field": [1, {"a": None}],
}


def test_reasoning_goes_back_exactly_as_it_came(wire: Wire, streamed: bool) -> None:
    dialect = Responses()
    wire.play(
        answer(dialect, streamed, thought=THOUGHT, calls=[("count", '{"q":"x"}')]),
        dialect.whole(text="done"),
    )
    model = dialect.model(wire.url)
    reply, deltas = ask(model, streamed=streamed)
    assert reply.parts == (Reasoning("hm", {"provider": "openai", "item": THOUGHT}),)
    assert not streamed or ReasoningDelta("hm") in deltas
    foreign = Reasoning("as others think", {"provider": "anthropic", "item": {"signature": "s"}})
    answered = Answered(
        (*reply.parts, foreign, Text("I look.")), (AnsweredCall("c1", "count", {"q": "x"}),)
    )
    ask(
        model,
        request(
            Said((Text("hello"),)), answered, Returned((CallResult("c1", "count", (Text("1"),)),))
        ),
    )
    assert wire.requests[1].json["input"] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        THOUGHT,
        {"type": "message", "role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c1", "name": "count", "arguments": '{"q":"x"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
    ]


def test_reasoning_between_calls_keeps_its_place(wire: Wire) -> None:
    call: Any = {"type": "function_call", "name": "count", "arguments": "{}"}
    second = {**THOUGHT, "id": "rs_2"}
    items = [
        THOUGHT,
        {**call, "call_id": "a"},
        second,
        {**call, "call_id": "b"},
        {"type": "web_search_call", "id": "ws_1"},
    ]
    wire.play(whole(Responses().body(items)), Responses().whole(text="done"))
    model = Responses().model(wire.url)
    reply, _ = ask(model)
    ask(
        model,
        request(
            Answered(reply.parts, (AnsweredCall("a", "count", {}), AnsweredCall("b", "count", {}))),
            Said((Text("go on"),)),
        ),
    )
    assert [item.get("id") or item.get("call_id") for item in wire.requests[1].json["input"]] == [
        "rs_1",
        "a",
        "rs_2",
        "b",
        "ws_1",
        None,
    ]


def test_a_model_that_does_not_reason_is_not_asked_to(wire: Wire) -> None:
    wire.play(Responses().whole(text="x"))
    answered = Answered((Reasoning("hm", {"provider": "openai", "item": THOUGHT}), Text("a")))
    ask(Responses().model(wire.url, model="gpt-4o"), request(answered, Said((Text("b"),))))
    assert "include" not in wire.requests[0].json
    assert [item["role"] for item in wire.requests[0].json["input"]] == ["assistant", "user"]


def test_a_chat_server_that_thinks_aloud(wire: Wire, streamed: bool) -> None:
    wire.play(answer(Chat(), streamed, thought={"summary": [{"text": "let me see"}]}, text="42"))
    reply, deltas = ask(Chat().model(wire.url), streamed=streamed)
    assert reply.parts == (Reasoning("let me see"), Text("42"))
    assert "".join(delta.thought for delta in deltas if isinstance(delta, ReasoningDelta)) == (
        "let me see" if streamed else ""
    )


def test_half_a_character_does_not_reach_the_log(
    dialect: Dialect, wire: Wire, streamed: bool
) -> None:
    wire.play(answer(dialect, streamed, text="a\ud800b"))
    reply, _ = ask(dialect.model(wire.url), streamed=streamed)
    assert reply.parts == (Text("a\ufffdb"),)


def test_servers_that_give_no_index_or_the_same_to_all(wire: Wire) -> None:
    def call(ref: str, written: str, **index: Any) -> Any:
        return {
            "delta": {
                "tool_calls": [
                    {"id": ref, "function": {"name": "count", "arguments": written}, **index}
                ]
            },
            "finish_reason": None,
        }

    chat = Chat()
    done = chat.chunk({"delta": {}, "finish_reason": "stop"})
    same = [
        chat.chunk(call("a", '{"q":"1"}', index=0)),
        chat.chunk(call("b", '{"q":"2"}', index=0)),
        done,
    ]
    none = [
        chat.chunk(call("a", '{"q":')),
        chat.chunk(call("", '"1"}')),
        chat.chunk(call("b", '{"q":"2"}')),
        done,
    ]
    for chunks in (same, none):
        wire.play(sse(*chunks, "[DONE]"))
        reply, _ = ask(chat.model(wire.url), streamed=True)
        assert [call.arguments for call in reply.calls] == [{"q": "1"}, {"q": "2"}]
        assert reply.stop == "calls"  # though it said stop


# ── what is asked ────────────────────────────────────────────────────────────────────────────

LONG: tuple[Turn, ...] = (
    Said((Text("one"), Data({"b": 1, "a": [True]}))),
    Answered(
        (Reasoning("hm", {"provider": "openai", "item": THOUGHT}), Text("two")),
        (AnsweredCall("c1", "count", {"q": "x"}), AnsweredCall("c2", "look", "{bro")),
    ),
    Returned(
        (
            CallResult("c1", "count", (Text("3"), Image("image/png", Digest("d" * 64)))),
            CallResult("c2", "look", (Text("no JSON"),), True),
        )
    ),
    Said(
        (
            Image("image/png", Digest("d" * 64), "a pixel"),
            File("a.pdf", "application/pdf", Digest("e" * 64)),
        )
    ),
    Answered((Text("four"),)),
    Said((Text("five"),)),
)


def test_the_prefix_is_the_same_bytes_as_turns_are_added(dialect: Dialect, wire: Wire) -> None:
    bodies: list[Any] = []
    for n in range(1, len(LONG) + 1):
        wire.play(dialect.whole(text="x"))
        ask(dialect.model(wire.url), request(*LONG[:n]))
        bodies.append(wire.requests[0].json)
    for shorter, longer in zip(bodies, bodies[1:], strict=False):
        before, after = shorter.pop(dialect.turns), longer[dialect.turns]
        assert json.dumps(after[: len(before)]) == json.dumps(before) and len(after) > len(before)
        assert json.dumps(shorter) == json.dumps(
            {key: value for key, value in longer.items() if key != dialect.turns}
        )


def test_every_part_is_shown_or_named(wire: Wire) -> None:
    url = "data:image/png;base64,iVBORw=="
    wire.play(Responses().whole(text="x"))
    ask(Responses().model(wire.url), request(*LONG))
    items = wire.requests[0].json["input"]
    assert items[0]["content"] == [
        {"type": "input_text", "text": "one"},
        {"type": "input_text", "text": '{"a":[true],"b":1}'},
    ]
    assert items[4]["arguments"] == "{bro"
    assert items[5]["output"] == [
        {"type": "input_text", "text": "3"},
        {"type": "input_image", "detail": "auto", "image_url": url},
    ]
    assert items[6]["output"] == "[the call failed]\nno JSON"
    pdf = {
        "type": "input_file",
        "filename": "a.pdf",
        "file_data": "data:application/pdf;base64,iVBORw==",
    }
    assert items[7]["content"] == [{"type": "input_image", "detail": "auto", "image_url": url}, pdf]

    wire.play(Chat().whole(text="x"))
    ask(Chat().model(wire.url), request(*LONG))
    messages = wire.requests[0].json["messages"][1:]
    shown = {"type": "image_url", "image_url": {"url": url}}
    assert messages[0]["content"] == 'one\n{"a":[true],"b":1}'
    assert messages[1]["content"] == "two"
    assert [call["function"]["arguments"] for call in messages[1]["tool_calls"]] == [
        '{"q":"x"}',
        '{"not_json":"{bro"}',
    ]
    assert [(message["role"], message["content"]) for message in messages[2:4]] == [
        ("tool", "3\n[image 1, shown below]"),
        ("tool", "[the call failed]\nno JSON"),
    ]
    assert messages[4]["content"][1] == shown
    assert messages[5]["content"] == [
        shown,
        {
            "type": "text",
            "text": "[file: a.pdf, left out: application/pdf, 4 bytes, cannot be read here]",
        },
    ]


def test_parameters(wire: Wire) -> None:
    given = {
        "temperature": 0.5,
        "top_p": 0.9,
        "tokens_max": 7,
        "stop": ["."],
        "reasoning_effort": "low",
        "service_tier": "flex",
    }
    wire.play(Responses().whole(text="x"))
    ask(Responses().model(wire.url), request(parameters=given, choice="any"))
    body = wire.requests[0].json
    expected = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 7,
        "reasoning": {"effort": "low"},
        "service_tier": "flex",
    }
    assert {key: body[key] for key in expected} == expected
    assert (
        body["tool_choice"] == "required"
        and "tokens_max" not in body
        and "reasoning_effort" not in body
    )

    wire.play(Chat().whole(text="x"))
    ask(Chat().model(wire.url), request(parameters=given, choice="none"))
    body = wire.requests[0].json
    expected = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "stop": ["."],
        "reasoning_effort": "low",
        "service_tier": "flex",
    }
    assert {key: body[key] for key in expected} == expected
    assert body["tool_choice"] == "none" and "tokens_max" not in body


def test_a_tool_that_has_to_be_called(wire: Wire) -> None:
    name = request().tools[0].name
    wire.play(Responses().whole(text="x"), Chat().whole(text="x"))
    ask(Responses().model(wire.url), request(choice="any", forced=name))
    ask(Chat().model(wire.url), request(choice="any", forced=name))
    responses, chat = [asked.json["tool_choice"] for asked in wire.requests]
    assert responses == {"type": "function", "name": name}
    assert chat == {"type": "function", "function": {"name": name}}


OPEN = {"type": "object", "properties": {"q": {"type": "string"}}}
INNER = {**SCHEMA, "properties": {"q": {"type": "array", "items": OPEN}}}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (SCHEMA, True),
        (OPEN, False),
        ({"type": ["object", "null"]}, False),
        (INNER, False),
        ({**SCHEMA, "oneOf": []}, False),
    ],
)
def test_structured_output(dialect: Dialect, wire: Wire, schema: Any, strict: bool) -> None:
    wire.play(dialect.whole(text='{"q":"x"}'))
    reply, _ = ask(dialect.model(wire.url), request(output=schema, tools=()))
    assert reply.parts == (Text('{"q":"x"}'),)
    body = wire.requests[0].json
    found = {"name": "output", "schema": schema, "strict": strict}
    if isinstance(dialect, Responses):
        assert body["text"]["format"] == {"type": "json_schema", **found}
    else:
        assert body["response_format"] == {"type": "json_schema", "json_schema": found}
    assert "tools" not in body and "tool_choice" not in body


# ── faults ───────────────────────────────────────────────────────────────────────────────────


def error(code: str | None = None, message: str = "no") -> Any:
    return {"error": {"message": message, "type": "some_error", "param": None, "code": code}}


@pytest.mark.parametrize(
    ("status", "code", "kind", "retryable"),
    [
        (400, None, "BadRequest", False),
        (400, "context_length_exceeded", "ContextOverflow", False),
        (401, "invalid_api_key", "AuthFailed", False),
        (403, None, "AuthFailed", False),
        (404, "model_not_found", "NotFound", False),
        (408, None, "Timeout", True),
        (422, None, "BadRequest", False),
        (429, "rate_limit_exceeded", "RateLimited", True),
        (429, "insufficient_quota", "QuotaExceeded", False),
        (500, None, "ServerError", True),
        (502, None, "ServerError", True),
        (503, None, "Overloaded", True),
        (529, None, "Overloaded", True),
    ],
)
def test_statuses(
    dialect: Dialect,
    wire: Wire,
    streamed: bool,
    status: int,
    code: str | None,
    kind: str,
    retryable: bool,
) -> None:
    wire.play(whole(error(code, f"wrong key {KEY}, Bearer {KEY}, sk-ver****6789"), status))
    fault = fault_of(dialect.model(wire.url), streamed=streamed)
    assert (fault.kind, fault.retryable, fault.retry_after_s, fault.partial) == (
        kind,
        retryable,
        None,
        "",
    )
    assert fault.message == f"{status}: wrong key ***, Bearer ***, sk-***"
    assert len(wire.requests) == 1  # the SDK does not try again by itself


def test_a_prompt_too_long_by_other_words(wire: Wire) -> None:
    for status, said in (
        (400, "This model's maximum context length is 10 tokens"),
        (413, "the prompt is too long"),
    ):
        wire.play(whole(error(None, said), status))
        assert fault_of(Chat().model(wire.url)).kind == "ContextOverflow"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "2"}, 0.25),
        ({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-3"}, 0.0),
    ],
)
def test_retry_after(
    dialect: Dialect, wire: Wire, headers: dict[str, str], seconds: float | None
) -> None:
    wire.play(whole(error(), 429, headers))
    assert fault_of(dialect.model(wire.url)).retry_after_s == seconds


def test_retry_after_a_date(dialect: Dialect, wire: Wire, streamed: bool) -> None:
    from datetime import UTC, datetime, timedelta
    from email.utils import format_datetime

    until = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    wire.play(whole(error(), 429, {"retry-after": until}))
    found = fault_of(dialect.model(wire.url), streamed=streamed).retry_after_s
    assert found is not None and 60 <= found <= 90


def test_nobody_listens(dialect: Dialect, streamed: bool) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        fault = fault_of(
            dialect.model(f"http://127.0.0.1:{taken.getsockname()[1]}"), streamed=streamed
        )
    assert (fault.kind, fault.retryable) == ("ConnectionLost", True)


def test_connecting_takes_too_long(dialect: Dialect) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        # nobody accepts: the queue is full, and further ones are left waiting
        others = [socket.socket() for _ in range(4)]
        try:
            for other in others:
                other.setblocking(False)
                other.connect_ex(("127.0.0.1", port))
            fault = fault_of(dialect.model(f"http://127.0.0.1:{port}", timeout_s=0.2))
        finally:
            for other in others:
                other.close()
    assert (fault.kind, fault.retryable) == ("Timeout", True)


def test_it_falls_silent(dialect: Dialect, wire: Wire, streamed: bool) -> None:
    wire.play(answer(dialect, streamed, text="never").hold())
    fault = fault_of(dialect.model(wire.url, timeout_s=0.3), streamed=streamed)
    assert (fault.kind, fault.retryable, fault.partial) == ("Timeout", True, "")
    wire.wait_gone()


def test_it_falls_silent_in_a_stream(dialect: Dialect, wire: Wire) -> None:
    wire.play(dialect.stream(text="abcdef").hold(3))
    fault = fault_of(dialect.model(wire.url, timeout_s=0.3), streamed=True)
    assert (fault.kind, fault.retryable) == ("Timeout", True)
    assert fault.partial == ("abc" if isinstance(dialect, Responses) else "abcdef")
    wire.wait_gone()


def test_a_stream_cut_after_any_number_of_chunks(dialect: Dialect, wire: Wire) -> None:
    good = dialect.stream(text="abcdef", calls=[("count", '{"q":"x"}')])
    # those before the one that says why it stops
    last = len(good.chunks) - (1 if isinstance(dialect, Responses) else 3)
    partials: list[str] = []
    for after in range(last + 1):
        for broken in (
            good.cut(after),
            good.cut(after, reset=True),
            Answer(good.chunks[:after], 200, good.headers),
            Answer((*good.chunks[:after], b'data: {"type": "resp'), 200, good.headers),
        ):
            wire.play(broken)
            fault = fault_of(dialect.model(wire.url), streamed=True)
            # A reset may overtake the headers that were sent before it.
            assert fault.kind == "StreamCut" or (
                broken.then == "reset" and fault.kind == "ConnectionLost"
            )
            assert fault.retryable and (
                broken.then == "reset" or "abcdef".startswith(fault.partial)
            )
            partials += [fault.partial] if broken.then == "close" else []
    assert partials == sorted(partials) and partials[0] == "" and partials[-1] == "abcdef"


def test_it_hangs_up_before_a_word(dialect: Dialect, wire: Wire, streamed: bool) -> None:
    for broken in (
        answer(dialect, streamed, text="x").cut(),
        answer(dialect, streamed, text="x").cut(reset=True),
    ):
        wire.play(broken)
        fault = fault_of(dialect.model(wire.url), streamed=streamed)
        assert (fault.kind, fault.retryable) == ("ConnectionLost", True)
        assert len(wire.requests) == 1


def test_an_answer_cut_in_its_middle(dialect: Dialect, wire: Wire) -> None:
    good = dialect.whole(text="x")
    wire.play(Answer((good.chunks[0][:50],), 200, good.headers).cut(1))
    assert fault_of(dialect.model(wire.url)).kind == "ConnectionLost"
    wire.play(Answer((good.chunks[0][:50],), 200, good.headers))
    assert fault_of(dialect.model(wire.url)).kind == "MalformedReply"


def test_an_error_cut_in_its_middle(dialect: Dialect, wire: Wire, streamed: bool) -> None:
    wire.play(Answer((b'{"error": {"mess',), 500, {"content-type": "application/json"}).cut(1))
    fault = fault_of(dialect.model(wire.url), streamed=streamed)
    assert (fault.kind, fault.retryable) == ("ConnectionLost", True)


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        ("server_error", "StreamCut", True),
        ("whatever", "StreamCut", True),
        ("rate_limit_exceeded", "RateLimited", True),
        ("context_length_exceeded", "ContextOverflow", False),
        ("insufficient_quota", "QuotaExceeded", False),
    ],
)
def test_an_error_in_the_middle(
    dialect: Dialect, wire: Wire, code: str, kind: str, retryable: bool
) -> None:
    good = dialect.stream(text="abcdef")
    wire.play(sse(*good.chunks[:3], dialect.error_in_stream(code, f"sorry, {KEY}")))
    fault = fault_of(dialect.model(wire.url), streamed=True)
    assert (fault.kind, fault.retryable, fault.message) == (kind, retryable, f"{code}: sorry, ***")
    assert fault.partial and "abcdef".startswith(fault.partial)


def test_a_response_that_failed(wire: Wire, streamed: bool) -> None:
    failed = {
        **Responses().body([]),
        "status": "failed",
        "error": {"code": "server_error", "message": "oh"},
    }
    wire.play(sse({"type": "response.failed", "response": failed}) if streamed else whole(failed))
    fault = fault_of(Responses().model(wire.url), streamed=streamed)
    assert (fault.kind, fault.retryable) == ("StreamCut" if streamed else "ServerError", True)
    assert fault.usage == Usage(100, 20, 64, 7) and fault.price is not None  # it is paid for


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b'"x"',
        b"{}",
        b'{"choices": []}',
        b'{"output": 1}',
        b'{"choices": [1], "output": [1]}',
        b"\xff",
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/html"])
def test_an_answer_that_is_none(dialect: Dialect, wire: Wire, body: bytes, kind: str) -> None:
    wire.play(whole(body, 200, {"content-type": kind}))
    fault = fault_of(dialect.model(wire.url))
    assert (fault.kind, fault.retryable) == ("MalformedReply", True)


def test_a_stream_that_was_not_asked_for_is_named_and_not_asked_for_again(
    dialect: Dialect, wire: Wire
) -> None:
    wire.play(dialect.stream(text="abcdef"))
    fault = fault_of(dialect.model(wire.url))
    assert (fault.kind, fault.retryable) == ("MalformedReply", False)
    assert "an event stream came, though none was asked for" in str(fault)


@pytest.mark.parametrize("data", ["nonsense", "[]", "1"])
def test_an_event_that_is_none(dialect: Dialect, wire: Wire, data: str) -> None:
    good = dialect.stream(text="abcdef")
    wire.play(sse(*good.chunks[:4], data))
    fault = fault_of(dialect.model(wire.url), streamed=True)
    assert (fault.kind, fault.retryable, fault.partial) == ("MalformedReply", True, "abcdef")


def test_an_error_inside_a_200(wire: Wire) -> None:
    wire.play(whole(error("rate_limit_exceeded", "slow down")))
    assert fault_of(Chat().model(wire.url)).kind == "RateLimited"


def test_a_gateway_that_puts_the_status_into_the_error(wire: Wire) -> None:
    for code, kind in ((429, "RateLimited"), (402, "BadRequest"), (502, "ServerError")):
        wire.play(whole({"error": {"code": code, "message": "no"}}))
        assert fault_of(Chat().model(wire.url)).kind == kind


def test_numbers_no_log_can_keep(wire: Wire) -> None:
    for odd in (b"NaN", b"1" * 30, b"[" * 80 + b"]" * 80):
        body = (
            json.dumps(Responses().body([{"type": "reasoning", "x": "ODD"}]))
            .encode()
            .replace(b'"ODD"', odd)
        )
        wire.play(whole(body))
        assert fault_of(Responses().model(wire.url)).kind == "MalformedReply"


def test_a_request_that_cannot_be_written_down(
    dialect: Dialect, wire: Wire, streamed: bool
) -> None:
    fault = fault_of(
        dialect.model(wire.url), request(parameters={"x": object()}), streamed=streamed
    )
    assert (fault.kind, fault.retryable, wire.requests) == ("ClientFailed", False, [])


def test_a_server_with_its_own_idea_of_a_message(wire: Wire) -> None:
    call: Any = {"id": 7, "function": {"name": "count", "arguments": {"q": "x"}}}
    message: Any = {
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "reasoning": "hm",
        "tool_calls": [call],
    }
    wire.play(whole({"choices": [{"message": message}]}))
    reply, _ = ask(Chat().model(wire.url))
    assert (reply.parts, reply.calls[0].arguments, reply.usage) == (
        (Reasoning("hm"), Text("ab")),
        {"q": "x"},
        Usage(),
    )


ODDITIES: list[Any] = [
    None,
    0,
    -1,
    True,
    1.5,
    "",
    "x",
    "\ud800",
    [],
    [None],
    {},
    {"a": []},
    [[1]],
    10**40,
]


def _bent(value: Any, chance: Random) -> Any:
    """The same JSON, with something somewhere that does not belong there."""
    keys: list[Any] = (
        list(value)  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, dict)
        else list(range(len(value)))  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(value, list)
        else []
    )
    if not keys or chance.random() < 0.2:
        return chance.choice(ODDITIES)
    bent: Any = value.copy()  # pyright: ignore
    key = chance.choice(keys)
    bent[key] = _bent(bent[key], chance)
    return bent


def test_whatever_comes_it_is_a_reply_or_a_fault(
    dialect: Dialect, wire: Wire, streamed: bool
) -> None:
    chance = Random(seed())
    good = answer(dialect, streamed, text="abc", calls=[("count", '{"q":"x"}')], thought=THOUGHT)
    model = dialect.model(wire.url)

    def bend() -> Answer:
        at = chance.randrange(len(good.chunks))
        head, _, data = (
            good.chunks[at].rpartition(b"data: ") if streamed else (b"", b"", good.chunks[at])
        )
        if data.startswith(b"[DONE]"):
            return good
        bent = json.dumps(_bent(json.loads(data), chance)).encode()
        piece = head + b"data: " + bent + b"\n\n" if streamed else bent
        return Answer((*good.chunks[:at], piece, *good.chunks[at + 1 :]), 200, good.headers)

    async def run() -> None:
        for _ in range(dose("BENT", 60, 1000)):
            wire.play(bend())
            try:
                reply = await model.ask(request(), (lambda _: None) if streamed else None)
            except Fault as fault:
                assert fault.kind in (
                    "MalformedReply",
                    "StreamCut",
                    "ServerError",
                    "RateLimited",
                ), fault
            else:
                assert (
                    msgspec.json.decode(msgspec.json.encode(reply.parts), type=Parts) == reply.parts
                )
                assert all(isinstance(each, int) for each in msgspec.structs.astuple(reply.usage))
        await model.aclose()

    asyncio.run(run())


# ── life ─────────────────────────────────────────────────────────────────────────────────────


def test_cancelling_closes_the_socket(dialect: Dialect, wire: Wire, streamed: bool) -> None:
    wire.play(answer(dialect, streamed, text="abcdef").hold(3 if streamed else -1))
    model = dialect.model(wire.url)

    async def run() -> None:
        task = asyncio.ensure_future(model.ask(request(), (lambda _: None) if streamed else None))
        await asyncio.to_thread(wire.wait_held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wire.wait_gone)
        await model.aclose()

    asyncio.run(run())


def test_a_listener_that_fails_is_not_a_fault(dialect: Dialect, wire: Wire) -> None:
    wire.play(dialect.stream(text="abcdef").hold(4))

    def fail(_: Delta) -> None:
        raise ValueError("mine")

    async def run() -> None:
        model = dialect.model(wire.url)
        with pytest.raises(ValueError, match="mine"):
            await model.ask(request(), fail)
        await asyncio.to_thread(wire.wait_gone)
        await model.aclose()

    asyncio.run(run())


def test_one_model_on_several_loops(dialect: Dialect, wire: Wire, streamed: bool) -> None:
    wire.play(*[answer(dialect, streamed, text="x")] * 3)
    model = dialect.model(wire.url)
    for _ in range(3):
        assert ask(model, streamed=streamed)[0].parts == (Text("x"),)


def test_a_loop_that_is_gone_is_forgotten(wire: Wire) -> None:
    good = Chat().whole(text="x")
    parting = Answer(good.chunks, 200, {**good.headers, "connection": "close"})
    wire.play(parting, parting)
    model = Chat().model(wire.url)
    for _ in range(2):
        assert asyncio.run(model.ask(request(), None)).parts == (Text("x"),)  # nobody closes it
    assert len(wire.requests) == 2


def test_many_at_once_on_one_loop(dialect: Dialect, wire: Wire, streamed: bool) -> None:
    wire.play(*[answer(dialect, streamed, text="x")] * 8)
    model = dialect.model(wire.url)

    async def run() -> list[Reply]:
        replies = await asyncio.gather(
            *[model.ask(request(), (lambda _: None) if streamed else None) for _ in range(8)]
        )
        await model.aclose()
        return replies

    assert [reply.parts for reply in asyncio.run(run())] == [(Text("x"),)] * 8


def test_the_first_model_of_a_server_is_asked_for_once(wire: Wire) -> None:
    wire.play(
        whole({"data": [{"id": "tiny"}, {"id": "large"}]}),
        Chat().whole(text="x"),
        Chat().whole(text="y"),
    )
    model = ChatModel(None, base_url=f"{wire.url}/v1")
    ask(model)
    ask(model)
    assert [asked.path for asked in wire.requests] == [
        "/v1/models",
        "/v1/chat/completions",
        "/v1/chat/completions",
    ]
    assert wire.requests[1].json["model"] == "tiny"
    wire.play(whole({"data": []}))
    assert fault_of(ChatModel(None, base_url=f"{wire.url}/v1")).kind == "NotFound"


def test_a_stranger_is_not_shown_our_key(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, KEY)
    wire.play(Chat().whole(text="x"))
    ask(ChatModel("m", base_url=f"{wire.url}/v1"))
    assert KEY not in repr(wire.requests[0])


def test_names_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(MissingKey, match="OPENAI_API_KEY") as caught:
        OpenAIModel("gpt-5")
    assert caught.value.what == "openai:gpt-5"
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = OpenAIModel("gpt-5")
    assert model.name == "openai:gpt-5" and KEY not in repr(model)
    assert ChatModel("m", base_url="http://me:pass@host/v1").name == "http://host/v1#m"
    assert ChatModel(None, base_url="http://host/v1").name == "http://host/v1"
    assert ChatModel("m", base_url="http://host/v1", name="mine").name == "mine"


def test_the_address_may_come_from_the_environment(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{wire.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    wire.play(Responses().whole(text="x"))
    assert ask(OpenAIModel("gpt-5"))[0].parts == (Text("x"),)


def test_a_missing_sdk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtra, match=r"plait\[openai\]"):
        OpenAIModel("gpt-5", api_key=KEY)
    with pytest.raises(MissingExtra, match=r"plait\[openai\]"):
        ChatModel("m", base_url="http://host/v1")


# ── against somebody else's idea of the provider ─────────────────────────────────────────────


def test_aimock_text_and_tools(dialect: Dialect, aimock: AIMock, streamed: bool) -> None:
    calls = [
        {"id": "call_a", "name": "count", "arguments": '{"q":"to be or not to be"}'},
        {"id": "call_b", "name": "look", "arguments": "{}"},
    ]
    aimock.play(
        {"match": {"hasToolResult": True}, "response": {"content": "It is six."}},
        {
            "match": {"userMessage": "count"},
            "response": {"content": "Let me count.", "toolCalls": calls},
        },
    )
    model = dialect.model(aimock.url)
    said = Said((Text("count the words"),))
    reply, _ = ask(model, request(said), streamed=streamed)
    assert (texts(reply), reply.stop) == ([Text("Let me count.")], "calls")
    assert [(call.tool, call.arguments) for call in reply.calls] == [
        ("count", {"q": "to be or not to be"}),
        ("look", {}),
    ]
    answered = Answered(
        reply.parts,
        (AnsweredCall("c1", "count", {"q": "to be or not to be"}), AnsweredCall("c2", "look", {})),
    )
    results = Returned(
        (CallResult("c1", "count", (Text("6"),)), CallResult("c2", "look", (Text("nothing"),)))
    )
    reply, deltas = ask(model, request(said, answered, results), streamed=streamed)
    assert (texts(reply), reply.stop) == ([Text("It is six.")], "end")
    assert delta_text(deltas) == ("It is six." if streamed else "")
    assert len(aimock.requests(dialect.path)) == 2


def test_aimock_usage(dialect: Dialect, aimock: AIMock, streamed: bool) -> None:
    usage = (
        {"prompt_tokens": 9, "completion_tokens": 4}
        if isinstance(dialect, Chat)
        else {"input_tokens": 9, "output_tokens": 4}
    )
    aimock.play({"match": {"userMessage": "hello"}, "response": {"content": "Hi", "usage": usage}})
    reply, _ = ask(dialect.model(aimock.url), streamed=streamed)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (9, 4)


def test_aimock_reasoning(aimock: AIMock, streamed: bool) -> None:
    aimock.play(
        {
            "match": {"userMessage": "hello"},
            "response": {"content": "Hi", "reasoning": "They greet me."},
        }
    )
    reply, deltas = ask(Responses().model(aimock.url), streamed=streamed)
    assert reply.parts[-1] == Text("Hi")
    assert isinstance(reply.parts[0], Reasoning) and reply.parts[0].text == "They greet me."
    assert "".join(delta.thought for delta in deltas if isinstance(delta, ReasoningDelta)) == (
        "They greet me." if streamed else ""
    )


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "RateLimited"), (500, "ServerError"), (503, "Overloaded"), (529, "Overloaded")],
)
def test_aimock_errors(
    dialect: Dialect, aimock: AIMock, streamed: bool, status: int, kind: str
) -> None:
    aimock.play(
        {
            "match": {"userMessage": "hello"},
            "response": {"error": {"message": "no"}, "status": status, "retryAfter": 7},
        }
    )
    fault = fault_of(dialect.model(aimock.url), streamed=streamed)
    assert (fault.kind, fault.retryable) == (kind, True)
    assert fault.retry_after_s == (7.0 if status == 429 else None)
    assert len(aimock.requests(dialect.path)) == 1


def test_aimock_cut_stream(dialect: Dialect, aimock: AIMock) -> None:
    long = "word " * 60
    aimock.play(
        {
            "match": {"userMessage": "hello"},
            "response": {"content": long},
            "truncateAfterChunks": 6,
            "latency": 20,
        }
    )
    fault = fault_of(dialect.model(aimock.url), streamed=True)
    assert (fault.kind, fault.retryable) == ("StreamCut", True)
    assert long.startswith(fault.partial) and (fault.partial or isinstance(dialect, Responses))


def test_aimock_length(dialect: Dialect, aimock: AIMock, streamed: bool) -> None:
    aimock.play(
        {
            "match": {"userMessage": "hello"},
            "response": {"content": "So long", "finishReason": "length"},
        }
    )
    reply, _ = ask(dialect.model(aimock.url), streamed=streamed)
    # aimock's Responses does not say why it is incomplete, so neither do we.
    assert (texts(reply), reply.stop) == (
        [Text("So long")],
        "length" if isinstance(dialect, Chat) else "incomplete",
    )
