"""Folders in which a store is looked for when none is named.

A store feeds agents, and a run that is resumed from it runs code. A store that another user could
have put there is refused unless it is named, as git does it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from plait.errors import UntrustedStore

# The root of a repository has one of these.
ROOTS = (".git", ".hg", ".svn", ".jj", ".sl", ".bzr", "_darcs", ".pijul", ".fslckout", "_FOSSIL_")

LINKS_MAX = 40  # on one path, as Linux counts


def folders_upward(start: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """The folder and those above it: up to the home folder, or to the root of a repository.

    Outside of both, up to the first folder that is not the user's alone.
    """
    home = os.path.realpath(environ["HOME"]) if environ.get("HOME") else None
    at_home = home is not None and Path(home) in (start, *start.parents)
    for folder in (start, *start.parents):
        yield folder
        if str(folder) == home or any(os.path.lexists(folder / name) for name in ROOTS):
            return
        if not at_home and folder_fault(folder, environ) is not None:
            return


def check_folder(folder: Path, name: str, environ: Mapping[str, str]) -> None:
    """Refuse a store of this name in a folder that is not the user's alone, or one with a
    folder or files that are not the user's.

    A link is followed, and each folder that it leads through is looked at, too.
    """
    place = folder / name
    fault = folder_fault(folder, environ) or _way_fault(place, environ)
    if fault is None and os.path.lexists(place):
        real = Path(os.path.realpath(place))
        moved = _shared_fault(real.parent, environ) if place.is_symlink() else None
        fault = (
            owner_fault(place, os.lstat(place), environ)
            or moved
            or folder_fault(place, environ)
            or _file_fault(real, environ)
        )
    if fault is not None:
        raise UntrustedStore(str(place), fault)


def _way_fault(place: Path, environ: Mapping[str, str]) -> str | None:
    """Return why another user could have laid the way to a path: a link of theirs, or a folder in
    which they may rename all.
    """
    # True if all users may write to the folder above, each their own files only
    is_shared = False
    for path, found in _steps(place):
        if is_shared or stat.S_ISLNK(found.st_mode):
            fault = None if found.st_uid == 0 else owner_fault(path, found, environ)
            if fault is not None:
                return fault
        if stat.S_ISDIR(found.st_mode):
            is_shared = bool(found.st_mode & stat.S_IWOTH)
            if is_shared and not found.st_mode & stat.S_ISVTX:
                return f"everybody may write to {path}"
    return None


def _steps(place: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Each folder and link on the way to a path, as the system goes it, from the root; the path
    itself is the last.
    """
    done, rest, links = Path("/"), list(place.absolute().parts[1:]), 0
    while rest:
        name = rest.pop(0)
        if name == "..":
            done = done.parent
            continue
        try:
            found = os.lstat(done / name)
        except OSError:  # not there, or closed to us: any use of it is refused by itself
            return
        yield done / name, found
        if not stat.S_ISLNK(found.st_mode):
            done = done / name
            continue
        links += 1
        if links > LINKS_MAX:
            return
        target = Path(os.readlink(done / name))
        done, rest = (
            (Path("/"), [*target.parts[1:], *rest])
            if target.is_absolute()
            else (done, [*target.parts, *rest])
        )


def _shared_fault(folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return why a folder that a link leads into is not trusted. One of the system's is."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return (
        None
        if found.st_uid == 0 and not found.st_mode & stat.S_IWOTH
        else folder_fault(folder, environ)
    )


def _file_fault(store: Path, environ: Mapping[str, str]) -> str | None:
    """Return why something in a store's own folder is not the user's alone: the database, files of
    SQLite beside it, copies.
    """
    try:
        # else no other user gets there, in spite of the modes of files
        is_open = bool(os.stat(store).st_mode & stat.S_IXOTH)
        with os.scandir(store) as listing:
            inside = [(Path(item.path), item.stat(follow_symlinks=False)) for item in listing]
    except OSError:  # no folder, or closed to us: any use of it is refused by itself
        return None
    for path, found in inside:
        if is_open and found.st_mode & stat.S_IWOTH and not stat.S_ISLNK(found.st_mode):
            return f"everybody may write to {path}"
        if (fault := owner_fault(path, found, environ)) is not None:
            return fault
    return None


def folder_fault(folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return why others than the user could put something there. None: only the user can."""
    try:
        found = os.stat(folder)
    except OSError:  # gone, or closed to us: any use of it is refused by itself
        return None
    if found.st_mode & stat.S_IWOTH:
        return f"everybody may write to {folder}"
    return owner_fault(folder, found, environ)


def owner_fault(path: Path, found: os.stat_result, environ: Mapping[str, str]) -> str | None:
    """Return why it is not the user's. Behind sudo, the caller of sudo counts as the user."""
    caller = environ.get("SUDO_UID", "")
    own = {os.geteuid(), *([int(caller)] if os.geteuid() == 0 and caller.isdecimal() else [])}
    return f"another user (uid {found.st_uid}) owns {path}" if found.st_uid not in own else None
