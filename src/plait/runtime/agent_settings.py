"""The settings of an agent: checked when it is made, and read when it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, cast
from warnings import warn, warn_explicit

from plait.errors import InstructionFailed, InvalidValue, NoModel
from plait.errors.spelling import VALUES_STEP, check_argument_names
from plait.event import Json
from plait.event import kinds as k
from plait.event.strict import check_text
from plait.ids import Digest
from plait.inside import ends_run
from plait.model import find, is_model_name
from plait.model.base import Choice, Model
from plait.model.fallback import Models, find_list, models_listed, name_of_models
from plait.model.settings import default_model
from plait.runtime.effects import Record
from plait.runtime.failures import text_of_error
from plait.runtime.names import import_path
from plait.runtime.prompt.setup import Setup
from plait.runtime.replies import WRAPPED, WRAPPER
from plait.runtime.stack import Frame
from plait.session import Session
from plait.session.ports import Act, Draft
from plait.session.typed import name_of, schema_of, to_type
from plait.tool import Tool

Instruction = str | Callable[[Session], str]
_CHOICES: Mapping[str, Choice] = {"auto": "auto", "required": "any", "none": "none"}


def brief_text(
    instruction: Instruction, models: Models | None, tools: Iterable[str], returns: Any
) -> str:
    """Return the text between the brackets of an agent when it is printed."""
    summary, model, names = instruction_name(instruction), name_of_models(models), ", ".join(tools)
    parts = [repr(summary if len(summary) <= 60 else summary[:59] + "…")]
    if model:
        parts.append(f"model={model}")
    if names:
        parts.append(f"tools=[{names}]")
    if returns is not None:
        parts.append(f"returns={name_of(returns)}")
    return ", ".join(parts)


# ── when it is made ──────────────────────────────────────────────────────────────────────────


def check_spelling(given: Iterable[str], init: Callable[..., object]) -> None:
    """Raise for an argument that an agent does not have, with the name that was probably meant."""
    code = init.__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    check_argument_names("an Agent", given, names, _MEANT)


# Names that other libraries have for the same.
_FIRST = 'the instruction first: Agent("Answer briefly.", model=…)'
_PARAMETERS = 'parameters={"temperature": 0.2}: settings of the model, by the names of its API'
_SERVER = "tools=[MCPServer.stdio(…)]: a server is a tool among others (docs/agents.md)"
_RETRIES = "guard_retries= for answers, and @tool(attempts=…) for tools"
_EVENTS = "on_event= where it is called: agent(session, on_event=print)"
_APPROVAL = 'policy=Policy(Ask("TOOL")): the run waits for a person (docs/runs.md)'
_MEANT = {
    **dict.fromkeys(
        ("instructions", "prompt", "system_prompt", "system_message", "role", "goal"), _FIRST
    ),
    **dict.fromkeys(
        ("output_type", "response_format", "result_type", "response_model", "output_schema"),
        "returns=",
    ),
    **dict.fromkeys(("max_turns", "max_steps", "max_iterations", "recursion_limit"), "steps_max="),
    "llm": "model=",
    **dict.fromkeys(("functions", "toolsets", "builtin_tools"), "tools="),
    **dict.fromkeys(("model_settings", "llm_config", "generation_config"), _PARAMETERS),
    **{
        name: f'parameters={{"{name}": …}}'
        for name in ("temperature", "top_p", "max_tokens", "seed", "stop", "reasoning_effort")
    },
    **dict.fromkeys(("input_guardrails", "pre_model_hook"), "before="),
    **dict.fromkeys(("output_guardrails", "post_model_hook", "output_validators"), "after="),
    **dict.fromkeys(("mcp_servers", "mcp_config"), _SERVER),
    **dict.fromkeys(("retries", "output_retries", "result_retries"), _RETRIES),
    **dict.fromkeys(("hooks", "callbacks", "event_stream_handler", "middleware"), _EVENTS),
    **dict.fromkeys(
        ("interrupt_before", "interrupt_after", "needs_approval", "human_input_mode"), _APPROVAL
    ),
    **dict.fromkeys(("context", "deps", "deps_type", "context_schema"), VALUES_STEP),
    **dict.fromkeys(
        ("state_schema", "checkpointer", "store", "session"),
        'Session("Hi", store=…), and call the agent with it: the session is the state',
    ),
    "handoff_description": "description=",
    "backstory": _FIRST,
    "history_processors": "view=, or compactor=Compactor(…) (docs/runs.md)",
    "tool_use_behavior": "a Workflow that calls session.use(tool, …), or returns=",
    "usage_limits": "Budget(…) at the session: Session(…, budget=Budget(steps_max=40))",
    **dict.fromkeys(
        ("verbose", "debug", "instrument"), f"{_EVENTS}; all is on record: `plait log @`"
    ),
}


class UndescribedTool(UserWarning):
    """A tool that a model knows by its name alone, or whose arguments may be anything."""


def warn_of_undescribed(tools: Iterable[object]) -> None:
    """Warn of tools without a docstring, by which a model decides when to call them, and of those
    with parameters without a type, for which it may pass anything.
    """
    for tool in tools:
        if isinstance(tool, Tool) and not tool.description:
            step = "Write a docstring, or pass description= to @tool."
            why = f"the tool {tool.name} has no docstring: a model is told its name alone. {step}"
            _warn_of_tool(cast("Tool[..., Any]", tool), why)
        if isinstance(tool, Tool) and tool.untyped:
            names, step = ", ".join(tool.untyped), f"Annotate it: {tool.untyped[0]}: str."
            why = f"the tool {tool.name} takes {names} without a type: a model may pass anything"
            _warn_of_tool(cast("Tool[..., Any]", tool), f"{why}. {step}")


def _warn_of_tool(tool: Tool[..., Any], text: str) -> None:
    """Warn for the line of the function, so that it is printed once for each function."""
    given: Any = tool.function
    function = inspect.unwrap(getattr(given, "__func__", given))
    if not inspect.isfunction(function):
        warn(text, UndescribedTool, stacklevel=4)
        return
    code = function.__code__
    seen = function.__globals__.setdefault("__warningregistry__", {})
    where = code.co_filename, code.co_firstlineno, function.__module__
    warn_explicit(text, UndescribedTool, *where, seen)


def check_instruction(instruction: object) -> None:
    if callable(instruction):
        return
    if not isinstance(instruction, str) or not instruction.strip():
        raise InvalidValue("instruction", "it says nothing", "tell the agent what to do")
    check_text(instruction, "instruction")
    if is_model_name(instruction):
        step = f'write the instruction first: Agent("Answer briefly.", model="{instruction}")'
        raise InvalidValue("instruction", f"{instruction!r} is the name of a model", step)


def check_count(name: str, number: object, things: str) -> None:
    """Raise unless a setting is a number from 1."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InvalidValue(name, f"{number!r} is not a number of {things}", "pass a number from 1")


