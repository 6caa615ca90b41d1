"""Whole turns over real HTTP: agent, runtime, adapter and SDK, blocking and streaming, and what is
on record afterwards.

aimock plays whatever it can; the wire plays what needs its exact bytes: broken arguments,
signatures, sockets that close.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from plait import Agent, Session, open_store, tool
from plait.calls.model_call import Retry
from plait.errors import ModelFailed
from plait.event import kinds as k
from plait.event.kinds import Usage
from plait.model import Delta, Model, ReasoningDelta, TextDelta, ToolDelta
from plait.model.anthropic import AnthropicModel
from plait.model.openai import ChatModel, OpenAIModel
from plait.runtime import loop
from plait.session.ports import store_at
from plait.session.value import open_run_of
from tests.providers.aimock import AIMock
from tests.providers.test_anthropic_model import THOUGHT as ANTHROPIC_THOUGHT
from tests.providers.test_anthropic_model import (
    begin,
    block_events,
    cut_up,
    end,
    message,
    piece,
    start,
    unmarked,
    use,
)
from tests.providers.test_anthropic_model import text as text_block
from tests.providers.test_openai_model import THOUGHT as OPENAI_THOUGHT
from tests.providers.test_openai_model import Calls, Chat, Responses
from tests.providers.wire import Answer, Wire, sse, whole
from tests.support import QUICK, RAN, bodies, kinds

KEY = "sk-told-to-nobody-0123456789"


# ── the providers ────────────────────────────────────────────────────────────────────────────


class Messages:
    """Anthropic, as the wire plays it.

    Calls are a name and what the model wrote, which may be no JSON.
    """

    path = "/v1/messages"
    turns = "messages"

    def blocks(self, text: str, calls: Calls, refusal: str, thought: Any) -> list[Any]:
        said = [text_block(text or refusal)] if text or refusal else []
        return [
            *([thought] if thought else []),
            *said,
            *[use(f"toolu_{n}", name, _read(text)) for n, (name, text) in enumerate(calls)],
        ]

    def reason(self, calls: Calls, refusal: str, stop: str) -> str:
        usual = "refusal" if refusal else "tool_use" if calls else "end_turn"
        return {"": usual, "length": "max_tokens"}.get(stop, stop)

    def whole(
        self,
        text: str = "",
        calls: Calls = (),
        refusal: str = "",
        thought: Any = None,
        stop: str = "",
    ) -> Answer:
        return whole(
            message(
                *self.blocks(text, calls, refusal, thought), stop=self.reason(calls, refusal, stop)
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
        told: list[Any] = [start()]
        written = iter(calls)
        for index, block in enumerate(self.blocks(text, calls, refusal, thought)):
            if block["type"] == "tool_use":
                pieces = [
                    piece(index, "input_json_delta", "partial_json", said)
                    for said in cut_up(next(written)[1])
                ]
                told += [
                    begin(index, {**block, "input": {}}),
                    *pieces,
                    {"type": "content_block_stop", "index": index},
                ]
            else:
                told += block_events(index, block)
        return sse(*told, *end(self.reason(calls, refusal, stop)))


def _read(written: str) -> Any:
    try:
        return json.loads(written or "{}")
    except ValueError:
        return written


class Provider:
    """One of three: how it is asked, what it answers, and the models that were made of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dialect = {"responses": Responses(), "chat": Chat(), "anthropic": Messages()}[name]
        self.path, self.turns = self.dialect.path, self.dialect.turns
        self.thought: Any = ANTHROPIC_THOUGHT if name == "anthropic" else OPENAI_THOUGHT
        self.made: list[OpenAIModel | ChatModel | AnthropicModel] = []

    def model(self, url: str, model: str | None = None, **given: Any) -> Model:
        if self.name == "responses":
            self.made.append(
                OpenAIModel(model or "gpt-5", api_key=KEY, base_url=f"{url}/v1", **given)
            )
        elif self.name == "chat":
            self.made.append(
                ChatModel(model or "some-model", api_key=KEY, base_url=f"{url}/v1", **given)
            )
        else:
            self.made.append(
                AnthropicModel(model or "claude-sonnet-5-5", api_key=KEY, base_url=url, **given)
            )
        return self.made[-1]

    def close(self) -> None:
        """On the loop that models run on, and on the one above it, for agents inside of async
        tools.
        """

        async def above() -> None:
            await asyncio.wrap_future(loop.start(self._close()))

        loop.wait(loop.start(above()))
        loop.wait(loop.start(self._close()))

    async def _close(self) -> None:
        for model in self.made:
            await model.aclose()

    def says(self, streamed: bool, text: str = "", *calls: tuple[str, str], **given: Any) -> Answer:
        return (self.dialect.stream if streamed else self.dialect.whole)(text, calls, **given)

    def refuses(self, status: int, said: str, headers: dict[str, str] | None = None) -> Answer:
        return whole(
            {"type": "error", "error": {"message": said, "type": "some_error", "code": None}},
            status,
            headers,
        )


@pytest.fixture(params=["responses", "chat", "anthropic"])
def provider(request: pytest.FixtureRequest) -> Iterator[Provider]:
    made = Provider(request.param)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    address = tmp_path / ".plait"
    monkeypatch.setenv("PLAIT_STORE", str(address))
    yield address
    open_store(str(address)).close()


def script(aimock: AIMock, *answers: dict[str, Any]) -> None:
    """Serve these in this order. An answer is a response, or a fixture that has one."""
    fixtures = [answer if "response" in answer else {"response": answer} for answer in answers]
    aimock.play(
        *[{**fixture, "match": {"sequenceIndex": place}} for place, fixture in enumerate(fixtures)]
    )


