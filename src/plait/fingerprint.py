"""Fingerprints: a digest of what a function will do, the same in every process that has the same source.

Consent is given for a function as it is, so the digest covers its code, its defaults, its closure, what it wraps, the object it
is bound to, and the functions, classes and constants of the program that its code names, and theirs. It covers no address, file
name, line number or order of a set, all of which differ between two processes.

Code of the standard library and of installed packages is named, and not followed. A value whose state cannot be read (a socket, a
generator, an object of C without a representation) is listed in `unknown`: the digest does not tell two of them apart.

Data that a module keeps and changes as it runs (a list, a dict, an object) belongs to the digest only where the caller asks for
it with `state=True`. Otherwise a tool that counts its calls would be another tool after each of them.
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
import re
import sys
import sysconfig
import threading
import types
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
    """The digest of these values. With `state`, global lists, dicts and objects count by their content."""
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
            return ["module", value.__name__]
        if isinstance(value, type):
            return self._class(cast("type[Any]", value))
        parts = getattr(kind, "fingerprint_parts", None)
        if parts is not None:
            return ["parts", kind.__qualname__, [self.read(part) for part in parts(value)]]
        return self._object(value)

    def _give_up(self, why: str) -> Any:
        path = ".".join(filter(None, self._where))
        self.unknown.append(f"{path}: {why}" if path else why)
        return ["unknown"]

    # ── collections ──────────────────────────────────────────────────────────────────────────

    def read_list(self, value: list[Any]) -> Any:
        return ["list", *[self.read(item) for item in value]]

    def read_set(self, value: set[Any]) -> Any:
        return ["set", *self._unordered(value)]

    def read_dict(self, value: Mapping[Any, Any]) -> Any:
        """By key: the order of a dict may come from that of a set."""
        keys = sorted([(_ENCODE(self._alone(key)), key) for key in value], key=lambda pair: pair[0])
        return ["dict", *[[encoded.decode(), self.read(value[key], _label(key))] for encoded, key in keys]]

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
        own = is_own(function.__module__, function.__code__.co_filename)
        name = function.__qualname__ if own else f"{function.__module__}:{function.__qualname__}"
        with_it = [
            self.read(function.__defaults__, "a default"),
            self.read(function.__kwdefaults__, "a default"),
            [self._cell(function, *each) for each in _cells(function)],
            self.read({key: value for key, value in vars(function).items() if key != "__wrapped__"}),
            self.read(getattr(function, "__wrapped__", None), "__wrapped__"),
        ]
        return ["function", name, facts.digest, *with_it, self._around(function, facts) if own else []]

    def _cell(self, function: FunctionType, name: str, value: Any) -> Any:
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
        return [*found, *[self._imported(each, scope) for each in facts.imports]]

    def _global(self, value: Any, facts: _Facts, *, own: bool = False) -> Any:
        if isinstance(value, ModuleType):
            return self._module(value, facts)
        if isinstance(value, (FunctionType, type, MethodType, partial)) or self._state or _is_code(value):
            return self.read(value)
        if own:  # the function itself sets it
            return ["own"]
        if _is_constant(value):
            return self.read(value)
        return ["held", self.read(type(value))]

    def _module(self, module: ModuleType, facts: _Facts) -> Any:
        """A module of the program, as far as the code names something in it."""
        if not is_own(module.__name__, getattr(module, "__file__", None)):
            return ["module", module.__name__]
        if module in self._modules:  # it names itself, through another one
            return ["module"]
        self._modules.append(module)
        held = vars(module)
        named = [[name, self._global(held[name], facts)] for name in facts.attributes if name in held]
        self._modules.pop()
        return ["module", named]

    def _imported(self, wanted: tuple[str, int], scope: Mapping[str, Any]) -> Any:
        """A module that a function imports when it runs: by its source, since importing it now would run it."""
        name, level = wanted
        if level:
            package = str(scope.get("__package__") or "").split(".")
            name = ".".join([*package[: len(package) - level + 1], *([name] if name else [])])
        file = source_file(name)
        if file is None or not is_own(name, str(file)):
            return ["import", name]
        try:
            code = compile(file.read_bytes(), "", "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError):
            return self._give_up(f"it imports {name}, which cannot be read")
        return ["import", wanted[0], _facts(code).digest]

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
        if not is_own(cls.__module__, _file_of(cls.__module__)):
            return ["class", f"{cls.__module__}:{cls.__qualname__}"]
        if issubclass(cls, enum.Enum):
            members = [[name, self.read(each.value)] for name, each in cls.__members__.items()]
            return ["enum", cls.__qualname__, members, self._attributes(cls, set(vars(cls)) - set(cls.__members__))]
        bases = [self.read(base) for base in cls.__bases__ if base is not object]
        return ["class", cls.__qualname__, bases, self._attributes(cls, vars(cls))]

    def _attributes(self, cls: type[Any], names: Iterable[str]) -> Any:
        held = vars(cls)
        wanted = sorted(name for name in names if name not in _NO_CODE and not name.startswith("_abc_"))
        return [[name, self._attribute(held[name], f"{cls.__qualname__}.{name}")] for name in wanted]

    def _attribute(self, value: Any, where: str) -> Any:
        if self._state or _is_code(value) or _is_constant(value) or callable(value):
            return self.read(value, where)
        return ["held", self.read(type(value))]

    def _object(self, value: Any) -> Any:
        cls = cast("type[Any]", type(value))
        if isinstance(value, enum.Enum):
            return ["member", self.read(cls), value.name]
        if isinstance(value, _STATELESS):
            return ["object", cls.__qualname__]
        if isinstance(value, (set, frozenset)):
            items = self._unordered(cast("Iterable[Any]", value))
            return ["object", self.read(cls), items, self.read(getattr(cast("object", value), "__dict__", None))]
        if any(value is stream for stream in (sys.stdin, sys.stdout, sys.stderr)):
            return ["stream", value.name]
        if cls.__module__.startswith("plait.model.") and isinstance(getattr(value, "name", None), str):
            return ["model", cls.__qualname__, value.name]
        return self._reduced(value)

    def _reduced(self, value: Any) -> Any:
        """What an object is made of, by its own account: that which copying and pickling use."""
        kind = cast("type[Any]", type(value))
        reduce = copyreg.dispatch_table.get(kind)
        try:
            made = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        except Exception:  # it cannot be copied, or what it does to be copied fails
            return self._give_up(f"the state of a {type(value).__qualname__} cannot be read")
        if isinstance(made, str):
            return ["global", type(value).__qualname__, made]
        function, arguments, *more = made
        state, items, pairs = (*more, None, None, None)[:3]
        if isinstance(state, dict):
            state = {key: each for key, each in cast("dict[Any, Any]", state).items() if key != TARGET}
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


# Objects that guard or keep, and do nothing of their own.
_STATELESS = (
    *(type(threading.Lock()), type(threading.RLock()), threading.local, contextvars.ContextVar),
    *(weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet, weakref.ref),
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
    return hasattr(type(value), "fingerprint_parts") or type(value) in _CODE


_CODE = (FunctionType, MethodType, partial, staticmethod, classmethod, property, type(lru_cache(len)))


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


class _Facts(NamedTuple):
    """What code says of itself, with the code inside it."""

    digest: str
    globals: tuple[str, ...]  # names that it looks up around it
    attributes: tuple[str, ...]
    imports: tuple[tuple[str, int], ...]  # modules that it imports, and how many packages up
    stored: frozenset[str]  # globals that it sets


@lru_cache(4096)
def _facts(code: CodeType) -> _Facts:
    names: dict[str, set[Any]] = {"global": set(), "attribute": set(), "stored": set(), "import": set()}
    read = _steps(code, names)
    found = {kind: tuple(sorted(each)) for kind, each in names.items()}
    text = digest(_TAG, _ENCODE(read))
    return _Facts(text, found["global"], found["attribute"], found["import"], frozenset(found["stored"]))


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
    if isinstance(value, tuple):
        return ["tuple", *[_constant(item, names) for item in cast("tuple[Any, ...]", value)]]
    if isinstance(value, frozenset):
        items = [_constant(item, names) for item in cast("frozenset[Any]", value)]
        return ["frozenset", *sorted(items, key=_ENCODE)]
    return [type(value).__name__, ascii(value)]


# ── whose code it is ─────────────────────────────────────────────────────────────────────────


@lru_cache(4096)
def is_own(module: str | None, file: str | None) -> bool:
    """Whether a module is the program's own: of neither the standard library, an installed package nor Plait."""
    top = (module or "").partition(".")[0]
    if top in sys.stdlib_module_names or top == __name__.partition(".")[0]:
        return top == "__main__"
    return file is None or not any(file.startswith(folder) for folder in _installed())


@lru_cache(1)
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("purelib", "platlib") if paths.get(name)}
    found |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    return tuple(sorted(f"{path}/" for path in found))


def _file_of(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)


def source_file(module: str, folders: Iterable[str] | None = None) -> Path | None:
    """The file that a module's source is in, found without importing anything. None: there is none."""
    path: Iterable[str] | None = folders
    spec: ModuleSpec | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            spec = PathFinder.find_spec(name, list(path) if path is not None else None)
        except (ImportError, ValueError, AttributeError):
            return None
        if spec is None:
            return None
        path = spec.submodule_search_locations or ()
    origin = spec.origin if spec is not None else None
    return Path(origin) if origin and origin.endswith(".py") else None
