"""The agent of `plait chat --model NAME`. Runs record its path, so it keeps its name."""

from __future__ import annotations

from plait.agent import Agent


class Talk(Agent):
    """An agent without tools, to talk to."""

    def __init__(self) -> None:
        super().__init__("You are a helpful assistant. Answer briefly.", name="agent")
