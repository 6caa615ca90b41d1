"""Paths as models write them: relative to the workspace, or as the sandbox shows them; anything
else is refused before it is tried.
"""

from __future__ import annotations

from plait.errors import InvalidValue, NoSuchFile, OutsideWorkspace
from plait.sandbox import Sandbox
from plait.workspace import TreeEntry

_NAME_MAX, _PATH_MAX = 255, 4_000  # bytes, as file systems have it

# Folders that are full of other people's files: they are listed by name, and entered only when a
# path names them.
HEAVY = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".tox",
        ".nox",
        ".venv",
        "venv",
        "node_modules",
        "__pycache__",
        ".mypy_cache",
        ".ruff_cache",
    }
)


def path_in(sandbox: Sandbox, path: str) -> str:
    """Return the path relative to the workspace; "" is the workspace itself."""
    raw = path.encode("utf-8", "surrogateescape")
    if "\0" in path:
        raise InvalidValue("path", "it holds a zero character", "name a file of the workspace")
    if len(raw) > _PATH_MAX or any(len(part) > _NAME_MAX for part in raw.split(b"/")):
        raise InvalidValue(
            "path", f"{path[:60]!r}… is too long for a path", "name a file of the workspace"
        )
    home = sandbox.workdir.rstrip("/")
    if path == home or path.startswith(f"{home}/"):
        path = path[len(home) :].lstrip("/")
    if path.startswith("/"):
        raise OutsideWorkspace(path, f"it is absolute, and the workspace is {home}")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        parts = _resolve_parents(path, parts)
    return "/".join(parts)


def _resolve_parents(path: str, parts: list[str]) -> list[str]:
    """Resolve `..`, which may not lead above the workspace."""
    made: list[str] = []
    for part in parts:
        if part != "..":
            made.append(part)
        elif made:
            made.pop()
        else:
            raise OutsideWorkspace(path)
    return made


def entry_or_none(sandbox: Sandbox, path: str) -> TreeEntry | None:
    """Return the entry at a path; None: there is none."""
    try:
        return sandbox.files.entry(path)
    except NoSuchFile:
        return None