def check_kind(name: str, value: object, kind: type, step: str) -> None:
    """Raise unless a setting is None, or of its kind."""
    if value is not None and not isinstance(value, kind):
        raise InvalidValue(name, f"a {type(value).__name__} is not one", step)


def check_list(name: str, values: object, things: str) -> None:
    if isinstance(values, str) or not isinstance(values, Iterable):
        why = f"a {type(values).__name__} is not a list of {things}"
        raise InvalidValue(name, why, f"pass {name}=[…]")


def tools_by_name(tools: Iterable[Tool[..., Any]]) -> dict[str, Tool[..., Any]]:
    """Return tools by their names, or raise if two have the same."""
    found: dict[str, Tool[..., Any]] = {}
    for tool in tools:
        if found.setdefault(tool.name, tool) is not tool:
            raise InvalidValue(
                "tools", f"two tools are called {tool.name!r}", "pass name= to one of them"
            )
    return found


def check_choice(choice: object, tools: Mapping[str, Tool[..., Any]]) -> None:
    """Raise unless an agent with these tools can be told to choose so."""
    known = ", ".join([*_CHOICES, *tools])
    if not isinstance(choice, str) or (choice not in _CHOICES and choice not in tools):
        raise InvalidValue("tool_choice", f"{choice!r:.80} is not one", f"use one of {known}")
    if choice == "required" and not tools:
        raise InvalidValue("tool_choice", "there is no tool to call", "pass tools=[…]")


