"""Fingerprints: a digest of what a function will do, the same in every process that has the same
source.

Consent is given for a function as it is, so the digest covers its code, its defaults, its closure,
what it wraps, the object it is bound to, and the functions, classes and constants of the program
that its code names, and theirs. It covers no address, file name, line number or order of a set, all
of which differ between two processes.

Code of the standard library and of installed packages is named, and not followed. A value whose
state cannot be read (a socket, a generator, an object of C without a representation), or that
belongs to one process, thread or context (a thread, the environment, a ContextVar), is listed in
`unknown`: the digest does not tell two of them apart.

Objects are read by the account that they give of themselves to `copy` and `pickle`, unless that
account is code of the program: such an object is read field by field.

Data that a module keeps and changes as it runs (a list, a dict, an object) belongs to the digest
only where the caller asks for it with `state=True`. Otherwise a tool that counts its calls would be
another tool after each of them.
"""

from __future__ import annotations

import builtins
import contextvars
import copyreg
import datetime
import decimal
import dis
import enum
import fractions
import os
import re
import sys
import sysconfig
import threading
import types
import typing
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, cast

import msgspec

from plait.ids import Digest, digest

NODES_MAX = 20_000  # values that are read for one fingerprint
DEPTH_MAX = 60  # how deep they are nested
TARGET = "_plait_target"  # where a workflow object was loaded from: no part of what it does

_TAG = b"plait/fingerprint/1"
_ENCODE = msgspec.json.Encoder(order="deterministic").encode
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented))
_CONSTANT = (*_PLAIN, tuple, frozenset, range)


class Fingerprint(NamedTuple):
    digest: Digest
    unknown: tuple[str, ...]  # values whose state the digest does not cover, and why


def fingerprint(*values: object, state: bool = False) -> Fingerprint:
    """The digest of these values.

    With `state`, global lists, dicts and objects count by their content.
    """
    reader = _Reader(state)
    read = [reader.read(value) for value in values]
    return Fingerprint(digest(_TAG, _ENCODE(read)), tuple(dict.fromkeys(reader.unknown)))


# ── values ───────────────────────────────────────────────────────────────────────────────────


