"""Follows the statements of a module, a class or a function, and collects the bindings."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from plait.bindings.syntax import (
    dotted_names,
    expressions_within,
    is_namespace,
    truth_of,
)
from plait.bindings.values import (
    Binding,
    Bindings,
    SourceModule,
    merge_bindings,
)

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


class StatementReader:
    """Follows the statements of a module, a class or a function."""

    def __init__(self, module: SourceModule, env: Bindings, *, local: bool) -> None:
        self.module, self.env, self._local = module, env, local
        self.returns: list[tuple[ast.expr | None, Bindings]] = []
        self.is_rewritten = False  # names are bound that cannot be seen

    def read_body(self, body: Iterable[ast.AST]) -> None:
        for node in body:
            read = getattr(self, f"_read_{type(node).__name__}", None)
            if read is not None:
                read(node)
            else:
                self._expression(node)

    def bind(self, name: str, node: ast.AST | None, path: list[str] | None = None) -> Binding:
        bound = Binding(self.module, node, self.env, path=path)
        bound.local = self._local
        self.env = {**self.env, name: (bound,)}
        return bound

    def _bind_maybe(self, name: str, node: ast.AST | None) -> None:
        before = self.env
        self.bind(name, node)
        self.env = merge_bindings([before, self.env])

    def _branches(self, *bodies: Iterable[ast.AST], before: Bindings) -> Iterator[Bindings]:
        for body in bodies:
            self.env = before
            self.read_body(body)
            yield self.env

    def _read_FunctionDef(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> None:
        for each in node.decorator_list:
            self._expression(each)
        if isinstance(node, ast.ClassDef):
            inner = StatementReader(self.module, self.env, local=True)
            inner.read_body(node.body)
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
        taken = truth_of(node.test)
        bodies = [
            *([node.body] if taken is not False else []),
            *([node.orelse] if taken is not True else []),
        ]
        self.env = merge_bindings(list(self._branches(*bodies, before=self.env)))

    def _read_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._expression(node.iter)
        before = self.env
        self._assign(node.target, None)
        self.read_body(node.body)
        self.env = merge_bindings([before, self.env])
        self.read_body(node.orelse)

    _read_AsyncFor = _read_For

    def _read_While(self, node: ast.While) -> None:
        self._expression(node.test)
        self.env = merge_bindings([self.env, *self._branches(node.body, before=self.env)])
        self.read_body(node.orelse)

    def _read_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self._expression(item.context_expr)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, None)
        self.read_body(node.body)

    _read_AsyncWith = _read_With

    def _read_Try(self, node: ast.Try | ast.TryStar) -> None:
        before = self.env
        self.read_body(node.body)
        failed = merge_bindings([before, self.env])
        self.read_body(node.orelse)
        ends = [self.env]
        for handler in node.handlers:
            self.env = failed
            if handler.name:
                self.bind(handler.name, None)
            self.read_body(handler.body)
            self.env = {name: bound for name, bound in self.env.items() if name != handler.name}
            ends.append(self.env)
        self.env = merge_bindings(ends)
        self.read_body(node.finalbody)

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
            self.read_body(case.body)
            ends.append(self.env)
        self.env = merge_bindings(ends)

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
        """Bind a target. `value` is None if it cannot be seen."""
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
        """Bind the names that an expression binds."""
        for each in expressions_within(node):
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
        """Follow the setting of an item. In a dict of the module's names it binds one of them."""
        if isinstance(holder, ast.Attribute) and holder.attr == "__dict__":
            self._write_key(key)
        elif isinstance(holder, ast.Attribute) and holder.attr == "modules":
            self.is_rewritten = True
        elif is_namespace(holder):
            self._write_key(key)

    def _write_key(self, key: ast.expr) -> None:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            self._bind_maybe(key.value, None)
        else:
            self.is_rewritten = True