def answer_fault(value: Any, type_: Any) -> str | None:
    """Return why an answer does not have a type; None: it has."""
    try:
        to_type(value, type_)
    except (ValueError, TypeError) as error:
        return str(error)
    # a type of the program's own, which checks its values itself
    except BaseException as error:
        if ends_run(error):
            raise
        return f"{type(error).__name__}: {text_of_error(error)}"
    return None


def answer_schema(type_: Any) -> Json:
    """Return the schema of the answer.

    Providers want an object: any other type stands in one, under `answer`.
    """
    try:
        schema = schema_of(type_)
    except (TypeError, NotImplementedError) as error:
        why = str(error).partition("\n")[0]
        step = "pass a type that JSON can carry"
        if "union" in why:
            step = "give its classes tags: class A(msgspec.Struct, tag=True)"
        raise InvalidValue("returns", why, step) from error
    if schema.get("type") == "object" and "properties" in schema:
        return schema
    defs = schema.pop("$defs", None)
    wrapped: dict[str, Json] = {
        "title": WRAPPER,
        "type": "object",
        "properties": {WRAPPED: schema},
        "required": [WRAPPED],
        "additionalProperties": False,
    }
    return {**wrapped, "$defs": defs} if defs else wrapped


# ── when it is called ────────────────────────────────────────────────────────────────────────


def choice_of(given: str) -> tuple[Choice, str]:
    """Return the choice of tools that an ask leaves, and the tool that has to be called."""
    found = _CHOICES.get(given)
    return (found, "") if found is not None else ("any", given)


def model_of(model: Models | None, owner: str) -> Model:
    """Return the model itself: the one given, or found by name; a list of them as one."""
    if isinstance(model, str):
        return find(model)
    if (listed := models_listed(model)) is not None:
        return find_list(listed, find)
    if model is not None:
        if not callable(getattr(model, "ask", None)):
            raise NoModel(f"a {type(model).__name__} is not a model")
        return cast("Model", model)
    named, where = default_model()
    if not named:
        raise NoModel(f"{owner!r} has no model")
    try:
        return find(named) if isinstance(named, str) else find_list(named, find)
    except NoModel as error:
        raise NoModel(f"{error.why}, which is what {where} says") from error


def instruction_name(instruction: Instruction) -> str:
    """Return an instruction as it is named: by its text, or by where the function is found."""
    if isinstance(instruction, str):
        return instruction
    module = getattr(instruction, "__module__", type(instruction).__module__)
    name = getattr(instruction, "__qualname__", type(instruction).__qualname__)
    return f"{module.partition('@')[0]}:{name}"


def instruction_summary(instruction: Instruction) -> str:
    """Return the first line of an instruction, or of the docstring of a function."""
    text = instruction if isinstance(instruction, str) else instruction.__doc__ or ""
    return text.strip().partition("\n")[0]


def instruction_text(instruction: Instruction, path: str, session: Session) -> str:
    """Return the instruction of a call: a function is asked for it."""
    if isinstance(instruction, str):
        return instruction
    try:
        text = instruction(session)
        if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"it returned {text!r:.80}, which is no instruction")
        check_text(text, "instruction")
    except BaseException as error:
        if ends_run(error):
            raise
        why = f"{type(error).__name__}: {text_of_error(error)}"
        raise InstructionFailed(path, instruction_name(instruction), why, session) from error
    return text


def record_setup(session: Session, frame: Frame, setup: Setup) -> Record:
    """Return the effect that puts the setup of a call on record, once its instruction is known."""
    encoded = setup.encode()
    blob = Digest(sha256(encoded).hexdigest())
    agent = frame.path.rpartition("/")[2]
    body = k.CallStarted(import_path(type(frame.node)), frame.path, frame.purpose, agent, blob)
    act = Act(frame.actor, "program", call=frame.call)
    return Record(session, [Draft(body, act)], {blob: encoded})
