"""The attributes of spans, by the names of the conventions for generative AI.

Content (messages, arguments, results, queries, texts of failures) is added only if it is wished.
The names that begin with `plait.` lead back to the record.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plait.event import Event, Json
from plait.event import kinds as k
from plait.export.spans import Attributes
from plait.ids import LogId
from plait.session.content import text_of, unpack
from plait.store import Store

# as the conventions name a provider; others go by the name that they have here
_PROVIDERS = {"mistral": "mistral_ai", "xai": "x_ai", "gemini": "gcp.gemini"}
_PARAMETERS: dict[str, tuple[str, type]] = {
    "temperature": ("gen_ai.request.temperature", float),
    "top_p": ("gen_ai.request.top_p", float),
    "max_tokens": ("gen_ai.request.max_tokens", int),
    "seed": ("gen_ai.request.seed", int),
}


def record_attributes(event: Event, conversation: LogId) -> Attributes:
    """Return the attributes of every span: the conversation, and the event that it begins with."""
    found: Attributes = {
        "gen_ai.conversation.id": conversation,
        "session.id": conversation,
        "plait.session": event.log,
        "plait.seq": event.seq,
        "plait.event": event.id,
        "plait.actor": event.actor,
    }
    if event.header.run is not None:
        found["plait.run"] = event.header.run.partition("/")[0]
    return found


def call_attributes(body: k.CallStarted) -> Attributes:
    if body.agent is None:
        return {"gen_ai.workflow.name": body.workflow, "plait.path": body.path}
    found: Attributes = {
        "gen_ai.agent.name": body.agent,
        "gen_ai.agent.id": body.path,
        "plait.path": body.path,
    }
    return {**found, "gen_ai.agent.version": body.version} if body.version else found


def ask_attributes(body: k.ModelAsked) -> Attributes:
    found = model_attributes(body.model)
    found["plait.attempt"] = body.attempt
    parameters = body.parameters if isinstance(body.parameters, dict) else {}
    for name, (attribute, type) in _PARAMETERS.items():
        value = parameters.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[attribute] = type(value)
    return found


def model_attributes(name: str) -> Attributes:
    provider, _, model = name.partition(":") if "://" not in name else ("http", "", name)
    return {
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": model or name,
    }


def answer_attributes(body: k.ModelReplied | k.ModelFailed) -> Attributes:
    """Return what a model's answer, or its failure, counted and cost."""
    found: Attributes = {}
    if isinstance(body, k.ModelReplied):
        found["gen_ai.response.finish_reasons"] = (body.stop,)
        if body.model:
            found["gen_ai.response.model"] = body.model
    if body.usage is not None:
        usage = body.usage
        found["gen_ai.usage.input_tokens"] = usage.input_tokens
        found["gen_ai.usage.output_tokens"] = usage.output_tokens
        if usage.cached_tokens:
            found["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
        if usage.reasoning_tokens:
            found["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
        if usage.estimated_tokens:
            found["plait.usage.estimated_tokens"] = usage.estimated_tokens
    if body.price is not None:
        found["plait.cost_usd_nano"] = body.price.cost_usd_nano
    return found


def request_attributes(body: k.ToolRequested, call: str) -> Attributes:
    found: Attributes = {
        "gen_ai.tool.name": body.tool,
        "gen_ai.tool.type": "extension" if body.source else "function",
        "gen_ai.tool.call.id": call,
        "plait.attempt": body.attempt,
        "plait.effect": body.effect,
    }
    if body.source:
        found["plait.tool.source"] = body.source
    if body.decision:
        found["plait.policy.decision"] = body.decision
    return found


def recall_attributes(body: k.MemoryRecalled | k.RecallFailed) -> Attributes:
    found: Attributes = {"gen_ai.data_source.id": body.index or "memory"}
    if isinstance(body, k.MemoryRecalled):
        found["gen_ai.request.top_k"] = float(body.k)
        found["plait.recall.hits"] = len(body.hits)
    return found


# ── content ──────────────────────────────────────────────────────────────────────────────────


def content_attributes(body: object, store: Store) -> Attributes:
    """Return the content of an event."""
    if isinstance(body, k.ToolRequested):
        return {"gen_ai.tool.call.arguments": _json_text(body.arguments)}
    if isinstance(body, (k.ToolReturned, k.ToolResolved)):
        return {"gen_ai.tool.call.result": text_of(unpack(body.parts, store.get_blob))}
    if isinstance(body, k.MemoryRecalled):
        documents = [{"id": hit.memory, "score": hit.score} for hit in body.hits]
        return {
            "gen_ai.retrieval.query.text": body.query,
            "gen_ai.retrieval.documents": _json_text(documents),
        }
    if isinstance(body, k.RecallFailed):
        return {"gen_ai.retrieval.query.text": body.query}
    if isinstance(body, k.ModelReplied):
        return {"gen_ai.output.messages": _json_text([_message(body, store)])}
    return {}


def _message(body: k.ModelReplied, store: Store) -> dict[str, Any]:
    text = text_of(unpack(body.parts, store.get_blob))
    words = [{"type": "text", "content": text}] if text else []
    calls = [
        {"type": "tool_call", "id": call.call, "name": call.tool, "arguments": call.arguments}
        for call in body.calls
    ]
    return {"role": "assistant", "parts": [*words, *calls], "finish_reason": body.stop}


def _json_text(value: Json | list[dict[str, Any]]) -> str:
    return msgspec.json.encode(value).decode()
