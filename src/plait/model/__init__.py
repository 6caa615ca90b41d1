"""Models by name, each made once per process, when it is first asked for.

openai:gpt-5            OpenAI, Responses API                   OPENAI_API_KEY
anthropic:claude-…      Anthropic, Messages API                 ANTHROPIC_API_KEY
local                   a small real model on this machine      pip install 'plait[local]'
http://host:port/v1     any server that speaks Chat Completions: its first model
http://host:port/v1#m   the same: its model m
a,b                     the models a and b: b is asked if a is down
"""

from __future__ import annotations

import os
from threading import Lock

from plait.errors import NoModel
from plait.model.base import (
    Delta,
    Fault,
    Model,
    ReasoningDelta,
    Reply,
    Request,
    Restarted,
    Spec,
    TextDelta,
    ToolCall,
    ToolDelta,
)
from plait.model.fallback import SEPARATOR, find_list, split_names
from plait.model.scripted import ScriptedModel

__all__ = (
    "Delta",
    "Fault",
    "Model",
    "ReasoningDelta",
    "Reply",
    "Request",
    "Restarted",
    "ScriptedModel",
    "Spec",
    "TextDelta",
    "ToolCall",
    "ToolDelta",
    "find",
)


class _ModelsByName:
    """One table for the process: all agents that name a model share its client and its weights.

    A forked child keeps the models; the lock may have been held by a thread of its parent.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Model] = {}
        self._lock = Lock()

    def find(self, name: str) -> Model:
        """Return the model of this name. A missing extra or key raises an error now."""
        if SEPARATOR in name:
            return find_list(split_names(name), self.find)
        with self._lock:
            if name not in self._by_name:
                self._by_name[name] = _make(name)
            return self._by_name[name]

    def start_child(self) -> None:
        self._lock = Lock()


_models = _ModelsByName()
find = _models.find
os.register_at_fork(after_in_child=_models.start_child)


def _make(name: str) -> Model:
    # Adapters are imported at their first use: their packages are slow to load, and may not be
    # installed.
    scheme, _, rest = name.partition(":")
    if name == "local" or scheme == "local":
        from plait.model.local import LocalModel

        return LocalModel()
    if scheme in ("http", "https") and rest.startswith("//"):
        from plait.model.openai import ChatModel

        url, _, model = name.partition("#")
        return ChatModel(model or None, base_url=url)
    if scheme == "openai" and rest:
        from plait.model.openai import OpenAIModel

        return OpenAIModel(rest)
    if scheme == "anthropic" and rest:
        from plait.model.anthropic import AnthropicModel

        return AnthropicModel(rest)
    raise NoModel(f"no model is called {name!r}")
