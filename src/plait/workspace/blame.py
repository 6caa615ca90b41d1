"""Blame: each line of a text is followed back to the version that brought it.

This module knows nothing of sessions: a version is a content, the versions it was made from, and a
tag that is handed back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from plait.workspace.lines import matching, split


class FileVersion(NamedTuple):
    """One state of a file."""

    content: bytes | None  # None: the file was not there
    parents: tuple[int, ...]  # places of earlier versions in the sequence; several for a merge
    tag: Any  # stands for the version in the answer


def attribute(versions: Sequence[FileVersion]) -> list[tuple[Any, bytes]]:
    """Return the lines of the last version, each with the tag of the version that brought it.

    A version comes after those it was made from. If several parents have a line, the first one
    wins.
    """
    if not versions:
        return []
    needed = _ancestors(versions)
    # equal lines are one object, so that comparing them costs nothing
    known: dict[bytes, bytes] = {}
    lines = {at: _shared(split(versions[at].content or b""), known) for at in needed}
    origins: dict[int, list[int]] = {}
    for at in needed:
        origins[at] = _origins(
            at, [(lines[parent], origins[parent]) for parent in versions[at].parents], lines[at]
        )
    last = len(versions) - 1
    return [
        (versions[origin].tag, line)
        for origin, line in zip(origins[last], lines[last], strict=True)
    ]


def _shared(lines: list[bytes], known: dict[bytes, bytes]) -> list[bytes]:
    """Return the same lines, each as the object that is known for it."""
    return [*map(known.setdefault, lines, lines)]


def _origins(
    at: int, parents: Sequence[tuple[list[bytes], list[int]]], lines: list[bytes]
) -> list[int]:
    if len(parents) == 1:  # as most have: blocks are taken over whole
        their_lines, their_origins = parents[0]
        mine = [at] * len(lines)
        for i, j, size in matching(their_lines, lines):
            mine[j : j + size] = their_origins[i : i + size]
        return mine
    found: list[int | None] = [None] * len(lines)
    for their_lines, their_origins in parents:
        for i, j, size in matching(their_lines, lines):
            theirs = their_origins[i : i + size]
            found[j : j + size] = [
                new if old is None else old
                for old, new in zip(found[j : j + size], theirs, strict=True)
            ]
    return [at if origin is None else origin for origin in found]


def _ancestors(versions: Sequence[FileVersion]) -> list[int]:
    """Return the places of the last version and of all versions it comes from, in order."""
    found: set[int] = set()
    open = [len(versions) - 1]
    while open:
        at = open.pop()
        if at not in found:
            found.add(at)
            open += versions[at].parents
    return sorted(found)
