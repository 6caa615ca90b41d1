"""Answers of several shapes: unions of every kind of class, for every provider's dialect of JSON
schema and for the grammar of the local model.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, Optional

import msgspec
import pydantic
import pytest

from plait import Agent, ScriptedModel, Session
from plait.errors import InvalidValue
from plait.model.anthropic import AnthropicModel
from plait.model.grammar import bound_schema, grammar
from plait.model.openai import ChatModel, OpenAIModel
from plait.runtime import loop
from plait.session.typed import misfit, schema_of, to_type
from tests.providers.wire import Wire, whole

pytest.importorskip("openai")
pytest.importorskip("anthropic")
pytestmark = pytest.mark.usefixtures("own_store")


class Refund(msgspec.Struct, tag="refund"):
    amount: int


class Reply(msgspec.Struct, tag="reply"):
    text: str
    to: str | None = None


@dataclass
class Point:
    x: int


@dataclass
class Spot:
    x: int
    y: int


class Cat(pydantic.BaseModel):
    name: str


class Dog(pydantic.BaseModel):
    type: Literal["dog"]
    name: str


class Plain(msgspec.Struct):
    n: int


TYPES: dict[str, tuple[Any, Any, Any]] = {  # a type, a value of it as JSON, and the value
    "tagged structs": (Refund | Reply, {"type": "refund", "amount": 3}, Refund(3)),
    "an optional struct": (Optional[Refund], None, None),  # noqa: UP045
    "a list of tagged structs": (
        list[Refund | Reply],
        [{"type": "reply", "text": "a"}, {"type": "refund", "amount": 1}],
        [Reply("a"), Refund(1)],
    ),
    "dataclasses": (Point | Spot, {"type": "Point", "x": 1}, Point(1)),
    "dataclasses without the tag": (Point | Spot, {"x": 1, "y": 2}, Spot(1, 2)),
    "an optional dataclass": (Point | None, {"x": 1}, Point(1)),
    "optional dataclasses": (Point | Spot | None, None, None),
    "a list of dataclasses": (
        list[Point | Spot],
        [{"type": "Spot", "x": 1, "y": 2}, {"type": "Point", "x": 1}],
        [Spot(1, 2), Point(1)],
    ),
    "pydantic models": (Cat | Dog, {"type": "dog", "name": "Rex"}, Dog(type="dog", name="Rex")),
    "one of each": (
        dict[str, Refund | Point | Cat | Plain | int],
        {"a": {"type": "Cat", "name": "Tom"}, "b": {"type": "Plain", "n": 1}, "c": 7},
        {"a": Cat(name="Tom"), "b": Plain(1), "c": 7},
    ),
    "numbers and texts": (int | str, "seven", "seven"),
}


def responses(url: str, text: str) -> tuple[Any, Any]:
    said = [{"type": "message", "content": [{"type": "output_text", "text": text}]}]
    body = {"status": "completed", "output": said}
    return OpenAIModel("gpt-5", api_key="key", base_url=url), body


def chat(url: str, text: str) -> tuple[Any, Any]:
    body = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    return ChatModel("m", base_url=url), body


def messages(url: str, text: str) -> tuple[Any, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    body = {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": usage}
    return AnthropicModel("claude", api_key="key", base_url=url), body


@pytest.mark.parametrize("provider", [responses, chat, messages])
@pytest.mark.parametrize("kind", TYPES)
def test_an_answer_may_be_a_union(kind: str, provider: Any, wire: Wire) -> None:
    type_, value, wanted = TYPES[kind]
    model, body = provider(wire.url, json.dumps({"answer": value}))
    wire.play(whole(body))
    session = Agent("Decide.", model=model, returns=type_)(Session("What now?"))
    loop.wait(loop.start(model.aclose()))
    assert session.result == value and session.result_as(type_) == wanted
    asked = wire.requests[0].body.decode()
    assert "discriminator" not in asked and "anyOf" in asked


@pytest.mark.parametrize("kind", TYPES)
def test_the_grammar_of_the_local_model_takes_it(kind: str) -> None:
    type_, value, wanted = TYPES[kind]
    schema = bound_schema(schema_of(type_))
    if kind != "dataclasses without the tag":  # the grammar asks for the tag
        assert misfit(value, schema) is None
    assert misfit({"answer": 7.5}, schema) is not None
    assert "discriminator" not in grammar(schema) and to_type(value, type_) == wanted


def test_an_answer_of_no_shape_is_asked_for_again() -> None:
    model = ScriptedModel(['{"answer": {"type": "Cat"}}', '{"answer": {"type": "Point", "x": 2}}'])
    session = Agent("Decide.", model=model, returns=Point | Cat)(Session("What now?"))
    both: Any = Point | Cat
    assert session.result_as(both) == Point(2)
    assert "does not have the shape" in session.messages[-2].text
    assert "name" in session.messages[-2].text


@dataclass
class Holder:
    what: Point | Spot


def test_a_union_inside_a_class_needs_tags() -> None:
    with pytest.raises(InvalidValue, match=r"give its classes tags: class A\(msgspec.Struct"):
        Agent("Decide.", returns=Holder)