class _Reader:
    """Reads values into plain data. A value that was read before is told by its number."""

    def __init__(self, state: bool, apart: int = 0) -> None:
        self.unknown: list[str] = []
        self._state, self._apart = state, apart
        self._seen: dict[int, int] = {}
        self._alive: list[object] = []  # an id is only good as long as its object lives
        self._where: list[str] = []
        self._modules: list[ModuleType] = []  # those that are being read
        self._caches = set[int]()  # objects that keep for a library what it can make anew
        self._nodes = 0

    def read(self, value: Any, where: str = "") -> Any:
        kind = cast("type[Any]", type(value))
        if kind in _PLAIN:
            return [kind.__name__, ascii(value)]
        self._nodes += 1
        if self._nodes > NODES_MAX or len(self._where) > DEPTH_MAX:
            return self._give_up("it holds too much to be read whole")
        if kind is tuple:
            return ["tuple", *[self.read(item) for item in value]]
        if kind is frozenset:
            return ["frozenset", *self._unordered(value)]
        if id(value) in self._seen:
            return ["seen", self._seen[id(value)]]
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        self._where.append(where)
        try:
            return self._read_new(value)
        except RecursionError:
            return self._give_up("it is nested too deep")
        finally:
            self._where.pop()

    def _read_new(self, value: Any) -> Any:
        kind = cast("type[Any]", type(value))
        read = _READERS.get(kind)
        if read is not None:
            return read(self, value)
        if isinstance(value, ModuleType):
            read = ["module", value.__name__]
            is_read = not is_own(value.__name__, getattr(value, "__file__", None))
            return (
                read
                if is_read
                else self._doubt(
                    "a module of the program is a value, and may be used in any way", read
                )
            )
        if isinstance(value, type):
            return self._class(cast("type[Any]", value))
        if _has_parts(kind):
            read = [
                "parts",
                kind.__qualname__,
                [self.read(part) for part in kind.fingerprint_parts(value)],
            ]
            return [*read, self.read(kind)] if is_own_class(kind) else read
        return self._object(value)

    def _give_up(self, why: str) -> Any:
        path = ".".join(filter(None, self._where))
        self.unknown.append(f"{path}: {why}" if path else why)
        return ["unknown"]

    def _doubt(self, why: str, read: Any) -> Any:
        """Read as it is, and say that this does not cover all of it."""
        self._give_up(why)
        return read

    # ── collections ──────────────────────────────────────────────────────────────────────────

    def read_list(self, value: list[Any]) -> Any:
        return ["list", *[self.read(item) for item in value]]

    def read_set(self, value: set[Any]) -> Any:
        return ["set", *self._unordered(value)]

    def read_dict(self, value: Mapping[Any, Any]) -> Any:
        """By key: the order of a dict may come from that of a set."""
        keys = sorted([(_ENCODE(self._alone(key)), key) for key in value], key=lambda pair: pair[0])
        return [
            "dict",
            *[[encoded.decode(), self.read(value[key], _label(key))] for encoded, key in keys],
        ]

    def _unordered(self, items: Iterable[Any]) -> list[Any]:
        return sorted([self._alone(item) for item in items], key=_ENCODE)

    def _alone(self, item: Any) -> Any:
        """Read without numbers of what was read before: a set hands its items over in any order."""
        if type(item) in _PLAIN:
            return self.read(item)
        if self._apart > 3:
            return self._give_up("it holds itself through a set")
        reader = _Reader(self._state, self._apart + 1)
        reader._where = list(self._where)
        read = reader.read(item)
        self._nodes += reader._nodes
        self.unknown += reader.unknown
        return read

    # ── functions ────────────────────────────────────────────────────────────────────────────

    def read_function(self, function: FunctionType) -> Any:
        facts = _facts(function.__code__)
        own = _is_own_function(function)
        name = function.__qualname__ if own else f"{function.__module__}:{function.__qualname__}"
        if not own:  # a cache of a library's: that of `singledispatch`
            self._caches |= {
                id(cast("object", value))
                for _, value in _cells(function)
                if isinstance(value, _WEAK)
            }
        with_it = [
            self.read(function.__defaults__, "a default"),
            self.read(function.__kwdefaults__, "a default"),
            [self._cell(function, *each) for each in _cells(function)],
            self.read(
                {key: value for key, value in vars(function).items() if key != "__wrapped__"}
            ),
            self.read(getattr(function, "__wrapped__", None), "__wrapped__"),
        ]
        return [
            "function",
            name,
            facts.digest,
            *with_it,
            self._around(function, facts) if own else [],
        ]

    def _cell(self, function: FunctionType, name: str, value: Any) -> Any:
        if isinstance(value, ModuleType):
            return [name, self._module(value, _facts(function.__code__))]
        return [name, self.read(value, f"{name} in {function.__qualname__}")]

    def _around(self, function: FunctionType, facts: _Facts) -> Any:
        """The globals that a function names, by what they are now."""
        found: list[Any] = []
        scope = function.__globals__
        for name in facts.globals:
            if name in scope:
                found.append([name, self._global(scope[name], facts, own=name in facts.stored)])
            elif not hasattr(builtins, name):
                found.append([name, "absent"])
        package = str(scope.get("__package__") or "")
        return [*found, *[self._imported(each, package, facts) for each in facts.imports]]

    def _global(self, value: Any, facts: _Facts, *, own: bool = False) -> Any:
        if isinstance(value, ModuleType):
            return self._module(value, facts)
        if (
            isinstance(value, (FunctionType, type, MethodType, partial))
            or self._state
            or _is_code(value)
        ):
            return self.read(value)
        if own:  # the function itself sets it
            return ["own"]
        if _is_constant(value):
            return self.read(value)
        return self._held(value)

    def _held(self, value: Any) -> Any:
        """An object that is kept to be worked on: by its class.

        If it is called, also by the functions in it.
        """
        cls = cast("type[Any]", type(value))
        is_descriptor = hasattr(cls, "__get__") and cls not in _READERS
        if is_descriptor and not is_own_class(cls):  # functools.cached_property
            return self.read(value)
        read = ["held", self.read(cls)]
        if is_own_class(cls) and (is_descriptor or callable(value)):  # a decorator may be an object
            called = {name: each for name, each in _fields_of(value).items() if _is_code(each)}
            return [*read, self.read(called)] if called else read
        return read

    def _module(self, module: ModuleType, facts: _Facts) -> Any:
        """A module of the program, as far as the code names something in it."""
        if not is_own(module.__name__, getattr(module, "__file__", None)):
            return ["module", module.__name__]
        if module in self._modules:  # it names itself, through another one
            return ["module"]
        self._modules.append(module)
        held = vars(module)
        named = [
            [name, self._global(held[name], facts)] for name in facts.attributes if name in held
        ]
        self._modules.pop()
        return ["module", named]

    def _imported(self, wanted: _Import, package: str, facts: _Facts) -> Any:
        """A module that a function imports when it runs: by its source, since importing it now
        would run it.
        """
        name = _absolute(wanted, package)
        roots = [name, *[f"{name}.{item}" for each, item in facts.items if each == wanted]]
        sources = self._sources(roots)
        first = sources.pop(name, None)
        read = ["import", name] if first is None else ["import", wanted[0], first]
        return [*read, sorted(sources.items())] if sources else read

    def _sources(self, names: Iterable[str]) -> dict[str, str]:
        """The digests of the program's own modules that these names stand for, and of all that
        those import.
        """
        found: dict[str, str] = {}
        todo, done = list(names), set[str]()
        while todo:
            name = todo.pop()
            if name in done:
                continue
            done.add(name)
            # the package is imported before it
            todo += [name.rpartition(".")[0]] if "." in name else []
            origin = _origin(name)
            if origin is None or not is_own(name, origin):
                continue
            self._nodes += 1
            if not origin.endswith(".py") or self._nodes > NODES_MAX:
                self._give_up(f"it imports {name}, which has no source to read")
                continue
            try:
                facts = _source_facts(Path(origin).read_bytes())
            except (OSError, SyntaxError, ValueError):
                self._give_up(f"it imports {name}, which cannot be read")
                continue
            found[name] = facts.digest
            package = name if Path(origin).name == "__init__.py" else name.rpartition(".")[0]
            todo += [_absolute(each, package) for each in facts.imports]
            todo += [f"{_absolute(each, package)}.{item}" for each, item in facts.items]
        return found

    def read_method(self, method: MethodType) -> Any:
        return ["method", self.read(method.__func__), self.read(method.__self__, "self")]

    def read_partial(self, value: partial[Any]) -> Any:
        named = {**value.keywords, **vars(value)}
        return ["partial", self.read(value.func), self.read(value.args), self.read(named)]

    def read_builtin(self, function: Any) -> Any:
        """A function of C: by its name, with what it is bound to."""
        bound = getattr(function, "__self__", None)
        name = getattr(function, "__qualname__", function.__name__)
        if bound is None or isinstance(bound, ModuleType):
            return ["builtin", getattr(function, "__module__", None) or "", name]
        return ["builtin", name, self.read(bound, name)]

    def read_descriptor(self, value: Any) -> Any:
        return ["descriptor", value.__objclass__.__qualname__, value.__name__]

    def read_code(self, code: CodeType) -> Any:
        return ["code", _facts(code).digest]

    def read_wrapped(self, value: Any) -> Any:
        return [type(value).__name__, self.read(value.__func__)]

    def read_property(self, value: property) -> Any:
        return ["property", self.read(value.fget), self.read(value.fset), self.read(value.fdel)]

    def read_cached(self, value: Any) -> Any:
        """A cache holds what its function returned, and that is no part of what it does."""
        return ["cached", self.read(value.cache_parameters()), self.read(value.__wrapped__)]

    # ── classes and objects ──────────────────────────────────────────────────────────────────

    def _class(self, cls: type[Any]) -> Any:
        if not is_own_class(cls):
            return ["class", f"{_home_of(cls)}:{cls.__qualname__}"]
        if issubclass(cls, enum.Enum):
            members = [[name, self.read(each.value)] for name, each in cls.__members__.items()]
            return [
                "enum",
                cls.__qualname__,
                members,
                self._attributes(cls, set(vars(cls)) - set(cls.__members__)),
            ]
        bases = [self.read(base) for base in cls.__bases__ if base is not object]
        names = [name for name in vars(cls) if not name.startswith(_PYDANTIC)]
        read = ["class", cls.__qualname__, bases, self._attributes(cls, names)]
        return [*read, *self._declared(cls)]

    def _declared(self, cls: type[Any]) -> Iterable[Any]:
        """Code and values of a class that are no attributes of it: its metaclass, defaults and
        validators of its fields.
        """
        if is_own_class(type(cls)):
            yield ["metaclass", self.read(type(cls))]
        is_struct = issubclass(type(cls), type(msgspec.Struct))
        defaults = cast("tuple[Any, ...]", cls.__struct_defaults__) if is_struct else ()
        if defaults:
            yield ["defaults", [self.read(getattr(each, "factory", each)) for each in defaults]]
        if "__attrs_attrs__" in vars(cls):
            yield ["fields", [self._field(each, _ATTRS_FIELD) for each in cls.__attrs_attrs__]]
        if "__pydantic_fields__" in vars(cls):
            yield [
                "fields",
                [
                    [name, self._field(each, _PYDANTIC_FIELD)]
                    for name, each in cls.__pydantic_fields__.items()
                ],
            ]
            yield [
                "settings",
                self.read(vars(cls).get("model_config")),
                self.read(vars(cls).get("__private_attributes__")),
            ]
            groups = _fields_of(vars(cls).get("__pydantic_decorators__"))
            marked = [
                (group, name, each.info)
                for group, held in sorted(groups.items())
                for name, each in _items(held)
            ]
            yield ["decorators", [[group, name, self.read(info)] for group, name, info in marked]]

    def _field(self, field: Any, parts: Iterable[str]) -> Any:
        return [self.read(getattr(field, part, None)) for part in parts]

    def _attributes(self, cls: type[Any], names: Iterable[str]) -> Any:
        held = vars(cls)
        wanted = sorted(
            name for name in names if name not in _NO_CODE and not name.startswith("_abc_")
        )
        return [
            [name, self._attribute(held[name], f"{cls.__qualname__}.{name}")] for name in wanted
        ]

    def _attribute(self, value: Any, where: str) -> Any:
        if self._state or _is_code(value) or _is_constant(value) or callable(value):
            return self.read(value, where)
        return self._held(value)

    def _object(self, value: Any) -> Any:
        cls = cast("type[Any]", type(value))
        if isinstance(value, enum.Enum):
            return ["member", self.read(cls), value.name]
        if isinstance(value, _LOCKS):
            return ["object", cls.__qualname__]
        if isinstance(value, _WEAK):
            read = ["object", cls.__qualname__]
            if id(cast("object", value)) in self._caches or not len(cast("Any", value)):
                return read
            return self._doubt(f"a {cls.__qualname__} holds what is alive", read)
        if isinstance(value, _AROUND):
            return self._doubt(
                f"a {cls.__qualname__} has a value for each context", ["object", cls.__qualname__]
            )
        if isinstance(value, weakref.ref):
            return ["weakref", self.read(cls), self.read(cast("Any", value)())]
        if {f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__} & _OF_ITS_PROCESS:
            return self._give_up(f"a {cls.__qualname__} belongs to its process")
        if isinstance(value, (set, frozenset)):
            listed = set[Any].__iter__ if set in cls.__mro__ else frozenset[Any].__iter__
            items = self._unordered(listed(cast("Any", value)))
            return [
                "object",
                self.read(cls),
                items,
                self.read(getattr(cast("object", value), "__dict__", None)),
            ]
        if any(value is stream for stream in (sys.stdin, sys.stdout, sys.stderr)):
            return ["stream", value.name]
        if cls.__module__.startswith("plait.model.") and isinstance(
            getattr(value, "name", None), str
        ):
            return ["model", cls.__qualname__, value.name]
        return self._fields(value) if _tells_its_own_state(value) else self._reduced(value)

    def read_proxy(self, value: Any) -> Any:
        try:
            return ["weakref", self.read(value.__reduce_ex__.__self__)]
        except ReferenceError:
            return ["weakref", None]

    def _fields(self, value: Any) -> Any:
        """An object field by field, without asking it."""
        cls = cast("type[Any]", type(value))
        solid = next(base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE)
        read = ["fields", self.read(cls), self.read(_fields_of(value))]
        if solid is object:
            return read
        contents = next((_CONTENTS[base] for base in solid.__mro__ if base in _CONTENTS), None)
        if contents is None:
            return self._doubt(f"the state of a {cls.__qualname__} cannot be read", read)
        return [*read, self.read(contents(value))]

    def _reduced(self, value: Any) -> Any:
        """What an object is made of, by its own account: that which copying and pickling use."""
        kind = cast("type[Any]", type(value))
        reduce = copyreg.dispatch_table.get(kind)
        if isinstance(reduce, FunctionType) and _is_own_function(reduce):
            reduce = None
        try:
            made = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        except Exception:  # it cannot be copied, or what it does to be copied fails
            return self._give_up(f"the state of a {type(value).__qualname__} cannot be read")
        if isinstance(made, str):
            return ["global", type(value).__qualname__, made]
        function, arguments, *more = made
        state, items, pairs = (*more, None, None, None)[:3]
        if isinstance(state, dict):
            state = {
                key: each for key, each in cast("dict[Any, Any]", state).items() if key != TARGET
            }
        name: Any = None if function in _NEW else self.read(function)
        return [
            "object",
            name,
            self.read(arguments),
            self.read(state),
            self.read(list(items) if items is not None else None),
            self.read(dict(pairs) if pairs is not None else None),
        ]


