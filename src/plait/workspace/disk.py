"""Files and folders on disk, by handle, without following a link on the way.

Every function takes the handle of an open folder and the name of an entry in it. A link that
replaces a folder at the wrong moment is not followed, because a name is only ever looked up with
O_NOFOLLOW. Where the files are ours, modes that forbid access are widened for the moment; in a
folder of the user (`ours=False`) no mode is ever changed, and a file that its owner locked stays
locked, for root, too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

from plait.errors import WorkspaceError
from plait.workspace.process import WORKSPACES

DEPTH_MAX = 300  # folders in folders: each takes a handle
OPAQUE = (
    "user.overlay.opaque"  # the overlay is mounted with userxattr, so that any user may mount it
)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CLEAR_DEPTH = 100  # folders in folders that are entered to be removed


def open_root(path: Path | str) -> int:
    """Open the workspace itself, which may be reached through links."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def open_folder(folder: int, name: str, *, ours: bool = True) -> int:
    """Open a folder in a folder. One that is closed to us is opened up for the moment, if it is
    ours.
    """
    try:
        return _check_unlocked(os.open(name, _FOLDER, dir_fd=folder), name, ours)
    except PermissionError:
        if not ours:
            raise
        with widened_mode(folder, name, 0o500):
            return os.open(name, _FOLDER, dir_fd=folder)


@contextmanager
def entered_folder(folder: int, name: str, *, ours: bool = True) -> Generator[tuple[int, int]]:
    """Open a folder in a folder to read it, whatever its mode if it is ours; yield the handle and
    the mode.
    """
    with closing_handle(open_folder(folder, name, ours=ours)) as handle:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        with widened_folder(handle, 0o500):
            yield handle, mode


def open_file(folder: int, name: str, *, ours: bool = True) -> int:
    """Open a file to read it.

    Never waits for a pipe: the caller checks the kind of the opened file before reading.
    """
    try:
        return _check_unlocked(os.open(name, _READ, dir_fd=folder), name, ours)
    except PermissionError:
        if not ours:
            raise
        with widened_mode(folder, name, 0o400):
            return os.open(name, _READ, dir_fd=folder)


def is_locked(mode: int) -> bool:
    """Return True if the mode keeps the owner from reading. Root could; the lock is respected."""
    bits = 0o500 if stat.S_ISDIR(mode) else 0o400
    return (stat.S_ISDIR(mode) or stat.S_ISREG(mode)) and mode & bits != bits


def _check_unlocked(handle: int, name: str, ours: bool) -> int:
    if not ours and is_locked(os.fstat(handle).st_mode):
        os.close(handle)
        raise PermissionError(errno.EACCES, "its owner locked it", name)
    return handle


@contextmanager
def widened_mode(folder: int, name: str, bits: int) -> Generator[None]:
    """Add these bits to the mode for the moment.

    By handle: chmod would follow a link put in its place.
    """
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISLNK(mode):
            raise PermissionError(f"{name} is a link")
        os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(mode) | bits)
        try:
            yield
        finally:
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(mode))
    finally:
        os.close(handle)


@contextmanager
def closing_handle(handle: int) -> Generator[int]:
    try:
        yield handle
    finally:
        os.close(handle)


def writable(folder: int, *, ours: bool = True) -> AbstractContextManager[None]:
    """Allow entries of an open folder to be made and removed for the moment, whatever its mode if
    it is ours.
    """
    if not ours and not os.fstat(folder).st_mode & stat.S_IWUSR:
        raise PermissionError(errno.EACCES, "its owner made the folder read-only")
    return widened_folder(folder, 0o700) if ours else nullcontext()


@contextmanager
def widened_folder(folder: int, bits: int) -> Generator[None]:
    """Add these bits to the mode of an open folder for the moment.

    A handle alone does not help: every name is looked up by the mode.
    """
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & bits == bits or (os.geteuid() == 0 and bits == 0o500):
        yield
        return
    try:
        os.fchmod(folder, mode | bits)
    except PermissionError:  # not ours: the system refuses forbidden acts there
        yield
        return
    try:
        yield
    finally:
        os.fchmod(folder, mode)


def look(folder: int, name: str) -> os.stat_result | None:
    """Return the status of an entry, links not followed. None: there is none."""
    try:
        return os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None


def check_depth(depth: int, path: str) -> None:
    if depth > DEPTH_MAX:
        raise WorkspaceError(
            f"{path[:60]!r}… is nested more than {DEPTH_MAX} folders deep. Remove it, or keep it"
            " out with .plaitignore."
        )


# ── changing ─────────────────────────────────────────────────────────────────────────────────


def temporary_name() -> str:
    return f".plait-{os.getpid()}-{next(WORKSPACES.temporary_numbers)}.tmp"


def put_file(folder: int, name: str, pieces: Iterable[bytes], mode: int) -> os.stat_result:
    """Create a file where nothing is."""
    with closing_handle(os.open(name, _NEW, 0o600, dir_fd=folder)) as handle:
        for piece in pieces:
            write_all(handle, piece)
        os.fchmod(handle, mode)
        return os.fstat(handle)


def replace_file(folder: int, name: str, pieces: Iterable[bytes], mode: int) -> None:
    """Write a file, whole or not at all, in place of a file or link of this name."""
    temporary = temporary_name()
    try:
        put_file(folder, temporary, pieces, mode)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        clear(folder, temporary)
        raise


