"""The words of the workspace: entries of a tree, changes between trees, and access to files.

A tree is content-addressed: the blob that its digest names lists a folder, and the folders in it
are trees of their own. Two trees that share a folder share its blobs, so differences are found
without looking at equal folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from plait.ids import Digest

Kind = Literal["file", "link", "folder", "withheld"]

PIECE = 1 << 20  # bytes of a file that go into one blob: a longer file has several


class TreeEntry(msgspec.Struct, frozen=True):
    """One thing in a folder.

    Names are as `os.fsdecode` gives them, so that every possible name can be spelled.
    """

    name: str
    kind: Kind
    mode: int = 0o644  # permission bits; setuid, setgid and sticky are not kept; 0o777 for a link
    size: int = 0  # bytes of a file
    blobs: tuple[Digest, ...] = ()  # a file's content, piece by piece; the one tree of a folder
    target: str = ""  # where a link points


class NewEntry(msgspec.Struct, frozen=True):
    """A file, link or folder to be put into a tree, with its content."""

    kind: Literal["file", "link", "folder"]
    mode: int = 0o644
    content: bytes = b""  # of a file
    target: str = ""  # of a link


class TreeSnapshot(msgspec.Struct, frozen=True):
    """A tree of the files at one moment, with the blobs that the store may not have yet."""

    tree: Digest
    blobs: Mapping[Digest, bytes]  # to be written with the event that records the tree
    # paths that differ from the tree before, sorted, as people read them; at most CHANGED_MAX
    changed: tuple[str, ...] = ()
    more: int = 0  # number of further ones
    # files that hold a secret: named in the tree, their content nowhere
    withheld: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()  # pipes, sockets and devices
    dropped: tuple[str, ...] = ()  # paths that were removed, because no tree may hold them


CHANGED_MAX = 1000


class FileChange(msgspec.Struct, frozen=True):
    """One path that differs between two trees."""

    path: str
    before: TreeEntry | None  # None: it was not there
    after: TreeEntry | None  # None: it is gone


class FileAccess(Protocol):
    """The files of a workspace, reached by relative paths. Links never lead outside of it.

    Raises NoSuchFile, NotAFile, OutsideWorkspace. Pipes, sockets and devices are never opened.
    """

    def entry(self, path: str) -> TreeEntry:
        """Return the entry at a path. A link is not followed if it is the last part of the path.

        `blobs` is empty.
        """
        ...

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        """Return the bytes of a file; links are followed inside the workspace."""
        ...

    def write(self, path: str, content: bytes, *, mode: int | None = None) -> None:
        """Write a whole file at once, folders on the way included; None keeps the mode it has, or
        0o644.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file, a link, or a folder with all that is in it."""
        ...

    def list(self, path: str = "") -> Sequence[TreeEntry]:
        """List a folder by name, names that trees leave out included."""
        ...

    def make_folder(self, path: str) -> None: ...
    def link(self, path: str, target: str) -> None: ...
    def chmod(self, path: str, mode: int) -> None: ...