_NEW = (getattr(copyreg, "__newobj__", None), getattr(copyreg, "__newobj_ex__", None))
_NO_CODE = frozenset(
    {
        *("__module__", "__dict__", "__weakref__", "__doc__", "__qualname__", "__annotations__"),
        *("__firstlineno__", "__static_attributes__", "__annotate__", "__annotate_func__"),
        *("__annotations_cache__", "__orig_bases__", "__parameters__", "__type_params__"),
    }
)


# Objects that guard, and do nothing of their own.
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
_AROUND = (threading.local, contextvars.ContextVar, contextvars.Context)
# By name, so that nothing is imported to look for it.
_OF_ITS_PROCESS = frozenset(
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
# What pydantic derives from a class, with addresses in it.
_PYDANTIC = ("__pydantic_", "__signature__", "__class_vars__", "__private_attributes__")
_PYDANTIC_FIELD = (
    "annotation",
    "default",
    "default_factory",
    "alias",
    "validation_alias",
    "validate_default",
    "frozen",
    "metadata",
)
_ATTRS_FIELD = ("name", "default", "validator", "converter", "init", "kw_only", "on_setattr")

_HEAP_TYPE = 1 << 9  # of a class statement: its objects keep nothing but fields
_CONTENTS: dict[type[Any], Callable[[Any], Any]] = {
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


def _tells_its_own_state(value: Any) -> bool:
    """Whether code of the program says what an object is made of. It may leave out what matters."""
    cls = cast("type[Any]", type(value))
    if is_own_class(cls) and cls in copyreg.dispatch_table:
        return True
    names = [*_ACCOUNTS, *[name for kind, name in _LISTED.items() if kind in cls.__mro__]]
    found = [vars(base)[name] for name in names for base in cls.__mro__[:-1] if name in vars(base)]
    if any(
        not isinstance(each, FunctionType) or _is_own_function(each)
        for each in found
        if type(each) not in _OF_C
    ):
        return True
    return is_own_class(cls) and any(name in _fields_of(value) for name in _ACCOUNTS)


def _fields_of(value: Any) -> dict[str, Any]:
    """The attributes and slots of an object."""
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


def _items(held: Any) -> Iterable[tuple[str, Any]]:
    return cast("dict[str, Any]", held).items() if isinstance(held, dict) else ()


_OF_C = (
    *(types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType),
    *(types.GetSetDescriptorType, types.ClassMethodDescriptorType),
)
_READERS: dict[type[Any], Callable[[_Reader, Any], Any]] = {
    list: _Reader.read_list,
    set: _Reader.read_set,
    dict: _Reader.read_dict,
    types.MappingProxyType: _Reader.read_dict,
    FunctionType: _Reader.read_function,
    MethodType: _Reader.read_method,
    CodeType: _Reader.read_code,
    partial: _Reader.read_partial,
    types.BuiltinFunctionType: _Reader.read_builtin,
    types.MethodWrapperType: _Reader.read_builtin,
    types.MemberDescriptorType: _Reader.read_descriptor,
    types.GetSetDescriptorType: _Reader.read_descriptor,
    types.WrapperDescriptorType: _Reader.read_descriptor,
    types.MethodDescriptorType: _Reader.read_descriptor,
    types.ClassMethodDescriptorType: _Reader.read_descriptor,
    staticmethod: _Reader.read_wrapped,
    classmethod: _Reader.read_wrapped,
    property: _Reader.read_property,
    type(lru_cache(len)): _Reader.read_cached,
    weakref.ProxyType: _Reader.read_proxy,
    weakref.CallableProxyType: _Reader.read_proxy,
}


def _label(key: object) -> str:
    return key if isinstance(key, str) and key.isidentifier() else ""


def _cells(function: FunctionType) -> list[tuple[str, Any]]:
    """The closure, as far as it is assigned by now."""
    found: list[tuple[str, Any]] = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # not yet assigned
            continue
    return found


def _is_code(value: object) -> bool:
    """Whether calling it runs something that can be read."""
    return _has_parts(type(value)) or type(value) in _CODE


def _has_parts(cls: type[Any]) -> bool:
    """Whether a class says what its objects are made of.

    A metaclass is not asked: it may have an answer to any name.
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


def _is_constant(value: object) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(_is_constant, cast("Iterable[object]", value)))
    return type(value) in _CONSTANT or isinstance(value, (enum.Enum, *_VALUES))


# Types of the standard library whose objects never change.
_VALUES = (
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
    *(decimal.Decimal, fractions.Fraction, PurePath, re.Pattern, uuid.UUID),
)


# ── code ─────────────────────────────────────────────────────────────────────────────────────


_Import = tuple[str, int]  # a module, and how many packages up


class _Facts(NamedTuple):
    """What code says of itself, with the code inside it."""

    digest: str
    globals: tuple[str, ...]  # names that it looks up around it
    attributes: tuple[str, ...]
    imports: tuple[_Import, ...]
    items: tuple[tuple[_Import, str], ...]  # what it imports from them, which may be a module, too
    stored: frozenset[str]  # globals that it sets


@lru_cache(4096)
def _facts(code: CodeType) -> _Facts:
    names: dict[str, set[Any]] = {
        kind: set() for kind in ("global", "attribute", "stored", "import", "item", "text")
    }
    read = _steps(code, names)
    if {"import_module", "__import__"} & (names["attribute"] | names["global"]):
        names["import"] |= {(text, 0) for text in names["text"]}
    found = {kind: tuple(sorted(each)) for kind, each in names.items()}
    text = digest(_TAG, _ENCODE(read))
    return _Facts(
        text,
        found["global"],
        found["attribute"],
        found["import"],
        found["item"],
        frozenset(found["stored"]),
    )


@lru_cache(1024)
def _source_facts(source: bytes) -> _Facts:
    return _facts(compile(source, "", "exec", dont_inherit=True))


def _absolute(wanted: _Import, package: str) -> str:
    name, level = wanted
    if not level:
        return name
    above = package.split(".")
    return ".".join([*above[: len(above) - level + 1], *([name] if name else [])])


def _steps(code: CodeType, names: dict[str, set[Any]]) -> Any:
    """The instructions, constants by value and not by number; fills in the names they use."""
    steps: list[Any] = []
    level = 0
    listed = list(dis.get_instructions(code))
    for at, step in enumerate(listed):
        after = listed[at + 1] if at + 1 < len(listed) else None
        if after is not None and after.argval == "__firstlineno__" and after.opname == "STORE_NAME":
            continue  # the number of a line
        name, value = step.opname, step.argval
        if name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            names["global"].add(value)
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            names["attribute"].add(value)
        elif name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            names["stored"].add(value)
        elif name == "IMPORT_NAME":
            names["import"].add((value, level))
            before = listed[at - 1].argval
            names["item"] |= {((value, level), item) for item in before or () if item != "*"}
        if name == "LOAD_SMALL_INT" or (step.opcode in dis.hasconst and type(value) is int):
            level = value  # an import has its level two constants before it
        if step.opcode in dis.hasconst:
            steps.append([name, _constant(value, names)])
        else:
            steps.append([name, step.arg, value if isinstance(value, str) else None])
    shape = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    variables = [*code.co_varnames, *code.co_cellvars, *code.co_freevars]
    return [shape, variables, steps, getattr(code, "co_exceptiontable", b"").hex()]


def _constant(value: Any, names: dict[str, set[Any]]) -> Any:
    if isinstance(value, CodeType):
        return ["code", value.co_name, _steps(value, names)]
    if isinstance(value, str) and all(part.isidentifier() for part in value.split(".")):
        names["text"].add(value)
    if isinstance(value, tuple):
        return ["tuple", *[_constant(item, names) for item in cast("tuple[Any, ...]", value)]]
    if isinstance(value, frozenset):
        items = [_constant(item, names) for item in cast("frozenset[Any]", value)]
        return ["frozenset", *sorted(items, key=_ENCODE)]
    return [type(value).__name__, ascii(value)]


# ── whose code it is ─────────────────────────────────────────────────────────────────────────


@lru_cache(4096)
def is_own(module: str | None, file: str | None) -> bool:
    """Whether a module is the program's own: of neither the standard library, an installed package
    nor Plait.
    """
    top = (module or "").partition(".")[0]
    if top == _PLAIT:
        return False
    if top in sys.stdlib_module_names and top != "__main__":
        # A file of the program may have the name of one of the library's modules.
        return (
            file is not None
            and os.path.isabs(file)
            and not file.startswith((*_libraries(), *_installed()))
        )
    return file is None or not file.startswith(_installed())


_PLAIT = __name__.partition(".")[0]


def _is_own_function(function: FunctionType) -> bool:
    """By where its code is from, too: `functools.wraps` copies the name of a module from what is
    wrapped.
    """
    file, scope = function.__code__.co_filename, function.__globals__
    return is_own(function.__module__, file) or is_own(
        cast("str | None", scope.get("__name__")), file
    )


def is_own_class(cls: type[Any]) -> bool:
    """By where its methods are from, too."""
    if is_own(cls.__module__, _file_of(cls.__module__)):
        return True
    functions = [each for each in vars(cls).values() if isinstance(each, FunctionType)]
    modules = {str(each.__globals__.get("__name__")) for each in functions}
    return any(name in sys.modules and is_own(name, _file_of(name)) for name in modules)


def _home_of(cls: type[Any]) -> str:
    """The module that a class is named by in a digest."""
    module = cls.__module__
    return next((home for home in _HOMES if module.startswith(f"{home}.")), module)


# Packages that name their classes as one module: a class may move inside, and no digest changes.
_HOMES = ("plait.errors", "plait.event.kinds")


def own_types(hints: Iterable[Any]) -> tuple[type[Any], ...]:
    """The program's own classes in these types, and in the fields of those classes."""
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
        *[each.annotation for _, each in _items(getattr(cls, "__pydantic_fields__", None))],
    ]


@lru_cache(1)
def _libraries() -> tuple[str, ...]:
    folders = {
        os.path.dirname(os.__file__),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")),
    }
    return tuple(sorted(f"{folder}/" for folder in folders | set(map(os.path.realpath, folders))))


@lru_cache(1)
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("purelib", "platlib") if paths.get(name)}
    found |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    return tuple(sorted(f"{path}/" for path in found))


