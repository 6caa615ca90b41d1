"""The agent of `plait chat --model NAME`. Runs record its path, so it keeps its name."""

from __future__ import annotations

from plait.agent import Agent
from plait.runtime.agent_settings import check_instruction
from plait.workflow import name_target, target_of


class Talk(Agent):
    """An agent without tools, to talk to."""

    def __init__(self) -> None:
        super().__init__("You are a helpful assistant. Answer briefly.", name="agent")

    def instruct(self, text: str) -> None:
        """Take another instruction, also when its runs are resumed."""
        check_instruction(text)
        self.instruction = text
        name_target(self, {**target_of(self), "instruction": text})
