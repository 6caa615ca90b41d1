"""Checks the settings of a tool when it is made."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Protocol, get_args

from plait.errors import BadTool, InvalidInput, InvalidValue
from plait.event.codec import check_origin
from plait.event.effect_classes import EFFECTS
from plait.event.kinds import EffectClass
from plait.tool.signature import KEY, SESSION

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_REPEATABLE = tuple(effect for effect, rule in EFFECTS.items() if rule.is_repeatable)


class ToolSettings(Protocol):
    """The settings of a tool that can be wrong."""

    name: str
    function: Callable[..., Any]
    effect: EffectClass
    probe: Callable[..., Any] | None
    compensate: Callable[..., Any] | None
    timeout_s: float | None
    wait_s: float
    heartbeat_s: float | None
    taints: str
    attempts: int


def check_tool(tool: ToolSettings, version: object) -> None:
    """Raise BadTool if the settings of a tool do not fit together."""
    if not _NAME.match(tool.name):
        raise BadTool(
            tool.name, "providers take names of 1 to 64 letters, digits, _ and - only", "pass name="
        )
    if version is not None and not (isinstance(version, str) and version):
        raise BadTool(tool.name, f"{version!r} is no version", "pass a text, as in version='2'")
    if tool.effect not in get_args(EffectClass):
        raise BadTool(
            tool.name,
            f"{tool.effect!r} is not an effect class",
            f"use one of {', '.join(get_args(EffectClass))}",
        )
    for effect, rule in EFFECTS.items():
        if rule.companion:
            _check_companion(tool, effect, rule.companion, getattr(tool, rule.companion))
    for name in ("timeout_s", "heartbeat_s", "wait_s", "attempts"):
        value, kinds = getattr(tool, name), int if name == "attempts" else (int, float)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise BadTool(tool.name, f"{name}={value!r} is not a number", f"pass {name}= a number")
    if tool.timeout_s is not None and not tool.timeout_s > 0:
        raise BadTool(tool.name, f"{tool.timeout_s!r} is no time at all", "pass timeout_s= above 0")
    if tool.heartbeat_s is not None and not tool.heartbeat_s > 0:
        why = f"{tool.heartbeat_s!r} is no time at all"
        raise BadTool(tool.name, why, "pass heartbeat_s= above 0")
    if not 0 <= tool.wait_s < 3600:
        raise BadTool(tool.name, f"{tool.wait_s!r} is no time to wait", "pass wait_s= from 0, in s")
    try:
        check_origin(tool.taints)
        if tool.taints in ("program", "human", "model"):
            raise InvalidValue("taints", f"{tool.taints!r} is who speaks for itself")
    except InvalidInput as error:
        raise BadTool(
            tool.name,
            f"taints={tool.taints!r} is no origin",
            "use a short lowercase word, as in web or mail:inbox",
        ) from error
    if tool.attempts < 1:
        raise BadTool(tool.name, f"{tool.attempts} attempts are none", "pass attempts= from 1")
    if tool.attempts > 1 and tool.effect not in _REPEATABLE:
        raise BadTool(
            tool.name,
            f"a call of class {tool.effect} is made once",
            f"say effect= one of {', '.join(_REPEATABLE)}, or attempts=1",
        )


def _check_companion(
    tool: ToolSettings, effect: EffectClass, name: str, function: Callable[..., Any] | None
) -> None:
    """Raise BadTool unless a tool of this class, and no other, has a companion that fits it."""
    if (function is not None) != (tool.effect == effect):
        why = (
            f"{name}= belongs to the class {effect}"
            if function is not None
            else f"the class {effect} needs {name}="
        )
        raise BadTool(tool.name, why, f"pass effect={effect!r} and {name}= together")
    if function is None:
        return
    takes = inspect.signature(tool.function).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in takes.values()):
        return
    for wanted in inspect.signature(function).parameters.values():
        is_needed = wanted.default is wanted.empty and wanted.kind not in (
            wanted.VAR_KEYWORD,
            wanted.VAR_POSITIONAL,
        )
        if is_needed and wanted.name not in (*takes, KEY, SESSION):
            raise BadTool(
                tool.name,
                f"{name}= has a parameter {wanted.name!r}, which the tool does not have",
                f"name parameters of the tool, {KEY} or {SESSION}",
            )


# Arguments of @tool as other libraries call them, each with ours.
OTHER_NAMES = {
    "retries": "attempts=",
    "max_retries": "attempts=",
    "retry": "attempts=",
    "name_override": "name=",
    "description_override": "description=",
    "doc": "description=",
    "timeout": "timeout_s=",
    "idempotent": 'effect="idempotent"',
    "needs_approval": 'Agent(policy=Policy(Ask("NAME")))',
    "requires_confirmation": 'Agent(policy=Policy(Ask("NAME")))',
    "args_schema": "types at the parameters of the function",
    "parse_docstring": "the docstring alone: it is read",
}
