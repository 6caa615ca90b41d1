"""Rules: the names that are no part of a workspace.

`.plait` never is, at any depth. Heavy folders (a virtual environment, node_modules, .git) are left
out because they can be made again and would cost more than all the rest; a sandbox mounts them
read-only where they lie. Junk are leftovers of tools. A caller can name more, and so can a
`.plaitignore` in the root: one name or glob per line, with a `/` in it a path from the root, with a
`/` at its end folders only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from plait.errors import InvalidValue
from plait.workspace.disk import is_locked

HEAVY = (".git", ".venv", "venv", "node_modules", ".tox", ".nox")
JUNK = (
    "__pycache__",
    "*.pyc",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".DS_Store",
)
STORE = ".plait"
NEVER = (STORE, ".plait-*.tmp")  # the store, and files that are being written
FILE = ".plaitignore"


class Rules(msgspec.Struct, frozen=True):
    """Names to leave out.

    The same rules belong to the first snapshot of a folder and to every later one.
    """

    heavy: tuple[str, ...] = HEAVY  # names of folders
    junk: tuple[str, ...] = JUNK
    ignore: tuple[str, ...] = ()  # further names, globs and paths

    def leaves_out(self, folder: str, name: str, *, is_folder: bool) -> bool:
        """Return True if an entry of this name, in the folder of this path, is no part of
        the tree.
        """
        return compile_rules(self).leaves_out(folder, name, is_folder)


USUAL = Rules()


class Compiled(NamedTuple):
    """Rules compiled for speed: they are applied to every file."""

    names: frozenset[str]
    folders: frozenset[str]
    globs: re.Pattern[str] | None
    folder_globs: re.Pattern[str] | None
    paths: re.Pattern[str] | None
    folder_paths: re.Pattern[str] | None

    def leaves_out(self, folder: str, name: str, is_folder: bool) -> bool:
        if name in self.names or (is_folder and name in self.folders):
            return True
        if (self.globs and self.globs.match(name)) or (
            is_folder and self.folder_globs and self.folder_globs.match(name)
        ):
            return True
        if not self.paths and not self.folder_paths:
            return False
        path = f"{folder}/{name}" if folder else name
        return bool(
            (self.paths and self.paths.match(path))
            or (is_folder and self.folder_paths and self.folder_paths.match(path))
        )


@lru_cache(64)
def compile_rules(rules: Rules) -> Compiled:
    lines = [*NEVER, *rules.junk, *(line for line in map(str.strip, rules.ignore) if line)]
    both = [line for line in lines if not line.endswith("/")]
    only = [*(f"{name}/" for name in rules.heavy), *(line for line in lines if line.endswith("/"))]
    names, globs, paths = _sort_patterns(both)
    folders, folder_globs, folder_paths = _sort_patterns(line.rstrip("/") for line in only)
    return Compiled(names, folders, globs, folder_globs, paths, folder_paths)


def _sort_patterns(
    lines: Iterable[str],
) -> tuple[frozenset[str], re.Pattern[str] | None, re.Pattern[str] | None]:
    """Sort lines into plain names, globs of names, and globs of whole paths."""
    names: list[str] = []
    globs: list[str] = []
    paths: list[str] = []
    for line in lines:
        if "/" in line:
            paths.append(line.lstrip("/"))
        elif re.search(r"[*?\[]", line):
            globs.append(line)
        else:
            names.append(line)
    return frozenset(names), _any_of(globs), _any_of(paths)


def _any_of(globs: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(translate, globs))) if globs else None


def rules_for(
    folder: Path | str, *, ignore: Iterable[str] = (), store: Path | str | None = None
) -> Rules:
    """Return the rules of a folder on this machine: the caller's names, its `.plaitignore`, and the
    store's own folder if it lies inside.
    """
    root = os.path.realpath(folder)
    lines = [*ignore, *_ignore_lines(Path(root, FILE))]
    inside = os.path.relpath(os.path.realpath(store), root) if store is not None else ".."
    if inside.split(os.sep)[0] not in ("..", "."):
        lines.append("/" + re.sub(r"([*?\[])", r"[\1]", inside))
    return Rules(ignore=tuple(dict.fromkeys(lines)))


def _ignore_lines(file: Path) -> list[str]:
    try:
        # A link is not read: a repository could bring one that leads to a file of the machine.
        text = (
            file.read_text("utf-8", "surrogateescape")
            if file.is_file() and not file.is_symlink()
            else ""
        )
    except OSError:
        return []
    lines = [line.strip() for line in text.splitlines()]
    for line in lines:
        if line.startswith("!"):
            raise InvalidValue(
                FILE,
                f"{line!r} takes something back, which is not known here",
                "name only what is to be left out",
            )
    return [line for line in lines if line and not line.startswith("#")]


def heavy_in(folder: Path | str, rules: Rules = USUAL) -> list[str]:
    """Return the paths of the heavy folders in a folder, at any depth; none is entered."""
    found: list[str] = []
    heavy = frozenset(rules.heavy)
    below = [""]
    while below:
        path = below.pop()
        for name in _folder_names(os.path.join(folder, path)):
            here = f"{path}/{name}" if path else name
            if name in heavy:
                found.append(here)
            elif not rules.leaves_out(path, name, is_folder=True):
                below.append(here)
    return sorted(found)


def stores_in(folder: Path | str, rules: Rules = USUAL) -> list[str]:
    """Return the paths that have the name of a store, at any depth, heavy folders aside."""
    found: list[str] = []
    below = [""]
    while below:
        path = below.pop()
        for name in _folder_names(os.path.join(folder, path)):
            here = f"{path}/{name}" if path else name
            if name == STORE:
                found.append(here)
            elif name not in rules.heavy:
                below.append(here)
    return sorted(found)


def _folder_names(path: str) -> list[str]:
    try:
        with os.scandir(path) as listing:
            found = [item for item in listing if item.is_dir(follow_symlinks=False)]
            return [
                item.name
                for item in found
                if not is_locked(item.stat(follow_symlinks=False).st_mode)
            ]
    except OSError:  # gone, or closed to us
        return []
