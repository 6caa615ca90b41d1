"""Files on their way to models: text as text to all, PDFs to those that take them, and a word to
the caller and to the model about each one that is left out.
"""

from __future__ import annotations

import json
import warnings
from base64 import b64encode
from typing import Any

import pytest

from plait import Agent, Sequential, Session, file, image, tool
from plait.model import Unseen
from plait.model.anthropic import AnthropicModel
from plait.model.base import Model, OnDelta, Reply, Request
from plait.model.openai import ChatModel, OpenAIModel
from plait.model.providers import PROVIDERS
from plait.runs.replay import replay
from plait.runtime import loop
from plait.runtime.telling import UnseenWarning
from tests.providers.wire import Wire, whole
from tests.support import scripted_model

pytest.importorskip("openai")
pytest.importorskip("anthropic")
pytestmark = pytest.mark.usefixtures("own_store")

PDF, NOTE, ZIP, PIXEL = b"%PDF-1.4 x", "Milk, eggs.", b"PK\x03\x04", b"\x89PNG\r\n\x1a\n"
DATA = f"data:application/pdf;base64,{b64encode(PDF).decode()}"
KEY = "key-0123456789"


def models(url: str) -> dict[str, tuple[Model, Any]]:
    chat = {"choices": [{"message": {"content": "I see."}, "finish_reason": "stop"}]}
    said = [{"type": "message", "content": [{"type": "output_text", "text": "I see."}]}]
    claude = {
        "content": [{"type": "text", "text": "I see."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    rows = {
        name: (ChatModel("m", base_url=url, api_key=KEY, provider=PROVIDERS[name]), chat)
        for name in ("openrouter", "ollama")
    }
    return {
        **rows,
        "responses": (
            OpenAIModel("gpt-5", api_key=KEY, base_url=url),
            {"status": "completed", "output": said},
        ),
        "anthropic": (AnthropicModel("claude", api_key=KEY, base_url=url), claude),
    }


def close(model: Any) -> None:
    """Close its connections, on the loop that has them."""
    loop.wait(loop.start(model.aclose()))


def sent(wire: Wire, name: str, *content: Any) -> tuple[str, list[str]]:
    """Return the turn of the user as it was sent, and the warnings."""
    model, reply = models(wire.url)[name]
    wire.play(whole(reply))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert Agent("Look.", model=model)(Session(*content)).text == "I see."
    close(model)
    turns = wire.requests[0].json.get("messages") or wire.requests[0].json["input"]
    text = json.dumps(turns[-1]["content"], ensure_ascii=False)
    return text, [str(each.message) for each in caught if each.category is UnseenWarning]


ALL = ("openrouter", "ollama", "responses", "anthropic")


@pytest.mark.parametrize("name", ALL)
def test_a_text_file_reaches_every_model_as_text(wire: Wire, name: str) -> None:
    for media_type in ("text/markdown", "application/json", "image/svg+xml"):
        note = file(NOTE.encode(), "note", media_type)
        text, warned = sent(wire, name, "Read this.", note)
        assert NOTE in text and "note" in text and not warned


@pytest.mark.parametrize("name", ALL)
def test_a_pdf_reaches_the_models_that_take_it(wire: Wire, name: str) -> None:
    text, warned = sent(wire, name, "Read this.", file(PDF, "a.pdf"))
    if name == "ollama":
        told = "[file: a.pdf, left out: application/pdf, 10 bytes, cannot be read here]"
        assert told in text
        assert warned == [
            f"{wire.url}#m cannot see a.pdf (application/pdf); it is told that this was left out"
        ]
    else:
        assert b64encode(PDF).decode() in text and "a.pdf" in text and not warned
    if name == "openrouter":
        wanted = {"type": "file", "file": {"filename": "a.pdf", "file_data": DATA}}
        assert wanted in wire.requests[0].json["messages"][-1]["content"]


@pytest.mark.parametrize("name", ALL)
def test_a_file_that_no_model_takes_is_named_to_both(wire: Wire, name: str) -> None:
    text, warned = sent(wire, name, "Open this.", file(ZIP, "a.zip", "application/zip"))
    assert "[file: a.zip, left out: application/zip, 4 bytes" in text
    assert len(warned) == 1 and "cannot see a.zip (application/zip)" in warned[0]


def test_a_pdf_that_a_tool_returns_follows_its_result(wire: Wire) -> None:
    @tool(effect="pure")
    def scan() -> Any:
        """Scan a page."""
        return file(PDF, "scan.pdf")

    model, reply = models(wire.url)["openrouter"]
    call = {"id": "c", "type": "function", "function": {"name": "scan", "arguments": "{}"}}
    asks = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    wire.play(whole(asks), whole(reply))
    assert Agent("Look.", model=model, tools=[scan])(Session("Scan.")).text == "I see."
    close(model)
    result, shown = wire.requests[1].json["messages"][-2:]
    assert result["content"] == "[file scan.pdf, 1, shown below]"
    assert shown["content"][1]["file"] == {"filename": "scan.pdf", "file_data": DATA}


class Blind:
    """A model of the program's own, which says that it sees no images."""

    name, takes = "blind", frozenset[str]()

    def __init__(self) -> None:
        self._script = scripted_model("Yes.", "Yes.")

    def ask(self, request: Request, on_delta: OnDelta | None) -> Reply:
        return self._script.ask(request, on_delta)


def test_a_listener_is_told_once_in_a_run() -> None:
    heard: list[Any] = []
    agent = Agent("Look.", model=Blind(), name="eye")
    session = Sequential(agent, agent)(
        Session("What is it?", image(PIXEL, "image/png", alt="a dot")), on_event=heard.append
    )
    told = [item for item in heard if isinstance(item, Unseen)]
    assert told == [Unseen("blind", "a dot", "image/png", "sequential/eye")]
    heard.clear()
    assert replay(session, Sequential(agent, agent)).head == session.head and not heard


def test_a_model_that_does_not_say_what_it_sees_is_not_warned_of() -> None:
    heard: list[Any] = []
    Agent("Look.", model=scripted_model("Yes."))(
        Session("What is it?", file(ZIP, "a.zip")), on_event=heard.append
    )
    assert heard and not any(isinstance(item, Unseen) for item in heard)
