"""Warns of rules that name a tool which is not there: a slip in a name is a rule that never holds.

A name with a wildcard may match nothing on purpose, and so may a condition; neither is warned of.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from contextlib import suppress
from types import CodeType
from typing import Any, Protocol, runtime_checkable
from warnings import warn

from plait.errors.base import spelling_step
from plait.runtime.policy import Policy
from plait.runtime.run import Run
from plait.tool import Tool

_WILDCARDS = frozenset("*?[")


class UnmatchedRule(UserWarning):
    """A rule of a policy names a tool that nothing in its reach has."""


@runtime_checkable
class HasTools(Protocol):
    """A part of a workflow that has tools."""

    def tool_names(self) -> Collection[str] | None:
        """Return the names of its tools. None: a server would have to be asked."""
        ...


def warn_of_unmatched_rules(run: Run, path: str, node: object, policy: Policy) -> None:
    """Warn, once in a run, of the tools that rules name and that are not in reach of a call."""
    names = {name: rule for rule in policy.rules for name in rule.tools if _is_plain(name)}
    if not names or not run.is_first_time(("rules", path)):
        return
    known = _tools_in_reach(node)
    if not known or names.keys() <= known:
        return
    used = _names_in_code(node)
    for name, rule in names.items():
        if name in known or name in used:
            continue
        why = f"{rule!r} in the policy of {path} names the tool {name!r}, which is not in its reach"
        step = spelling_step(name, sorted(known))
        with suppress(Warning):  # where warnings are errors, too
            warn(f"{why}: the rule never holds for it; {step}", UnmatchedRule, stacklevel=2)


def _is_plain(name: str) -> bool:
    return _WILDCARDS.isdisjoint(name)


def _parts_of(node: object) -> list[object]:
    """Return a workflow with all that is below it, agents that are tools included."""
    parts: Any = getattr(node, "named_parts", tuple)()
    return [node, *(part for _, part in parts)]


def _tools_in_reach(node: object) -> set[str]:
    """Return the names of the tools of a workflow and of all below it. Empty: they are not known,
    since there are none, or a server has to be asked.
    """
    found = set[str]()
    for part in _parts_of(node):
        if isinstance(part, HasTools):
            names = part.tool_names()
            if names is None:
                return set()
            found.update(names)
        values: dict[str, object] = getattr(part, "__dict__", {})
        found.update(value.name for value in values.values() if isinstance(value, Tool))
    return found


def _names_in_code(node: object) -> set[str]:
    """Return the names that occur in the methods of a workflow and of all below it:
    `session.use(wire)` uses a tool that no agent has.
    """
    kinds = {kind for part in _parts_of(node) for kind in type(part).__mro__}
    functions = [
        inspect.unwrap(value)
        for kind in kinds
        if not kind.__module__.startswith("plait.")
        for value in vars(kind).values()
        if inspect.isfunction(value)
    ]
    return {name for function in functions for name in _names_of(function.__code__)}


def _names_of(code: CodeType) -> Iterator[str]:
    yield from (*code.co_names, *code.co_freevars, *code.co_varnames)
    for value in code.co_consts:
        if isinstance(value, str):
            yield value
        elif isinstance(value, CodeType):
            yield from _names_of(value)
