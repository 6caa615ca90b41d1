"""The files of a workspace on this disk, reached by path and never outside of it.

A path is walked name by name, with a handle on each folder and O_NOFOLLOW at each step; a link is
read and its target walked in the same way, from where it stands, as long as that stays inside.
Nothing is ever looked up by a whole path, so there is nothing that a link swapped in at the right
moment could redirect: the walk fails, and is begun again.

Where there is a lower layer, what is seen is what an overlay of the two shows, and what is written
goes to the upper one.

Two kinds of places are closed. Plait's own folders (any `.plait`, and the store's) are not there
for whoever reads, and refused to whoever writes. Heavy folders are read where they lie, and never
written: a command finds them mounted read-only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from plait.errors import NoSuchFile, NotAFile, OutsideWorkspace, WorkspaceError
from plait.workspace import disk
from plait.workspace.base import Entry, Kind
from plait.workspace.masks import CARRIER_MAX, is_carrier, without_secrets
from plait.workspace.rules import STORE
from plait.workspace.tree import parts_of

LINKS_MAX = 40  # on one path, as Linux counts
_TRIES = 50  # walks that are begun again because something was swapped under them
_READ_MAX = 1 << 30
_LOOKED_MAX = 16 << 20  # bytes of a file that is looked at as a whole

T = TypeVar("T")


class _Swapped(Exception):
    """What was just looked at is something else now."""


class _Layer(NamedTuple):
    """One folder: in the upper layer, in the lower one, or in both.

    None: it is not there, or hidden.
    """

    upper: int | None
    lower: int | None


class Closed(NamedTuple):
    """Places in a workspace that are not for everybody, by their paths without links."""

    own: frozenset[str] = frozenset()  # of Plait, beside all that is called .plait
    heavy: frozenset[str] = frozenset()  # mounted read-only
    origin: Path | None = None  # the folder that has the heavy ones; None: they are read nowhere


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
        """`ours`: whether the files are a copy of ours.

        In a folder of the user no mode is changed to get at something.
        """
        self._upper, self._lower, self._closed, self._ours = upper, lower, closed, ours

    def closing(self, closed: Closed) -> LocalFiles:
        """The same files, with these places closed as well."""
        closed = closed._replace(own=closed.own | self._closed.own)
        return LocalFiles(self._upper, self._lower, closed, ours=self._ours)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def entry(self, path: str) -> Entry:
        def look(walk: _Walk, name: str) -> Entry:
            if not name:
                return Entry("", "folder", 0o755)
            return _entry(walk.here, name, *walk.found(name, path))

        return self._walked(path, look, follow=False)

    def read(self, path: str, *, offset: int = 0, size: int | None = None) -> bytes:
        def read(walk: _Walk, name: str) -> bytes:
            layer, found = walk.found(name, path) if name else (0, None)
            if found is None or not stat.S_ISREG(found.st_mode):
                raise NotAFile(path, _what(found))
            with disk.held(_open_again(layer, name, ours=walk.is_ours(name))) as handle:
                inside = walk.path_in_heavy(name)
                return (
                    _content(handle, path, offset, size)
                    if inside is None
                    else _shown_content(handle, path, inside, offset, size)
                )

        return self._walked(path, read)

    def list(self, path: str = "") -> list[Entry]:
        def names(walk: _Walk, name: str) -> list[Entry]:
            if name:
                walk.enter(name, path)
            return [_entry(walk.here, each, layer, found) for each, layer, found in walk.all()]

        return self._walked(path, names)

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def write(self, path: str, content: bytes, *, mode: int | None = None) -> None:
        def write(walk: _Walk, name: str) -> None:
            if not name:
                raise NotAFile(path, "the workspace itself")
            found = walk.look(name)
            if found is not None and not stat.S_ISREG(found[1].st_mode):
                raise NotAFile(path, _what(found[1]))
            bits = (
                mode
                if mode is not None
                else stat.S_IMODE(found[1].st_mode)
                if found is not None
                else 0o644
            )
            with walk.changing() as folder:
                disk.replace_file(folder, name, [content], bits & 0o777)

        self._walked(path, write, make=True, change=True)

    def remove(self, path: str) -> None:
        def remove(walk: _Walk, name: str) -> None:
            if not name:
                raise NotAFile(path, "the workspace itself")
            walk.found(name, path)
            walk.check_below(name, path)
            with walk.changing() as folder:
                disk.clear(folder, name, ours=walk.is_ours(name))
                if walk.below(name) is not None:
                    disk.put_whiteout(folder, name)

        self._walked(path, remove, follow=False, change=True)

    def make_folder(self, path: str) -> None:
        def make(walk: _Walk, name: str) -> None:
            if name:
                walk.enter(name, path, make=True)

        self._walked(path, make, make=True, change=True)

    def link(self, path: str, target: str) -> None:
        def link(walk: _Walk, name: str) -> None:
            found = walk.look(name) if name else None
            if not name or (found is not None and stat.S_ISDIR(found[1].st_mode)):
                raise NotAFile(path, "a folder")
            with walk.changing() as folder:
                temporary = disk.temporary_name()
                os.symlink(target, temporary, dir_fd=folder)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

        if not target or "\0" in target:
            raise OutsideWorkspace(target, "a link has to point somewhere")
        self._walked(path, link, follow=False, make=True, change=True)

    def chmod(self, path: str, mode: int) -> None:
        def change(walk: _Walk, name: str) -> None:
            found = walk.found(name, path)[1] if name else None
            if found is None or not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise NotAFile(path, _what(found))
            if stat.S_ISDIR(found.st_mode):
                walk.enter(name, path)
                os.fchmod(walk.own(), mode & 0o777)
            else:
                walk.copy_up(name)
                with disk.held(disk.open_file(walk.own(), name, ours=walk.is_ours(name))) as handle:
                    os.fchmod(handle, mode & 0o777)

        self._walked(path, change, change=True)

    def replace(self, old: Old, path: str, new: Entry | None, content: bytes = b"") -> None:
        """Put an entry in the place of another one, looked at and written in one walk that follows
        no link; None removes.

        A folder is removed only if nothing is left in it: what is in there besides is the user's.
        """

        def replace(walk: _Walk, name: str) -> None:
            found = walk.look(name)
            if not old.is_in(found, name):
                raise WorkspaceError("it was changed while it was being published")
            with walk.changing() as folder:
                if found is not None and not _is_kept(found[1], new):
                    _take_away(folder, name, found[1], new is not None)
                if new is not None:
                    _put(folder, name, new, content)

        self._walked(path, replace, follow=False, make=new is not None, change=True, links=False)

    # ── the walk ─────────────────────────────────────────────────────────────────────────────

    def _walked(
        self,
        path: str,
        act: Callable[[_Walk, str], T],
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
                    walk = _Walk(stack, self._upper, self._lower, self._closed, self._ours)
                    name = walk.to(path, follow, make, links)
                    if change:
                        walk.check_open(name, path)
                    return act(walk, name)
            except _Swapped:
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
                raise _told(path, error) from error
        raise WorkspaceError(
            f"{path!r} changes while it is being looked at. Try again when nothing else writes"
            " there."
        )


class _Walk:
    """A walk through the workspace: the folders entered so far, and the handles on them."""

    def __init__(
        self, stack: ExitStack, upper: Path, lower: Path | None, closed: Closed, ours: bool = True
    ) -> None:
        self._stack, self._closed, self._ours = stack, closed, ours
        self._layered = lower is not None
        self._folders = [
            _Layer(
                self._hold(disk.open_root(upper)),
                None if lower is None else self._hold(disk.open_root(lower)),
            )
        ]
        self._names: list[str] = []

    @property
    def here(self) -> _Layer:
        return self._folders[-1]

    def to(self, path: str, follow: bool, make: bool, links_may: bool = True) -> str:
        """Enter all folders but the last name, which is returned; empty for the
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
                NotAFile(path, _what(found[1]))
                if not self._names and not stat.S_ISLNK(found[1].st_mode)
                else NoSuchFile(path)
            )
        if self._is_heavy(name):
            self._push(name, _Layer(None, self._hold(disk.open_folder(found[0], name, ours=False))))
            return
        upper = self._open(self.here.upper, name)
        lower = (
            None
            if upper is not None and disk.is_opaque(upper)
            else self._open(self.here.lower, name)
        )
        if upper is None and lower is None:
            raise _Swapped
        self._push(name, _Layer(upper, lower))

    def look(self, name: str) -> tuple[int, os.stat_result] | None:
        """What is there, and the handle of the folder that has it."""
        if self._is_own(name):
            return None
        if self._is_heavy(name):
            return self._heavy(name)
        upper, lower = self.here
        found = None if upper is None else disk.look(upper, name)
        if upper is not None and found is not None:
            return None if self._layered and disk.is_whiteout(found) else (upper, found)
        found = None if lower is None else disk.look(lower, name)
        return None if lower is None or found is None else (lower, found)

    def found(self, name: str, path: str) -> tuple[int, os.stat_result]:
        found = self.look(name)
        if found is None:
            raise NoSuchFile(path)
        return found

    def below(self, name: str) -> os.stat_result | None:
        """What the lower layer has there."""
        return None if self.here.lower is None else disk.look(self.here.lower, name)

    def all(self) -> Iterator[tuple[str, int, os.stat_result]]:
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
        """Whether something may be changed here."""
        parts = [*self._names, name]
        if self._is_own(name):
            raise OutsideWorkspace(path, "it is Plait's own")
        if any("/".join(parts[:end]) in self._closed.heavy for end in range(1, len(parts) + 1)):
            raise OutsideWorkspace(path, "it is mounted read-only")

    def is_ours(self, name: str) -> bool:
        """Whether something here is of a copy of ours, and neither in a folder of the user nor in a
        heavy one.
        """
        return self._ours and self.path_in_heavy(name) is None

    def path_in_heavy(self, name: str) -> str | None:
        """The path that something here has from the name of its heavy folder on.

        None: it is in none.
        """
        parts, heavy = [*self._names, name], self._closed.heavy
        ends = range(1, len(parts) + 1) if heavy else ()
        return next(
            ("/".join(parts[end - 1 :]) for end in ends if "/".join(parts[:end]) in heavy), None
        )

    def check_below(self, name: str, path: str) -> None:
        """Whether nothing that is closed would go with it."""
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

    def _heavy(self, name: str) -> tuple[int, os.stat_result] | None:
        """A heavy folder where it lies; whatever else has its place there is not it."""
        if self._closed.origin is None:
            return None
        folder = self._hold(disk.open_root(self._closed.origin))
        for each in self._names:
            above = self._open(folder, each)
            if above is None:
                return None
            folder = above
        found = disk.look(folder, name)
        return (folder, found) if found is not None and stat.S_ISDIR(found.st_mode) else None

    # changing

    def own(self) -> int:
        """The folder in the upper layer; made there, with those above it, if only the lower one has
        it.
        """
        for depth, name in enumerate(self._names, 1):
            layer = self._folders[depth]
            if layer.upper is None:
                above = self._folders[depth - 1].upper
                assert above is not None
                assert layer.lower is not None
                with disk.writable(above):
                    handle = self._hold(
                        disk.make_folder(above, name, stat.S_IMODE(os.fstat(layer.lower).st_mode))
                    )
                self._folders[depth] = _Layer(handle, layer.lower)
        upper = self.here.upper
        assert upper is not None
        return upper

    @contextmanager
    def changing(self) -> Generator[int]:
        folder = self.own()
        with disk.writable(folder, ours=self._ours):
            yield folder

    def copy_up(self, name: str) -> None:
        """A file of the lower layer, in the upper one."""
        found = self.look(name)
        if found is None or found[0] == self.here.upper:
            return
        with disk.held(disk.open_file(found[0], name)) as source, self.changing() as folder:
            disk.replace_file(
                folder,
                name,
                iter(lambda: os.read(source, 1 << 20), b""),
                stat.S_IMODE(found[1].st_mode),
            )

    def _make(self, name: str) -> None:
        with self.changing() as folder:
            hidden = disk.clear(folder, name)  # a whiteout
            handle = self._hold(disk.make_folder(folder, name))
            if hidden:
                disk.set_opaque(handle)
        self._push(name, _Layer(handle, None))

    # handles

    def _target(self, name: str) -> str | None:
        found = self.look(name)
        if found is None or not stat.S_ISLNK(found[1].st_mode):
            return None
        try:
            return os.readlink(name, dir_fd=found[0])
        except OSError as error:
            raise _Swapped from error

    def _open(self, folder: int | None, name: str) -> int | None:
        found = None if folder is None else disk.look(folder, name)
        if folder is None or found is None or not stat.S_ISDIR(found.st_mode):
            return None
        return self._hold(disk.open_folder(folder, name, ours=self.is_ours(name)))

    def _push(self, name: str, layer: _Layer) -> None:
        disk.check_depth(len(self._names), "/".join(self._names))
        self._folders.append(layer)
        self._names.append(name)

    def _leave(self, path: str) -> None:
        if not self._names:
            raise OutsideWorkspace(path)
        self._folders.pop()
        self._names.pop()

    def _hold(self, handle: int) -> int:
        self._stack.callback(os.close, handle)
        return handle