def write_all(handle: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


def make_folder(folder: int, name: str, mode: int = 0o755) -> int:
    """Make a folder, and return a handle on it."""
    os.mkdir(name, 0o700, dir_fd=folder)
    handle = open_folder(folder, name)
    os.fchmod(handle, mode)
    return handle


def put_whiteout(folder: int, name: str) -> None:
    """Hide the entry of this name in the lower layer. Any user may make this one device."""
    os.mknod(name, stat.S_IFCHR | 0o000, os.makedev(0, 0), dir_fd=folder)


def is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def set_opaque(folder: int) -> None:
    """Hide the lower layer's entries of this folder."""
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    os.fchmod(folder, mode | 0o200)  # an attribute is a write
    os.setxattr(folder, OPAQUE, b"y")
    os.fchmod(folder, mode)


def is_opaque(folder: int) -> bool:
    try:
        return os.getxattr(folder, OPAQUE) == b"y"
    except OSError:
        return False


def clear(folder: int, name: str, *, ours: bool = True) -> bool:
    """Remove an entry, with all that is in it, at any depth. Return True if there was one.

    Modes are respected if it is not ours.
    """
    found = look(folder, name)
    if found is None:
        return False
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=folder)
        return True
    deeper: list[str] = []  # folders that lay too deep, moved up beside the one that is removed
    _clear_folder(folder, name, folder, deeper, 0, ours)
    while deeper:
        _clear_folder(folder, deeper.pop(), folder, deeper, 0, ours)
    return True


def _clear_folder(
    folder: int, name: str, top: int, deeper: list[str], depth: int, ours: bool
) -> None:
    with (
        closing_handle(open_folder(folder, name, ours=ours)) as inside,
        writable(inside, ours=ours),
    ):
        with os.scandir(inside) as listing:
            found = [(item.name, item.is_dir(follow_symlinks=False)) for item in listing]
        for each, is_folder in found:
            if not is_folder:
                os.unlink(each, dir_fd=inside)
            elif depth < _CLEAR_DEPTH:
                _clear_folder(inside, each, top, deeper, depth + 1, ours)
            else:
                deeper.append(temporary_name())
                # a folder that moves is written to
                with widened_mode(inside, each, 0o700) if ours else nullcontext():
                    os.rename(each, deeper[-1], src_dir_fd=inside, dst_dir_fd=top)
    os.rmdir(name, dir_fd=folder)


@contextmanager
def _folder_above(root: int, path: str) -> Generator[tuple[int, str]]:
    """Open the folder that holds the last name of a path, and yield it with that name.

    No link on the way is followed.
    """
    above, _, name = path.rpartition("/")
    with ExitStack() as stack:
        folder = root
        for each in above.split("/") if above else ():
            folder, _ = stack.enter_context(entered_folder(folder, each))
        stack.enter_context(writable(folder))
        yield folder, name


def clear_path(root: int, path: str, *, keep_empty: bool = False) -> bool:
    """Remove the entry at a path. Return True if there was one.

    `keep_empty`: an empty folder stays, as it is a mount point.
    """
    try:
        with _folder_above(root, path) as (folder, name):
            found = look(folder, name)
            if (
                keep_empty
                and found is not None
                and stat.S_ISDIR(found.st_mode)
                and _is_empty(folder, name)
            ):
                return False
            return clear(folder, name)
    except FileNotFoundError:  # a process that stays removed it first
        return False


def hide_path(root: int, path: str) -> None:
    """Hide the lower layer's entry at a path; the folders above it must be there."""
    with _folder_above(root, path) as (folder, name):
        put_whiteout(folder, name)


def _is_empty(folder: int, name: str) -> bool:
    with entered_folder(folder, name) as (inside, _), os.scandir(inside) as listing:
        return next(listing, None) is None


def empty_folder(folder: int, name: str) -> None:
    """Make an empty folder of this name, in place of any entry that was there."""
    found = look(folder, name)
    if found is None or not stat.S_ISDIR(found.st_mode):
        clear(folder, name)
        os.close(make_folder(folder, name))
        return
    with closing_handle(open_folder(folder, name)) as inside, writable(inside):
        with os.scandir(inside) as listing:
            names = [item.name for item in listing]
        for each in names:
            clear(inside, each)


def clear_odd(folder: int, *, keep_whiteouts: bool, depth: int = 0) -> None:
    """Remove pipes, sockets and devices, at any depth."""
    check_depth(depth, "")
    with os.scandir(folder) as listing:
        found = [(item.name, item.stat(follow_symlinks=False)) for item in listing]
    for name, each in found:
        if stat.S_ISDIR(each.st_mode):
            with closing_handle(open_folder(folder, name)) as inside, writable(inside):
                clear_odd(inside, keep_whiteouts=keep_whiteouts, depth=depth + 1)
        elif not (
            stat.S_ISREG(each.st_mode)
            or stat.S_ISLNK(each.st_mode)
            or (keep_whiteouts and is_whiteout(each))
        ):
            os.unlink(name, dir_fd=folder)


def remove_folder(path: Path) -> None:
    """Remove a folder of ours by its path, with all that is in it."""
    try:
        parent = open_root(path.parent)
    except FileNotFoundError:
        return
    with closing_handle(parent):
        clear(parent, path.name)
