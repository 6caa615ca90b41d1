"""The modules that are read for one name."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

from plait.bindings.expressions import loaded_value, look_up
from plait.bindings.statements import StatementReader
from plait.bindings.syntax import (
    written_names,
)
from plait.bindings.values import (
    Binding,
    Bindings,
    NoModule,
    NoWorkflow,
    StaticValue,
    merge_bindings,
)
from plait.fingerprint import is_own, module_spec, source_file

STEPS_MAX = 5_000  # expressions that are looked at for one name
_PLAIT = __name__.partition(".")[0]
# their decorators leave a class a class
_KEEP_CLASSES = frozenset({"abc", "dataclasses", "functools", "typing"})


class ProgramSources:
    """Reads the modules that are needed for one name, each once."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self._folders = folders  # where imports are found
        self._modules: dict[str, ProgramModule] = {}
        self.steps = 0

    def module(self, file: Path, name: str) -> ProgramModule:
        if str(file) not in self._modules:
            self._modules[str(file)] = ProgramModule(self, file, name)
            self._modules[str(file)].read_source()
        return self._modules[str(file)]

    def step(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise NoWorkflow("its source says so in too many steps")

    def public_names(self, package: list[str]) -> list[str]:
        """Return the names that `from package import *` binds, as far as the source shows."""
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

    def imported_values(self, path: list[str]) -> list[StaticValue]:
        """Return the values of a name in other modules: a loaded module gives its value, any other
        one is read.
        """
        for cut in range(len(path) - 1, 0, -1):
            name, names = ".".join(path[:cut]), path[cut:]
            if path[0] == _PLAIT:  # it is running already
                try:
                    return [loaded_value(importlib.import_module(name), names)]
                except ImportError:
                    continue
            if name in sys.modules:
                return [loaded_value(sys.modules[name], names)]
            if (
                path[0] not in sys.stdlib_module_names
                and (file := source_file(name, self._folders)) is not None
            ):
                found = self.module(file, name)
                if names[0] in found.env or not self._is_module(path[: cut + 1]):
                    return found.values_of(names)
        if self._is_module(path):
            return [StaticValue("module", held=self, path=tuple(path))]
        if path[0] not in sys.modules and module_spec(path[0], self._folders) is None:
            raise NoModule(f"there is no module {path[0]!r} here")
        raise NoWorkflow(
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
        """Return True if an import leads to an installed package, or to a standard module with
        decorators that return the class they get.
        """
        if path[0] in sys.stdlib_module_names:
            return path[0] in _KEEP_CLASSES
        file = source_file(path[0], self._folders)
        return path[0] == _PLAIT or file is None or not is_own(path[0], str(file))


class ProgramModule:
    """The source of a module that is not imported."""

    def __init__(self, sources: ProgramSources, file: Path, name: str) -> None:
        self.sources, self.file, self._name = sources, file, name
        self.env: Bindings = {}
        self._is_rewritten = False

    def read_source(self) -> None:
        tree = ast.parse(self.file.read_bytes(), str(self.file))
        reading = StatementReader(self, {}, local=False)
        reading.read_body(tree.body)
        unseen = {name: (Binding(self, None, {}),) for name in written_names(tree)}
        self.env, self._is_rewritten = merge_bindings([reading.env, unseen]), reading.is_rewritten

    def package(self, node: ast.ImportFrom) -> list[str]:
        """Return the path of the module that `from … import` names."""
        wanted = node.module.split(".") if node.module else []
        if not node.level:
            return wanted
        parts = self._name.split(".")
        up = node.level - (self.file.name == "__init__.py")
        return [*parts[: len(parts) - up], *wanted]

    def values_of(self, names: list[str]) -> list[StaticValue]:
        if self._is_rewritten:
            raise NoWorkflow(
                f"{self.file.name} binds names that its source does not show (exec, globals)",
                opaque=True,
            )
        found = look_up(self.env, names)
        if found is None:
            raise NoWorkflow(f"{self.file.name} has no {'.'.join(names)!r}")
        return found