def _file_of(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)


def source_file(module: str, folders: Iterable[str] | None = None) -> Path | None:
    """The file that a module's source is in, found without importing anything.

    None: there is none.
    """
    spec = module_spec(module, folders)
    origin = spec.origin if spec is not None else None
    return Path(origin) if origin and origin.endswith(".py") else None


def _origin(module: str) -> str | None:
    """The file that an import of a module would take. None: there is none, or it is a folder."""
    spec = module_spec(module)
    if spec is not None:
        return spec.origin if spec.has_location else None
    return _file_of(module)


def module_spec(module: str, folders: Iterable[str] | None = None) -> ModuleSpec | None:
    """Where an import finds a module, without importing anything. None: it finds none."""
    path: Iterable[str] | None = folders
    spec: ModuleSpec | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            spec = _found(name, list(path) if path is not None else None, anywhere=folders is None)
        except (ImportError, ValueError, AttributeError):
            return None
        if spec is None:
            return None
        path = spec.submodule_search_locations or ()
    return spec


def _found(name: str, path: list[str] | None, *, anywhere: bool) -> ModuleSpec | None:
    """Ask the finders that an import asks: a module beside a file, or of an editable package, is
    not on the path.
    """
    if not anywhere:
        return PathFinder.find_spec(name, path)
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, None) if find is not None else None
        if spec is not None:
            return spec
    return None
