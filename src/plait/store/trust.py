"""Which folders a store is looked for in, when none is named.

A store tells agents what was said and decided, and a run that is taken up from it runs code. One that another user could have put
there is not taken for ours, as git does it: it has to be named.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from plait.errors import UntrustedStore

# What the root of a repository has.
ROOTS = (".git", ".hg", ".svn", ".jj", ".sl", ".bzr", "_darcs", ".pijul", ".fslckout", "_FOSSIL_")


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
    """Refuse a store of this name in a folder that is not the user's alone, or that is not the user's itself."""
    place = folder / name
    faults = [folder_fault(folder, environ)]
    if os.path.lexists(place):
        faults += [owner_fault(place, os.lstat(place), environ), folder_fault(place, environ)]
    for fault in faults:
        if fault is not None:
            raise UntrustedStore(str(place), fault)


def folder_fault(folder: Path, environ: Mapping[str, str]) -> str | None:
    """Why others than the user could put something there. None: only the user can."""
    try:
        found = os.stat(folder)
    except OSError:  # gone, or closed to us: whatever is done there is refused by itself
        return None
    if found.st_mode & stat.S_IWOTH:
        return f"everybody may write to {folder}"
    return owner_fault(folder, found, environ)


def owner_fault(path: Path, found: os.stat_result, environ: Mapping[str, str]) -> str | None:
    """Why it is not the user's. Behind sudo, that is also whoever called it."""
    caller = environ.get("SUDO_UID", "")
    own = {os.geteuid(), *([int(caller)] if os.geteuid() == 0 and caller.isdecimal() else [])}
    return f"another user (uid {found.st_uid}) owns {path}" if found.st_uid not in own else None
