"""Bindings: what a name in a module stands for, read off its source. Nothing is imported, and
nothing is called.

The statements of a module are followed in order. A name stands for all that it may be bound to in
the end: the branches of an `if`, a `try` or a `match` count alike, and so do names bound by `for`,
`with`, `except`, `match`, `:=`, `global` or `globals()`. It is a Workflow if each of these is a
class that derives from one, or what a call of such a class, or of a function that returns one,
makes. None does not count: it stands for a value that comes later.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Literal, NamedTuple, cast

from plait.fingerprint import is_own, module_spec, source_file
from plait.workflow import Workflow

STEPS_MAX = 5_000  # expressions that are looked at for one name

_PLAIT = __name__.partition(".")[0]
# their decorators leave a class a class
_SAME = frozenset({"abc", "dataclasses", "functools", "typing"})
_CACHES = ("cache", "lru_cache", "staticmethod", "classmethod")
_WRITES = (
    "update",
    "setdefault",
    "pop",
    "popitem",
    "clear",
    "__setitem__",
    "__delitem__",
    "__ior__",
)


def objection(file: Path, module: str, folders: tuple[str, ...], names: list[str]) -> str:
    """Why what has this name in a file is no Workflow.

    "": it is one, as far as its source says. Raises what reading raises.
    """
    try:
        found = _Sources(folders).module(file, module).named(names)
    except _NoWorkflow as refusal:
        return str(refusal)
    wrong = next((each for each in found if each.what not in ("class", "object")), None)
    shown = ".".join(names)
    if wrong is not None:
        return f"the {wrong.what} {shown} is no Workflow, which is all that a log can have called"
    return "" if found else f"{shown} is no Workflow, as far as its source says"


class _NoWorkflow(Exception):
    def __init__(self, why: str, opaque: bool = False) -> None:
        super().__init__(why)
        self.opaque = opaque  # it cannot be seen, and may be one


class _Absent(_NoWorkflow):
    """There is no such module: the import fails, and binds nothing."""


class _Value(NamedTuple):
    """A Workflow's class or object, or what leads to one."""

    what: Literal["class", "object", "function", "module"]
    node: ast.ClassDef | ast.FunctionDef | None = None  # None: it is loaded
    binding: _Binding | None = None  # where the node stands
    held: Any = None
    owner: _Value | None = None  # the class or object that a method is of
    path: tuple[str, ...] = ()  # of a module that is not loaded


class _Binding:
    """What a name is bound to, and what other names stood for then."""

    def __init__(
        self, module: _Module, node: ast.AST | None, env: _Env, *, path: list[str] | None = None
    ) -> None:
        self.module, self.node, self.env = module, node, env
        self.path = path  # of an import
        self.values: list[_Value] | None = None  # None: by the node
        self.local = False


_Env = Mapping[str, tuple[_Binding, ...]]


def _merged(envs: Iterable[_Env]) -> _Env:
    found: dict[str, tuple[_Binding, ...]] = {}
    for env in envs:
        for name, bound in env.items():
            there = found.get(name, ())
            found[name] = (
                there
                if there is bound
                else (*there, *[each for each in bound if each not in there])
            )
    return found


# ── statements ───────────────────────────────────────────────────────────────────────────────


