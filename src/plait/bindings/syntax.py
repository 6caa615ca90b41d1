"""Facts that follow from the syntax of a module alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def is_namespace(node: ast.expr) -> bool:
    """Return True for the names of a module: `globals()`, or `vars(sys.modules[__name__])`."""
    if not isinstance(node, ast.Call) or dotted_names(node.func)[-1:] not in (
        ["globals"],
        ["locals"],
        ["vars"],
    ):
        return False
    return not any(dotted_names(each) for each in node.args)


def written_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the module that a function or class in it may bind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
        elif (
            isinstance(node, ast.Subscript)
            and not isinstance(node.ctx, ast.Load)
            and is_namespace(node.value)
        ):
            if isinstance(node.slice, ast.Constant):
                yield str(node.slice.value)


def expressions_within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield an expression, and those in it that are evaluated with it."""
    yield node
    if not isinstance(node, (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        for each in ast.iter_child_nodes(node):
            yield from expressions_within(each)


def truth_of(test: ast.expr) -> bool | None:
    """Return True if a condition holds while a module is imported. None: that cannot be seen."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if (dotted_names(test) or [""])[-1] == "TYPE_CHECKING":
        return False
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        sides = [ast.unparse(each) for each in (test.left, *test.comparators)]
        return False if sorted(sides) == ["'__main__'", "__name__"] else None
    return None


def dotted_names(node: ast.AST) -> list[str]:
    """Return the names in `a.b.C`. Empty: it is something else."""
    if isinstance(node, ast.Attribute):
        before = dotted_names(node.value)
        return [*before, node.attr] if before else []
    return [node.id] if isinstance(node, ast.Name) else []


def is_generator(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(each, (ast.Yield, ast.YieldFrom))
        for statement in function.body
        for each in expressions_within(statement)
    )