def call(name: str, **arguments: Any) -> dict[str, str]:
    return {"name": name, "arguments": json.dumps(arguments)}


def error(status: int, said: str = "no", **more: Any) -> dict[str, Any]:
    return {"error": {"message": said, "type": "some_error"}, "status": status, **more}


# ── the agent ────────────────────────────────────────────────────────────────────────────────


@tool(effect="pure")
def word_count(text: str) -> int:
    """Count the words of a text."""
    RAN.append(text)
    return len(text.split())


@tool(effect="pure")
async def now() -> str:
    """The time."""
    RAN.append("now")
    return "noon"


@tool(effect="pure")
def divide(a: int, b: int) -> float:
    """Divide."""
    RAN.append(f"{a}/{b}")
    return a / b


def scribe(model: Model, **given: Any) -> Agent:
    fields: dict[str, Any] = {"tools": [word_count, now, divide], "retry": QUICK, "name": "scribe"}
    return Agent("Use your tools.", model=model, **{**fields, **given})


def take(agent: Agent, session: Session, streamed: bool) -> tuple[Session, list[Delta]]:
    """One turn, blocking or streaming."""
    if not streamed:
        return agent(session), []
    *deltas, last = agent.stream(session)
    assert isinstance(last, Session) and not any(isinstance(delta, Session) for delta in deltas)
    return last, cast("list[Delta]", deltas)


def turn(agent: Agent, session: Session | str, streamed: bool) -> Session:
    ended, deltas = take(agent, Session(session) if isinstance(session, str) else session, streamed)
    assert (
        open_run_of(ended) is None and ended.run is None and ended.events[-1].kind == "RunFinished"
    )
    if streamed and ended.text:
        assert (
            "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)).endswith(
                ended.text
            )
            or ended.result is not None
        )
    return ended


def failed(agent: Agent, session: Session | str, streamed: bool) -> ModelFailed:
    with pytest.raises(ModelFailed) as caught:
        take(agent, Session(session) if isinstance(session, str) else session, streamed)
    ended = caught.value.session
    assert open_run_of(ended) is None and ended.run is None and ended == ended.reload()
    assert kinds(ended)[-3:] == ["ModelFailed", "CallFinished", "RunFailed"]
    assert bodies(ended, k.RunFailed)[0].failure.kind == "ModelFailed"
    return caught.value


def attempts(session: Session) -> list[int]:
    return [body.attempt for body in bodies(session, k.ModelAsked)]


def fault(session: Session) -> k.ModelFailed:
    [body] = bodies(session, k.ModelFailed)
    return body


# ── what was asked: the three shapes of a request ────────────────────────────────────────────


def bodies_at(server: AIMock | Wire, provider: Provider) -> list[Any]:
    """The bodies of all requests; aimock tells them in the shape of Chat Completions, whatever they
    were.
    """
    if isinstance(server, AIMock):
        return [entry["body"] for entry in server.requests(provider.path)]
    assert {asked.path for asked in server.requests} == {provider.path}
    return [asked.json for asked in server.requests]


def items_of(body: Any) -> list[Any]:
    return body["input"] if "input" in body else body["messages"]


def blocks_of(item: Any) -> list[Any]:
    content: Any = item.get("content")
    return cast("list[Any]", content) if isinstance(content, list) else []


def calls_in(body: Any) -> list[tuple[str, str, Any]]:
    """Id, tool and arguments of every call that a request tells of."""
    found: list[tuple[str, str, Any]] = []
    for item in items_of(body):
        if item.get("type") == "function_call":
            found.append((item["call_id"], item["name"], _read(item["arguments"])))
        found += [
            (each["id"], each["function"]["name"], _read(each["function"]["arguments"]))
            for each in item.get("tool_calls") or ()
        ]
        found += [
            (block["id"], block["name"], block["input"])
            for block in blocks_of(item)
            if block["type"] == "tool_use"
        ]
    return found


def results_in(body: Any) -> list[tuple[str, str]]:
    """Id and text of every result that a request tells of."""
    found: list[tuple[str, str]] = []
    for item in items_of(body):
        if item.get("type") == "function_call_output":
            found.append((item["call_id"], _words(item["output"])))
        if item.get("role") == "tool":
            found.append((item["tool_call_id"], _words(item["content"])))
        found += [
            (block["tool_use_id"], _words(block["content"]))
            for block in blocks_of(item)
            if block["type"] == "tool_result"
        ]
    return found