# ── replacing ────────────────────────────────────────────────────────────────────────────────


class Old(NamedTuple):
    """What is about to be replaced, as it was looked at before."""

    entry: Entry | None  # None: nothing, or a folder that is told by what is in it
    content: Callable[[], bytes] = bytes  # of a file

    def is_in(self, found: tuple[int, os.stat_result] | None, name: str) -> bool:
        """Whether it still is what is there."""
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
        with disk.held(_open_again(found[0], name, ours=False)) as handle:
            return _content(handle, name, 0, None) == self.content()


def _is_kept(found: os.stat_result, new: Entry | None) -> bool:
    """Whether what is there need not go first: a file or a link is replaced in one step, and a
    folder stays a folder.
    """
    is_folder = stat.S_ISDIR(found.st_mode)
    return new is not None and is_folder == (new.kind == "folder")


def _take_away(folder: int, name: str, found: os.stat_result, comes: bool) -> None:
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    with disk.held(disk.open_folder(folder, name, ours=False)) as inside:
        is_empty = not os.listdir(inside)
    if is_empty:
        os.rmdir(name, dir_fd=folder)
    elif comes:
        raise WorkspaceError("a folder with other files is in its place")


def _put(folder: int, name: str, new: Entry, content: bytes) -> None:
    if new.kind == "folder":
        is_there = disk.look(folder, name) is not None
        opened = (
            disk.open_folder(folder, name, ours=False)
            if is_there
            else disk.make_folder(folder, name)
        )
        with disk.held(opened) as handle:
            os.fchmod(handle, new.mode)
    elif new.kind == "link":
        temporary = disk.temporary_name()
        os.symlink(new.target, temporary, dir_fd=folder)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        disk.replace_file(folder, name, [content], new.mode)


