"""Programs of a cluster: they travel by name and code, never as pickles.

A worker says which workflows it has, as MODULE:NAME, and which code: a digest over the sources of
their packages, and the versions of the distributions that these import.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

from plait.errors import InvalidValue, NotPortable
from plait.fingerprint import fingerprint
from plait.ids import digest
from plait.program import PRIVATE, check_workflow, load
from plait.runtime.names import import_path
from plait.workflow import Workflow, name_target, target_of

_SOURCES_MAX = 5_000  # files of one package
_NAME = rb"\w[\w.]*(?:[ \t]+as[ \t]+\w+)?"
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\w[\w.]*)[ \t]+import\b"
    rb"|import[ \t]+(" + _NAME + rb"(?:[ \t]*,[ \t]*" + _NAME + rb")*))",
    re.MULTILINE,
)


def find_portable(workflow: Workflow | str) -> Workflow:
    """Return a workflow under a name by which any process that has its module finds it again.

    Raises NotPortable for one that has no such name: of a notebook, of `__main__`, of a file, or
    made with arguments.
    """
    if isinstance(workflow, str):
        if workflow.partition(":")[0].endswith(".py"):
            why = "a worker elsewhere does not have this file"
            raise NotPortable(workflow, why, "name a module that can be imported: MODULE:NAME")
        workflow = load(workflow)
    check_workflow(workflow if workflow is not None else ())  # pyright: ignore[reportUnnecessaryComparison]
    shown = import_path(type(workflow))
    target = target_of(workflow)
    if file := target.get("file"):
        _check_module(shown, file)
        return workflow
    try:
        _check_class(workflow, shown)
    except NotPortable:  # unless it has a name of its own in some module
        if (found := _module_level_name(workflow)) is None:
            raise
        name_target(workflow, {"file": found[0], "name": found[1]})
    return workflow


def program_of(workflow: Workflow) -> str:
    """Return the name under which workers know a program."""
    target = target_of(workflow)
    if target.get("file"):
        return f"{target['file']}:{target['name']}"
    return import_path(type(workflow))


def _check_module(shown: str, module: str) -> None:
    if module == "__main__" or PRIVATE in module or module.endswith(".py") or "/" in module:
        why = "it is code of a script, a notebook or a file, which no other process can import"
        step = "move it to a module, and import it from there"
        raise NotPortable(shown, why, step)
    loaded = sys.modules.get(module)
    if loaded is None or getattr(loaded, "__spec__", None) is None:
        step = "move it to a module, and import it from there"
        raise NotPortable(shown, f"there is no module {module!r} that could be imported", step)


def _check_class(workflow: Workflow, shown: str) -> None:
    """Raise unless any process makes an object like this one from its class."""
    _check_module(shown, type(workflow).__module__)
    if "<locals>" in type(workflow).__qualname__:
        step = "move the class to the top of a module"
        raise NotPortable(shown, "its class stands inside a function", step)
    _check_made_without_arguments(workflow, shown)


def _module_level_name(workflow: Workflow) -> tuple[str, str] | None:
    """Return the module that has this very object as a global, and its name there."""
    for module, loaded in list(sys.modules.items()):
        if module == "__main__" or PRIVATE in module or getattr(loaded, "__spec__", None) is None:
            continue
        for name, value in list(vars(loaded).items()):
            if value is workflow and name.isidentifier():
                return module, name
    return None


def _check_made_without_arguments(workflow: Workflow, shown: str) -> None:
    """Raise unless the class, called without arguments, makes an object like this one."""
    step = "give it a name in its module, or write a class that needs no arguments"
    try:
        fresh = type(workflow)()
    except Exception as error:
        why = f"a worker could not make it: {type(error).__name__}: {error}"
        raise NotPortable(shown, why, step) from None
    if _are_plainly_alike(workflow, fresh):
        return
    mine, theirs = fingerprint(workflow), fingerprint(fresh)
    if not mine.unknown and not theirs.unknown and mine.digest != theirs.digest:
        why = "a worker would make it without arguments, and this one was made with some"
        raise NotPortable(shown, why, step)


def _are_plainly_alike(one: Workflow, other: Workflow) -> bool:
    """True if two objects of a class have the same attributes, as far as that can be seen without
    reading into these.
    """
    if type(one).__basicsize__ != Workflow.__basicsize__:  # slots, or the items of a list
        return False
    mine, theirs = vars(one), vars(other)
    if mine.keys() != theirs.keys():
        return False
    return all([mine[name] is theirs[name] for name in mine])


# ── the programs of a worker ─────────────────────────────────────────────────────────────────


def served_programs(modules: Sequence[str]) -> frozenset[str]:
    """Return the workflows of modules, classes and objects, as MODULE:NAME. Imports them.

    Raises InvalidValue if there are none.
    """
    if isinstance(modules, str):
        raise InvalidValue("modules", "a text is not a list of them", f"pass [{modules!r:.60}]")
    if not modules:
        raise InvalidValue("modules", "there are none", "name those that have the workflows")
    found = frozenset(name for module in modules for name in _names_in(module))
    if not found:
        why = f"{', '.join(modules)} has no workflow"
        raise InvalidValue("modules", why, "name a module with a Workflow in it")
    return found


def _names_in(target: str) -> Iterator[str]:
    module, _, only = target.partition(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # one that the module itself imports
            raise
        step = "go to the folder it is in, or install it"
        raise InvalidValue("modules", f"there is no module {error.name!r}", step) from None
    for name, value in vars(loaded).items():
        if only and name != only:
            continue
        if isinstance(value, Workflow):
            yield f"{module}:{name}"
        elif _is_own_class(value, module):
            yield f"{module}:{value.__qualname__}"


def _is_own_class(value: Any, module: str) -> bool:
    return inspect.isclass(value) and issubclass(value, Workflow) and value.__module__ == module


@cache
def code_of(modules: tuple[str, ...]) -> str:
    """Return the digest of the code of modules: the sources of their top-level packages, and the
    versions of the distributions that these import.
    """
    parts = list[bytes]()
    imported = set[str]()
    for package in sorted({module.partition(":")[0].partition(".")[0] for module in modules}):
        for name, source in _sources_of(package):
            parts += [name.encode(), source]
            imported |= _imports_in(source)
    parts += [f"{name}=={version}".encode() for name, version in _versions_of(imported)]
    return digest(b"plait/code/1", *parts)[:16]


def _sources_of(package: str) -> Sequence[tuple[str, bytes]]:
    """Return the sources of a package by their names in it, sorted."""
    spec = util.find_spec(package)
    if spec is None:
        return ()
    if spec.submodule_search_locations is None:
        file = Path(spec.origin or "")
        return [(package, file.read_bytes())] if file.is_file() else ()
    folders = [Path(each) for each in spec.submodule_search_locations]
    files = [(file, folder) for folder in folders for file in folder.rglob("*.py")]
    named = {file.relative_to(folder).as_posix(): file for file, folder in files[:_SOURCES_MAX]}
    return [(name, named[name].read_bytes()) for name in sorted(named)]


def _imports_in(source: bytes) -> set[str]:
    """Return the top-level names that a source imports, and perhaps more: lines of texts that look
    like imports count, too, since to parse all sources of a package takes seconds.
    """
    found = set[str]()
    for source_of, names in _IMPORT.findall(source):
        parts = [source_of] if source_of else names.split(b",")
        found |= {part.split()[0].partition(b".")[0].decode() for part in parts}
    return found


def _versions_of(imported: set[str]) -> list[tuple[str, str]]:
    """Return the distributions that give these names, with their versions."""
    distributions = metadata.packages_distributions()
    names = {each for name in imported for each in distributions.get(name, ())}
    return sorted((name, metadata.version(name)) for name in names)
