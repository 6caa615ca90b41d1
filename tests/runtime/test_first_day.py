"""Errors of a first day: each says the right spelling, or the next step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from plait import Agent, Budget, ScriptedModel, Session
from plait.errors import InvalidValue, NoModel, NoRun, StaleHead


def _say_twice() -> None:
    session = Session("x", store="memory:")
    session.say("a")
    session.say("b")


def _call(model: str) -> Callable[[], object]:
    return lambda: Agent("x", model=model)(Session("x", store="memory:"))


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (_say_twice, StaleHead, r"session = session\.say\(…\)"),
        (lambda: Agent(instructions="x"), InvalidValue, "the instruction first"),  # type: ignore[call-arg]
        (lambda: Agent("x", output_type=int), InvalidValue, "write returns="),  # type: ignore[call-arg]
        (lambda: Agent("x", modle="local"), InvalidValue, "write model"),  # type: ignore[call-arg]
        (lambda: Budget(tokens=5), InvalidValue, "write tokens_max="),  # type: ignore[call-arg]
        (lambda: Budget(token_max=5), InvalidValue, "write tokens_max"),  # type: ignore[call-arg]
        (_call("gpt-5"), NoModel, "write 'openai:gpt-5'"),
        (_call("claude-x"), NoModel, "write 'anthropic:claude-x'"),
        (
            lambda: Session("x", store="memory:").ask("Really?"),
            NoRun,
            "in the forward of a workflow",
        ),
    ],
)
def test_the_right_spelling(act: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        act()


def test_a_tool_without_a_docstring_is_warned_of_once_at_its_line() -> None:
    def count(words: str) -> int:
        return len(words.split())

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(3):
            Agent("x", model=ScriptedModel(["y"]), tools=[count])
    (warning,) = found
    assert str(warning.message) == (
        "the tool count has no docstring: a model is told its name alone. Write a docstring, or"
        " pass description= to @tool."
    )
    where = warning.filename, warning.lineno
    assert where == (count.__code__.co_filename, count.__code__.co_firstlineno)


def test_a_class_of_its_own_has_arguments_of_its_own() -> None:
    class Mine(Agent):
        def __init__(self, depth: int) -> None:
            super().__init__("x", model=ScriptedModel(["y"]))
            self.depth = depth

    assert Mine(depth=3).depth == 3
