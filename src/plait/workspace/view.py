"""A workspace as it was recorded: the files of one tree, read from the store."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from plait.errors import FileWithheld, NoSuchFile, NotAFile, OutsideWorkspace, WorkspaceError
from plait.ids import Digest
from plait.workspace.base import TreeEntry
from plait.workspace.checkout import checkout
from plait.workspace.files import check_path
from plait.workspace.folder_walk import LINKS_MAX
from plait.workspace.tree import Objects, TreeReader, parts_of, shown_path


class Workspace:
    """The files of one tree, to be read.

    To change them, check them out, or place the session.
    """

    def __init__(self, objects: Objects, tree: Digest) -> None:
        self.tree = tree
        self._objects, self._reader = objects, TreeReader(objects)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file; links are followed inside the workspace."""
        entry = self._find(path, follow=True)
        if entry.kind == "withheld":
            raise FileWithheld(path)
        if entry.kind != "file":
            raise NotAFile(path, "a folder")
        return self._reader.content(entry)

    def text(self, path: str) -> str:
        """Return the file as UTF-8; other bytes are replaced."""
        return self.read(path).decode("utf-8", "replace")

    def entry(self, path: str) -> TreeEntry:
        """Return the entry at a path. A link is not followed if it is the last part of the path."""
        return self._find(path, follow=False)

    def files(self) -> list[str]:
        """Return the paths of all files and links, as people read them."""
        return [
            shown_path(path)
            for path, entry in self._reader.walk(self.tree)
            if entry.kind != "folder"
        ]

    def list(self, path: str = "") -> list[TreeEntry]:
        """Return the entries of a folder, by name."""
        entry = self._find(path, follow=True)
        if entry.kind != "folder":
            raise NoSuchFile(path, "it is a file: read it")
        return [*self._reader.entries(entry.blobs[0])]

    def checkout(self, folder: Path | str) -> None:
        """Write all files into a folder that is empty or not there yet."""
        checkout(self._objects, self.tree, Path(folder))

    def __contains__(self, path: object) -> bool:
        try:
            return isinstance(path, str) and bool(self._find(path, follow=False))
        except WorkspaceError:
            return False

    def __repr__(self) -> str:
        return f"<Workspace {self.tree[:12]}>"

    def _find(self, path: str, *, follow: bool) -> TreeEntry:
        """Walk name by name, as in a folder on disk."""
        check_path(path)
        rest = deque(parts_of(path))
        above = [TreeEntry("", "folder", 0o755, 0, (self.tree,))]
        links = 0
        while rest:
            name = rest.popleft()
            if name == "..":
                if len(above) == 1:
                    raise OutsideWorkspace(path)
                above.pop()
                continue
            found = self._entry_named(above[-1], name, path)
            if found.kind == "link" and (rest or follow):
                links += 1
                if links > LINKS_MAX:
                    raise OutsideWorkspace(path, "its links lead in a circle")
                if found.target.startswith("/"):
                    raise OutsideWorkspace(path, f"{name!r} is a link to {found.target!r}")
                rest.extendleft(reversed(parts_of(found.target)))
            else:
                above.append(found)
        return above[-1]

    def _entry_named(self, folder: TreeEntry, name: str, path: str) -> TreeEntry:
        entries = self._reader.entries(folder.blobs[0]) if folder.kind == "folder" else ()
        found = [entry for entry in entries if entry.name == name] or [
            entry for entry in entries if shown_path(entry.name) == name
        ]
        if not found:
            raise NoSuchFile(path)
        return found[0]
