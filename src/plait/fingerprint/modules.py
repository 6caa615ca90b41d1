"""Finds the source of modules without importing them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from plait.fingerprint.ownership import (
    file_of,
)


def source_file(module: str, folders: Iterable[str] | None = None) -> Path | None:
    """Return the file of a module's source, found without importing anything.

    None: there is none.
    """
    spec = module_spec(module, folders)
    origin = spec.origin if spec is not None else None
    return Path(origin) if origin and origin.endswith(".py") else None


def origin_of(module: str) -> str | None:
    """Return the file that an import of a module would take. None: there is none, or it is a
    folder.
    """
    spec = module_spec(module)
    if spec is not None:
        return spec.origin if spec.has_location else None
    return file_of(module)


def module_spec(module: str, folders: Iterable[str] | None = None) -> ModuleSpec | None:
    """Return the spec that an import of a module would find, without importing it. None: none."""
    path: Iterable[str] | None = folders
    spec: ModuleSpec | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            spec = _find_spec(
                name, list(path) if path is not None else None, anywhere=folders is None
            )
        except (ImportError, ValueError, AttributeError):
            return None
        if spec is None:
            return None
        path = spec.submodule_search_locations or ()
    return spec


def _find_spec(name: str, path: list[str] | None, *, anywhere: bool) -> ModuleSpec | None:
    """Ask the finders that an import asks: a module beside a file, or of an editable package, is
    not on the path.
    """
    if not anywhere:
        return PathFinder.find_spec(name, path)
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, None) if find is not None else None
        if spec is not None:
            return spec
    return None
