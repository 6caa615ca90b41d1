"""Strict parsing of JSON from outside. No other module parses it more loosely.

The usual parsers are generous in ways that let one text mean two things: they keep the last of two
equal keys, read NaN, turn a broken surrogate into half a character and fail only on the call stack
when nesting is absurd. The code that checks and the code that acts may then see different data.
`parse` refuses all of that with a typed error.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from plait.errors import DuplicateKey, InvalidInput, InvalidValue, MalformedJson, TooDeep, TooLarge

# msgspec reads annotations at run time and knows no recursive types, so there a Json field is
# simply open.
if TYPE_CHECKING:
    Json: TypeAlias = "None | bool | int | float | str | Sequence[Json] | Mapping[str, Json]"
else:
    Json = Any

DEPTH_MAX = 100
SIZE_MAX = 16 * 1024 * 1024

_STEP = "pass plain JSON data"
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def parse(data: bytes, *, size_max: int = SIZE_MAX, depth_max: int = DEPTH_MAX) -> Json:
    """Read foreign JSON bytes, or say exactly why not."""
    if type(data) is not bytes:
        raise InvalidValue(
            "JSON", f"a {type(data).__name__} is not bytes", "encode it as UTF-8 first"
        )
    if len(data) > size_max:
        raise TooLarge("the JSON text", len(data), size_max)
    check_depth(data, depth_max)
    try:
        value: Json = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
        )
    except InvalidInput:
        raise
    except UnicodeDecodeError as error:
        raise MalformedJson(f"byte {error.start} is not UTF-8") from error
    except ValueError as error:  # also an integer with more digits than Python converts
        raise MalformedJson(str(error)) from error
    if _SURROGATE.search(data):
        try:
            msgspec.json.encode(value)
        except UnicodeEncodeError as error:
            raise explain(value) from error
    return value


def check_depth(data: bytes, depth_max: int = DEPTH_MAX) -> None:
    """Refuse nesting beyond the limit by counting brackets, before any parser recurses."""
    if data.count(b"[") + data.count(b"{") <= depth_max:
        return
    depth = 0
    for bracket in _STRING.sub(b"", data).translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > depth_max:
            raise TooDeep(depth_max)


def explain(
    value: object, where: str = "$", why: str = "does not come back from JSON as it went in"
) -> InvalidInput:
    """Return the error for a value that does not survive the trip to JSON and back, with the first
    culprit inside it.
    """
    return _culprit(value, where, 0) or InvalidValue(where, why, _STEP)


def difference(value: object, back: object, where: str) -> InvalidInput:
    """Return the error for a value that came back from JSON as another, with the first place where
    they differ.
    """
    for mine, theirs, place in _pairs(value, back, where) if type(value) is type(back) else ():
        if mine != theirs or type(mine) is not type(theirs):
            return difference(mine, theirs, place)
    return _culprit(value, where, 0) or _other_type(value, back, where)


def _pairs(value: Any, back: Any, where: str) -> list[tuple[Any, Any, str]]:
    """The parts of two values of one type, side by side."""
    if isinstance(back, msgspec.Struct):
        return [
            (getattr(value, name), getattr(back, name), f"{where}.{name}")
            for name in back.__struct_fields__
        ]
    if isinstance(back, dict):
        return [(item, back[key], f"{where}.{key}") for key, item in value.items() if key in back]
    if isinstance(back, (list, tuple)):
        return [
            (value[i], other, f"{where}[{i}]")
            for i, other in enumerate(cast("Sequence[Any]", back))
        ]
    return []


def _other_type(value: object, back: object, where: str) -> InvalidInput:
    mine, theirs = type(value).__name__, type(back).__name__
    return InvalidValue(where, f"a {mine} comes back as a {theirs}", f"pass a {theirs}")


def _culprit(value: object, where: str, depth: int) -> InvalidInput | None:
    if depth > DEPTH_MAX:
        return TooDeep(DEPTH_MAX)
    if isinstance(value, str):
        return _surrogate(value, where)
    if isinstance(value, float):
        return (
            None
            if math.isfinite(value)
            else InvalidValue(where, f"{value} is not a JSON number", _STEP)
        )
    if value is None or isinstance(value, (bool, int)):
        return None
    if isinstance(value, dict):
        return _culprit_in_object(cast("dict[object, object]", value), where, depth)
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return _culprit_in_object(cast("dict[object, object]", fields), where, depth)
    if isinstance(value, (list, tuple)):
        items = enumerate(cast("Sequence[object]", value))
        return next(
            (found for i, item in items if (found := _culprit(item, f"{where}[{i}]", depth + 1))),
            None,
        )
    return InvalidValue(where, f"a {type(value).__name__} is not JSON", _STEP)


def _culprit_in_object(value: dict[object, object], where: str, depth: int) -> InvalidInput | None:
    for key, item in value.items():
        if not isinstance(key, str):
            # others may refuse to tell
            told = f" {key!r}" if type(key) in (int, float, bool, type(None)) else ""
            return InvalidValue(
                where, f"the key{told} is a {type(key).__name__}, not a string", _STEP
            )
        if found := _surrogate(key, where) or _culprit(item, f"{where}.{key}", depth + 1):
            return found
    return None


def check_text(text: str, where: str) -> None:
    """Refuse a text that UTF-8 cannot hold."""
    if found := _surrogate(text, where):
        raise found


def _surrogate(text: str, where: str) -> InvalidInput | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        why = f"character {error.start} is a lone surrogate, which no UTF-8 text can hold"
        return InvalidValue(where, why, "remove it, or send the bytes as a blob")
    return None


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        raise DuplicateKey(next(key for key, _ in pairs if key in seen or seen.add(key)))
    return found


def _constant(text: str) -> Json:
    raise InvalidValue("$", f"{text} is not a JSON number", _STEP)


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise InvalidValue("$", f"{text} is beyond what a JSON number can hold here", _STEP)
    return number
