"""Names that other libraries have: where one is used, the error says ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from plait.errors.base import spelling_step
from plait.errors.inputs import InvalidValue

if TYPE_CHECKING:
    from inspect import Signature


VALUES_STEP = (
    "values of a run as arguments of your forward, or as facts: session.fact(NAME, value); a tool"
    " with a parameter session: Session reads them (docs/agents.md)"
)
_OPEN_STEP = "Session.open(ID), and call it with that session"
# Names that other libraries have for the arguments of a call.
CALL_NAMES = {
    **dict.fromkeys(("context", "deps", "state", "inputs"), VALUES_STEP),
    "max_turns": "Agent(steps_max=…) where the agent is made",
    "recursion_limit": "Agent(steps_max=…) where the agent is made",
    **dict.fromkeys(
        ("message_history", "messages", "input", "user_prompt", "prompt"),
        "session = session.turn(TEXT, agent): the session has the messages before it",
    ),
    "usage_limits": "session = session.budget.grant(Budget(…))",
    **dict.fromkeys(
        ("hooks", "callbacks", "event_stream_handler"), "on_event=: it is called with each event"
    ),
    **dict.fromkeys(
        ("session", "thread_id", "session_id", "conversation_id", "previous_response_id"),
        _OPEN_STEP,
    ),
    "config": f"{_OPEN_STEP}; on_event= in place of callbacks",
    **dict.fromkeys(("run_config", "model"), "agent.to(model=…)(session)"),
    "model_settings": "Agent(parameters={…}) where the agent is made",
    "stream_mode": "events=True at stream() and astream(): events come with the text",
    "stream": "agent.stream(session)",
    "idempotency_key": "key=",
}

# Names that other libraries have for the arguments of as_tool().
TOOL_NAMES = {
    "tool_name": "name=",
    "tool_description": "description=",
    "custom_output_extractor": "returns=TYPE, or takes=",
    "max_turns": "Agent(steps_max=…) where the agent is made",
    "needs_approval": 'Agent(policy=Policy(Ask("NAME"))) at the agent that calls it',
}


def check_argument_names(
    called: str, given: Iterable[str], known: Iterable[str], meant: Mapping[str, str]
) -> None:
    """Raise for an argument that there is not, with the name that was probably meant.

    `called` is the thing with an article: "a Session". `meant` has names of other libraries, each
    with ours.
    """
    names = list(known)
    for name in given:
        if name not in names:
            step = spelling_step(name, names, meant)
            raise InvalidValue(name, f"{called} has no such argument", step)


class OtherName:
    """An attribute that a class does not have: reading it raises AttributeError with the next step.

    A class with `__getattr__` reads all its attributes more slowly; one with this does not. An
    object, or a class below, may have an attribute of this name.
    """

    def __init__(self, name: str, step: str) -> None:
        self._name, self._step = name, step

    def __get__(self, value: object, owner: type) -> NoReturn:
        raise AttributeError(
            f"{owner.__name__!r} object has no attribute {self._name!r}: {self._step}"
        )


def answer_other_names(cls: type[Any], steps: Mapping[str, str]) -> None:
    """Let a class answer to names of other libraries with the step to take instead.

    `dir()` of its objects does not show them.
    """
    for name, step in steps.items():
        assert not hasattr(cls, name), name
        setattr(cls, name, OtherName(name, step))

    def list_names(self: object) -> list[str]:
        return [name for name in object.__dir__(self) if name not in steps or hasattr(self, name)]

    cls.__dir__ = cast("Any", list_names)


class InitSignature:
    """The `__signature__` of classes whose `__new__` takes anything: that of their `__init__`."""

    def __get__(self, value: object, owner: type[Any]) -> Signature:
        if value is not None:  # an object has the signature of its call
            raise AttributeError("__signature__")
        from inspect import signature  # for help() and editors alone

        found = signature(owner.__init__)
        return found.replace(parameters=list(found.parameters.values())[1:])
