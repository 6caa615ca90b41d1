"""Folders for tests that are not about the disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import zstandard

_MEMORY = "/dev/shm"  # a file system in memory, on Linux: an fsync there costs nothing


@contextmanager
def quick_folder() -> Generator[Path]:
    """A folder in memory where the system has one."""
    with tempfile.TemporaryDirectory(
        dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None
    ) as folder:
        yield Path(folder)


def old_store(folder: Path, schema: int) -> None:
    """A store as the program of that schema wrote it: a root that says "kept" first, with a blob
    and a long body, and a fork at 3.
    """
    folder.mkdir(parents=True, exist_ok=True)
    packed = Path(__file__).parents[1] / "store" / "old" / f"schema-{schema}.db.zst"
    (folder / "store.db").write_bytes(zstandard.decompress(packed.read_bytes()))
