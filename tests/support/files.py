"""Folders with files in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def filled_folder(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """The folder, made if it is not there, with these files in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder
