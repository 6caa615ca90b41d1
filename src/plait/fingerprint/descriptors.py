"""Reads descriptors, wrapped functions and other small values by the parts of their type."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

from plait.fingerprint.code import facts_of

Read = Callable[[Any], Any]  # reads a part


def read_descriptor(value: Any, read: Read) -> Any:
    return ["descriptor", value.__objclass__.__qualname__, value.__name__]


def read_code(code: CodeType, read: Read) -> Any:
    return ["code", facts_of(code).digest]


def read_wrapped(value: Any, read: Read) -> Any:
    return [type(value).__name__, read(value.__func__)]


def read_property(value: property, read: Read) -> Any:
    return [
        "property",
        read(value.fget),
        read(value.fset),
        read(value.fdel),
    ]


def read_cached(value: Any, read: Read) -> Any:
    """Read a cached function without the results in its cache: they change no behaviour."""
    return [
        "cached",
        read(value.cache_parameters()),
        read(value.__wrapped__),
    ]


def read_proxy(value: Any, read: Read) -> Any:
    try:
        return ["weakref", read(value.__reduce_ex__.__self__)]
    except ReferenceError:
        return ["weakref", None]


DESCRIPTORS: Mapping[type[Any], Callable[[Any, Read], Any]] = {
    CodeType: read_code,
    types.MemberDescriptorType: read_descriptor,
    types.GetSetDescriptorType: read_descriptor,
    types.WrapperDescriptorType: read_descriptor,
    types.MethodDescriptorType: read_descriptor,
    types.ClassMethodDescriptorType: read_descriptor,
    staticmethod: read_wrapped,
    classmethod: read_wrapped,
    property: read_property,
    type(lru_cache(len)): read_cached,
    weakref.ProxyType: read_proxy,
    weakref.CallableProxyType: read_proxy,
}