def _words(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


def thoughts_in(body: Any, provider: Provider) -> list[Any]:
    """Those that are there exactly as they came."""
    return [
        item
        for each in items_of(body)
        for item in [each, *blocks_of(each)]
        if item == provider.thought
    ]


def check_pairs(body: Any) -> None:
    """Every call has its one result, under an id of ours."""
    called, answered = [id for id, _, _ in calls_in(body)], [id for id, _ in results_in(body)]
    assert sorted(called) == sorted(answered) and len(set(called)) == len(called)
    assert all(id.startswith("c") and len(id) == 24 and id.isalnum() for id in called)


def check_prefixes(requests: Sequence[Any], provider: Provider) -> None:
    """Whatever was sent is sent again, byte for byte, with more behind it.

    Where a cache is to be found is no part of it.
    """
    for shorter, longer in zip(map(unmarked, requests), map(unmarked, requests[1:]), strict=False):
        before, after = shorter.pop(provider.turns), longer.pop(provider.turns)
        assert json.dumps(after[: len(before)]) == json.dumps(before) and len(after) > len(before)
        assert json.dumps(shorter) == json.dumps(longer)


# ── answers ──────────────────────────────────────────────────────────────────────────────────


def test_a_text(provider: Provider, aimock: AIMock, streamed: bool) -> None:
    script(aimock, {"content": "Good day, whoever you are."})
    session, deltas = take(scribe(provider.model(aimock.url)), Session("hello"), streamed)
    assert session.text == "Good day, whoever you are."
    assert kinds(session)[2:] == [
        "RunStarted",
        "CallStarted",
        "ModelAsked",
        "ModelReplied",
        "CallFinished",
        "RunFinished",
    ]
    [reply] = bodies(session, k.ModelReplied)
    assert (reply.stop, reply.calls, attempts(session)) == ("end", (), [1])
    assert (
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        == session.text * streamed
    )
    assert all(delta.agent == "scribe" for delta in deltas)
    [asked] = bodies_at(aimock, provider)
    assert [each["content"] for each in asked["messages"] if each["role"] == "user"] == ["hello"]
    assert bool(asked.get("stream")) is streamed


USED = {
    "responses": Usage(100, 20, 64, 7),
    "chat": Usage(100, 20, 64, 7),
    "anthropic": Usage(3210, 40, 3000, 0),
}


def test_what_it_used_and_cost(provider: Provider, wire: Wire, streamed: bool) -> None:
    wire.play(
        provider.says(streamed, "", ("word_count", '{"text": "a b"}')),
        provider.says(streamed, "Two."),
    )
    session = turn(scribe(provider.model(wire.url)), "how many?", streamed)
    one, two = bodies(session, k.ModelReplied)
    assert one.usage == two.usage == USED[provider.name]
    assert session.budget.usage == msgspec.structs.replace(
        one.usage, **{field: 2 * getattr(one.usage, field) for field in one.usage.__struct_fields__}
    )
    if provider.name == "chat":  # somebody's own server: what it takes is between them
        assert (
            one.price is None
            and str(session.budget.cost) == "unknown"
            and session.budget.cost.unpriced == 2
        )
        return
    assert one.price is not None and two.price == one.price
    assert one.price.source.startswith("genai-prices ") and one.price.cost_usd_nano > 0
    assert (
        session.budget.cost.dollars == 2 * one.price.cost_usd_nano / 1e9
        and "unknown" not in str(session.budget.cost)
    )


def test_a_price_that_nobody_knows_is_not_zero(
    provider: Provider, aimock: AIMock, streamed: bool
) -> None:
    script(
        aimock,
        {
            "content": "Fine.",
            "usage": {
                "input_tokens": 9,
                "output_tokens": 4,
                "prompt_tokens": 9,
                "completion_tokens": 4,
            },
        },
    )
    session = turn(scribe(provider.model(aimock.url, "nobody-knows-1")), "hello", streamed)
    [reply] = bodies(session, k.ModelReplied)
    assert reply.price is None and reply.model == "nobody-knows-1"
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (9, 4)
    assert (
        str(session.budget.cost) == "unknown"
        and session.budget.cost.dollars is None
        and session.budget.cost.unpriced == 1
    )


def test_a_refusal(provider: Provider, wire: Wire, streamed: bool) -> None:
    wire.play(provider.says(streamed, refusal="I will not."))
    session = turn(scribe(provider.model(wire.url)), "do it", streamed)
    assert session.text == "I will not." and bodies(session, k.ModelReplied)[0].stop == "refusal"
    assert len(wire.requests) == 1


def test_an_answer_cut_at_its_length(provider: Provider, wire: Wire, streamed: bool) -> None:
    wire.play(provider.says(streamed, "So lo", stop="length"))
    session = turn(scribe(provider.model(wire.url)), "tell me", streamed)
    assert session.text == "So lo"
    assert bodies(session, k.ModelReplied)[0].stop == "length" and len(wire.requests) == 1


def test_an_empty_reply_is_asked_for_again(provider: Provider, wire: Wire, streamed: bool) -> None:
    wire.play(
        provider.says(streamed),
        provider.says(streamed, thought=provider.thought),
        provider.says(streamed, "Now."),
    )
    session = turn(scribe(provider.model(wire.url)), "hello", streamed)
    assert session.text == "Now." and attempts(session) == [1, 2, 3]
    for body in bodies(session, k.ModelFailed):
        assert (body.failure.kind, body.failure.retryable, body.usage) == (
            "EmptyReply",
            True,
            USED[provider.name],
        )
    assert wire.requests[0].json == wire.requests[1].json == wire.requests[2].json
    assert (
        session.budget.usage.output_tokens == 3 * USED[provider.name].output_tokens
    )  # they are paid for


@pytest.mark.parametrize(("stop", "why"), [("length", "raise tokens_max"), ("refusal", "declined")])
def test_nothing_said_for_a_reason_is_not_asked_for_again(
    provider: Provider, wire: Wire, streamed: bool, stop: str, why: str
) -> None:
    reason = "content_filter" if stop == "refusal" and provider.name != "anthropic" else stop
    wire.play(provider.says(streamed, thought=provider.thought, stop=reason))
    caught = failed(scribe(provider.model(wire.url)), "hello", streamed)
    assert (
        (caught.kind, caught.attempts) == ("EmptyReply", 1)
        and why in caught.message
        and len(wire.requests) == 1
    )
    assert fault(caught.session).usage == USED[provider.name]


@dataclass
class Verdict:
    passed: bool
    score: int
    notes: list[str]


def test_an_answer_with_a_type(provider: Provider, aimock: AIMock, streamed: bool) -> None:
    wrong, right = '{"passed": "maybe"}', '{"passed": true, "score": 3, "notes": ["ü"]}'
    script(
        aimock,
        {"toolCalls": [call("word_count", text="a b c")]},
        {"content": wrong},
        {"content": right},
    )
    session = turn(scribe(provider.model(aimock.url)).returns(Verdict), "judge it", streamed)
    assert session.result == {"passed": True, "score": 3, "notes": ["ü"]}
    assert session.result_as(Verdict) == Verdict(True, 3, ["ü"])
    first, second, third = bodies_at(aimock, provider)
    told = third["messages"][-1]
    assert told["role"] == "user" and "does not have the shape that was asked for" in _words(
        told["content"]
    )
    assert len(first["messages"]) < len(second["messages"]) < len(third["messages"])


def test_the_type_is_asked_for_as_a_schema(provider: Provider, wire: Wire, streamed: bool) -> None:
    wire.play(provider.says(streamed, '{"answer": [1, 2]}'))
    session = turn(scribe(provider.model(wire.url)).returns(list[int]), "which?", streamed)
    assert session.result == [1, 2] and session.result_as(list[int]) == [1, 2]
    body = wire.requests[0].json
    asked = (
        body.get("text", {}).get("format")
        or body.get("response_format", {}).get("json_schema")
        or body["output_config"]["format"]
    )
    assert asked["schema"]["properties"]["answer"]["items"] == {"type": "integer"}


# ── tools ────────────────────────────────────────────────────────────────────────────────────


def test_a_tool_and_back(provider: Provider, wire: Wire, streamed: bool) -> None:
    wire.play(
        provider.says(streamed, "I count.", ("word_count", '{"text": "to be or not"}')),
        provider.says(streamed, "", ("now", "{}")),
        provider.says(streamed, "Four, at noon."),
        provider.says(streamed, "You are welcome."),
    )
    session, deltas = take(scribe(provider.model(wire.url)), Session("How many?"), streamed)
    assert session.text == "Four, at noon." and RAN == ["to be or not", "now"]
    assert kinds(session)[2:] == [
        *("RunStarted", "CallStarted"),
        *("ModelAsked", "ModelReplied", "ToolRequested", "ToolReturned") * 2,
        *("ModelAsked", "ModelReplied", "CallFinished", "RunFinished"),
    ]
    counted, told = (
        bodies(session, k.ModelReplied)[0].calls[0],
        bodies(session, k.ModelReplied)[1].calls[0],
    )
    assert (
        counted.call != counted.ref != ""
        and counted.arguments == {"text": "to be or not"}
        and told.arguments == {}
    )
    _, second, third = bodies_at(wire, provider)
    assert calls_in(second) == [
        (counted.call, "word_count", {"text": "to be or not"})
    ] and results_in(second) == [(counted.call, "4")]
    assert [id for id, _, _ in calls_in(third)] == [counted.call, told.call]
    assert results_in(third) == [(counted.call, "4"), (told.call, "noon")]
    assert counted.ref not in json.dumps(third)
    if streamed:
        named = [delta for delta in deltas if isinstance(delta, ToolDelta) and not delta.arguments]
        assert [delta.tool for delta in named] == ["word_count", "now"]
    # And on, in another object and from the store, as another process would.
    again = Session.open(session.id).say("Thanks.")
    assert turn(scribe(provider.model(wire.url)), again, streamed).text == "You are welcome."
    requests = bodies_at(wire, provider)
    for body in requests:
        check_pairs(body)
    check_prefixes(requests, provider)


def test_parallel_calls(provider: Provider, aimock: AIMock, streamed: bool) -> None:
    calls = [
        call("word_count", text="a b"),
        call("divide", a=1, b=0),
        call("now"),
        call("word_count", text=""),
    ]
    script(aimock, {"content": "All at once.", "toolCalls": calls}, {"content": "Done."})
    session = turn(scribe(provider.model(aimock.url)), "go", streamed)
    assert session.text == "Done." and sorted(RAN) == ["", "1/0", "a b", "now"]
    actions = bodies(session, k.ModelReplied)[0].calls
    assert [(each.tool, each.arguments) for each in actions] == [
        (each["name"], json.loads(each["arguments"])) for each in calls
    ]
    assert kinds(session).count("ToolRequested") == 4 and kinds(session).count("ToolReturned") == 3
    assert [body.failure.kind for body in bodies(session, k.ToolFailed)] == ["ZeroDivisionError"]
    _, second = bodies_at(aimock, provider)
    assert (
        [id for id, _, _ in calls_in(second)]
        == [id for id, _ in results_in(second)]
        == [action.call for action in actions]
    )
    two, raised, noon, none = [said for _, said in results_in(second)]
    assert (two, noon, none) == (
        "2",
        "noon",
        "0",
    ) and "ZeroDivisionError: division by zero" in raised
    check_pairs(second)


def test_calls_that_cannot_be_run_are_told_and_corrected(
    provider: Provider, wire: Wire, streamed: bool
) -> None:
    wire.play(
        provider.says(
            streamed,
            "",
            ("word_count", '{"txt": "a"}'),
            ("word_cuont", '{"text": "a"}'),
            ("word_count", '{"text": "a'),
            ("word_count", ""),
            ("word_count", '["a"]'),
            ("now", ""),
        ),
        provider.says(streamed, "", ("word_count", '{"text": "a b"}')),
        provider.says(streamed, "Two."),
    )
    session = turn(scribe(provider.model(wire.url)), "how many?", streamed)
    assert session.text == "Two." and RAN == ["now", "a b"]
    wrong = ["WrongArguments", "UnknownTool", "WrongArguments", "WrongArguments", "WrongArguments"]
    assert [body.failure.kind for body in bodies(session, k.ToolFailed)] == wrong
    _, second, third = bodies_at(wire, provider)
    told = [said for _, said in results_in(second)]
    assert "missing required field `text`" in told[0] or "unknown field `txt`" in told[0]
    assert "there is no tool 'word_cuont'; there are: " in told[1]
    assert (
        "not a JSON object" in told[2]
        and "missing required field `text`" in told[3]
        and "not a JSON object" in told[4]
    )
    assert told[5] == "noon"
    for body in (second, third):
        check_pairs(body)
    written = [arguments for _, _, arguments in calls_in(second)]
    assert written[:2] == [{"txt": "a"}, {"text": "a"}] and written[3] == written[5] == {}
    # What was no object is shown to the model in whatever form its provider takes: one wants an
    # object in any case, one reads it again.
    for place, said in ((2, '{"text": "a'), (4, '["a"]')):
        assert said in json.dumps(written[place]).replace("\\", "") or written[place] == _read(said)
        assert isinstance(written[place], dict) or provider.name == "responses"
    check_prefixes(bodies_at(wire, provider), provider)


def test_a_call_cut_at_its_length_is_not_run(
    provider: Provider, wire: Wire, streamed: bool
) -> None:
    wire.play(
        provider.says(streamed, "", ("now", "{}"), ("word_count", '{"text": "to b'), stop="length"),
        provider.says(streamed, "", ("word_count", '{"text": "a"}')),
        provider.says(streamed, "One."),
    )
    session = turn(scribe(provider.model(wire.url)), "how many?", streamed)
    assert session.text == "One." and RAN == ["a"]
    assert [body.failure.kind for body in bodies(session, k.ToolFailed)] == [
        "Truncated",
        "Truncated",
    ]
    _, second, third = bodies_at(wire, provider)
    assert all("cut at its length limit" in said for _, said in results_in(second))
    for body in (second, third):
        check_pairs(body)


def test_no_more_steps(provider: Provider, wire: Wire, streamed: bool) -> None:
    wire.play(
        provider.says(streamed, "", ("now", "{}")),
        provider.says(streamed, "Noon, I think.", ("now", "{}")),
    )
    session = turn(scribe(provider.model(wire.url), steps_max=1), "when?", streamed)
    assert session.text == "Noon, I think." and RAN == ["now"]
    assert bodies(session, k.ModelReplied)[1].calls == ()
    first, last = bodies_at(wire, provider)
    assert last["tool_choice"] in ("none", {"type": "none"}) and last["tools"] == first["tools"]


def test_thoughts_go_back_as_they_came(provider: Provider, wire: Wire, streamed: bool) -> None:
    wire.play(
        provider.says(streamed, "", ("now", "{}"), thought=provider.thought),
        provider.says(streamed, "Noon.", thought=provider.thought),
        provider.says(streamed, "Yes."),
    )
    agent = scribe(provider.model(wire.url))
    session, deltas = take(agent, Session("when?"), streamed)
    assert session.text == "Noon."
    assert not streamed or any(isinstance(delta, ReasoningDelta) for delta in deltas)
    assert turn(agent, session.say("Sure?"), streamed).text == "Yes."
    requests = bodies_at(wire, provider)
    check_prefixes(requests, provider)
    if provider.name == "chat":  # it has no way to take them back
        assert not any("reasoning" in item for body in requests for item in items_of(body))
        return
    assert [len(thoughts_in(body, provider)) for body in requests] == [0, 1, 2]


def test_thoughts_go_back_to_a_server_that_insists(
    aimock: AIMock, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aimock, when strict, refuses a tool loop whose thinking lost its place or its signature."""
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-aimock-strict: true")
    provider = Provider("anthropic")
    thinking = {
        "reasoning": "Look first.",
        "reasoningSignature": "c2lnbmVk",
        "redactedThinking": ["aGlkZGVu"],
    }
    script(
        aimock,
        {"toolCalls": [call("now")], **thinking},
        {"content": "Noon.", **thinking},
        {"content": "Yes."},
    )
    agent = scribe(provider.model(aimock.url), parameters={"thinking_tokens": 2048})
    session = turn(agent, "when?", streamed)
    assert session.text == "Noon." and attempts(session) == [1, 1]
    assert turn(agent, session.say("Sure?"), streamed).text == "Yes."
    provider.close()


# ── what goes wrong, and is tried again ──────────────────────────────────────────────────────


def test_refused_and_asked_again(provider: Provider, aimock: AIMock, streamed: bool) -> None:
    script(
        aimock,
        error(429, "slow down", retryAfter=0),
        error(500, "oh"),
        error(529, "busy"),
        {"content": "Here."},
    )
    session = turn(scribe(provider.model(aimock.url)), "hello", streamed)
    assert session.text == "Here." and attempts(session) == [1, 2, 3, 4]
    faults = bodies(session, k.ModelFailed)
    assert [body.failure.kind for body in faults] == ["RateLimited", "ServerError", "Overloaded"]
    assert all(
        body.failure.retryable and said in body.failure.message
        for body, said in zip(faults, ("slow down", "oh", "busy"), strict=True)
    )
    requests = bodies_at(aimock, provider)
    assert requests == requests[:1] * 4
    assert len({event.header.call for event in session.events.where("ModelAsked")}) == 1
    assert len({body.prompt for body in bodies(session, k.ModelAsked)}) == 1


def test_it_waits_as_long_as_it_is_told(provider: Provider, wire: Wire) -> None:
    wire.play(
        provider.refuses(429, "later", {"retry-after-ms": "120"}), provider.says(True, "Here.")
    )
    session = turn(scribe(provider.model(wire.url)), "hello", streamed=True)
    refused, again = session.events.where("ModelFailed")[0], session.events.where("ModelAsked")[1]
    assert session.text == "Here." and again.time - refused.time >= 120_000


def test_it_does_not_wait_for_an_hour(provider: Provider, aimock: AIMock) -> None:
    script(aimock, error(429, "come back", retryAfter=3600))
    caught = failed(scribe(provider.model(aimock.url)), "hello", streamed=False)
    assert (caught.kind, caught.attempts) == ("RateLimited", 1) and len(
        bodies_at(aimock, provider)
    ) == 1


def test_it_hangs_up_and_is_asked_again(provider: Provider, wire: Wire, streamed: bool) -> None:
    good = provider.says(streamed, "Here.")
    wire.play(good.cut(), good.cut(reset=True), good)
    session = turn(scribe(provider.model(wire.url)), "hello", streamed)
    assert session.text == "Here." and attempts(session) == [1, 2, 3]
    for body in bodies(session, k.ModelFailed):
        assert (body.failure.kind, body.partial, body.usage) == ("ConnectionLost", "", None)
    assert len({asked.body for asked in wire.requests}) == 1


def test_it_falls_silent_and_is_asked_again(provider: Provider, wire: Wire, streamed: bool) -> None:
    good = provider.says(streamed, "Once upon a time")
    wire.play(good.hold(4 if streamed else -1), good)
    session = turn(scribe(provider.model(wire.url, timeout_s=0.25)), "hello", streamed)
    wire.wait_gone()
    assert session.text == "Once upon a time" and attempts(session) == [1, 2]
    assert fault(session).failure.kind == "Timeout" and fault(session).latency_us >= 200_000
    assert (
        "Once upon a time".startswith(fault(session).partial)
        and bool(fault(session).partial) is streamed
    )


def test_a_stream_cut_anywhere_is_asked_for_again(provider: Provider, wire: Wire) -> None:
    good = provider.says(True, "I count.", ("word_count", '{"text": "to be"}'), ("now", "{}"))
    # to where it is known why it stops
    places = len(good.chunks) - {"responses": 1, "chat": 3, "anthropic": 1}[provider.name]
    agent = scribe(provider.model(wire.url))
    partials: list[str] = []
    for after in range(places + 1):
        RAN.clear()
        wire.play(good.cut(after), good, provider.says(True, "Two, at noon."))
        session = turn(agent, "how many?", streamed=True)
        assert (
            session.text == "Two, at noon."
            and attempts(session) == [1, 2, 1]
            and sorted(RAN) == ["now", "to be"]
        )
        assert fault(session).failure.kind == "StreamCut"
        partials.append(fault(session).partial)
        assert kinds(session)[4:9] == [
            "ModelAsked",
            "ModelFailed",
            "ModelAsked",
            "ModelReplied",
            "ToolRequested",
        ]
        # of the call that was cut there is nothing
        assert kinds(session).count("ToolRequested") == 2
        check_pairs(wire.requests[2].json)
        if provider.name == "anthropic" and after:
            assert (
                fault(session).usage == Usage(3210, 1 if after < places else 40, 3000)
                and fault(session).price is not None
            )
    assert partials == sorted(partials) and partials[0] == "" and partials[-1] == "I count."


def test_a_stream_cut_by_a_mock_of_others(provider: Provider, aimock: AIMock) -> None:
    long = "word " * 60
    script(
        aimock,
        {"response": {"content": long}, "truncateAfterChunks": 8, "latency": 2},
        {"content": long},
    )
    session = turn(scribe(provider.model(aimock.url)), "hello", streamed=True)
    assert session.text == long and attempts(session) == [1, 2]
    assert fault(session).failure.kind == "StreamCut" and long.startswith(fault(session).partial)


def test_all_attempts_fail(provider: Provider, aimock: AIMock, streamed: bool) -> None:
    script(aimock, *[error(500, "sorry")] * 3, {"content": "Better now."})
    agent = scribe(provider.model(aimock.url), retry=Retry(attempts=3, wait_s=0.0))
    caught = failed(agent, "hello", streamed)
    assert (caught.kind, caught.attempts) == ("ServerError", 3) and "sorry" in str(caught)
    assert (
        attempts(caught.session)
        == [body.attempt for body in bodies(caught.session, k.ModelFailed)]
        == [1, 2, 3]
    )
    # What was asked still stands, and the next turn answers it.
    session = turn(agent, caught.session.say("And now?"), streamed)
    assert session.text == "Better now."
    said = [
        each["content"]
        for each in bodies_at(aimock, provider)[-1]["messages"]
        if each["role"] == "user"
    ]
    assert said == ["hello", "And now?"]


def test_a_failure_after_a_tool_keeps_what_was_done(
    provider: Provider, aimock: AIMock, streamed: bool
) -> None:
    script(aimock, {"toolCalls": [call("now")]}, error(400, "no"), {"content": "Noon."})
    agent = scribe(provider.model(aimock.url))
    caught = failed(agent, "when?", streamed)
    assert caught.kind == "BadRequest" and caught.session.result == "noon"
    session = turn(agent, caught.session.say("Well?"), streamed)
    assert session.text == "Noon." and RAN == ["now"]
    check_pairs(bodies_at(aimock, provider)[-1])


def everything(store: Path, session: Session) -> bytes:
    """All that is kept: the files as they are, and what is packed in them."""
    files = [path.read_bytes() for path in store.rglob("*") if path.is_file()]
    assert files
    get_blob = store_at(session.store).get_blob
    events = [msgspec.json.encode(event.body) for event in session.events]
    return b"\n".join(
        [*files, *events, *[get_blob(ref) for event in session.events for ref in event.body.refs()]]
    )  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (400, "prompt is too long: 9 tokens > 8 maximum", "ContextOverflow"),
        (401, "wrong key", "AuthFailed"),
    ],
)
def test_what_asking_again_does_not_mend(
    provider: Provider,
    aimock: AIMock,
    streamed: bool,
    store: Path,
    status: int,
    said: str,
    kind: str,
) -> None:
    script(aimock, error(status, f"{said}: {KEY}, Bearer {KEY}"))
    caught = failed(scribe(provider.model(aimock.url)), "hello", streamed)
    assert (
        (caught.kind, caught.attempts) == (kind, 1)
        and said in caught.message
        and len(bodies_at(aimock, provider)) == 1
    )
    failure = fault(caught.session).failure
    assert (failure.kind, failure.retryable, attempts(caught.session)) == (kind, False, [1])
    assert KEY not in str(caught)
    kept = everything(store, caught.session)
    assert said.encode() in kept and KEY.encode() not in kept


def test_no_key_is_kept_whatever_happens(
    provider: Provider, wire: Wire, streamed: bool, store: Path
) -> None:
    good = provider.says(streamed, "Here.")
    wire.play(
        provider.refuses(500, f"who is {KEY}?"),
        whole(KEY.encode(), 502, {"content-type": "text/plain"}),
        whole(KEY.encode()),
        good.cut(),
        good,
    )
    session = turn(scribe(provider.model(wire.url)), "hello", streamed)
    assert session.text == "Here." and attempts(session) == [1, 2, 3, 4, 5]
    assert KEY in json.dumps(dict(wire.requests[0].headers))
    assert KEY.encode() not in everything(store, session)


# ── stopping ─────────────────────────────────────────────────────────────────────────────────


def check_cancelled(session: Session, wire: Wire, provider: Provider, agent: Agent) -> None:
    """The run ended as cancelled, nothing half-done is on record, and the session goes on."""
    wire.wait_gone()
    session = session.reload()
    assert (
        kinds(session)[-3:] == ["ModelAsked", "CallFinished", "RunCancelled"]
        and open_run_of(session) is None
    )
    assert not bodies(session, k.ToolRequested) and len(wire.requests) == 1
    wire.play(provider.says(False, "Still here."))
    assert agent(session.say("And now?")).text == "Still here."


def test_closing_a_stream_early(provider: Provider, wire: Wire) -> None:
    wire.play(provider.says(True, "Once upon a time", ("now", "{}")).hold(6))
    agent, session = scribe(provider.model(wire.url)), Session("tell me")
    stream = agent.stream(session)
    assert isinstance(next(stream), (TextDelta, ToolDelta))
    wire.wait_held()
    cast("Any", stream).close()
    check_cancelled(session, wire, provider, agent)


def test_cancelling_a_task(provider: Provider, wire: Wire, streamed: bool) -> None:
    wire.play(
        provider.says(streamed, "Once upon a time", ("now", "{}")).hold(6 if streamed else -1)
    )
    agent, session = scribe(provider.model(wire.url)), Session("tell me")

    async def go() -> None:
        task = asyncio.create_task(
            agent.acall(session, on_event=(lambda _: None) if streamed else None)
        )
        await asyncio.to_thread(wire.wait_held)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    check_cancelled(session, wire, provider, agent)


def test_leaving_an_async_stream(provider: Provider, wire: Wire) -> None:
    wire.play(provider.says(True, "Once upon a time", ("now", "{}")).hold(6))
    agent, session = scribe(provider.model(wire.url)), Session("tell me")

    async def go() -> None:
        stream = agent.astream(session)
        assert isinstance(await anext(stream), (TextDelta, ToolDelta))
        await asyncio.to_thread(wire.wait_held)
        await cast("Any", stream).aclose()

    asyncio.run(go())
    check_cancelled(session, wire, provider, agent)


def test_cancelling_while_it_waits_to_ask_again(provider: Provider, wire: Wire) -> None:
    wire.play(provider.refuses(429, "later", {"retry-after": "50"}))
    agent, session = scribe(provider.model(wire.url)), Session("tell me")

    async def go() -> None:
        refused = asyncio.Event()
        here = asyncio.get_running_loop()

        def watch(item: Any) -> None:
            if getattr(item, "kind", "") == "ModelFailed":
                here.call_soon_threadsafe(refused.set)

        task = asyncio.create_task(agent.acall(session, on_event=watch))
        await asyncio.wait_for(refused.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert kinds(session.reload())[-3:] == ["ModelFailed", "CallFinished", "RunCancelled"]


# ── from one provider to another, and from wherever one is ───────────────────────────────────


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("responses", "anthropic"),
        ("anthropic", "responses"),
        ("chat", "anthropic"),
        ("anthropic", "chat"),
    ],
)
def test_a_session_goes_on_with_another_provider(
    wire: Wire, streamed: bool, first: str, second: str
) -> None:
    one, two = Provider(first), Provider(second)
    broken = ("word_count", '{"text": "a')
    wire.play(
        one.says(streamed, "I look.", ("now", "{}"), broken, thought=one.thought),
        one.says(streamed, "Noon.", thought=one.thought),
        two.says(streamed, "", ("word_count", '{"text": "a b"}'), thought=two.thought),
        two.says(streamed, "Two.", thought=two.thought),
        one.says(streamed, "Back again."),
    )
    session = turn(scribe(one.model(wire.url)), "when?", streamed)
    session = turn(scribe(two.model(wire.url)), session.say("how many?"), streamed)
    assert session.text == "Two."
    session = turn(scribe(one.model(wire.url)), session.say("and?"), streamed)
    assert session.text == "Back again." and RAN == ["now", "a b"]
    assert [asked.path for asked in wire.requests] == [
        one.path,
        one.path,
        two.path,
        two.path,
        one.path,
    ]
    theirs, ours = [asked.json for asked in wire.requests[2:4]], wire.requests[4].json
    for body in (*theirs, ours):
        check_pairs(body)
    for body, foreign in ((theirs[0], one), (theirs[1], one), (ours, two)):
        assert not any(_secret(foreign) in json.dumps(item) for item in items_of(body))
    assert len(thoughts_in(ours, one)) == (2 if first != "chat" else 0)  # its own, where they were
    assert len(thoughts_in(theirs[1], two)) == (1 if second != "chat" else 0)
    assert [name for _, name, _ in calls_in(ours)] == ["now", "word_count", "word_count"]
    assert "I look." in json.dumps(theirs[0]) and "Two." in json.dumps(ours)
    check_roles(theirs[0], two)
    one.close()
    two.close()


def _secret(provider: Provider) -> str:
    """What only the provider itself can make use of."""
    return (
        provider.thought["signature"]
        if provider.name == "anthropic"
        else json.dumps(provider.thought["encrypted_content"])[1:-1]
    )


def check_roles(body: Any, provider: Provider) -> None:
    """A result comes right after its call, and the last word is not the model's."""
    items = items_of(body)
    assert items[-1].get("role") in ("user", None)
    if provider.name == "anthropic":
        for before, after in zip(items, items[1:], strict=False):
            wanted = [block["id"] for block in blocks_of(before) if block["type"] == "tool_use"]
            assert wanted == [
                block["tool_use_id"] for block in blocks_of(after) if block["type"] == "tool_result"
            ]
        assert all(item["content"] for item in items) and items[0]["role"] == "user"


def _plainly(agent: Agent, session: Session) -> Session:
    return agent(session)


def _inside_a_loop(agent: Agent, session: Session) -> Session:
    async def go() -> Session:
        return agent(session)  # it blocks this loop, and does not need it

    return asyncio.run(go())


def _awaited(agent: Agent, session: Session) -> Session:
    return asyncio.run(agent.acall(session))


def _streamed(agent: Agent, session: Session) -> Session:
    async def go() -> Session:
        return cast("Session", [item async for item in agent.astream(session)][-1])

    return asyncio.run(go())


@pytest.mark.parametrize("how", [_plainly, _inside_a_loop, _awaited, _streamed])
def test_two_turns_from_wherever_one_is(
    provider: Provider, aimock: AIMock, how: Callable[[Agent, Session], Session]
) -> None:
    calls = [call("now"), call("word_count", text="a")]
    script(
        aimock,
        {"toolCalls": calls},
        {"content": "Noon."},
        {"toolCalls": calls[:1]},
        {"content": "Still noon."},
    )
    agent = scribe(provider.model(aimock.url))
    session = how(agent, Session("when?"))
    assert session.text == "Noon."
    session = how(agent, session.say("and now?"))
    assert session.text == "Still noon." and session.run is None and open_run_of(session) is None
    assert (
        sorted(RAN) == ["a", "now", "now"]
        and session.budget.used.model_calls == 4
        and session.budget.used.tool_calls == 3
    )
    check_pairs(bodies_at(aimock, provider)[-1])


@pytest.mark.parametrize("awaited", [False, True], ids=["blocking", "awaited"])
def test_an_agent_inside_an_async_tool(provider: Provider, wire: Wire, awaited: bool) -> None:
    """The tool runs on the loop that models run on, and no connection is left behind by what it
    calls.
    """
    helper = scribe(provider.model(wire.url), name="helper")

    @tool
    async def ask_helper(question: str) -> str:
        """Ask."""
        asked = Session(question)
        return (await helper.acall(asked) if awaited else helper(asked)).text

    calls = ("ask_helper", '{"question": "when?"}')
    wire.play(
        *[provider.says(False, "", calls), provider.says(False, "Noon.")] * 2,
        provider.says(False, "At noon."),
    )
    session = turn(scribe(provider.model(wire.url), tools=[ask_helper]), "when?", streamed=False)
    assert session.text == "At noon." and [effect.result for effect in session.effects] == [
        "Noon.",
        "Noon.",
    ]


def test_many_at_once(provider: Provider, aimock: AIMock, streamed: bool) -> None:
    aimock.play(
        {"match": {"hasToolResult": True}, "response": {"content": "Noon."}},
        {"match": {"hasToolResult": False}, "response": {"toolCalls": [call("now")]}},
    )
    agent = scribe(provider.model(aimock.url))
    with ThreadPoolExecutor(8) as pool:
        working = [pool.submit(turn, agent, f"when, {n}?", streamed) for n in range(8)]
        sessions = [work.result() for work in working]
    assert [session.text for session in sessions] == ["Noon."] * 8 and len(RAN) == 8
    assert all(attempts(session) == [1, 1] for session in sessions)
