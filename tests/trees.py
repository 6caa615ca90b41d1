"""Folders at random: made, changed and told without any of our own code, so that what Plait says of
them can be compared.

Run as a program it changes a folder and tells what is in it then: that is how a folder is changed
inside a mount namespace.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

Told = dict[str, list[Any]]  # path: kind, mode, content or target
Edit = Sequence[Any]  # what, two numbers that choose paths, a name, a content, a mode


def tell(root: str) -> Told:
    """Everything below, links not followed."""
    found: Told = {}
    for folder, path in _walk(root):
        found[path] = _told(folder)
    return found


def _told(path: str) -> list[Any]:
    mode = os.lstat(path).st_mode
    bits = stat.S_IMODE(mode) & 0o777
    if stat.S_ISLNK(mode):
        return ["link", 0o777, os.readlink(path)]
    if stat.S_ISDIR(mode):
        return ["folder", bits, ""]
    if not stat.S_ISREG(mode):
        return ["other", bits, ""]
    with open(path, "rb") as file:
        return ["file", bits, b64encode(file.read()).decode()]


def _walk(root: str, path: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name in sorted(os.listdir(os.path.join(root, path))):
        here = f"{path}/{name}" if path else name
        full = os.path.join(root, here)
        found.append((full, here))
        if stat.S_ISDIR(os.lstat(full).st_mode):
            found += _walk(root, here)
    return found


def edit(root: str, edits: Sequence[Edit]) -> None:
    """Edit the tree where the numbers point; an edit that is impossible there is left out."""
    for each in edits:
        try:
            _edit(root, *each)
        except (OSError, shutil.Error):
            continue


def _edit(
    root: str, what: str, first: int, second: int, name: str, content: str, mode: int
) -> None:
    paths = [path for path, _ in _walk(root)]
    folders = [root, *(path for path in paths if not os.path.islink(path) and os.path.isdir(path))]
    target = paths[first % len(paths)] if paths else root
    new = os.path.join(folders[second % len(folders)], name)
    if what == "write":
        _remove(new)
        _write(new, content, mode)
    elif what == "rewrite" and os.path.isfile(target) and not os.path.islink(target):
        with open(target, "wb") as file:
            file.write(content.encode())
    elif what == "remove" and target != root:
        _remove(target)
    elif what == "folder":
        _remove(new)
        os.mkdir(new)
        os.chmod(new, mode | 0o700)
    elif what == "link":
        _remove(new)
        os.symlink(content.replace("\0", "") or "nowhere", new)
    elif what == "mode" and target != root and not os.path.islink(target):
        os.chmod(target, mode | 0o500 if os.path.isdir(target) else mode)
    elif what == "move" and target != root:
        _remove(new)
        shutil.move(target, new, copy_function=shutil.copy2)
    elif what == "again" and target != root:  # gone, and there again as something else
        was_folder = os.path.isdir(target) and not os.path.islink(target)
        _remove(target)
        _write(target, content, mode) if was_folder else os.mkdir(target)


def _write(path: str, content: str, mode: int) -> None:
    with open(path, "wb") as file:
        file.write(content.encode())
    os.chmod(path, mode)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


if __name__ == "__main__":
    edit(sys.argv[1], json.loads(sys.stdin.read()))
    print(json.dumps(tell(sys.argv[1])))
