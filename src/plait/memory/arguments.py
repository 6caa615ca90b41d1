"""Checks of the arguments of a memory. Callers without types exist, so the types are checked, too:
bad input is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any

from plait.errors import InvalidValue
from plait.event.strict import check_text
from plait.session.arguments import value_text
from plait.session.value import SessionValue

TIME_END = 2**63
_TIME = "pass microseconds since 1970, as events have them"


def check_session(value: object, where: str = "session") -> None:
    if not isinstance(value, SessionValue):
        raise InvalidValue(where, f"{value_text(value)} is no session", "pass a session")


def check_labels(**labels: object) -> None:
    """Check names, keys and other short texts, each under the name of its argument."""
    for where, text in labels.items():
        if not isinstance(text, str):
            raise InvalidValue(where, f"{value_text(text)} is no text", "pass a text")
        check_text(text, where)


def check_actor(actor: object) -> None:
    """Check the one who acts; None is for the writer to fill in."""
    if actor is not None:
        check_labels(actor=actor)


def check_time(where: str, value: object) -> None:
    """Check a time; None is now, or none."""
    if value is not None and (type(value) is not int or not 0 <= value < TIME_END):
        raise InvalidValue(where, f"{value_text(value)} is no time", _TIME)


def check_count(where: str, value: object) -> None:
    if type(value) is not int or not 1 <= value < TIME_END:
        raise InvalidValue(where, f"{value!r:.40} is not a number from 1", "pass a number from 1")


def check_flag(where: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidValue(where, f"{value_text(value)} is no truth value", "pass True or False")


def check_functions(where: str, values: object) -> None:
    """Check a list of functions."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Collection):
        raise InvalidValue(where, f"{value_text(values)} is no list", "pass a list of functions")
    for each in values:  # pyright: ignore[reportUnknownVariableType]
        if not callable(each):  # pyright: ignore[reportUnknownArgumentType]
            raise InvalidValue(where, "one is no function", "pass a list of functions")


def check_score_parts(parts: object, weights: object) -> None:
    """Check the further parts of a score, and their weights."""
    for name, part in _entries("parts", parts):
        if not callable(part):
            raise InvalidValue("parts", f"{name} is no function", "pass functions by name")
    for name, weight in _entries("weights", weights):
        is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not is_number or not isfinite(weight):
            raise InvalidValue("weights", f"that of {name} is no number", "pass numbers by name")


def check_has(where: str, value: object, *names: str) -> None:
    """Check that another component has these attributes; None: there is none."""
    if value is None:
        return
    if missing := [name for name in names if not hasattr(value, name)]:
        why = f"{value_text(value)} has no {missing[0]}"
        raise InvalidValue(where, why, f"pass an object with {', '.join(names)}")


def _entries(where: str, values: object) -> list[tuple[str, Any]]:
    if values is None:
        return []
    step = "pass a dict by name"
    if not isinstance(values, Mapping):
        raise InvalidValue(where, f"{value_text(values)} is no mapping", step)
    found: list[tuple[str, Any]] = [*values.items()]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    for name, _ in found:
        check_labels(**{where: name})
    return found
