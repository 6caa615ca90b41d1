"""Unions that msgspec does not take: of several dataclasses, pydantic models or plain structs.

Such a union is put into a class of its own, whose schema and values `plait.session.typed` makes.
Each object in it has a tag in its schema, the name of its class under `type`, so that a model says
which one it means. A class with a field of that name is told apart by its own fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, ClassVar, Union, cast, get_args, get_origin

from plait.event import Json

TAG = "type"


class _Members(type):
    """msgspec asks for an instance of the class: every member's instance is one."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class UnionOf(metaclass=_Members):
    """The union of its members."""

    members: ClassVar[tuple[Any, ...]] = ()


@lru_cache(256)
def with_unions(type_: Any) -> Any:
    """Return the type with every union in it as a `UnionOf`; None, lists and dicts stay as they
    are. Fields of classes are not looked into.
    """
    origin, arguments = get_origin(type_), get_args(type_)
    if origin in (Union, UnionType):
        others = tuple([each for each in arguments if each is not type(None)])
        union = _union_class(tuple([with_unions(each) for each in others]))
        return union | None if len(others) < len(arguments) else union
    if origin in (list, set, frozenset, tuple, dict):
        changed = [each if each is Ellipsis else with_unions(each) for each in arguments]
        return cast("Any", origin)[tuple(changed)]
    return type_


def _union_class(members: tuple[Any, ...]) -> Any:
    if len(members) == 1:
        return members[0]
    name = "Or".join(getattr(each, "__name__", "Value") for each in members)
    return _Members(name, (UnionOf,), {"members": members})


def union_schema(union: type[UnionOf], schema_of: Callable[[Any], dict[str, Any]]) -> Any:
    return {"anyOf": [_tagged_schema(each, schema_of(each)) for each in union.members]}


def _tagged_schema(member: Any, schema: dict[str, Any]) -> dict[str, Any]:
    if not _is_tagged(schema):
        return schema
    tag = {"enum": [member.__name__]}
    required: list[str] = schema.get("required", [])
    return {
        **schema,
        "properties": {TAG: tag, **schema["properties"]},
        "required": [TAG, *required],
    }


def _is_tagged(schema: Mapping[str, Any]) -> bool:
    """True if it is an object without a field of the name of tags."""
    return schema.get("type") == "object" and TAG not in schema.get("properties", {TAG: None})


def union_value(
    union: type[UnionOf],
    value: Json,
    schema_of: Callable[[Any], dict[str, Any]],
    convert: Callable[[Json, Any], Any],
) -> Any:
    """Return a value of the union, or raise a ValueError. Without a tag it is the member that
    leaves the fewest fields of it aside.
    """
    known = {each: schema_of(each) for each in union.members}
    if isinstance(value, Mapping):
        plain = {key: each for key, each in value.items() if key != TAG}
        for member, schema in known.items():
            if _is_tagged(schema) and value.get(TAG) == member.__name__:
                return convert(plain, member)
    reasons: list[str] = []
    found: list[tuple[int, Any]] = []
    for member, schema in known.items():
        try:
            found.append((_fields_aside(value, schema), convert(value, member)))
        except ValueError as error:
            reasons.append(f"not {getattr(member, '__name__', member)}: {error}")
    if not found:
        raise ValueError("; ".join(reasons))
    return min(found, key=lambda each: each[0])[1]


def _fields_aside(value: Json, schema: Mapping[str, Any]) -> int:
    names = schema.get("properties", {})
    return len([key for key in value if key not in names]) if isinstance(value, Mapping) else 0
