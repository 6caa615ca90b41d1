"""The difference between two trees as a value: paths, counts of lines, and a patch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from plait.ids import Digest
from plait.workspace.base import FileChange
from plait.workspace.diff import SIZE_MAX, Stat, changes, is_folder, renames, stat_lines
from plait.workspace.git_patch import patch_text, quoted_path
from plait.workspace.tree import Objects, TreeReader

LISTED_MAX = 200  # paths in a summary


class Changes:
    """The differences between the files of two trees.

    Computed when first asked for; printed as a list of the changed paths.
    """

    def __init__(
        self, objects: Objects | TreeReader, left: Digest | None, right: Digest | None
    ) -> None:
        self._objects, self.left, self.right = objects, left, right

    @cached_property
    def all(self) -> tuple[FileChange, ...]:
        return tuple(changes(self._objects, self.left, self.right))

    @cached_property
    def renamed_paths(self) -> dict[str, str]:
        """New path by old path."""
        return {pair.removed.path: pair.added.path for pair in renames(self.all)}

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths that differ, both names of a renamed file included."""
        return tuple(change.path for change in self.all)

    @property
    def added_paths(self) -> tuple[str, ...]:
        """Paths that only the right side has, renamed files aside."""
        come = set(self.renamed_paths.values())
        return tuple(
            each.path for each in self.all if each.before is None and each.path not in come
        )

    @property
    def removed_paths(self) -> tuple[str, ...]:
        """Paths that only the left side has, renamed files aside."""
        return tuple(
            each.path
            for each in self.all
            if each.after is None and each.path not in self.renamed_paths
        )

    @property
    def changed_paths(self) -> tuple[str, ...]:
        """Paths that both sides have, in different states."""
        return tuple(
            each.path for each in self.all if each.before is not None and each.after is not None
        )

    def patch(self, *, context: int = 3, size_max: int = SIZE_MAX) -> str:
        """A patch for `git apply` and `patch -p1`."""
        return patch_text(self._objects, self.all, context=context, size_max=size_max)

    def stat(self, *, size_max: int = SIZE_MAX) -> list[Stat]:
        return stat_lines(self._objects, self.all, size_max=size_max)

    def __bool__(self) -> bool:
        return self.left != self.right and bool(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[FileChange]:
        return iter(self.all)

    def __contains__(self, path: object) -> bool:
        return path in self.paths

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Changes) and (self.left, self.right) == (other.left, other.right)

    def __hash__(self) -> int:
        return hash((self.left, self.right))

    def __repr__(self) -> str:
        return f"<Changes {(self.left or 'none')[:12]} to {(self.right or 'none')[:12]}>"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, most: int = LISTED_MAX) -> list[str]:
        """Return one line for each path: A added, M changed, D removed, R renamed, with the numbers
        of lines added and removed.
        """
        come = {new: old for old, new in self.renamed_paths.items()}
        shown = [each for each in self.all if each.path not in self.renamed_paths]
        found = [
            _change_line(each, stat, come)
            for each, stat in zip(shown, stat_lines(self._objects, shown[:most]), strict=False)
        ]
        return [*found, *([f"… and {len(shown) - most:,} more"] if len(shown) > most else [])]


def _change_line(change: FileChange, stat: Stat, come: dict[str, str]) -> str:
    before, after = change.before, change.after
    slash = "/" if is_folder(after or before) else ""
    name = quoted_path(change.path + slash)
    if change.path in come:
        return f"R {quoted_path(come[change.path])} → {name}"
    letter = "A" if before is None else "D" if after is None else "M"
    notes = [letter, name]
    if before and after and before.kind != after.kind:
        notes.append(f"({before.kind} → {after.kind})")
    elif before and after and before.mode != after.mode:
        notes.append(f"({before.mode:o} → {after.mode:o})")
    if stat.added is None:
        notes.append(
            "(withheld)"
            if "withheld" in (before and before.kind, after and after.kind)
            else "(no text)"
        )
    elif stat.added or stat.removed:
        notes.append(f"+{stat.added} −{stat.removed}")
    return " ".join(notes)
