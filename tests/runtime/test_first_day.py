"""Errors of a first day: each says the right spelling, or the next step."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any, cast

import pytest

import plait
from plait import Agent, Budget, ScriptedModel, Session, Workflow, tool
from plait.errors import InvalidValue, NoModel, NoRun, StaleHead


def _say_twice() -> None:
    session = Session("x", store="memory:")
    session.say("a")
    session.say("b")


def _session() -> Any:
    return Session("x", store="memory:")


def _forget_the_answer() -> None:
    session = _session()
    Agent("x", model=ScriptedModel(["y"]))(session)
    session.say("And now?")


def _import_runner() -> object:
    from plait import Runner  # type: ignore[attr-defined]

    return Runner  # pyright: ignore[reportUnknownVariableType]


@tool
def count(words: str) -> int:
    """Count words."""
    return len(words.split())


def _called(*args: Any, **names: Any) -> object:
    return Agent("x", model=ScriptedModel(["y"]))(_session(), *args, **names)


def _turned(**names: Any) -> object:
    return _session().turn("Hi", Agent("x", model=ScriptedModel(["y"])), **names)


def _streamed(**names: Any) -> Any:
    return Agent("x", model=ScriptedModel(["y"])).stream_turn(_session(), "Hi", **names)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model_settings", 'parameters={"temperature"'),
        ("temperature", 'parameters={"temperature"'),
        ("max_tokens", 'parameters={"max_tokens"'),
        ("hooks", "on_event="),
        ("context", "session.fact(NAME, value)"),
        ("deps_type", "session.fact(NAME, value)"),
        ("system_prompt", "the instruction first"),
        ("response_format", "returns="),
        ("mcp_servers", "tools=[MCPServer.stdio(…)]"),
        ("retries", "guard_retries="),
        ("middleware", "on_event="),
        ("interrupt_before", 'Policy(Ask("TOOL"))'),
        ("checkpointer", "Session("),
        ("history_processors", "compactor="),
        ("handoff_description", "description="),
        ("usage_limits", "Budget("),
    ],
)
def test_an_argument_of_another_library_names_ours(name: str, words: str) -> None:
    with pytest.raises(InvalidValue) as found:
        Agent("x", **{name: 3})  # type: ignore[call-arg]
    assert found.value.where == name and words in found.value.step


def test_an_argument_that_forward_does_not_take_begins_no_run() -> None:
    agent, session = Agent("x", model=ScriptedModel(["y"])), _session()
    for act in (lambda: agent(session, hooks=3), lambda: session.turn("Hi", agent, hooks=3)):
        with pytest.raises(InvalidValue, match="on_event="):
            act()
    assert session.reload() == session and not session.inbox.events


def _call(model: str) -> Callable[[], object]:
    return lambda: Agent("x", model=model)(Session("x", store="memory:"))


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (_say_twice, StaleHead, r"session = session\.say\(…\)"),
        (lambda: Agent(instructions="x"), InvalidValue, "the instruction first"),  # type: ignore[call-arg]
        (lambda: Agent("x", output_type=int), InvalidValue, "write returns="),  # type: ignore[call-arg]
        (lambda: Agent("x", modle="local"), InvalidValue, "write model"),  # type: ignore[call-arg]
        (lambda: Agent("x", model=3), InvalidValue, "a int is not a model"),  # type: ignore[arg-type]
        (lambda: cast("Any", tool)(retries=3), InvalidValue, "write attempts="),
        (
            lambda: cast("Any", Agent("x")).as_tool(tool_name="y"),
            InvalidValue,
            "write name=",
        ),
        (lambda: Agent("openai:gpt-5"), InvalidValue, 'model="openai:gpt-5"'),
        (lambda: _called(context=3), InvalidValue, r"session\.fact\(NAME, value\)"),
        (lambda: _called(config={}), InvalidValue, r"Session\.open\(ID\)"),
        (lambda: _called("Hi"), InvalidValue, r"session\.turn\(TEXT, workflow\)"),
        (lambda: _turned(max_turns=3), InvalidValue, "steps_max"),
        (lambda: list(_streamed(deps=3)), InvalidValue, r"session\.fact\(NAME, value\)"),
        (lambda: _session().turn(Agent("x"), "Hi"), InvalidValue, "the text first"),
        (
            lambda: cast("Any", Session)(thread_id="7", store="memory:"),
            InvalidValue,
            r"Session\.open\(ID\)",
        ),
        (lambda: cast("Any", Agent("x")).run, AttributeError, r"session = agent\(session\)"),
        (lambda: cast("Any", Agent("x")).ainvoke, AttributeError, "await agent.acall"),
        (lambda: cast("Any", plait).Runner, AttributeError, r"session = agent\("),
        (_import_runner, ImportError, r"session = agent\("),
        (lambda: _session().state, AttributeError, "session.facts"),
        (lambda: _session().output, AttributeError, "session.text"),
        (lambda: _session().use(count, "a b"), InvalidValue, r"by name: session\.use\(tool, name="),
        (lambda: _session().turn("x"), TypeError, r"^Session\.turn\(\) missing"),
        (_forget_the_answer, StaleHead, r"session = agent\(session\)"),
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


def test_a_tool_whose_parameter_has_no_type_is_warned_of() -> None:
    def look(where, depth: int = 1):  # type: ignore[no-untyped-def]
        """Look."""

    with pytest.warns(UserWarning, match="the tool look takes where without a type"):
        Agent("x", model=ScriptedModel(["y"]), tools=[look])


def test_names_of_other_libraries_are_no_members() -> None:
    class Mine(Workflow):
        def __init__(self) -> None:
            self.chat = Agent("x")

        def run(self) -> str:
            return "mine"

        def forward(self, session: Session) -> Session:
            return session

    assert not hasattr(_session(), "state") and "state" not in dir(_session())
    assert not hasattr(Agent("x"), "run") and "run" not in dir(Agent("x"))
    assert Mine().run() == "mine" and isinstance(Mine().chat, Agent) and "run" in dir(Mine())


def test_a_stale_value_is_told_of_with_the_short_id() -> None:
    session = _session()
    session.say("a")
    with pytest.raises(StaleHead) as raised:
        session.say("b")
    assert session.short in str(raised.value) and session.id not in str(raised.value)


def test_help_shows_the_arguments_of_an_agent() -> None:
    arguments = inspect.signature(Agent).parameters
    assert list(arguments)[:3] == ["instruction", "model", "tools"] and "kwargs" not in arguments
    listed = re.findall(r"^        (\w+(?:, \w+)*):", Agent.__doc__ or "", re.MULTILINE)
    assert ", ".join(listed).split(", ") == list(arguments)


def test_a_class_of_its_own_has_arguments_of_its_own() -> None:
    class Mine(Agent):
        def __init__(self, depth: int) -> None:
            super().__init__("x", model=ScriptedModel(["y"]))
            self.depth = depth

    assert Mine(depth=3).depth == 3 and list(inspect.signature(Mine).parameters) == ["depth"]
