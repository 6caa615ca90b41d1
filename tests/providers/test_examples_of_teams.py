"""The examples of agents that work together, run against a server that speaks Chat Completions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from examples import agents_as_tools, guards, handoffs, streaming

from tests.providers.chat_server import ChatServer, Reply, system_text

pytest.importorskip("openai")


@contextmanager
def asked_at(
    reply: Callable[[dict[str, Any]], Reply], monkeypatch: pytest.MonkeyPatch
) -> Generator[ChatServer]:
    server = ChatServer(reply)
    with server:
        monkeypatch.setenv("PLAIT_MODEL", f"{server.url}/v1#any")
        yield server


def test_agents_as_tools(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        told = system_text(body)
        if "to Spanish" in told:
            return "¡Hola, mundo!"
        if "to French" in told:
            return "Bonjour, le monde !"
        if body["messages"][-1]["role"] == "tool":
            return "Both are there."
        if "with your tools" in told:
            names = ("translate_to_french", "translate_to_spanish")
            return [(name, {"request": "Hello, world!"}) for name in names]
        return "Bonjour, le monde ! ¡Hola, mundo!"

    with asked_at(reply, monkeypatch) as server:
        agents_as_tools.main()
        bodies = [asked.json for asked in server.requests]
    out = capsys.readouterr().out
    assert "translate_to_french: Bonjour, le monde !" in out
    assert "translate_to_spanish: ¡Hola, mundo!" in out and out.endswith("¡Hola, mundo!\n")
    assert len(bodies) == 5 and bodies[0]["tool_choice"] == "required"
    assert all(body.get("tool_choice") != "required" for body in bodies[1:])
    (french,) = [body for body in bodies if "to French" in system_text(body)]
    assert french["messages"][1:] == [{"role": "user", "content": "Hello, world!"}]


def test_handoffs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        if "French" in system_text(body):
            return "Il est midi." if "Merci" not in str(body["messages"][-1]) else "De rien."
        return [("hand_off_to_french", {"reason": "the message is in French"})]

    with asked_at(reply, monkeypatch) as server:
        handoffs.main()
        told = [system_text(asked.json) for asked in server.requests]
    out = capsys.readouterr().out
    assert out.startswith("Il est midi.\nDe rien.\n") and "the message is in French" in out
    assert ["French" in each for each in told] == [False, True, True], "the agent keeps it"


def test_guards(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        said = json.dumps(body["messages"], ensure_ascii=False)
        if "homework exercise" in system_text(body):
            bad = "Solve for x" in str(body["messages"][-1])
            return json.dumps({"passes": not bad, "reason": "it is homework" if bad else ""})
        if "rejected" in str(body["messages"][-1]):
            return "In the Bay Area."
        return "With 650, in the Bay Area." if "650" in said else "Sacramento."

    with asked_at(reply, monkeypatch):
        guards.main()
    assert capsys.readouterr().out.splitlines() == [
        "Sacramento.",
        "Sorry: it is homework.",
        "In the Bay Area.",
    ]


def test_streaming(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with asked_at(lambda body: "One two three.", monkeypatch) as server:
        asyncio.run(streaming.main())
        assert server.requests[0].json["stream"] is True
    assert capsys.readouterr().out == "One two three."
