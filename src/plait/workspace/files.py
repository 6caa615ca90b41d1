"""The files of a workspace on this disk, reached by path and never outside of it.

A path is walked name by name, with a handle on each folder and O_NOFOLLOW at each step; a link is
read and its target walked in the same way, from where it stands, as long as that stays inside.
Nothing is ever looked up by a whole path, so a link swapped in at the right moment can redirect
nothing: the walk fails, and is begun again.

Where there is a lower layer, reading shows an overlay of the two, and writing goes to the upper
one.

Two kinds of places are closed. Plait's own folders (any `.plait`, and the store's) are not shown to
readers, and refused to writers. Heavy folders are read where they lie, and never written: a command
finds them mounted read-only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, TypeVar

from plait.errors import NoSuchFile, NotAFile, OutsideWorkspace, WorkspaceError
from plait.workspace import disk
from plait.workspace.base import Kind, TreeEntry
from plait.workspace.folder_walk import Closed, FolderWalk, LayerHandles, Swapped, kind_text
from plait.workspace.masks import CARRIER_MAX, is_carrier, without_secrets

_TRIES = 50  # walks that are begun again because something was swapped under them
_READ_MAX = 1 << 30
_LOOKED_MAX = 16 << 20  # bytes of a file that is looked at as a whole

T = TypeVar("T")


class LocalFiles:
    """Files in a folder, or in an upper folder over a lower one."""

    def __init__(
        self,
        upper: Path,
        lower: Path | None = None,
        closed: Closed = Closed(),  # noqa: B008  a value
        *,
        ours: bool = True,
    ) -> None:
        """`ours`: the files are a copy of ours. In a folder of the user no mode is changed to get
        access.
        """
        self._upper, self._lower, self._closed, self._ours = upper, lower, closed, ours

    def with_closed(self, closed: Closed) -> LocalFiles:
        """Return the same files, with these places closed as well."""
        closed = closed._replace(own=closed.own | self._closed.own)
        return LocalFiles(self._upper, self._lower, closed, ours=self._ours)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def entry(self, path: str) -> TreeEntry:
        def look(walk: FolderWalk, name: str) -> TreeEntry:
            if not name:
                return TreeEntry("", "folder", 0o755)
            return _entry_of(walk.here, name, *walk.require(name, path))

        return self._walk(path, look, follow=False)

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        def read_here(walk: FolderWalk, name: str) -> bytes:
            layer, found = walk.require(name, path) if name else (0, None)
            if found is None or not stat.S_ISREG(found.st_mode):
                raise NotAFile(path, kind_text(found))
            with disk.closing_handle(_open_again(layer, name, ours=walk.is_ours(name))) as handle:
                inside = walk.path_in_heavy(name)
                return (
                    _read_content(handle, path, offset, size)
                    if inside is None
                    else _shown_content(handle, path, inside, offset, size)
                )

        return self._walk(path, read_here)

    def list(self, path: str = "") -> list[TreeEntry]:
        def names(walk: FolderWalk, name: str) -> list[TreeEntry]:
            if name:
                walk.enter(name, path)
            return [
                _entry_of(walk.here, each, layer, found) for each, layer, found in walk.list_all()
            ]

        return self._walk(path, names)

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def write(self, path: str, content: bytes, *, mode: int | None = None) -> None:
        def write(walk: FolderWalk, name: str) -> None:
            if not name:
                raise NotAFile(path, "the workspace itself")
            found = walk.look(name)
            if found is not None and not stat.S_ISREG(found[1].st_mode):
                raise NotAFile(path, kind_text(found[1]))
            bits = (
                mode
                if mode is not None
                else stat.S_IMODE(found[1].st_mode)
                if found is not None
                else 0o644
            )
            with walk.changing() as folder:
                disk.replace_file(folder, name, [content], bits & 0o777)

        self._walk(path, write, make=True, change=True)

    def remove(self, path: str) -> None:
        def remove(walk: FolderWalk, name: str) -> None:
            if not name:
                raise NotAFile(path, "the workspace itself")
            walk.require(name, path)
            walk.check_below(name, path)
            with walk.changing() as folder:
                disk.clear(folder, name, ours=walk.is_ours(name))
                if walk.look_below(name) is not None:
                    disk.put_whiteout(folder, name)

        self._walk(path, remove, follow=False, change=True)

    def make_folder(self, path: str) -> None:
        def make(walk: FolderWalk, name: str) -> None:
            if name:
                walk.enter(name, path, make=True)

        self._walk(path, make, make=True, change=True)

    def link(self, path: str, target: str) -> None:
        def link(walk: FolderWalk, name: str) -> None:
            found = walk.look(name) if name else None
            if not name or (found is not None and stat.S_ISDIR(found[1].st_mode)):
                raise NotAFile(path, "a folder")
            with walk.changing() as folder:
                temporary = disk.temporary_name()
                os.symlink(target, temporary, dir_fd=folder)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

        if not target or "\0" in target:
            raise OutsideWorkspace(target, "a link has to point somewhere")
        self._walk(path, link, follow=False, make=True, change=True)

    def chmod(self, path: str, mode: int) -> None:
        def change(walk: FolderWalk, name: str) -> None:
            found = walk.require(name, path)[1] if name else None
            if found is None or not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise NotAFile(path, kind_text(found))
            if stat.S_ISDIR(found.st_mode):
                walk.enter(name, path)
                os.fchmod(walk.upper_folder(), mode & 0o777)
            else:
                walk.copy_up(name)
                with disk.closing_handle(
                    disk.open_file(walk.upper_folder(), name, ours=walk.is_ours(name))
                ) as handle:
                    os.fchmod(handle, mode & 0o777)

        self._walk(path, change, change=True)

    def replace(self, old: Old, path: str, new: TreeEntry | None, content: bytes = b"") -> None:
        """Put an entry in the place of another one, in one walk that follows no link; None removes.

        The old entry is compared first. A folder is removed only if it is empty: other files in it
        are the user's.
        """

        def replace(walk: FolderWalk, name: str) -> None:
            found = walk.look(name)
            if not old.is_in(found, name):
                raise WorkspaceError("it was changed while it was being published")
            with walk.changing() as folder:
                if found is not None and not _is_kept(found[1], new):
                    _take_away(folder, name, found[1], new is not None)
                if new is not None:
                    _put_entry(folder, name, new, content)

        self._walk(path, replace, follow=False, make=new is not None, change=True, links=False)

    # ── the walk ─────────────────────────────────────────────────────────────────────────────

    def _walk(
        self,
        path: str,
        act: Callable[[FolderWalk, str], T],
        *,
        follow: bool = True,
        make: bool = False,
        change: bool = False,
        links: bool = True,
    ) -> T:
        """Walk to the folder that holds the last name, and act there."""
        check_path(path)
        for _ in range(_TRIES):
            try:
                with ExitStack() as stack:
                    walk = FolderWalk(stack, self._upper, self._lower, self._closed, self._ours)
                    name = walk.walk_to(path, follow, make, links)
                    if change:
                        walk.check_open(name, path)
                    return act(walk, name)
            except Swapped:
                continue
            except OSError as error:
                if error.errno in (
                    errno.ELOOP,
                    errno.ENOTDIR,
                    errno.ENOENT,
                    errno.EEXIST,
                    errno.EISDIR,
                    errno.ENOTEMPTY,
                    errno.EXDEV,
                ):
                    continue
                raise _walk_error(path, error) from error
        raise WorkspaceError(
            f"{path!r} changes while it is being looked at. Try again when nothing else writes"
            " there."
        )


# ── replacing ────────────────────────────────────────────────────────────────────────────────


class Old(NamedTuple):
    """The entry about to be replaced, as it was looked at before."""

    entry: TreeEntry | None  # None: nothing, or a folder that its content stands for
    content: Callable[[], bytes] = bytes  # of a file

    def is_in(self, found: tuple[int, os.stat_result] | None, name: str) -> bool:
        """Return True if the entry on disk still is the old one."""
        entry, mode = self.entry, found[1].st_mode if found is not None else 0
        if entry is None or found is None:
            return (found is None or stat.S_ISDIR(mode)) and (
                entry is None or entry.kind == "folder"
            )
        if entry.kind == "folder":
            return stat.S_ISDIR(mode)
        if entry.kind == "link":
            return stat.S_ISLNK(mode) and os.readlink(name, dir_fd=found[0]) == entry.target
        if not stat.S_ISREG(mode) or found[1].st_size != entry.size:
            return False
        if entry.kind == "withheld":
            return True
        with disk.closing_handle(_open_again(found[0], name, ours=False)) as handle:
            return _read_content(handle, name, 0, None) == self.content()


def _is_kept(found: os.stat_result, new: TreeEntry | None) -> bool:
    """Return True if the entry need not be removed first: a file or a link is replaced in one step,
    and a folder stays a folder.
    """
    is_folder = stat.S_ISDIR(found.st_mode)
    return new is not None and is_folder == (new.kind == "folder")


def _take_away(folder: int, name: str, found: os.stat_result, comes: bool) -> None:
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    with disk.closing_handle(disk.open_folder(folder, name, ours=False)) as inside:
        is_empty = not os.listdir(inside)
    if is_empty:
        os.rmdir(name, dir_fd=folder)
    elif comes:
        raise WorkspaceError("a folder with other files is in its place")


def _put_entry(folder: int, name: str, new: TreeEntry, content: bytes) -> None:
    if new.kind == "folder":
        is_there = disk.look(folder, name) is not None
        opened = (
            disk.open_folder(folder, name, ours=False)
            if is_there
            else disk.make_folder(folder, name)
        )
        with disk.closing_handle(opened) as handle:
            os.fchmod(handle, new.mode)
    elif new.kind == "link":
        temporary = disk.temporary_name()
        os.symlink(new.target, temporary, dir_fd=folder)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        disk.replace_file(folder, name, [content], new.mode)


# ── entries and content ──────────────────────────────────────────────────────────────────────


def check_path(path: str) -> None:
    """Raise OutsideWorkspace unless the path is relative and can be a name on disk."""
    if not isinstance(path, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without types exist
        raise OutsideWorkspace(repr(path), "it is not a text")
    if path.startswith("/"):
        raise OutsideWorkspace(path, "it begins at the root of the machine")
    if "\0" in path:
        raise OutsideWorkspace(path, "it contains NUL")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise OutsideWorkspace(ascii(path), "its name cannot be one") from error


def _entry_of(here: LayerHandles, name: str, folder: int, found: os.stat_result) -> TreeEntry:
    kind: Kind = (
        "folder"
        if stat.S_ISDIR(found.st_mode)
        else "link"
        if stat.S_ISLNK(found.st_mode)
        else "file"
    )
    if kind == "link":
        return TreeEntry(name, kind, 0o777, target=os.readlink(name, dir_fd=folder))
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    return TreeEntry(name, kind, stat.S_IMODE(found.st_mode) & 0o777, size)


def _open_again(folder: int, name: str, *, ours: bool = True) -> int:
    """Open a file that was just looked at. Raises Swapped if it is no file any more."""
    handle = disk.open_file(folder, name, ours=ours)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Swapped
    return handle


def _read_content(handle: int, path: str, offset: int, size: int | None) -> bytes:
    whole = os.fstat(handle).st_size
    wanted = max(whole - offset, 0) if size is None else size
    if wanted > _READ_MAX:
        raise NotAFile(path, f"{whole:,} bytes long, too long to be read at once")
    pieces: list[bytes] = []
    while wanted > 0 and (piece := os.pread(handle, wanted, offset)):
        pieces.append(piece)
        offset, wanted = offset + len(piece), wanted - len(piece)
    return b"".join(pieces)


def _shown_content(handle: int, path: str, inside: str, offset: int, size: int | None) -> bytes:
    """Read a file in a heavy folder, with secrets hidden.

    Of a very long file only the requested part is searched for them.
    """
    long = os.fstat(handle).st_size
    if is_carrier(inside) and long > CARRIER_MAX:
        return b""
    if not is_carrier(inside) and long > _LOOKED_MAX:
        return without_secrets(inside, _read_content(handle, path, offset, size))
    whole = without_secrets(inside, _read_content(handle, path, 0, None))
    return whole[offset:] if size is None else whole[offset : offset + size]


def _walk_error(path: str, error: OSError) -> WorkspaceError:
    if error.errno == errno.ENAMETOOLONG:
        return NoSuchFile(path[:100])
    return WorkspaceError(
        f"{path!r} could not be reached: {error.strerror or error}. Look at its mode, and at the"
        " disk."
    )
