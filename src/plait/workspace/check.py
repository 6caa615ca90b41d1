"""Following recorded trees: all blobs that they lead to must be there, and match their digests."""

from __future__ import annotations

from collections.abc import Iterator

from plait.errors import PlaitError
from plait.ids import Digest
from plait.store import Store
from plait.workspace.base import TreeEntry
from plait.workspace.tree import EMPTY, decode, shown_path


class TreeCheck:
    """Follows trees. Each folder is read once and each content is checked once, however many trees
    share it.
    """

    def __init__(self, store: Store, *, hashed: bool) -> None:
        self._store = store
        # all blobs of the store are hashed elsewhere: contents need only be there
        self._hashed = hashed
        self._folders = {EMPTY}  # the empty tree need not be stored
        self._sizes: dict[Digest, int] = {}

    def first_fault(self, tree: Digest) -> str | None:
        """Return the first path of a tree that leads to something wrong, with the reason. None:
        there is no fault, or it was returned before.
        """
        return next(self._faults(tree), None)

    def _faults(self, tree: Digest) -> Iterator[str]:
        queue = [("", tree)]
        while queue:
            path, folder = queue.pop()
            if folder in self._folders:
                continue
            self._folders.add(folder)
            try:
                entries = decode(self._store.get_blob(folder))
            except PlaitError as error:
                yield (
                    f"the tree {tree[:12]}… leads to a folder {_path_text(path)} that cannot be"
                    f" read: {error}"
                )
                continue
            for entry in entries:
                here = f"{path}/{entry.name}" if path else entry.name
                if entry.kind == "folder":
                    queue.append((here, entry.blobs[0]))
                elif entry.kind == "file":
                    yield from self._file_faults(tree, here, entry)

    def _file_faults(self, tree: Digest, path: str, entry: TreeEntry) -> Iterator[str]:
        try:
            size = sum([self._size(piece) for piece in entry.blobs])
        except PlaitError as error:
            yield (
                f"the tree {tree[:12]}… leads to a file {_path_text(path)} that cannot be read:"
                f" {error}"
            )
            return
        if size != entry.size:
            yield (
                f"the tree {tree[:12]}… says {_path_text(path)} has {entry.size} bytes, its content"
                f" has {size}"
            )

    def _size(self, blob: Digest) -> int:
        if blob not in self._sizes:
            info = (
                self._store.blob_info(blob).size
                if self._hashed
                else len(self._store.get_blob(blob))
            )
            self._sizes[blob] = info
        return self._sizes[blob]


def _path_text(path: str) -> str:
    return repr(shown_path(path) or ".")
