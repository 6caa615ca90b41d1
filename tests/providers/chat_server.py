"""A server on loopback that speaks Chat Completions, whole and streamed, as a function says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.providers.wire import Answer, Asked, Wire, sse, whole

# of the body of a request: a text, or calls by name with their arguments
Reply = str | list[tuple[str, dict[str, Any]]]


class ChatServer(Wire):
    """Answers every request by a function of its body, in any number of threads."""

    def __init__(self, reply: Callable[[dict[str, Any]], Reply]) -> None:
        super().__init__()
        self._reply = reply

    def next(self, asked: Asked) -> Answer:
        with self._lock:
            self.requests.append(asked)
        said = self._reply(asked.json)
        return _stream(said) if asked.json.get("stream") else _whole(said)


def system_text(body: dict[str, Any]) -> str:
    """The instruction of the agent that asks."""
    first = body["messages"][0]
    return str(first["content"]) if first["role"] == "system" else ""


def _calls(said: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for index, (name, arguments) in enumerate(said)
    ]


def _whole(said: Reply) -> Answer:
    message: dict[str, Any] = {"role": "assistant", "content": said}
    if not isinstance(said, str):
        message = {"role": "assistant", "content": None, "tool_calls": _calls(said)}
    reason = "stop" if isinstance(said, str) else "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    return whole({"id": "r", "object": "chat.completion", "choices": [choice], "usage": usage})


def _stream(said: Reply) -> Answer:
    if isinstance(said, str):
        deltas: list[dict[str, Any]] = [{"content": word + " "} for word in said.split()]
        deltas[-1] = {"content": said.split()[-1]}
        reason = "stop"
    else:
        deltas, reason = [{"tool_calls": _calls(said)}], "tool_calls"
    chunks = [_chunk(delta, None) for delta in deltas]
    return sse(*chunks, _chunk({}, reason), "[DONE]")


def _chunk(delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {"id": "r", "object": "chat.completion.chunk", "choices": [choice]}
