"""The values and bindings that are followed through the sources of modules."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol


class NoWorkflow(Exception):
    """The source shows no Workflow under the name."""

    def __init__(self, why: str, opaque: bool = False) -> None:
        super().__init__(why)
        self.opaque = opaque  # it cannot be seen, and may be one


class NoModule(NoWorkflow):
    """There is no such module: the import fails, and binds nothing."""


class SourceFinder(Protocol):
    """The modules that are read for one name."""

    def step(self) -> None: ...
    def public_names(self, package: list[str]) -> list[str]: ...
    def imported_values(self, path: list[str]) -> list[StaticValue]: ...
    def is_of_others(self, path: list[str]) -> bool: ...


class SourceModule(Protocol):
    """A module that is read and not imported."""

    env: Bindings

    @property
    def file(self) -> Path: ...
    @property
    def sources(self) -> SourceFinder: ...
    def package(self, node: ast.ImportFrom) -> list[str]: ...


class StaticValue(NamedTuple):
    """A Workflow's class or object, or a function or module that leads to one."""

    what: Literal["class", "object", "function", "module"]
    node: ast.ClassDef | ast.FunctionDef | None = None  # None: it is loaded
    binding: Binding | None = None  # where the node stands
    held: Any = None
    owner: StaticValue | None = None  # the class or object that a method is of
    path: tuple[str, ...] = ()  # of a module that is not loaded


class Binding:
    """The node that a name is bound to, with the bindings of other names at that statement."""

    def __init__(
        self,
        module: SourceModule,
        node: ast.AST | None,
        env: Bindings,
        *,
        path: list[str] | None = None,
    ) -> None:
        self.module, self.node, self.env = module, node, env
        self.path = path  # of an import
        self.values: list[StaticValue] | None = None  # None: by the node
        self.local = False


Bindings = Mapping[str, tuple[Binding, ...]]


def merge_bindings(envs: Iterable[Bindings]) -> Bindings:
    found: dict[str, tuple[Binding, ...]] = {}
    for env in envs:
        for name, bound in env.items():
            there = found.get(name, ())
            found[name] = (
                there
                if there is bound
                else (*there, *[each for each in bound if each not in there])
            )
    return found
