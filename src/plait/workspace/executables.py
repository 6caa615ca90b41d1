"""Files that the user's programs run by themselves: they are published, and named with the reason.

Many programs read executable configuration where they find it (`conftest.py`, `Makefile`,
`.envrc`). A file is found by its own name, or by that of a link which leads to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from functools import cache
from pathlib import Path

from plait.ids import Digest
from plait.workspace.base import FileChange
from plait.workspace.executable_names import EXECUTABLE_NAMES
from plait.workspace.folder_walk import LINKS_MAX
from plait.workspace.tree import TreeReader
from plait.workspace.version_control import folded_name


@cache
def _name_patterns() -> list[tuple[re.Pattern[str], str]]:
    return [(_any_of(globs.split()), why) for globs, why in EXECUTABLE_NAMES]


@cache
def _folder_patterns() -> list[tuple[re.Pattern[str], str]]:
    """Patterns of folders in which files are run: a link in the place of one stands for all files
    it leads to.
    """
    found: list[tuple[re.Pattern[str], str]] = []
    for globs, why in EXECUTABLE_NAMES:
        parts = [glob.split("/") for glob in globs.split() if "/" in glob]
        if parts:
            found.append(
                (
                    _any_of("/".join(each[:end]) for each in parts for end in range(1, len(each))),
                    why,
                )
            )
    return found


def _any_of(globs: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(translate(glob.casefold()) for glob in globs))


def executable_reason(path: str, *, is_link: bool = False) -> str | None:
    """Return the reason why a program would run a file of this path by itself. None: no known
    program would.
    """
    parts = [folded_name(part) for part in path.split("/")]
    ends = ["/".join(parts[at:]) for at in range(len(parts))]
    patterns = [*_name_patterns(), *(_folder_patterns() if is_link else ())]
    return next(
        (why for pattern, why in patterns if any(pattern.fullmatch(end) for end in ends)), None
    )


def executables(
    reader: TreeReader, folder: Path, tree: Digest, todo: Iterable[FileChange]
) -> dict[str, str]:
    """Return the written paths that programs run by themselves, each with the reason.

    A path is judged by its own name and by those of links that the new tree has to it.
    """
    root, links = os.path.realpath(folder), dict[str, list[str]]()
    for path, entry in reader.walk(tree):
        if (
            entry.kind == "link"
            and (end := _link_end(reader, root, tree, path, entry.target)) is not None
        ):
            links.setdefault(end, []).append(path)
    found: dict[str, str] = {}
    for change in todo:
        if change.after is None:
            continue
        is_link = change.after.kind == "link"
        for name in _names_by_links(change.path, links):
            if (why := executable_reason(name, is_link=is_link)) is not None:
                found[change.path] = (
                    why if name == change.path else f"by a link it is {name!r}: {why}"
                )
                break
    return found


_NAMES_MAX = 1000  # of one file, by links


def _names_by_links(path: str, links: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a path, and the paths that lead to the same entry by links."""
    found = [path]
    for name in found:  # grows meanwhile: a link may lie below another
        parts = name.split("/") if links else []
        for end in range(len(parts) + 1):
            for link in links.get("/".join(parts[:end]), ()):
                other = "/".join([link, *parts[end:]])
                if other not in found and len(found) < _NAMES_MAX and other.count("/") < LINKS_MAX:
                    found.append(other)
    return found


def _link_end(reader: TreeReader, root: str, tree: Digest, path: str, target: str) -> str | None:
    """Return the path in the tree that a link leads to. None: it leads out of the tree, or
    nowhere.
    """
    done, rest, links = path.split("/"), list[str](), 0
    while target:
        done, links = done[:-1], links + 1
        if links > LINKS_MAX or (
            target.startswith("/") and not f"{target}/".startswith(f"{root}/")
        ):
            return None
        if target.startswith("/"):
            done, target = [], target[len(root) :]
        rest, target = [*target.split("/"), *rest], ""
        while rest and not target:
            name = rest.pop(0)
            if name == ".." and not done:  # out, and perhaps in again
                back = os.path.relpath(
                    os.path.normpath(os.path.join(root, "..", *rest)), root
                ).split("/")
                if back[0] == "..":
                    return None
                rest = back
            elif name == "..":
                done.pop()
            elif name not in ("", "."):
                done.append(name)
                entry = reader.find(tree, "/".join(done))
                target = entry.target if entry is not None and entry.kind == "link" else ""
    return "/".join(done)