class _Reading:
    """Follows the statements of a module, a class or a function."""

    def __init__(self, module: _Module, env: _Env, *, local: bool) -> None:
        self.module, self.env, self._local = module, env, local
        self.returns: list[tuple[ast.expr | None, _Env]] = []
        self.is_rewritten = False  # names are bound that cannot be seen

    def read(self, body: Iterable[ast.AST]) -> None:
        for node in body:
            read = getattr(self, f"_read_{type(node).__name__}", None)
            if read is not None:
                read(node)
            else:
                self._expression(node)

    def bind(self, name: str, node: ast.AST | None, path: list[str] | None = None) -> _Binding:
        bound = _Binding(self.module, node, self.env, path=path)
        bound.local = self._local
        self.env = {**self.env, name: (bound,)}
        return bound

    def _bind_maybe(self, name: str, node: ast.AST | None) -> None:
        before = self.env
        self.bind(name, node)
        self.env = _merged([before, self.env])

    def _branches(self, *bodies: Iterable[ast.AST], before: _Env) -> Iterator[_Env]:
        for body in bodies:
            self.env = before
            self.read(body)
            yield self.env

    def _read_FunctionDef(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> None:
        for each in node.decorator_list:
            self._expression(each)
        if isinstance(node, ast.ClassDef):
            inner = _Reading(self.module, self.env, local=True)
            inner.read(node.body)
            self.is_rewritten |= inner.is_rewritten
        self.bind(node.name, node)

    _read_AsyncFunctionDef = _read_ClassDef = _read_FunctionDef

    def _read_Return(self, node: ast.Return) -> None:
        self.returns.append((node.value, self.env))

    def _read_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            path = alias.name.split(".")
            self.bind(alias.asname or path[0], node, path if alias.asname else path[:1])

    def _read_ImportFrom(self, node: ast.ImportFrom) -> None:
        package = self.module.package(node)
        for alias in node.names:
            names = self.module.sources.public_names(package) if alias.name == "*" else [alias.name]
            for name in names:
                self.bind(alias.asname or name, node, [*package, name])

    def _read_If(self, node: ast.If) -> None:
        self._expression(node.test)
        taken = _truth(node.test)
        bodies = [
            *([node.body] if taken is not False else []),
            *([node.orelse] if taken is not True else []),
        ]
        self.env = _merged(list(self._branches(*bodies, before=self.env)))

    def _read_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._expression(node.iter)
        before = self.env
        self._assign(node.target, None)
        self.read(node.body)
        self.env = _merged([before, self.env])
        self.read(node.orelse)

    _read_AsyncFor = _read_For

    def _read_While(self, node: ast.While) -> None:
        self._expression(node.test)
        self.env = _merged([self.env, *self._branches(node.body, before=self.env)])
        self.read(node.orelse)

    def _read_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self._expression(item.context_expr)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, None)
        self.read(node.body)

    _read_AsyncWith = _read_With

    def _read_Try(self, node: ast.Try | ast.TryStar) -> None:
        before = self.env
        self.read(node.body)
        failed = _merged([before, self.env])
        self.read(node.orelse)
        ends = [self.env]
        for handler in node.handlers:
            self.env = failed
            if handler.name:
                self.bind(handler.name, None)
            self.read(handler.body)
            self.env = {name: bound for name, bound in self.env.items() if name != handler.name}
            ends.append(self.env)
        self.env = _merged(ends)
        self.read(node.finalbody)

    _read_TryStar = _read_Try

    def _read_Match(self, node: ast.Match) -> None:
        self._expression(node.subject)
        before = self.env
        ends = [before]
        for case in node.cases:
            self.env = before
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self.bind(name, None)
            # A capture that does not lead into its case stays bound.
            ends.append(self.env)
            self.read(case.body)
            ends.append(self.env)
        self.env = _merged(ends)

    def _read_Assign(self, node: ast.Assign) -> None:
        self._expression(node.value)
        for target in node.targets:
            self._assign(target, node.value)

    def _read_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._expression(node.value)
            self._assign(node.target, node.value)

    def _read_AugAssign(self, node: ast.AugAssign) -> None:
        self._expression(node.value)
        self._assign(node.target, None)

    def _read_TypeAlias(self, node: Any) -> None:
        self._assign(node.name, None)

    def _read_Delete(self, node: ast.Delete) -> None:
        gone = {each.id for each in node.targets if isinstance(each, ast.Name)}
        self.env = {name: bound for name, bound in self.env.items() if name not in gone}

    def _assign(self, target: ast.expr, value: ast.expr | None) -> None:
        """Bind a target; None: to what cannot be seen."""
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            plain = not any(isinstance(each, ast.Starred) for each in (*parts, *target.elts))
            fits = plain and len(parts) == len(target.elts)
            for at, each in enumerate(target.elts):
                self._assign(each, parts[at] if fits else None)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, None)
        elif isinstance(target, ast.Subscript):
            self._write(target.value, target.slice)
        elif dotted := dotted_names(target):
            self.bind(".".join(dotted), value)
        elif isinstance(target, ast.Attribute):  # sys.modules[__name__].flow = …
            self._bind_maybe(target.attr, None)

    def _expression(self, node: ast.AST) -> None:
        """Names that an expression binds."""
        for each in _within(node):
            if isinstance(each, ast.NamedExpr):
                self._bind_maybe(each.target.id, each.value)
            elif isinstance(each, ast.Call):
                self._call(each)

    def _call(self, call: ast.Call) -> None:
        name = (dotted_names(call.func) or [""])[-1]
        if name == "exec":
            self.is_rewritten = True
        elif isinstance(call.func, ast.Attribute) and call.func.attr in _WRITES:
            for keyword in call.keywords:
                self._write(call.func.value, ast.Constant(keyword.arg))
            if call.args:
                self._write(call.func.value, call.args[0])
        elif name in ("setattr", "delattr") and len(call.args) > 1:
            holder, key = call.args[:2]
            if isinstance(holder, (ast.Subscript, ast.Call)):
                self._write_key(key)
            elif (dotted := dotted_names(holder)) and isinstance(key, ast.Constant):
                self.bind(f"{'.'.join(dotted)}.{key.value}", None)

    def _write(self, holder: ast.expr, key: ast.expr) -> None:
        """An item is set. If that of the module's names, one of these is bound."""
        if isinstance(holder, ast.Attribute) and holder.attr == "__dict__":
            self._write_key(key)
        elif isinstance(holder, ast.Attribute) and holder.attr == "modules":
            self.is_rewritten = True
        elif _is_namespace(holder):
            self._write_key(key)

    def _write_key(self, key: ast.expr) -> None:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            self._bind_maybe(key.value, None)
        else:
            self.is_rewritten = True


