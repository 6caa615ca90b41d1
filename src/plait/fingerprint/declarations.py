"""Reads what a class declares beside its attributes: fields of structs, attrs and pydantic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from plait.fingerprint.descriptors import Read
from plait.fingerprint.objects import ATTRS_FIELD, PYDANTIC_FIELD, fields_of, named_items
from plait.fingerprint.ownership import is_own_class


def read_declarations(cls: type[Any], read: Read) -> Iterable[Any]:
    """Read code and values of a class that are no attributes of it: its metaclass, defaults
    and validators of its fields.
    """
    if is_own_class(type(cls)):
        yield ["metaclass", read(type(cls))]
    is_struct = issubclass(type(cls), type(msgspec.Struct))
    defaults = cast("tuple[Any, ...]", cls.__struct_defaults__) if is_struct else ()
    if defaults:
        yield [
            "defaults",
            [read(getattr(each, "factory", each)) for each in defaults],
        ]
    if "__attrs_attrs__" in vars(cls):
        yield ["fields", [_read_field(read, each, ATTRS_FIELD) for each in cls.__attrs_attrs__]]
    if "__pydantic_fields__" in vars(cls):
        yield [
            "fields",
            [
                [name, _read_field(read, each, PYDANTIC_FIELD)]
                for name, each in cls.__pydantic_fields__.items()
            ],
        ]
        yield [
            "settings",
            read(vars(cls).get("model_config")),
            read(vars(cls).get("__private_attributes__")),
        ]
        groups = fields_of(vars(cls).get("__pydantic_decorators__"))
        marked = [
            (group, name, each.info)
            for group, held in sorted(groups.items())
            for name, each in named_items(held)
        ]
        yield [
            "decorators",
            [[group, name, read(info)] for group, name, info in marked],
        ]


def _read_field(read: Read, field: Any, parts: Iterable[str]) -> Any:
    return [read(getattr(field, part, None)) for part in parts]
