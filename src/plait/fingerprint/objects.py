"""Facts about objects: the types that are read in a way of their own, fields, and constants."""

from __future__ import annotations

import contextvars
import copyreg
import datetime
import decimal
import enum
import fractions
import re
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from pathlib import PurePath
from types import FunctionType, MethodType
from typing import Any, cast

from plait.fingerprint.ownership import (
    is_own_class,
    is_own_function,
)

# the attribute with the address that a workflow object was loaded from: it changes no behaviour
TARGET = "_plait_target"
# the attribute of a wrapper around `forward`, with the function as it was written
WRAPPED_FORWARD = "__plait_forward__"
PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented))
_CONSTANT_TYPES = (*PLAIN_TYPES, tuple, frozenset, range)

NEW_OBJECT = (getattr(copyreg, "__newobj__", None), getattr(copyreg, "__newobj_ex__", None))
NOT_CODE = frozenset(
    {
        *("__module__", "__dict__", "__weakref__", "__doc__", "__qualname__", "__annotations__"),
        "__slotnames__",  # put there when an object of the class is copied, or read, first
        *("__firstlineno__", "__static_attributes__", "__annotate__", "__annotate_func__"),
        *("__annotations_cache__", "__orig_bases__", "__parameters__", "__type_params__"),
    }
)

# Objects that guard, and do nothing of their own.
LOCK_TYPES = (type(threading.Lock()), type(threading.RLock()))
WEAK_TYPES = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
CONTEXT_TYPES = (threading.local, contextvars.ContextVar, contextvars.Context)
# By name, so that nothing is imported to look for it.
PROCESS_TYPES = frozenset(
    {
        *(
            "os._Environ",
            "random.Random",
            "threading.Thread",
            "subprocess.Popen",
            "multiprocessing.process.BaseProcess",
        ),
        *(
            "concurrent.futures._base.Executor",
            "concurrent.futures._base.Future",
            "asyncio.events.AbstractEventLoop",
        ),
        *(
            "asyncio.futures.Future",
            "_asyncio.Future",
            "weakref.finalize",
            "tempfile.TemporaryDirectory",
            "tempfile._TemporaryFileWrapper",
        ),
        *(
            "pydantic_core._pydantic_core.SchemaValidator",
            "pydantic_core._pydantic_core.SchemaSerializer",
        ),
    }
)
# Attributes that pydantic derives from a class, with addresses in them.
PYDANTIC_PREFIXES = ("__pydantic_", "__signature__", "__class_vars__", "__private_attributes__")
PYDANTIC_FIELD = (
    "annotation",
    "default",
    "default_factory",
    "alias",
    "validation_alias",
    "validate_default",
    "frozen",
    "metadata",
)
ATTRS_FIELD = ("name", "default", "validator", "converter", "init", "kw_only", "on_setattr")
HEAP_TYPE = 1 << 9  # of a class statement: its objects keep nothing but fields
CONTENTS: dict[type[Any], Callable[[Any], Any]] = {
    int: int.__pos__,
    float: float.__pos__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple[Any, ...].__getitem__(value, slice(None)),
    list: lambda value: list[Any].__getitem__(value, slice(None)),
    dict: lambda value: dict(dict[Any, Any].items(value)),
    BaseException: lambda value: BaseException.args.__get__(value),  # pyright: ignore
}
_ACCOUNTS = (
    "__reduce_ex__",
    "__reduce__",
    "__getstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
    "__getattribute__",
)
# the methods by which they are copied
_LISTED: dict[type[Any], str] = {list: "__iter__", dict: "items"}


def tells_its_own_state(value: Any) -> bool:
    """Return True if code of the program lists the parts of an object, perhaps not all of them."""
    cls = cast("type[Any]", type(value))
    if is_own_class(cls) and cls in copyreg.dispatch_table:
        return True
    names = [*_ACCOUNTS, *[name for kind, name in _LISTED.items() if kind in cls.__mro__]]
    found = [vars(base)[name] for name in names for base in cls.__mro__[:-1] if name in vars(base)]
    if any(
        not isinstance(each, FunctionType) or is_own_function(each)
        for each in found
        if type(each) not in _OF_C
    ):
        return True
    return is_own_class(cls) and any(name in fields_of(value) for name in _ACCOUNTS)


def fields_of(value: Any) -> dict[str, Any]:
    """Return the attributes and slots of an object."""
    try:
        found: dict[str, Any] = dict(object.__getattribute__(value, "__dict__"))
    except (AttributeError, TypeError):
        found = {}
    for base in reversed(type(value).__mro__):
        for name, slot in vars(base).items():
            if isinstance(slot, types.MemberDescriptorType):
                try:
                    found[name] = slot.__get__(value)
                except AttributeError:  # not yet assigned
                    continue
    found.pop(TARGET, None)
    return found


def named_items(held: Any) -> Iterable[tuple[str, Any]]:
    return cast("dict[str, Any]", held).items() if isinstance(held, dict) else ()


_OF_C = (
    *(types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType),
    *(types.GetSetDescriptorType, types.ClassMethodDescriptorType),
)


def closure_of(function: FunctionType) -> list[tuple[str, Any]]:
    """Return the variables of the closure that are assigned by now."""
    found: list[tuple[str, Any]] = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # not yet assigned
            continue
    return found


def is_code(value: object) -> bool:
    """Return True if calling it runs code that can be read."""
    return has_parts(type(value)) or type(value) in _CODE


def has_parts(cls: type[Any]) -> bool:
    """Return True if a class has `fingerprint_parts`, which lists the parts of its objects.

    The classes' own attributes are searched, since a metaclass may answer to any name.
    """
    return any("fingerprint_parts" in vars(base) for base in cls.__mro__)


_CODE = (
    FunctionType,
    MethodType,
    partial,
    staticmethod,
    classmethod,
    property,
    type(lru_cache(len)),
)


def is_constant(value: object) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(is_constant, cast("Iterable[object]", value)))
    return type(value) in _CONSTANT_TYPES or isinstance(value, (enum.Enum, *_VALUES))


# Types of the standard library that have immutable objects.
_VALUES = (
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
    *(decimal.Decimal, fractions.Fraction, PurePath, re.Pattern, uuid.UUID),
)


def label_of(key: object) -> str:
    """Return a key of a dict as it stands in the path to a value. "": it says nothing there."""
    return key if isinstance(key, str) and key.isidentifier() else ""
