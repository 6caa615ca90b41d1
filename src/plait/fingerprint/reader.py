"""Reads values into plain data that can be hashed."""

from __future__ import annotations

import builtins
import copyreg
import enum
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, cast

from plait.fingerprint.code import (
    CodeFacts,
    ImportedModule,
    absolute_name,
    encode_sorted,
    facts_of,
)
from plait.fingerprint.declarations import read_declarations
from plait.fingerprint.descriptors import DESCRIPTORS
from plait.fingerprint.imports import read_imports
from plait.fingerprint.objects import (
    CONTENTS,
    CONTEXT_TYPES,
    HEAP_TYPE,
    LOCK_TYPES,
    NEW_OBJECT,
    NOT_CODE,
    PLAIN_TYPES,
    PROCESS_TYPES,
    PYDANTIC_PREFIXES,
    TARGET,
    WEAK_TYPES,
    WRAPPED_FORWARD,
    closure_of,
    fields_of,
    has_parts,
    is_code,
    is_constant,
    label_of,
    tells_its_own_state,
)
from plait.fingerprint.ownership import (
    home_of,
    is_own,
    is_own_class,
    is_own_function,
)

NODES_MAX = 20_000  # values that are read for one fingerprint
DEPTH_MAX = 60  # how deep they are nested


