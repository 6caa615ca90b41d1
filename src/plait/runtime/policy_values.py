"""Checks of the values that rules and approvals are made of.

Programs without types pass anything: each value is refused here, with a next step, before a rule
exists that would decide otherwise than it reads.
"""

from __future__ import annotations

import inspect
import linecache
import math
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import cast, get_args

import msgspec

from plait.errors import InvalidValue
from plait.event import Json
from plait.event.kinds import EffectClass
from plait.event.strict import check_text, difference, explain

_EFFECTS = get_args(EffectClass)
_LAMBDA_MAX = 120  # characters of an expression that stands for its rule
encode_json = msgspec.json.Encoder(order="deterministic").encode


def function_name(function: object) -> str:
    """Return the name of a function; of a lambda, its expression in the source."""
    name = getattr(function, "__name__", None) or type(function).__name__
    code = getattr(function, "__code__", None)
    if name != "<lambda>" or not isinstance(code, CodeType):
        return name
    return _lambda_text(code) or name


def _lambda_text(code: CodeType) -> str:
    """Return the expression of a lambda; "" if its source is not there, or has changed since."""
    spans = [span for span in code.co_positions() if span[2] != span[3]]
    if not spans:
        return ""
    first = min([(row or 0, column or 0) for row, _, column, _ in spans])
    last = max([(row or 0, column or 0) for _, row, _, column in spans])
    lines = [linecache.getline(code.co_filename, row) for row in range(first[0], last[0] + 1)]
    data = [line.encode() for line in lines]
    data[-1] = data[-1][: last[1]]
    data[0] = data[0][first[1] :]
    text = " ".join(b"".join(data).decode(errors="replace").split())
    try:
        again = compile(f"lambda {', '.join(code.co_varnames)}: ({text})", "", "eval").co_consts[0]
    except (SyntaxError, ValueError):
        return ""
    known = {*code.co_names, *code.co_freevars}
    is_same = isinstance(again, CodeType) and set(again.co_names) == known
    return text if is_same and len(text) <= _LAMBDA_MAX else ""


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
