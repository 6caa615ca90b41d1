"""Tells the program's own code from that of the standard library, installed packages and Plait."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any, cast


@lru_cache(4096)
def is_own(module: str | None, file: str | None) -> bool:
    """Return True if a module belongs to neither the standard library, an installed package nor
    Plait.
    """
    top = (module or "").partition(".")[0]
    if top == _PLAIT:
        return False
    if top in sys.stdlib_module_names and top != "__main__":
        # A file of the program may have the name of one of the library's modules.
        return (
            file is not None
            and os.path.isabs(file)
            and not file.startswith((*_library_folders(), *_package_folders()))
        )
    return file is None or not file.startswith(_package_folders())


_PLAIT = __name__.partition(".")[0]


def is_own_function(function: FunctionType) -> bool:
    """Return True if a function is the program's own, by its module or by the file of its code.

    `functools.wraps` copies the name of the module from the wrapped function.
    """
    file, scope = function.__code__.co_filename, function.__globals__
    return is_own(function.__module__, file) or is_own(
        cast("str | None", scope.get("__name__")), file
    )


def is_own_class(cls: type[Any]) -> bool:
    """Return True if a class is the program's own, by its module or by those of its methods."""
    if is_own(cls.__module__, file_of(cls.__module__)):
        return True
    functions = [each for each in vars(cls).values() if isinstance(each, FunctionType)]
    modules = {str(each.__globals__.get("__name__")) for each in functions}
    return any(name in sys.modules and is_own(name, file_of(name)) for name in modules)


def home_of(cls: type[Any]) -> str:
    """Return the name of the module under which a digest lists a class."""
    module = cls.__module__
    if module == "plait.combinators":
        return "plait.workflow"  # its classes were there when digests of them were recorded
    return next((home for home in _HOMES if module.startswith(f"{home}.")), module)


# Packages that name their classes as one module: a class may move inside, and no digest changes.
_HOMES = ("plait.errors", "plait.event.kinds")


@lru_cache(1)
def _library_folders() -> tuple[str, ...]:
    folders = {
        os.path.dirname(os.__file__),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")),
    }
    return tuple(sorted(f"{folder}/" for folder in folders | set(map(os.path.realpath, folders))))


@lru_cache(1)
def _package_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("purelib", "platlib") if paths.get(name)}
    found |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    return tuple(sorted(f"{path}/" for path in found))


def file_of(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)