def _is_namespace(node: ast.expr) -> bool:
    """Whether it is the names of a module: `globals()`, or `vars(sys.modules[__name__])`."""
    if not isinstance(node, ast.Call) or dotted_names(node.func)[-1:] not in (
        ["globals"],
        ["locals"],
        ["vars"],
    ):
        return False
    return not any(dotted_names(each) for each in node.args)


def _written_names(tree: ast.AST) -> Iterator[str]:
    """The names of the module that a function or class in it may bind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
        elif (
            isinstance(node, ast.Subscript)
            and not isinstance(node.ctx, ast.Load)
            and _is_namespace(node.value)
        ):
            if isinstance(node.slice, ast.Constant):
                yield str(node.slice.value)


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """An expression, and those in it that are evaluated with it."""
    yield node
    if not isinstance(node, (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        for each in ast.iter_child_nodes(node):
            yield from _within(each)


def _truth(test: ast.expr) -> bool | None:
    """Whether a condition holds while a module is imported. None: that cannot be seen."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if (dotted_names(test) or [""])[-1] == "TYPE_CHECKING":
        return False
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        sides = [ast.unparse(each) for each in (test.left, *test.comparators)]
        return False if sorted(sides) == ["'__main__'", "__name__"] else None
    return None


def dotted_names(node: ast.AST) -> list[str]:
    """The names in `a.b.C`. Empty: it is something else."""
    if isinstance(node, ast.Attribute):
        before = dotted_names(node.value)
        return [*before, node.attr] if before else []
    return [node.id] if isinstance(node, ast.Name) else []


# ── modules ──────────────────────────────────────────────────────────────────────────────────


