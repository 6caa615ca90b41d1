"""Finds the program's own classes in type hints."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Any, cast

from plait.fingerprint.objects import named_items
from plait.fingerprint.ownership import is_own_class


def own_types(hints: Iterable[Any]) -> tuple[type[Any], ...]:
    """Return the program's own classes in these types, and in the fields of those classes."""
    found: dict[Any, None] = {}
    todo, done = list(hints)[::-1], list[Any]()
    while todo:
        hint = todo.pop()
        if any(hint is each for each in done):
            continue
        done.append(hint)
        inner: list[Any] = []
        if not isinstance(hint, type) or typing.get_origin(hint) is not None:
            inner = [*typing.get_args(hint), typing.get_origin(hint)]
            inner += [
                getattr(hint, name, None) for name in ("__supertype__", "__value__", "__bound__")
            ]
        elif is_own_class(cast("type[Any]", hint)):
            found[hint] = None
            inner = _field_types(cast("type[Any]", hint))
        todo += [each for each in reversed(inner) if each is not None]
    return tuple(found)


def _field_types(cls: type[Any]) -> list[Any]:
    try:
        hints = list(typing.get_type_hints(cls, include_extras=True).values())
    except Exception:  # a name that is not known, or not yet
        hints = []
    return [
        *hints,
        *[each.annotation for _, each in named_items(getattr(cls, "__pydantic_fields__", None))],
    ]
