"""Finds the values that an expression may have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, cast

from plait.bindings.statements import StatementReader
from plait.bindings.syntax import (
    dotted_names,
    is_generator,
)
from plait.bindings.values import (
    Binding,
    Bindings,
    NoModule,
    NoWorkflow,
    SourceFinder,
    SourceModule,
    StaticValue,
)
from plait.workflow import Workflow

_CACHES = ("cache", "lru_cache", "staticmethod", "classmethod")


def loaded_value(module: ModuleType, names: list[str]) -> StaticValue:
    found: Any = module
    for name in names:
        found = (
            getattr(found, name, None)
            if isinstance(found, ModuleType)
            else getattr(found, "__dict__", {}).get(name)
        )
    return _value_of(found, ".".join(names))


def _value_of(found: Any, shown: str) -> StaticValue:
    if isinstance(found, ModuleType):
        return StaticValue("module", held=found)
    if isinstance(found, type) and issubclass(found, Workflow):
        return StaticValue("class", held=found)
    if isinstance(found, Workflow):
        return StaticValue("object", held=type(found))
    if isinstance(found, FunctionType):
        return StaticValue("function", held=found)
    raise NoWorkflow(
        f"{shown} is a {type(cast('object', found)).__name__} and no Workflow, which is all that a"
        " log can have called"
    )


def look_up(env: Bindings, names: list[str]) -> list[StaticValue] | None:
    """Return the values that a dotted name may have. None: it is not bound."""
    for cut in range(len(names), 0, -1):
        bound = env.get(".".join(names[:cut]))
        if bound is None:
            continue
        found: list[StaticValue] = []
        for each in bound:
            try:
                found += _bound_values(each, names[cut:])
            except NoModule:
                if len(bound) == 1:
                    raise
        return found
    return None


def _bound_values(binding: Binding, rest: list[str]) -> list[StaticValue]:
    module = binding.module
    module.sources.step()
    if binding.values is not None:
        found = binding.values
    elif binding.path is not None:
        return (
            module.sources.imported_values([*binding.path, *rest])
            if rest or len(binding.path) > 1
            else _module_value(binding)
        )
    elif isinstance(binding.node, ast.ClassDef):
        found = _class_values(binding, binding.node)
    elif isinstance(binding.node, ast.FunctionDef):
        found = [StaticValue("function", binding.node, binding)]
    elif isinstance(binding.node, ast.expr):
        found = expression_values(module, binding.env, binding.node)
    else:
        raise NoWorkflow("it is bound to what its source does not show", opaque=True)
    for name in rest:
        found = [value for each in found for value in _attribute_values(each, name)]
    return found


def _module_value(binding: Binding) -> list[StaticValue]:
    return [StaticValue("module", held=binding.module.sources, path=tuple(binding.path or ()))]


def expression_values(module: SourceModule, env: Bindings, node: ast.expr) -> list[StaticValue]:
    """Return the values that an expression may have. Empty: it is None."""
    module.sources.step()
    if dotted := dotted_names(node):
        found = look_up(env, dotted)
        if found is None:
            raise NoWorkflow(f"{module.file.name} has no {'.'.join(dotted)!r}")
        return found
    if isinstance(node, ast.Constant) and node.value is None:
        return []
    if isinstance(node, ast.Attribute):
        return [
            value
            for each in expression_values(module, env, node.value)
            for value in _attribute_values(each, node.attr)
        ]
    if isinstance(node, ast.Subscript):  # a generic class
        try:
            found = expression_values(module, env, node.value)
        except NoWorkflow as refusal:  # an item of something else, which may be one
            raise NoWorkflow(str(refusal), opaque=True) from refusal
        if all(each.what == "class" for each in found):
            return found
    if isinstance(node, ast.Call):
        given = [Binding(module, each, env) for each in node.args]
        return [
            value
            for each in expression_values(module, env, node.func)
            for value in _called_values(each, given)
        ]
    if isinstance(node, ast.NamedExpr):
        return expression_values(module, env, node.value)
    parts = (
        [node.body, node.orelse]
        if isinstance(node, ast.IfExp)
        else node.values
        if isinstance(node, ast.BoolOp)
        else []
    )
    if parts:
        return [value for each in parts for value in expression_values(module, env, each)]
    is_known = isinstance(
        node, (ast.Constant, ast.Lambda, ast.Dict, ast.List, ast.Tuple, ast.Set, ast.JoinedStr)
    )
    raise NoWorkflow(
        f"{ast.unparse(node)[:60]} is no Workflow, as far as its source says", opaque=not is_known
    )


def _class_values(binding: Binding, node: ast.ClassDef) -> list[StaticValue]:
    value = StaticValue("class", node, binding)
    if not any(each.what == "class" for each in _bases(value)):
        raise NoWorkflow(f"the class {node.name} is no Workflow, as far as its source says")
    found = [value]
    for decorator in reversed(node.decorator_list):
        found = _decorated_values(binding, decorator, found)
    return found


def _bases(value: StaticValue) -> Iterator[StaticValue]:
    binding, node = value.binding, value.node
    if binding is None or not isinstance(node, ast.ClassDef):
        return
    for base in node.bases:
        try:
            yield from expression_values(binding.module, binding.env, base)
        except NoWorkflow:
            continue


def _decorated_values(
    binding: Binding, decorator: ast.expr, before: list[StaticValue]
) -> list[StaticValue]:
    module, env = binding.module, binding.env
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    bound = env.get((dotted_names(function) or [""])[0], ())
    if bound and all(
        each.path is not None and module.sources.is_of_others(each.path) for each in bound
    ):
        return before
    given = Binding(module, None, env)
    given.values = before
    return [
        value
        for each in expression_values(module, env, decorator)
        for value in _called_values(each, [given])
    ]


def _attribute_values(value: StaticValue, name: str) -> list[StaticValue]:
    if value.what == "module":
        if isinstance(value.held, ModuleType):
            return [loaded_value(value.held, [name])]
        return cast("SourceFinder", value.held).imported_values([*value.path, name])
    if value.what == "function":
        raise NoWorkflow(f"{name} of a function is no Workflow")
    found = _members(value, name)
    if found is None:
        raise NoWorkflow(
            f"{value.node.name if value.node is not None else value.what} has no {name!r}"
        )
    if value.what == "object" and any(each.what != "function" for each in found):
        raise NoWorkflow(f"{name} of an object is not seen in its source", opaque=True)
    return [each._replace(owner=value) if each.what == "function" else each for each in found]


def _members(value: StaticValue, name: str) -> list[StaticValue] | None:
    """Return the values that a class binds to a name, or that its bases do."""
    if value.node is None or value.binding is None:
        classes = cast("type[Any]", value.held).__mro__
        held = next((vars(base)[name] for base in classes if name in vars(base)), None)
        return [_value_of(held, name)] if held is not None else None
    module = value.binding.module
    reading = StatementReader(module, {**module.env, **value.binding.env}, local=True)
    outside = reading.env.get(name)
    reading.read_body(value.node.body)
    bound = reading.env.get(name)
    if bound is not None and bound is not outside:
        return [each for binding in bound for each in _bound_values(binding, [])]
    for base in _bases(value):
        if (found := _members(base, name)) is not None:
            return found
    return None


def _called_values(value: StaticValue, given: list[Binding]) -> list[StaticValue]:
    """Return the values that a call may return."""
    if value.what == "class":
        return [value._replace(what="object")]
    if value.what != "function":
        raise NoWorkflow(
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
        if any(each not in _CACHES for each in decorators) or is_generator(function):
            raise NoWorkflow(f"what {function.name} makes is not seen in its source", opaque=True)
        first = _first_values(value, decorators)
        found = _returned_values(function, binding, [*first, *given])
    except NoWorkflow as refusal:
        if not refusal.opaque:
            raise
        found = _annotated_values(function, binding)
        if not found:
            step = f"write what it returns: def {function.name}(…) -> Workflow"
            raise NoWorkflow(
                f"what the function {function.name} makes is not seen in its source; {step}",
                opaque=True,
            ) from refusal
    return found


def _first_values(value: StaticValue, decorators: list[str]) -> list[Binding]:
    """Return the binding of the first argument of a method: its class or object."""
    if value.owner is None or value.binding is None or "staticmethod" in decorators:
        return []
    if value.owner.what == "class" and "classmethod" not in decorators:
        return []
    first = Binding(value.binding.module, None, {})
    first.values = [
        value.owner._replace(what="class") if "classmethod" in decorators else value.owner
    ]
    return [first]


def _returned_values(
    function: ast.FunctionDef, binding: Binding, given: list[Binding]
) -> list[StaticValue]:
    module = binding.module
    around = {**module.env, **binding.env} if binding.local else module.env
    reading = StatementReader(module, around, local=True)
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    others = [*arguments.kwonlyargs, *filter(None, (arguments.vararg, arguments.kwarg))]
    for name in (*names, *[each.arg for each in others]):
        reading.bind(name, None)
    reading.env = {
        **reading.env,
        **{name: (each,) for name, each in zip(names, given, strict=False)},
    }
    reading.read_body(function.body)
    found = [
        value
        for node, env in reading.returns
        if node is not None
        for value in expression_values(module, env, node)
    ]
    if not found:
        raise NoWorkflow(
            f"the function {function.name} returns no Workflow, as far as its source says"
        )
    return found


def _annotated_values(function: ast.FunctionDef, binding: Binding) -> list[StaticValue]:
    """Return the values that a function's annotation promises. Empty: no Workflow."""
    node = function.returns
    try:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        found = (
            expression_values(binding.module, {**binding.env, **binding.module.env}, node)
            if node is not None
            else []
        )
    except (NoWorkflow, SyntaxError):
        return []
    return [each._replace(what="object") for each in found if each.what == "class"]


def _promised_values(value: StaticValue) -> list[StaticValue]:
    """Return the values that the annotation of a loaded function promises."""
    promised = getattr(value.held, "__annotations__", {}).get("return")
    if promised in ("Self", "typing.Self") and value.owner is not None:
        return [value.owner]
    if isinstance(promised, type) and issubclass(promised, Workflow):
        return [StaticValue("object", held=promised)]
    raise NoWorkflow("what a function makes is not seen without calling it", opaque=True)