# ── what is there ────────────────────────────────────────────────────────────────────────────


def check_path(path: str) -> None:
    """A path is relative, and says something."""
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


def _holds_a_store(folder: int, depth: int = 0) -> bool:
    disk.check_depth(depth, "")
    with os.scandir(folder) as listing:
        names = [item.name for item in listing if item.is_dir(follow_symlinks=False)]
    if STORE in names:
        return True
    for name in names:
        with disk.entered(folder, name) as (inside, _):
            if _holds_a_store(inside, depth + 1):
                return True
    return False


def _entry(here: _Layer, name: str, folder: int, found: os.stat_result) -> Entry:
    kind: Kind = (
        "folder"
        if stat.S_ISDIR(found.st_mode)
        else "link"
        if stat.S_ISLNK(found.st_mode)
        else "file"
    )
    if kind == "link":
        return Entry(name, kind, 0o777, target=os.readlink(name, dir_fd=folder))
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    return Entry(name, kind, stat.S_IMODE(found.st_mode) & 0o777, size)


def _open_again(folder: int, name: str, *, ours: bool = True) -> int:
    """What was a file a moment ago."""
    handle = disk.open_file(folder, name, ours=ours)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _Swapped
    return handle


def _content(handle: int, path: str, offset: int, size: int | None) -> bytes:
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
    """The same of a file in a heavy folder, without what must not be seen.

    A very long one is looked at piece by piece.
    """
    long = os.fstat(handle).st_size
    if is_carrier(inside) and long > CARRIER_MAX:
        return b""
    if not is_carrier(inside) and long > _LOOKED_MAX:
        return without_secrets(inside, _content(handle, path, offset, size))
    whole = without_secrets(inside, _content(handle, path, 0, None))
    return whole[offset:] if size is None else whole[offset : offset + size]


def _what(found: os.stat_result | None) -> str:
    if found is None or stat.S_ISDIR(found.st_mode):
        return "a folder"
    names = (
        (stat.S_ISREG, "a file"),
        (stat.S_ISLNK, "a link"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for check, name in names if check(found.st_mode)), "a device")


def _told(path: str, error: OSError) -> WorkspaceError:
    if error.errno == errno.ENAMETOOLONG:
        return NoSuchFile(path[:100])
    return WorkspaceError(
        f"{path!r} could not be reached: {error.strerror or error}. Look at its mode, and at the"
        " disk."
    )
