"""Models by name, each made once per process, when it is first asked for.

openai:gpt-5            OpenAI, Responses API                   OPENAI_API_KEY
anthropic:claude-…      Anthropic, Messages API                 ANTHROPIC_API_KEY
local                   a small real model on this machine      pip install 'plait[local]'
http://host:port/v1     any server that speaks Chat Completions: its first model
http://host:port/v1#m   the same: its model m
ollama:… gemini:… openrouter:… azure:…  as in plait.model.providers
house                   a server that plait.toml names
a,b                     the models a and b: b is asked if a is down
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Any

from plait.errors import NoModel
from plait.model.base import (
    Delta,
    Fault,
    Model,
    Queued,
    ReasoningDelta,
    Reply,
    Request,
    Restarted,
    Spec,
    TextDelta,
    ToolCall,
    ToolDelta,
    Unseen,
)
from plait.model.fallback import SEPARATOR, find_list, split_names
from plait.model.limits import limits
from plait.model.providers import (
    PROVIDERS,
    chat_arguments,
    key_of,
    own_arguments,
    shared_arguments,
)
from plait.model.scripted import ScriptedModel
from plait.model.settings import ModelSettings, settings_of

__all__ = (
    "Delta",
    "Fault",
    "Model",
    "Queued",
    "ReasoningDelta",
    "Reply",
    "Request",
    "Restarted",
    "ScriptedModel",
    "Spec",
    "TextDelta",
    "ToolCall",
    "ToolDelta",
    "Unseen",
    "find",
    "limits",
)


class _ModelsByName:
    """One table for the process: all agents that name a model share its client and its weights.

    A forked child keeps the models; the lock may have been held by a thread of its parent.
    """

    def __init__(self) -> None:
        # each with the settings that it was made with
        self._by_name: dict[str, tuple[Model, ModelSettings]] = {}
        # made with settings that have changed: kept, since their connections belong to loops
        self._replaced: list[Model] = []
        self._lock = Lock()

    def find(self, name: str) -> Model:
        """Return the model of this name. A missing extra or key raises an error now."""
        if SEPARATOR in name:
            return find_list(split_names(name), self.find)
        with self._lock:
            settings = settings_of(name)
            found = self._by_name.get(name)
            if found is None or found[1] != settings:
                self._replaced += [found[0]] if found is not None else []
                found = self._by_name[name] = _make(name, settings), settings
            return found[0]

    def start_child(self) -> None:
        self._lock = Lock()


_models = _ModelsByName()
find = _models.find
os.register_at_fork(after_in_child=_models.start_child)


def _make(name: str, settings: ModelSettings) -> Model:
    # Adapters are imported at their first use: their packages are slow to load, and may not be
    # installed.
    scheme, _, rest = name.partition(":")
    if name == "local" or scheme == "local":
        from plait.model.local import LocalModel

        return LocalModel()
    arguments = shared_arguments(settings)
    if scheme in ("openai", "anthropic") and rest:
        adapter = _openai_adapter() if scheme == "openai" else _anthropic_adapter()
        key = key_of(name, settings, "") if settings.key else None
        return adapter(settings.model or rest, api_key=key, base_url=settings.base_url, **arguments)
    if scheme in PROVIDERS and rest:
        return _chat_adapter()(**chat_arguments(name, PROVIDERS[scheme], settings))
    if scheme in ("http", "https") and rest.startswith("//"):
        url, _, model = name.partition("#")
        key = key_of(name, settings, "")
        return _chat_adapter()(model or None, base_url=url, api_key=key, **arguments)
    if settings.base_url:
        return _chat_adapter()(**own_arguments(name, settings))
    guess = next((maker for start, maker in _MAKERS if name.startswith(start)), "")
    raise NoModel(f"no model is called {name!r}" + (f"; write '{guess}:{name}'" if guess else ""))


def is_model_name(text: str) -> bool:
    """True if a text cannot be meant as anything but the name of a model, as openai:gpt-5."""
    scheme, _, rest = text.partition(":")
    return scheme in ("openai", "anthropic", *PROVIDERS) and bool(rest) and len(text.split()) == 1


# The makers of models that are named without them.
_MAKERS = (
    ("gpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("claude", "anthropic"),
    ("gemini", "gemini"),
    ("llama", "ollama"),
    ("qwen", "ollama"),
    ("mistral", "ollama"),
)


def _openai_adapter() -> Any:
    from plait.model.openai import OpenAIModel

    return OpenAIModel


def _anthropic_adapter() -> Any:
    from plait.model.anthropic import AnthropicModel

    return AnthropicModel


def _chat_adapter() -> Any:
    from plait.model.openai import ChatModel

    return ChatModel
