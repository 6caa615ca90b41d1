"""The guard of publishing: it keeps back files by which version control would run an agent's code.

Version control keeps commands in its own folders (hooks, filters, a monitor), and runs them unseen
whenever a user looks at a repository: nothing below such a folder is published, nor a link into
one, nor a file that its configuration names.
"""

from __future__ import annotations

import os
from pathlib import Path

from plait.ids import Digest
from plait.workspace.base import FileChange, TreeEntry
from plait.workspace.folder_walk import LINKS_MAX
from plait.workspace.tree import TreeReader
from plait.workspace.version_control import (
    BARE_NAMES,
    BARE_SIGNS,
    NAMED_BY_CONFIG,
    UnpublishedPath,
    folded_name,
    folder_reason,
    metadata_of,
    metadata_root,
    run_paths,
)

_CVS = ("root", "repository", "entries")  # one of them marks a folder named cvs as one of CVS


class Guard:
    """Judges the changes about to be published to one folder, by the tree that it would
    have then.
    """

    def __init__(self, reader: TreeReader, folder: Path, before: Digest, after: Digest) -> None:
        self._reader, self._folder, self._before, self._after = (
            reader,
            os.path.realpath(folder),
            before,
            after,
        )
        self._run_paths = run_paths(Path(self._folder))
        # not None: nothing at all is published, since the folder itself is version control's
        self._why_all = folder_reason(folder)

    def reason_to_keep(self, change: FileChange) -> UnpublishedPath | None:
        """Return the path and the reason if this change must not be published. None: it may be."""
        path, after = change.path, change.after
        if self._why_all is not None:
            return UnpublishedPath(path.partition("/")[0], self._why_all)
        if (
            found := metadata_root(path)
            or self._repository_part(path)
            or self._run_path_above(path, after)
        ) is not None:
            return found
        if (
            after is not None
            and after.kind == "link"
            and (owner := self._owner_of_link(path, after.target)) is not None
        ):
            return UnpublishedPath(path, f"it is a link to where {owner} keeps what it runs")
        return None

    def _run_path_above(self, path: str, after: TreeEntry | None) -> UnpublishedPath | None:
        for each, below in self._run_paths.items():
            above = each.startswith(f"{path}/") and after is not None and after.kind == "link"
            if path == each or (below and path.startswith(f"{each}/")) or above:
                return UnpublishedPath(path if above else each, NAMED_BY_CONFIG)
        return None

    def _repository_part(self, path: str) -> UnpublishedPath | None:
        """Return the path and the reason if the change lies in a folder that git, or CVS, takes for
        its own by the entries in it, under any name.
        """
        parts = path.split("/")
        for end in range(len(parts)):
            above = "/".join(parts[:end])
            if folded_name(parts[end]) in BARE_NAMES and self._is_bare(above, self._after):
                return UnpublishedPath(
                    "/".join(parts[: end + 1]),
                    f"git would take {above or 'the folder'!r} for a repository, and run what it"
                    " says",
                )
            if self._is_bare(above, self._before):
                return UnpublishedPath(
                    "/".join(parts[: end + 1]),
                    f"{above or 'the folder'!r} is a repository, and git runs what it says",
                )
            if folded_name(parts[end]) == "cvs" and self._folded_names(
                "/".join(parts[: end + 1]), self._after
            ) & set(_CVS):
                return UnpublishedPath("/".join(parts[: end + 1]), "CVS keeps what it runs there")
        return None

    def _is_bare(self, folder: str, tree: Digest) -> bool:
        names = self._folded_names(folder, tree)
        return "head" in names and not names.isdisjoint(BARE_SIGNS)

    def _folded_names(self, folder: str, tree: Digest) -> set[str]:
        entry = (
            self._reader.find(tree, folder) if folder else TreeEntry("", "folder", blobs=(tree,))
        )
        inside = (
            self._reader.entries(entry.blobs[0])
            if entry is not None and entry.kind == "folder"
            else ()
        )
        return {folded_name(each.name) for each in inside}

    def _owner_of_link(self, path: str, target: str) -> str | None:
        """Return the version control whose folder a link leads into, through links of the new tree
        and of this machine. None: it leads into none.
        """
        done, rest = (
            path.split("/")[:-1],
            [part for part in target.split("/") if part not in ("", ".")],
        )
        if target.startswith("/"):
            return self._owner_outside(target)
        links = 0
        while rest:
            name = rest.pop(0)
            if name == "..":
                if not done:
                    return self._owner_outside(os.path.join(self._folder, "..", *rest))
                done.pop()
                continue
            if (owner := metadata_of(name)) is not None:
                return owner
            done.append(name)
            entry = self._reader.find(self._after, "/".join(done))
            if entry is None or entry.kind != "link":
                continue
            links += 1
            if entry.target.startswith("/") or links > LINKS_MAX:
                return (
                    self._owner_outside(os.path.join(entry.target, *rest))
                    if links <= LINKS_MAX
                    else "a circle of links"
                )
            done.pop()
            rest = [*(part for part in entry.target.split("/") if part not in ("", ".")), *rest]
        return None

    def _owner_outside(self, path: str) -> str | None:
        """Return the version control that a path of the machine leads into.

        Names above the folder itself do not count for paths inside it.
        """
        for each in (os.path.normpath(path), os.path.realpath(path)):
            inside = (
                os.path.relpath(each, self._folder) if each.startswith(f"{self._folder}/") else each
            )
            for name in inside.split("/"):
                if (owner := metadata_of(name)) is not None:
                    return owner
        return None
