"""One walk through a workspace on disk, folder by folder, with a handle on each.

Every name is looked up with O_NOFOLLOW in the folder above it. A link is read, and its target
walked in the same way, as long as that stays inside. Where there is a lower layer the walk shows an
overlay of the two, and makes the folders in the upper layer that are to be changed.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from plait.errors import NoSuchFile, NotAFile, OutsideWorkspace
from plait.workspace import disk
from plait.workspace.rules import STORE
from plait.workspace.tree import parts_of

LINKS_MAX = 40  # on one path, as Linux counts


class Swapped(Exception):
    """The entry that was just looked at was replaced by another one."""


class LayerHandles(NamedTuple):
    """Handles on one folder: in the upper layer, in the lower one, or in both.

    None: it is not there, or hidden.
    """

    upper: int | None
    lower: int | None


class Closed(NamedTuple):
    """Places of a workspace that are closed to readers or writers, by their paths without links."""

    own: frozenset[str] = frozenset()  # of Plait, beside all that is called .plait
    heavy: frozenset[str] = frozenset()  # mounted read-only
    origin: Path | None = None  # the folder that has the heavy ones; None: they are read nowhere


class FolderWalk:
    """A walk through the workspace: the folders entered so far, and the handles on them."""

    def __init__(
        self, stack: ExitStack, upper: Path, lower: Path | None, closed: Closed, ours: bool = True
    ) -> None:
        self._stack, self._closed, self._ours = stack, closed, ours
        self._layered = lower is not None
        self._folders = [
            LayerHandles(
                self._keep_handle(disk.open_root(upper)),
                None if lower is None else self._keep_handle(disk.open_root(lower)),
            )
        ]
        self._names: list[str] = []

    @property
    def here(self) -> LayerHandles:
        return self._folders[-1]

    def walk_to(self, path: str, follow: bool, make: bool, links_may: bool = True) -> str:
        """Enter all folders of a path but the last name, and return that name; empty for the
        workspace itself.
        """
        rest = deque(parts_of(path))
        links = 0
        while rest:
            name = rest.popleft()
            if name == "..":
                self._leave(path)
                continue
            target = self._target(name) if rest or follow else None
            if target is None:
                if not rest:
                    return name
                self.enter(name, path, make=make)
                continue
            links += 1
            if not links_may:
                raise OutsideWorkspace(
                    path, f"{name!r} is a link by now, and links are not followed here"
                )
            if links > LINKS_MAX:
                raise OutsideWorkspace(path, "its links lead in a circle")
            if target.startswith("/"):
                raise OutsideWorkspace(path, f"{name!r} is a link to {target!r}")
            rest.extendleft(reversed(parts_of(target)))
        return ""

    def enter(self, name: str, path: str, *, make: bool = False) -> None:
        found = self.look(name)
        if found is None:
            if not make:
                raise NoSuchFile(path)
            self.check_open(name, path)
            self._make(name)
            return
        if not stat.S_ISDIR(found[1].st_mode):
            raise (
                NotAFile(path, kind_text(found[1]))
                if not self._names and not stat.S_ISLNK(found[1].st_mode)
                else NoSuchFile(path)
            )
        if self._is_heavy(name):
            self._push(
                name,
                LayerHandles(None, self._keep_handle(disk.open_folder(found[0], name, ours=False))),
            )
            return
        upper = self._open(self.here.upper, name)
        lower = (
            None
            if upper is not None and disk.is_opaque(upper)
            else self._open(self.here.lower, name)
        )
        if upper is None and lower is None:
            raise Swapped
        self._push(name, LayerHandles(upper, lower))

    def look(self, name: str) -> tuple[int, os.stat_result] | None:
        """Return the status of an entry, and the handle of the folder that has it. None: there is
        none.
        """
        if self._is_own(name):
            return None
        if self._is_heavy(name):
            return self._look_in_heavy(name)
        upper, lower = self.here
        found = None if upper is None else disk.look(upper, name)
        if upper is not None and found is not None:
            return None if self._layered and disk.is_whiteout(found) else (upper, found)
        found = None if lower is None else disk.look(lower, name)
        return None if lower is None or found is None else (lower, found)

    def require(self, name: str, path: str) -> tuple[int, os.stat_result]:
        found = self.look(name)
        if found is None:
            raise NoSuchFile(path)
        return found

    def look_below(self, name: str) -> os.stat_result | None:
        """Return the status of an entry in the lower layer."""
        return None if self.here.lower is None else disk.look(self.here.lower, name)

    def list_all(self) -> Iterator[tuple[str, int, os.stat_result]]:
        names: set[str] = set()
        for folder in self.here:
            if folder is not None:
                with os.scandir(folder) as listing:
                    names.update(item.name for item in listing)
        names.update(
            path.rpartition("/")[2]
            for path in self._closed.heavy
            if path.rpartition("/")[0] == "/".join(self._names)
        )
        for name in sorted(names, key=os.fsencode):
            found = self.look(name)
            if found is not None:
                yield name, *found

    # closed places

    def check_open(self, name: str, path: str) -> None:
        """Raise OutsideWorkspace if nothing may be changed here."""
        parts = [*self._names, name]
        if self._is_own(name):
            raise OutsideWorkspace(path, "it is Plait's own")
        if any("/".join(parts[:end]) in self._closed.heavy for end in range(1, len(parts) + 1)):
            raise OutsideWorkspace(path, "it is mounted read-only")

    def is_ours(self, name: str) -> bool:
        """Return True if an entry here is of a copy of ours, and not in a heavy folder."""
        return self._ours and self.path_in_heavy(name) is None

    def path_in_heavy(self, name: str) -> str | None:
        """Return the path of an entry here, from the name of its heavy folder on. None: it is in
        none.
        """
        parts, heavy = [*self._names, name], self._closed.heavy
        ends = range(1, len(parts) + 1) if heavy else ()
        return next(
            ("/".join(parts[end - 1 :]) for end in ends if "/".join(parts[:end]) in heavy), None
        )

    def check_below(self, name: str, path: str) -> None:
        """Raise OutsideWorkspace if the folder holds a closed place, which would be removed with
        it.
        """
        start = f"{self._path(name)}/"
        if any(each.startswith(start) for each in self._closed.heavy):
            raise OutsideWorkspace(path, "something in it is mounted read-only")
        upper = self._open(self.here.upper, name)
        if any(each.startswith(start) for each in self._closed.own) or (
            upper is not None and _holds_a_store(upper)
        ):
            raise OutsideWorkspace(path, "something in it is Plait's own")

    def _path(self, name: str) -> str:
        return "/".join([*self._names, name])

    def _is_own(self, name: str) -> bool:
        return name == STORE or (bool(self._closed.own) and self._path(name) in self._closed.own)

    def _is_heavy(self, name: str) -> bool:
        return bool(self._closed.heavy) and self._path(name) in self._closed.heavy

    def _look_in_heavy(self, name: str) -> tuple[int, os.stat_result] | None:
        """Look a heavy folder up where it lies. An entry of another kind in its place is not it."""
        if self._closed.origin is None:
            return None
        folder = self._keep_handle(disk.open_root(self._closed.origin))
        for each in self._names:
            above = self._open(folder, each)
            if above is None:
                return None
            folder = above
        found = disk.look(folder, name)
        return (folder, found) if found is not None and stat.S_ISDIR(found.st_mode) else None

    # changing

    def upper_folder(self) -> int:
        """Return the folder in the upper layer; made there, with those above it, if only the lower
        one has it.
        """
        for depth, name in enumerate(self._names, 1):
            layer = self._folders[depth]
            if layer.upper is None:
                above = self._folders[depth - 1].upper
                assert above is not None
                assert layer.lower is not None
                with disk.writable(above):
                    handle = self._keep_handle(
                        disk.make_folder(above, name, stat.S_IMODE(os.fstat(layer.lower).st_mode))
                    )
                self._folders[depth] = LayerHandles(handle, layer.lower)
        upper = self.here.upper
        assert upper is not None
        return upper

    @contextmanager
    def changing(self) -> Generator[int]:
        folder = self.upper_folder()
        with disk.writable(folder, ours=self._ours):
            yield folder

    def copy_up(self, name: str) -> None:
        """Copy a file of the lower layer to the upper one."""
        found = self.look(name)
        if found is None or found[0] == self.here.upper:
            return
        with (
            disk.closing_handle(disk.open_file(found[0], name)) as source,
            self.changing() as folder,
        ):
            disk.replace_file(
                folder,
                name,
                iter(lambda: os.read(source, 1 << 20), b""),
                stat.S_IMODE(found[1].st_mode),
            )

    def _make(self, name: str) -> None:
        with self.changing() as folder:
            hidden = disk.clear(folder, name)  # a whiteout
            handle = self._keep_handle(disk.make_folder(folder, name))
            if hidden:
                disk.set_opaque(handle)
        self._push(name, LayerHandles(handle, None))

    # handles

    def _target(self, name: str) -> str | None:
        found = self.look(name)
        if found is None or not stat.S_ISLNK(found[1].st_mode):
            return None
        try:
            return os.readlink(name, dir_fd=found[0])
        except OSError as error:
            raise Swapped from error

    def _open(self, folder: int | None, name: str) -> int | None:
        found = None if folder is None else disk.look(folder, name)
        if folder is None or found is None or not stat.S_ISDIR(found.st_mode):
            return None
        return self._keep_handle(disk.open_folder(folder, name, ours=self.is_ours(name)))

    def _push(self, name: str, layer: LayerHandles) -> None:
        disk.check_depth(len(self._names), "/".join(self._names))
        self._folders.append(layer)
        self._names.append(name)

    def _leave(self, path: str) -> None:
        if not self._names:
            raise OutsideWorkspace(path)
        self._folders.pop()
        self._names.pop()

    def _keep_handle(self, handle: int) -> int:
        self._stack.callback(os.close, handle)
        return handle


def _holds_a_store(folder: int, depth: int = 0) -> bool:
    disk.check_depth(depth, "")
    with os.scandir(folder) as listing:
        names = [item.name for item in listing if item.is_dir(follow_symlinks=False)]
    if STORE in names:
        return True
    for name in names:
        with disk.entered_folder(folder, name) as (inside, _):
            if _holds_a_store(inside, depth + 1):
                return True
    return False


def kind_text(found: os.stat_result | None) -> str:
    if found is None or stat.S_ISDIR(found.st_mode):
        return "a folder"
    names = (
        (stat.S_ISREG, "a file"),
        (stat.S_ISLNK, "a link"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for check, name in names if check(found.st_mode)), "a device")
