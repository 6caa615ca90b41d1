"""Follows the imports of code through the sources of the program, without importing anything."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from plait.fingerprint.code import absolute_name, facts_of_source
from plait.fingerprint.modules import origin_of
from plait.fingerprint.ownership import is_own


class ImportedSources(NamedTuple):
    """The program's own modules that some code imports."""

    digests: dict[str, str]  # by module
    unread: list[str]  # a complaint for each module that has no source, or an unreadable one
    visited: int  # number of modules that were looked at


def read_imports(names: Iterable[str], visits_max: int) -> ImportedSources:
    """Read the program's own modules that these names stand for, and all that those import."""
    digests: dict[str, str] = {}
    unread: list[str] = []
    visited = 0
    todo, done = list(names), set[str]()
    while todo:
        name = todo.pop()
        if name in done:
            continue
        done.add(name)
        # the package is imported before it
        todo += [name.rpartition(".")[0]] if "." in name else []
        origin = origin_of(name)
        if origin is None or not is_own(name, origin):
            continue
        visited += 1
        if not origin.endswith(".py") or visited > visits_max:
            unread.append(f"it imports {name}, which has no source to read")
            continue
        try:
            facts = facts_of_source(Path(origin).read_bytes())
        except (OSError, SyntaxError, ValueError):
            unread.append(f"it imports {name}, which cannot be read")
            continue
        digests[name] = facts.digest
        package = name if Path(origin).name == "__init__.py" else name.rpartition(".")[0]
        todo += [absolute_name(each, package) for each in facts.imports]
        todo += [f"{absolute_name(each, package)}.{item}" for each, item in facts.items]
    return ImportedSources(digests, unread, visited)