class _Sources:
    """The modules that are looked at for one name."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self._folders = folders  # where imports are found
        self._modules: dict[str, _Module] = {}
        self.steps = 0

    def module(self, file: Path, name: str) -> _Module:
        if str(file) not in self._modules:
            self._modules[str(file)] = _Module(self, file, name)
            self._modules[str(file)].read()
        return self._modules[str(file)]

    def step(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise _NoWorkflow("its source says so in too many steps")

    def public_names(self, package: list[str]) -> list[str]:
        """The names that `from package import *` binds, as far as one can see."""
        name = ".".join(package)
        held = importlib.import_module(name) if package[:1] == [_PLAIT] else sys.modules.get(name)
        if held is not None:
            return list(
                getattr(held, "__all__", None)
                or [each for each in vars(held) if not each.startswith("_")]
            )
        file = source_file(name, self._folders)
        if file is None:
            return []
        return [
            each
            for each in self.module(file, name).env
            if not each.startswith("_") and "." not in each
        ]

    def elsewhere(self, path: list[str]) -> list[_Value]:
        """Look for a name in other modules: in those that are loaded as it is, in others in their
        source.
        """
        for cut in range(len(path) - 1, 0, -1):
            name, names = ".".join(path[:cut]), path[cut:]
            if path[0] == _PLAIT:  # it is running already
                try:
                    return [_loaded_value(importlib.import_module(name), names)]
                except ImportError:
                    continue
            if name in sys.modules:
                return [_loaded_value(sys.modules[name], names)]
            if (
                path[0] not in sys.stdlib_module_names
                and (file := source_file(name, self._folders)) is not None
            ):
                found = self.module(file, name)
                if names[0] in found.env or not self._is_module(path[: cut + 1]):
                    return found.named(names)
        if self._is_module(path):
            return [_Value("module", held=self, path=tuple(path))]
        if path[0] not in sys.modules and module_spec(path[0], self._folders) is None:
            raise _Absent(f"there is no module {path[0]!r} here")
        raise _NoWorkflow(
            f"{'.'.join(path)} is no Workflow, as far as one can see without importing it",
            opaque=True,
        )

    def _is_module(self, path: list[str]) -> bool:
        return (
            path[0] == _PLAIT
            or ".".join(path) in sys.modules
            or source_file(".".join(path), self._folders) is not None
        )

    def is_of_others(self, path: list[str]) -> bool:
        """Whether an import leads to an installed package, or to what leaves a class a class."""
        if path[0] in sys.stdlib_module_names:
            return path[0] in _SAME
        file = source_file(path[0], self._folders)
        return path[0] == _PLAIT or file is None or not is_own(path[0], str(file))


def _loaded_value(module: ModuleType, names: list[str]) -> _Value:
    found: Any = module
    for name in names:
        found = (
            getattr(found, name, None)
            if isinstance(found, ModuleType)
            else getattr(found, "__dict__", {}).get(name)
        )
    return _value_of(found, ".".join(names))


def _value_of(found: Any, shown: str) -> _Value:
    if isinstance(found, ModuleType):
        return _Value("module", held=found)
    if isinstance(found, type) and issubclass(found, Workflow):
        return _Value("class", held=found)
    if isinstance(found, Workflow):
        return _Value("object", held=type(found))
    if isinstance(found, FunctionType):
        return _Value("function", held=found)
    raise _NoWorkflow(
        f"{shown} is a {type(cast('object', found)).__name__} and no Workflow, which is all that a"
        " log can have called"
    )


class _Module:
    """The source of a module that is not imported."""

    def __init__(self, sources: _Sources, file: Path, name: str) -> None:
        self.sources, self.file, self._name = sources, file, name
        self.env: _Env = {}
        self._is_rewritten = False

    def read(self) -> None:
        tree = ast.parse(self.file.read_bytes(), str(self.file))
        reading = _Reading(self, {}, local=False)
        reading.read(tree.body)
        unseen = {name: (_Binding(self, None, {}),) for name in _written_names(tree)}
        self.env, self._is_rewritten = _merged([reading.env, unseen]), reading.is_rewritten

    def package(self, node: ast.ImportFrom) -> list[str]:
        """The module that `from … import` names."""
        wanted = node.module.split(".") if node.module else []
        if not node.level:
            return wanted
        parts = self._name.split(".")
        up = node.level - (self.file.name == "__init__.py")
        return [*parts[: len(parts) - up], *wanted]

    def named(self, names: list[str]) -> list[_Value]:
        if self._is_rewritten:
            raise _NoWorkflow(
                f"{self.file.name} binds names that its source does not show (exec, globals)",
                opaque=True,
            )
        found = _looked_up(self.env, names)
        if found is None:
            raise _NoWorkflow(f"{self.file.name} has no {'.'.join(names)!r}")
        return found


# ── expressions ──────────────────────────────────────────────────────────────────────────────


def _looked_up(env: _Env, names: list[str]) -> list[_Value] | None:
    """What a dotted name stands for. None: it is not bound."""
    for cut in range(len(names), 0, -1):
        bound = env.get(".".join(names[:cut]))
        if bound is None:
            continue
        found: list[_Value] = []
        for each in bound:
            try:
                found += _bound_values(each, names[cut:])
            except _Absent:
                if len(bound) == 1:
                    raise
        return found
    return None


def _bound_values(binding: _Binding, rest: list[str]) -> list[_Value]:
    module = binding.module
    module.sources.step()
    if binding.values is not None:
        found = binding.values
    elif binding.path is not None:
        return (
            module.sources.elsewhere([*binding.path, *rest])
            if rest or len(binding.path) > 1
            else _module_value(binding)
        )
    elif isinstance(binding.node, ast.ClassDef):
        found = _class_values(binding, binding.node)
    elif isinstance(binding.node, ast.FunctionDef):
        found = [_Value("function", binding.node, binding)]
    elif isinstance(binding.node, ast.expr):
        found = _values(module, binding.env, binding.node)
    else:
        raise _NoWorkflow("it is bound to what its source does not show", opaque=True)
    for name in rest:
        found = [value for each in found for value in _attribute_values(each, name)]
    return found


def _module_value(binding: _Binding) -> list[_Value]:
    return [_Value("module", held=binding.module.sources, path=tuple(binding.path or ()))]


def _values(module: _Module, env: _Env, node: ast.expr) -> list[_Value]:
    """What an expression may be. Empty: None."""
    module.sources.step()
    if dotted := dotted_names(node):
        found = _looked_up(env, dotted)
        if found is None:
            raise _NoWorkflow(f"{module.file.name} has no {'.'.join(dotted)!r}")
        return found
    if isinstance(node, ast.Constant) and node.value is None:
        return []
    if isinstance(node, ast.Attribute):
        return [
            value
            for each in _values(module, env, node.value)
            for value in _attribute_values(each, node.attr)
        ]
    if isinstance(node, ast.Subscript):  # a generic class
        try:
            found = _values(module, env, node.value)
        except _NoWorkflow as refusal:  # an item of something else, which may be one
            raise _NoWorkflow(str(refusal), opaque=True) from refusal
        if all(each.what == "class" for each in found):
            return found
    if isinstance(node, ast.Call):
        given = [_Binding(module, each, env) for each in node.args]
        return [
            value
            for each in _values(module, env, node.func)
            for value in _called_values(each, given)
        ]
    if isinstance(node, ast.NamedExpr):
        return _values(module, env, node.value)
    parts = (
        [node.body, node.orelse]
        if isinstance(node, ast.IfExp)
        else node.values
        if isinstance(node, ast.BoolOp)
        else []
    )
    if parts:
        return [value for each in parts for value in _values(module, env, each)]
    is_known = isinstance(
        node, (ast.Constant, ast.Lambda, ast.Dict, ast.List, ast.Tuple, ast.Set, ast.JoinedStr)
    )
    raise _NoWorkflow(
        f"{ast.unparse(node)[:60]} is no Workflow, as far as its source says", opaque=not is_known
    )


def _class_values(binding: _Binding, node: ast.ClassDef) -> list[_Value]:
    value = _Value("class", node, binding)
    if not any(each.what == "class" for each in _bases(value)):
        raise _NoWorkflow(f"the class {node.name} is no Workflow, as far as its source says")
    found = [value]
    for decorator in reversed(node.decorator_list):
        found = _decorated_values(binding, decorator, found)
    return found


def _bases(value: _Value) -> Iterator[_Value]:
    binding, node = value.binding, value.node
    if binding is None or not isinstance(node, ast.ClassDef):
        return
    for base in node.bases:
        try:
            yield from _values(binding.module, binding.env, base)
        except _NoWorkflow:
            continue


def _decorated_values(binding: _Binding, decorator: ast.expr, before: list[_Value]) -> list[_Value]:
    module, env = binding.module, binding.env
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    bound = env.get((dotted_names(function) or [""])[0], ())
    if bound and all(
        each.path is not None and module.sources.is_of_others(each.path) for each in bound
    ):
        return before
    given = _Binding(module, None, env)
    given.values = before
    return [
        value for each in _values(module, env, decorator) for value in _called_values(each, [given])
    ]


def _attribute_values(value: _Value, name: str) -> list[_Value]:
    if value.what == "module":
        if isinstance(value.held, ModuleType):
            return [_loaded_value(value.held, [name])]
        return cast("_Sources", value.held).elsewhere([*value.path, name])
    if value.what == "function":
        raise _NoWorkflow(f"{name} of a function is no Workflow")
    found = _members(value, name)
    if found is None:
        raise _NoWorkflow(
            f"{value.node.name if value.node is not None else value.what} has no {name!r}"
        )
    if value.what == "object" and any(each.what != "function" for each in found):
        raise _NoWorkflow(f"{name} of an object is not seen in its source", opaque=True)
    return [each._replace(owner=value) if each.what == "function" else each for each in found]


def _members(value: _Value, name: str) -> list[_Value] | None:
    """What a class binds to a name, or its bases do."""
    if value.node is None or value.binding is None:
        classes = cast("type[Any]", value.held).__mro__
        held = next((vars(base)[name] for base in classes if name in vars(base)), None)
        return [_value_of(held, name)] if held is not None else None
    module = value.binding.module
    reading = _Reading(module, {**module.env, **value.binding.env}, local=True)
    outside = reading.env.get(name)
    reading.read(value.node.body)
    bound = reading.env.get(name)
    if bound is not None and bound is not outside:
        return [each for binding in bound for each in _bound_values(binding, [])]
    for base in _bases(value):
        if (found := _members(base, name)) is not None:
            return found
    return None


def _called_values(value: _Value, given: list[_Binding]) -> list[_Value]:
    """What a call makes."""
    if value.what == "class":
        return [value._replace(what="object")]
    if value.what != "function":
        raise _NoWorkflow(
            f"a call of {'a module' if value.what == 'module' else 'an object'} makes no Workflow"
        )
    if not isinstance(value.node, ast.FunctionDef) or value.binding is None:
        return _promised_values(value)
    function, binding = value.node, value.binding
    decorators = [
        (dotted_names(each.func if isinstance(each, ast.Call) else each) or [""])[-1]
        for each in function.decorator_list
    ]
    try:
        if any(each not in _CACHES for each in decorators) or _is_generator(function):
            raise _NoWorkflow(f"what {function.name} makes is not seen in its source", opaque=True)
        first = _first_values(value, decorators)
        found = _returned_values(function, binding, [*first, *given])
    except _NoWorkflow as refusal:
        if not refusal.opaque:
            raise
        found = _annotated_values(function, binding)
        if not found:
            step = f"write what it returns: def {function.name}(…) -> Workflow"
            raise _NoWorkflow(
                f"what the function {function.name} makes is not seen in its source; {step}",
                opaque=True,
            ) from refusal
    return found


def _first_values(value: _Value, decorators: list[str]) -> list[_Binding]:
    """The class or object that a method gets."""
    if value.owner is None or value.binding is None or "staticmethod" in decorators:
        return []
    if value.owner.what == "class" and "classmethod" not in decorators:
        return []
    first = _Binding(value.binding.module, None, {})
    first.values = [
        value.owner._replace(what="class") if "classmethod" in decorators else value.owner
    ]
    return [first]


def _returned_values(
    function: ast.FunctionDef, binding: _Binding, given: list[_Binding]
) -> list[_Value]:
    module = binding.module
    around = {**module.env, **binding.env} if binding.local else module.env
    reading = _Reading(module, around, local=True)
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    others = [*arguments.kwonlyargs, *filter(None, (arguments.vararg, arguments.kwarg))]
    for name in (*names, *[each.arg for each in others]):
        reading.bind(name, None)
    reading.env = {
        **reading.env,
        **{name: (each,) for name, each in zip(names, given, strict=False)},
    }
    reading.read(function.body)
    found = [
        value
        for node, env in reading.returns
        if node is not None
        for value in _values(module, env, node)
    ]
    if not found:
        raise _NoWorkflow(
            f"the function {function.name} returns no Workflow, as far as its source says"
        )
    return found


def _annotated_values(function: ast.FunctionDef, binding: _Binding) -> list[_Value]:
    """What a function says it returns. Empty: no Workflow."""
    node = function.returns
    try:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        found = (
            _values(binding.module, {**binding.env, **binding.module.env}, node)
            if node is not None
            else []
        )
    except (_NoWorkflow, SyntaxError):
        return []
    return [each._replace(what="object") for each in found if each.what == "class"]


def _promised_values(value: _Value) -> list[_Value]:
    """What a function that is loaded says it returns."""
    promised = getattr(value.held, "__annotations__", {}).get("return")
    if promised in ("Self", "typing.Self") and value.owner is not None:
        return [value.owner]
    if isinstance(promised, type) and issubclass(promised, Workflow):
        return [_Value("object", held=promised)]
    raise _NoWorkflow("what a function makes is not seen without calling it", opaque=True)


def _is_generator(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(each, (ast.Yield, ast.YieldFrom))
        for statement in function.body
        for each in _within(statement)
    )
