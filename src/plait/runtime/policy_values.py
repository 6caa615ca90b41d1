"""Checks of the values that rules and approvals are made of.

Programs without types pass anything: each value is refused here, with a next step, before a rule
exists that would decide otherwise than it reads.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from typing import cast, get_args

import msgspec

from plait.errors import InvalidValue
from plait.event import Json
from plait.event.kinds import EffectClass
from plait.event.strict import check_text, difference, explain

_EFFECTS = get_args(EffectClass)
encode_json = msgspec.json.Encoder(order="deterministic").encode


def function_name(function: object) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def plain_json(value: Json, where: str) -> Json:
    """Return a copy as JSON carries it. A value that JSON would change or drop is refused: it could
    be shown as one thing and run as another.
    """
    try:
        back: Json = msgspec.json.decode(encode_json(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise explain(value, where) from error
    if back != value:
        raise difference(value, back, where)
    return back


def words_of(given: str | Sequence[str], where: str, what: str) -> tuple[str, ...]:
    words = (
        (given,)
        if isinstance(given, str)
        else tuple(given)
        if isinstance(given, Iterable)  # pyright: ignore[reportUnnecessaryIsInstance]
        else (given,)
    )
    for word in words:
        if not isinstance(word, str) or not word:  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
            raise InvalidValue(
                where, f"{word!r} is not {what}", "pass a text, with * for any characters"
            )
        check_text(word, where)
    return words


def effects_of(given: EffectClass | Sequence[EffectClass], kind: str) -> tuple[EffectClass, ...]:
    effects = words_of(given, f"{kind} effect", "an effect class")
    for effect in effects:
        if effect not in _EFFECTS:
            raise InvalidValue(
                f"{kind} effect",
                f"{effect!r} is not an effect class",
                f"use one of {', '.join(_EFFECTS)}",
            )
    return cast("tuple[EffectClass, ...]", effects)


def condition_of(when: object, kind: str) -> object:
    if when is None:
        return None
    if not callable(when):
        raise InvalidValue(
            f"{kind} when",
            f"a {type(when).__name__} is not a function",
            "pass a function of the call",
        )
    if inspect.iscoroutinefunction(when):
        raise InvalidValue(
            f"{kind} when",
            f"{function_name(when)} is async, and a decision does not wait",
            "pass a plain function of the call",
        )
    return when


def text_of(text: object, where: str) -> str:
    if not isinstance(text, str):
        raise InvalidValue(where, f"a {type(text).__name__} is not a text", "pass a text")
    check_text(text, where)
    return text


def seconds_of(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < math.inf:
        raise InvalidValue(
            "Ask expires_s",
            f"{given!r} is not a time to wait",
            "pass seconds above 0, or None to wait as long as it takes",
        )
    return float(given)