class ValueReader:
    """Reads values into plain data. A value that was read before is represented by its number."""

    def __init__(self, state: bool, apart: int = 0) -> None:
        self.unknown: list[str] = []
        self._state, self._apart = state, apart
        self._seen: dict[int, int] = {}
        self._alive: list[object] = []  # an id is only good as long as its object lives
        self._where: list[str] = []
        self._modules: list[ModuleType] = []  # those that are being read
        self._caches = set[int]()  # caches of a library, which it can fill anew
        self._nodes = 0

    def read_value(self, value: Any, where: str = "") -> Any:
        kind = cast("type[Any]", type(value))
        if kind in PLAIN_TYPES:
            return [kind.__name__, ascii(value)]
        self._nodes += 1
        if self._nodes > NODES_MAX or len(self._where) > DEPTH_MAX:
            return self._give_up("it holds too much to be read whole")
        if kind is tuple:
            return ["tuple", *[self.read_value(item) for item in value]]
        if kind is frozenset:
            return ["frozenset", *self._read_unordered(value)]
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
        if kind in DESCRIPTORS:
            return DESCRIPTORS[kind](value, self.read_value)
        if isinstance(value, ModuleType):
            read = ["module", value.__name__]
            is_read = not is_own(value.__name__, getattr(value, "__file__", None))
            return (
                read
                if is_read
                else self._note_doubt(
                    "a module of the program is a value, and may be used in any way", read
                )
            )
        if isinstance(value, type):
            return self._class(cast("type[Any]", value))
        if has_parts(kind):
            read = [
                "parts",
                kind.__qualname__,
                [self.read_value(part) for part in kind.fingerprint_parts(value)],
            ]
            return [*read, self.read_value(kind)] if is_own_class(kind) else read
        return self._object(value)

    def _give_up(self, why: str) -> Any:
        path = ".".join(filter(None, self._where))
        self.unknown.append(f"{path}: {why}" if path else why)
        return ["unknown"]

    def _note_doubt(self, why: str, read: Any) -> Any:
        """Return `read`, and note that it does not cover the whole value."""
        self._give_up(why)
        return read

    def read_list(self, value: list[Any]) -> Any:
        return ["list", *[self.read_value(item) for item in value]]

    def read_set(self, value: set[Any]) -> Any:
        return ["set", *self._read_unordered(value.copy())]

    def read_dict(self, value: Mapping[Any, Any]) -> Any:
        """Read items sorted by key: the order of a dict may come from that of a set."""
        items = dict(value)  # a copy: another thread may change the dict while it is read
        keys = sorted(
            [(encode_sorted(self._read_alone(key)), key) for key in items], key=lambda pair: pair[0]
        )
        return [
            "dict",
            *[
                [encoded.decode(), self.read_value(items[key], label_of(key))]
                for encoded, key in keys
            ],
        ]

    def _read_unordered(self, items: Iterable[Any]) -> list[Any]:
        return sorted([self._read_alone(item) for item in items], key=encode_sorted)

    def _read_alone(self, item: Any) -> Any:
        """Read an item without numbers of earlier values: the items of a set have no order."""
        if type(item) in PLAIN_TYPES:
            return self.read_value(item)
        if self._apart > 3:
            return self._give_up("it holds itself through a set")
        reader = ValueReader(self._state, self._apart + 1)
        reader._where = list(self._where)
        read = reader.read_value(item)
        self._nodes += reader._nodes
        self.unknown += reader.unknown
        return read

    def read_function(self, function: FunctionType) -> Any:
        if WRAPPED_FORWARD in vars(function):  # the wrapper is Plait's, and may change
            return self.read_value(vars(function)[WRAPPED_FORWARD])
        facts = facts_of(function.__code__)
        own = is_own_function(function)
        name = function.__qualname__ if own else f"{function.__module__}:{function.__qualname__}"
        if not own:  # a cache of a library's: that of `singledispatch`
            self._caches |= {
                id(cast("object", value))
                for _, value in closure_of(function)
                if isinstance(value, WEAK_TYPES)
            }
        with_it = [
            self.read_value(function.__defaults__, "a default"),
            self.read_value(function.__kwdefaults__, "a default"),
            [self._cell(function, *each) for each in closure_of(function)],
            self.read_value(
                {key: value for key, value in vars(function).copy().items() if key != "__wrapped__"}
            ),
            self.read_value(getattr(function, "__wrapped__", None), "__wrapped__"),
        ]
        return [
            "function",
            name,
            facts.digest,
            *with_it,
            self._read_globals(function, facts) if own else [],
        ]

    def _cell(self, function: FunctionType, name: str, value: Any) -> Any:
        if isinstance(value, ModuleType):
            return [name, self._module(value, facts_of(function.__code__))]
        return [name, self.read_value(value, f"{name} in {function.__qualname__}")]

    def _read_globals(self, function: FunctionType, facts: CodeFacts) -> Any:
        """Read the globals that a function names, by their present values."""
        found: list[Any] = []
        scope = function.__globals__
        for name in facts.globals:
            if name in scope:
                found.append([name, self._global(scope[name], facts, own=name in facts.stored)])
            elif not hasattr(builtins, name):
                found.append([name, "absent"])
        package = str(scope.get("__package__") or "")
        return [*found, *[self._read_import(each, package, facts) for each in facts.imports]]

    def _global(self, value: Any, facts: CodeFacts, *, own: bool = False) -> Any:
        if isinstance(value, ModuleType):
            return self._module(value, facts)
        if (
            isinstance(value, (FunctionType, type, MethodType, partial))
            or self._state
            or is_code(value)
        ):
            return self.read_value(value)
        if own:  # the function itself sets it
            return ["own"]
        if is_constant(value):
            return self.read_value(value)
        return self._read_held_object(value)

    def _read_held_object(self, value: Any) -> Any:
        """Read an object that is kept to be worked on: by its class.

        If it is callable, also by the functions in it.
        """
        cls = cast("type[Any]", type(value))
        is_descriptor = hasattr(cls, "__get__") and cls not in _READERS
        if is_descriptor and not is_own_class(cls):  # functools.cached_property
            return self.read_value(value)
        read = ["held", self.read_value(cls)]
        if is_own_class(cls) and (is_descriptor or callable(value)):  # a decorator may be an object
            called = {name: each for name, each in fields_of(value).items() if is_code(each)}
            return [*read, self.read_value(called)] if called else read
        return read

    def _module(self, module: ModuleType, facts: CodeFacts) -> Any:
        """Read those parts of a module of the program that the code names."""
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

    def _read_import(self, wanted: ImportedModule, package: str, facts: CodeFacts) -> Any:
        """Read the source of a module that a function imports later: importing it would run it."""
        name = absolute_name(wanted, package)
        roots = [name, *[f"{name}.{item}" for each, item in facts.items if each == wanted]]
        sources = self._read_sources(roots)
        first = sources.pop(name, None)
        read = ["import", name] if first is None else ["import", wanted[0], first]
        return [*read, sorted(sources.items())] if sources else read

    def _read_sources(self, names: Iterable[str]) -> dict[str, str]:
        sources = read_imports(names, NODES_MAX - self._nodes)
        self._nodes += sources.visited
        for why in sources.unread:
            self._give_up(why)
        return sources.digests

    def read_method(self, method: MethodType) -> Any:
        return [
            "method",
            self.read_value(method.__func__),
            self.read_value(method.__self__, "self"),
        ]

    def read_partial(self, value: partial[Any]) -> Any:
        named = {**value.keywords, **vars(value)}
        return [
            "partial",
            self.read_value(value.func),
            self.read_value(value.args),
            self.read_value(named),
        ]

    def read_builtin(self, function: Any) -> Any:
        """Read a function of C by its name, with the object it is bound to."""
        bound = getattr(function, "__self__", None)
        name = getattr(function, "__qualname__", function.__name__)
        if bound is None or isinstance(bound, ModuleType):
            return ["builtin", getattr(function, "__module__", None) or "", name]
        return ["builtin", name, self.read_value(bound, name)]

    def _class(self, cls: type[Any]) -> Any:
        if not is_own_class(cls):
            return ["class", f"{home_of(cls)}:{cls.__qualname__}"]
        if issubclass(cls, enum.Enum):
            members = [
                [name, self.read_value(each.value)] for name, each in cls.__members__.items()
            ]
            return [
                "enum",
                cls.__qualname__,
                members,
                self._attributes(cls, set(vars(cls)) - set(cls.__members__)),
            ]
        bases = [self.read_value(base) for base in cls.__bases__ if base is not object]
        names = [name for name in vars(cls) if not name.startswith(PYDANTIC_PREFIXES)]
        read = ["class", cls.__qualname__, bases, self._attributes(cls, names)]
        return [*read, *read_declarations(cls, self.read_value)]

    def _attributes(self, cls: type[Any], names: Iterable[str]) -> Any:
        held = vars(cls)
        wanted = sorted(
            name for name in names if name not in NOT_CODE and not name.startswith("_abc_")
        )
        return [
            [name, self._attribute(held[name], f"{cls.__qualname__}.{name}")] for name in wanted
        ]

    def _attribute(self, value: Any, where: str) -> Any:
        if self._state or is_code(value) or is_constant(value) or callable(value):
            return self.read_value(value, where)
        return self._read_held_object(value)

    def _object(self, value: Any) -> Any:
        cls = cast("type[Any]", type(value))
        if isinstance(value, enum.Enum):
            return ["member", self.read_value(cls), value.name]
        if isinstance(value, LOCK_TYPES):
            return ["object", cls.__qualname__]
        if isinstance(value, WEAK_TYPES):
            read = ["object", cls.__qualname__]
            if id(cast("object", value)) in self._caches or not len(cast("Any", value)):
                return read
            return self._note_doubt(f"a {cls.__qualname__} holds what is alive", read)
        if isinstance(value, CONTEXT_TYPES):
            return self._note_doubt(
                f"a {cls.__qualname__} has a value for each context", ["object", cls.__qualname__]
            )
        if isinstance(value, weakref.ref):
            return ["weakref", self.read_value(cls), self.read_value(cast("Any", value)())]
        if {f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__} & PROCESS_TYPES:
            return self._give_up(f"a {cls.__qualname__} belongs to its process")
        if isinstance(value, (set, frozenset)):
            listed = set[Any].__iter__ if set in cls.__mro__ else frozenset[Any].__iter__
            items = self._read_unordered(list(listed(cast("Any", value))))
            return [
                "object",
                self.read_value(cls),
                items,
                self.read_value(getattr(cast("object", value), "__dict__", None)),
            ]
        if any(value is stream for stream in (sys.stdin, sys.stdout, sys.stderr)):
            return ["stream", value.name]
        if cls.__module__.startswith("plait.model.") and isinstance(
            getattr(value, "name", None), str
        ):
            return ["model", cls.__qualname__, value.name]
        return self._fields(value) if tells_its_own_state(value) else self._read_account(value)

    def _fields(self, value: Any) -> Any:
        """Read an object field by field, without calling its code."""
        cls = cast("type[Any]", type(value))
        solid = next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE)
        read = ["fields", self.read_value(cls), self.read_value(fields_of(value))]
        if solid is object:
            return read
        contents = next((CONTENTS[base] for base in solid.__mro__ if base in CONTENTS), None)
        if contents is None:
            return self._note_doubt(f"the state of a {cls.__qualname__} cannot be read", read)
        return [*read, self.read_value(contents(value))]

    def _read_account(self, value: Any) -> Any:
        """Read an object by the account that it gives to `copy` and `pickle`."""
        kind = cast("type[Any]", type(value))
        reduce = copyreg.dispatch_table.get(kind)
        if isinstance(reduce, FunctionType) and is_own_function(reduce):
            reduce = None
        try:
            made = reduce(value) if reduce is not None else value.__reduce_ex__(4)
            if isinstance(made, str):
                return ["global", type(value).__qualname__, made]
            function, arguments, *more = made
            state, items, pairs = (*more, None, None, None)[:3]
            items = None if items is None else list(items)
            pairs = None if pairs is None else dict(pairs)
        except Exception:  # it cannot be copied, its own code fails, or a thread changes it
            return self._give_up(f"the state of a {type(value).__qualname__} cannot be read")
        if isinstance(state, dict):
            fields = cast("dict[Any, Any]", state).copy()
            state = {key: each for key, each in fields.items() if key != TARGET}
        name: Any = None if function in NEW_OBJECT else self.read_value(function)
        return [
            "object",
            name,
            self.read_value(arguments),
            self.read_value(state),
            self.read_value(items),
            self.read_value(pairs),
        ]


_READERS: dict[type[Any], Callable[[ValueReader, Any], Any]] = {
    list: ValueReader.read_list,
    set: ValueReader.read_set,
    dict: ValueReader.read_dict,
    types.MappingProxyType: ValueReader.read_dict,
    FunctionType: ValueReader.read_function,
    MethodType: ValueReader.read_method,
    partial: ValueReader.read_partial,
    types.BuiltinFunctionType: ValueReader.read_builtin,
    types.MethodWrapperType: ValueReader.read_builtin,
}
