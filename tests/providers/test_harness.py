"""The servers do what they are told, so that a red test is the adapter's fault."""

from __future__ import annotations

import http.client
import json
import urllib.request

import pytest

from tests.providers.aimock import AIMock
from tests.providers.wire import Wire, sse, whole


def ask(wire: Wire) -> http.client.HTTPResponse:
    request = urllib.request.Request(
        f"{wire.url}/v1/x", b'{"stream":true}', {"content-type": "application/json"}
    )
    return urllib.request.urlopen(request, timeout=5)


def test_the_wire_says_what_it_is_told(wire: Wire) -> None:
    wire.play(sse({"type": "a"}, {"n": 1}, "[DONE]"), whole({"x": 1}, 201, {"retry-after": "2"}))
    with ask(wire) as first, ask(wire) as second:
        assert (
            first.read() == b'event: a\ndata: {"type": "a"}\n\ndata: {"n": 1}\n\ndata: [DONE]\n\n'
        )
        assert (second.status, second.headers["retry-after"], json.load(second)) == (
            201,
            "2",
            {"x": 1},
        )
    assert [(asked.path, asked.json) for asked in wire.requests] == [
        ("/v1/x", {"stream": True})
    ] * 2


def test_the_wire_hangs_up(wire: Wire) -> None:
    wire.play(sse({"n": 1}, {"n": 2}).cut(1), sse({"n": 1}).cut(1, reset=True), sse().cut())
    with ask(wire) as answer, pytest.raises(http.client.IncompleteRead):
        answer.read()
    with ask(wire) as answer, pytest.raises(OSError):
        answer.read()
    with pytest.raises(http.client.RemoteDisconnected):
        ask(wire)


def test_the_wire_holds_until_it_is_released_or_the_client_has_gone(wire: Wire) -> None:
    wire.play(sse({"n": 1}, {"n": 2}).hold(1), sse({"n": 1}).hold(1))
    with ask(wire) as answer:
        wire.wait_held()
        wire.release()
        assert b"2" in answer.read()
    wire.play(sse({"n": 1}).hold(1))
    with ask(wire):
        wire.wait_held()
    wire.wait_gone()


def test_aimock_plays_fixtures_and_keeps_a_journal(aimock: AIMock) -> None:
    aimock.play({"match": {"userMessage": "hello"}, "response": {"content": "Hi"}})
    body = {"model": "m", "messages": [{"role": "user", "content": "hello there"}]}
    request = urllib.request.Request(
        f"{aimock.url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert json.load(answer)["choices"][0]["message"]["content"] == "Hi"
    assert [entry["body"]["messages"] for entry in aimock.requests("/chat/completions")] == [
        body["messages"]
    ]
