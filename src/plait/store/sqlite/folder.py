"""The folder of a store: made so that it lasts, and closed to other users."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from plait.errors import BadAddress, DiskFull, StoreFailed


def make_folder(folder: Path, file: str) -> None:
    """Make the folder for a file if need be, so that it survives a power cut and stays out of
    version control.
    """
    try:
        if (folder / file).exists():
            return
        # No .gitignore goes into a folder that was there before; one that was cut off in the making
        # is ours.
        ours = (
            folder.name == ".plait"
            or not folder.is_dir()
            or [each.name for each in folder.iterdir()] == [".gitignore"]
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)  # the log of agents is private
        ignore = folder / ".gitignore"
        if ours and not (ignore.exists() and ignore.stat().st_size):
            ignore.write_text("*\n")
        _sync_folders(folder)
    except FileExistsError as error:
        raise BadAddress(str(folder), "there is a file of that name") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(str(folder)) from error
        if error.errno == errno.EIO:
            raise StoreFailed(str(folder), str(error)) from error
        raise BadAddress(str(folder), error.strerror or str(error)) from error


def _sync_folders(folder: Path) -> None:
    """Sync the folder and all above it: after a cut-off attempt any of them may be new."""
    for each in (folder, *folder.parents):
        try:
            handle = os.open(each, os.O_RDONLY)
        except PermissionError:
            continue  # we may pass through it but not look into it, so we did not make it
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
